//! Peers that leave or are lost: when that begins to count, and what it ends.

use super::{
    Engine,
    operation::{Buffers, NoBuffers},
};
use crate::{
    error::{Error, Result},
    transport::Departure,
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

/// The ranks of a communicator, as far as wildcards and its end must know them.
pub(super) struct Group {
    members: Arc<[usize]>,
    /// It is revoked together with this communicator, and then these ranks are told.
    pub(super) root: u64,
    pub(super) told: Arc<[usize]>,
    /// Lost members that a wildcard receive or probe has reported: the next one waits for those that are left.
    reported: Vec<usize>,
    /// How many departures counted when the members were last looked at.
    checked_at: usize,
    /// All members but this rank were gone then.
    is_deserted: bool,
}

impl Group {
    pub(super) fn new(members: Arc<[usize]>, root: u64) -> Self {
        Group { told: members.clone(), members, root, reported: Vec::new(), checked_at: 0, is_deserted: false }
    }
}

pub(super) struct Departed {
    pub(super) departure: Departure,
    pub(super) counts_from: Instant,
    pub(super) counted: bool,
}

impl Engine {
    /// Whether anything has ever gone wrong that a call may have to report.
    #[inline]
    pub(super) fn is_troubled(&self) -> bool {
        self.counted > 0 || self.fatal.is_some() || self.core.revocations.are_any()
    }

    /// Whether a message space may be used: whether its communicator has not been revoked, and the job goes on.
    pub(crate) fn check_open(&self, space: u64) -> Result<()> {
        if let Some(fatal) = &self.fatal {
            return Err(fatal.clone());
        }
        self.core.revocations.by(space).map_or(Ok(()), |by| Err(Error::Revoked { by }))
    }

    /// Revokes a communicator on this rank, and tells its other members.
    pub(crate) fn revoke(&mut self, context: u64) {
        let (root, rank) = (self.core.root_of(context), self.core.rank);
        self.core.revoke(root, rank, &mut NoBuffers);
        self.withdraw_revoked();
        self.announce();
    }

    /// Nothing is of use any more in a message space of a few last words; those of `awaited` are still to come.
    pub(crate) fn close(&mut self, space: u64, awaited: Vec<usize>) {
        self.core.close(space, awaited, &mut NoBuffers);
    }

    /// Before calls let go of memory that receivers may be reading.
    pub(super) fn withdraw_revoked(&mut self) {
        if std::mem::take(&mut self.core.withdraws) {
            self.withdraw_all();
        }
    }

    /// The launcher says that this rank is gone and the job goes on: what has arrived from it still counts.
    pub(crate) fn lose(&mut self, peer: usize, reason: String) {
        if let Some(departed) = self.departed.get_mut(peer) {
            let counts_from = Instant::now();
            if departed.is_none() {
                self.uncounted += 1;
            }
            let lost = Departed { departure: Departure::Lost(reason), counts_from, counted: false };
            let departed = departed.get_or_insert(lost);
            departed.counts_from = departed.counts_from.min(counts_from);
        }
    }

    /// The launcher says that this rank has dropped its world; its transport knows when nothing more can come from it.
    pub(crate) fn peer_finished(&mut self, peer: usize) {
        if peer == self.core.rank {
            return;
        }
        match self.departed.get_mut(peer) {
            Some(None) => {
                self.farewells.push(peer);
                self.trouble.store(true, Ordering::Relaxed);
                self.transport(peer).peer_finished(peer);
            }
            // Its transport has found that it is gone, and could not know why.
            Some(Some(departed)) if !departed.counted && departed.departure != Departure::Finished => {
                departed.departure = Departure::Finished;
                departed.counts_from = departed.counts_from.min(Instant::now() + self.keep_back);
            }
            _ => {}
        }
    }

    /// Whether progress may bring the end of a peer that is known to be gone.
    pub(super) fn is_departure_due(&mut self) -> bool {
        self.farewells.retain(|peer| self.departed[*peer].is_none());
        self.uncounted > 0 || !self.farewells.is_empty()
    }

    /// A communicator of this rank has come to be.
    pub(crate) fn add_group(&mut self, context: u64, members: Arc<[usize]>) {
        self.core.add_group(context, members, &mut NoBuffers);
        self.withdraw_revoked();
    }

    /// A communicator is revoked together with another one from now on.
    pub(crate) fn serve(&mut self, context: u64, parent: u64) {
        self.core.serve(context, parent, &mut NoBuffers);
        self.withdraw_revoked();
    }

    /// Nobody holds the communicator any more.
    pub(crate) fn remove_group(&mut self, context: u64) {
        self.core.remove_group(context);
    }

    /// Ends what waits for peers that have been gone for long enough.
    pub(super) fn count_departures(&mut self, buffers: &mut dyn Buffers) -> bool {
        let now = Instant::now();
        let mut any = false;
        for peer in 0..self.departed.len() {
            if let Some(departed) = &mut self.departed[peer]
                && !departed.counted
                && departed.counts_from <= now
            {
                departed.counted = true;
                self.uncounted -= 1;
                self.counted += 1;
                self.trouble.store(true, Ordering::Relaxed);
                let error = departure_error(peer, &self.hosts[peer], &departed.departure, "what waits for it");
                self.core.fail_peer(peer, &error, buffers);
                self.transport(peer).forget(peer);
                any = true;
            }
        }
        self.doubtful_wildcards |= any;
        any
    }

    /// Ends wildcard receives that nobody is left for, or that must hear of a lost member.
    pub(super) fn end_wildcards(&mut self, buffers: &mut dyn Buffers) {
        for context in self.core.matcher.contexts_with_wildcards() {
            if let Some(error) = self.wildcard_error(context, "a receive from any rank") {
                for id in self.core.matcher.take_wildcards(context) {
                    self.core.finish_receive(id, Err(error.clone()), buffers);
                }
            }
        }
    }

    /// Why a receive from any rank of a communicator must not wait (any longer): a member is lost, which is reported once,
    /// or all others are gone. What this rank sends to itself is no reason to wait: whoever would send it may be the one
    /// that waits.
    pub(super) fn wildcard_error(&mut self, context: u64, operation: &'static str) -> Option<Error> {
        let group = self.core.groups.get_mut(&context)?;
        if group.checked_at == self.counted {
            return group.is_deserted.then_some(Error::NobodyLeft { operation });
        }
        let mut left = group.members.len();
        for &peer in &*group.members {
            let Some(Departed { departure, counted: true, .. }) = &self.departed[peer] else { continue };
            left -= 1;
            if *departure != Departure::Finished && !group.reported.contains(&peer) {
                group.reported.push(peer);
                return Some(departure_error(peer, &self.hosts[peer], departure, operation));
            }
        }
        group.checked_at = self.counted;
        group.is_deserted = left == 1 && group.members.len() > 1;
        group.is_deserted.then_some(Error::NobodyLeft { operation })
    }

    /// When the next departure begins to count.
    pub(super) fn next_departure(&self) -> Option<Instant> {
        self.departed.iter().flatten().filter(|departed| !departed.counted).map(|departed| departed.counts_from).min()
    }

    pub(crate) fn check(&self, peer: usize, operation: &'static str) -> Result<()> {
        if let Some(fatal) = &self.fatal {
            return Err(fatal.clone());
        }
        match &self.departed[peer] {
            Some(departed) if departed.counted => {
                Err(departure_error(peer, &self.hosts[peer], &departed.departure, operation))
            }
            _ => Ok(()),
        }
    }

    /// Why a communicator cannot go on with all of its members: one is lost, or it is revoked.
    pub(crate) fn check_members(&self, context: u64, members: &[usize]) -> Result<()> {
        if let Some(fatal) = &self.fatal {
            return Err(fatal.clone());
        }
        if self.counted > 0 {
            let lost = members.iter().filter_map(|peer| match &self.departed[*peer] {
                Some(departed) if departed.counted && departed.departure != Departure::Finished => {
                    Some((*peer, departed))
                }
                _ => None,
            });
            // The others may have ended because of the first.
            if let Some((peer, departed)) = lost.min_by_key(|(_, departed)| departed.counts_from) {
                return Err(departure_error(peer, &self.hosts[peer], &departed.departure, "what waits for it"));
            }
        }
        // After the members: who is lost says more than who has heard of it.
        self.check_open(context)
    }

    /// When nothing more was expected from a peer that is gone.
    pub(crate) fn gone_since(&self, peer: usize) -> Option<Instant> {
        self.departed[peer].as_ref().map(|departed| departed.counts_from)
    }

    /// Whether nothing more comes from a peer: it is lost, or has dropped its world.
    pub(crate) fn is_gone(&self, peer: usize) -> bool {
        self.departed[peer].as_ref().is_some_and(|departed| departed.counted)
    }
}

pub(super) fn departure_error(peer: usize, host: &str, departure: &Departure, operation: &'static str) -> Error {
    let host = host.to_string();
    match departure {
        Departure::Finished => Error::PeerFinished { peer, host, operation },
        Departure::Lost(reason) => Error::PeerLost { peer, host, reason: reason.clone() },
        Departure::Broken(error) => Error::Link { peer, host, error: error.clone() },
    }
}
