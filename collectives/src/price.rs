//! What schedules cost on a model of a network: each rank with a port and a processor, a port that each group of ranks (a
//! host) shares for what goes to other groups, and where it is known one that each group of groups (a rack) shares.
//!
//! The model is that of LogGP in four constants. A message of n bytes keeps the sender's port busy for
//! `overhead + n * per_byte`, reaches the receiver `latency` later and keeps its port busy as long; reductions and
//! copies keep the processor busy. Knows schedules, neither operators nor collectives.

use crate::groups::{Groups, Link};
use crate::schedule::{Action, Schedule};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The constants of the model, in seconds and seconds a byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// From the sender's port to the receiver's (alpha).
    pub latency: f64,
    /// What each message costs its sender and its receiver whatever its length (o).
    pub overhead: f64,
    /// Time of a byte in a port (beta): the inverse of the bandwidth.
    pub per_byte: f64,
    /// Time to reduce or copy a byte (gamma).
    pub per_byte_reduced: f64,
}

impl Model {
    /// Assumed, not measured: 5 us, 0.5 us a message, 2 GB/s, reductions at 10 GB/s. The order of a fast Ethernet
    /// between hosts, and a compromise with ranks of one host, until the constants of a machine are measured.
    pub const ASSUMED: Model = Model { latency: 5e-6, overhead: 5e-7, per_byte: 5e-10, per_byte_reduced: 1e-10 };

    /// Time of one message of `bytes` between two idle ranks.
    #[must_use]
    pub fn message(&self, bytes: f64) -> f64 {
        self.latency + self.overhead + bytes * self.per_byte
    }

    /// Time to reduce or copy `bytes`.
    #[must_use]
    pub fn reduction(&self, bytes: f64) -> f64 {
        bytes * self.per_byte_reduced
    }
}

/// What messages cost inside a group of ranks (a host), between groups, and between groups of groups (racks).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Messages between ranks of one group.
    pub inside: Model,
    /// Messages between groups.
    pub between: Model,
    /// Messages between groups of groups. The time of a byte is that in the port that such a group shares, which may be
    /// shorter than in the ports of its groups; `None`: not known, they cost what those between groups do.
    pub across: Option<Model>,
}

impl Network {
    /// Assumed, not measured: [`Model::ASSUMED`] between groups; inside, 0.4 us, 0.2 us a message, 8 GB/s, what shared
    /// memory between two cores reaches.
    pub const ASSUMED: Network = Network {
        inside: Model { latency: 4e-7, overhead: 2e-7, per_byte: 1.25e-10, per_byte_reduced: 1e-10 },
        between: Model::ASSUMED,
        across: None,
    };

    /// A network of equal links.
    #[must_use]
    pub const fn flat(model: Model) -> Network {
        Network { inside: model, between: model, across: None }
    }

    /// One message alone on such a link: the slowest of the ports that it passes sets the pace.
    #[must_use]
    pub fn model(&self, link: Link) -> Model {
        match (link, self.across) {
            (Link::Inside, _) => self.inside,
            (Link::Across, Some(across)) => Model { per_byte: across.per_byte.max(self.between.per_byte), ..across },
            (Link::Between | Link::Across, _) => self.between,
        }
    }

    /// The model of the widest messages that so divided ranks send.
    pub(crate) fn outermost(&self, groups: &Groups) -> Model {
        self.model(groups.outermost_link())
    }
}

/// Time in order; what the queue needs and floats do not have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Instant(pub(crate) f64);

impl Eq for Instant {}

