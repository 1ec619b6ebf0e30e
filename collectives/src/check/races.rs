//! Finds steps of one rank that may run at the same time and touch the same elements, one of them writing.

use super::fault::Fault;
use crate::schedule::{Buffer, Schedule, Slice};

/// An access of a step to elements of a buffer.
struct Access {
    buffer: Buffer,
    start: usize,
    end: usize,
    step: usize,
    writes: bool,
}

/// Shows that conflicting steps are ordered by dependencies of this rank alone.
pub(super) fn check(rank: usize, schedule: &Schedule) -> Result<(), Fault> {
    let before = Ancestors::of(schedule);
    let mut accesses = accesses(schedule);
    accesses.sort_unstable_by_key(|access| (access.buffer, access.start));
    let mut open: Vec<&Access> = Vec::new();
    for access in &accesses {
        open.retain(|other| other.buffer == access.buffer && other.end > access.start);
        for other in &open {
            let (first, second) = (other.step.min(access.step), other.step.max(access.step));
            if first != second && (other.writes || access.writes) && !before.contains(second, first) {
                return Err(Fault::Race { rank, first, second });
            }
        }
        open.push(access);
    }
    Ok(())
}

fn accesses(schedule: &Schedule) -> Vec<Access> {
    let mut accesses = Vec::new();
    for (step, action) in schedule.steps().iter().map(|step| step.action).enumerate() {
        let mut add = |slice: Slice, writes: bool| {
            if slice.length > 0 {
                let (start, end) = (slice.offset, slice.offset + slice.length);
                accesses.push(Access { buffer: slice.buffer, start, end, step, writes });
            }
        };
        action.reads().into_iter().flatten().for_each(|slice| add(slice, false));
        action.writes().into_iter().for_each(|slice| add(slice, true));
    }
    accesses
}

/// For each step the set of steps that are complete before it starts.
struct Ancestors {
    words: usize,
    sets: Vec<u64>,
}

impl Ancestors {
    fn of(schedule: &Schedule) -> Ancestors {
        let count = schedule.steps().len();
        let words = count.div_ceil(64);
        let mut sets = vec![0u64; count * words];
        for step in 0..count {
            let (done, rest) = sets.split_at_mut(step * words);
            for before in schedule.dependencies(step).iter().map(|&before| before as usize) {
                rest[before / 64] |= 1 << (before % 64);
                for (own, inherited) in rest.iter_mut().zip(&done[before * words..(before + 1) * words]) {
                    *own |= inherited;
                }
            }
        }
        Ancestors { words, sets }
    }

    fn contains(&self, step: usize, ancestor: usize) -> bool {
        self.sets[step * self.words + ancestor / 64] >> (ancestor % 64) & 1 == 1
    }
}
