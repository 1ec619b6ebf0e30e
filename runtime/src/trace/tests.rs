//! The ring, and the file: nesting, arrows, clocks.

use super::*;
use crate::memory::Operation;
use serde_json::Value;

fn event(thread: u32, begin: u64, nanoseconds: u64, what: What) -> Event {
    Event { thread, begin, nanoseconds, what }
}

fn trace(rank: u32, host: &str, clock: Option<Clock>, events: Vec<Event>) -> RankTrace {
    let threads = vec!["main".to_string(), "other".to_string()];
    RankTrace { rank, host: host.into(), threads, clock, since_1970: 0, dropped: 0, events }
}

fn written(traces: &[RankTrace]) -> (Summary, Vec<Value>) {
    let mut out = Vec::new();
    let summary = write_chrome(traces, &mut out).unwrap();
    let json: Value = serde_json::from_slice(&out).unwrap();
    (summary, json["traceEvents"].as_array().unwrap().clone())
}

fn sent(peer: u32, number: u64) -> What {
    What::Sent { peer, number, bytes: 8, path: Path::Pieces }
}

fn arrived(peer: u32, number: u64) -> What {
    What::Arrived { peer, number, bytes: 8 }
}

#[test]
fn the_ring_keeps_the_youngest_and_counts_what_it_drops() {
    let recorder = Recorder::new(2, 4);
    for _ in 0..10 {
        recorder.sent(now(), 1, 8, Path::Pieces);
    }
    let trace = recorder.take(0, "a", None);
    assert_eq!((trace.events.len(), trace.dropped), (4, 6));
    let numbers: Vec<u64> = trace
        .events
        .iter()
        .map(|event| match event.what {
            What::Sent { number, .. } => number,
            _ => panic!("{event:?}"),
        })
        .collect();
    assert_eq!(numbers, [7, 8, 9, 10]);
}

#[test]
fn every_thread_has_a_track_of_its_own() {
    let recorder = Recorder::new(1, 100);
    std::thread::scope(|scope| {
        for name in ["one", "two"] {
            let record = || (0..3).for_each(|_| recorder.ended(now(), What::Blocked));
            std::thread::Builder::new().name(name.into()).spawn_scoped(scope, record).unwrap();
        }
    });
    let trace = recorder.take(0, "a", None);
    let mut names = trace.threads.clone();
    names.sort();
    assert_eq!(names, ["one", "two"]);
    for thread in 0..2 {
        assert_eq!(trace.events.iter().filter(|event| event.thread == thread).count(), 3);
    }
}

#[test]
fn an_arrow_needs_both_ends() {
    let zero = trace(
        0,
        "a",
        Some(Clock { offset: 0, accuracy: 0 }),
        vec![event(0, 1000, 10, sent(1, 1)), event(0, 2000, 10, sent(1, 2))],
    );
    let one = trace(1, "a", None, vec![event(0, 1500, 10, arrived(0, 1)), event(0, 1600, 10, arrived(0, 7))]);
    let (summary, events) = written(&[zero, one]);
    assert_eq!((summary.events, summary.arrows), (4, 1));
    let arrows: Vec<&Value> = events.iter().filter(|e| e["ph"] == "s" || e["ph"] == "f").collect();
    assert_eq!(arrows.len(), 2);
    assert!(arrows.iter().all(|arrow| arrow["id"] == "0-1-1"));
    assert_eq!((arrows[0]["ts"].as_f64(), arrows[1]["ts"].as_f64()), (Some(0.0), Some(0.5)));
}

#[test]
fn hosts_are_put_on_the_clock_of_rank_0s_host() {
    let call = What::Call(Activity::Collective { operation: Operation::Barrier, number: 1 });
    let zero = trace(0, "a", Some(Clock { offset: 0, accuracy: 0 }), vec![event(0, 5_000, 10, call)]);
    let one = trace(1, "b", Some(Clock { offset: -1_000_000, accuracy: 700 }), vec![event(0, 1_006_000, 10, call)]);
    // Of the same host, and the other rank has measured.
    let two = trace(2, "b", None, vec![event(0, 1_007_000, 10, call)]);
    let (summary, events) = written(&[zero, one, two]);
    assert_eq!(summary.accuracy, Some(700));
    let times: Vec<f64> = events.iter().filter(|e| e["ph"] == "X").map(|e| e["ts"].as_f64().unwrap()).collect();
    assert_eq!(times, [0.0, 1.0, 2.0]);
    assert!(events.iter().filter(|e| e["ph"] == "X").all(|e| e["name"] == "barrier"));
}

#[test]
fn without_a_measurement_the_time_of_day_has_to_do() {
    let mut zero = trace(0, "a", Some(Clock { offset: 0, accuracy: 0 }), vec![event(0, 5_000, 10, What::Blocked)]);
    let mut one = trace(1, "b", None, vec![event(0, 9_000, 10, What::Blocked)]);
    (zero.since_1970, one.since_1970) = (1_000, -2_000);
    let (summary, events) = written(&[zero, one]);
    assert_eq!(summary.accuracy, None);
    let times: Vec<f64> = events.iter().filter(|e| e["ph"] == "X").map(|e| e["ts"].as_f64().unwrap()).collect();
    assert_eq!(times, [0.0, 1.0]);
}

#[test]
fn parts_are_as_good_as_the_whole_and_nothing_is_a_valid_file() {
    let events: Vec<Event> = (0..150_000).map(|at| event(0, at, 1, What::Blocked)).collect();
    let whole = trace(3, "a", None, events);
    let parts: Vec<RankTrace> = whole.clone().parts().collect();
    assert_eq!(parts.len(), 3);
    assert_eq!(written(&parts), written(&[whole]));
    assert_eq!(written(&[]).1.len(), 0);
    assert_eq!(trace(0, "a", None, Vec::new()).parts().count(), 1);
}
