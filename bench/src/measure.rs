//! The measured loops. Every size is checked once, byte for byte, before it is measured.

use spmd::prelude::*;
use std::time::Instant;

const DATA: i32 = 1;
const ANSWER: i32 = 2;

/// Bytes moved for a size at most, so that large messages take fewer rounds.
const BUDGET: usize = 1 << 31;

/// One size and how often it is measured.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) bytes: usize,
    pub(crate) warm_up: usize,
    pub(crate) rounds: usize,
}

impl Plan {
    pub(crate) fn new(bytes: usize, warm_up: u32, rounds: u32) -> Self {
        let rounds = (rounds as usize).min((BUDGET / bytes).max(20));
        Plan { bytes, warm_up: (warm_up as usize).min(rounds), rounds }
    }

    fn pattern(&self) -> Vec<u8> {
        (0..=u8::MAX).cycle().take(self.bytes).collect()
    }
}

/// Microseconds of half the round trip, one a round; on rank 0 only.
pub(crate) fn latency(comm: &Communicator, plan: &Plan) -> spmd::Result<Option<Vec<f64>>> {
    let last = comm.size() - 1;
    let sent = plan.pattern();
    let mut received = vec![0_u8; plan.bytes];
    let mut samples = Vec::with_capacity(plan.rounds);
    for round in 0..1 + plan.warm_up + plan.rounds {
        if comm.rank() == 0 {
            let begun = Instant::now();
            comm.send(&sent, last, DATA)?;
            comm.recv(&mut received, last, DATA)?;
            let time = begun.elapsed();
            if round > plan.warm_up {
                samples.push(time.as_secs_f64() * 1e6 / 2.0);
            }
        } else if comm.rank() == last {
            comm.recv(&mut received, 0, DATA)?;
            comm.send(&received, 0, DATA)?;
        } else {
            return Ok(None);
        }
        if round == 0 {
            assert!(received == sent, "a message of {} bytes came damaged", plan.bytes);
        }
    }
    Ok((comm.rank() == 0).then_some(samples))
}

/// Megabytes a second of windows of messages, one value a window; on rank 0 only.
pub(crate) fn bandwidth(comm: &Communicator, plan: &Plan, window: usize) -> spmd::Result<Option<Vec<f64>>> {
    let last = comm.size() - 1;
    let mut buffers = vec![plan.pattern(); window];
    if comm.rank() == last {
        buffers.iter_mut().for_each(|buffer| buffer.fill(0));
    }
    let windows = (plan.rounds / window).max(5);
    let mut samples = Vec::with_capacity(windows);
    for round in 0..1 + windows {
        if comm.rank() == 0 {
            let begun = Instant::now();
            let requests: Vec<_> =
                buffers.drain(..).map(|buffer| comm.isend(buffer, last, DATA)).collect::<spmd::Result<_>>()?;
            for request in requests {
                buffers.push(request.wait()?);
            }
            comm.recv(&mut [0_u8], last, ANSWER)?;
            let seconds = begun.elapsed().as_secs_f64();
            if round > 0 {
                samples.push((window * plan.bytes) as f64 / seconds / 1e6);
            }
        } else if comm.rank() == last {
            let requests: Vec<_> =
                buffers.drain(..).map(|buffer| comm.irecv(buffer, 0, DATA)).collect::<spmd::Result<_>>()?;
            for request in requests {
                buffers.push(request.wait()?.0);
            }
            comm.send(&[1_u8], 0, ANSWER)?;
            if round == 0 {
                assert!(buffers.iter().all(|buffer| *buffer == plan.pattern()), "a message came damaged");
            }
        } else {
            return Ok(None);
        }
    }
    Ok((comm.rank() == 0).then_some(samples))
}
