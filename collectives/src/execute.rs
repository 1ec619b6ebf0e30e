//! Runs a schedule as a [`Machine`]: messages through its port, reductions and copies here.
//!
//! Knows neither collectives nor algorithms, nor whether a call waits for it. Whatever is ready starts: messages first, so
//! that they are on their way while this rank computes.

use crate::operators::Op;
use crate::plan::Plan;
use crate::schedule::{Action, Buffer, Schedule, Slice};
use spmd::Result;
use spmd::comm::{Machine, Port, State};
use spmd::element::{Element, as_bytes, as_bytes_mut};
use std::collections::VecDeque;
use std::ops::Deref;

/// A schedule under way on buffers that are borrowed (`&[T]`, `&mut [T]`) or owned (`Vec<T>`).
pub(crate) struct Execution<P, I, O, F, T> {
    plan: P,
    pub(crate) input: I,
    pub(crate) output: O,
    scratch: Vec<T>,
    /// There if the schedule reduces.
    op: Option<F>,
    progress: Progress,
}

impl<P: Deref<Target = Plan>, I: AsRef<[T]>, O: AsRef<[T]> + AsMut<[T]>, F: Op<T>, T: Element>
    Execution<P, I, O, F, T>
{
    pub(crate) fn new(plan: P, input: I, output: O, op: Option<F>) -> Self {
        let scratch = bytemuck::zeroed_vec(plan.schedule.lengths().scratch);
        let progress = Progress::new(&plan.order);
        Execution { plan, input, output, scratch, op, progress }
    }

    /// As new, on the same buffers.
    pub(crate) fn restart(&mut self) {
        self.progress = Progress::new(&self.plan.order);
    }

    fn action(&self, id: u32) -> Action {
        self.plan.schedule.steps()[id as usize].action
    }

    /// Two slices at once, the second to be written; `None` for a schedule that writes the input, and there is none.
    fn pair(&mut self, from: Slice, into: Slice) -> Option<(&[T], &mut [T])> {
        let (input, output, scratch) = (self.input.as_ref(), self.output.as_mut(), &mut self.scratch[..]);
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

impl<P: Deref<Target = Plan>, I: AsRef<[T]>, O: AsRef<[T]> + AsMut<[T]>, F: Op<T>, T: Element> Machine
    for Execution<P, I, O, F, T>
{
    fn source(&self, op: u32) -> &[u8] {
        match self.action(op) {
            Action::Send { from, .. } => as_bytes(match from.buffer {
                Buffer::Input => &self.input.as_ref()[from.range()],
                Buffer::Output => &self.output.as_ref()[from.range()],
                Buffer::Scratch => &self.scratch[from.range()],
            }),
            _ => &[],
        }
    }

    fn destination(&mut self, op: u32) -> &mut [u8] {
        match self.action(op) {
            Action::Receive { into, .. } => match into.buffer {
                Buffer::Input => &mut [],
                Buffer::Output => as_bytes_mut(&mut self.output.as_mut()[into.range()]),
                Buffer::Scratch => as_bytes_mut(&mut self.scratch[into.range()]),
            },
            _ => &mut [],
        }
    }

    fn begin(&mut self, port: &mut Port<'_>) -> Result<()> {
        while let Some(id) = self.progress.ready.pop_front() {
            let step = &self.plan.schedule.steps()[id as usize];
            let label = self.plan.first_label + step.label;
            match step.action {
                Action::Send { peer, .. } => {
                    if port.send(id, self.plan.peer(peer), label, self.source(id))? {
                        self.complete(id);
                    }
                }
                Action::Receive { peer, .. } => port.receive(id, self.plan.peer(peer), label, self)?,
                Action::Reduce { .. } | Action::Copy { .. } => self.progress.local.push_back(id),
            }
        }
        Ok(())
    }

    fn complete(&mut self, op: u32) {
        self.progress.complete(&self.plan.order, op);
    }

    fn state(&self) -> State {
        match self.progress.local.is_empty() {
            false => State::Works,
            true if self.progress.remaining == 0 => State::Done,
            true => State::Waits,
        }
    }

    fn work(&mut self) {
        let Some(id) = self.progress.local.pop_front() else { return };
        match self.action(id) {
            Action::Reduce { operand, into, side } => {
                if let Some(op) = self.op.take() {
                    if let Some((operand, into)) = self.pair(operand, into) {
                        op.apply(into, operand, side);
                    }
                    self.op = Some(op);
                }
            }
            Action::Copy { from, into } => {
                if let Some((from, into)) = self.pair(from, into) {
                    into.copy_from_slice(from);
                }
            }
            Action::Send { .. } | Action::Receive { .. } => {}
        }
        self.complete(id);
    }
}

/// Which steps wait for which: the same for every execution of a schedule.
#[derive(Debug)]
pub(crate) struct Order {
    /// For each step how many it waits for.
    missing: Vec<u32>,
    /// For each step where in `followers` those that wait for it begin; they end where the next one's begin.
    starts: Vec<u32>,
    followers: Vec<u32>,
}

impl Order {
    pub(crate) fn new(schedule: &Schedule) -> Order {
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
        for (step, id) in (0..count).zip(0u32..) {
            for &before in schedule.dependencies(step) {
                let place = &mut next[before as usize];
                followers[*place as usize] = id;
                *place += 1;
            }
        }
        Order { missing, starts, followers }
    }
}

/// Which steps may start, as others complete.
struct Progress {
    /// For each step the dependencies that are not complete.
    missing: Vec<u32>,
    /// Ready and not looked at.
    ready: VecDeque<u32>,
    /// Ready reductions and copies.
    local: VecDeque<u32>,
    /// Steps that are not complete.
    remaining: usize,
}

impl Progress {
    fn new(order: &Order) -> Progress {
        let missing = order.missing.clone();
        let ready = (0u32..).zip(&missing).filter(|(_, missing)| **missing == 0).map(|(id, _)| id).collect();
        Progress { ready, local: VecDeque::new(), remaining: missing.len(), missing }
    }

    fn complete(&mut self, order: &Order, id: u32) {
        self.remaining -= 1;
        let (start, end) = (order.starts[id as usize], order.starts[id as usize + 1]);
        for &follower in &order.followers[start as usize..end as usize] {
            let missing = &mut self.missing[follower as usize];
            *missing -= 1;
            if *missing == 0 {
                self.ready.push_back(follower);
            }
        }
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
