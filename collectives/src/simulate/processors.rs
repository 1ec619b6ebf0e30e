//! The processors of a machine on which all ranks run: a rank that has something to do waits for one, does all it has, and
//! gives it back.
//!
//! Knows neither messages nor schedules: work is a time, and an event that happens when it is done.

use super::Event;
use std::collections::VecDeque;

/// How often a rank that waits gives way to others before it sleeps: see the runtime's waiting.
const YIELDS: u32 = 4;

/// One rank's process.
#[derive(Debug, Default)]
struct Process {
    work: VecDeque<(f64, Event)>,
    /// It has a processor, or waits for one.
    awake: bool,
    /// How often it has had one and found nothing to do.
    yields: u32,
}

/// Processors and processes.
#[derive(Debug)]
pub(super) struct Processors {
    number: usize,
    free: usize,
    /// What it takes to give one to another rank.
    turn: f64,
    processes: Vec<Process>,
    /// Ranks that wait for one, in the order in which they began to.
    waiting: VecDeque<usize>,
    busy: f64,
}

impl Processors {
    pub(super) fn new(number: usize, turn: f64, ranks: usize) -> Processors {
        let number = number.max(1);
        let processes = (0..ranks).map(|_| Process::default()).collect();
        Processors { number, free: number, turn, processes, waiting: VecDeque::new(), busy: 0.0 }
    }

    /// A rank has work for so long, and then `event` happens.
    pub(super) fn add(&mut self, rank: usize, time: f64, event: Event) {
        let process = &mut self.processes[rank];
        process.work.push_back((time, event));
        if !process.awake {
            process.awake = true;
            self.waiting.push_back(rank);
        }
    }

    /// Gives a processor that is free to the rank that has waited longest: which one, and when it begins.
    pub(super) fn next(&mut self, now: f64) -> Option<(f64, usize)> {
        if self.free == 0 {
            return None;
        }
        let rank = self.waiting.pop_front()?;
        self.free -= 1;
        self.busy += self.turn;
        Some((now + self.turn, rank))
    }

    /// What a rank that has a processor does next: for how long, and what happens then. `None`: nothing, the processor is
    /// free.
    pub(super) fn turn(&mut self, rank: usize) -> Option<(f64, Event)> {
        let process = &mut self.processes[rank];
        let next = process.work.pop_front();
        match next {
            Some((time, _)) => {
                process.yields = 0;
                self.busy += time;
            }
            None if process.yields < YIELDS && !self.waiting.is_empty() => {
                process.yields += 1;
                self.waiting.push_back(rank);
                self.free += 1;
            }
            None => {
                (process.awake, process.yields) = (false, 0);
                self.free += 1;
            }
        }
        next
    }

    /// The share of a time that they were busy.
    #[allow(clippy::cast_precision_loss)] // A number of processors.
    pub(super) fn share(&self, seconds: f64) -> f64 {
        self.busy / (seconds * self.number as f64).max(f64::MIN_POSITIVE)
    }
}
