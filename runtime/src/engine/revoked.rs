//! Communicators that are revoked: what waits in them ends, and what still comes is nobody's.
//!
//! Whoever revokes a communicator says so to every member, and so does whoever hears it for the first time (a reliable
//! broadcast: the word reaches everybody even if the one who said it first dies while it does). It is the last that a
//! member sends there. Whoever has heard it from everybody knows that nothing more comes, and forgets the communicator as
//! soon as its own program has: until then, what comes is taken, given its credit back, and dropped. No I/O and no clock.

use super::{
    core::{Core, Found, Peer},
    departures::Group,
    operation::{Buffers, EarlyBody, Landing, OperationId, Sending, Source, Stage},
};
use crate::{
    error::{Error, Result},
    protocol::Path,
    transport::record::{Header, Kind},
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{collections::VecDeque, sync::Arc};

/// Turns the space of collectives into that of what ranks say about their collective calls.
const WORDS: u64 = 0x6361_6c6c_7300_0000;

/// Communicators that others have revoked and this rank does not know: it has not made them yet, or no longer has them.
/// So many are remembered, the oldest are forgotten.
const UNKNOWN: usize = 256;

/// The tag of a [`Kind::Revoke`] that answers another one: of a rank that does not know the communicator.
const ANSWER: u64 = 1;

/// The tag of a [`Kind::Discard`]: the communicator is revoked, by the rank in `total`.
pub(super) const REVOKED: u64 = 2;
/// The tag of a [`Kind::Discard`]: the receiver has dropped the communicator.
pub(super) const DROPPED: u64 = 3;

/// So many communicators that this rank has dropped are remembered, so that what still comes for them is turned down and not
/// kept. The oldest are forgotten.
const REMEMBERED: usize = 256;

/// Message spaces of communicators that this rank has dropped.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    spaces: FxHashSet<u64>,
    oldest_first: VecDeque<u64>,
}

impl Dropped {
    fn remember(&mut self, context: u64) {
        self.oldest_first.push_back(context);
        self.spaces.extend(spaces_of(context));
        if self.oldest_first.len() > REMEMBERED
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            for space in spaces_of(oldest) {
                self.spaces.remove(&space);
            }
        }
    }

    pub(super) fn contains(&self, space: u64) -> bool {
        !self.spaces.is_empty() && self.spaces.contains(&space)
    }
}

/// The tag of a member's last message in a space that is closed.
pub(crate) const LAST: u64 = 1;

/// The message space of a communicator's collectives.
pub(crate) fn collectives_of(context: u64) -> u64 {
    context | 1
}

/// The message space of what its ranks say about their collective calls.
pub(crate) fn words_of(context: u64) -> u64 {
    collectives_of(context) ^ WORDS
}

/// The communicators of which this can be a message space.
fn communicators_of(space: u64) -> [u64; 2] {
    [space & !1, (space ^ WORDS) & !1]
}

/// All message spaces of a communicator.
fn spaces_of(context: u64) -> [u64; 3] {
    [context, collectives_of(context), words_of(context)]
}

/// What is closed.
#[derive(Debug, Default)]
pub(super) struct Revocations {
    /// By message space whoever revoked it, a rank of the world.
    spaces: FxHashMap<u64, usize>,
    /// By the communicator, or the space that was closed alone.
    revoked: FxHashMap<u64, Revoked>,
    unknown: VecDeque<u64>,
}

#[derive(Debug)]
struct Revoked {
    by: usize,
    spaces: Vec<u64>,
    /// Members, ranks of the world, that may have sent something that is still to come.
    awaited: Vec<usize>,
    /// It is a space that was closed alone: the last message of a member is marked by its tag ([`LAST`]).
    has_last: bool,
}

