//! The model prices schedules as the formulas of the algorithms say, and the selection follows it.

use spmd_collectives::algorithms::{Algorithm, Collective, Parameters, Shape};
use spmd_collectives::groups::{Groups, Link};
use spmd_collectives::price::{Model, Network, price};
use spmd_collectives::schedule::Schedule;
use spmd_collectives::select::{AUTO, Request, select};
use spmd_collectives::table::Table;

/// The network of both kinds of links, which most of these tests look at alone.
const NETWORK: Network = Network::ASSUMED;

fn priced(algorithm: &Algorithm, groups: &Groups, elements: usize, parameters: Parameters) -> f64 {
    priced_on(&NETWORK, algorithm, groups, elements, parameters)
}

fn priced_on(
    network: &Network,
    algorithm: &Algorithm,
    groups: &Groups,
    elements: usize,
    parameters: Parameters,
) -> f64 {
    let size = groups.size();
    let shape = |rank| Shape { rank, size, root: 0, elements, groups, parameters };
    let schedules: Vec<Schedule> = (0..size).map(|rank| algorithm.schedule(&shape(rank)).unwrap()).collect();
    price(&schedules, 4, network, groups).unwrap()
}

#[test]
fn prices_are_those_of_the_formulas_where_all_ports_are_equally_busy() {
    for (collective, name) in [
        (Collective::Barrier, "dissemination"),
        (Collective::Broadcast, "binomial"),
        (Collective::Broadcast, "chain"),
        (Collective::Reduce, "binomial"),
        (Collective::Gather, "linear"),
        (Collective::Gather, "binomial"),
        (Collective::Scatter, "linear"),
        (Collective::AllGather, "ring"),
        (Collective::AllGather, "recursive_doubling"),
        (Collective::AllReduce, "recursive_doubling"),
        (Collective::AllReduce, "ring"),
        (Collective::AllReduce, "rabenseifner"),
        (Collective::AllToAll, "pairwise"),
        (Collective::ReduceScatter, "pairwise"),
        (Collective::ReduceScatter, "recursive_halving"),
        (Collective::ReduceScatter, "ring"),
        (Collective::Scan, "chain"),
        (Collective::Scan, "recursive_doubling"),
        (Collective::Exscan, "recursive_doubling"),
    ] {
        let algorithm = collective.algorithms().iter().find(|algorithm| algorithm.name == name).unwrap();
        for size in [2, 4, 8, 32] {
            for elements in [1, 1024, 1 << 18] {
                let groups = Groups::apart(size);
                let request = Request { collective, groups: &groups, elements, element_bytes: 4, commutative: true };
                let choice = select(&request, name, &Table::default()).unwrap();
                let found = priced(algorithm, &groups, elements, choice.parameters);
                let off = (found / choice.cost - 1.0).abs();
                assert!(
                    off < 0.15,
                    "{collective} {name}, {size} ranks, {elements} elements: {found:e} s, formula {:e} s",
                    choice.cost
                );
            }
        }
    }
}

#[test]
fn what_is_selected_is_hardly_dearer_than_the_best_on_the_model() {
    for collective in Collective::ALL {
        for (size, width) in [(2, 1), (4, 1), (7, 1), (8, 1), (16, 1), (17, 1), (8, 8), (17, 17), (12, 3), (32, 8)] {
            for elements in [1, 64, 1024, 1 << 14, 1 << 18] {
                let groups = Groups::every(size, width);
                // Of groups the formulas know less: which of the ranks that share a port want it at the same time.
                let allowed = if groups.are_two_levels() { 2.5 } else { 1.5 };
                let request = Request { collective, groups: &groups, elements, element_bytes: 4, commutative: true };
                let choice = select(&request, AUTO, &Table::default()).unwrap();
                let mine = priced(choice.algorithm, &groups, elements, choice.parameters);
                for other in collective.algorithms().iter().filter(|other| other.forbidden(&groups, true).is_none()) {
                    let parameters = other.parameters(&NETWORK, &groups, elements, 4);
                    let theirs = priced(other, &groups, elements, parameters);
                    assert!(
                        mine < allowed * theirs,
                        "{collective}, {size} ranks by {width}, {elements} elements: {} {mine:e} s, {} {theirs:e} s",
                        choice.algorithm.name,
                        other.name
                    );
                }
            }
        }
    }
}

#[test]
fn schedules_that_never_finish_have_no_price() {
    use spmd_collectives::schedule::{Action, Lengths, Slice};
    let steps = |peer| {
        [(Action::Receive { peer, into: Slice::EMPTY }, vec![]), (Action::Send { peer, from: Slice::EMPTY }, vec![0])]
    };
    let both = [0, 1].map(|rank| Schedule::new(rank, 2, Lengths::default(), steps(1 - rank)).unwrap());
    assert_eq!(price(&both, 4, &NETWORK, &Groups::apart(2)), None);
}

