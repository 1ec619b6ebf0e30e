//! What holds for every plan, whatever the machines and the wishes.

use super::*;
use proptest::prelude::*;
use spmd::bootstrap::node::{Cache, Core, Domain, Location, Nic, Thread};
use std::collections::HashSet;

/// A machine: packages of domains of caches of cores of threads; `hole`: every so many hardware threads one is not
/// allowed; `nics`: the domain of each.
fn machine(shape: [u32; 5], hole: u32, nics: &[u32]) -> Node {
    let [packages, domains, caches, cores, threads] = shape;
    let mut node = Node { packages, devices_read: true, ..Node::default() };
    let total = packages * domains * caches * cores;
    for number in 0..total {
        let cache = number / cores;
        let domain = cache / caches;
        let thread =
            |t: u32| Thread { os: number + t * total, allowed: hole == 0 || !(number + t).is_multiple_of(hole) };
        node.cores.push(Core {
            package: domain / domains,
            domain,
            cache: Some(cache),
            efficiency: 0,
            threads: (0..threads).map(thread).collect(),
        });
    }
    node.caches = (0..packages * domains * caches).map(|_| Cache { bytes: 1 << 20 }).collect();
    let domain = |d: u32| Domain { os: d, bytes: 1 << 30, package: d / domains };
    node.domains = (0..packages * domains).map(domain).collect();
    for (at, place) in nics.iter().enumerate() {
        let all = packages * domains;
        let location = Location { pci: format!("0000:{at:02x}:00.0"), domains: vec![place % all], bridges: vec![] };
        node.nics.push(Nic { name: format!("mlx5_{at}"), interfaces: vec![], rdma: true, active: true, location });
    }
    node
}

fn hosts<'a>(nodes: &'a [Node], names: &'a [String], slots: Option<u32>) -> Vec<Host<'a>> {
    let of = |(node, name): (&'a Node, &'a String)| Host {
        name,
        place: "test",
        slots,
        cores: u32::try_from(pool::units(node, None).len()).unwrap(),
        machine: name,
        node: Some(node),
    };
    nodes.iter().zip(names).map(of).collect()
}

fn any_machine() -> impl Strategy<Value = Node> {
    let shape = (1..3_u32, 1..5_u32, 1..3_u32, 1..6_u32, 1..3_u32);
    (shape, prop_oneof![Just(0_u32), 2..6_u32], proptest::collection::vec(0..8_u32, 0..4))
        .prop_map(|((p, d, l, c, t), hole, nics)| machine([p, d, l, c, t], hole, &nics))
}

fn any_request() -> impl Strategy<Value = Request> {
    let resource = prop_oneof![
        Just(Resource::Node),
        Just(Resource::Package),
        Just(Resource::Numa),
        Just(Resource::L3),
        Just(Resource::Core)
    ];
    let map = prop_oneof![
        Just(MapBy::Spread),
        Just(MapBy::Slot),
        Just(MapBy::Node),
        Just(MapBy::Package),
        Just(MapBy::Numa),
        Just(MapBy::L3),
        Just(MapBy::Core),
        Just(MapBy::Nic),
        (1..3_u32, resource).prop_map(|(n, resource)| MapBy::PerResource(n, resource)),
    ];
    let rank = prop_oneof![
        Just(None),
        Just(Some(RankBy::Slot)),
        Just(Some(RankBy::Node)),
        Just(Some(RankBy::Fill)),
        Just(Some(RankBy::Span))
    ];
    let bind = prop_oneof![
        Just(None),
        Just(Some(BindTo::None)),
        Just(Some(BindTo::Hwthread)),
        Just(Some(BindTo::Core)),
        Just(Some(BindTo::L3)),
        Just(Some(BindTo::Numa)),
        Just(Some(BindTo::Package))
    ];
    let cpus = prop_oneof![Just(None), (1..4_u32).prop_map(Some)];
    (map, rank, bind, cpus, prop_oneof![Just(None), (1..40_u32).prop_map(Some)], any::<bool>()).prop_map(
        |(map, rank, bind, cpus_per_rank, ranks, oversubscribe)| Request {
            ranks,
            map,
            rank,
            bind,
            cpus_per_rank,
            oversubscribe,
            gpus: GpuBind::None,
        },
    )
}

