//! What messages cost on the hosts of the experiment, measured by the ranks themselves before anything else: the constants
//! of the simulator and of the cost formulas.
//!
//! Measured with as many ranks at work as in the collectives, all of them and one of each host: what a message costs includes
//! what the kernel does for it. Costs are the time that the processors of the machine are busy, so nothing else may run there.
//! [`super::calibrate`] makes constants of it.

use crate::measure::median;
use crate::port::Failure;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use spmd::Communicator;
use spmd_collectives::operators::Op;
use spmd_collectives::prelude::*;
use spmd_collectives::schedule::Side;
use spmd_collectives::simulate::{Fabric, Machine, Work};
use std::time::Instant;

/// The links' token buckets, as the hosts' `tc` has them.
const BURST: f64 = 16_384.0;
/// After what Linux sends again what nobody has acknowledged, at the least (TCP_RTO_MIN).
const TIMEOUT: f64 = 0.2;

/// The simulator's constants, in seconds and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constants {
    /// Processors of the machine that all hosts share.
    pub processors: usize,
    /// Bytes a second of a link.
    pub rate: f64,
    /// The same where all ranks of a host send and receive at once.
    pub crowded: f64,
    /// From a rank of one host to one of another, apart from what it costs processors.
    pub latency: f64,
    /// Processor time to reduce a byte.
    pub reduced: f64,
    /// Where all ranks are at work.
    pub all: Costs,
    /// Where one rank of each host is.
    pub one_a_host: Costs,
}

/// What messages cost the processors, by how many ranks they serve: seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// To give a processor to another rank.
    pub turn: f64,
    /// A message within a host, and each of its bytes.
    pub inside: [f64; 2],
    /// A message between hosts, and each of its bytes.
    pub between: [f64; 2],
}

impl Constants {
    /// The network that is simulated: these constants, and queues of so many bytes. `width`: ranks of a host that take part.
    #[must_use]
    pub fn fabric(&self, queue: f64, width: usize) -> Fabric {
        let Costs { turn, inside, between } = if width == 1 { self.one_a_host } else { self.all };
        let work = |[message, byte]: [f64; 2]| Work { message, byte };
        let machine = Machine {
            processors: self.processors,
            inside: work(inside),
            between: work(between),
            reduced: self.reduced,
            turn,
        };
        Fabric {
            rate: self.rate,
            crowded: self.crowded,
            latency: self.latency,
            overhead: 0.0,
            queue,
            burst: BURST,
            timeout: TIMEOUT,
            machine: Some(machine),
            ..Fabric::ASSUMED
        }
    }

    /// As options of `rsrun simulate`.
    #[must_use]
    pub fn options(&self) -> String {
        let ([inside, inside_byte], [between, between_byte]) = (self.all.inside, self.all.between);
        let mut text = format!("--rate {:.1}Mbit --crowded {:.1}Mbit", self.rate * 8e-6, self.crowded * 8e-6);
        text += &format!(
            " --latency {:.0}us --overhead 0us --burst 16KiB --timeout 200ms --machine {}",
            self.latency * 1e6,
            self.processors
        );
        for (time, unit) in [(inside, "us"), (inside_byte, "ns"), (between, "us"), (between_byte, "ns")] {
            text += &format!(",{:.3}{unit}", time * if unit == "us" { 1e6 } else { 1e9 });
        }
        text + &format!(",{:.3}ns,{:.3}us", self.reduced * 1e9, self.all.turn * 1e6)
    }
}

/// Bytes of a small message.
pub const SMALL: usize = 1 << 10;
/// Of messages whose time is the link's.
const LONG: [usize; 2] = [256 << 10, 1 << 20];
/// How often everything is measured in turn, for a median.
const TURNS: usize = 3;

/// What the ranks that measure are started with.
pub const SETTINGS: &[&str] = &["collectives.all_gather=ring", "collectives.all_to_all=linear"];

