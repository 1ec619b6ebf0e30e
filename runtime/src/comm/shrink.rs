//! A communicator of those that are left.

use super::{
    Communicator,
    agreement::{Agreement, Gone, Word},
    expected,
};
use crate::{
    element::Element,
    engine::{
        Engine, LAST,
        operation::{Landing, NoBuffers, OperationId},
        vector::AnyVec,
    },
    error::{Error, Result},
    matching::Pattern,
    memory::{Activity, Operation},
    transport::record::{Header, Kind},
};
use sha2::{Digest, Sha256};
use std::sync::atomic::Ordering;

/// In the first word of a vote; a decision has its ballot there.
const VOTE: u64 = u64::MAX;

impl Communicator {
    /// A communicator of the ranks that have neither been lost nor dropped their world, in the same order. Collective
    /// among those: each must call it, as often as the others.
    ///
    /// All of them get the same members. A rank that dies meanwhile is left out, or is a lost member of the new
    /// communicator, on all ranks alike. Jobs go on after a loss only under `rsrun --on-failure continue`. Every pair of
    /// ranks exchanges a message or two.
    ///
    /// This communicator is revoked by it ([`Communicator::revoke`]): a rank that has gone on to shrink never answers on it
    /// again, so whoever waits for that rank, or for one that does, is woken by [`Error::Revoked`] and can shrink, too.
    ///
    /// ```no_run
    /// # use spmd::prelude::*;
    /// # fn step(comm: &Communicator) -> spmd::Result<()> { Ok(()) }
    /// # fn main() -> spmd::Result<()> {
    /// # let world = World::init()?;
    /// let mut comm = world.communicator();
    /// loop {
    ///     match step(&comm) {
    ///         Err(error) if error.is_loss() => comm = comm.shrink()?,
    ///         other => break other,
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the others have lost this rank.
    pub fn shrink(&self) -> Result<Self> {
        self.runtime().lock().revoke(self.inner.context);
        let number = self.inner.shrinks.fetch_add(1, Ordering::Relaxed);
        let context = self.context_of(b"agree", number, &[]);
        let here = self.inner.rank;
        let mut members = Members { communicator: self, context, arriving: Vec::new() };
        let mut agreement = Agreement::new(here, vec![false; self.size()]);
        let activity = Activity::Collective {
            operation: Operation::Shrink,
            number: u32::try_from(number.saturating_add(1)).unwrap_or(u32::MAX),
        };
        let gone = self.runtime().wait(activity, &mut NoBuffers, |engine, _| {
            members.step(engine, &mut agreement).map(|()| agreement.decision().cloned()).transpose()
        })?;
        // The decision that this rank passes on leaves before anything relies on it.
        self.runtime().poke()?;
        members.end(&agreement);
        if gone[here] {
            return Err(Error::Aborted { reason: "the other ranks have lost the connection to this one".into() });
        }
        let words: Vec<u64> = gone.iter().map(|gone| u64::from(*gone)).collect();
        let context = self.context_of(b"shrunk", number, &words);
        let left: Vec<usize> = (0..self.size()).filter(|member| !gone[*member]).collect();
        let rank = left.iter().position(|member| *member == here).unwrap_or(0);
        let members = left.into_iter().map(|member| self.inner.members[member]).collect();
        Ok(Communicator::new(self.inner.shared.clone(), members, rank, context, self.inner.hint.of_children()))
    }

    /// A context that all members name alike, and that differs when they mean something else.
    fn context_of(&self, purpose: &[u8], number: u64, words: &[u64]) -> u64 {
        let mut hash = Sha256::new();
        hash.update(purpose);
        for word in [self.inner.context, number].iter().chain(words) {
            hash.update(word.to_le_bytes());
        }
        let mut word = [0; 8];
        word.copy_from_slice(&hash.finalize()[..8]);
        u64::from_le_bytes(word) & !1
    }
}

/// Brings the words of an agreement to the other members.
struct Members<'a> {
    communicator: &'a Communicator,
    context: u64,
    /// Words that are being received.
    arriving: Vec<OperationId>,
}

