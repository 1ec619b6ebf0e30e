//! The two ends of a ring that one side writes and the other reads: where the next record goes, and when its place is
//! free again. Pure: positions in, positions out.
//!
//! A ring has units. A record takes whole units without a gap, so that the end of the ring may be left out. A record is
//! announced by the unit where it begins, and the same number says how much its sender has read of the ring in the other
//! direction: ranks that answer each other return credits for nothing. Where no record goes back, the reader returns a
//! quarter of the ring at a time; no record is larger than a quarter, so that one always fits into what has been returned.

/// A ring's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) units: u32,
    /// Bytes of each.
    pub(super) unit: usize,
}

impl Size {
    pub(super) fn bytes(self) -> usize {
        self.units as usize * self.unit
    }

    /// The largest record in bytes.
    pub(super) fn largest(self) -> usize {
        self.bytes() / 4
    }

    fn units_of(self, bytes: usize) -> u64 {
        bytes.div_ceil(self.unit).max(1) as u64
    }

    /// Units that are left out before a record of `need` units, when the next free one is `at`.
    fn skip(self, at: u64, need: u64) -> u64 {
        let place = at % u64::from(self.units);
        if place + need > u64::from(self.units) { u64::from(self.units) - place } else { 0 }
    }
}

/// Bits of a number that say where a record begins.
const UNIT_BITS: u32 = 12;
/// The most units of a ring.
const MOST_UNITS: u32 = 1 << UNIT_BITS;
/// Credits count modulo two to the power of 19, far more than a ring has units.
const COUNT: u64 = (1 << (31 - UNIT_BITS)) - 1;
/// Set in the number that comes with a write when it returns credits and nothing else.
const CREDIT: u32 = 1 << 31;

/// What the number that comes with a write says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// A record begins at this unit; its sender has read so many units in all, modulo 2^19.
    Record { unit: u32, count: u32 },
    /// So many units have been read in all, modulo 2^19.
    Credit(u32),
}

impl Notice {
    pub(super) fn to_number(self) -> u32 {
        match self {
            Self::Record { unit, count } => count << UNIT_BITS | unit,
            Self::Credit(count) => CREDIT | count << UNIT_BITS,
        }
    }

    pub(super) fn from_number(number: u32) -> Self {
        let count = (number & !CREDIT) >> UNIT_BITS;
        if number & CREDIT == 0 { Self::Record { unit: number % MOST_UNITS, count } } else { Self::Credit(count) }
    }
}

/// The writer's end.
#[derive(Debug)]
pub(super) struct Outbox {
    size: Size,
    written: u64,
    returned: u64,
}

impl Outbox {
    pub(super) fn new(size: Size) -> Self {
        assert!(size.units <= MOST_UNITS, "a record says where it begins in {UNIT_BITS} bits");
        Self { size, written: 0, returned: 0 }
    }

    /// Units written in all, those left out included.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// A place for a record: its unit. `sent`: units whose copy on this side may be written again. `None`: no room now.
    pub(super) fn place(&mut self, bytes: usize, sent: u64) -> Option<u32> {
        let need = self.size.units_of(bytes);
        let end = self.written + self.size.skip(self.written, need) + need;
        if end - self.returned.min(sent) > u64::from(self.size.units) {
            return None;
        }
        self.written = end;
        u32::try_from((end - need) % u64::from(self.size.units)).ok()
    }

    /// The reader has returned units.
    pub(super) fn credit(&mut self, count: u32) -> Result<(), &'static str> {
        let more = u64::from(count).wrapping_sub(self.returned) & COUNT;
        if self.returned + more > self.written {
            return Err("credit for what was never sent");
        }
        self.returned += more;
        Ok(())
    }
}

/// The reader's end.
#[derive(Debug)]
pub(super) struct Inbox {
    size: Size,
    arrived: u64,
    read: u64,
    told: u64,
}

/// A record that has arrived: where it lies, and the count of units after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) at: usize,
    pub(super) bytes: usize,
    end: u64,
}

impl Inbox {
    pub(super) fn new(size: Size) -> Self {
        Self { size, arrived: 0, read: 0, told: 0 }
    }

