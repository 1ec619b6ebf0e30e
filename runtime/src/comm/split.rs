//! New communicators out of old ones.

use super::{Call, Communicator, Machine, Port, State};
use crate::{element, error::Result, memory::Operation};
use sha2::{Digest, Sha256};
use std::sync::atomic::Ordering;

/// What one rank says.
const WORDS: usize = 3;

impl Communicator {
    /// A communicator with the same ranks and a message space of its own. Collective, without messages.
    ///
    /// # Errors
    /// When this one is revoked.
    pub fn duplicate(&self) -> Result<Self> {
        self.check_open()?;
        let inner = &self.inner;
        let context = self.child_context(0);
        Ok(Communicator::new(
            inner.shared.clone(),
            inner.members.to_vec(),
            inner.rank,
            context,
            inner.hint.of_children(),
        ))
    }

    /// Divides the ranks: those with the same `color` form a new communicator, in the order of `key`, then of their rank.
    /// `None` takes part in no new communicator. Collective.
    ///
    /// # Errors
    /// When a rank is lost, or this one is revoked.
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Self>> {
        let mine = [u64::from(color.is_some()), color.map_or(0, u64::from), key.cast_unsigned()];
        let all = self.gather_words(Operation::Split, mine)?;
        let context = self.child_context(color.map_or(0, |color| u64::from(color) + 1));
        let Some(color) = color else { return Ok(None) };
        let mut chosen: Vec<(i64, usize)> = all
            .iter()
            .enumerate()
            .filter(|(_, [takes_part, other, _])| *takes_part == 1 && *other == u64::from(color))
            .map(|(rank, [_, _, key])| (key.cast_signed(), rank))
            .collect();
        chosen.sort_unstable();
        let rank = chosen.iter().position(|(_, rank)| *rank == self.rank()).unwrap_or(0);
        let members = chosen.iter().map(|(_, rank)| self.inner.members[*rank]).collect();
        Ok(Some(Communicator::new(self.inner.shared.clone(), members, rank, context, self.inner.hint.of_children())))
    }

    /// The context of the next communicator made from this one: the same on all its members, different from any other.
    fn child_context(&self, color: u64) -> u64 {
        let number = self.inner.children.fetch_add(1, Ordering::Relaxed);
        let mut hash = Sha256::new();
        for word in [self.inner.context, number, color] {
            hash.update(word.to_le_bytes());
        }
        let digest = hash.finalize();
        let mut word = [0; 8];
        word.copy_from_slice(&digest[..8]);
        u64::from_le_bytes(word) & !1
    }

    /// What every rank says, on every rank: to rank 0 and back. Without the size hint, which may be what is agreed upon.
    #[track_caller]
    pub(crate) fn gather_words(&self, operation: Operation, mine: [u64; WORDS]) -> Result<Vec<[u64; WORDS]>> {
        self.check_open()?;
        let (size, rank) = (self.size(), self.rank());
        let mut table = Table { words: vec![[0; WORDS]; size], rank, stage: Stage::Gathers, missing: 0 };
        table.words[rank] = mine;
        if size > 1 {
            self.run_by_hint(Call::of(operation), 0, &mut table)?;
        }
        Ok(table.words)
    }
}

/// A rank as the number of an operation.
fn narrow(rank: usize) -> u32 {
    u32::try_from(rank).expect("the launcher numbers ranks in 32 bits")
}

/// The machine of [`Communicator::gather_words`]. Operations are numbered 0..size for a single row, size for the whole.
struct Table {
    words: Vec<[u64; WORDS]>,
    rank: usize,
    stage: Stage,
    /// Operations under way.
    missing: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Gathers,
    Spreads,
    Over,
}

impl Table {
    fn whole(&self) -> u32 {
        narrow(self.words.len())
    }

    fn send(&mut self, port: &mut Port<'_>, op: u32, peer: usize, label: u32) -> Result<()> {
        if !port.send(op, peer, label, self.source(op))? {
            self.missing += 1;
        }
        Ok(())
    }

    fn receive(&mut self, port: &mut Port<'_>, op: u32, peer: usize, label: u32) -> Result<()> {
        self.missing += 1;
        port.receive(op, peer, label, self)
    }
}

impl Machine for Table {
    fn source(&self, op: u32) -> &[u8] {
        match self.words.get(op as usize) {
            Some(_) => element::as_bytes(&self.words[self.rank..=self.rank]),
            None => element::as_bytes(&self.words),
        }
    }

    fn destination(&mut self, op: u32) -> &mut [u8] {
        let row = op as usize;
        if row < self.words.len() {
            element::as_bytes_mut(&mut self.words[row..=row])
        } else {
            element::as_bytes_mut(&mut self.words)
        }
    }

    fn begin(&mut self, port: &mut Port<'_>) -> Result<()> {
        let (size, rank, whole) = (self.words.len(), self.rank, self.whole());
        match self.stage {
            Stage::Gathers if rank == 0 => {
                self.stage = Stage::Spreads;
                (1..size).try_for_each(|peer| self.receive(port, narrow(peer), peer, 0))
            }
            Stage::Gathers => {
                self.stage = Stage::Over;
                self.send(port, narrow(rank), 0, 0)?;
                self.receive(port, whole, 0, 1)
            }
            Stage::Spreads if self.missing == 0 => {
                self.stage = Stage::Over;
                (1..size).try_for_each(|peer| self.send(port, whole, peer, 1))
            }
            Stage::Spreads | Stage::Over => Ok(()),
        }
    }

    fn complete(&mut self, _: u32) {
        self.missing -= 1;
    }

    fn state(&self) -> State {
        if self.stage == Stage::Over && self.missing == 0 { State::Done } else { State::Waits }
    }

    fn work(&mut self) {}
}
