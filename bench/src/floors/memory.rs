//! Floors between two cores of one host: a cache line handed over, a stream of lines, bytes copied. Both ranks call the
//! same function at the same time; the one named `first` begins.

use super::shared::{STREAM, Shared};
use crate::measure::median;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

const THERE: usize = 0;
const BACK: usize = 1;
const TAKEN: usize = 2;

const EXCHANGES: usize = 4_000;
const WARM_UP: usize = 100;
const LINES: u64 = 50_000;
/// Rounds of copies at most.
const COPIES: usize = 200;
/// Time for one figure, so that a machine that has other work to do does not take long over it.
const TIME: Duration = Duration::from_millis(60);

/// How long the first rank goes on.
struct Budget {
    rounds: std::ops::Range<usize>,
    until: Instant,
}

impl Budget {
    fn new(rounds: usize) -> Self {
        Budget { rounds: 0..rounds, until: Instant::now() + TIME }
    }

    /// Whether the round that begins is followed by another; five are made in any case.
    fn more(&mut self) -> bool {
        self.rounds.next().is_some_and(|round| round < 5 || Instant::now() < self.until) && !self.rounds.is_empty()
    }
}

/// Gives the processor away now and then, in case both ranks have been put on the same one.
pub(super) fn spin_until(mut done: impl FnMut() -> bool) {
    let mut spins = 0_u32;
    while !done() {
        spins = spins.wrapping_add(1);
        if spins.is_multiple_of(4096) {
            std::thread::yield_now();
        } else {
            spin_loop();
        }
    }
}

/// The two ranks as seen by one of them; counts the rounds of all measurements, so that no line need be reset.
#[derive(Debug)]
pub(super) struct Cores {
    pub(super) shared: Shared,
    pub(super) first: bool,
    round: u64,
    streamed: u64,
}

impl Cores {
    pub(super) fn new(shared: Shared, first: bool) -> Self {
        Cores { shared, first, round: 0, streamed: 0 }
    }

    /// The first rank hands over and waits for the answer; the other waits, does `between` and answers. Whether another
    /// round follows is the first rank's decision, and both return it.
    fn exchange(&mut self, more: bool, between: impl FnOnce(&Shared)) -> bool {
        // Two values a round, the even one for the last: each is new to the other rank.
        self.round += 2;
        let there = self.shared.line(THERE);
        let back = self.shared.line(BACK);
        if self.first {
            there.store(self.round + u64::from(more), Release);
            spin_until(|| back.load(Acquire) == self.round);
            return more;
        }
        let mut seen = 0;
        spin_until(|| {
            seen = there.load(Acquire);
            seen >= self.round
        });
        between(&self.shared);
        back.store(self.round, Release);
        seen > self.round
    }

    /// Microseconds to hand over one cache line, P50 of half the exchanges there and back. On the first rank.
    pub(super) fn cache_line(&mut self) -> f64 {
        let (mut budget, mut samples) = (Budget::new(EXCHANGES), Vec::with_capacity(EXCHANGES));
        loop {
            let more = budget.more();
            let begun = Instant::now();
            let more = self.exchange(more, |_| {});
            samples.push(begun.elapsed().as_secs_f64() * 1e6 / 2.0);
            if !more {
                break;
            }
        }
        median(samples.split_off(WARM_UP.min(samples.len() / 2))).unwrap_or(f64::NAN)
    }

    /// Microseconds for each of many lines that follow each other, written by the first rank and read by the other.
    pub(super) fn line_stream(&mut self) -> f64 {
        let begun = Instant::now();
        let (from, to) = (self.streamed + 1, self.streamed + LINES);
        let taken = self.shared.line(TAKEN);
        let place = |number: u64| usize::try_from(number % STREAM as u64).unwrap_or(0);
        for number in from..=to {
            let line = self.shared.stream(place(number));
            if self.first {
                // As a ring would: never further ahead than there is room, looked up once in a while.
                if number.is_multiple_of(64) {
                    spin_until(|| number < taken.load(Acquire) + STREAM as u64 - 64);
                }
                line.store(number, Release);
            } else {
                spin_until(|| line.load(Acquire) == number);
                if number.is_multiple_of(64) {
                    taken.store(number, Release);
                }
            }
        }
        self.streamed = to;
        self.exchange(false, |_| {});
        begun.elapsed().as_secs_f64() * 1e6 / LINES as f64
    }

    /// Microseconds of memcpy of `bytes` that the other core has just written, P50. On the last rank.
    pub(super) fn copy(&mut self, bytes: usize) -> f64 {
        let (mut budget, mut samples) = (Budget::new(COPIES), Vec::new());
        let mut to = vec![0; bytes];
        let mut value = 0_u8;
        loop {
            if self.first {
                value = value.wrapping_add(1);
                self.shared.fill(0, bytes, value);
            }
            let more = self.exchange(budget.more(), |shared| {
                let begun = Instant::now();
                shared.copy(0, 0, black_box(&mut to));
                samples.push(begun.elapsed().as_secs_f64() * 1e6);
            });
            if !more {
                break;
            }
        }
        median(samples).unwrap_or(f64::NAN)
    }

    /// Microseconds a message to copy windows of messages into buffers of their own, one after the other; with
    /// `both_ways` both ranks copy at the same time, and the time of two messages is halved. On the last rank.
    pub(super) fn copy_windows(&mut self, window: usize, bytes: usize, both_ways: bool) -> f64 {
        let (own, other) = if self.first { (0, 1) } else { (1, 0) };
        // What a core wrote itself lies where a sender's buffers lie.
        self.shared.fill(own, window * bytes, 1);
        self.exchange(false, |_| {});
        let copies = both_ways || !self.first;
        let mut buffers = vec![vec![0; bytes]; if copies { window } else { 0 }];
        let (mut budget, mut samples) = (Budget::new(COPIES), Vec::new());
        loop {
            let more = self.exchange(budget.more(), |_| {});
            let begun = Instant::now();
            for (index, buffer) in buffers.iter_mut().enumerate() {
                self.shared.copy(other, index * bytes, black_box(buffer));
            }
            samples.push(begun.elapsed().as_secs_f64() * 1e6 / window as f64);
            if !more {
                break;
            }
        }
        self.exchange(false, |_| {});
        let each = median(samples).unwrap_or(f64::NAN);
        if both_ways { each / 2.0 } else { each }
    }
}