impl PartialOrd for Instant {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Instant {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Which steps of a rank still wait for which.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    /// Dependencies that each step still waits for.
    pub(crate) missing: Vec<u32>,
    dependents: Vec<Vec<u32>>,
}

/// The time until all ranks have finished, in seconds, when all begin at 0 and elements have `element_bytes` bytes.
///
/// `schedules` has the schedule of every rank, in order, and `groups` says which of them are near each other. A message starts when its receive is posted and both ports are
/// free (rendezvous). `None` when the schedules never finish: see [`crate::check`] for why.
#[must_use]
pub fn price(schedules: &[Schedule], element_bytes: usize, network: &Network, groups: &Groups) -> Option<f64> {
    let mut ranks: Vec<Waits> = schedules.iter().map(Waits::new).collect();
    let mut processors = vec![0.0f64; ranks.len()];
    // One end of each message that is ready while the other is not yet, with its rank and step.
    let mut posted: HashMap<(usize, usize, u32), usize> = HashMap::new();
    let mut queue = BinaryHeap::new();
    let mut remaining = 0;
    for (rank, schedule) in schedules.iter().enumerate() {
        remaining += schedule.steps().len();
        for step in (0..schedule.steps().len()).filter(|&step| ranks[rank].missing[step] == 0) {
            queue.push(Reverse((Instant(0.0), false, step, rank)));
        }
    }
    let mut finish = 0.0f64;
    // When each port is free: those of the ranks, and behind them those that the ranks of a group share, and those that
    // groups of groups share.
    let (hosts, racks) = (groups.joined_by(Link::Inside), groups.joined_by(Link::Between));
    let mut sends = vec![0.0f64; 3 * ranks.len()];
    let mut receives = sends.clone();
    let size = ranks.len();
    // At the same time earlier steps go first, on whatever rank: ports serve chunks in turn.
    while let Some(Reverse((Instant(now), complete, step, rank))) = queue.pop() {
        if complete {
            remaining -= 1;
            finish = finish.max(now);
            ranks[rank].complete(step, |step| queue.push(Reverse((Instant(now), false, step, rank))));
            continue;
        }
        let label = schedules[rank].steps()[step].label;
        let bytes = |length: usize| bytes(length, element_bytes);
        let (key, length) = match schedules[rank].steps()[step].action {
            Action::Send { peer, from } => ((rank, peer, label), from.length),
            Action::Receive { peer, into } => ((peer, rank, label), into.length),
            Action::Reduce { into, .. } | Action::Copy { into, .. } => {
                let end = processors[rank].max(now) + network.inside.reduction(bytes(into.length));
                processors[rank] = end;
                queue.push(Reverse((Instant(end), true, step, rank)));
                continue;
            }
        };
        let Some(other) = posted.remove(&key) else {
            posted.insert(key, step);
            continue;
        };
        let (source, destination, _) = key;
        let (sent, received) = if rank == source { (step, other) } else { (other, step) };
        let link = match (hosts[source] == hosts[destination], racks[source] == racks[destination]) {
            (true, _) => Link::Inside,
            (_, true) => Link::Between,
            _ => Link::Across,
        };
        let model = network.model(link);
        let port = |rank: usize| if link == Link::Inside { rank } else { size + hosts[rank] };
        let (from, to) = (port(source), port(destination));
        let (out, into) = (2 * size + racks[source], 2 * size + racks[destination]);
        let mut start = now.max(sends[from]).max(receives[to] - model.latency);
        let bytes = bytes(length);
        let (mut busy, mut shared) = (model.overhead + bytes * model.per_byte, 0.0);
        if let Some(across) = network.across.filter(|_| link == Link::Across) {
            start = start.max(sends[out]).max(receives[into] - model.latency);
            (busy, shared) = (model.overhead + bytes * network.between.per_byte, bytes * across.per_byte);
            sends[out] = start + shared;
            receives[into] = start + shared + model.latency;
        }
        sends[from] = start + busy;
        receives[to] = start + busy + model.latency;
        let busy = busy.max(shared);
        queue.push(Reverse((Instant(start + busy), true, sent, source)));
        queue.push(Reverse((Instant(start + busy + model.latency), true, received, destination)));
    }
    (remaining == 0).then_some(finish)
}

/// Bytes of a number of elements; sizes are far below the 2^53 where this would round.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn bytes(elements: usize, element_bytes: usize) -> f64 {
    elements as f64 * element_bytes as f64
}

impl Waits {
    pub(crate) fn new(schedule: &Schedule) -> Waits {
        let count = schedule.steps().len();
        let mut dependents = vec![Vec::new(); count];
        let mut missing = vec![0; count];
        // The builder allows no more than u32::MAX steps.
        for (step, number) in (0..count).zip(0u32..) {
            for &before in schedule.dependencies(step) {
                dependents[before as usize].push(number);
                missing[step] += 1;
            }
        }
        Waits { missing, dependents }
    }

    /// A step is complete: `ready` hears of those that waited for nothing else.
    pub(crate) fn complete(&mut self, step: usize, mut ready: impl FnMut(usize)) {
        for dependent in std::mem::take(&mut self.dependents[step]) {
            let missing = &mut self.missing[dependent as usize];
            *missing -= 1;
            if *missing == 0 {
                ready(dependent as usize);
            }
        }
    }
}