/// Which messages a benchmark sends: everybody to everybody at once, or each rank to the next what it got from the one before,
/// among those of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Whether everybody sends to everybody at once.
    pub at_once: bool,
    /// Whose ranks a group has.
    among: Among,
    /// Of a message.
    pub bytes: usize,
    /// So many rounds at most take a second or less.
    pub rounds: usize,
}

/// Who belongs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Among {
    /// The ranks of a host.
    Inside,
    /// The ranks at the same place of each host.
    Across,
    All,
}

impl Pattern {
    const fn new(at_once: bool, among: Among, bytes: usize, rounds: usize) -> Pattern {
        Pattern { at_once, among, bytes, rounds }
    }

    /// Small messages of all ranks of a host.
    pub const INSIDE: Pattern = Pattern::new(true, Among::Inside, SMALL, 200);
    /// A ring with large messages.
    pub const INSIDE_LARGE: Pattern = Pattern::new(false, Among::Inside, 128 << 10, 6);
    /// Small messages between hosts.
    pub const AT_ONCE: Pattern = Pattern::new(true, Among::Across, SMALL, 100);
    /// A ring of all ranks.
    pub const RING: Pattern = Pattern::new(false, Among::All, SMALL, 200);
    /// A ring of large messages between hosts.
    pub const LARGE: Pattern = Pattern::new(false, Among::Across, 64 << 10, 12);

    /// Whether two ranks are in one group: of one host or not, at the same place of theirs or not.
    #[must_use]
    pub fn joins(self, same_host: bool, same_place: bool) -> bool {
        match self.among {
            Among::Inside => same_host,
            Among::Across => same_place,
            Among::All => true,
        }
    }
}

/// What the benchmarks took: for each message, seconds of one processor that the machine was busy, if nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Processors of the machine that all hosts share.
    pub processors: usize,
    /// Bytes a second of a link.
    pub rate: f64,
    /// The same where all ranks of a host send and receive at once.
    pub crowded: f64,
    /// Seconds that one message between hosts takes with nothing else going on.
    pub alone: f64,
    /// To reduce a byte.
    pub reduced: f64,
    /// [`Pattern::INSIDE`], all ranks at work.
    pub inside: f64,
    /// [`Pattern::INSIDE_LARGE`], all ranks at work.
    pub inside_large: f64,
    /// With all ranks at work.
    pub all: Spans,
    /// With one rank of each host at work.
    pub few: Spans,
}

impl Measured {
    /// Of each figure the median; `None` of nothing.
    #[must_use]
    pub fn median(found: &[Measured]) -> Option<Measured> {
        let first = *found.first()?;
        let middle = |of: &dyn Fn(&Measured) -> f64| median(found.iter().map(of).collect()).unwrap_or_default();
        let spans = |of: fn(&Measured) -> Spans| Spans {
            at_once: middle(&|one| of(one).at_once),
            ring: middle(&|one| of(one).ring),
            large: middle(&|one| of(one).large),
        };
        Some(Measured {
            processors: first.processors,
            rate: middle(&|one| one.rate),
            crowded: middle(&|one| one.crowded),
            alone: middle(&|one| one.alone),
            reduced: middle(&|one| one.reduced),
            inside: middle(&|one| one.inside),
            inside_large: middle(&|one| one.inside_large),
            all: spans(|one| one.all),
            few: spans(|one| one.few),
        })
    }
}

/// What the benchmarks between hosts took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spans {
    /// [`Pattern::AT_ONCE`].
    pub at_once: f64,
    /// [`Pattern::RING`].
    pub ring: f64,
    /// [`Pattern::LARGE`].
    pub large: f64,
}

