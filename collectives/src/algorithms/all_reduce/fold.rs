//! How algorithms for a power of two of ranks serve any number: neighbours are folded together first.
//!
//! Of the first 2 r ranks (r = p - 2^⌊log2 p⌋) each even one gives its data to the odd one after it and gets the result
//! at the end. Pairs are neighbours, so that rank order is kept.

use crate::compose::{Builder, Group};
use crate::schedule::{Side, Slice};

/// The ranks that are left: a power of two of them, the core.
pub(in crate::algorithms) struct Core {
    /// This rank's position among them.
    pub(in crate::algorithms) position: usize,
    /// How many they are.
    pub(in crate::algorithms) size: usize,
    folded: usize,
}

impl Core {
    /// The core as its member `rank` of `size` ranks sees it; for others the rank that takes their data.
    pub(in crate::algorithms) fn of(rank: usize, size: usize) -> Result<Core, usize> {
        let power = if size.is_power_of_two() { size } else { size.next_power_of_two() / 2 };
        let folded = size - power;
        match rank {
            _ if rank >= 2 * folded => Ok(Core { position: rank - folded, size: power, folded }),
            _ if rank.is_multiple_of(2) => Err(rank + 1),
            _ => Ok(Core { position: rank / 2, size: power, folded }),
        }
    }

    /// The rank whose data this one takes.
    pub(in crate::algorithms) fn giver(&self) -> Option<usize> {
        (self.position < self.folded).then(|| self.member(self.position) - 1)
    }

    /// The position in the group of the core's member at `position`.
    pub(in crate::algorithms) fn member(&self, position: usize) -> usize {
        if position < self.folded { 2 * position + 1 } else { position + self.folded }
    }

    /// The first of the ranks whose data the member at `position` has after the fold; those of the core's size end with
    /// the last rank.
    pub(in crate::algorithms) fn start(&self, position: usize) -> usize {
        position + position.min(self.folded)
    }
}

/// Folds, lets the core work, and unfolds. `core` is not called on the ranks that have given their data away.
pub(super) fn folded(b: &mut Builder, group: &Group<'_>, data: Slice, core: impl FnOnce(&mut Builder, &Core)) {
    match Core::of(group.rank(), group.size()) {
        Err(taker) => {
            b.send(group.peer(taker), data);
            b.receive(group.peer(taker), data);
        }
        Ok(view) => {
            if let Some(giver) = view.giver() {
                let given = b.scratch(data.length);
                b.receive(group.peer(giver), given);
                b.reduce(given, data, Side::Left);
            }
            core(b, &view);
            if let Some(giver) = view.giver() {
                b.send(group.peer(giver), data);
            }
        }
    }
}