    /// A record was announced at this unit.
    pub(super) fn arrive(&mut self, unit: u32, bytes: usize) -> Result<Arrival, &'static str> {
        let need = self.size.units_of(bytes);
        let begin = self.arrived + self.size.skip(self.arrived, need);
        let units = u64::from(self.size.units);
        if need > units || begin % units != u64::from(unit) || begin + need - self.read > units {
            return Err("a record at a place that is not its own");
        }
        self.arrived = begin + need;
        Ok(Arrival { at: unit as usize * self.size.unit, bytes, end: self.arrived })
    }

    /// A record has been read; records are read in the order in which they arrived.
    pub(super) fn release(&mut self, arrival: Arrival) {
        self.read = arrival.end;
    }

    /// Whether enough has been read to be returned by a write of its own.
    pub(super) fn owes(&self) -> bool {
        self.read - self.told >= u64::from(self.size.units / 4)
    }

    /// Whether enough has been read to be returned with a record: sooner, so that no write of its own becomes due.
    pub(super) fn owes_some(&self) -> bool {
        self.read - self.told >= u64::from(self.size.units / 8)
    }

    /// The count to return, modulo 2^19.
    pub(super) fn credit(&mut self) -> u32 {
        self.told = self.read;
        self.returned()
    }

    /// The count that was returned last, modulo 2^19.
    pub(super) fn returned(&self) -> u32 {
        u32::try_from(self.told & COUNT).expect("19 bits")
    }
}

/// Credits that may be under way unread at once: each returns a quarter, and more than the ring cannot be owed.
pub(super) const MOST_CREDITS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn a_number_is_a_record_or_a_credit_and_never_both() {
        let most = u32::try_from(COUNT).unwrap();
        for count in [0, 1, most] {
            for unit in [0, 1, MOST_UNITS - 1] {
                let record = Notice::Record { unit, count };
                assert_eq!(Notice::from_number(record.to_number()), record);
            }
            assert_eq!(Notice::from_number(Notice::Credit(count).to_number()), Notice::Credit(count));
        }
    }

    #[test]
    fn credit_for_more_than_was_sent_is_refused() {
        let mut outbox = Outbox::new(Size { units: 8, unit: 64 });
        assert_eq!(outbox.place(100, 0), Some(0));
        assert!(outbox.credit(3).is_err());
        assert!(outbox.credit(2).is_ok());
    }

    #[test]
    fn a_record_that_is_announced_elsewhere_than_it_must_be_is_refused() {
        let mut inbox = Inbox::new(Size { units: 8, unit: 64 });
        assert!(inbox.arrive(1, 64).is_err());
        assert!(inbox.arrive(0, 9 * 64).is_err());
        assert!(inbox.arrive(0, 64).is_ok());
        assert!(inbox.arrive(0, 64).is_err());
    }

    #[test]
    fn counting_goes_on_past_the_modulus() {
        let size = Size { units: 16, unit: 64 };
        let start = COUNT - 10;
        let mut outbox = Outbox { size, written: start, returned: start };
        let mut inbox = Inbox { size, arrived: start, read: start, told: start };
        for _ in 0..100 {
            let unit = outbox.place(128, u64::MAX).unwrap();
            let arrival = inbox.arrive(unit, 128).unwrap();
            inbox.release(arrival);
            if inbox.owes() {
                outbox.credit(inbox.credit()).unwrap();
            }
        }
    }

    proptest! {
        /// Whatever is sent, read and returned in which order: records never overlap what is unread, arrive where the
        /// writer put them, and when everything has been read a record of any size fits.
        #[test]
        fn records_never_meet_and_the_ring_never_sticks(
            units in 4_u32..40, steps in prop::collection::vec((1_usize..4000, any::<[bool; 2]>()), 1..400),
        ) {
            let size = Size { units: units * 4, unit: 64 };
            let (mut outbox, mut inbox) = (Outbox::new(size), Inbox::new(size));
            let mut unread: VecDeque<Arrival> = VecDeque::new();
            for (bytes, [read, answer]) in steps {
                let bytes = bytes.min(size.largest());
                match outbox.place(bytes, u64::MAX) {
                    Some(unit) => {
                        let arrival = inbox.arrive(unit, bytes).unwrap();
                        let (from, to) = (arrival.at, arrival.at + bytes);
                        prop_assert!(to <= size.bytes());
                        prop_assert!(unread.iter().all(|other| to <= other.at || other.at + other.bytes <= from));
                        unread.push_back(arrival);
                    }
                    None => prop_assert!(!unread.is_empty(), "an empty ring takes any record"),
                }
                if read && let Some(arrival) = unread.pop_front() {
                    inbox.release(arrival);
                }
                if answer {
                    // A record in the other direction.
                    if inbox.owes_some() {
                        inbox.credit();
                    }
                    outbox.credit(inbox.returned()).unwrap();
                }
                if inbox.owes() {
                    outbox.credit(inbox.credit()).unwrap();
                }
            }
        }
    }
}