impl Revocations {
    /// Whether anything is closed.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        !self.spaces.is_empty()
    }

    /// Who has revoked the communicator that a message space belongs to.
    #[inline]
    pub(super) fn by(&self, space: u64) -> Option<usize> {
        if self.are_any() { self.spaces.get(&space).copied() } else { None }
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> (usize, usize) {
        (self.spaces.len(), self.revoked.len())
    }
}

impl Core {
    /// A communicator of this rank has come to be; others may have revoked it already.
    pub(crate) fn add_group(&mut self, context: u64, members: Arc<[usize]>, buffers: &mut dyn Buffers) {
        self.groups.insert(context, Group::new(members, context));
        let unknown = &mut self.revocations.unknown;
        if let Some(at) = unknown.iter().position(|unknown| *unknown == context) {
            unknown.remove(at);
            let by = self.revocations.revoked.get(&context).map_or(self.rank, |revoked| revoked.by);
            self.forget(context);
            self.revoke(context, by, buffers);
        }
    }

    /// A communicator is revoked together with its `parent` from now on, which may have been already.
    pub(crate) fn serve(&mut self, context: u64, parent: u64, buffers: &mut dyn Buffers) {
        let Some((root, told)) = self.groups.get(&parent).map(|parent| (parent.root, parent.told.clone())) else {
            return;
        };
        if let Some(group) = self.groups.get_mut(&context) {
            (group.root, group.told) = (root, told);
            self.close_spaces(root, &spaces_of(context), buffers);
        }
    }

    /// Nobody holds the communicator any more: messages that wait in it, which no receive can meet, go, so that they neither
    /// take memory nor use up their senders' credit for ever.
    pub(crate) fn remove_group(&mut self, context: u64) {
        if let Some(group) = self.groups.remove(&context) {
            self.forget_if_over(group.root);
        }
        let (_, early) = self.matcher.take_all(context);
        for found in early {
            self.drop_found(found, None);
        }
        self.dropped.remember(context);
    }

    /// The communicator with which this one is revoked: itself, unless it serves another one.
    pub(crate) fn root_of(&self, context: u64) -> u64 {
        self.groups.get(&context).map_or(context, |group| group.root)
    }

    /// Whether a member of the communicator of this message space is known to be gone, or the communicator revoked. Of one that
    /// this rank has dropped, whether anybody is gone.
    pub(super) fn knows_of_loss(&self, space: u64) -> bool {
        let missed = |peer: &usize| self.peers[*peer].is_missed();
        let group = communicators_of(space).into_iter().find_map(|context| self.groups.get(&context));
        self.revocations.by(space).is_some()
            || group.map_or_else(|| self.peers.iter().any(Peer::is_missed), |group| group.told.iter().any(missed))
    }

    /// Revokes a communicator and those that serve it, if it is not yet: everything that waits in them ends, and all members
    /// are told.
    pub(crate) fn revoke(&mut self, root: u64, by: usize, buffers: &mut dyn Buffers) {
        if self.revocations.revoked.contains_key(&root) {
            return;
        }
        let of_root = || self.groups.iter().filter(|(_, group)| group.root == root);
        let mut spaces = spaces_of(root).to_vec();
        spaces.extend(of_root().filter(|(context, _)| **context != root).flat_map(|(context, _)| spaces_of(*context)));
        let told = of_root().map(|(_, group)| group.told.clone()).next();
        // This rank is one of them: what it has sent to itself may be on its way, too.
        let awaited: Vec<usize> = told.iter().flat_map(|told| told.iter().copied()).collect();
        let awaited: Vec<usize> = awaited.into_iter().filter(|peer| !self.peers[*peer].is_gone()).collect();
        if told.is_none() {
            self.revocations.unknown.push_back(root);
            if self.revocations.unknown.len() > UNKNOWN
                && let Some(oldest) = self.revocations.unknown.pop_front()
            {
                self.forget(oldest);
            }
        }
        for peer in &awaited {
            self.say_revoked(*peer, root, by, 0);
        }
        self.revocations.revoked.insert(root, Revoked { by, spaces: Vec::new(), awaited, has_last: false });
        self.close_spaces(root, &spaces, buffers);
    }

