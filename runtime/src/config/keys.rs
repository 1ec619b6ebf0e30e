//! The table of every configuration key: the only place where a key is declared.
//!
//! Handles, defaults, ranges, environment names, help and the reference page come from it. A new key is one row here
//! and a reader somewhere else; a test fails as long as nobody reads it.

use super::spec::{Key, KeySpec, Kind, Words, clip};
use std::ops::RangeInclusive;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Declares handles and table from one list of rows.
macro_rules! table {
    ($(
        $(#[doc = $doc:literal])+
        $handle:ident: $type:ty = $name:literal, $kind:expr, read by $reader:literal
        $(, aliases $aliases:expr)? $(, environment $environment:expr)?;
    )+) => {
        #[expect(non_camel_case_types, reason = "one variant per handle, to number the rows")]
        enum Row { $($handle),+ }

        /// Every key, in the order of the reference page.
        pub const TABLE: &[KeySpec] = &[$(
            KeySpec {
                name: $name,
                kind: $kind,
                doc: concat!($($doc),+),
                reader: $reader,
                aliases: or_none!($($aliases)?),
                environment_aliases: or_none!($($environment)?),
            }
        ),+];

        /// The names of the handles, as readers write them.
        #[cfg(test)]
        pub(super) const HANDLES: &[&str] = &[$(stringify!($handle)),+];

        $(
            $(#[doc = $doc])+
            pub const $handle: Key<$type> = Key::<$type>::on(TABLE, Row::$handle as usize);
        )+
    };
}

macro_rules! or_none {
    () => {
        &[]
    };
    ($list:expr) => {
        &$list
    };
}

table! {
    /// Promise that most messages are at most this large: they take the low-latency way, larger ones the other, and their
    /// order is kept. Zero promises nothing: one general recipe. What it comes to on each transport is shown by
    /// `rsrun --explain` and `World::low_latency_size_hint`.
    LOW_LATENCY_SIZE_HINT: u64 = "low_latency.size_hint", bytes(0, 0..=GIB), read by "the runtime's protocol choice",
        aliases ["low_latency_rdma_size_hint"], environment ["RDMA_LOW_LATENCY_HINT"];

    /// Transports that different ranks may use, the fastest that reaches the peer is taken. `tcp` alone forces TCP even
    /// within a host. `verbs` is RDMA; without `tcp` beside it, a peer that RDMA does not reach is an error.
    TRANSPORT_ALLOW: String = "transport.allow", list("shm,verbs,tcp", Words::OneOf(&["shm", "verbs", "tcp"])),
        read by "the runtime's choice of transport";

    /// Ring buffer of each ordered pair of ranks of one host: more than a core's own cache holds, so that large messages
    /// pass through the shared one. On a host with more than 8 ranks less, down to 256 KiB: all together at most 256 MiB.
    /// Memory is taken only as far as messages need it.
    SHM_RING_BYTES: u64 = "shm.ring_bytes", power_of_two(4 * MIB, 4 * KIB..=16 * MIB),
        read by "agent (size of the segment) and shared-memory transport";

    /// Whether a receiver copies a large message out of the memory of a sender on its host, which the kernel must permit
    /// (`process_vm_readv`), instead of both copying it through the ring buffer: `auto` does where ranks share processors,
    /// because that takes one turn of each, and else not, because two processors copy faster than one.
    SHM_DIRECT_READ: String = "shm.direct_read", choice("auto", &["auto", "always", "never"]), read by "shared-memory transport";

    /// Messages within a host up to this size are sent at once; larger ones wait until the receiver is ready
    /// (rendezvous).
    EAGER_LIMIT: u64 = "eager.limit", bytes(8 * KIB, 0..=MIB), read by "the runtime's protocol choice";

    /// Bytes of small messages that a rank keeps for each peer before its program receives them; each counts 64 more. A
    /// sender that has used it up announces further messages and waits.
    EAGER_WINDOW: u64 = "eager.window", bytes(MIB, 4 * KIB..=GIB), read by "the runtime's flow control";

    /// Messages between hosts up to this size are sent at once: more than within a host, because asking costs a round
    /// trip.
    TCP_EAGER_LIMIT: u64 = "tcp.eager_limit", bytes(64 * KIB, 0..=MIB), read by "the runtime's protocol choice";

    /// Interfaces that ranks may listen on, by name or by the prefix of their address; `^` in front leaves one out. Empty:
    /// every one, and loopback only when all ranks are on one host. An address that several hosts have (the bridge of a
    /// container engine) is never tried.
    TCP_INTERFACES: String = "tcp.interfaces", list("", Words::Interfaces), read by "TCP transport";

    /// How long a rank tries to reach another one.
    TCP_CONNECT_TIMEOUT: Duration = "tcp.connect_timeout", duration(s(10), ms(100)..=s(600)), read by "TCP transport";

    /// Read buffer of each connection.
    TCP_BUFFER_BYTES: u64 = "tcp.buffer_bytes", bytes(256 * KIB, 4 * KIB..=64 * MIB), read by "TCP transport";

    /// Connections of each pair of ranks. With more than one, the first carries small messages and everything that needs
    /// an order, and the pieces of large messages are spread over the others: for links that one connection cannot fill.
    TCP_SOCKETS: u64 = "tcp.sockets", Kind::Count { default: 1, range: 1..=16 }, read by "TCP transport";

    /// Bytes of each connection that may be under way: a sender keeps them until the receiver has confirmed them, to send
    /// them again when the connection breaks, and waits when there are more.
    TCP_RESEND_BYTES: u64 = "tcp.resend_bytes", bytes(2 * MIB, 4 * KIB..=256 * MIB), read by "TCP transport";

    /// How long two ranks that live try to replace a connection that broke. Zero: a broken connection is a lost peer, and
    /// senders keep no copy of what they have sent, which makes messages above 64 KiB faster.
    TCP_RECONNECT: Duration = "tcp.reconnect", duration(s(20), s(0)..=s(3600)), read by "TCP transport";

    /// A host that has not answered for this long is lost, and every rank on it. The kernel asks and answers, so that a
    /// rank may compute, or be stopped, for as long as it likes.
    HEARTBEAT_TIMEOUT: Duration = "heartbeat.timeout", duration(s(30), s(3)..=s(86400)), read by "TCP transport";

    /// Not zero: every transport between ranks behaves as badly as it may, by dice thrown with this seed. For tests of
    /// programs: what they rely on beyond the guarantees of the runtime breaks.
    FAULTY_SEED: u64 = "faulty.seed", Kind::Count { default: 0, range: 0..=u64::MAX }, read by "transport `faulty`";

    /// What goes wrong with `faulty.seed`: records are delayed, sends find no room, large messages come in other pieces and
    /// another order, connections break and are replaced.
    FAULTY_FAULTS: String = "faulty.faults",
        list("delay,refuse,split,reorder,sever", Words::OneOf(&["delay", "refuse", "split", "reorder", "sever"])),
        read by "transport `faulty`";

    /// With `faulty.seed`: a peer is lost after this many records from it. Zero: never.
    FAULTY_LOSE_AFTER: u64 = "faulty.lose_after", Kind::Count { default: 0, range: 0..=u64::MAX },
        read by "transport `faulty`";

    /// RDMA devices, as DEVICE, DEVICE:PORT or DEVICE:PORT:GID (`mlx5_0:1:3`): the ranks of a host take them in turn. Empty:
    /// the device next to the rank, else the one with the address at which the launcher reached the host, else the first
    /// whose port is up.
    VERBS_DEVICE: String = "verbs.device", Kind::Text { default: "" }, read by "RDMA transport";

    /// Messages over RDMA up to this size are sent at once; larger ones wait until the receiver is ready (rendezvous).
    VERBS_EAGER_LIMIT: u64 = "verbs.eager_limit", bytes(16 * KIB, 0..=MIB), read by "the runtime's protocol choice";

    /// The ring of each connection that the peer writes by RDMA, and our copy of the peer's. A record is at most a quarter of
    /// it.
    VERBS_RING_BYTES: u64 = "verbs.ring_bytes", power_of_two(256 * KIB, 64 * KIB..=64 * MIB), read by "RDMA transport";

    /// Queue pairs of each pair of ranks for messages above the size hint. With more than one, the pieces of large messages
    /// are spread over them: for devices that one queue pair cannot fill.
    VERBS_QUEUE_PAIRS: u64 = "verbs.queue_pairs", Kind::Count { default: 1, range: 1..=16 }, read by "RDMA transport";

    /// Work requests of a connection that may be under way.
    VERBS_SEND_DEPTH: u64 = "verbs.send_depth", Kind::Count { default: 256, range: 16..=16384 }, read by "RDMA transport";

    /// Receives that are kept posted for each connection. Zero: one for every credit that the peer has, so that a receiver
    /// is always ready. Fewer show what happens when it is not.
    VERBS_RECEIVES: u64 = "verbs.receives", Kind::Count { default: 0, range: 0..=16384 }, read by "RDMA transport";

    /// The largest record, header of 48 bytes included, that travels within its work request; less where the device takes
    /// less.
    VERBS_INLINE: u64 = "verbs.inline", bytes(220, 0..=KIB), read by "RDMA transport";

    /// How long the device waits for an acknowledgement before it sends again: rounded up to 4.096 us times a power of two.
    /// Zero: for ever, so that a lost packet is never noticed.
    VERBS_TIMEOUT: Duration = "verbs.timeout", duration(ms(67), s(0)..=s(8796)), read by "RDMA transport";

    /// How often the device sends again before the connection fails.
    VERBS_RETRIES: u64 = "verbs.retries", Kind::Count { default: 7, range: 0..=7 }, read by "RDMA transport";

    /// How often the device tries again with a receiver that is not ready; 7: for ever. Receivers are always ready, unless
    /// something is wrong: 0 shows it.
    VERBS_RNR_RETRIES: u64 = "verbs.rnr_retries", Kind::Count { default: 7, range: 0..=7 }, read by "RDMA transport";

    /// How long a sender is asked to wait that finds this rank not ready: rounded up to one of 32 times.
    VERBS_RNR_TIMER: Duration = "verbs.rnr_timer", duration(Duration::from_micros(640), Duration::from_micros(10)..=Duration::from_micros(655_360)),
        read by "RDMA transport";

    /// The largest packet; less where the port of either side takes less.
    VERBS_MTU: String = "verbs.mtu", choice("4096", &["256", "512", "1024", "2048", "4096"]), read by "RDMA transport";

    /// The traffic class of packets, whose upper six bits are the DSCP that switches go by.
    VERBS_TRAFFIC_CLASS: u64 = "verbs.traffic_class", Kind::Count { default: 0, range: 0..=255 }, read by "RDMA transport";

    /// The same for the low-latency channel that a size hint makes.
    VERBS_LOW_LATENCY_TRAFFIC_CLASS: u64 = "verbs.low_latency_traffic_class", Kind::Count { default: 0, range: 0..=255 },
        read by "RDMA transport";

    /// Every work request produces a completion: for debugging.
    VERBS_SIGNAL_ALL: bool = "verbs.signal_all", Kind::Flag { default: false }, read by "RDMA transport";

    /// How a blocked call waits: `auto` spins for `wait.spin`, then sleeps, and does not spin when a host has more ranks
    /// than cores.
    WAIT_POLICY: String = "wait.policy", choice("auto", &["auto", "spin", "yield", "sleep"]), read by "the runtime's waiting";

    /// How long a blocked call spins before it yields and sleeps.
    WAIT_SPIN: Duration = "wait.spin", duration(Duration::from_micros(50), s(0)..=s(1)), read by "the runtime's waiting";

    /// What rank 0 says, when it joins, of which way its messages take, by peer and size, and why: `text` prints it on standard
    /// error, the name of a file that ends in `.json` writes it as JSON into that file on the launcher's host, `off` does
    /// neither. The option `--explain` sets it.
    REPORT_EXPLAIN: String = "report.explain", Kind::Text { default: "off" }, read by "`World::init` on rank 0 and the launcher";

    /// At the end of the job, messages, bytes, paths and waits of all ranks: `-` prints a table, anything else is the file
    /// on the launcher's host that gets them as JSON. Empty: nothing. The option `--stats` sets it.
    REPORT_STATISTICS: String = "report.statistics", Kind::Text { default: "" }, read by "the runtime and the launcher";

    /// The file on the launcher's host that gets what every rank did when, in the format of Chrome and Perfetto. Empty:
    /// nothing is recorded. The option `--trace` sets it.
    REPORT_TRACE: String = "report.trace", Kind::Text { default: "" }, read by "the runtime and the launcher";

    /// How many events of a trace each rank keeps, 48 bytes each; when there are more, the oldest are dropped and counted.
    TRACE_EVENTS: u64 = "trace.events", Kind::Count { default: 65_536, range: 16..=16_777_216 }, read by "the runtime's trace";
    /// Which ranks collectives in two hops take as a group: those of a `host`, those whose hosts have the same `group=` in
    /// the hostfile, every so many neighbours (a number), or `none`. Several levels, from the inner to the outer, are groups
    /// of groups: `host,group` is hosts in racks, `host,8` is hosts in eights, `4,host` is fours of a host's ranks in hosts;
    /// numbers stay within the next level that has a name. What leaves an outer group then leaves it once for all ranks in
    /// it.
    COLLECTIVES_GROUPS: String = "collectives.groups", list("host", Words::Levels), read by "collectives";

    /// Every so many neighbouring ranks are a group instead, on one level, wherever they are; 0: as `collectives.groups`
    /// says.
    COLLECTIVES_GROUP_SIZE: u64 = "collectives.group_size", Kind::Count { default: 0, range: 0..=1_000_000 }, read by "collectives";

    /// How many ranks of each group lead in collectives in two hops, each its share of the data; no more than the smallest
    /// group has ranks. In larger groups all groups lead, each its share, unless the data is too short for that.
    COLLECTIVES_LEADERS: u64 = "collectives.leaders", Kind::Count { default: 1, range: 1..=1024 }, read by "collectives";

    /// The most bytes that a group combines at once in collectives in two hops; 0: as the cost formula says.
    COLLECTIVES_CHUNK_BYTES: u64 = "collectives.chunk_bytes", bytes(0, 0..=GIB), read by "collectives";

    /// The most bytes of one message of collectives that cut their data into pieces, in two hops of one between the groups; 0:
    /// as the cost formula says.
    COLLECTIVES_SEGMENT_BYTES: u64 = "collectives.segment_bytes", bytes(0, 0..=GIB), read by "collectives";

    /// The file on the launcher's host with the tuning table, as `rsbench tune collectives` writes it; every rank gets what it
    /// says. Empty: none.
    COLLECTIVES_TABLE_FILE: String = "collectives.table_file", Kind::Text { default: "" }, read by "launcher";

    /// The tuning table itself: what the launcher has read from `collectives.table_file`. Entries end with `;`.
    COLLECTIVES_TABLE: String = "collectives.table", Kind::Text { default: "" }, read by "collectives";

    /// A collective in which nothing has come for so long tells the ranks that it waits for what it is, and all others when half
    /// of the time has passed after which it says who is missing, so that calls that do not fit together end in an error that
    /// names them. 0: never; only messages of the wrong call are noticed then.
    COLLECTIVES_CHECK_AFTER: Duration = "collectives.check_after", duration(s(1), s(0)..=s(3600)), read by "the runtime";

    /// A collective in which nothing has come for so long says on standard error which ranks are not in it, again after
    /// twice as long and so on, and goes on waiting. 0: never.
    COLLECTIVES_WARN_AFTER: Duration = "collectives.warn_after", duration(s(30), s(0)..=s(86400)), read by "the runtime";

    /// A collective in which nothing has come for so long is an error. 0: it waits for as long as the ranks live.
    COLLECTIVES_TIMEOUT: Duration = "collectives.timeout", duration(s(0), s(0)..=s(86400)), read by "the runtime";

    /// Algorithm of `all_reduce`; `auto` chooses by ranks and bytes.
    COLLECTIVES_ALL_REDUCE: String = "collectives.all_reduce",
        choice("auto", &["auto", "shared", "linear", "binomial", "recursive_doubling", "ring", "rabenseifner", "two_hop", "two_hop_ring", "two_hop_shared", "segmented_ring", "recursive_multiplying", "double_tree"]),
        read by "collectives";

    /// Algorithm of `broadcast`; `auto` chooses by ranks and bytes.
    COLLECTIVES_BROADCAST: String = "collectives.broadcast", choice("auto", &["auto", "shared", "linear", "binomial", "chain", "two_hop", "two_hop_shared", "knomial", "double_tree"]),
        read by "collectives";

    /// Algorithm of `reduce`; `auto` chooses by ranks and bytes.
    COLLECTIVES_REDUCE: String = "collectives.reduce",
        choice("auto", &["auto", "shared", "linear", "binomial", "binomial_ordered", "chain", "two_hop", "two_hop_chain", "two_hop_shared", "knomial"]), read by "collectives";

    /// Algorithm of `barrier`; `auto` chooses by ranks.
    COLLECTIVES_BARRIER: String = "collectives.barrier", choice("auto", &["auto", "shared", "binomial", "dissemination", "two_hop", "two_hop_shared"]),
        read by "collectives";

    /// Algorithm of `gather`; `auto` chooses by ranks and bytes.
    COLLECTIVES_GATHER: String = "collectives.gather", choice("auto", &["auto", "linear", "binomial"]),
        read by "collectives";

    /// Algorithm of `all_gather`; `auto` chooses by ranks and bytes.
    COLLECTIVES_ALL_GATHER: String = "collectives.all_gather",
        choice("auto", &["auto", "ring", "recursive_doubling", "bruck"]), read by "collectives";

    /// Algorithm of `scatter`; `auto` chooses by ranks and bytes.
    COLLECTIVES_SCATTER: String = "collectives.scatter", choice("auto", &["auto", "linear", "binomial"]),
        read by "collectives";

    /// Algorithm of `all_to_all`; `auto` chooses by ranks and bytes.
    COLLECTIVES_ALL_TO_ALL: String = "collectives.all_to_all", choice("auto", &["auto", "linear", "pairwise", "bruck"]),
        read by "collectives";

    /// Algorithm of `reduce_scatter`; `auto` chooses by ranks and bytes.
    COLLECTIVES_REDUCE_SCATTER: String = "collectives.reduce_scatter",
        choice("auto", &["auto", "pairwise", "recursive_halving", "ring"]), read by "collectives";

    /// Algorithm of `scan`; `auto` chooses by ranks and bytes.
    COLLECTIVES_SCAN: String = "collectives.scan", choice("auto", &["auto", "chain", "recursive_doubling"]),
        read by "collectives";

    /// Algorithm of `exscan`; `auto` chooses by ranks and bytes.
    COLLECTIVES_EXSCAN: String = "collectives.exscan", choice("auto", &["auto", "chain", "recursive_doubling"]),
        read by "collectives";

    /// The heap of each rank's device (`spmd_device::Device`), besides what collectives take.
    DEVICE_HEAP_BYTES: u64 = "device.heap_bytes", bytes(256 * MIB, 4 * KIB..=1024 * GIB), read by "devices";

    /// Which way kernels take to other ranks: `mapped` is plain stores into the memory of GPUs of the same host, `proxy` a
    /// thread of the host that posts what kernels write into a ring, `mlx5` a NIC whose doorbell the kernel rings. `auto`
    /// takes `mapped` where it works, else `proxy`.
    DEVICE_WAY: String = "device.way", choice("auto", &["auto", "mapped", "proxy", "mlx5"]), read by "devices";

    /// How long a kernel waits for a signal, a packet, or room in a ring before it gives up with an error. Zero: for ever,
    /// so that kernels that are out of step hang; a rank that is lost ends waits in any case.
    DEVICE_WAIT_LIMIT: Duration = "device.wait_limit", duration(s(30), s(0)..=s(86400)), read by "devices";

    /// The file of NVRTC, which compiles kernels from their source. Empty: libnvrtc.so.13, .12 and the like, wherever the
    /// system's loader finds them.
    DEVICE_NVRTC: String = "device.nvrtc", Kind::Text { default: "" }, read by "devices";

    /// Command that starts the agent on a host instead of SSH: `{host}` in it is replaced by the host, or the host is
    /// appended. Empty: SSH. The option `--launch-agent` sets it.
    LAUNCH_AGENT: String = "launch.agent", Kind::Text { default: "" }, read by "launcher";

    /// Which SSH client: `builtin` is part of the launcher, `command` is the user's `ssh`, `auto` takes the user's where
    /// the host's SSH configuration needs it.
    LAUNCH_SSH: String = "launch.ssh", choice("auto", &["auto", "builtin", "command"]), read by "launcher";

    /// Connections to hosts that are made at once.
    LAUNCH_WINDOW: u64 = "launch.window", Kind::Count { default: 64, range: 1..=4096 }, read by "launcher";

    /// Whether agents connect to further hosts for the launcher. `auto`: when a job has more than 512 hosts. Each host that
    /// others are reached through needs keys of its own for them; where it has none, the launcher connects by itself.
    LAUNCH_TREE: String = "launch.tree", choice("auto", &["auto", "on", "off"]), read by "launcher";

    /// How many hosts the launcher, and each agent of a tree, connects to.
    LAUNCH_TREE_RADIX: u64 = "launch.tree_radix", Kind::Count { default: 32, range: 2..=1024 }, read by "launcher";

    /// How long a host is tried whose name is not known or where nobody listens. Longer for hosts that are just being
    /// made; `launch.connect_timeout` is the limit in any case.
    LAUNCH_WAIT_FOR_HOSTS: Duration = "launch.wait_for_hosts", duration(s(2), s(0)..=s(600)), read by "launcher";

    /// How long a host may take to say hello.
    LAUNCH_CONNECT_TIMEOUT: Duration = "launch.connect_timeout", duration(s(8), ms(100)..=s(600)), read by "launcher";

    /// How long ranks may take to enter `World::init` once the first one has. Zero: no limit.
    LAUNCH_START_TIMEOUT: Duration = "launch.start_timeout", duration(s(60), s(0)..=s(86400)), read by "launcher";

    /// Time between SIGTERM and SIGKILL at the end of a failed job.
    LAUNCH_GRACE: Duration = "launch.grace", duration(s(1), s(0)..=s(3600)), read by "agent";
}

/// The row that has this name or alias.
pub fn find(name: &str) -> Option<&'static KeySpec> {
    position(name).map(|index| &TABLE[index])
}

/// The names of all keys of a group (`verbs`, or `verbs.`); none when there is no such group, or a key of that name.
pub fn group(name: &str) -> Vec<&'static str> {
    let prefix = format!("{}.", name.trim_end_matches('.'));
    let all = TABLE.iter().map(|spec| spec.name).filter(|key| key.starts_with(&prefix));
    if find(name).is_some() { Vec::new() } else { all.collect() }
}

