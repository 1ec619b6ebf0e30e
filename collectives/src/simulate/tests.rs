use super::sweep::{Fixed, Question, sweep};
use super::*;
use crate::algorithms::{Collective, Parameters, Shape};
use crate::compose::Builder;
use crate::schedule::Slice;

/// Links of 1000 bytes a second, memory so fast that it counts for nothing.
const SLOW: Fabric = Fabric {
    rate: 1000.0,
    crowded: f64::INFINITY,
    latency: 0.5,
    overhead: 0.25,
    queue: f64::INFINITY,
    burst: 0.0,
    timeout: 0.0,
    racks: None,
    memory: 1e15,
    eager: Eager::ALL,
    machine: None,
};

/// Everyone but rank 0 sends it so many elements of four bytes.
fn incast(size: usize, elements: usize) -> Vec<Schedule> {
    let schedule = |rank| {
        let mut b = Builder::new(rank, size, elements, size * elements);
        match rank {
            0 => (1..size).for_each(|peer| _ = b.receive(peer, Slice::output(peer * elements, elements))),
            _ => _ = b.send(0, Slice::input(0, elements)),
        }
        b.finish().expect("it is a schedule")
    };
    (0..size).map(schedule).collect()
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-6 * expected.abs().max(1.0), "{found} instead of {expected}");
}

#[test]
fn a_message_takes_its_bytes_the_latency_and_the_overhead_once() {
    let outcome = simulate(&incast(2, 250), 4, &SLOW, &Groups::apart(2)).expect("it ends");
    close(outcome.seconds, 0.5 + 0.25 + 1.0);
}

#[test]
fn senders_to_one_host_share_its_link_and_those_of_one_host_share_theirs() {
    let outcome = simulate(&incast(5, 250), 4, &SLOW, &Groups::apart(5)).expect("it ends");
    close(outcome.seconds, 0.5 + 4.0 * 1.25);
    assert_eq!(outcome.bottleneck(), Some(Part::Down));
    // Ranks 1 to 4 on one host: their own link is as busy.
    let two = Groups::by_label([0, 1, 1, 1, 1]);
    close(simulate(&incast(5, 250), 4, &SLOW, &two).expect("it ends").seconds, 0.5 + 4.0 * 1.25);
    // And on the same host as rank 0 they need none.
    assert!(simulate(&incast(5, 250), 4, &SLOW, &Groups::together(5)).expect("it ends").seconds < 1e-3);
}

#[test]
fn an_oversubscribed_rack_is_slower_by_as_much() {
    let racks = |oversubscription| Fabric { rate: 1e5, racks: Some(Racks { hosts: 4, oversubscription }), ..SLOW };
    // Ranks 4..8 are the second rack; each sends to the one at its place in the first.
    let schedules: Vec<Schedule> = (0..8)
        .map(|rank| {
            let mut b = Builder::new(rank, 8, 250_000, 250_000);
            match rank {
                0..4 => b.receive(rank + 4, Slice::output(0, 250_000)),
                _ => b.send(rank - 4, Slice::input(0, 250_000)),
            };
            b.finish().expect("it is a schedule")
        })
        .collect();
    let seconds = |fabric: &Fabric| simulate(&schedules, 4, fabric, &Groups::apart(8)).expect("it ends");
    assert!(seconds(&racks(1.0)).seconds < 15.0, "{:?}", seconds(&racks(1.0)));
    let outcome = seconds(&racks(4.0));
    assert!((40.0..45.0).contains(&outcome.seconds), "{outcome:?}");
    assert!(matches!(outcome.bottleneck(), Some(Part::RackUp | Part::RackDown)));
}

#[test]
fn a_short_queue_loses_packets_of_many_senders_and_costs_what_is_sent_again() {
    let lossy = Fabric { queue: 500.0, latency: 0.0, overhead: 0.0, ..SLOW };
    let outcome = simulate(&incast(5, 250), 4, &lossy, &Groups::apart(5)).expect("it ends");
    // The first of four finds the port free; the others find a message in it and send a queue's worth again.
    assert_eq!(outcome.losses, 3);
    close(outcome.resent, 3.0 * 500.0);
    close(outcome.seconds, 4.0 + 1.5);
    let alone = simulate(&incast(2, 250), 4, &lossy, &Groups::apart(2)).expect("it ends");
    assert_eq!(alone.losses, 0);
}

