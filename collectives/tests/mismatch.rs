//! Ranks whose calls do not fit together all get an error that names who differs: none hangs, none goes on with the data of
//! another call.

use spmd::Communicator;
use spmd::local::Cluster;
use spmd_collectives::algorithms::{Algorithm, Collective};
use spmd_collectives::groups::Groups;
use spmd_collectives::prelude::*;
use spmd_collectives::{Error, Result};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const TRANSPORTS: [&str; 2] = ["shm", "tcp"];

/// What a rank calls.
type Program = Box<dyn Fn(&Communicator) -> Result<()> + Send + Sync>;

/// Every rank but `odd` calls one thing, that one another.
struct Case {
    what: String,
    size: usize,
    odd: usize,
    transport: &'static str,
    setting: Option<(String, &'static str)>,
    usual: Program,
    other: Program,
}

impl Case {
    fn cluster(&self) -> Cluster {
        let cluster =
            Cluster::new(self.size).set("transport.allow", self.transport).set("collectives.check_after", "100ms");
        match &self.setting {
            Some((key, value)) => cluster.set(key, value),
            None => cluster,
        }
    }

    /// All ranks must hear of it.
    fn run(&self) {
        let told = AtomicUsize::new(0);
        let Case { what, size, odd, transport, .. } = self;
        let errors = self
            .cluster()
            .run(|world| {
                let comm = world.communicator();
                let call = if comm.rank() == *odd { &self.other } else { &self.usual };
                let error = first_error(&comm, call, &format!("{what} over {transport}"));
                told.fetch_add(1, Ordering::SeqCst);
                // Nobody leaves before all have heard: that would end waits, too.
                for _ in 0..12_000 {
                    if told.load(Ordering::SeqCst) == *size {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                error
            })
            .unwrap();
        for (rank, error) in errors.iter().enumerate() {
            let Error::Mismatch { source: spmd::Error::CallMismatch { rank: first, other_rank: second, .. }, .. } =
                error
            else {
                panic!("{what} over {transport}, rank {rank}: {error}");
            };
            assert!(first == odd || second == odd, "{what} over {transport}: rank {odd} differs, not: {error}");
        }
    }
}

/// Makes the call, and where it seems to succeed the next ones, until the error comes.
fn first_error(comm: &Communicator, call: &Program, what: &str) -> Error {
    let mut result = call(comm);
    for _ in 0..30_000 {
        if let Err(error) = result {
            return error;
        }
        std::thread::sleep(Duration::from_millis(1));
        result = comm.barrier();
    }
    panic!("{what}: rank {} has not been told", comm.rank());
}

/// Runs cases side by side: most of their time they wait.
fn run_all(cases: Vec<Case>) {
    assert!(!cases.is_empty());
    let cases = Mutex::new(cases);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                while let Some(case) = { cases.lock().unwrap().pop() } {
                    case.run();
                }
            });
        }
    });
}

fn legal(collective: Collective, size: usize) -> impl Iterator<Item = &'static Algorithm> {
    let groups = Groups::together(size);
    collective.algorithms().iter().filter(move |algorithm| algorithm.forbidden(&groups, true).is_none())
}

/// A call of a collective with so many `T`, this root, and this operator.
fn call<T: Count>(
    collective: Collective,
    length: usize,
    root: usize,
    op: impl Op<T> + Copy + Send + Sync + 'static,
) -> Program {
    Box::new(move |comm| {
        let size = comm.size();
        let (one, all) = (vec![T::one(); length], vec![T::one(); length * size]);
        match collective {
            Collective::Barrier => comm.barrier(),
            Collective::Broadcast => comm.broadcast(&mut one.clone(), root),
            Collective::Reduce => comm.reduce(&one, op, root).map(drop),
            Collective::AllReduce => comm.all_reduce(&mut one.clone(), op),
            Collective::Gather => comm.gather(&one, root).map(drop),
            Collective::AllGather => comm.all_gather(&one).map(drop),
            Collective::Scatter => comm.scatter((comm.rank() == root).then_some(&all[..]), &mut one.clone(), root),
            Collective::AllToAll => comm.all_to_all(&all).map(drop),
            Collective::ReduceScatter => comm.reduce_scatter(&all, op).map(drop),
            Collective::Scan => comm.scan(&mut one.clone(), op),
            _ => comm.exscan(&one, op).map(drop),
        }
    })
}

trait Count: spmd::Element {
    fn one() -> Self;
}

impl Count for u32 {
    fn one() -> u32 {
        1
    }
}

