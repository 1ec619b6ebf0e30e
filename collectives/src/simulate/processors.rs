//! The processors of a machine on which all ranks run: a rank that has something to do waits for one, does all it has, and
//! gives it back.
//!
//! Each has a queue of its own, as in Linux: a rank that wakes up goes to the shorter one, a processor without work takes
//! from the other, and between that everyone has its turn. What a host's system does for connections, in interrupts, comes first. A rank that waits looks into memory, gives way a few times, and only
//! then, before it sleeps, looks at its connections; also when it has sent something there: see the runtime's waiting.
//!
//! Knows neither messages nor schedules: work is a time, and an event that happens when it is done.

use super::Event;
use super::fabric::Machine;
use std::collections::VecDeque;

/// How often a rank that waits gives way to others before it sleeps.
const YIELDS: u32 = 4;

/// Where a rank finds what it has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// In its own program or in memory.
    Here,
    /// Here, and it looks at its connections with that.
    Sending,
    /// At a connection.
    Connection,
}

/// One rank's process.
#[derive(Debug)]
struct Process {
    work: VecDeque<(f64, Event, Source)>,
    /// What has come by connections at which it has not looked yet.
    unseen: VecDeque<(f64, Event, Source)>,
    /// It has a processor, or waits for one.
    awake: bool,
    /// How often it has had one and found nothing to do.
    yields: u32,
    /// The processor that it was on.
    home: usize,
}

/// One of them.
#[derive(Debug, Default)]
struct Processor {
    runs: Option<usize>,
    /// Ranks that wait for it, in the order in which they began to.
    queue: VecDeque<usize>,
}

impl Processor {
    fn load(&self) -> usize {
        self.queue.len() + usize::from(self.runs.is_some())
    }
}

/// Processors and processes.
#[derive(Debug)]
pub(super) struct Processors {
    processors: Vec<Processor>,
    /// Also those that are never used.
    number: usize,
    /// What it takes to give one to another rank.
    turn: f64,
    /// Of the ranks, and one of each host's system.
    processes: Vec<Process>,
    ranks: usize,
    busy: f64,
}

impl Processors {
    pub(super) fn new(machine: &Machine, ranks: usize, hosts: usize) -> Processors {
        // More than processes are never used.
        let number = machine.processors.clamp(1, (ranks + hosts).max(1));
        let process = |rank: usize| Process {
            work: VecDeque::new(),
            unseen: VecDeque::new(),
            awake: false,
            yields: 0,
            home: rank % number,
        };
        Processors {
            processors: (0..number).map(|_| Processor::default()).collect(),
            number: machine.processors.max(1),
            turn: machine.turn,
            processes: (0..ranks + hosts).map(process).collect(),
            ranks,
            busy: 0.0,
        }
    }

    /// A rank has work for so long, and then `event` happens.
    pub(super) fn add(&mut self, rank: usize, time: f64, event: Event, source: Source) {
        let process = &mut self.processes[rank];
        let unseen = process.awake && source == Source::Connection;
        let work = if unseen { &mut process.unseen } else { &mut process.work };
        work.push_back((time, event, source));
        if !process.awake {
            let queue = self.wake(rank);
            queue.push_back(rank);
        }
    }

    /// A host's system has work for so long, and then `event` happens.
    pub(super) fn add_to_system(&mut self, host: usize, time: f64, event: Event) {
        let system = self.ranks + host;
        self.processes[system].work.push_back((time, event, Source::Here));
        if !self.processes[system].awake {
            let queue = self.wake(system);
            queue.push_front(system);
        }
    }

    /// The queue for a process that wakes up.
    fn wake(&mut self, process: usize) -> &mut VecDeque<usize> {
        self.processes[process].awake = true;
        let home = self.processes[process].home;
        let shorter = |&at: &usize| (self.processors[at].load(), at != home);
        let shortest = (0..self.processors.len()).min_by_key(shorter).unwrap_or(home);
        &mut self.processors[shortest].queue
    }

    /// Gives a processor that is free to the rank that has waited longest for it, or for the busiest one if nobody waits for
    /// it: which rank, and when it begins.
    pub(super) fn next(&mut self, now: f64) -> Option<(f64, usize)> {
        let free = (0..self.processors.len()).filter(|&at| self.processors[at].runs.is_none());
        let waiting = |at: usize| self.processors[at].queue.len();
        let found = free.map(|at| {
            let busiest = (0..self.processors.len()).max_by_key(|&other| waiting(other)).unwrap_or(at);
            (at, if waiting(at) > 0 { at } else { busiest })
        });
        let (at, from) = found.into_iter().find(|&(_, from)| waiting(from) > 0)?;
        let rank = self.processors[from].queue.pop_front()?;
        self.processors[at].runs = Some(rank);
        let process = &mut self.processes[rank];
        process.home = at;
        // The system comes by an interrupt.
        let time = if rank < self.ranks { self.turn } else { 0.0 };
        self.busy += time;
        Some((now + time, rank))
    }

