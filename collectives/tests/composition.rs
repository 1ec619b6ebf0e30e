//! Algorithms compose: larger ones are written out of smaller ones, and chunks overlap by dependencies alone.

use spmd_collectives::algorithms::{Collective, all_reduce, broadcast, reduce};
use spmd_collectives::check::{self, Task};
use spmd_collectives::compose::{Blocks, Builder, Group};
use spmd_collectives::groups::Groups;
use spmd_collectives::price::{Model, Network, price};
use spmd_collectives::schedule::{Schedule, Slice};

/// How many chunks may be on their way at once.
const DEPTH: usize = 2;

/// All-reduce inside groups of `width` ranks and between their first ranks, chunk by chunk.
fn two_hop(rank: usize, size: usize, width: usize, elements: usize, chunks: usize) -> Schedule {
    let leader = rank / width * width;
    let members: Vec<usize> = (leader..(leader + width).min(size)).collect();
    let leaders: Vec<usize> = (0..size).step_by(width).collect();
    let inside = Group::of(&members, rank).unwrap();
    let mut b = Builder::new(rank, size, 0, elements);
    let blocks = Blocks::new(b.output(), chunks);
    let mark = b.mark();
    for index in 0..chunks {
        if index % DEPTH == 0 {
            b.rewind(mark);
        }
        let chunk = blocks.block(index);
        reduce::binomial(&mut b, &inside, 0, chunk, Some(chunk));
        if let Some(between) = Group::of(&leaders, rank) {
            all_reduce::recursive_doubling(&mut b, &between, chunk);
        }
        broadcast::binomial(&mut b, &inside, 0, chunk);
    }
    b.finish().unwrap()
}

fn two_hop_of_all(size: usize, width: usize, elements: usize, chunks: usize) -> Vec<Schedule> {
    (0..size).map(|rank| two_hop(rank, size, width, elements, chunks)).collect()
}

#[test]
fn a_two_hop_all_reduce_out_of_parts_is_proved_and_keeps_rank_order() {
    for size in 1..=17 {
        for width in 1..=5 {
            for (elements, chunks) in [(0, 1), (1, 1), (7, 1), (7, 3), (5, 8)] {
                let task = Task { collective: Collective::AllReduce, size, elements, root: 0, rank_order: true };
                let proof = check::schedules(&task, &two_hop_of_all(size, width, elements, chunks));
                assert!(proof.is_ok(), "{size} ranks by {width}, {elements} elements: {}", proof.unwrap_err());
            }
        }
    }
}

#[test]
fn chunks_of_a_two_hop_all_reduce_overlap() {
    let (network, groups) = (Network::flat(Model::ASSUMED), Groups::every(32, 8));
    let time = |chunks| price(&two_hop_of_all(32, 8, 1 << 20, chunks), 4, &network, &groups).unwrap();
    let (whole, cut) = (time(1), time(16));
    assert!(cut < 0.8 * whole, "{cut} s in 16 chunks, {whole} s in one");
}

#[test]
fn a_composition_that_reads_outside_its_buffers_is_refused() {
    let mut b = Builder::new(0, 2, 0, 4);
    all_reduce::ring(&mut b, &Group::all(0, 2), Slice::output(1, 4), 1);
    assert!(b.finish().is_err());
}
