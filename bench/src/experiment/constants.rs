//! What messages cost on the hosts of the experiment, measured by the ranks themselves before anything else: the constants
//! of the simulator and of the cost formulas.
//!
//! Costs are processor time, added up over all ranks, not time that passes: 96 ranks share the processors of one machine,
//! and so may other programs.

use crate::port::Failure;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use spmd::Communicator;
use spmd_collectives::operators::Op;
use spmd_collectives::prelude::*;
use spmd_collectives::schedule::Side;
use spmd_collectives::simulate::{Fabric, Machine, Work};
use std::time::Instant;

/// What was measured, in seconds and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constants {
    /// Processors of the machine that all hosts share.
    pub processors: usize,
    /// Bytes a second of a link.
    pub rate: f64,
    /// From a rank of one host to one of another, apart from what it costs processors.
    pub latency: f64,
    /// Processor time of a message within a host and of one between hosts, and of each of its bytes.
    pub inside: [f64; 2],
    /// Of a message between hosts.
    pub between: [f64; 2],
    /// Processor time to reduce a byte.
    pub reduced: f64,
}

impl Constants {
    /// The network that is simulated: these constants, and queues of so many bytes.
    #[must_use]
    pub fn fabric(&self, queue: f64) -> Fabric {
        let work = |[message, byte]: [f64; 2]| Work { message, byte };
        let machine = Machine {
            processors: self.processors,
            inside: work(self.inside),
            between: work(self.between),
            reduced: self.reduced,
        };
        Fabric {
            rate: self.rate,
            latency: self.latency,
            overhead: 0.0,
            queue,
            machine: Some(machine),
            ..Fabric::ASSUMED
        }
    }

    /// As the option `--machine` of `rsrun simulate`.
    #[must_use]
    pub fn option(&self) -> String {
        let [inside, inside_byte] = self.inside;
        let [between, between_byte] = self.between;
        format!(
            "{},{:.1}us,{:.3}ns,{:.1}us,{:.3}ns,{:.3}ns",
            self.processors,
            inside * 1e6,
            inside_byte * 1e9,
            between * 1e6,
            between_byte * 1e9,
            self.reduced * 1e9
        )
    }
}

/// Bytes of small and of large messages inside hosts.
const INSIDE: [usize; 2] = [64, 256 << 10];
/// Between hosts: a small message, one of a pipeline, and one whose time is the link's.
const BETWEEN: [usize; 3] = [64, 16 << 10, 1 << 20];

/// Measures; on rank 0 of the communicator, which spans several hosts with several ranks each.
///
/// # Errors
/// The library failed, or there is one host only.
pub fn measure(comm: &Communicator) -> Result<Option<Constants>, Failure> {
    let host = u32::try_from(comm.host_of(comm.rank()))?;
    let near = comm.split(Some(host), 0)?.ok_or("every rank has a host")?;
    let leaders = comm.split((near.rank() == 0).then_some(0), 0)?;
    let hosts = comm.hosts().len();
    if hosts < 2 || near.size() < 2 {
        return Err("constants are measured on several hosts with several ranks each".into());
    }
    let mut inside = Vec::new();
    for bytes in INSIDE {
        let rounds = if bytes < 4096 { 60 } else { 12 };
        let spent = processor_time(comm, || (0..rounds).try_for_each(|_| exchange(&near, bytes)))?;
        inside.push(spent / (rounds * hosts * 2 * (near.size() / 2)) as f64);
    }
    let (mut between, mut passed) = (Vec::new(), Vec::new());
    for bytes in BETWEEN {
        let rounds = if bytes < 4096 { 60 } else { 12 };
        let spent = processor_time(comm, || match &leaders {
            Some(leaders) => (0..rounds).try_for_each(|_| exchange(leaders, bytes)),
            None => Ok(()),
        })?;
        between.push(spent / (rounds * 2 * (hosts / 2)) as f64);
        // Alone: how long one message takes.
        comm.barrier()?;
        let begun = Instant::now();
        if let Some(leaders) = leaders.as_ref().filter(|leaders| leaders.rank() < 2) {
            (0..rounds).try_for_each(|_| exchange(leaders, bytes))?;
        }
        passed.push(begun.elapsed().as_secs_f64() / (2 * rounds) as f64);
        comm.barrier()?;
    }
    let reduced = reduction();
    if comm.rank() != 0 {
        return Ok(None);
    }
    let slope = |costs: [f64; 2], sizes: [usize; 2]| ((costs[1] - costs[0]) / (sizes[1] - sizes[0]) as f64).max(0.0);
    let per_byte = slope([passed[1], passed[2]], [BETWEEN[1], BETWEEN[2]]);
    Ok(Some(Constants {
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        rate: 1.0 / per_byte.max(f64::MIN_POSITIVE),
        latency: (passed[0] - between[0]).max(0.0),
        inside: [inside[0], slope([inside[0], inside[1]], INSIDE)],
        between: [between[0], slope([between[0], between[2]], [BETWEEN[0], BETWEEN[2]])],
        reduced,
    }))
}

/// A message to the partner and one back, in pairs of neighbours.
fn exchange(comm: &Communicator, bytes: usize) -> Result<(), Failure> {
    let rank = comm.rank();
    let partner = rank ^ 1;
    if partner >= comm.size() {
        return Ok(());
    }
    let mut buffer = vec![1_u8; bytes];
    if rank < partner {
        comm.send(&buffer, partner, 0)?;
        comm.recv(&mut buffer, partner, 0)?;
    } else {
        comm.recv(&mut buffer, partner, 0)?;
        comm.send(&buffer, partner, 0)?;
    }
    Ok(())
}

/// Processor time of all ranks together, on rank 0.
fn processor_time(comm: &Communicator, run: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    comm.barrier()?;
    let begun = spent();
    run()?;
    let own = spent() - begun;
    Ok(comm.reduce(&[own], Sum, 0)?.map_or(0.0, |sum| sum[0]))
}

fn spent() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Processor time to reduce a byte that is in no cache of a core.
fn reduction() -> f64 {
    let (mut into, operand) = (vec![1.0_f32; 1 << 19], vec![1.0_f32; 1 << 19]);
    Sum.apply(&mut into, &operand, Side::Right);
    let begun = spent();
    for _ in 0..4 {
        Sum.apply(&mut into, &operand, Side::Right);
    }
    std::hint::black_box(&into);
    (spent() - begun) / (4 * into.len() * 4) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_become_the_simulators_network_and_its_option() {
        let constants = Constants {
            processors: 2,
            rate: 12.5e6,
            latency: 1e-4,
            inside: [2e-5, 2e-10],
            between: [4e-5, 1e-9],
            reduced: 1e-10,
        };
        let fabric = constants.fabric(151_400.0);
        assert_eq!((fabric.rate, fabric.overhead), (12.5e6, 0.0));
        assert_eq!(fabric.machine.map(|machine| machine.inside.message), Some(2e-5));
        assert_eq!(constants.option(), "2,20.0us,0.200ns,40.0us,1.000ns,0.100ns");
    }
}
