//! Where one lane of a link is between its first use and its end, and who may carry it on. Decisions only: no sockets are
//! made or watched here.

use super::{
    dial::Dial,
    handshake::{Claim, Progress, Verdict},
    lane::Lane,
};
use std::time::Instant;

/// One lane of a link and what carries it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) lane: Lane,
    pub(super) way: Way,
    /// Connections that have carried the lane so far.
    pub(super) epoch: u32,
    /// This rank dialled the current connection.
    pub(super) ours: bool,
    /// The connection broke and is not replaced yet.
    pub(super) trouble: Option<Trouble>,
}

/// Why and for how long a connection is being replaced.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) reason: String,
    pub(super) until: Instant,
}

#[derive(Debug)]
pub(super) enum Way {
    /// Not needed so far.
    Unused,
    Dialling(Box<Dial>),
    /// Both dialled; the peer's connection is on its way. Tried again at this time if it does not come.
    Expected(Instant),
    /// Dialling did not work; it is tried again at this time.
    Resting(Instant),
    Open(Interest),
    Gone,
}

/// Whether the poller watches for room to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    Reading,
    Writing,
}

impl Slot {
    pub(super) fn new(lane: Lane) -> Self {
        Slot { lane, way: Way::Unused, epoch: 0, ours: false, trouble: None }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.way, Way::Open(_))
    }

    /// How far the lane has come here.
    pub(super) fn progress(&self) -> Progress {
        Progress { epoch: self.epoch, received: self.lane.received() }
    }

    /// What to answer a peer that has proved who it is and wants to carry this lane on. `below`: its rank is the lower
    /// one. `None`: nothing, it is of no use any more.
    pub(super) fn judge(&self, claim: &Claim, below: bool) -> Option<Verdict> {
        let accepted = match &self.way {
            Way::Unused | Way::Expected(_) | Way::Resting(_) => true,
            // Both dial and both have got through: the lower rank's connection stays.
            Way::Dialling(dial) => !dial.has_reached() || below,
            // It dials anew, so its connection is dead, although nobody has noticed here.
            Way::Open(_) if !self.ours => true,
            // It dialled before it knew of our connection, or that one is dead.
            Way::Open(_) => claim.progress.epoch >= self.epoch,
            Way::Gone => return None,
        };
        if !accepted {
            return Some(Verdict::Duplicate);
        }
        let epoch = self.epoch.max(claim.progress.epoch) + 1;
        Some(Verdict::Accepted(Progress { epoch, received: self.lane.received() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tcp::{dial::Call, lane::Sizes};
    use std::time::Duration;

    fn slot(way: Way, ours: bool) -> Slot {
        let sizes = Sizes { buffer: 64, window: 64, again: true, largest: 16, piece: 16 };
        Slot { way, ours, epoch: 3, ..Slot::new(Lane::new(1, sizes)) }
    }

    fn claim(epoch: u32) -> Claim {
        Claim { lane: 0, progress: Progress { epoch, received: 0 } }
    }

    fn accepts(slot: &Slot, epoch: u32, below: bool) -> bool {
        match slot.judge(&claim(epoch), below) {
            Some(Verdict::Accepted(progress)) => {
                assert_eq!(progress.epoch, 3.max(epoch) + 1);
                true
            }
            Some(Verdict::Duplicate) => false,
            None => panic!("it is not gone"),
        }
    }

    #[test]
    fn whoever_lost_its_connection_may_replace_it_and_whoever_did_not_know_of_ours_may_not() {
        let now = Instant::now();
        for way in [Way::Unused, Way::Expected(now), Way::Resting(now)] {
            assert!(accepts(&slot(way, true), 0, false));
        }
        let open = || Way::Open(Interest::Reading);
        assert!(accepts(&slot(open(), false), 2, false), "its own connection is dead");
        assert!(accepts(&slot(open(), true), 3, true), "it knew ours, which is dead");
        assert!(!accepts(&slot(open(), true), 2, true), "it dialled before it knew ours");
        assert_eq!(slot(Way::Gone, true).judge(&claim(3), true), None);
    }

    #[test]
    fn a_dial_that_has_not_got_through_makes_room_for_the_peer_s() {
        let second = Duration::from_secs(1);
        let call = Call { me: 0, peer: 1, claim: claim(3), timeout: second, silence: second };
        let dialling = || Way::Dialling(Box::new(Dial::new(call, &[])));
        assert!(accepts(&slot(dialling(), false), 3, false));
        assert!(accepts(&slot(dialling(), false), 3, true));
    }
}