proptest! {
    #[test]
    fn every_rank_sits_inside_the_allowed_set_and_alone_unless_cores_are_to_be_shared(
        nodes in proptest::collection::vec(any_machine(), 1..4), request in any_request()
    ) {
        let names: Vec<String> = (0..nodes.len()).map(|n| format!("n{n}")).collect();
        let hosts = hosts(&nodes, &names, None);
        let Ok(plan) = plan(&hosts, &request) else { return Ok(()) };
        // Every rank that was asked for has a place, without a gap.
        if let Some(ranks) = request.ranks {
            prop_assert_eq!(plan.seats.len(), ranks as usize);
        }
        for (at, node) in nodes.iter().enumerate() {
            let allowed: HashSet<u32> =
                node.cores.iter().flat_map(|c| &c.threads).filter(|t| t.allowed).map(|t| t.os).collect();
            let shared = matches!(request.bind, Some(BindTo::L3 | BindTo::Numa | BindTo::Package));
            let mut taken = HashSet::new();
            let seats: Vec<&Seat> = plan.seats.iter().filter(|seat| seat.host == at).collect();
            let units = pool::units(node, request.bind).len();
            prop_assert_eq!(plan.oversubscribed[at], seats.len() > units.max(1));
            for seat in &seats {
                for cpu in &seat.placement.cpus {
                    prop_assert!(allowed.contains(cpu), "{cpu} may not be used");
                    prop_assert!(taken.insert(*cpu) || shared, "{cpu} is used twice");
                }
                let bound = request.bind != Some(BindTo::None)
                    && (shared || seats.len() * request.per_rank() as usize <= units);
                prop_assert_eq!(!seat.placement.cpus.is_empty(), bound);
                if bound && !shared && request.cpus_per_rank.is_some() {
                    prop_assert_eq!(
                        seat.cores.len() <= request.per_rank() as usize && !seat.cores.is_empty(), true
                    );
                }
                // Nothing active is nearer than what was chosen.
                let far = |nic: usize| devices::distance(node, &seat.cores, &node.nics[nic].location);
                let nearest = devices::candidates(node).into_iter().map(far).min();
                prop_assert_eq!(seat.nic.map(far), nearest);
            }
        }
    }

    #[test]
    fn ranks_that_are_equally_near_share_devices_evenly(ranks in 1..30_u32) {
        let nodes = [machine([2, 1, 1, 16, 1], 0, &[0, 0, 1, 1])];
        let names = ["a".to_string()];
        let request = Request { ranks: Some(ranks), ..Request::default() };
        let plan = plan(&hosts(&nodes, &names, None), &request).unwrap();
        for domain in 0..2 {
            let of = |nic: usize| plan.seats.iter().filter(|seat| seat.nic == Some(nic)).count();
            prop_assert!(of(2 * domain).abs_diff(of(2 * domain + 1)) <= 1);
        }
    }
}

/// The processors of each rank.
fn cpus(plan: &Plan) -> Vec<&[u32]> {
    plan.seats.iter().map(|seat| seat.placement.cpus.as_slice()).collect()
}

fn on_one(node: &Node, slots: Option<u32>, request: &Request) -> Result<Plan, Failure> {
    let host = Host { name: "a", place: "test", slots, cores: 99, machine: "m", node: Some(node) };
    plan(&[host], request)
}

#[test]
fn two_ranks_on_two_cores_have_one_each_and_one_rank_has_both() {
    let node = machine([1, 1, 1, 2, 1], 0, &[]);
    let ranks = |ranks| Request { ranks: Some(ranks), ..Request::default() };
    assert_eq!(cpus(&on_one(&node, Some(2), &ranks(2)).unwrap()), [&[0][..], &[1]]);
    assert_eq!(cpus(&on_one(&node, Some(2), &ranks(1)).unwrap()), [&[0, 1][..]]);
}

#[test]
fn more_ranks_than_cores_are_not_bound_and_are_told_once() {
    let node = machine([1, 1, 1, 2, 2], 0, &[]);
    let request = Request { ranks: Some(3), ..Request::default() };
    let plan = on_one(&node, Some(3), &request).unwrap();
    assert!(plan.oversubscribed[0] && cpus(&plan).iter().all(|cpus| cpus.is_empty()));
    assert_eq!(plan.warnings.len(), 1);
    assert!(plan.warnings[0].contains("3 ranks for 2 cores"), "{}", plan.warnings[0]);
    // Permission to have more ranks than cores is not the same as having them.
    let request = Request { ranks: Some(2), oversubscribe: true, ..Request::default() };
    let plan = on_one(&node, None, &request).unwrap();
    assert_eq!(cpus(&plan), [&[0, 2][..], &[1, 3]]);
    assert!(!plan.oversubscribed[0] && plan.warnings.is_empty());
    // Wide objects can be shared.
    let request = Request { ranks: Some(3), bind: Some(BindTo::Numa), ..Request::default() };
    assert_eq!(cpus(&on_one(&node, Some(3), &request).unwrap())[2], [0, 1, 2, 3]);
}