/// Measures; on rank 0 of the communicator, which spans several hosts with as many ranks each, a host's in a row. The
/// ranks are started with [`SETTINGS`].
///
/// Of messages that everybody sends to everybody at once, a rank finds many in one turn: they price messages. One of a ring
/// is what a rank waits for before it sends the next: it costs giving way, sleeping and waking besides.
///
/// # Errors
/// The library failed, or there is one host only.
pub fn measure(comm: &Communicator) -> Result<Option<Measured>, Failure> {
    let host = u32::try_from(comm.host_of(comm.rank()))?;
    let near = comm.split(Some(host), 0)?.ok_or("every rank has a host")?;
    let far = comm.split(Some(u32::try_from(near.rank())?), 0)?.ok_or("every rank has a place on its host")?;
    if far.size() < 2 || near.size() < 2 {
        return Err("constants are measured on several hosts with several ranks each".into());
    }
    let is_first = near.rank() == 0;
    let pair = far.split((is_first && far.rank() < 2).then_some(0), 0)?;
    let mut found = Vec::new();
    for _ in 0..TURNS {
        found.push(turn(comm, &near, &far, pair.as_ref())?);
    }
    Ok(Measured::median(&found).filter(|_| comm.rank() == 0))
}

/// Everything once. `near`: the ranks of this host, `far`: those at the same place of theirs, `pair`: of two ranks on two hosts.
fn turn(
    comm: &Communicator,
    near: &Communicator,
    far: &Communicator,
    pair: Option<&Communicator>,
) -> Result<Measured, Failure> {
    let (width, hosts) = (near.size(), far.size());
    // One rank of each host: as many processes as are at work then; the others wait.
    let bench = |pattern: Pattern, few: bool| -> Result<Spent, Failure> {
        let ranks = match (pattern.among, few) {
            (Among::Inside, _) => Some(near),
            (Among::Across, false) => Some(far),
            (Among::All, false) => Some(comm),
            (_, true) => Some(far).filter(|_| near.rank() == 0),
        };
        let (size, groups) = match (pattern.among, few) {
            (Among::Inside, _) => (width, hosts),
            (Among::Across, false) => (hosts, width),
            (Among::All, false) => (comm.size(), 1),
            (_, true) => (hosts, 1),
        };
        let messages = size * (size - 1) * groups;
        let rounds = (ENOUGH[usize::from(pattern.bytes > SMALL)] / messages).clamp(2, pattern.rounds);
        let blocks = |here: bool| vec![1_u8; if here { pattern.bytes * size } else { 0 }];
        let (sent, mut received) = (blocks(ranks.is_some()), blocks(ranks.is_some()));
        let round = || {
            let Some(ranks) = ranks else { return Ok(()) };
            match pattern.at_once {
                true => ranks.all_to_all_into(&sent, &mut received)?,
                false => ranks.all_gather_into(&sent[..pattern.bytes], &mut received)?,
            }
            Ok(())
        };
        Ok(spent(comm, rounds, round)?.shared(messages))
    };
    let crowd = bench(Pattern::LARGE, false)?;
    let mut passed = Vec::new();
    for (bytes, rounds) in [(SMALL, 60), (LONG[0], 8), (LONG[1], 8)] {
        let alone = spent(comm, rounds, || pair.map_or(Ok(()), |pair| exchange(pair, bytes)))?;
        passed.push(alone.passed / 2.0);
    }
    let per_byte = (passed[2] - passed[1]) / (LONG[1] - LONG[0]) as f64;
    let rate = 1.0 / per_byte.max(f64::MIN_POSITIVE);
    let spans = |few: bool, large: f64| -> Result<Spans, Failure> {
        Ok(Spans { at_once: bench(Pattern::AT_ONCE, few)?.busy, ring: bench(Pattern::RING, few)?.busy, large })
    };
    Ok(Measured {
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        rate,
        crowded: (Pattern::LARGE.bytes as f64 / (crowd.passed * hosts as f64)).min(rate),
        alone: passed[0],
        reduced: reduction(),
        inside: bench(Pattern::INSIDE, false)?.busy,
        inside_large: bench(Pattern::INSIDE_LARGE, false)?.busy,
        all: spans(false, crowd.busy)?,
        few: spans(true, bench(Pattern::LARGE, true)?.busy)?,
    })
}