impl Count for f32 {
    fn one() -> f32 {
        1.0
    }
}

/// One kind of difference with every algorithm of every collective that `concerns`, on these numbers of ranks. The transports
/// take turns, the odd rank is the first, the last or one between.
fn with_every_algorithm(
    kind: &str,
    sizes: impl Iterator<Item = usize> + Clone,
    concerns: impl Fn(Collective) -> bool,
    usual: impl Fn(Collective) -> Program,
    other: impl Fn(Collective) -> Program,
) {
    let mut cases = Vec::new();
    for collective in Collective::ALL.into_iter().filter(|collective| concerns(*collective)) {
        for size in sizes.clone() {
            for algorithm in legal(collective, size) {
                let turn = cases.len();
                let (transport, odd) = (TRANSPORTS[turn % 2], [0, size - 1, size / 2][turn % 3]);
                cases.push(Case {
                    what: format!("{kind}: {collective} ({}) on {size} ranks, rank {odd} odd", algorithm.name),
                    size,
                    odd,
                    transport,
                    setting: Some((format!("collectives.{collective}"), algorithm.name)),
                    usual: usual(collective),
                    other: other(collective),
                });
            }
        }
    }
    run_all(cases);
}

fn has_data(collective: Collective) -> bool {
    collective != Collective::Barrier
}

/// Short and long messages: those that go at once, and those whose sender waits.
fn roots(sizes: impl Iterator<Item = usize> + Clone, length: usize) {
    let usual = |collective| call::<u32>(collective, length, 0, Sum);
    let other = |collective| call::<u32>(collective, length, 1, Sum);
    with_every_algorithm("roots", sizes, Collective::is_rooted, usual, other);
}

fn lengths(sizes: impl Iterator<Item = usize> + Clone) {
    let usual = |collective| call::<u32>(collective, 5, 0, Sum);
    let other = |collective| call::<u32>(collective, 4, 0, Sum);
    with_every_algorithm("lengths", sizes, has_data, usual, other);
}

fn types(sizes: impl Iterator<Item = usize> + Clone) {
    let usual = |collective| call::<u32>(collective, 3, 0, Sum);
    let other = |collective| call::<f32>(collective, 3, 0, Sum);
    with_every_algorithm("types", sizes, has_data, usual, other);
}

fn operators(sizes: impl Iterator<Item = usize> + Clone) {
    let usual = |collective| call::<u32>(collective, 3, 0, Sum);
    let other = |collective| call::<u32>(collective, 3, 0, Max);
    with_every_algorithm("operators", sizes, Collective::reduces, usual, other);
}

#[test]
fn different_roots_are_an_error_on_all_ranks() {
    roots(2..=5, 1);
}

#[test]
fn different_roots_of_long_messages_are_an_error_on_all_ranks() {
    roots(2..=5, 10_000);
}

#[test]
fn different_lengths_are_an_error_on_all_ranks() {
    lengths(2..=5);
}

#[test]
fn different_types_are_an_error_on_all_ranks() {
    types(2..=5);
}

#[test]
fn different_operators_are_an_error_on_all_ranks() {
    operators(2..=5);
}

