//! Entries that wait in the order of their numbers, found by pattern in constant time.
//!
//! The first few lie in a short list, which is searched: that is what nearly every program has, and costs no hashing. The
//! others are in queues by pattern, as many at once as there are patterns that may ask for them. It knows neither messages
//! nor receives.

use super::Pattern;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Entries that are searched one by one: a window of usual size, whose entries are all alike, so that the first one fits.
pub(super) const SHORT: usize = 64;
/// Room for this many entries is kept when all are gone.
const KEPT: usize = 1024;
/// No slot.
const NONE: u32 = u32::MAX;

/// What waits, under `N` patterns at once.
pub(super) trait Entry<const N: usize> {
    fn patterns(&self) -> [Pattern; N];
}

/// Finds an entry again as long as it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    number: u64,
    /// [`NONE`]: in the short list.
    slot: u32,
}

#[derive(Debug)]
pub(super) struct Waiting<T, const N: usize> {
    /// In the order of their numbers.
    short: VecDeque<(u64, T)>,
    slots: Vec<Slot<T, N>>,
    free: Vec<u32>,
    queues: FxHashMap<Pattern, Ends>,
    /// How many of `queues` there are of each kind of pattern: kinds that nobody uses are not looked up.
    kinds: [usize; Pattern::KINDS],
    /// Nothing in `slots` has a smaller number than this.
    slots_from: u64,
    #[cfg(test)]
    pub(super) steps: std::cell::Cell<u64>,
}

#[derive(Debug)]
struct Slot<T, const N: usize> {
    number: u64,
    entry: Option<T>,
    links: [Link; N],
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

impl<T, const N: usize> Default for Waiting<T, N> {
    fn default() -> Self {
        Waiting {
            short: VecDeque::new(),
            slots: Vec::new(),
            free: Vec::new(),
            queues: FxHashMap::default(),
            kinds: [0; Pattern::KINDS],
            slots_from: u64::MAX,
            #[cfg(test)]
            steps: std::cell::Cell::new(0),
        }
    }
}

impl<T: Entry<N>, const N: usize> Waiting<T, N> {
    pub(super) fn is_empty(&self) -> bool {
        self.short.is_empty() && self.queues.is_empty()
    }