#[test]
fn the_end_of_a_message_that_is_lost_is_sent_again_after_two_round_trips_or_a_timeout() {
    let of = |timeout: f64| {
        let lossy = Fabric { queue: 500.0, latency: 0.25, overhead: 0.0, timeout, ..SLOW };
        simulate(&incast(3, 250), 4, &lossy, &Groups::apart(3)).expect("it ends")
    };
    // The second finds the first in the queue, waits, and then has the port for itself. A round trip: the latency twice, and a queue.
    let outcome = of(9.0);
    assert_eq!(outcome.losses, 1);
    close(outcome.seconds, 0.25 + 2.0 * (0.5 + 0.5) + 1.0);
    close(of(1.5).seconds, 0.25 + 1.5 + 1.0);
}

#[test]
fn a_bucket_lets_pass_at_once_what_it_holds_and_fills_again_while_the_link_is_idle() {
    let bucket = Fabric { burst: 400.0, latency: 0.0, overhead: 0.0, ..SLOW };
    let seconds = |schedules: &[Schedule]| simulate(schedules, 4, &bucket, &Groups::apart(2)).expect("it ends").seconds;
    close(seconds(&incast(2, 100)), 0.0);
    close(seconds(&incast(2, 250)), 0.6);
}

#[test]
fn a_leader_with_little_memory_bandwidth_is_the_bottleneck() {
    let question = Question { collective: Collective::Reduce, ranks: 16, width: 4, bytes: 4000 };
    let fixed = Fixed { algorithm: Some("two_hop"), ..Fixed::default() };
    let best = |memory: f64| sweep(&question, &fixed, &Fabric { memory, ..SLOW }).expect("small").ways[0].1.clone();
    assert_eq!(best(1000.0).bottleneck(), Some(Part::Memory));
    assert!(best(1000.0).seconds > 1.5 * best(1e15).seconds);
}

#[test]
fn hosts_on_one_machine_share_its_processors() {
    let question = Question { collective: Collective::AllReduce, ranks: 16, width: 4, bytes: 4000 };
    let fixed = Fixed {
        algorithm: Some("two_hop_ring"),
        leaders: Some(1),
        group: Some(4),
        chunk: Some(4000),
        ..Fixed::default()
    };
    let costs = Machine {
        processors: 1,
        inside: Work { message: 0.0, byte: 1e-3 },
        between: Work { message: 0.0, byte: 0.0 },
        reduced: 1e-3,
        turn: 0.0,
    };
    let seconds = |processors| {
        let machine = Some(Machine { processors, ..costs });
        let fabric = Fabric { rate: 1e9, latency: 0.0, overhead: 0.0, machine, ..SLOW };
        sweep(&question, &fixed, &fabric).expect("small").ways[0].1.seconds
    };
    assert!(seconds(1) > 1.8 * seconds(2), "{} {}", seconds(1), seconds(2));
}

#[test]
fn two_hops_win_where_links_are_slow_and_hosts_have_many_ranks() {
    let fabric = Fabric { rate: 25e6, latency: 5e-5, queue: 150e3, ..Fabric::ASSUMED };
    for collective in [Collective::Reduce, Collective::AllReduce] {
        let question = Question { collective, ranks: 96, width: 8, bytes: 4 << 20 };
        let fixed = Fixed { group: Some(8), leaders: Some(1), chunk: Some(256 << 10), ..Fixed::default() };
        let found = sweep(&question, &fixed, &fabric).expect("small");
        let of = |name: &str| found.ways.iter().find(|(way, _)| way.algorithm == name).expect("it is there").1.seconds;
        let two_hop = found.ways.iter().find(|(way, _)| way.algorithm.starts_with("two_hop")).expect("it is there");
        let flat = if collective == Collective::Reduce { "linear" } else { "recursive_doubling" };
        assert!(of(flat) > 4.0 * two_hop.1.seconds, "{flat}: {} and {two_hop:?}", of(flat));
    }
}

