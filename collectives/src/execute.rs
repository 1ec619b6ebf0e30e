//! Runs a schedule: messages through an [`Exchange`](spmd::comm::Exchange), reductions and copies here.
//!
//! Knows neither collectives nor algorithms. Whatever is ready starts: messages first, so that they are on their way
//! while this rank computes.

use crate::operators::Op;
use crate::schedule::{Action, Buffer, Schedule, Slice, Step};
use spmd::comm::Buffers;
use spmd::element::{Element, Signature, as_bytes, as_bytes_mut};
use spmd::memory::Operation;
use spmd::{Communicator, Result};
use std::collections::VecDeque;

/// Runs `schedule` on the caller's buffers. `signature` marks every message; ranks that differ in it get an error. The
/// operator is there if the schedule reduces.
pub(crate) fn run<T: Element>(
    comm: &Communicator,
    schedule: &Schedule,
    operation: Operation,
    signature: Signature,
    input: &[T],
    output: &mut [T],
    op: Option<&dyn Op<T>>,
) -> Result<()> {
    let steps = schedule.steps();
    let scratch = bytemuck::zeroed_vec(schedule.lengths().scratch);
    let mut memory = Memory { steps, input, output, scratch };
    // A rank alone has nobody to exchange anything with.
    let mut exchange = (comm.size() > 1).then(|| comm.exchange_of(operation));
    let mut progress = Progress::new(schedule);
    loop {
        while let Some(id) = progress.ready.pop_front() {
            let step = &steps[id as usize];
            match (step.action, &mut exchange) {
                (Action::Send { peer, from }, Some(exchange)) => {
                    exchange.send(id, peer, step.label, signature, from.length * size_of::<T>())?;
                }
                (Action::Receive { peer, into }, Some(exchange)) => {
                    let bytes = into.length * size_of::<T>();
                    exchange.receive(id, peer, step.label, signature, bytes, &mut memory)?;
                }
                _ => progress.local.push_back(id),
            }
        }
        if let Some(id) = progress.local.pop_front() {
            memory.compute(steps[id as usize].action, op);
            progress.complete(id);
        } else if progress.remaining == 0 {
            return Ok(());
        } else if let Some(exchange) = &mut exchange {
            for &id in exchange.advance(&mut memory)? {
                progress.complete(id);
            }
        }
    }
}

/// Which steps may start, as others complete.
struct Progress {
    /// For each step the dependencies that are not complete.
    missing: Vec<u32>,
    /// For each step where in `followers` those that wait for it begin; they end where the next one's begin.
    starts: Vec<u32>,
    followers: Vec<u32>,
    /// Ready and not looked at.
    ready: VecDeque<u32>,
    /// Ready reductions and copies.
    local: VecDeque<u32>,
    /// Steps that are not complete.
    remaining: usize,
}

impl Progress {
    fn new(schedule: &Schedule) -> Progress {
        let count = schedule.steps().len();
        let mut missing = vec![0; count];
        let mut starts = vec![0; count + 1];
        for (step, missing) in missing.iter_mut().enumerate() {
            for &before in schedule.dependencies(step) {
                *missing += 1;
                starts[before as usize + 1] += 1;
            }
        }
        for index in 0..count {
            starts[index + 1] += starts[index];
        }
        let mut next = starts.clone();
        let mut followers = vec![0; starts[count] as usize];
        let mut ready = VecDeque::new();
        for (step, id) in (0..count).zip(0u32..) {
            for &before in schedule.dependencies(step) {
                let place = &mut next[before as usize];
                followers[*place as usize] = id;
                *place += 1;
            }
            if missing[step] == 0 {
                ready.push_back(id);
            }
        }
        Progress { missing, starts, followers, ready, local: VecDeque::new(), remaining: count }
    }

    fn complete(&mut self, id: u32) {
        self.remaining -= 1;
        let (start, end) = (self.starts[id as usize], self.starts[id as usize + 1]);
        for &follower in &self.followers[start as usize..end as usize] {
            let missing = &mut self.missing[follower as usize];
            *missing -= 1;
            if *missing == 0 {
                self.ready.push_back(follower);
            }
        }
    }
}

/// The buffers of a call.
struct Memory<'a, T> {
    steps: &'a [Step],
    input: &'a [T],
    output: &'a mut [T],
    scratch: Vec<T>,
}

impl<T: Element> Memory<'_, T> {
    fn compute(&mut self, action: Action, op: Option<&dyn Op<T>>) {
        match action {
            Action::Reduce { operand, into, side } => {
                if let (Some((operand, into)), Some(op)) = (self.pair(operand, into), op) {
                    op.apply(into, operand, side);
                }
            }
            Action::Copy { from, into } => {
                if let Some((from, into)) = self.pair(from, into) {
                    into.copy_from_slice(from);
                }
            }
            Action::Send { .. } | Action::Receive { .. } => {}
        }
    }

    /// Two slices at once, the second to be written; `None` for a schedule that writes the input, and there is none.
    fn pair(&mut self, from: Slice, into: Slice) -> Option<(&[T], &mut [T])> {
        let (input, output, scratch) = (self.input, &mut *self.output, &mut self.scratch[..]);
        Some(match (from.buffer, into.buffer) {
            (_, Buffer::Input) => return None,
            (Buffer::Input, Buffer::Output) => (&input[from.range()], &mut output[into.range()]),
            (Buffer::Input, Buffer::Scratch) => (&input[from.range()], &mut scratch[into.range()]),
            (Buffer::Output, Buffer::Scratch) => (&output[from.range()], &mut scratch[into.range()]),
            (Buffer::Scratch, Buffer::Output) => (&scratch[from.range()], &mut output[into.range()]),
            (Buffer::Output, Buffer::Output) => apart(output, from, into),
            (Buffer::Scratch, Buffer::Scratch) => apart(scratch, from, into),
        })
    }
}

/// Two slices of one buffer, which have no element in common.
fn apart<T>(buffer: &mut [T], from: Slice, into: Slice) -> (&[T], &mut [T]) {
    if from.range().end <= into.offset {
        let (left, right) = buffer.split_at_mut(into.offset);
        (&left[from.range()], &mut right[..into.length])
    } else {
        let (left, right) = buffer.split_at_mut(from.offset);
        (&right[..from.length], &mut left[into.range()])
    }
}

impl<T: Element> Buffers for Memory<'_, T> {
    fn source(&self, op: u32) -> &[u8] {
        match self.steps[op as usize].action {
            Action::Send { from, .. } => as_bytes(match from.buffer {
                Buffer::Input => &self.input[from.range()],
                Buffer::Output => &self.output[from.range()],
                Buffer::Scratch => &self.scratch[from.range()],
            }),
            _ => &[],
        }
    }

    fn destination(&mut self, op: u32) -> &mut [u8] {
        match self.steps[op as usize].action {
            Action::Receive { into: Slice { buffer: Buffer::Output, offset, length }, .. } => {
                as_bytes_mut(&mut self.output[offset..offset + length])
            }
            Action::Receive { into: Slice { buffer: Buffer::Scratch, offset, length }, .. } => {
                as_bytes_mut(&mut self.scratch[offset..offset + length])
            }
            _ => &mut [],
        }
    }
}