#[test]
fn a_core_counts_if_any_of_its_hardware_threads_is_allowed() {
    let mut node = machine([1, 1, 1, 4, 2], 0, &[]);
    for (core, allowed) in node.cores.iter_mut().zip([[true, false], [false, true], [true, true], [false, false]]) {
        core.threads.iter_mut().zip(allowed).for_each(|(thread, allowed)| thread.allowed = allowed);
    }
    let plan = on_one(&node, None, &Request::default()).unwrap();
    assert_eq!(cpus(&plan), [&[0][..], &[5], &[2, 6]]);
    let request = Request { bind: Some(BindTo::Hwthread), ..Request::default() };
    assert_eq!(cpus(&on_one(&node, None, &request).unwrap()), [&[0][..], &[5], &[2], &[6]]);
}

#[test]
fn hosts_that_are_one_machine_do_not_use_its_cores_twice() {
    let node = machine([1, 1, 1, 4, 1], 0, &[]);
    let host = |name| Host { name, place: "test", slots: Some(2), cores: 4, machine: "m", node: Some(&node) };
    let plan = plan(&[host("a"), host("b")], &Request::default()).unwrap();
    assert_eq!(cpus(&plan), [&[0][..], &[1], &[2], &[3]]);
    let three = [host("a"), host("b"), host("c")];
    let crowded = super::plan(&three, &Request::default()).unwrap();
    assert_eq!(crowded.oversubscribed, [true; 3]);
    assert_eq!(crowded.warnings.len(), 1);
    // Containers with parts of their own do not disturb each other; with parts that overlap nobody is bound.
    let part = |cores: &[usize]| {
        let mut node = node.clone();
        for (at, core) in node.cores.iter_mut().enumerate() {
            core.threads[0].allowed = cores.contains(&at);
        }
        node
    };
    let (left, right, middle) = (part(&[0, 1]), part(&[2, 3]), part(&[1, 2]));
    let two = |b| [Host { node: Some(&left), ..host("a") }, Host { node: Some(b), ..host("b") }];
    assert_eq!(cpus(&super::plan(&two(&right), &Request::default()).unwrap()), [&[0][..], &[1], &[2], &[3]]);
    assert!(cpus(&super::plan(&two(&middle), &Request::default()).unwrap()).iter().all(|cpus| cpus.is_empty()));
}

#[test]
fn domains_with_network_devices_come_first_when_several_hosts_talk() {
    let nodes = [machine([1, 4, 1, 4, 1], 0, &[2]), machine([1, 4, 1, 4, 1], 0, &[1])];
    let names = ["a".to_string(), "b".to_string()];
    let request = Request { map: MapBy::Node, ranks: Some(8), ..Request::default() };
    let plan = plan(&hosts(&nodes, &names, None), &request).unwrap();
    let domains: Vec<Option<u32>> = plan.seats.iter().map(|seat| seat.placement.domain).collect();
    assert_eq!(domains, [Some(2), Some(1)].repeat(4));
    assert!(plan.seats.iter().all(|seat| seat.placement.nic.as_ref().unwrap().distance == "same NUMA domain"));
    // On one host nobody needs the network.
    let request = Request { ranks: Some(4), ..Request::default() };
    let plan = super::plan(&hosts(&nodes[..1], &names, None), &request).unwrap();
    let domains: Vec<Option<u32>> = plan.seats.iter().map(|seat| seat.placement.domain).collect();
    assert_eq!(domains, [Some(0), Some(1), Some(2), Some(3)]);
}

#[test]
fn what_does_not_fit_is_refused_with_the_numbers() {
    let node = machine([1, 1, 1, 4, 1], 0, &[]);
    let refused = |slots, request: Request| on_one(&node, slots, &request).unwrap_err();
    let failure = refused(None, Request { ranks: Some(5), ..Request::default() });
    assert_eq!(failure.exit, ExitCode::Slots);
    assert!(failure.message.contains("only 4 slots (a: 4)"), "{}", failure.message);
    let failure = refused(Some(4), Request { ranks: Some(3), cpus_per_rank: Some(2), ..Request::default() });
    assert!(failure.message.contains("3 ranks of 2 cores each need 6, but only 4"), "{}", failure.message);
    let map = MapBy::PerResource(3, Resource::Core);
    let failure = refused(Some(4), Request { map: map.clone(), ..Request::default() });
    assert!(failure.message.contains("3 ranks for each core make 12, but it has 4 slots"), "{}", failure.message);
    let failure =
        refused(None, Request { map: MapBy::PerResource(1, Resource::Node), ranks: Some(2), ..Request::default() });
    assert!(failure.message.contains("make only 1"), "{}", failure.message);
}

