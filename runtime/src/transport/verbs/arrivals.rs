//! What arrives: completions of the device, records in the rings, and over the sockets underneath what peers agree upon and
//! who is gone.

use super::{
    BURST, PEER_BITS, TCP_EVERY, Verbs,
    link::{Failure, Link},
    settings,
};
use crate::{
    error::{Error, LinkError, Result},
    transport::{
        Departure, Sink, Transport,
        record::{Header, Kind, Payload},
    },
    verbs::{Completion, Outcome, PortCounters},
};
use std::sync::Arc;

impl Verbs {
    /// Takes completions; `true` when there were any.
    pub(super) fn take_completions(&mut self) -> Result<bool> {
        let Ok((_, completions)) = &mut self.device else { return Ok(false) };
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        completions.poll(&mut found).map_err(|error| Error::Bootstrap { reason: error.to_string() })?;
        let moved = !found.is_empty();
        for completion in found.drain(..) {
            self.take_completion(completion);
        }
        self.found = found;
        Ok(moved)
    }

    fn take_completion(&mut self, completion: Completion) {
        let Some(peer) = usize::try_from(completion.id >> PEER_BITS).ok().filter(|peer| *peer < self.links.len())
        else {
            return;
        };
        let channel = (completion.id & ((1 << PEER_BITS) - 1)) as usize >> 1;
        if let Link::Agreeing(agreeing) = &mut self.links[peer]
            && agreeing.connected
        {
            // It has our word that we are ready, and we its: this record is it.
            agreeing.peer_ready = true;
            self.open_if_ready(peer);
        }
        let Link::Open(open) = &mut self.links[peer] else { return };
        let outcome = match completion.outcome {
            Outcome::Sent => open.lanes[channel].sent().map_err(Failure::from),
            Outcome::Received { immediate, bytes } => {
                open.lanes[channel].received(immediate, bytes).map_err(Failure::from)
            }
            Outcome::Failed { flushed: true, .. } => return,
            Outcome::Failed { reason, status, vendor_code, .. } => Err(Failure::Device { reason, status, vendor_code }),
        };
        if let Err(failure) = outcome {
            open.failed.get_or_insert(failure);
            // It may have left: the socket tells.
            self.since_tcp = TCP_EVERY;
        }
    }

    /// Looks at the sockets: the agreement, records over TCP, who is gone.
    pub(super) fn poll_tcp(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        let mut filter = Filter { sink, heard: Vec::new(), departed: Vec::new() };
        let mut moved = self.tcp.poll(&mut filter)?;
        let Filter { heard, departed, .. } = filter;
        for (peer, bytes) in heard {
            self.heard(peer, &bytes)?;
        }
        if !departed.is_empty() {
            moved = true;
            // What they have sent is here, or will never be.
            self.take_completions()?;
        }
        for (peer, departure) in departed {
            match (&mut self.links[peer], departure) {
                (Link::Open(open), Departure::Finished) => open.finished = true,
                (Link::Open(open), Departure::Lost(reason)) => {
                    open.failed = Some(Failure::Lost(reason));
                }
                (_, departure) => {
                    self.drop_link(peer);
                    sink.departed(peer, departure);
                }
            }
        }
        Ok(moved)
    }

    /// Delivers what has arrived from a peer; tells when it is gone.
    pub(super) fn serve(&mut self, peer: usize, may_fail: bool, sink: &mut dyn Sink) -> Result<bool> {
        let Link::Open(open) = &mut self.links[peer] else { return Ok(false) };
        let moved = open.deliver(peer, BURST, sink)?;
        if moved == BURST {
            return Ok(true);
        }
        let departure = match &open.failed {
            _ if open.is_over() => Departure::Finished,
            Some(Failure::Lost(reason)) if may_fail && moved == 0 => Departure::Lost(reason.clone()),
            Some(Failure::Device { reason, status, vendor_code }) if may_fail && moved == 0 => {
                let (reason, status, vendor_code) = (reason.clone(), *status, *vendor_code);
                Departure::Broken(Arc::new(self.link_error(reason, status, vendor_code)))
            }
            _ => return Ok(moved > 0),
        };
        self.drop_link(peer);
        sink.departed(peer, departure);
        Ok(true)
    }

    /// What there is to say of a connection that has failed.
    fn link_error(&self, reason: String, status: i32, vendor_code: u32) -> LinkError {
        let device = self.device.as_ref().map_or_else(Clone::clone, |(device, _)| device.name());
        let counted = self.counted.iter().flat_map(PortCounters::since);
        LinkError {
            device,
            reason,
            status,
            vendor_code,
            gives_up_after: settings::gives_up_after(&self.recipes.bulk.attributes),
            counters: counted.map(|counter| (counter.name, counter.count)).collect(),
        }
    }
}

/// Lets records through and keeps the rest for later.
struct Filter<'a> {
    sink: &'a mut dyn Sink,
    heard: Vec<(usize, Vec<u8>)>,
    departed: Vec<(usize, Departure)>,
}

impl Sink for Filter<'_> {
    fn record(&mut self, peer: usize, header: &Header, payload: &mut dyn Payload) -> Result<()> {
        if header.kind != Kind::Agree as u8 {
            return self.sink.record(peer, header, payload);
        }
        let mut bytes = vec![0; payload.len()];
        let _ = payload.copy_to(&mut bytes);
        self.heard.push((peer, bytes));
        Ok(())
    }

    fn begin(&mut self, peer: usize, header: &Header) -> Result<Option<u64>> {
        self.sink.begin(peer, header)
    }

    fn departed(&mut self, peer: usize, departure: Departure) {
        self.departed.push((peer, departure));
    }
}
