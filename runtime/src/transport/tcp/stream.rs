//! What makes a lane outlive its sockets: the bytes that the peer has not confirmed are kept and sent again.
//!
//! A lane is a stream of bytes numbered from 0 in each direction. Pure: counts and bytes, no sockets and no clock.

use std::collections::VecDeque;

/// The sending half: bytes that the peer has not confirmed yet.
#[derive(Debug)]
pub(super) struct Outbox {
    /// The number of the first byte that is kept: the peer has everything before.
    confirmed: u64,
    /// The number of the first byte that the current connection has not taken.
    given: u64,
    kept: VecDeque<u8>,
    /// Bytes kept from which on nothing more is taken.
    window: usize,
    /// Whether a broken connection is replaced: otherwise nothing is kept that the connection has taken.
    again: bool,
}

/// What the peer claims to have cannot be: it lost count, or this is another stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch;

impl Outbox {
    /// `again`: what the peer has not confirmed is sent again over another connection.
    pub(super) fn new(window: usize, again: bool) -> Self {
        Outbox { confirmed: 0, given: 0, kept: VecDeque::new(), window, again }
    }

    /// The number of the byte after the last one.
    fn end(&self) -> u64 {
        self.confirmed + self.kept.len() as u64
    }

    pub(super) fn is_full(&self) -> bool {
        self.kept.len() >= self.window
    }

    /// Whether anything was ever put in.
    pub(super) fn is_used(&self) -> bool {
        self.end() > 0
    }

    /// Bytes that the connection has not taken.
    pub(super) fn pending(&self) -> usize {
        usize::try_from(self.end() - self.given).expect("what is pending is in memory")
    }

    /// Bytes that the peer has not confirmed.
    #[cfg(test)]
    pub(super) fn unconfirmed(&self) -> usize {
        self.kept.len()
    }

    /// Adds bytes, of which the connection has taken `given` already: more than none only when nothing was pending.
    pub(super) fn put(&mut self, head: &[u8], body: &[u8], given: usize) {
        debug_assert!(given == 0 || self.pending() == 0);
        self.given += given as u64;
        let done = if self.again { 0 } else { given };
        self.confirmed += done as u64;
        let of_head = done.min(head.len());
        self.kept.extend(&head[of_head..]);
        self.kept.extend(&body[done - of_head..]);
    }

    /// The next bytes for the connection.
    pub(super) fn next(&self) -> (&[u8], &[u8]) {
        let skip = self.kept.len() - self.pending();
        let (first, second) = self.kept.as_slices();
        match first.get(skip..) {
            Some(rest) => (rest, second),
            None => (&second[skip - first.len()..], &[]),
        }
    }

    /// The connection has taken this many of [`Outbox::next`].
    pub(super) fn gave(&mut self, bytes: usize) {
        self.given += bytes as u64;
        debug_assert!(self.given <= self.end());
        if !self.again {
            self.kept.drain(..bytes);
            self.confirmed += bytes as u64;
        }
    }

    /// The peer has everything before the byte whose number ends in these 32 bits. What was said before and arrives late,
    /// because a record was sent again, changes nothing.
    pub(super) fn confirm(&mut self, low: u32) {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is compared")]
        let ahead = low.wrapping_sub(self.confirmed as u32) as usize;
        let taken = self.kept.len() - self.pending();
        if ahead <= taken {
            self.kept.drain(..ahead);
            self.confirmed += ahead as u64;
        }
    }

    /// A new connection, at whose other end everything before `received` has arrived; how many bytes are sent again.
    pub(super) fn resume(&mut self, received: u64) -> Result<u64, Mismatch> {
        if received < self.confirmed || received > self.given {
            return Err(Mismatch);
        }
        let again = self.given - received;
        let done = usize::try_from(received - self.confirmed).map_err(|_| Mismatch)?;
        self.kept.drain(..done);
        self.confirmed = received;
        self.given = received;
        Ok(again)
    }
}

/// The receiving half: how much has arrived, and how much of that the peer knows.
#[derive(Debug)]
pub(super) struct Inbox {
    received: u64,
    told: u64,
    /// Bytes after which the peer is told even when there is nothing else to say.
    tell_after: u64,
}

impl Inbox {
    /// As the peer's [`Outbox`].
    pub(super) fn new(window: usize, again: bool) -> Self {
        let tell_after = if again { (window as u64 / 4).max(1) } else { u64::MAX };
        Inbox { received: 0, told: 0, tell_after }
    }

