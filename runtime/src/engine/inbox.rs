//! Takes what transports deliver to the protocol.

use super::{
    core::{self, Core},
    departures::{Departed, departure_error},
    operation::Buffers,
    revoked::DROPPED,
};
use crate::{
    error::{Error, Result},
    trace::{self, Recorder},
    transport::{
        Departure, Sink,
        record::{Header, Kind, Payload},
    },
};
use std::time::{Duration, Instant};

/// A loss that a transport has found counts only after this, if nobody explains it before: a peer that has left in order
/// cannot be connected to either, and the launcher says so after up to 250 ms. Of a loss that it knows it tells at once.
const EXPLAINED: Duration = Duration::from_millis(500);

/// Takes what transports deliver.
pub(super) struct Inbox<'a> {
    pub(super) recorder: Option<&'a Recorder>,
    pub(super) core: &'a mut Core,
    pub(super) departed: &'a mut [Option<Departed>],
    pub(super) uncounted: &'a mut usize,
    pub(super) keep_back: Duration,
    pub(super) hosts: &'a [String],
    pub(super) buffers: &'a mut dyn Buffers,
}

impl Sink for Inbox<'_> {
    fn record(&mut self, peer: usize, header: &Header, payload: &mut dyn Payload) -> Result<()> {
        // What waited for a lost peer has been told so: its last words find nobody.
        if matches!(&self.departed[peer], Some(departed) if departed.counted) {
            return Ok(());
        }
        if header.kind == Kind::Discard as u8 && header.tag == core::LEFT {
            let error = departure_error(peer, &self.hosts[peer], &Departure::Finished, "a send to it");
            self.core.peers[peer].leaves = true;
            return self.core.turned_away(peer, header.id, error);
        }
        if header.kind == Kind::Discard as u8 && header.tag == DROPPED {
            let error = Error::CommunicatorDropped { peer, host: self.hosts[peer].clone() };
            return self.core.turned_away(peer, header.id, error);
        }
        let Some(recorder) = self.recorder else {
            if header.kind == Kind::Eager as u8 {
                return self.core.whole(peer, header, payload, self.buffers);
            }
            return self.core.record(peer, header, payload, self.buffers);
        };
        let began = trace::now();
        self.core.record(peer, header, payload, self.buffers)?;
        if matches!(Kind::from_byte(header.kind), Some(Kind::Eager | Kind::RequestToSend)) {
            recorder.arrived(began, peer, usize::try_from(header.total).unwrap_or(usize::MAX));
        }
        Ok(())
    }

    fn begin(&mut self, peer: usize, header: &Header) -> Result<Option<u64>> {
        Ok(self.core.begin(peer, header))
    }

    #[inline]
    fn is_served(&mut self) -> bool {
        self.buffers.awaited().is_some_and(|(awaited, _)| awaited.done.is_some())
    }

    fn departed(&mut self, peer: usize, departure: Departure) {
        let keep_back = match departure {
            Departure::Finished => self.keep_back,
            Departure::Lost(_) | Departure::Broken(_) => self.keep_back.max(EXPLAINED),
        };
        let counts_from = Instant::now() + keep_back;
        if self.departed[peer].is_none() {
            self.departed[peer] = Some(Departed { departure, counts_from, counted: false });
            *self.uncounted += 1;
        }
    }
}
