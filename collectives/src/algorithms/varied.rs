//! Gather, scatter, all-gather and all-to-all whose blocks have a length of their own each.
//!
//! The counts must be known, as they say which messages there are: blocks without elements cost none. Not in the tables of
//! [`Collective`](super::Collective), as there is one way to do each.

use crate::compose::{Builder, Group, StepId};
use crate::schedule::{ScheduleError, Slice};

/// A slice cut into blocks of given lengths, one after another.
#[derive(Clone, Debug)]
pub struct Cuts {
    whole: Slice,
    /// Where each block begins, and where the last one ends.
    starts: Vec<usize>,
}

impl Cuts {
    /// Cuts `whole` into blocks of `counts` elements, which together must be its length.
    ///
    /// # Errors
    /// [`ScheduleError::TooLarge`] when they are more than the slice has.
    pub fn new(whole: Slice, counts: &[usize]) -> Result<Cuts, ScheduleError> {
        let mut starts = vec![0];
        let mut end = 0usize;
        for count in counts {
            end = end.checked_add(*count).filter(|end| *end <= whole.length).ok_or(ScheduleError::TooLarge)?;
            starts.push(end);
        }
        Ok(Cuts { whole, starts })
    }

    /// Block `index`.
    ///
    /// # Panics
    /// When there is no such block.
    #[must_use]
    pub fn block(&self, index: usize) -> Slice {
        self.whole.part(self.starts[index], self.starts[index + 1] - self.starts[index])
    }
}

/// Everyone sends straight to the root, which receives straight into its output. `all` is used at the root only.
///
/// Cost: `latency + (p - 1) overhead + (sum of all blocks) beta`.
pub fn gather(b: &mut Builder, group: &Group<'_>, root: usize, own: Slice, all: Option<&Cuts>) {
    if group.rank() != root {
        send(b, group.peer(root), own, &[]);
        return;
    }
    let Some(all) = all else { return };
    for distance in 1..group.size() {
        let member = (root + distance) % group.size();
        receive(b, group.peer(member), all.block(member), &[]);
    }
    b.copy(own, all.block(root));
}

/// The root sends each rank its block. `all` is used at the root only.
///
/// Cost: `latency + (p - 1) overhead + (sum of all blocks) beta`.
pub fn scatter(b: &mut Builder, group: &Group<'_>, root: usize, all: Option<&Cuts>, own: Slice) {
    if group.rank() != root {
        receive(b, group.peer(root), own, &[]);
        return;
    }
    let Some(all) = all else { return };
    for distance in 1..group.size() {
        let member = (root + distance) % group.size();
        send(b, group.peer(member), all.block(member), &[]);
    }
    b.copy(all.block(root), own);
}

/// A ring: everyone passes on what came last.
///
/// Cost: `(p - 1) (latency + overhead) + (sum of all blocks) beta`, when blocks are of like size; the longest sets the
/// pace.
pub fn all_gather(b: &mut Builder, group: &Group<'_>, own: Slice, all: &Cuts) {
    let (rank, size) = (group.rank(), group.size());
    b.copy(own, all.block(rank));
    for round in 0..size.saturating_sub(1) {
        send(b, group.ahead(1), if round == 0 { own } else { all.block((rank + size - round) % size) }, &[]);
        receive(b, group.behind(1), all.block((rank + size - round - 1) % size), &[]);
    }
}

/// Round i exchanges with the ranks at distance i, and only one round at a time.
///
/// Cost: `(p - 1) (latency + overhead) + (sum of the longest block of each round) beta`.
pub fn all_to_all(b: &mut Builder, group: &Group<'_>, from: &Cuts, into: &Cuts) {
    let (rank, size) = (group.rank(), group.size());
    b.copy(from.block(rank), into.block(rank));
    let mut before: Vec<StepId> = Vec::new();
    for distance in 1..size {
        let received = receive(b, group.behind(distance), into.block((rank + size - distance) % size), &before);
        let sent = send(b, group.ahead(distance), from.block((rank + distance) % size), &before);
        if received.or(sent).is_some() {
            before = received.into_iter().chain(sent).collect();
        }
    }
}

fn send(b: &mut Builder, peer: usize, from: Slice, after: &[StepId]) -> Option<StepId> {
    (from.length > 0).then(|| b.send_after(peer, from, after))
}

fn receive(b: &mut Builder, peer: usize, into: Slice, after: &[StepId]) -> Option<StepId> {
    (into.length > 0).then(|| b.receive_after(peer, into, after))
}
