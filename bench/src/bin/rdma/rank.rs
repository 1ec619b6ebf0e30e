//! A measuring rank: what the experiments do with two ranks. Rank 0 says what came out, one line of JSON a size.

use rsbench::measure::{Pattern, Plan};
use rsbench::output;
use rsbench::patterns;
use rsbench::port::{Failure, own::Own};
use serde::{Deserialize, Serialize};
use spmd::prelude::*;
use std::collections::BTreeMap;
use std::hint::spin_loop;
use std::time::{Duration, Instant};

/// What rank 0 writes in front of its lines.
pub(crate) const MARKER: &str = "rdma: ";

/// What two ranks do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Half a round trip of messages of these sizes.
    Latency { sizes: Vec<usize> },
    /// The same with sizes from these, in an order that looks random.
    Mixed { sizes: Vec<usize> },
    /// Windows of messages one way.
    Stream { sizes: Vec<usize>, window: usize },
    /// Messages one way to a rank that computes for so long after each so many of them.
    Flood { bytes: usize, messages: usize, computes_us: u64, every: usize },
}

/// Tasks one after the other, and how often each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) tasks: Vec<Task>,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
}

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Found {
    /// Microseconds.
    Times { bytes: usize, p50: f64, p99: f64, worst: f64, spikes: f64, period: f64 },
    /// 10^6 bytes a second.
    Rate { bytes: usize, rate: f64 },
    /// What rank 0 has counted of its connection, at the end.
    Counted(BTreeMap<String, u64>),
}

fn say(found: &Found) -> Result<(), Failure> {
    output::line(format_args!("{MARKER}{}", serde_json::to_string(found)?))?;
    Ok(())
}

pub(crate) fn run(work: &Work) -> Result<(), Failure> {
    let world = World::init()?;
    let comm = world.communicator();
    let mut port = Own::new(comm.clone());
    let plan = |pattern, window| Plan {
        pattern,
        sizes: Vec::new(),
        rounds: work.rounds,
        warm_up: work.rounds / 10 + 1,
        seconds: work.seconds,
        window,
        check: false,
        transport: None,
    };
    for task in &work.tasks {
        match task {
            Task::Latency { sizes } => {
                for &bytes in sizes {
                    if let Some(measured) = patterns::measure(&mut port, &plan(Pattern::Latency, 1), bytes)? {
                        say(&times(bytes, measured.samples))?;
                    }
                }
            }
            Task::Stream { sizes, window } => {
                for &bytes in sizes {
                    if let Some(measured) = patterns::measure(&mut port, &plan(Pattern::Bandwidth, *window), bytes)? {
                        // All bytes by all time: the mean of rates would be that of the lucky rounds.
                        let count = measured.samples.len() as f64;
                        let rate = count / measured.samples.iter().map(|rate| 1.0 / rate).sum::<f64>();
                        say(&Found::Rate { bytes, rate })?;
                    }
                }
            }
            Task::Mixed { sizes } => mixed(&comm, sizes, work.rounds)?,
            &Task::Flood { bytes, messages, computes_us, every } => {
                flood(&comm, bytes, messages, Duration::from_micros(computes_us), every)?;
            }
        }
    }
    if comm.rank() == 0 {
        let peer = world.statistics().peers.into_iter().find(|peer| peer.peer == 1);
        let mut counted: BTreeMap<String, u64> = peer.iter().flat_map(|peer| peer.link.iter().cloned()).collect();
        counted.insert("stalls".into(), peer.map_or(0, |peer| peer.stalls));
        say(&Found::Counted(counted))?;
    }
    Ok(())
}

/// What times come to. A spike is more than three times the median.
fn times(bytes: usize, samples: Vec<f64>) -> Found {
    let mut sorted = samples.clone();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place among the samples")]
    let at = |part: f64| sorted[((sorted.len() as f64 * part).ceil() as usize).clamp(1, sorted.len()) - 1];
    let spikes: Vec<usize> = (0..samples.len()).filter(|place| samples[*place] > 3.0 * at(0.5)).collect();
    Found::Times {
        bytes,
        p50: at(0.5),
        p99: at(0.99),
        worst: at(1.0),
        spikes: spikes.len() as f64 / samples.len() as f64,
        period: regularity(&spikes),
    }
}

