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
    /// Promise that most messages are at most this large: connections are made with the low-latency recipe for them.
    /// Zero promises nothing. Inert so far: neither shared memory nor TCP has a second recipe, so it is agreed upon and
    /// shown, and changes nothing.
    LOW_LATENCY_SIZE_HINT: u64 = "low_latency.size_hint", bytes(0, 0..=GIB), read by "`World::low_latency_size_hint`",
        aliases ["low_latency_rdma_size_hint"], environment ["RDMA_LOW_LATENCY_HINT"];

    /// Transports that different ranks may use, the fastest that reaches the peer is taken. `tcp` alone forces TCP even
    /// within a host.
    TRANSPORT_ALLOW: String = "transport.allow", list("shm,tcp", Words::OneOf(&["shm", "tcp"])),
        read by "the runtime's choice of transport";

    /// Ring buffer of each ordered pair of ranks of one host.
    SHM_RING_BYTES: u64 = "shm.ring_bytes", power_of_two(256 * KIB, 4 * KIB..=16 * MIB),
        read by "agent (size of the segment) and shared-memory transport";

    /// Messages within a host up to this size are sent at once; larger ones wait until the receiver is ready
    /// (rendezvous).
    EAGER_LIMIT: u64 = "eager.limit", bytes(8 * KIB, 0..=MIB), read by "the runtime's protocol choice";

    /// Bytes of small messages that a rank keeps for each peer before its program receives them; each counts 64 more. A
    /// sender that has used it up announces further messages and waits.
    EAGER_WINDOW: u64 = "eager.window", bytes(MIB, 4 * KIB..=GIB), read by "the runtime's flow control";

    /// Messages between hosts up to this size are sent at once: more than within a host, because asking costs a round
    /// trip.
    TCP_EAGER_LIMIT: u64 = "tcp.eager_limit", bytes(64 * KIB, 0..=MIB), read by "the runtime's protocol choice";

    /// Interfaces that ranks may listen on, by name or by the prefix of their address. Empty: every one, and loopback
    /// only when all ranks are on one host.
    TCP_INTERFACES: String = "tcp.interfaces", list("", Words::Interfaces), read by "TCP transport";

    /// How long a rank tries to reach another one.
    TCP_CONNECT_TIMEOUT: Duration = "tcp.connect_timeout", duration(s(10), ms(100)..=s(600)), read by "TCP transport";

    /// Read buffer and write buffer of each connection.
    TCP_BUFFER_BYTES: u64 = "tcp.buffer_bytes", bytes(256 * KIB, 4 * KIB..=64 * MIB), read by "TCP transport";

    /// How a blocked call waits: `auto` spins for `wait.spin`, then sleeps, and does not spin when a host has more ranks
    /// than cores.
    WAIT_POLICY: String = "wait.policy", choice("auto", &["auto", "spin", "yield", "sleep"]), read by "the runtime's waiting";

    /// How long a blocked call spins before it yields and sleeps.
    WAIT_SPIN: Duration = "wait.spin", duration(Duration::from_micros(50), s(0)..=s(1)), read by "the runtime's waiting";

    /// Which ranks collectives in two hops take as a group: those of a `host`, those whose hosts have the same `group=` in
    /// the hostfile, or `none`.
    COLLECTIVES_GROUPS: String = "collectives.groups", choice("host", &["host", "group", "none"]), read by "collectives";

    /// Every so many neighbouring ranks are a group instead; 0: as `collectives.groups` says.
    COLLECTIVES_GROUP_SIZE: u64 = "collectives.group_size", Kind::Count { default: 0, range: 0..=1_000_000 }, read by "collectives";

    /// How many ranks of each group lead in collectives in two hops, each its share of the data; no more than the smallest
    /// group has ranks.
    COLLECTIVES_LEADERS: u64 = "collectives.leaders", Kind::Count { default: 1, range: 1..=1024 }, read by "collectives";

    /// Pieces that collectives cut their data into, at most; 0: as the cost formula says.
    COLLECTIVES_CHUNK_BYTES: u64 = "collectives.chunk_bytes", bytes(0, 0..=GIB), read by "collectives";

    /// Algorithm of `all_reduce`; `auto` chooses by ranks and bytes.
    COLLECTIVES_ALL_REDUCE: String = "collectives.all_reduce",
        choice("auto", &["auto", "linear", "binomial", "recursive_doubling", "ring", "rabenseifner", "two_hop", "two_hop_ring"]), read by "collectives";

    /// Algorithm of `broadcast`; `auto` chooses by ranks and bytes.
    COLLECTIVES_BROADCAST: String = "collectives.broadcast", choice("auto", &["auto", "linear", "binomial", "chain", "two_hop"]),
        read by "collectives";

    /// Algorithm of `reduce`; `auto` chooses by ranks and bytes.
    COLLECTIVES_REDUCE: String = "collectives.reduce",
        choice("auto", &["auto", "linear", "binomial", "binomial_ordered", "chain", "two_hop", "two_hop_chain"]), read by "collectives";

    /// Algorithm of `barrier`; `auto` chooses by ranks.
    COLLECTIVES_BARRIER: String = "collectives.barrier", choice("auto", &["auto", "binomial", "dissemination", "two_hop"]),
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

    /// Command that starts the agent on a host instead of SSH: `{host}` in it is replaced by the host, or the host is
    /// appended. Empty: SSH. The option `--launch-agent` sets it.
    LAUNCH_AGENT: String = "launch.agent", Kind::Text { default: "" }, read by "launcher";

    /// Which SSH client: `builtin` is part of the launcher, `command` is the user's `ssh`, `auto` takes the user's where
    /// the host's SSH configuration needs it.
    LAUNCH_SSH: String = "launch.ssh", choice("auto", &["auto", "builtin", "command"]), read by "launcher";

    /// Connections to hosts that are made at once.
    LAUNCH_WINDOW: u64 = "launch.window", Kind::Count { default: 64, range: 1..=4096 }, read by "launcher";

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