    /// A peer says that a communicator is revoked.
    pub(super) fn hear_revoked(&mut self, peer: usize, header: &Header, buffers: &mut dyn Buffers) -> Result<()> {
        let corrupt = || Error::Corrupt { peer, what: "a communicator revoked by no rank" };
        let by = usize::try_from(header.id).ok().filter(|by| *by < self.peers.len()).ok_or_else(corrupt)?;
        let root = header.context;
        if header.tag != ANSWER {
            self.revoke(root, by, buffers);
            if self.revocations.unknown.contains(&root) {
                self.say_revoked(peer, root, by, ANSWER);
            }
        }
        self.no_longer_awaits(peer, Some(root));
        Ok(())
    }

    fn say_revoked(&mut self, peer: usize, root: u64, by: usize, tag: u64) {
        let word = Header { context: root, tag, id: by as u64, ..Header::new(Kind::Revoke) };
        self.reply(peer, word);
    }

    /// Nothing is received any more in a message space. Those that are `awaited` may still say something there, each a last
    /// message that is marked so ([`LAST`]). What this rank has said goes its way.
    pub(crate) fn close(&mut self, space: u64, awaited: Vec<usize>, buffers: &mut dyn Buffers) {
        let lasts = self.matcher.waiting_in(space).filter(|(_, tag)| *tag == LAST).map(|(source, _)| source);
        let said: Vec<usize> = lasts.collect();
        let awaited = awaited.into_iter().filter(|peer| !said.contains(peer) && !self.peers[*peer].is_gone()).collect();
        let by = self.rank;
        self.revocations.revoked.insert(space, Revoked { by, spaces: vec![space], awaited, has_last: true });
        self.revocations.spaces.insert(space, by);
        self.end_receives(space, by, buffers);
        self.forget_if_over(space);
    }

    /// A message has come, or been announced, in a space that is closed: nobody receives it.
    pub(super) fn comes_too_late(&mut self, peer: usize, header: &Header, by: usize) {
        if header.kind == Kind::Eager as u8 {
            // As long as it says, which has been checked.
            let bytes = crate::memory::index(header.total);
            self.counters[peer].received.eager.add(bytes);
            self.matched(peer, bytes);
        } else {
            self.turn_down(peer, header.id, Some(by));
        }
        let has_last = |revoked: &Revoked| revoked.has_last;
        if header.tag == LAST && self.revocations.revoked.get(&header.context).is_some_and(has_last) {
            self.no_longer_awaits(peer, Some(header.context));
        }
    }

    /// Nothing more comes from a peer: in one communicator, or at all.
    pub(super) fn no_longer_awaits(&mut self, peer: usize, root: Option<u64>) {
        let roots = match root {
            Some(root) => vec![root],
            None => self.revocations.revoked.keys().copied().collect(),
        };
        for root in roots {
            if let Some(revoked) = self.revocations.revoked.get_mut(&root) {
                revoked.awaited.retain(|awaited| *awaited != peer);
                self.forget_if_over(root);
            }
        }
    }

    fn forget_if_over(&mut self, root: u64) {
        let Some(revoked) = self.revocations.revoked.get(&root) else { return };
        let is_held = || self.groups.values().any(|group| group.root == root);
        if revoked.awaited.is_empty() && !self.revocations.unknown.contains(&root) && !is_held() {
            self.forget(root);
        }
    }

    fn forget(&mut self, root: u64) {
        for space in self.revocations.revoked.remove(&root).map_or_else(Vec::new, |revoked| revoked.spaces) {
            self.revocations.spaces.remove(&space);
        }
    }

