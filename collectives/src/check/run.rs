//! Runs the schedules of all ranks together, on symbols.

use super::fault::Fault;
use super::promise::Promise;
use super::symbols::{Symbols, Value};
use crate::schedule::{Action, Buffer, Schedule, Side, Slice};
use std::collections::{HashMap, HashSet};

/// When a send is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Once its receive is posted and has the data.
    Rendezvous,
    /// At once: the data is kept somewhere until it is received.
    Eager,
}

/// The state of one rank.
struct Rank {
    buffers: [Vec<Value>; 3],
    missing: Vec<u32>,
    dependents: Vec<Vec<u32>>,
    done: Vec<bool>,
    /// For each step the length of the longest chain of messages that ends in it.
    depth: Vec<usize>,
    /// For each step the ranks that are known to have entered when it is complete.
    known: Vec<HashSet<usize>>,
}

/// One end of a message whose other end is not ready yet.
struct Posted {
    step: usize,
    /// An eager sender's data.
    data: Option<Vec<Value>>,
}

/// A run of all schedules.
pub(super) struct Run<'a> {
    schedules: &'a [Schedule],
    mode: Mode,
    /// Whether to follow who knows of whom: needed for barriers only.
    knowledge: bool,
    symbols: Symbols,
    ranks: Vec<Rank>,
    posted: HashMap<(usize, usize, u32), Posted>,
    ready: Vec<(usize, usize)>,
}