    pub(super) fn took(&mut self, bytes: usize) {
        self.received += bytes as u64;
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// What a record that is sent now confirms.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is sent")]
    pub(super) fn tell(&mut self) -> u32 {
        self.told = self.received;
        self.received as u32
    }

    /// Whether the peer waits for a confirmation, or soon will.
    pub(super) fn is_due(&self) -> bool {
        self.received - self.told >= self.tell_after
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn next(out: &Outbox) -> Vec<u8> {
        let (first, second) = out.next();
        [first, second].concat()
    }

    #[test]
    fn bytes_are_kept_until_they_are_confirmed() {
        let mut out = Outbox::new(8, true);
        out.put(b"ab", b"cdef", 4);
        assert_eq!((next(&out), out.pending(), out.is_full()), (b"ef".to_vec(), 2, false));
        out.put(b"gh", b"", 0);
        assert!(out.is_full());
        out.gave(4);
        out.confirm(5);
        assert!(!out.is_full() && out.unconfirmed() == 3);
        assert_eq!(out.resume(6), Ok(2));
        assert_eq!(next(&out), b"gh");
    }

    #[test]
    fn a_confirmation_that_arrives_late_or_of_what_was_never_sent_changes_nothing() {
        let mut out = Outbox::new(8, true);
        out.put(b"abcdef", b"", 4);
        out.confirm(3);
        for wrong in [2, 0, 5, u32::MAX] {
            out.confirm(wrong);
            assert_eq!(out.unconfirmed(), 3, "{wrong}");
        }
    }

    #[test]
    fn without_another_connection_only_what_none_has_taken_is_kept() {
        let (mut out, mut inn) = (Outbox::new(8, false), Inbox::new(8, false));
        out.put(b"ab", b"cdef", 1);
        assert_eq!((next(&out), out.unconfirmed()), (b"bcdef".to_vec(), 5));
        out.gave(2);
        assert_eq!((next(&out), out.unconfirmed()), (b"def".to_vec(), 3));
        out.gave(3);
        out.put(b"gh", b"ijk", 4);
        assert_eq!((next(&out), out.unconfirmed()), (b"k".to_vec(), 1));
        out.confirm(8);
        assert_eq!(out.unconfirmed(), 1);
        inn.took(1 << 20);
        assert!(!inn.is_due());
    }

    #[test]
    fn a_peer_that_has_lost_count_is_refused() {
        let mut out = Outbox::new(8, true);
        out.put(b"abcdef", b"", 4);
        out.confirm(3);
        assert_eq!(out.resume(2), Err(Mismatch));
        assert_eq!(out.resume(5), Err(Mismatch));
        assert_eq!(out.resume(3), Ok(1));
    }

    #[test]
    fn confirmations_go_on_beyond_four_gigabytes() {
        let start = u64::from(u32::MAX) - 3;
        let mut out = Outbox { confirmed: start, given: start, kept: VecDeque::new(), window: 64, again: true };
        let mut inn = Inbox { received: start, told: start, tell_after: 4 };
        out.put(&[7; 20], b"", 20);
        inn.took(20);
        assert!(inn.is_due());
        out.confirm(inn.tell());
        assert_eq!((out.unconfirmed(), out.confirmed), (0, start + 20));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(usize, usize),
        Carry(usize),
        Confirm,
        Break(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..30_usize, 0..40_usize).prop_map(|(length, given)| Step::Put(length, given)),
            4 => (0..50_usize).prop_map(Step::Carry),
            2 => Just(Step::Confirm),
            1 => (0..100_usize).prop_map(Step::Break),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        /// A sender, a wire that breaks at any byte, and a receiver: what arrives is what was sent, once.
        #[test]
        fn whatever_breaks_the_stream_arrives_whole_and_once(steps in steps()) {
            let (mut out, mut inn) = (Outbox::new(100, true), Inbox::new(100, true));
            let (mut sent, mut arrived, mut wire) = (Vec::new(), Vec::new(), VecDeque::new());
            let mut number = 0_u8;
            let mut stale = 0;
            for step in steps {
                match step {
                    Step::Put(length, given) if !out.is_full() => {
                        let bytes: Vec<u8> = (0..length).map(|_| { number = number.wrapping_add(1); number }).collect();
                        let given = if out.pending() == 0 { given.min(length) } else { 0 };
                        let (head, body) = bytes.split_at(length / 3);
                        out.put(head, body, given);
                        wire.extend(&bytes[..given]);
                        sent.extend(bytes);
                        prop_assert!(out.unconfirmed() <= 100 + 30);
                    }
                    Step::Put(..) => {}
                    Step::Carry(most) => {
                        let pending = next(&out);
                        let now = most.min(pending.len());
                        wire.extend(&pending[..now]);
                        out.gave(now);
                        let now = most.min(wire.len());
                        arrived.extend(wire.drain(..now));
                        inn.took(now);
                    }
                    Step::Confirm => {
                        out.confirm(stale);
                        stale = inn.tell();
                        out.confirm(stale);
                    }
                    Step::Break(still) => {
                        let now = still.min(wire.len());
                        arrived.extend(wire.drain(..now));
                        inn.took(now);
                        wire.clear();
                        prop_assert!(out.resume(inn.received()).is_ok());
                    }
                }
                prop_assert!(sent.starts_with(&arrived));
            }
            wire.extend(next(&out));
            arrived.extend(wire);
            prop_assert_eq!(arrived, sent);
        }
    }
}
