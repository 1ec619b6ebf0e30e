//! What launcher, agent and rank say to each other.
//!
//! Every stream begins with a version ([`PROTOCOL`]) outside the frames, so that a peer built against another version
//! is refused with both versions named instead of with a decoding error.

use super::node::{Detail, Devices, Node, Placement};
use super::onward::{FromBelow, Reach};
use crate::config::{Snapshot, Value};
use crate::memory::Activity;
use crate::statistics::Statistics;
use crate::trace::RankTrace;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;

/// The version of every message in this module and of the wire between ranks. Raised whenever one of them changes.
pub const PROTOCOL: u32 = 9;

/// The first words of the line an agent prints before its first frame; `NONCE PROTOCOL VERSION` follow, then a newline.
/// What a login shell printed before that line is noise.
pub const AGENT_MARKER: &str = "RSRUN-AGENT";

/// The environment variable that tells a program which descriptor holds its [`Boot`].
pub const BOOT_FD_VARIABLE: &str = "SPMD_BOOT_FD";

/// The environment variable that tells a program which descriptor is its control socket to the agent. Not part of
/// [`Boot`], so that a program of another version, which cannot read that, can still say so.
pub const CONTROL_FD_VARIABLE: &str = "SPMD_CONTROL_FD";

/// The first bytes of the boot memfd; a little-endian `u32` protocol version, a `u32` length and that many bytes of
/// package version text follow, then the encoded [`Boot`].
pub const BOOT_MAGIC: [u8; 8] = *b"SPMDBOOT";

/// The first bytes a rank writes on its control socket, followed by its little-endian `u32` protocol version, a `u32`
/// length and its package version text. Frames of [`FromRank`] follow.
pub const RANK_MAGIC: [u8; 8] = *b"SPMDRANK";

/// The secret of one job: ranks prove to each other that they know it. Never shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobKey(pub [u8; 32]);

impl std::fmt::Debug for JobKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobKey(…)")
    }
}

/// Bytes of a path, an argument or an environment variable: not necessarily UTF-8, passed on unchanged.
pub type Bytes = Vec<u8>;

/// One host of the job as every rank sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The name as the user wrote it.
    pub name: String,
    /// The rack or switch from the hostfile's `group=`, if any.
    pub group: Option<String>,
}

/// What a rank is born with, in a sealed memfd.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Boot {
    /// A random name of the job, no secret.
    pub job: String,
    /// The secret that ranks prove to each other over TCP.
    pub key: JobKey,
    /// The configuration of the whole job.
    pub snapshot: Snapshot,
    /// This rank, `0..host_of.len()`.
    pub rank: u32,
    /// For every rank the index of its host in `hosts`.
    #[serde(with = "super::runs")]
    pub host_of: Vec<u32>,
    /// All hosts of the job.
    pub hosts: Vec<Host>,
    /// The inherited memfd that all ranks of this host share.
    pub segment_fd: i32,
    /// For every rank of this host, in rank order, the inherited eventfd that wakes it.
    pub wake_fds: Vec<i32>,
    /// More ranks on this host than processors that they may use: waiting must not spin.
    pub oversubscribed: bool,
    /// The address of this host as the launcher reached it (from `SSH_CONNECTION`), tried first by peers.
    pub reached_at: Option<std::net::IpAddr>,
    /// Where this rank sits.
    pub placement: Placement,
    /// The network devices of all ranks.
    pub devices: Devices,
    /// The job goes on when a rank fails: its loss is then an error for those who wait for it, at once.
    pub survives: bool,
}

/// From the launcher to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToAgent {
    /// Describe the host: answered by [`FromAgent::Node`]. Sent before [`ToAgent::Start`], when placement needs it.
    Describe(Detail),
    /// The job. Sent once, after [`FromAgent::Hello`].
    Start(Box<Start>),
    /// Every rank has said hello and agrees: `World::init` may return.
    Release(Release),
    /// `World::init` must fail on every rank, for this reason.
    Refuse {
        /// The message for the program's error.
        reason: String,
    },
    /// Bytes of standard input; empty means end of input.
    Stdin {
        /// The rank of this host that reads; `None`: every rank of this host.
        rank: Option<u32>,
        /// At most 64 KiB.
        #[serde(with = "serde_bytes")]
        data: Bytes,
    },
    /// Send this signal to the process group of every rank that still runs.
    Signal {
        /// The signal's number.
        signal: i32,
    },
    /// So many bytes of a rank's output have been written: the agent may send as many more.
    OutputTaken {
        /// The rank.
        rank: u32,
        /// How many bytes.
        bytes: u32,
    },
    /// Say what the ranks of this host are doing: [`FromAgent::Report`].
    Report,
    /// Connect to these hosts and pass on what is said: [`ToAgent::Below`], [`FromAgent::Below`].
    Reach(Box<Reach>),
    /// Give up the connection to a host that [`ToAgent::Reach`] named.
    Leave {
        /// Its number in the launcher's list.
        host: u32,
    },
    /// A message for agents that are reached through this one.
    Below {
        /// The numbers of their hosts.
        hosts: Vec<u32>,
        /// The encoded message. Not the message itself: one that holds another, and so on, would take a decoder's stack.
        #[serde(with = "serde_bytes")]
        message: Bytes,
    },
    /// Kill every process of this job on this host: an agent of it was lost here, and so was its guard. Answered by
    /// [`FromAgent::Done`].
    Sweep {
        /// The name of the job.
        job: String,
    },
    /// The job goes on without this rank.
    RankLost {
        /// The rank.
        rank: u32,
        /// How it was lost.
        reason: String,
    },
    /// These ranks have dropped their `World`: nothing more comes from them.
    RanksFinished {
        /// The ranks.
        ranks: Vec<u32>,
    },
    /// End the job here: this signal, after the snapshot's grace SIGKILL, then [`FromAgent::Done`].
    Stop {
        /// The signal that ranks get first: SIGTERM, or the one that the launcher got.
        signal: i32,
    },
}

