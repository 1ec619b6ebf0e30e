//! The ring: the least data per rank whatever their number, between neighbours only.

use crate::algorithms::{all_gather, broadcast};
use crate::compose::{Blocks, Builder, Group};
use crate::schedule::{Side, Slice};

/// The data is cut into p blocks; each travels once round the ring to be combined and once more to be known.
///
/// Block k is combined in the order k, k + 1, …, k - 1, so the operator must commute.
/// Blocks longer than `segment` elements travel in segments, of which the next is on its way while one is combined and
/// passed on: a ring then waits for the first segment of a block, not for its last one.
/// Cost: `2 (p - 1) (latency + overhead) + ((p - 1) / p) n (2 beta + gamma)`; in segments of s bytes without the `gamma` but
/// for that of the last segments, and an overhead for each.
pub fn ring(b: &mut Builder, group: &Group<'_>, data: Slice, segment: usize) {
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
        for piece in broadcast::pieces(sent, segment) {
            b.send(group.ahead(1), piece);
        }
        for (room, combined) in broadcast::pieces(room, segment).zip(broadcast::pieces(combined, segment)) {
            b.receive(group.behind(1), room);
            b.reduce(room, combined, Side::Left);
        }
    }
    let done = (rank + 1) % size;
    all_gather::ring(b, group, &blocks, done, blocks.block(done), segment);
}
