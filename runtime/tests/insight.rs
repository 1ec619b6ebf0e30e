//! Counters and traces of real messages, on every transport.

use serde_json::Value;
use spmd::{
    SignalOp, SymmetricHeap, World,
    local::Cluster,
    protocol::{Path, Tier},
    statistics::{JobStatistics, MemoryStatistics, Statistics},
    trace::{RankTrace, write_chrome},
};
use std::collections::HashMap;

/// Ranks of one host over shared memory, and the same ranks each on a host of its own over TCP.
fn clusters(ranks: usize) -> [Cluster; 2] {
    [Cluster::new(ranks), Cluster::new(ranks).hosts(ranks)]
}

/// What every rank has counted when all have received everything.
fn counted(cluster: &Cluster, program: impl Fn(&World) + Sync) -> Vec<Statistics> {
    cluster
        .run(|world| {
            program(world);
            world.statistics()
        })
        .unwrap()
}

#[test]
fn every_message_is_counted_once_on_both_sides_under_the_path_that_it_took() {
    let [shm, tcp] = clusters(2);
    let ways = ["never", "always"].map(|read| shm.clone().set("shm.direct_read", read));
    for cluster in ways.into_iter().chain([tcp]) {
        let sizes = [0_usize, 8, 32, 33, 4096, 100_000, 300_000];
        let all = counted(&cluster, |world| {
            let comm = world.communicator();
            for bytes in sizes {
                if comm.rank() == 0 {
                    comm.send(&vec![1_u8; bytes], 1, 0).unwrap();
                    comm.recv(&mut [0_u8], 1, 1).unwrap();
                } else {
                    comm.recv_vec::<u8>(0, 0).unwrap();
                    comm.send(&[1_u8], 0, 1).unwrap();
                }
            }
        });
        let to_one = &all[0].peers[0];
        let from_zero = &all[1].peers[0];
        assert_eq!((to_one.peer, from_zero.peer), (1, 0));
        let total: u64 = sizes.iter().sum::<usize>() as u64;
        assert_eq!((all[0].sent().messages, all[0].sent().bytes), (7, total));
        assert_eq!(all[1].received(), all[0].sent());
        assert_eq!(all[0].received(), all[1].sent());
        let on = |path: Path| to_one.sent.iter().find(|(p, _)| *p == path).map_or(0, |(_, tally)| tally.messages);
        assert_eq!(on(Path::Pieces) + on(Path::DirectRead), from_zero.received.rendezvous.messages);
        assert_eq!(from_zero.received.rendezvous.bytes, 400_000);
        if to_one.transport == "shm" {
            assert_eq!((on(Path::Inline(Tier::Bulk)), on(Path::Eager(Tier::Bulk))), (3, 2));
        }
        let job = JobStatistics::new(2, all);
        assert_eq!(job.ranks.len(), 2);
        assert!(job.missing.is_empty());
    }
}

#[test]
fn a_full_transport_is_a_stall_and_waiting_is_counted() {
    for cluster in clusters(2) {
        let all = counted(&cluster.set("shm.ring_bytes", "4KiB").set("tcp.buffer_bytes", "4KiB"), |world| {
            let comm = world.communicator();
            if comm.rank() == 0 {
                comm.send(&vec![1_u8; 50_000_000], 1, 0).unwrap();
            } else {
                comm.recv_vec::<u8>(0, 0).unwrap();
            }
        });
        assert!(all[0].stalls() > 0, "{:?}", all[0]);
        // Its one answer may have to wait for the connection.
        assert!(all[1].stalls() <= 1, "{:?}", all[1]);
        let waits = all.iter().map(|rank| rank.waits).collect::<Vec<_>>();
        assert!(waits.iter().all(|waits| waits.spins + waits.yields + waits.sleeps > 0), "{waits:?}");
    }
}

/// Traces of ranks that exchange small and large messages around a ring, from several threads.
fn traced(cluster: &Cluster) -> Vec<RankTrace> {
    cluster
        .set_trace()
        .run(|world| {
            let comm = world.communicator();
            let (me, size) = (comm.rank(), comm.size());
            let (right, left) = ((me + 1) % size, (me + size - 1) % size);
            let ring = |tag: i32| {
                for bytes in [0_usize, 8, 5000, 200_000] {
                    let mut room = vec![0_u8; bytes];
                    comm.send_receive(&vec![1_u8; bytes], right, tag, &mut room, left, tag).unwrap();
                    let request = comm.isend(vec![2_u8; bytes], right, tag).unwrap();
                    comm.recv(&mut room, left, tag).unwrap();
                    request.wait().unwrap();
                }
            };
            std::thread::scope(|scope| {
                for tag in 1..3 {
                    scope.spawn(move || ring(tag));
                }
            });
            let half = comm.split(Some(0), 0).unwrap().unwrap();
            assert_eq!(half.size(), size);
            world.trace().unwrap()
        })
        .unwrap()
}

trait SetTrace {
    fn set_trace(&self) -> Cluster;
}

impl SetTrace for Cluster {
    fn set_trace(&self) -> Cluster {
        self.clone().set("report.trace", "collected by the test")
    }
}