    /// Everything that waits, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Ticket, &T)> {
        let short = self.short.iter().map(|(number, entry)| (Ticket { number: *number, slot: NONE }, entry));
        let slots = self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let ticket = Ticket { number: slot.number, slot: u32::try_from(index).unwrap_or(NONE) };
            slot.entry.as_ref().map(|entry| (ticket, entry))
        });
        short.chain(slots)
    }

    /// Waits, at the place that its number gives it: nearly always behind all others.
    pub(super) fn insert(&mut self, number: u64, entry: T) -> Ticket {
        if self.short.len() < SHORT {
            if self.short.back().is_none_or(|(last, _)| *last < number) {
                self.short.push_back((number, entry));
            } else {
                let at = self.short.partition_point(|(other, _)| *other < number);
                self.short.insert(at, (number, entry));
            }
            return Ticket { number, slot: NONE };
        }
        self.slots_from = self.slots_from.min(number);
        let patterns = entry.patterns();
        let none = Link { before: NONE, after: NONE };
        let slot = Slot { number, entry: Some(entry), links: [none; N] };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).expect("fewer than 4 billion messages and receives wait")
            }
        };
        for (queue, pattern) in patterns.into_iter().enumerate() {
            self.link(queue, pattern, index, number);
        }
        Ticket { number, slot: index }
    }

    /// The entry with the smallest number under any of these patterns. `admits` says the same of an entry.
    #[inline]
    pub(super) fn first<const K: usize>(
        &self,
        patterns: impl FnOnce() -> [Pattern; K],
        admits: impl Fn(&T) -> bool,
    ) -> Option<Ticket> {
        match self.short.front() {
            None if self.queues.is_empty() => None,
            Some((number, entry)) if *number < self.slots_from && admits(entry) => {
                self.step();
                Some(Ticket { number: *number, slot: NONE })
            }
            _ => self.first_of_many(patterns, admits),
        }
    }

    /// As [`Waiting::first`], where there is more to look at.
    fn first_of_many<const K: usize>(
        &self,
        patterns: impl FnOnce() -> [Pattern; K],
        admits: impl Fn(&T) -> bool,
    ) -> Option<Ticket> {
        let short = self.short.iter().find(|(_, entry)| {
            self.step();
            admits(entry)
        });
        let mut first = short.map(|(number, _)| Ticket { number: *number, slot: NONE });
        if self.queues.is_empty() || first.is_some_and(|first| first.number < self.slots_from) {
            return first;
        }
        for pattern in patterns().iter().filter(|pattern| self.kinds[pattern.kind()] > 0) {
            self.step();
            if let Some(ends) = self.queues.get(pattern) {
                let number = self.slots[ends.first as usize].number;
                if first.is_none_or(|first| number < first.number) {
                    first = Some(Ticket { number, slot: ends.first });
                }
            }
        }
        first
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&T> {
        if ticket.slot == NONE {
            return self.short_at(ticket.number).map(|at| &self.short[at].1);
        }
        self.slots.get(ticket.slot as usize).filter(|slot| slot.number == ticket.number)?.entry.as_ref()
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        if ticket.slot == NONE {
            return self.short_at(ticket.number).map(|at| &mut self.short[at].1);
        }
        self.slots.get_mut(ticket.slot as usize).filter(|slot| slot.number == ticket.number)?.entry.as_mut()
    }

    /// Takes an entry out, with its number; `None` when it no longer waits.
    #[inline]
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<(u64, T)> {
        if ticket.slot == NONE {
            self.step();
            if self.short.front()?.0 == ticket.number {
                return self.short.pop_front();
            }
        }
        self.remove_amid(ticket)
    }

    /// As [`Waiting::remove`], of one that is not the first of the short list.
    fn remove_amid(&mut self, ticket: Ticket) -> Option<(u64, T)> {
        if ticket.slot == NONE {
            return self.short.remove(self.short_at(ticket.number)?);
        }
        let slot = self.slots.get_mut(ticket.slot as usize).filter(|slot| slot.number == ticket.number)?;
        let entry = slot.entry.take()?;
        let links = slot.links;
        for ((queue, pattern), link) in entry.patterns().into_iter().enumerate().zip(links) {
            self.unlink(queue, pattern, link);
        }
        self.free.push(ticket.slot);
        if self.queues.is_empty() {
            self.slots.clear();
            self.free.clear();
            self.slots_from = u64::MAX;
            if self.slots.capacity() > KEPT {
                self.slots = Vec::new();
                self.free = Vec::new();
                self.queues = FxHashMap::default();
            }
        }
        Some((ticket.number, entry))
    }

    /// Entries that there is room for without a new allocation.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity().max(self.queues.capacity()).max(self.free.capacity())
    }

    fn short_at(&self, number: u64) -> Option<usize> {
        self.step();
        self.short.binary_search_by_key(&number, |(number, _)| *number).ok()
    }

    /// Hangs a slot into a queue: at its end, at its beginning, or, rarely, in between.
    fn link(&mut self, queue: usize, pattern: Pattern, index: u32, number: u64) {
        self.step();
        let Some(ends) = self.queues.get_mut(&pattern) else {
            self.queues.insert(pattern, Ends { first: index, last: index });
            self.kinds[pattern.kind()] += 1;
            return;
        };
        let (mut before, mut after) = (ends.last, NONE);
        if number < self.slots[ends.first as usize].number {
            (before, after) = (NONE, ends.first);
        }
        while before != NONE && self.slots[before as usize].number > number {
            after = before;
            before = self.slots[before as usize].links[queue].before;
            #[cfg(test)]
            self.steps.set(self.steps.get() + 1);
        }
        match before {
            NONE => ends.first = index,
            before => self.slots[before as usize].links[queue].after = index,
        }
        match after {
            NONE => ends.last = index,
            after => self.slots[after as usize].links[queue].before = index,
        }
        self.slots[index as usize].links[queue] = Link { before, after };
    }

    fn unlink(&mut self, queue: usize, pattern: Pattern, link: Link) {
        self.step();
        if let Link { before: NONE, after: NONE } = link {
            self.queues.remove(&pattern);
            self.kinds[pattern.kind()] -= 1;
            return;
        }
        if link.before != NONE {
            self.slots[link.before as usize].links[queue].after = link.after;
        } else if let Some(ends) = self.queues.get_mut(&pattern) {
            ends.first = link.after;
        }
        if link.after != NONE {
            self.slots[link.after as usize].links[queue].before = link.before;
        } else if let Some(ends) = self.queues.get_mut(&pattern) {
            ends.last = link.before;
        }
    }

    /// Counts what tests bound.
    fn step(&self) {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
    }
}