#[test]
fn messages_between_two_ranks_arrive_in_order_so_that_a_chain_of_segments_is_a_pipeline() {
    // Three hosts in a row, ten segments of 100 kB each: twelve of them one after the other, not ten twice.
    let schedules: Vec<Schedule> = (0..3)
        .map(|rank| {
            let mut b = Builder::new(rank, 3, 0, 250_000);
            for segment in (0..10).map(|index| Slice::output(index * 25_000, 25_000)) {
                if rank > 0 {
                    b.receive(rank - 1, segment);
                }
                if rank < 2 {
                    b.send(rank + 1, segment);
                }
            }
            b.finish().expect("it is a schedule")
        })
        .collect();
    let fabric = Fabric { rate: 1e5, latency: 0.0, overhead: 0.0, ..SLOW };
    let seconds = simulate(&schedules, 4, &fabric, &Groups::apart(3)).expect("it ends").seconds;
    assert!((10.9..12.1).contains(&seconds), "{seconds}");
}

#[test]
fn a_sweep_tries_nothing_twice_and_says_what_it_leaves_out() {
    let fabric = Fabric::ASSUMED;
    let question = Question { collective: Collective::AllReduce, ranks: 12, width: 4, bytes: 1 << 16 };
    let found = sweep(&question, &Fixed::default(), &fabric).expect("small");
    assert_eq!(found.ways.iter().filter(|(way, _)| way.algorithm == "ring").count(), 1);
    assert!(found.ways.is_sorted_by(|(_, a), (_, b)| a.seconds <= b.seconds));
    let question = Question { ranks: 4096, width: 8, ..question };
    let ring =
        Fixed { algorithm: Some("ring"), leaders: Some(1), group: Some(8), chunk: Some(1 << 16), ..Fixed::default() };
    let found = sweep(&question, &ring, &fabric).expect("small");
    assert!(found.ways.is_empty() && found.left_out.len() == 1, "{found:?}");
}

#[test]
fn every_algorithm_of_every_collective_ends() {
    let hosts = Groups::every(12, 4);
    for collective in Collective::ALL {
        for algorithm in collective.algorithms().iter().filter(|one| one.forbidden(&hosts, true).is_none()) {
            let shape = |rank| Shape {
                rank,
                size: 12,
                root: 0,
                elements: 100,
                groups: &hosts,
                parameters: Parameters { segment: 30, chunk: 50, leaders: 2, fan_in: 2 },
            };
            let schedules: Vec<Schedule> =
                (0..12).map(|rank| algorithm.schedule(&shape(rank)).expect("small")).collect();
            assert!(simulate(&schedules, 4, &SLOW, &hosts).is_some(), "{collective} {}", algorithm.name);
        }
    }
}

/// 96 ranks on 12 hosts in 3 racks whose links are as fast as so many of their hosts' links in parts of all four.
fn racks(oversubscription: f64) -> Fabric {
    Fabric { racks: Some(Racks { hosts: 4, oversubscription }), ..Fabric::ASSUMED }
}

fn best(found: &sweep::Sweep, is_one: impl Fn(&sweep::Way) -> bool) -> f64 {
    found.ways.iter().find(|(way, _)| is_one(way)).expect("it was tried").1.seconds
}

#[test]
fn three_levels_win_where_racks_are_oversubscribed() {
    for (collective, at_most) in
        [(Collective::AllReduce, 0.95), (Collective::Reduce, 0.85), (Collective::Broadcast, 0.8)]
    {
        let question = Question { collective, ranks: 96, width: 8, bytes: 64 << 10 };
        let (mut two, mut three) = (f64::INFINITY, f64::INFINITY);
        for chunk in [None, Some(4096)] {
            let fixed = Fixed { group: Some(8), leaders: Some(1), chunk, ..Fixed::default() };
            let found = sweep(&question, &fixed, &racks(16.0)).expect("small");
            // By messages: the gain is between the racks.
            let of = |above| best(&found, |way| way.above == above && way.algorithm != crate::algorithms::IN_TWO_HOPS);
            (two, three) = (of(1).min(two), of(4).min(three));
        }
        assert!(three < at_most * two, "{collective}: {two} s on two levels, {three} s on three");
    }
}