    /// Ends everything in these spaces of a communicator that is revoked.
    fn close_spaces(&mut self, root: u64, spaces: &[u64], buffers: &mut dyn Buffers) {
        let Some(revoked) = self.revocations.revoked.get_mut(&root) else { return };
        let by = revoked.by;
        for space in spaces.iter().filter(|space| !revoked.spaces.contains(space)).copied().collect::<Vec<_>>() {
            revoked.spaces.push(space);
            self.revocations.spaces.insert(space, by);
        }
        for space in spaces {
            self.end_receives(*space, by, buffers);
            self.end_sends(*space, by);
        }
        self.news += 1;
    }

    fn end_receives(&mut self, space: u64, by: usize, buffers: &mut dyn Buffers) {
        let (posted, early) = self.matcher.take_all(space);
        for id in posted {
            self.finish_receive(id, Err(Error::Revoked { by }), buffers);
        }
        // Those that nobody waits for take the rest of their messages, and have no heirs any more.
        let arriving: Vec<OperationId> = self
            .receives
            .iter()
            .filter(|(_, receive)| receive.context == space && receive.arriving.is_some() && receive.done.is_none())
            .map(|(id, _)| id)
            .collect();
        for id in &arriving {
            if let Some(receive) = self.receives.get_mut(*id).filter(|receive| receive.detached) {
                (receive.landing, receive.orphan) = (Landing::Nowhere, None);
            }
        }
        for id in arriving {
            if self.receives.get(id).is_some_and(|receive| !receive.detached) {
                self.drain(id, by);
                self.finish_receive(id, Err(Error::Revoked { by }), buffers);
            }
        }
        for found in early {
            self.drop_found(found, Some(by));
        }
    }

    /// A message that no receive will meet: its sender is told, or gets its credit back. `by`: who has revoked its
    /// communicator, if anybody has.
    pub(super) fn drop_found(&mut self, found: Found, by: Option<usize>) {
        let Found { source, message, .. } = found;
        match message.body {
            EarlyBody::Here(_) => {
                self.peers[source].flow.waits_no_longer(message.total);
                self.matched(source, message.total);
            }
            EarlyBody::AtSender(sender, _) => {
                self.peers[source].flow.announcement_answered();
                self.turn_down(source, sender, by);
            }
            EarlyBody::Whole(_) => {}
            // Whoever it arrives in: that is told of its own, or forgets it here.
            EarlyBody::Arriving(orphan) => {
                let is_over = self.receives.get(orphan).is_some_and(|receive| receive.done.is_some());
                if is_over {
                    self.receives.remove(orphan);
                } else if let Some(receive) = self.receives.get_mut(orphan) {
                    (receive.landing, receive.orphan) = (Landing::Nowhere, None);
                }
            }
        }
    }

    /// Tells the sender of an announced message that its communicator is revoked, or that the receiver has dropped it.
    pub(super) fn turn_down(&mut self, peer: usize, sender: OperationId, by: Option<usize>) {
        let (tag, total) = by.map_or((DROPPED, 0), |by| (REVOKED, by as u64));
        self.reply(peer, Header { id: sender, tag, total, ..Header::new(Kind::Discard) });
    }

    fn end_sends(&mut self, space: u64, by: usize) {
        let pending = |send: &Sending| send.header.context == space && send.done.is_none();
        let ids: Vec<OperationId> = self.sends.iter().filter(|(_, send)| pending(send)).map(|(id, _)| *id).collect();
        for id in ids {
            let Some(send) = self.sends.get(&id) else { continue };
            let waits_for_answer = send.stage == Stage::Gone && send.receiver.is_none();
            // The receiver may be reading it, and answers: nobody else needs the memory.
            if send.detached && waits_for_answer {
                continue;
            }
            let is_offered = send.path == Path::DirectRead || matches!(send.source, Source::Heap(_));
            self.withdraws |= is_offered && waits_for_answer;
            let peer = send.peer;
            self.stop_send(id);
            self.finish_send(id, Err(Error::Revoked { by }));
            self.release(peer);
        }
    }
}