/// So many messages, small or large ones, are enough for a figure.
const ENOUGH: [usize; 2] = [150_000, 2_000];

/// A message to the partner and one back.
fn exchange(pair: &Communicator, bytes: usize) -> Result<(), Failure> {
    let (partner, mut buffer) = (1 - pair.rank(), vec![1_u8; bytes]);
    if pair.rank() == 0 {
        pair.send(&buffer, partner, 0)?;
        pair.recv(&mut buffer, partner, 0)?;
    } else {
        pair.recv(&mut buffer, partner, 0)?;
        pair.send(&buffer, partner, 0)?;
    }
    Ok(())
}

/// What a round took, on average.
#[derive(Clone, Copy, Debug)]
struct Spent {
    /// Seconds that went by.
    passed: f64,
    /// Seconds of one processor that the machine was busy.
    busy: f64,
}

impl Spent {
    /// For each of so many messages.
    fn shared(self, messages: usize) -> Spent {
        Spent { passed: self.passed / messages as f64, busy: self.busy / messages as f64 }
    }
}

/// So many rounds of all ranks, and one before them.
fn spent(comm: &Communicator, rounds: usize, mut round: impl FnMut() -> Result<(), Failure>) -> Result<Spent, Failure> {
    round()?;
    comm.barrier()?;
    let (begun, idle) = (Instant::now(), idle()?);
    (0..rounds).try_for_each(|_| round())?;
    comm.barrier()?;
    let passed = begun.elapsed().as_secs_f64();
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let busy = (passed * processors - (self::idle()? - idle)).max(0.0);
    Ok(Spent { passed, busy }.shared(rounds))
}

/// Seconds that the processors of the machine have been idle, each for itself, since it was started.
fn idle() -> Result<f64, Failure> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let all = text.lines().next().unwrap_or_default().split_whitespace();
    // cpu user nice system idle iowait ..., in hundredths.
    let idle: Vec<f64> = all.skip(4).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(idle.iter().sum::<f64>() / 100.0)
}

/// Processor time to reduce a byte that is in no cache of a core.
fn reduction() -> f64 {
    let (mut into, operand) = (vec![1.0_f32; 1 << 19], vec![1.0_f32; 1 << 19]);
    Sum.apply(&mut into, &operand, Side::Right);
    let own = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    };
    let begun = own();
    for _ in 0..4 {
        Sum.apply(&mut into, &operand, Side::Right);
    }
    std::hint::black_box(&into);
    (own() - begun) / (4 * into.len() * 4) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_become_the_simulators_network_and_its_option() {
        let constants = Constants {
            processors: 2,
            rate: 12.5e6,
            crowded: 10e6,
            latency: 1e-4,
            reduced: 1e-10,
            all: Costs { turn: 3e-6, inside: [2e-5, 2e-10], between: [4e-5, 1e-9] },
            one_a_host: Costs { turn: 2e-6, ..Costs::default() },
        };
        assert_eq!(constants.fabric(0.0, 1).machine.map(|machine| machine.turn), Some(2e-6));
        let fabric = constants.fabric(151_400.0, 8);
        assert_eq!(fabric.machine.map(|machine| machine.turn), Some(3e-6));
        assert_eq!((fabric.rate, fabric.crowded, fabric.overhead), (12.5e6, 10e6, 0.0));
        assert_eq!(fabric.machine.map(|machine| machine.inside.message), Some(2e-5));
        let options = "--rate 100.0Mbit --crowded 80.0Mbit --latency 100us --overhead 0us \
                       --burst 16KiB --timeout 200ms --machine 2,20.000us,0.200ns,40.000us,1.000ns,0.100ns,3.000us";
        assert_eq!(constants.options(), options);
    }
}
