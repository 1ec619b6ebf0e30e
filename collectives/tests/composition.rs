//! Algorithms compose: larger ones are written out of smaller ones, and chunks overlap by dependencies alone.

use spmd_collectives::algorithms::{Collective, Parameters, Shape, all_reduce, broadcast, reduce};
use spmd_collectives::check::{self, Task};
use spmd_collectives::compose::{Blocks, Builder, Group};
use spmd_collectives::groups::{Groups, Link};
use spmd_collectives::price::{Model, Network, price};
use spmd_collectives::schedule::{Action, Schedule, Slice};

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

/// Elements that ranks send from one rack to another, and the number of those messages.
fn between_racks(groups: &Groups, racks: &Groups, collective: Collective, name: &str, chunk: usize) -> (usize, usize) {
    let algorithm = collective.algorithms().iter().find(|algorithm| algorithm.name == name).unwrap();
    let parameters = Parameters { chunk, ..Parameters::WHOLE };
    let (mut elements, mut messages) = (0, 0);
    for rank in 0..groups.size() {
        let shape = Shape { rank, size: groups.size(), root: 0, elements: 240, groups, parameters };
        for step in algorithm.schedule(&shape).unwrap().steps() {
            match step.action {
                Action::Send { peer, from } if racks.of(peer) != racks.of(rank) => {
                    (elements, messages) = (elements + from.length, messages + 1);
                }
                _ => {}
            }
        }
    }
    (elements, messages)
}

#[test]
fn what_leaves_a_rack_leaves_it_once_for_all_hosts_in_it_on_three_levels() {
    // Six hosts of four ranks, dealt out to two racks in turn, as a scheduler may give them.
    let (hosts, racks) = (Groups::every(24, 4), Groups::by_label((0..24).map(|rank| rank / 4 % 2)));
    let three = hosts.clone().within((0..24).map(|rank| rank / 4 % 2), Link::Between).unwrap();
    for (collective, name, chunk, expected) in [
        (Collective::Barrier, "two_hop", 240, (0, 2)),
        (Collective::Broadcast, "two_hop", 240, (240, 1)),
        (Collective::Reduce, "two_hop", 240, (240, 1)),
        (Collective::Reduce, "two_hop_chain", 24, (240, 10)),
        // Both ways, whoever leads.
        (Collective::AllReduce, "two_hop", 240, (480, 2)),
        (Collective::AllReduce, "two_hop", 24, (480, 60)),
        (Collective::AllReduce, "two_hop_ring", 24, (480, 120)),
    ] {
        let found = between_racks(&three, &racks, collective, name, chunk);
        assert_eq!(found, expected, "{collective} {name}, chunks of {chunk}");
        let (elements, messages) = between_racks(&hosts, &racks, collective, name, chunk);
        assert!(messages > expected.1 && elements >= expected.0, "{collective} {name}: {messages} on two levels");
    }
}
