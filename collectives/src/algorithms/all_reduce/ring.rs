//! The ring: the least data per rank whatever their number, between neighbours only.

use crate::algorithms::all_gather;
use crate::compose::{Blocks, Builder, Group};
use crate::schedule::{Side, Slice};

/// The data is cut into p blocks; each travels once round the ring to be combined and once more to be known.
///
/// Block k is combined in the order k, k + 1, …, k - 1, so the operator must commute.
/// Cost: `2 (p - 1) (latency + overhead) + ((p - 1) / p) n (2 beta + gamma)`.
pub fn ring(b: &mut Builder, group: &Group<'_>, data: Slice) {
    let (rank, size) = (group.rank(), group.size());
    if size == 1 {
        return;
    }
    let blocks = Blocks::new(data, size);
    // The first block is the longest. Two places, so that the next block may come while one is combined.
    let rooms = [b.scratch(blocks.block(0).length), b.scratch(blocks.block(0).length)];
    for round in 0..size - 1 {
        let sent = blocks.block((rank + size - round) % size);
        let combined = blocks.block((rank + size - round - 1) % size);
        let room = rooms[round % 2].part(0, combined.length);
        b.receive(group.behind(1), room);
        b.send(group.ahead(1), sent);
        b.reduce(room, combined, Side::Left);
    }
    let done = (rank + 1) % size;
    all_gather::ring(b, group, &blocks, done, blocks.block(done));
}
