//! The experiments: what is run with which settings, and into which table it goes.

use crate::machine::{self, Loss, counters, ours, output, perftest, risen};
use crate::rank::{Found, Task, Work};
use rsbench::output;
use rsbench::port::Failure;
use rsbench::rdma::record::Record;
use rsbench::sizes;
use std::collections::BTreeMap;
use std::time::Duration;

/// More than any run takes.
const LIMIT: Duration = Duration::from_secs(120);
/// A library that polls is compared with one that polls.
const POLL: &str = "wait.policy=spin";
/// What devices count when they send again (rxe).
const RESENDS: &[&str] = &["completer_retry_err", "rcvd_seq_err"];
/// What they count when a receiver was not ready (rxe), at its sender.
const NOT_READY: &[&str] = &["rcvd_rnr_err"];
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// An experiment that is running.
struct Experiment {
    record: Record,
    turns: u32,
    effort: f64,
    only: Vec<String>,
}

/// What measures one.
type Body = fn(&mut Experiment) -> Result<(), Failure>;

/// `only`: what is measured of it, all where that is empty.
pub(crate) fn run(name: &str, turns: u32, effort: f64, only: Vec<String>) -> Result<Record, Failure> {
    let known: [(&str, Body); 5] = [
        ("hint", Experiment::hint),
        ("loss", Experiment::loss),
        ("slow-receiver", Experiment::slow_receiver),
        ("timeout", Experiment::timeout),
        ("figures", Experiment::figures),
    ];
    let Some((_, experiment)) = known.iter().find(|(known, _)| *known == name) else {
        return Err(format!("no experiment '{name}'; there are {}", known.map(|(name, _)| name).join(", ")).into());
    };
    let mut running = Experiment { record: Record::new(name), turns, effort, only };
    experiment(&mut running)?;
    Ok(running.record)
}

fn rate(found: &[Found]) -> Result<f64, Failure> {
    let rate = |found: &Found| if let Found::Rate { rate, .. } = found { Some(*rate) } else { None };
    found.iter().find_map(rate).ok_or_else(|| "a run without a rate".into())
}

fn latency(sizes: &[usize]) -> Task {
    Task::Latency { sizes: sizes.to_vec() }
}

fn stream(bytes: usize, window: usize) -> Task {
    Task::Stream { sizes: vec![bytes], window }
}

fn counted(found: &[Found]) -> BTreeMap<String, u64> {
    let counted = |found: &Found| if let Found::Counted(counted) = found { Some(counted.clone()) } else { None };
    found.iter().find_map(counted).unwrap_or_default()
}

/// Resends in 1000 packets since then.
fn resent(before: &BTreeMap<String, u64>) -> f64 {
    1000.0 * risen(before, RESENDS) / risen(before, &["sent_pkts"]).max(1.0)
}

impl Experiment {
    fn work(&self, tasks: &[Task], rounds: usize, seconds: f64) -> Work {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number of rounds")]
        let rounds = ((rounds as f64 * self.effort) as usize).max(10);
        Work { tasks: tasks.to_vec(), rounds, seconds: seconds * self.effort }
    }

    fn add(&mut self, table: (&str, &str), row: &str, column: &str, turn: u32, value: f64) {
        self.record.add(table, row, column, turn, value);
    }

    /// Whether this is to be measured now.
    fn begin(&self, turn: u32, what: &str) -> bool {
        let wanted = self.only.is_empty() || self.only.iter().any(|only| only == what);
        if wanted {
            output::note(format_args!("turn {}: {what}", turn + 1));
        }
        wanted
    }

