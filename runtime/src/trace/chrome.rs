//! The traces of all ranks as one file in the trace event format of Chrome, which Perfetto opens.
//!
//! One process a rank, one track a thread; slices for calls, waits and the handling of messages, arrows from where a
//! message left to where it arrived. The format: "Trace Event Format", Google, 2016, sections "Complete Events" and
//! "Flow Events".

use super::{Event, RankTrace, What};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, HashSet},
    fmt,
    io::{self, Write},
};

/// What a file of traces holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// How many events.
    pub events: u64,
    /// How many older ones the ranks had dropped.
    pub dropped: u64,
    /// How many arrows from a send to its arrival.
    pub arrows: u64,
    /// How wrong the alignment of hosts may be at most, in nanoseconds; `None`: hosts were aligned by their own idea of
    /// the time of day.
    pub accuracy: Option<u64>,
}

/// `120 events, 40 arrows; hosts aligned to within 12.5 us`.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events, {} arrows; ", self.events, self.arrows)?;
        match self.accuracy {
            Some(0) => f.write_str("one clock")?,
            Some(accuracy) => write!(f, "hosts aligned to within {} us", microseconds(i128::from(accuracy)))?,
            None => f.write_str("hosts aligned by their time of day")?,
        }
        if self.dropped > 0 {
            write!(f, "; {} older events were dropped: trace.events says how many are kept", self.dropped)?;
        }
        Ok(())
    }
}

/// Writes the traces of several ranks, parts of the same rank after each other, as one JSON document.
///
/// Times are put on the clock of rank 0's host and begin with the first event. An arrow is drawn where both of its ends
/// are known.
///
/// # Errors
/// Those of `out`.
pub fn write_chrome(traces: &[RankTrace], out: &mut dyn Write) -> io::Result<Summary> {
    let clocks = Clocks::new(traces);
    let begin = traces
        .iter()
        .flat_map(|trace| trace.events.iter().map(|event| clocks.aligned(trace, event.begin)))
        .min()
        .unwrap_or(0);
    let ends = both_ends(traces);
    let mut summary = Summary { accuracy: clocks.accuracy, ..Summary::default() };
    let mut first = true;
    let mut put = |out: &mut dyn Write, event: Value| -> io::Result<()> {
        out.write_all(if std::mem::take(&mut first) { b"{\"traceEvents\":[\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, &event).map_err(io::Error::from)
    };
    let mut named = HashSet::new();
    for trace in traces {
        let pid = trace.rank;
        if named.insert(pid) {
            let name = format!("rank {pid} on {}", trace.host);
            put(out, json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}))?;
            put(out, json!({"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}))?;
            for (tid, name) in trace.threads.iter().enumerate() {
                put(out, json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}))?;
            }
            summary.dropped += trace.dropped;
        }
        for event in &trace.events {
            let at = microseconds(clocks.aligned(trace, event.begin) - begin);
            let (name, category, arguments) = describe(event);
            let duration = microseconds(i128::from(event.nanoseconds));
            put(
                out,
                json!({"ph": "X", "name": name, "cat": category, "pid": pid, "tid": event.thread, "ts": at,
                       "dur": duration, "args": arguments}),
            )?;
            summary.events += 1;
            if let Some((pair, starts)) = end_of(trace.rank, event).filter(|(pair, _)| ends.contains(pair)) {
                let (from, to, number) = pair;
                let mut arrow = json!({"ph": if starts { "s" } else { "f" }, "name": "message", "cat": "message",
                    "id": format!("{from}-{to}-{number}"), "pid": pid, "tid": event.thread, "ts": at});
                if starts {
                    summary.arrows += 1;
                } else {
                    // It ends in the slice around it, not in the next one.
                    arrow["bp"] = json!("e");
                }
                put(out, arrow)?;
            }
        }
    }
    let accuracy = summary.accuracy.map(|nanoseconds| microseconds(i128::from(nanoseconds)));
    let other = json!({"dropped events": summary.dropped, "hosts aligned to within (us)": accuracy});
    if first {
        out.write_all(b"{\"traceEvents\":[")?;
    }
    write!(out, "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{other}}}")?;
    out.write_all(b"\n")?;
    Ok(summary)
}

/// A message: sender, receiver, and its number among those of the two.
type Message = (u32, u32, u64);

/// Whether an event is an end of a message's arrow, and whether it is the start.
fn end_of(rank: u32, event: &Event) -> Option<(Message, bool)> {
    match event.what {
        What::Sent { peer, number, .. } => Some(((rank, peer, number), true)),
        What::Arrived { peer, number, .. } => Some(((peer, rank, number), false)),
        _ => None,
    }
}

/// Messages of which both ends are known.
fn both_ends(traces: &[RankTrace]) -> HashSet<Message> {
    let mut starts = HashSet::new();
    let mut ends = HashSet::new();
    for (message, is_start) in traces.iter().flat_map(|t| t.events.iter().filter_map(|event| end_of(t.rank, event))) {
        if is_start { &mut starts } else { &mut ends }.insert(message);
    }
    starts.intersection(&ends).copied().collect()
}

/// Name, category and arguments of a slice.
fn describe(event: &Event) -> (String, &'static str, Value) {
    match event.what {
        What::Call(activity) => {
            let text = activity.to_string();
            let text = text.strip_prefix("in ").unwrap_or(&text).to_string();
            // All calls of one kind get one name, and with it one colour.
            let name = text.split(' ').next().unwrap_or_default().to_string();
            (name, "call", json!({"call": text}))
        }
        What::Blocked => ("blocked".to_string(), "wait", json!({})),
        What::Sent { peer, number, bytes, path } => {
            (format!("to {peer}"), "message", json!({"bytes": bytes, "path": path.to_string(), "number": number}))
        }
        What::Arrived { peer, number, bytes } => {
            (format!("from {peer}"), "message", json!({"bytes": bytes, "number": number}))
        }
    }
}

/// In microseconds with three digits after the point, as the format wants it.
fn microseconds(nanoseconds: i128) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "times of a job: nanoseconds are exact for 104 days")]
    let time = nanoseconds as f64 / 1000.0;
    json!(time)
}

/// The clocks of all hosts.
struct Clocks {
    /// What is to be added to each host's clock.
    offsets: HashMap<String, i64>,
    accuracy: Option<u64>,
}

impl Clocks {
    /// By measurement where every host was measured, else by each host's idea of the time of day.
    fn new(traces: &[RankTrace]) -> Self {
        let hosts: HashSet<&str> = traces.iter().map(|trace| trace.host.as_str()).collect();
        let measured: HashMap<&str, super::Clock> =
            traces.iter().filter_map(|trace| Some((trace.host.as_str(), trace.clock?))).collect();
        if hosts.iter().all(|host| measured.contains_key(host)) {
            let accuracy = measured.values().map(|clock| clock.accuracy).max();
            let offsets = measured.into_iter().map(|(host, clock)| (host.to_string(), clock.offset)).collect();
            return Clocks { offsets, accuracy };
        }
        let offsets = traces.iter().map(|trace| (trace.host.clone(), trace.since_1970)).collect();
        Clocks { offsets, accuracy: None }
    }

    fn aligned(&self, trace: &RankTrace, time: u64) -> i128 {
        i128::from(time) + i128::from(self.offsets.get(&trace.host).copied().unwrap_or(0))
    }
}
