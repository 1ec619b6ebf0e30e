//! How algorithms for a power of two of ranks serve any number: neighbours are folded together first.
//!
//! Of the first 2 r ranks (r = p - 2^⌊log2 p⌋) each even one gives its data to the odd one after it and gets the result
//! at the end. Pairs are neighbours, so that rank order is kept.

use crate::compose::{Builder, Group};
use crate::schedule::{Side, Slice};

/// The ranks that are left: a power of two of them, the core.
pub(super) struct Core {
    /// This rank's position among them.
    pub(super) position: usize,
    /// How many they are.
    pub(super) size: usize,
    folded: usize,
}

impl Core {
    /// The position in the group of the core's member at `position`.
    pub(super) fn member(&self, position: usize) -> usize {
        if position < self.folded { 2 * position + 1 } else { position + self.folded }
    }
}

/// Folds, lets the core work, and unfolds. `core` is not called on the ranks that have given their data away.
pub(super) fn folded(b: &mut Builder, group: &Group<'_>, data: Slice, core: impl FnOnce(&mut Builder, &Core)) {
    let (rank, size) = (group.rank(), group.size());
    let power = if size.is_power_of_two() { size } else { size.next_power_of_two() / 2 };
    let folded = size - power;
    if rank < 2 * folded && rank.is_multiple_of(2) {
        b.send(group.peer(rank + 1), data);
        b.receive(group.peer(rank + 1), data);
        return;
    }
    let giver = (rank < 2 * folded).then(|| group.peer(rank - 1));
    if let Some(giver) = giver {
        let given = b.scratch(data.length);
        b.receive(giver, given);
        b.reduce(given, data, Side::Left);
    }
    let position = if giver.is_some() { rank / 2 } else { rank - folded };
    core(b, &Core { position, size: power, folded });
    if let Some(giver) = giver {
        b.send(giver, data);
    }
}