impl<'a> Run<'a> {
    pub(super) fn new(promise: &Promise<'_>, schedules: &'a [Schedule], mode: Mode) -> Run<'a> {
        let ranks: Vec<Rank> =
            schedules.iter().enumerate().map(|(rank, schedule)| Rank::new(promise, rank, schedule)).collect();
        let mut ready = Vec::new();
        for (rank, state) in ranks.iter().enumerate() {
            ready.extend((0..state.missing.len()).filter(|&step| state.missing[step] == 0).map(|step| (rank, step)));
        }
        let knowledge = promise.task.collective == crate::algorithms::Collective::Barrier;
        let symbols = Symbols::new(schedules.len());
        Run { schedules, mode, knowledge, symbols, ranks, posted: HashMap::new(), ready }
    }

    /// Runs until nothing is left, or nothing can go on.
    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        while let Some((rank, step)) = self.ready.pop() {
            self.start(rank, step)?;
        }
        for (rank, state) in self.ranks.iter().enumerate() {
            if let Some(step) = state.done.iter().position(|done| !done) {
                return Err(Fault::Deadlock { rank, step, action: self.action(rank, step) });
            }
        }
        match self.posted.keys().next() {
            Some(&(source_rank, destination, label)) => Err(Fault::Unreceived { source_rank, destination, label }),
            None => Ok(()),
        }
    }

    pub(super) fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    pub(super) fn output(&self, rank: usize) -> &[Value] {
        &self.ranks[rank].buffers[Buffer::Output as usize]
    }

    /// The longest chain of messages.
    pub(super) fn rounds(&self) -> usize {
        self.ranks.iter().flat_map(|rank| rank.depth.iter().copied()).max().unwrap_or(0)
    }

    /// Every rank knows at its end that all have entered.
    pub(super) fn check_barrier(&self) -> Result<(), Fault> {
        for (rank, state) in self.ranks.iter().enumerate() {
            let knows = |other: usize| other == rank || state.known.iter().any(|known| known.contains(&other));
            if let Some(missing) = (0..self.ranks.len()).find(|&other| !knows(other)) {
                return Err(Fault::LeavesEarly { rank, missing });
            }
        }
        Ok(())
    }

    fn action(&self, rank: usize, step: usize) -> Action {
        self.schedules[rank].steps()[step].action
    }

    fn start(&mut self, rank: usize, step: usize) -> Result<(), Fault> {
        self.inherit(rank, step);
        let label = self.schedules[rank].steps()[step].label;
        let action = self.action(rank, step);
        match action {
            Action::Copy { from, into } => {
                let data = self.read(rank, step, from)?;
                self.write(rank, into, &data);
                self.complete(rank, step);
            }
            Action::Reduce { operand, into, side } => {
                let operand = self.read(rank, step, operand)?;
                let mut data = self.read(rank, step, into)?;
                for (value, operand) in data.iter_mut().zip(operand) {
                    let (left, right) = if side == Side::Left { (operand, *value) } else { (*value, operand) };
                    *value = self.symbols.combine(left, right).map_err(|what| Fault::WrongOperands {
                        rank,
                        step,
                        action,
                        what,
                    })?;
                }
                self.write(rank, into, &data);
                self.complete(rank, step);
            }
            Action::Send { peer, from } => {
                let eager = self.mode == Mode::Eager;
                let data = if eager { Some(self.read(rank, step, from)?) } else { None };
                match self.posted.remove(&(rank, peer, label)) {
                    Some(receive) => self.transfer((rank, step, data), (peer, receive.step))?,
                    None => {
                        self.posted.insert((rank, peer, label), Posted { step, data });
                    }
                }
                if eager {
                    self.complete(rank, step);
                }
            }
            Action::Receive { peer, .. } => match self.posted.remove(&(peer, rank, label)) {
                Some(send) => self.transfer((peer, send.step, send.data), (rank, step))?,
                None => {
                    self.posted.insert((peer, rank, label), Posted { step, data: None });
                }
            },
        }
        Ok(())
    }

    /// Both ends of a message are ready.
    fn transfer(
        &mut self,
        (source, sent, data): (usize, usize, Option<Vec<Value>>),
        (destination, received): (usize, usize),
    ) -> Result<(), Fault> {
        let (Action::Send { from, .. }, Action::Receive { into, .. }) =
            (self.action(source, sent), self.action(destination, received))
        else {
            return Ok(()); // Only these two are ever posted.
        };
        let label = self.schedules[source].steps()[sent].label;
        if from.length != into.length {
            let (sent, received) = (from.length, into.length);
            return Err(Fault::MessageLength { source_rank: source, destination, label, sent, received });
        }
        let data = match data {
            Some(data) => data,
            None => self.read(source, sent, from)?,
        };
        self.write(destination, into, &data);
        let depth = self.ranks[source].depth[sent] + 1;
        let own = &mut self.ranks[destination].depth[received];
        *own = depth.max(*own);
        if self.knowledge {
            let heard = self.ranks[source].known[sent].clone();
            self.ranks[destination].known[received].extend(heard);
        }
        if self.mode == Mode::Rendezvous {
            self.complete(source, sent);
        }
        self.complete(destination, received);
        Ok(())
    }

    /// A step knows what the steps before it knew.
    fn inherit(&mut self, rank: usize, step: usize) {
        let before = self.schedules[rank].dependencies(step);
        let state = &mut self.ranks[rank];
        state.depth[step] = before.iter().map(|&before| state.depth[before as usize]).max().unwrap_or(0);
        if self.knowledge {
            let mut known = HashSet::from([rank]);
            before.iter().for_each(|&before| known.extend(&state.known[before as usize]));
            state.known[step] = known;
        }
    }

    fn complete(&mut self, rank: usize, step: usize) {
        let state = &mut self.ranks[rank];
        state.done[step] = true;
        for dependent in std::mem::take(&mut state.dependents[step]) {
            let missing = &mut state.missing[dependent as usize];
            *missing -= 1;
            if *missing == 0 {
                self.ready.push((rank, dependent as usize));
            }
        }
    }

    fn read(&self, rank: usize, step: usize, slice: Slice) -> Result<Vec<Value>, Fault> {
        let data = &self.ranks[rank].buffers[slice.buffer as usize][slice.range()];
        if data.iter().any(|value| value.is_undefined()) {
            return Err(Fault::Undefined { rank, step, action: self.action(rank, step) });
        }
        Ok(data.to_vec())
    }

    fn write(&mut self, rank: usize, slice: Slice, data: &[Value]) {
        self.ranks[rank].buffers[slice.buffer as usize][slice.range()].copy_from_slice(data);
    }
}

impl Rank {
    fn new(promise: &Promise<'_>, rank: usize, schedule: &Schedule) -> Rank {
        let count = schedule.steps().len();
        let mut dependents = vec![Vec::new(); count];
        let mut missing = vec![0; count];
        for (step, number) in (0..count).zip(0u32..) {
            for &before in schedule.dependencies(step) {
                dependents[before as usize].push(number);
                missing[step] += 1;
            }
        }
        let lengths = schedule.lengths();
        let buffers = Buffer::ALL.map(|buffer| promise.contents(rank, buffer, lengths.of(buffer)));
        let (done, depth, known) = (vec![false; count], vec![0; count], vec![HashSet::new(); count]);
        Rank { buffers, missing, dependents, done, depth, known }
    }
}
