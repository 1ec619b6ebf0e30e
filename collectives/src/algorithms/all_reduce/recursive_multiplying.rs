//! Recursive multiplying: as recursive doubling, with several partners in a round, for networks on which a rank can have
//! several messages under way.

use super::fold::folded;
use crate::algorithms::RADIX;
use crate::compose::{Builder, Group};
use crate::schedule::{Side, Slice};

/// Ranks whose positions differ in one digit to the base 4 exchange all data and combine it, in the order of their ranks; the
/// last round is one of pairs where the ranks are twice a power of four.
///
/// Ruefenacht, Bull, Booth: Generalisation of recursive doubling for AllReduce, 2017. Cost, for a power of four:
/// `log4(p) (latency + 3 (overhead + n beta + n gamma))`; ranks that are no power of two are folded as in recursive doubling.
pub fn recursive_multiplying(b: &mut Builder, group: &Group<'_>, data: Slice) {
    folded(b, group, data, |b, core| {
        // Two places for each partner, so that one that is a round ahead need not wait for this rank's reductions.
        let rooms: Vec<Slice> = (0..2 * RADIX).map(|_| b.scratch(data.length)).collect();
        let (mut stride, mut turn) = (1, 0);
        while stride < core.size {
            let radix = RADIX.min(core.size / stride);
            let digit = core.position / stride % radix;
            let first = core.position - digit * stride;
            let peer = |digit: usize| group.peer(core.member(first + digit * stride));
            let room = |digit: usize| rooms[turn * RADIX + digit];
            for other in (0..radix).filter(|other| *other != digit) {
                b.receive(peer(other), room(other));
                b.send(peer(other), data);
            }
            // Values from the left, then those from the right: all ranks of the round compute the same expression.
            if digit > 0 {
                b.copy(data, room(digit));
                b.copy(room(0), data);
            }
            for other in 1..radix {
                b.reduce(room(other), data, Side::Right);
            }
            stride *= radix;
            turn = 1 - turn;
        }
    });
}