#[test]
fn prices_are_those_of_the_formulas_among_hosts_that_share_their_ports() {
    let groups = Groups::every(96, 8);
    for (collective, name) in [
        (Collective::AllReduce, "recursive_doubling"),
        (Collective::AllReduce, "rabenseifner"),
        (Collective::AllReduce, "ring"),
        (Collective::AllReduce, "two_hop"),
        (Collective::AllReduce, "two_hop_ring"),
        (Collective::Reduce, "binomial"),
        (Collective::Reduce, "two_hop"),
        (Collective::Broadcast, "binomial"),
        (Collective::Broadcast, "two_hop"),
    ] {
        let algorithm = collective.algorithms().iter().find(|algorithm| algorithm.name == name).unwrap();
        for elements in [256, 1 << 14, 1 << 20] {
            let formula = algorithm.cost(&NETWORK, &groups, 4 * elements);
            let parameters = algorithm.parameters(&NETWORK, &groups, elements, 4);
            let found = priced(algorithm, &groups, elements, parameters);
            let off = (found / formula - 1.0).abs();
            assert!(off < 0.35, "{collective} {name}, {elements} elements: {found:e} s, formula {formula:e} s");
        }
    }
}

/// Racks of four hosts of four ranks whose links are as fast as so many of their hosts' links.
fn racks(hosts: f64) -> (Groups, Network) {
    let groups = Groups::every(64, 4).within((0..64).map(|rank| rank / 16), Link::Between).unwrap();
    let across =
        Model { latency: 2.0 * Model::ASSUMED.latency, per_byte: Model::ASSUMED.per_byte / hosts, ..Model::ASSUMED };
    (groups, Network { across: Some(across), ..NETWORK })
}

#[test]
fn a_message_between_racks_passes_the_port_that_each_of_them_shares() {
    let (groups, network) = racks(0.5);
    let linear = &Collective::Broadcast.algorithms()[0];
    let far = |root| {
        let shape =
            |rank| Shape { rank, size: 64, root, elements: 1 << 18, groups: &groups, parameters: Parameters::WHOLE };
        let schedules: Vec<Schedule> = (0..64).map(|rank| linear.schedule(&shape(rank)).unwrap()).collect();
        price(&schedules, 4, &network, &groups).unwrap()
    };
    // The root's host sends 12 messages of 1 MiB within its rack, and 48 outward at half the rate, one after the other.
    let expected = (12.0 + 48.0 * 2.0) * f64::from(1 << 20) * Model::ASSUMED.per_byte;
    assert!((far(0) / expected - 1.0).abs() < 0.01, "{} {expected}", far(0));
}

#[test]
fn prices_are_those_of_the_formulas_among_racks() {
    for hosts in [0.5, 1.0, 4.0] {
        let (groups, network) = racks(hosts);
        for (collective, name) in [
            (Collective::Barrier, "two_hop"),
            (Collective::AllReduce, "recursive_doubling"),
            (Collective::AllReduce, "ring"),
            (Collective::AllReduce, "two_hop"),
            (Collective::AllReduce, "two_hop_ring"),
            (Collective::Reduce, "two_hop"),
            (Collective::Reduce, "two_hop_chain"),
            (Collective::Broadcast, "two_hop"),
        ] {
            let algorithm = collective.algorithms().iter().find(|algorithm| algorithm.name == name).unwrap();
            for elements in [256, 1 << 14, 1 << 20] {
                let formula = algorithm.cost(&network, &groups, 4 * elements);
                let parameters = algorithm.parameters(&network, &groups, elements, 4);
                let found = priced_on(&network, algorithm, &groups, elements, parameters);
                let off = (found / formula - 1.0).abs();
                assert!(
                    off < 0.6,
                    "{hosts}, {collective} {name}, {elements} elements: {found:e} s, formula {formula:e} s"
                );
            }
        }
    }
}

#[test]
fn what_is_selected_among_racks_is_not_much_dearer_than_the_best_on_the_model() {
    for hosts in [0.5, 1.0, 4.0] {
        let (groups, network) = racks(hosts);
        let table = Table { network, ..Table::default() };
        for collective in [Collective::Barrier, Collective::Broadcast, Collective::Reduce, Collective::AllReduce] {
            for elements in [1, 1024, 1 << 14, 1 << 18, 1 << 20] {
                let request = Request { collective, groups: &groups, elements, element_bytes: 4, commutative: true };
                let choice = select(&request, AUTO, &table).unwrap();
                let mine = priced_on(&network, choice.algorithm, &groups, elements, choice.parameters);
                for other in collective.algorithms().iter().filter(|other| other.forbidden(&groups, true).is_none()) {
                    let parameters = other.parameters(&network, &groups, elements, 4);
                    let theirs = priced_on(&network, other, &groups, elements, parameters);
                    assert!(
                        mine < 1.5 * theirs,
                        "{hosts}, {collective}, {elements} elements: {} {mine:e} s, {} {theirs:e} s",
                        choice.algorithm.name,
                        other.name
                    );
                }
            }
        }
    }
}