fn events(traces: &[RankTrace]) -> Vec<Value> {
    let mut out = Vec::new();
    write_chrome(traces, &mut out).unwrap();
    let json: Value = serde_json::from_slice(&out).unwrap();
    json["traceEvents"].as_array().unwrap().clone()
}

/// Whole nanoseconds: the file has microseconds with fractions.
#[expect(clippy::cast_possible_truncation, reason = "times of a test are short")]
fn nanoseconds(value: &Value) -> i64 {
    (value.as_f64().unwrap() * 1000.0).round() as i64
}

#[test]
fn slices_of_a_thread_lie_within_each_other_or_apart() {
    for cluster in clusters(3) {
        let mut tracks: HashMap<(u64, u64), Vec<(i64, i64)>> = HashMap::new();
        for event in events(&traced(&cluster)).iter().filter(|event| event["ph"] == "X") {
            let begin = nanoseconds(&event["ts"]);
            let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
            tracks.entry(track).or_default().push((begin, begin + nanoseconds(&event["dur"])));
        }
        assert!(tracks.len() >= 9, "three threads a rank: {:?}", tracks.keys());
        for (track, mut slices) in tracks {
            slices.sort_unstable_by_key(|(begin, end)| (*begin, -end));
            let mut open: Vec<(i64, i64)> = Vec::new();
            for slice in slices {
                open.retain(|outer| outer.1 > slice.0);
                assert!(
                    open.iter().all(|outer| slice.1 <= outer.1),
                    "{track:?}: {slice:?} crosses the end of {open:?}"
                );
                open.push(slice);
            }
        }
    }
}

#[test]
fn every_message_has_an_arrow_from_its_send_to_its_arrival_and_none_goes_back_in_time() {
    for cluster in clusters(3) {
        let traces = traced(&cluster);
        let events = events(&traces);
        let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
        let messages = |prefix: &str| {
            let of = slices.iter().filter(|event| event["cat"] == "message");
            of.filter(|event| event["name"].as_str().unwrap().starts_with(prefix)).count()
        };
        let ends = |ph: &str| -> HashMap<String, i64> {
            let of = events.iter().filter(|event| event["ph"] == ph);
            of.map(|event| (event["id"].as_str().unwrap().to_string(), nanoseconds(&event["ts"]))).collect()
        };
        let (starts, ends) = (ends("s"), ends("f"));
        // Sixteen of each rank's own, and those by which communicators and clocks were agreed upon.
        assert!(starts.len() >= 3 * 16 && messages("to ") == starts.len(), "{} {}", starts.len(), messages("to "));
        assert_eq!(messages("from "), ends.len());
        for (id, start) in &starts {
            // One machine has one clock, but hosts that are measured may be off by half a round trip.
            assert!(ends[id] + 5_000_000 >= *start, "message {id} arrived {} ns before it left", start - ends[id]);
        }
    }
}

#[test]
fn collectives_and_waits_are_in_the_trace_and_nothing_is_recorded_unasked() {
    let traces = traced(&Cluster::new(2));
    let names: Vec<String> =
        events(&traces).iter().filter(|e| e["ph"] == "X").map(|e| e["name"].as_str().unwrap().to_string()).collect();
    for name in ["split", "recv", "blocked", "to 1", "from 1"] {
        assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
    }
    assert!(Cluster::new(2).run(World::trace).unwrap().iter().all(Option::is_none));
}

#[test]
fn the_ring_of_a_rank_is_bounded() {
    let cluster = Cluster::new(2).set("trace.events", "16");
    for trace in traced(&cluster) {
        assert_eq!(trace.events.len(), 16);
        assert!(trace.dropped > 0);
    }
}

#[test]
fn one_sided_operations_are_counted_by_whoever_makes_them_however_they_go() {
    for cluster in clusters(2) {
        let all = counted(&cluster, |world| {
            let comm = world.communicator();
            let heap = SymmetricHeap::new(&comm, 1 << 16).unwrap();
            let words = heap.alloc::<u64>(1000).unwrap();
            if comm.rank() == 0 {
                words.put(&[1; 1000], 1).unwrap();
                words.slice(..3).put_own(1).unwrap();
                words.put_signal(&[5], 1, &words, 999, SignalOp::Set(1)).unwrap();
                words.get(&mut [0; 10], 1).unwrap();
                assert_eq!(words.fetch(999, 1).unwrap(), 1);
                heap.quiet().unwrap();
                comm.send(&[1_u8], 1, 0).unwrap();
            } else {
                comm.recv(&mut [0_u8], 0, 0).unwrap();
            }
        });
        let MemoryStatistics { puts, gets, updates, collectives, .. } = all[0].memory;
        assert_eq!((puts.calls, puts.bytes), (3, 8 * (1000 + 3 + 1)));
        assert_eq!((gets.calls, gets.bytes, updates, collectives.calls), (1, 80, 2, 0));
        assert_eq!(all[1].memory, MemoryStatistics::default());
        let job = JobStatistics::new(2, all);
        assert_eq!(job.memory.puts, puts);
        assert!(job.to_string().contains("3 puts (8032 B), 1 gets (80 B), 2 signals and atomic operations"), "{job}");
    }
}
