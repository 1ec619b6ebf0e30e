//! Recursive doubling: the fewest rounds, all data in each.

use super::fold::folded;
use crate::compose::{Builder, Group};
use crate::schedule::{Side, Slice};

/// Ranks at distance 1, 2, 4, … exchange all data, and both combine it, the lower rank's on the left.
///
/// Cost: `log2(p) (latency + overhead + n beta + n gamma)`; where p is no power of two two more messages and a
/// reduction of all data, of which one half of the ranks at most take part.
pub fn recursive_doubling(b: &mut Builder, group: &Group<'_>, data: Slice) {
    folded(b, group, data, |b, core| {
        // Two places, so that a partner that is a round ahead need not wait for this rank's reduction.
        let rooms = [b.scratch(data.length), b.scratch(if core.size > 2 { data.length } else { 0 })];
        let mut distance = 1;
        let mut turn = 0;
        while distance < core.size {
            let partner = core.position ^ distance;
            let peer = group.peer(core.member(partner));
            let room = rooms[turn];
            b.receive(peer, room);
            b.send(peer, data);
            b.reduce(room, data, if partner < core.position { Side::Left } else { Side::Right });
            distance *= 2;
            turn = 1 - turn;
        }
    });
}