/// How regular places are: the largest share that falls together modulo any period of 4 to 128, in parts of what chance
/// gives. About 1: they have no period.
fn regularity(places: &[usize]) -> f64 {
    if places.len() < 16 {
        return 0.0;
    }
    let of = |period: usize| {
        let mut counts = vec![0_usize; period];
        places.iter().for_each(|place| counts[place % period] += 1);
        let most = counts.into_iter().max().unwrap_or(0) as f64;
        // The most crowded of many places holds more than the mean also by chance: by about its root times two.
        let mean = places.len() as f64 / period as f64;
        most / (mean + 2.0 * mean.sqrt() + 1.0)
    };
    (4..=128).map(of).fold(0.0, f64::max)
}

fn mixed(comm: &Communicator, sizes: &[usize], rounds: usize) -> Result<(), Failure> {
    let mut buffer = vec![0_u8; sizes.iter().copied().max().unwrap_or(0)];
    let mut samples = Vec::with_capacity(rounds);
    let mut state = 1_u64;
    for round in 0..rounds + rounds / 10 {
        // Knuth's multiplier; the same on both ranks.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bytes = sizes[(state >> 33) as usize % sizes.len()];
        if comm.rank() == 0 {
            let begun = Instant::now();
            comm.send(&buffer[..bytes], 1, 0)?;
            comm.recv(&mut buffer[..bytes], 1, 0)?;
            if round >= rounds / 10 {
                samples.push(begun.elapsed().as_secs_f64() * 1e6 / 2.0);
            }
        } else {
            comm.recv(&mut buffer[..bytes], 0, 0)?;
            comm.send(&buffer[..bytes], 0, 0)?;
        }
    }
    if comm.rank() == 0 { say(&times(0, samples)) } else { Ok(()) }
}

fn flood(comm: &Communicator, bytes: usize, messages: usize, computes: Duration, every: usize) -> Result<(), Failure> {
    let mut buffer = vec![0_u8; bytes];
    // The connection is not what is measured.
    if comm.rank() == 0 {
        comm.send(&[1_u8], 1, 1)?
    } else {
        comm.recv(&mut [0_u8], 0, 1).map(drop)?
    }
    let begun = Instant::now();
    for number in 0..messages {
        if comm.rank() == 0 {
            comm.send(&buffer, 1, 0)?;
        } else {
            comm.recv(&mut buffer, 0, 0)?;
            let since = Instant::now();
            while number % every == every - 1 && since.elapsed() < computes {
                spin_loop();
            }
        }
    }
    if comm.rank() == 1 {
        comm.send(&[1_u8], 0, 1)?;
        return Ok(());
    }
    comm.recv(&mut [0_u8], 1, 1)?;
    let rate = (bytes * messages) as f64 / begun.elapsed().as_secs_f64() / 1e6;
    say(&Found::Rate { bytes, rate })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_with_a_period_are_told_from_those_without() {
        let periodic: Vec<usize> = (0..100).map(|n| n * 64 + 3).collect();
        assert!(regularity(&periodic) > 5.0);
        let mut state = 7_u64;
        let random: Vec<usize> = (0..100)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 40) as usize
            })
            .collect();
        assert!(regularity(&random) < 2.0, "{}", regularity(&random));
        assert_eq!(regularity(&[1, 2, 3]), 0.0);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_samples() {
        let samples = (1..=100).map(f64::from).chain([1000.0]).collect();
        let Found::Times { p50, p99, worst, spikes, .. } = times(8, samples) else { panic!("times") };
        assert_eq!((p50, p99, worst), (51.0, 100.0, 1000.0));
        assert!((spikes - 1.0 / 101.0).abs() < 1e-9);
    }
}