    /// What a rank that has a processor does next: for how long, and what happens then. `None`: nothing, the processor is
    /// free.
    pub(super) fn turn(&mut self, rank: usize) -> Option<(f64, Event)> {
        let process = &mut self.processes[rank];
        let processor = &mut self.processors[process.home];
        let gives_way = rank < self.ranks && process.yields < YIELDS && !processor.queue.is_empty();
        if process.work.is_empty() && !gives_way {
            process.work.append(&mut process.unseen);
        }
        if let Some((time, event, source)) = process.work.pop_front() {
            if source == Source::Sending {
                process.work.append(&mut process.unseen);
            }
            process.yields = 0;
            self.busy += time;
            return Some((time, event));
        }
        processor.runs = None;
        if gives_way {
            process.yields += 1;
            processor.queue.push_back(rank);
        } else {
            (process.awake, process.yields) = (false, 0);
        }
        None
    }

    /// Seconds that they were busy, added up.
    pub(super) fn busy(&self) -> f64 {
        self.busy
    }

    /// The share of a time that they were busy.
    #[allow(clippy::cast_precision_loss)] // A number of processors.
    pub(super) fn share(&self, seconds: f64) -> f64 {
        self.busy / (seconds * self.number as f64).max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Work;
    use super::*;

    const RANKS: usize = 3;

    fn of(processors: usize) -> Processors {
        let work = Work { message: 0.0, byte: 0.0 };
        let machine = Machine { processors, inside: work, between: work, reduced: 0.0, turn: 1.0 };
        Processors::new(&machine, RANKS, 1)
    }

    fn event(rank: usize) -> Event {
        Event::Complete { step: 0, rank }
    }

    #[test]
    fn ranks_take_turns_and_each_costs_one() {
        let mut all = of(1);
        (0..2).for_each(|rank| all.add(rank, 100.0, event(rank), Source::Here));
        assert_eq!(all.next(0.0), Some((1.0, 0)));
        assert_eq!(all.next(0.0), None, "there is one processor");
        assert_eq!(all.turn(0), Some((100.0, event(0))));
        // Nothing is left for it, and somebody waits.
        assert_eq!(all.turn(0), None);
        assert_eq!(all.next(101.0), Some((102.0, 1)));
        assert_eq!(all.turn(1), Some((100.0, event(1))));
        assert_eq!(all.turn(1), None);
        assert_eq!(all.next(202.0), Some((203.0, 0)));
        assert_eq!(all.busy(), 3.0 + 200.0);
    }

    #[test]
    fn a_rank_that_waits_looks_at_its_connections_before_it_sleeps_and_when_it_sends() {
        for sends in [false, true] {
            let mut all = of(1);
            all.add(0, 1.0, event(0), if sends { Source::Sending } else { Source::Here });
            all.add(1, 1.0, event(1), Source::Here);
            assert!(all.next(0.0).is_some());
            all.add(0, 7.0, event(0), Source::Connection);
            assert_eq!(all.turn(0), Some((1.0, event(0))));
            let (mut turns, mut found) = (0, all.turn(0));
            while found.is_none() {
                let (_, rank) = all.next(0.0).expect("both are awake");
                turns += 1;
                found = all.turn(rank);
                while rank == 1 && found.is_some() {
                    found = all.turn(rank);
                }
            }
            assert_eq!(found, Some((7.0, event(0))));
            // Both in turn: four times, and then it looks.
            assert_eq!(turns, if sends { 0 } else { 8 });
        }
    }

    #[test]
    fn the_system_goes_before_ranks_and_costs_no_turn_and_ranks_wake_where_fewer_wait() {
        let mut all = of(2);
        (0..RANKS).for_each(|rank| all.add(rank, 5.0, event(rank), Source::Here));
        let started: Vec<_> = (0..3).map(|_| all.next(0.0)).collect();
        assert_eq!(started, [Some((1.0, 0)), Some((1.0, 1)), None]);
        all.add_to_system(0, 3.0, event(9));
        assert_eq!(all.turn(0), Some((5.0, event(0))));
        assert_eq!(all.turn(0), None);
        let (at, first) = all.next(20.0).expect("both wait");
        assert_eq!((at, first), if first == RANKS { (20.0, RANKS) } else { (21.0, 2) });
    }
}