#[test]
fn different_collectives_are_an_error_on_all_ranks() {
    type Named = (&'static str, fn() -> Program);
    let calls: [Named; 9] = [
        ("barrier", || Box::new(|comm| comm.barrier())),
        ("broadcast", || Box::new(|comm| comm.broadcast(&mut [1u32], 0))),
        ("reduce", || Box::new(|comm| comm.reduce(&[1u32], Sum, 0).map(drop))),
        ("all_reduce", || Box::new(|comm| comm.all_reduce(&mut [1u32], Sum))),
        ("all_reduce by Max", || Box::new(|comm| comm.all_reduce(&mut [1u32], Max))),
        ("all_gather_v", || Box::new(|comm| comm.all_gather_v(&[1u32]).map(drop))),
        ("scan", || Box::new(|comm| comm.scan(&mut [1u32], Sum))),
        ("scatter_v", || {
            Box::new(|comm| {
                comm.scatter_v((comm.rank() == 0).then_some((&[1u32; 4][..], &[1usize; 4][..])), 0).map(drop)
            })
        }),
        ("split", || {
            Box::new(|comm| {
                let (rank, collective) = (comm.rank(), spmd::memory::Operation::Split);
                let of_runtime = |source| Error::Mismatch { rank, collective, source };
                comm.split(Some(0), 0).map(drop).map_err(of_runtime)
            })
        }),
    ];
    let mut cases = Vec::new();
    for (index, (usual, usual_call)) in calls.iter().enumerate() {
        for (other, other_call) in &calls[..index] {
            let odd = cases.len() % 4;
            cases.push(Case {
                what: format!("{usual}, and {other} on rank {odd}"),
                size: 4,
                odd,
                transport: TRANSPORTS[cases.len() / 4 % 2],
                setting: None,
                usual: usual_call(),
                other: other_call(),
            });
        }
    }
    run_all(cases);
}

#[test]
fn the_error_names_both_ranks_both_calls_and_where_they_are_made_and_later_calls_repeat_it() {
    let line = line!() + 6;
    let errors = Cluster::new(2)
        .set("collectives.check_after", "100ms")
        .run(|world| {
            let comm = world.communicator();
            let root = 1 - comm.rank();
            let error = comm.broadcast(&mut [0u8; 3], root).unwrap_err().to_string();
            let again = comm.barrier().unwrap_err().to_string();
            assert_eq!(error.split_once(':').unwrap().1, again.split_once(':').unwrap().1);
            std::thread::sleep(Duration::from_millis(300));
            error
        })
        .unwrap();
    for error in errors {
        for part in [
            "as collective 1 of a communicator rank 0 calls broadcast of 3 u8 with root 1 (",
            "but rank 1 calls broadcast of 3 u8 with root 0 (",
            &format!("collectives/tests/mismatch.rs:{line}"),
        ] {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    }
}

#[test]
fn a_rank_that_is_only_late_is_waited_for() {
    for transport in TRANSPORTS {
        Cluster::new(3)
            .set("transport.allow", transport)
            .set("collectives.check_after", "50ms")
            .run(|world| {
                let comm = world.communicator();
                for late in 0..3 {
                    if comm.rank() == late {
                        std::thread::sleep(Duration::from_millis(1300));
                    }
                    let mut sum = [1];
                    comm.all_reduce(&mut sum, Sum).unwrap();
                    assert_eq!(sum, [3]);
                }
                // What was said meanwhile is no message of anybody's.
                comm.barrier().unwrap();
            })
            .unwrap();
    }
}

#[test]
fn a_set_limit_turns_waiting_into_an_error_that_names_who_is_missing() {
    let late = AtomicUsize::new(0);
    let errors = Cluster::new(4)
        .set("collectives.check_after", "50ms")
        .set("collectives.timeout", "1500ms")
        .run(|world| {
            let comm = world.communicator();
            let error = (comm.rank() != 2).then(|| {
                let error = comm.all_gather(&[comm.rank()]).unwrap_err();
                late.fetch_add(1, Ordering::SeqCst);
                error
            });
            // Nobody leaves before all have their error: that would end waits, too.
            while late.load(Ordering::SeqCst) < 3 {
                std::thread::sleep(Duration::from_millis(5));
            }
            error
        })
        .unwrap();
    for error in errors.into_iter().flatten() {
        let Error::Runtime { source: spmd::Error::CollectiveTimeout { ref missing, .. }, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(missing, &[2], "{error}");
        assert!(error.to_string().contains("s; rank 2 is not in it"), "{error}");
    }
}

#[test]
fn another_communicator_is_not_concerned() {
    Cluster::new(2)
        .set("collectives.check_after", "100ms")
        .run(|world| {
            let comm = world.communicator();
            let copy = comm.split(Some(0), 0).unwrap().unwrap();
            let root = comm.rank();
            let wrong: Program = Box::new(move |copy| copy.broadcast(&mut [0u8], root));
            first_error(&copy, &wrong, "a broadcast of the copy with two roots");
            comm.barrier().unwrap();
        })
        .unwrap();
}

#[test]
fn ranks_that_wait_long_for_a_late_one_talk_to_none_but_those_that_they_wait_for() {
    let talked = Cluster::new(8)
        .set("transport.allow", "tcp")
        .set("collectives.check_after", "50ms")
        .set("collectives.broadcast", "linear")
        .run(|world| {
            let comm = world.communicator();
            if comm.rank() == 0 {
                // One that sleeps looks at the clock every half second.
                std::thread::sleep(Duration::from_millis(1300));
            }
            comm.broadcast(&mut [1], 0).expect("all call the same");
            let peers: Vec<usize> = world.statistics().peers.iter().map(|peer| peer.peer).collect();
            (comm.rank(), peers)
        })
        .unwrap();
    for (rank, peers) in talked {
        let expected: Vec<usize> = if rank == 0 { (1..8).collect() } else { vec![0] };
        assert_eq!(peers, expected, "rank {rank}");
    }
}