#[test]
fn ranks_are_numbered_as_asked_for() {
    let nodes = [machine([1, 2, 1, 2, 1], 0, &[]), machine([1, 2, 1, 2, 1], 0, &[])];
    let names = ["a".to_string(), "b".to_string()];
    let by = |map, rank| {
        let request = Request { map, rank, ..Request::default() };
        let plan = plan(&hosts(&nodes, &names, None), &request).unwrap();
        let place = |seat: &Seat| format!("{}{}", names[seat.host], seat.placement.cpus[0]);
        plan.seats.iter().map(place).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(by(MapBy::Spread, None), "a0 a1 a2 a3 b0 b1 b2 b3");
    assert_eq!(by(MapBy::Numa, None), "a0 a2 a1 a3 b0 b2 b1 b3");
    assert_eq!(by(MapBy::Numa, Some(RankBy::Fill)), "a0 a1 a2 a3 b0 b1 b2 b3");
    assert_eq!(by(MapBy::Numa, Some(RankBy::Span)), "a0 a2 b0 b2 a1 a3 b1 b3");
    assert_eq!(by(MapBy::Node, None), "a0 b0 a1 b1 a2 b2 a3 b3");
    assert_eq!(by(MapBy::Node, Some(RankBy::Slot)), "a0 a1 a2 a3 b0 b1 b2 b3");
    assert_eq!(by(MapBy::Spread, Some(RankBy::Node)), "a0 b0 a1 b1 a2 b2 a3 b3");
}

#[test]
fn a_rank_that_is_to_see_only_its_own_gpu_gets_it_by_identity_or_not_at_all() {
    use spmd::bootstrap::node::Gpu;
    let mut node = machine([2, 1, 1, 2, 1], 0, &[]);
    for domain in 0..2_u32 {
        let location = Location { pci: format!("0000:{domain:02x}:00.0"), domains: vec![domain], bridges: vec![] };
        let variable = Some("CUDA_VISIBLE_DEVICES".to_string());
        node.gpus.push(Gpu { name: "g".into(), uuid: Some(format!("GPU-{domain}")), variable, location });
    }
    let request = Request { gpus: GpuBind::Nearest, ..Request::default() };
    let plan = on_one(&node, None, &request).unwrap();
    let seen: Vec<&str> = plan.seats.iter().map(|seat| seat.placement.sees_only.as_ref().unwrap().1.as_str()).collect();
    assert_eq!(seen, ["GPU-0", "GPU-0", "GPU-1", "GPU-1"]);
    let all = on_one(&node, None, &Request::default()).unwrap();
    assert!(all.seats.iter().all(|seat| seat.placement.sees_only.is_none() && seat.placement.gpu.is_some()));
    node.gpus[1].uuid = None;
    assert!(on_one(&node, None, &request).unwrap_err().message.contains("identity of its GPU g (0000:01:00.0)"));
    node.gpus.clear();
    assert!(on_one(&node, None, &request).unwrap_err().message.contains("no GPU"));
}

#[test]
fn leaders_on_a_recorded_host_with_two_devices_are_next_to_one_each() {
    use spmd::bootstrap::node::Devices;
    use spmd_collectives::{groups::Groups, leaders::by_device};
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies/four-domains.xml");
    let nodes = [crate::topology::xml::read(&path).unwrap()];
    let names = ["a".to_string()];
    let plan = plan(&hosts(&nodes, &names, None), &Request { ranks: Some(8), ..Request::default() }).unwrap();
    let devices = Devices::of_ranks(plan.seats.iter().map(|seat| seat.placement.nic.as_ref()));
    let seen: Vec<_> = (0..8).map(|rank| devices.get(rank).map(|seen| (&seen.name[..], seen.far)).unwrap()).collect();
    let groups = by_device(Groups::together(8), |rank| (0, devices.get(rank)));
    let leads = [0, 1, 2, 3].map(|turn| seen[groups.lead(0, turn)]);
    assert_eq!((leads[0], leads[1]), (("mlx5_0", 0), ("mlx5_1", 0)), "{seen:?}");
    assert_eq!((leads[2].0, leads[3].0), ("mlx5_0", "mlx5_1"), "{seen:?}");
    assert!(groups.lead(0, 0) > 0 && seen[0].1 > 0, "the first rank is in another domain: {seen:?}");
}