/// The place in the table of the row that has this name or alias.
pub(super) fn position(name: &str) -> Option<usize> {
    TABLE.iter().position(|spec| spec.name == name || spec.aliases.contains(&name))
}

/// The place in the table of the row that has this environment variable.
pub(super) fn environment_position(variable: &str) -> Option<usize> {
    TABLE.iter().position(|spec| spec.environment_aliases.contains(&variable) || spec.environment() == variable)
}

/// The keys whose name looks most like `name`: none when nothing is near, several when they are equally near.
///
/// Case, dots, hyphens and underscores make no difference, and the section may be missing.
pub fn nearest(name: &str) -> Vec<&'static KeySpec> {
    let wanted = plain(name);
    let distance = |spec: &KeySpec| {
        let whole = std::iter::once(&spec.name).chain(spec.aliases).map(|known| {
            let known = plain(known);
            (strsim::damerau_levenshtein(&wanted, &known), known.chars().count())
        });
        let last = spec.name.rsplit('.').next().map(|last| {
            let last = plain(last);
            // One more than a full name with the same distance: that one is meant.
            (strsim::damerau_levenshtein(&wanted, &last) + 1, last.chars().count())
        });
        // A third of the letters may differ, or else the names have nothing to do with each other.
        whole
            .chain(last)
            .filter(|(distance, letters)| *distance <= (letters / 3).max(1))
            .map(|(distance, _)| distance)
            .min()
    };
    let Some(least) = TABLE.iter().filter_map(distance).min() else {
        // Perhaps only the end is missing: `shm.ring` for `shm.ring_bytes`.
        let begins = |spec: &&KeySpec| wanted.chars().count() >= MIN_BEGINNING && plain(spec.name).starts_with(&wanted);
        let begun: Vec<_> = TABLE.iter().filter(begins).collect();
        return if begun.len() <= MAX_BEGUN { begun } else { Vec::new() };
    };
    TABLE.iter().filter(|spec| distance(spec) == Some(least)).collect()
}

/// The fewest letters that count as the beginning of a name, and the most names that are told for one.
const MIN_BEGINNING: usize = 4;
const MAX_BEGUN: usize = 3;

fn plain(name: &str) -> String {
    clip(name).to_lowercase().replace(['.', '-'], "_")
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn bytes(default: u64, range: RangeInclusive<u64>) -> Kind {
    Kind::Bytes { default, range, power_of_two: false }
}

const fn power_of_two(default: u64, range: RangeInclusive<u64>) -> Kind {
    Kind::Bytes { default, range, power_of_two: true }
}

const fn duration(default: Duration, range: RangeInclusive<Duration>) -> Kind {
    Kind::Duration { default, range }
}

const fn choice(default: &'static str, choices: &'static [&'static str]) -> Kind {
    Kind::Choice { default, choices }
}

const fn list(default: &'static str, of: Words) -> Kind {
    Kind::List { default, of }
}
