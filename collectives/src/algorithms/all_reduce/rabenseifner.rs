//! Rabenseifner's algorithm: few rounds and little data, for a power of two of ranks at its best.

use super::fold::folded;
use crate::compose::{Blocks, Builder, Group};
use crate::schedule::{Side, Slice};

/// Ranks at distance 1, 2, 4, … exchange halves of what they have combined so far, until each has one block of the
/// result; then the same way back to collect all.
///
/// Distances double while the vector halves, so that a block's value always covers neighbouring ranks: the order of
/// the ranks is kept and the operator need not commute.
/// Cost: `2 log2(p) (latency + overhead) + ((p - 1) / p) n (2 beta + gamma)`; where p is no power of two two more
/// messages and a reduction of all data.
pub fn rabenseifner(b: &mut Builder, group: &Group<'_>, data: Slice) {
    folded(b, group, data, |b, core| {
        let blocks = Blocks::new(data, core.size);
        let (mut first, mut end) = (0, core.size);
        // What this rank keeps and what the partner keeps, a pair for each round.
        let mut rounds = Vec::new();
        let mut distance = 1;
        while distance < core.size {
            let partner = core.position ^ distance;
            let peer = group.peer(core.member(partner));
            let middle = first + (end - first) / 2;
            let (lower, upper) = (blocks.run(first, middle), blocks.run(middle, end));
            let (kept, given, side) =
                if core.position < partner { (lower, upper, Side::Right) } else { (upper, lower, Side::Left) };
            (first, end) = if core.position < partner { (first, middle) } else { (middle, end) };
            let room = b.scratch(kept.length);
            b.receive(peer, room);
            b.send(peer, given);
            b.reduce(room, kept, side);
            rounds.push((peer, kept, given));
            distance *= 2;
        }
        for (peer, kept, given) in rounds.into_iter().rev() {
            b.receive(peer, given);
            b.send(peer, kept);
        }
    });
}