impl Members<'_> {
    fn step(&mut self, engine: &mut Engine, agreement: &mut Agreement) -> Result<()> {
        let members = &self.communicator.inner.members;
        self.receive(engine, agreement)?;
        for (member, peer) in members.iter().enumerate() {
            if engine.is_gone(*peer) && !agreement.is_gone(member) {
                agreement.lost(member);
            }
        }
        for (to, word) in agreement.take_outgoing() {
            let words = encode(&word);
            let header = Header {
                context: self.context,
                tag: if matches!(word, Word::Decision { .. }) { LAST } else { 0 },
                total: size_of_val(&words[..]) as u64,
                signature: u64::signature().0,
                ..Header::new(Kind::Eager)
            };
            // Whoever is gone by now is found out in the next step.
            let _ = engine.send_whole(members[to], header, AnyVec::new(words));
        }
        Ok(())
    }

    /// It is decided: what others still say is of no interest, and nobody may wait for it.
    fn end(&mut self, agreement: &Agreement) {
        let mut engine = self.communicator.runtime().lock();
        for id in self.arriving.drain(..) {
            engine.abandon_receive(id);
        }
        let (members, here) = (&self.communicator.inner.members, self.communicator.inner.rank);
        let awaited = (0..members.len()).filter(|member| *member != here && !agreement.has_said_all(*member));
        engine.close(self.context, awaited.map(|member| members[member]).collect());
    }

    fn receive(&mut self, engine: &mut Engine, agreement: &mut Agreement) -> Result<()> {
        let any = Pattern { source: None, tag: None };
        while let Some(found) = engine.probe(self.context, any)? {
            let pattern = Pattern { source: Some(found.source), tag: Some(found.tag) };
            let landing = Landing::Growing(AnyVec::new(Vec::<u64>::new()));
            let expected = expected::<u64>(0, false);
            self.arriving.push(engine.start_receive(self.context, pattern, expected, landing, &mut NoBuffers)?);
        }
        let members = &self.communicator.inner.members;
        self.arriving.retain(|id| {
            let Some(received) = engine.take_receive(*id, &mut NoBuffers) else { return true };
            // A word of a member that died meanwhile is as good as never said.
            if let Ok((envelope, Some(buffer))) = received
                && let Some(from) = members.iter().position(|peer| *peer == envelope.source)
                && let Some(word) = decode(&buffer.into_elements::<u64>(), members.len())
            {
                agreement.heard(from, word);
            }
            false
        });
        Ok(())
    }
}

/// A word as the ballot, or [`VOTE`], and one bit a member: short enough to travel whole on every transport.
fn encode(word: &Word) -> Vec<u64> {
    let (first, gone) = match word {
        Word::Vote(gone) => (VOTE, gone),
        Word::Decision { ballot, gone } => (*ballot as u64, gone),
    };
    let pack = |bits: &[bool]| (0..).zip(bits).map(|(at, bit)| u64::from(*bit) << at).sum();
    std::iter::once(first).chain(gone.chunks(64).map(pack)).collect()
}

fn decode(words: &[u64], members: usize) -> Option<Word> {
    let (first, bits) = words.split_first()?;
    if bits.len() != members.div_ceil(64) {
        return None;
    }
    let gone: Gone = (0..members).map(|member| bits[member / 64] >> (member % 64) & 1 == 1).collect();
    if *first == VOTE {
        return Some(Word::Vote(gone));
    }
    let ballot = usize::try_from(*first).ok().filter(|ballot| *ballot < members)?;
    Some(Word::Decision { ballot, gone })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_survives_its_message_and_what_is_none_is_refused() {
        for members in [1, 3, 63, 64, 65, 200] {
            let gone: Gone = (0..members).map(|member| member % 3 == 0).collect();
            for word in [Word::Vote(gone.clone()), Word::Decision { ballot: members - 1, gone }] {
                assert_eq!(decode(&encode(&word), members), Some(word.clone()));
                assert_eq!(decode(&encode(&word), members + 64), None);
            }
        }
        assert_eq!(decode(&[3, 0], 3), None, "no such member");
        assert_eq!(decode(&[], 0), None);
    }
}
