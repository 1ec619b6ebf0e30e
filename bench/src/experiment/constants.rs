//! What messages cost on the hosts of the experiment, measured by the ranks themselves before anything else: the constants
//! of the simulator and of the cost formulas.
//!
//! Measured with as many ranks at work as in the collectives, all of them and one of each host: what a message costs includes
//! what the kernel does for it, and a processor that goes round among 96 ranks. Costs are the time that the processors of
//! the machine are busy, so nothing else may run there.

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
    #[serde(flatten)]
    pub all: Costs,
    /// Where one rank of each host is; `None`: not measured, as with all.
    #[serde(default)]
    pub one_a_host: Option<Costs>,
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
        let Costs { turn, inside, between } = self.one_a_host.filter(|_| width == 1).unwrap_or(self.all);
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

/// Bytes of a small message, and of large ones within a host and between hosts.
const SMALL: usize = 1 << 10;
const LARGE: [usize; 2] = [128 << 10, 64 << 10];
/// Of messages whose time is the link's.
const LONG: [usize; 2] = [256 << 10, 1 << 20];

/// What the ranks that measure are started with.
pub const SETTINGS: &[&str] = &["collectives.all_gather=ring", "collectives.all_to_all=linear"];

/// Measures; on rank 0 of the communicator, which spans several hosts with as many ranks each, a host's in a row. The
/// ranks are started with [`SETTINGS`].
///
/// Of messages that everybody sends to everybody at once, a rank finds many in one turn: they price messages. One of a ring
/// of all ranks is what a rank waits for before it sends the next: it costs a turn besides, with all that waiting takes
/// (yielding, sleeping, waking) where as many ranks do it.
///
/// # Errors
/// The library failed, or there is one host only.
pub fn measure(comm: &Communicator) -> Result<Option<Constants>, Failure> {
    let host = u32::try_from(comm.host_of(comm.rank()))?;
    let near = comm.split(Some(host), 0)?.ok_or("every rank has a host")?;
    let far = comm.split(Some(u32::try_from(near.rank())?), 0)?.ok_or("every rank has a place on its host")?;
    let (width, hosts) = (near.size(), far.size());
    if hosts < 2 || width < 2 {
        return Err("constants are measured on several hosts with several ranks each".into());
    }
    // What a message costs where so many such groups of ranks are at it; the ranks of no group wait.
    let each = |spent: Spent, size: usize, groups: usize| spent.shared(size * (size - 1) * groups);
    let ring = |ranks: Option<&Communicator>, (size, groups): (usize, usize), bytes: usize, rounds: usize| {
        let (block, mut blocks) = (vec![1_u8; bytes], vec![0_u8; bytes * size]);
        let round = || Ok(ranks.map_or(Ok(()), |ranks| ranks.all_gather_into(&block, &mut blocks))?);
        Ok::<_, Failure>(each(spent(comm, rounds, round)?, size, groups))
    };
    let at_once = |ranks: Option<&Communicator>, (size, groups): (usize, usize), rounds: usize| {
        let (sent, mut received) = (vec![1_u8; SMALL * size], vec![0_u8; SMALL * size]);
        let round = || Ok(ranks.map_or(Ok(()), |ranks| ranks.all_to_all_into(&sent, &mut received))?);
        Ok::<_, Failure>(each(spent(comm, rounds, round)?, size, groups).busy)
    };
    let (inside, across) = ((width, hosts), (hosts, width));
    let small = [at_once(Some(&near), inside, 200)?, at_once(Some(&far), across, 24)?];
    let one_by_one = ring(Some(comm), (comm.size(), 1), SMALL, 20)?.busy;
    let large = ring(Some(&near), inside, LARGE[0], 4)?.busy;
    let crowd = ring(Some(&far), across, LARGE[1], 2)?;
    // The same between one rank of each host: as many processes as are at work then.
    let (first, few) = (Some(&far).filter(|_| near.rank() == 0), (hosts, 1));
    let few_small = at_once(first, few, 200)?;
    let few_one_by_one = ring(first, few, SMALL, 400)?.busy;
    let few_large = ring(first, few, LARGE[1], 12)?.busy;
    // Alone: how long one message takes.
    let pair = far.split((near.rank() == 0 && far.rank() < 2).then_some(0), 0)?;
    let mut passed = Vec::new();
    for (bytes, rounds) in [(SMALL, 60), (LONG[0], 8), (LONG[1], 8)] {
        let alone = spent(comm, rounds, || pair.as_ref().map_or(Ok(()), |pair| exchange(pair, bytes)))?;
        passed.push(alone.passed / 2.0);
    }
    let reduced = reduction();
    if comm.rank() != 0 {
        return Ok(None);
    }
    let per_byte = (passed[2] - passed[1]) / (LONG[1] - LONG[0]) as f64;
    let rate = 1.0 / per_byte.max(f64::MIN_POSITIVE);
    let byte = |large: f64, small: f64, bytes: usize| ((large - small) / (bytes - SMALL) as f64).max(0.0);
    let priced = |small: f64, byte: f64| [(small - SMALL as f64 * byte).max(0.0), byte];
    // One of so many messages of the ring goes to another host.
    let mixed = small[0] + (small[1] - small[0]) / width as f64;
    let inside = priced(small[0], byte(large, small[0], LARGE[0]));
    Ok(Some(Constants {
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        rate,
        crowded: (LARGE[1] as f64 / (crowd.passed * hosts as f64)).min(rate),
        latency: (passed[0] - few_small).max(0.0),
        reduced,
        all: Costs {
            turn: (one_by_one - mixed).max(0.0),
            inside,
            between: priced(small[1], byte(crowd.busy, small[1], LARGE[1])),
        },
        one_a_host: Some(Costs {
            turn: (few_one_by_one - few_small).max(0.0),
            inside,
            between: priced(few_small, byte(few_large, few_small, LARGE[1])),
        }),
    }))
}

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
            one_a_host: Some(Costs { turn: 2e-6, ..Costs::default() }),
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