    fn hint(&mut self) -> Result<(), Failure> {
        let sizes = [8, 256, KIB, 4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB];
        let middle = [256, 512, KIB, 2 * KIB, 4 * KIB];
        for turn in 0..self.turns {
            for (hint, column) in [("0", "hint 0"), ("8KiB", "hint 8 KiB"), ("64KiB", "hint 64 KiB")] {
                if !self.begin(turn, column) {
                    continue;
                }
                let setting = format!("low_latency.size_hint={hint}");
                let tasks = [latency(&sizes), stream(2 * MIB, 8), Task::Mixed { sizes: middle.to_vec() }];
                for found in ours(&[POLL, &setting], &self.work(&tasks, 1000, 1.0), LIMIT)? {
                    match found {
                        Found::Times { bytes: 0, p50, p99, worst, spikes, period } => {
                            let table = ("Messages of 256 B to 4 KiB mixed, half a round trip in us", "figure");
                            self.add(table, "P50", column, turn, p50);
                            self.add(table, "P99", column, turn, p99);
                            self.add(table, "worst", column, turn, worst);
                            self.add(table, "above 3 x P50, %", column, turn, 100.0 * spikes);
                            self.add(table, "regularity of these (1: chance)", column, turn, period);
                        }
                        Found::Times { bytes, p50, p99, .. } => {
                            let row = sizes::text(bytes);
                            self.add(("Half a round trip, P50 in us", "bytes"), &row, column, turn, p50);
                            self.add(("Half a round trip, P99 in us", "bytes"), &row, column, turn, p99);
                        }
                        Found::Rate { rate, .. } => self.add(("Bandwidth in MB/s", "bytes"), "2M", column, turn, rate),
                        Found::Counted(_) => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn loss(&mut self) -> Result<(), Failure> {
        let bandwidth = ("Bandwidth of 64 KiB messages in MB/s", "loss");
        let resends = ("Times that a device sent again, in 1000 packets", "loss");
        for turn in 0..self.turns {
            for percent in [0.0, 0.1, 0.5, 1.0, 2.0, 5.0] {
                let row = format!("{percent}%");
                if !self.begin(turn, &row) {
                    continue;
                }
                let _loss = Loss::of(percent)?;
                let iterations = if percent < 0.5 { 600 } else { 200 };
                let before = counters();
                let columns = perftest("ib_write_bw", 64 * KIB, iterations, LIMIT)?;
                self.add(bandwidth, &row, "ib_write_bw", turn, columns[3] * 1.048_576);
                self.add(resends, &row, "ib_write_bw", turn, resent(&before));
                let tuned: &[&str] = &[POLL, "verbs.timeout=4ms", "verbs.ring_bytes=64KiB"];
                for (column, settings) in [("ours, default", &[POLL][..]), ("ours, tuned", tuned)] {
                    let before = counters();
                    let found = ours(settings, &self.work(&[stream(64 * KIB, 16)], 60, 1.5), LIMIT)?;
                    self.add(bandwidth, &row, column, turn, rate(&found)?);
                    self.add(resends, &row, column, turn, resent(&before));
                }
            }
        }
        Ok(())
    }

    fn slow_receiver(&mut self) -> Result<(), Failure> {
        let table = ("A flood of 1 KiB messages to a rank that computes for 3 ms after every 64", "receives");
        let flood = Task::Flood { bytes: KIB, messages: 512, computes_us: 3000, every: 64 };
        let cases: [(&str, &[&str]); 3] = [
            ("one for every credit", &[]),
            ("8, wait 0.12 ms", &["verbs.receives=8", "verbs.rnr_timer=120us"]),
            ("8, wait 655 ms (code 0)", &["verbs.receives=8", "verbs.rnr_timer=655ms"]),
        ];
        for turn in 0..self.turns {
            for (row, settings) in cases {
                if !self.begin(turn, row) {
                    continue;
                }
                let before = counters();
                let settings = [&[POLL], settings].concat();
                let found = ours(&settings, &self.work(std::slice::from_ref(&flood), 1, 1.0), LIMIT)?;
                self.add(table, row, "MB/s", turn, rate(&found)?);
                self.add(table, row, "RNR NAKs", turn, risen(&before, NOT_READY));
                let counted = counted(&found);
                let stalls = counted.get("records that found no room").copied().unwrap_or(0);
                self.add(table, row, "sender found no room", turn, stalls as f64);
            }
        }
        Ok(())
    }

    fn timeout(&mut self) -> Result<(), Failure> {
        let table = ("0.5% loss", "timeout");
        // Each is rounded up to 4.096 us times a power of two: 4, 8, 12, 14, 18.
        let times = [("65us", 4), ("1ms", 8), ("16ms", 12), ("67ms", 14), ("1s", 18)];
        let _loss = Loss::of(0.5)?;
        for turn in 0..self.turns {
            for (time, code) in times {
                let row = format!("code {code} (>= {time})");
                if !self.begin(turn, &row) {
                    continue;
                }
                let setting = format!("verbs.timeout={time}");
                let settings = [POLL, &setting];
                let before = counters();
                let work = self.work(&[stream(64 * KIB, 16), latency(&[8])], 2000, 2.0);
                for found in ours(&settings, &work, LIMIT)? {
                    match found {
                        Found::Rate { rate, .. } => self.add(table, &row, "64 KiB, MB/s", turn, rate),
                        Found::Times { p50, p99, .. } => {
                            self.add(table, &row, "8 B P50, us", turn, p50);
                            self.add(table, &row, "8 B P99, us", turn, p99);
                        }
                        Found::Counted(_) => {}
                    }
                }
                self.add(table, &row, "sent again", turn, risen(&before, RESENDS));
                self.add(table, &row, "came twice", turn, risen(&before, &["duplicate_request"]));
            }
        }
        Ok(())
    }

    fn figures(&mut self) -> Result<(), Failure> {
        let small = [8, 64, KIB, 8 * KIB, 64 * KIB];
        let large = [64 * KIB, MIB, 4 * MIB];
        let (times, rates) = (("Half a round trip, P50 in us", "bytes"), ("Bandwidth in MB/s", "bytes"));
        let others = ("Ours", "figure");
        let cases = [
            ("ours, hint 8 KiB", vec![POLL, "low_latency.size_hint=8KiB"]),
            ("ours, hint 0", vec![POLL]),
            ("ours, hint 0, rings of 1 MiB", vec![POLL, "verbs.ring_bytes=1MiB"]),
        ];
        for turn in 0..self.turns {
            let before = counters();
            if self.begin(turn, "perftest") {
                for bytes in small {
                    let columns = perftest("ib_write_lat", bytes, 500, LIMIT)?;
                    self.add(times, &sizes::text(bytes), "ib_write_lat", turn, columns[4]);
                }
                for bytes in large {
                    let columns = perftest("ib_write_bw", bytes, (32 * MIB / bytes).min(400), LIMIT)?;
                    self.add(rates, &sizes::text(bytes), "ib_write_bw", turn, columns[3] * 1.048_576);
                }
            }
            for (column, settings) in &cases {
                if !self.begin(turn, column) {
                    continue;
                }
                let mut tasks = vec![latency(&small)];
                tasks.extend(large.map(|bytes| stream(bytes, (8 * MIB / bytes).clamp(4, 64))));
                for found in ours(settings, &self.work(&tasks, 500, 0.8), LIMIT)? {
                    match found {
                        Found::Times { bytes, p50, .. } => self.add(times, &sizes::text(bytes), column, turn, p50),
                        Found::Rate { bytes, rate } => self.add(rates, &sizes::text(bytes), column, turn, rate),
                        Found::Counted(_) => {}
                    }
                }
            }
            if self.begin(turn, "doorbells") {
                let found = ours(&[POLL], &self.work(&[stream(64, 64)], 100, 0.5), LIMIT)?;
                let counted = counted(&found);
                let of = |name: &str| counted.get(name).copied().unwrap_or(0) as f64;
                let posts = of("work requests") / of("doorbells").max(1.0);
                self.add(others, "work requests a doorbell in a stream of 64 B messages", "value", turn, posts);
            }
            self.add(others, "RNR NAKs in all of this", "value", turn, risen(&before, NOT_READY));
            if self.begin(turn, "UCX") {
                self.ucx(turn, times, &small);
            }
        }
        Ok(())
    }

    /// UCX, as far as it comes up here.
    fn ucx(&mut self, turn: u32, table: (&str, &str), sizes: &[usize]) {
        for &bytes in sizes {
            match ucx(bytes) {
                Ok(time) => self.add(table, &sizes::text(bytes), "UCX rc_verbs", turn, time),
                Err(error) => return self.record.leave_out(format!("UCX rc_verbs: {error}")),
            }
        }
    }
}

/// Half a round trip of `ucx_perftest`, in us.
fn ucx(bytes: usize) -> Result<f64, Failure> {
    if machine::find("ucx_perftest").is_none() {
        return Err("ucx_perftest is not installed (package ucx-utils)".into());
    }
    // The server ends with its client.
    let script = "export UCX_TLS=rc_verbs,ud_verbs,self UCX_WARN_UNUSED_ENV_VARS=n; \
        UCX_NET_DEVICES=rxe1:1 ucx_perftest -p 13999 >/dev/null 2>&1 & server=$!; sleep 0.5; \
        UCX_NET_DEVICES=rxe0:1 ucx_perftest 10.88.0.2 -p 13999 -t tag_lat -s \"$0\" -n 1000 -w 100; code=$?; \
        kill $server 2>/dev/null; exit $code";
    let said = output("sh", &["-c", script, &bytes.to_string()], Duration::from_secs(30))?;
    let line = said.lines().find(|line| line.starts_with("Final:")).ok_or("ucx_perftest gives no result")?;
    let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // Iterations, typical, average, overall.
    numbers.get(1).copied().ok_or_else(|| format!("ucx_perftest: {line}").into())
}