/// Who reads the launcher's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StdinTarget {
    /// Nobody.
    None,
    /// Every rank gets a copy.
    All,
    /// This rank.
    Rank(u32),
}

impl StdinTarget {
    /// Whether this rank reads.
    #[must_use]
    pub fn includes(self, rank: u32) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Rank(one) => one == rank,
        }
    }
}

/// The job as one agent needs it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// As in [`Boot`].
    pub job: String,
    /// As in [`Boot`].
    pub key: JobKey,
    /// As in [`Boot`].
    pub snapshot: Snapshot,
    /// As in [`Boot`].
    #[serde(with = "super::runs")]
    pub host_of: Vec<u32>,
    /// As in [`Boot`].
    pub hosts: Arc<Vec<Host>>,
    /// The index of the agent's host in `hosts`.
    pub host: u32,
    /// The programs that ranks of this host run.
    pub apps: Vec<App>,
    /// For every rank of this host, in rank order, its program: an index into `apps`.
    pub app_of: Vec<u32>,
    /// SHA-256 of every configuration file that the launcher read: a file with the same content is no stray.
    pub files_read: Vec<[u8; 32]>,
    /// `RSRUN_*` variables (name, value) that the launcher itself read: an equal one is no stray.
    pub variables_read: Vec<(Bytes, Bytes)>,
    /// As in [`Boot`]. The launcher knows it best: several hosts may be one machine.
    pub oversubscribed: bool,
    /// Where each rank of the agent's host sits, in rank order; empty: nowhere in particular.
    pub placements: Vec<Placement>,
    /// As in [`Boot`].
    pub devices: Arc<Devices>,
    /// Who reads the launcher's standard input.
    pub stdin: StdinTarget,
    /// A rank whose unfinished line is sent on when it pauses: the one that somebody may be talking to.
    pub prompts: Option<u32>,
    /// How many bytes of a rank's output may be under way before [`ToAgent::OutputTaken`].
    pub output_window: u32,
    /// As in [`Boot`].
    pub survives: bool,
}

/// One program of a job, and how it is started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// The program: an absolute path, a path with a slash (from the working directory), or a name to find in `PATH`.
    pub program: Bytes,
    /// Its arguments, without the program itself.
    pub arguments: Vec<Bytes>,
    /// Variables to set in its ranks, over the agent's own environment.
    pub environment: Vec<(Bytes, Bytes)>,
    /// The directory to start in.
    pub directory: Bytes,
    /// The command in front of the program, word by word (`%r` rank, `%n` number of ranks, `%%` percent); empty: none.
    pub wrap: Vec<Bytes>,
    /// The ranks, first and last, that get `wrap`; empty: all.
    pub wrap_ranks: Vec<(u32, u32)>,
}

/// What lets `World::init` return.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Release {
    /// For every rank the addresses it listens on, best first; empty when it does not listen.
    pub addresses: Vec<Vec<SocketAddr>>,
}