#[test]
fn what_stands_for_two_hops_in_memory_ends_whatever_the_groups_leaders_and_lengths() {
    use crate::table::Table;
    for collective in [Collective::Barrier, Collective::Broadcast, Collective::Reduce, Collective::AllReduce] {
        let algorithm =
            collective.algorithms().iter().find(|algorithm| algorithm.name == crate::algorithms::IN_TWO_HOPS);
        let algorithm = algorithm.expect("it has this form");
        for size in 3..=17 {
            for width in 2..size {
                let groups = Groups::every(size, width).with_memory();
                for (elements, chunk, leaders) in [(0, 1, 1), (1, 8, 3), (100, 30, 1), (101, 25, 2), (40, 1000, 4)] {
                    let parameters = Parameters { chunk, leaders, ..Parameters::WHOLE };
                    let root = if collective.is_rooted() { size - 2 } else { 0 };
                    let schedule = |rank| {
                        let shape = Shape { rank, size, root, elements, groups: &groups, parameters };
                        in_memory::schedule(collective, algorithm, &shape, 4, &Table::default(), &SLOW)
                            .expect("it has a schedule")
                    };
                    let schedules: Vec<Schedule> = (0..size).map(schedule).collect();
                    assert!(
                        simulate(&schedules, 4, &SLOW, &groups).is_some(),
                        "{collective} {size} {width} {elements}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_sweep_tries_larger_groups_where_there_are_racks_and_only_those_asked_for() {
    let question = Question { collective: Collective::Barrier, ranks: 96, width: 8, bytes: 0 };
    let aboves = |fixed: &Fixed<'_>, fabric: &Fabric| {
        let found = sweep(&question, fixed, fabric).expect("small");
        let mut all: Vec<usize> = found.ways.iter().map(|(way, _)| way.above).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let hosts = Fixed { group: Some(8), ..Fixed::default() };
    assert_eq!(aboves(&hosts, &Fabric::ASSUMED), [1]);
    assert_eq!(aboves(&hosts, &racks(4.0)), [1, 4]);
    assert_eq!(aboves(&Fixed { above: Some(3), algorithm: Some("two_hop"), ..hosts }, &Fabric::ASSUMED), [3]);
    // All hosts in one larger group are no level.
    assert!(aboves(&Fixed { above: Some(12), ..hosts }, &Fabric::ASSUMED).is_empty());
}

#[test]
fn two_hops_in_memory_carry_as_much_between_hosts_as_leaders_alone_do_and_overlap_the_rest() {
    use crate::table::Table;
    // A second for a thousand elements; the leaders' ring is what counts.
    let algorithm = Collective::AllReduce.algorithms().iter().find(|one| one.name == crate::algorithms::IN_TWO_HOPS);
    let groups = Groups::every(12, 4).with_memory();
    let parameters = Parameters { chunk: 1000, ..Parameters::WHOLE };
    let (size, elements, fabric) = (12, 20_000, Fabric { latency: 1e-3, overhead: 1e-4, ..SLOW });
    let table = Table { network: fabric.network(3), ..Table::default() };
    let schedule = |rank| {
        let shape = Shape { rank, size, root: 0, elements, groups: &groups, parameters };
        in_memory::schedule(Collective::AllReduce, algorithm.expect("it is there"), &shape, 4, &table, &fabric)
    };
    let schedules: Vec<Schedule> = (0..size).map(|rank| schedule(rank).expect("it has a schedule")).collect();
    let seconds = simulate(&schedules, 4, &fabric, &groups).expect("it ends").seconds;
    // Each link carries two thirds of the data twice: 80 kB at 1 kB/s.
    let carried = 2.0 * 2.0 / 3.0 * 80.0;
    assert!((carried..1.1 * carried).contains(&seconds), "{seconds} s, {carried} of them on the link");
}