/// From an agent to the launcher.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromAgent {
    /// First frame after the marker line.
    Hello {
        /// What `gethostname` says.
        hostname: String,
        /// Cores that processes of this agent may use (a core counts if any of its hardware threads is allowed).
        allowed_cores: u32,
        /// Identity of the machine: boot id, network and pid namespace. Two hosts with the same identity are one.
        identity: String,
        /// The agent's process id.
        pid: u32,
    },
    /// What the host looks like, or why that cannot be found out.
    Node(Result<Box<Node>, String>),
    /// A variable or file on this host that a less careful launcher would have read. Ignored, and named.
    Stray {
        /// For example `RSRUN_SHM_RING_BYTES=4096 in the environment`.
        what: String,
    },
    /// A rank has been started.
    Spawned {
        /// The rank.
        rank: u32,
        /// Its process id on that host.
        pid: u32,
        /// Where the kernel lets it run, as in `/proc/PID/status`: `0-3,8`; empty when it has ended already.
        cpus: String,
    },
    /// A rank could not be started.
    SpawnFailed {
        /// The rank.
        rank: u32,
        /// What failed, with path and reason.
        reason: String,
        /// Whether the program was not found, not executable, or something else failed.
        kind: SpawnFailure,
    },
    /// Output of a rank: whole lines, a piece of a very long one, or a line that has not ended yet.
    Output {
        /// The rank.
        rank: u32,
        /// Which of the two streams.
        stream: Stream,
        /// When the agent read it: microseconds since 1970.
        at: u64,
        /// The stream has ended, and with it a line without a newline.
        cut: bool,
        /// The bytes, as they came.
        #[serde(with = "serde_bytes")]
        data: Bytes,
    },
    /// The rank took `bytes` of its standard input; the launcher may send as many more.
    StdinTaken {
        /// The rank.
        rank: u32,
        /// How many bytes. Zero: the rank no longer reads.
        bytes: u32,
    },
    /// The rank has entered `World::init`.
    RankHello {
        /// The rank.
        rank: u32,
        /// What it said.
        hello: Hello,
    },
    /// The rank has dropped its `World` in order.
    RankFinalized {
        /// The rank.
        rank: u32,
    },
    /// What the rank has counted or recorded.
    RankInsight {
        /// The rank.
        rank: u32,
        /// What it said.
        insight: Insight,
    },
    /// The rank asks for the end of the whole job.
    RankAbort {
        /// The rank.
        rank: u32,
        /// The exit code it asks for.
        code: i32,
        /// Why.
        message: String,
    },
    /// The rank's program was built against another protocol version.
    RankVersion {
        /// The rank.
        rank: u32,
        /// Its protocol version.
        protocol: u32,
        /// Its package version.
        version: String,
    },
    /// The rank's process has ended and all its output has been sent.
    Exited {
        /// The rank.
        rank: u32,
        /// How.
        exit: Exit,
    },
    /// How many processes a [`ToAgent::Signal`] reached.
    Signalled {
        /// Processes reached.
        count: u32,
    },
    /// The answer to [`ToAgent::Report`].
    Report {
        /// What each rank of this host that still runs is doing.
        ranks: Vec<(u32, Activity)>,
    },
    /// Something from an agent that is reached through this one.
    Below {
        /// The number of its host.
        host: u32,
        /// What.
        said: FromBelow,
    },
    /// Something the user should know, in one line.
    Warning {
        /// The line.
        text: String,
    },
    /// The agent cannot carry out the job: a resource is missing, or something broke its rules.
    Failed {
        /// What, in one line.
        reason: String,
    },
    /// Nothing of the job is left on this host. The last frame.
    Done,
}

/// What a rank says when it enters `World::init`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Its process id.
    pub pid: u32,
    /// The hash of the snapshot it works with.
    pub snapshot: [u8; 32],
    /// What the program set in code: must be equal on all ranks.
    pub program: Vec<(String, Value)>,
    /// The addresses it listens on, best first.
    pub addresses: Vec<SocketAddr>,
}

/// From a rank to its agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromRank {
    /// `World::init` was entered.
    Hello(Hello),
    /// The `World` was dropped in order: the process may exit.
    Finalized,
    /// End the whole job with this exit code.
    Abort {
        /// The exit code.
        code: i32,
        /// Why.
        message: String,
    },
    /// What it has counted or recorded.
    Insight(Insight),
}

/// What a rank tells of itself when the configuration asks for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Insight {
    /// What it has counted; replaces what it said before.
    Statistics(Box<Statistics>),
    /// What it has recorded.
    Trace(Box<RankTrace>),
    /// Which way its messages take, as JSON.
    Explanation(String),
    /// What a library has chosen for a kind of call, as JSON.
    Choice(String),
}

/// From an agent to one of its ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToRank {
    /// All ranks agree.
    Release(Release),
    /// `World::init` must fail.
    Refuse {
        /// The message.
        reason: String,
    },
    /// A rank is gone, and the job goes on.
    Lost {
        /// The rank.
        rank: u32,
        /// How it was lost.
        reason: String,
    },
    /// These ranks have dropped their `World`: nothing more comes from them.
    Finished {
        /// The ranks.
        ranks: Vec<u32>,
    },
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// `exit(code)`.
    Code(i32),
    /// Killed by a signal.
    Signal {
        /// The signal's number.
        signal: i32,
        /// Whether a core was dumped.
        core: bool,
    },
}

/// One of the two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Why a rank could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpawnFailure {
    /// The program does not exist (exit code 127).
    NotFound,
    /// The program is not executable (exit code 126).
    NotExecutable,
    /// The working directory is missing or not accessible.
    Directory,
    /// Anything else.
    Other,
}
