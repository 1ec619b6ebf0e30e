//! Records between hosts over RDMA: one or two channels a peer, agreed upon over TCP when they are first needed.
//!
//! The TCP transport stays underneath: it carries the agreement, tells when a peer is gone, and takes the records of
//! peers that RDMA does not reach. Which of both a peer gets is decided once, before its first record, so that there is
//! one order. With two channels records are numbered, and delivered in the order of their numbers.

mod agree;
mod arrivals;
mod bounce;
mod lane;
mod link;
mod ring;
mod set_up;
mod settings;

#[cfg(fuzzing)]
pub use agree::fuzz;

use super::{Departure, Direct, HeapKey, Sink, Transport, record::Header, tcp::Tcp};
use crate::{
    config::{Snapshot, keys},
    error::{Error, Result},
    memory::heap::HeapMemory,
    protocol::{Capabilities, Channels, DirectRead, Tier},
    statistics::DeviceStatistics,
    transport::record::HEADER,
    verbs::{Completion, Completions, Device, PortCounters, Remote, Shared, VerbsError, Wanted},
};
use agree::Message;
use lane::{Counts, Lane};
use link::Link;
use settings::Recipes;
pub(crate) use settings::attributes;
use std::{collections::BTreeMap, net::IpAddr, os::fd::BorrowedFd, sync::Arc};

/// Polls between two looks at the sockets, which cost a system call.
const TCP_EVERY: u32 = 256;
/// Records taken from one peer in one poll: others get their turn.
const BURST: usize = 64;
/// The name of a request: above so many bits its peer, below its channel, and in the last bit whether it is a receive.
const PEER_BITS: u32 = 8;

/// What a rank needs to talk over RDMA.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// This rank's place among those of its host.
    pub(crate) place: usize,
    pub(crate) snapshot: &'a Snapshot,
    /// The size hint in bytes.
    pub(crate) hint: usize,
    /// The network device that the launcher chose for this rank.
    pub(crate) near: Option<&'a str>,
    /// The address at which the launcher has reached this host.
    pub(crate) reached_at: Option<IpAddr>,
    /// Where RDMA does not reach, TCP may be used.
    pub(crate) fallback: bool,
}

/// The connections of a rank over RDMA, and over TCP where that does not reach.
#[derive(Debug)]
pub(crate) struct Verbs {
    rank: usize,
    recipes: Recipes,
    fallback: bool,
    /// The device and its completions; or why there is none.
    device: std::result::Result<(Arc<Device>, Completions), String>,
    /// What the device's port counts, where there is one.
    counted: Option<PortCounters>,
    /// Heaps that peers may access.
    exposed: BTreeMap<HeapKey, Shared>,
    links: Vec<Link>,
    /// Peers whose channels are open.
    open: Vec<usize>,
    /// Peers with which they are being agreed upon.
    agreeing: Vec<usize>,
    /// What is still to be said to peers, in order.
    unsaid: Vec<(usize, Vec<u8>)>,
    /// Peers that are lost, and why, to be told with the next poll.
    lost: Vec<(usize, String)>,
    tcp: Tcp,
    since_tcp: u32,
    /// Kept between polls, so that polling allocates nothing.
    found: Vec<Completion>,
    said_why: bool,
    leaving: bool,
    /// What connections that are gone have counted, by peer.
    over: BTreeMap<usize, Counts>,
}

impl Verbs {
    /// Opens the device. Without one everything goes over TCP, where that is allowed.
    ///
    /// # Errors
    /// No device where TCP is not allowed, or settings that name none.
    pub(crate) fn new(settings: &Settings<'_>, tcp: Tcp) -> Result<Self> {
        let list = settings.snapshot.get(keys::VERBS_DEVICE);
        let refused = |error: VerbsError| Error::Bootstrap { reason: error.to_string() };
        let wanted = Wanted::of(&list, settings.place).map_err(refused)?;
        let opened = Device::open(wanted.as_ref(), settings.near, settings.reached_at).and_then(|device| {
            let device = Arc::new(device);
            Completions::new(&device).map(|completions| (device, completions))
        });
        let mut verbs = Verbs {
            rank: settings.rank,
            recipes: Recipes::new(settings.snapshot, settings.hint)?,
            fallback: settings.fallback,
            device: Err(String::new()),
            counted: None,
            exposed: BTreeMap::new(),
            links: (0..settings.size).map(|_| Link::Idle).collect(),
            open: Vec::new(),
            agreeing: Vec::new(),
            unsaid: Vec::new(),
            lost: Vec::new(),
            tcp,
            since_tcp: 0,
            found: Vec::new(),
            said_why: false,
            leaving: false,
            over: BTreeMap::new(),
        };
        match opened {
            Ok(opened) => {
                verbs.counted = Some(opened.0.counters());
                verbs.device = Ok(opened);
            }
            Err(error) if !settings.fallback => {
                let reason = format!("{error}; transport.allow does not allow tcp instead");
                return Err(Error::Bootstrap { reason });
            }
            Err(error) => {
                // A host without RDMA is nothing to speak of, unless somebody asked for a device.
                if !matches!(error, VerbsError::NoDevice) && settings.place == 0 {
                    verbs.say_why(&error.to_string());
                }
                verbs.device = Err(error.to_string());
            }
        }
        Ok(verbs)
    }

    /// Readable when a completion has come after [`Transport::arm`]; none without a device.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.device.as_ref().ok().map(|(_, completions)| completions.descriptor())
    }

    /// Asks for a one-sided operation, which may be the first of anything to this peer.
    fn direct<R>(
        &mut self,
        peer: usize,
        ask: impl FnOnce(&mut Lane) -> std::result::Result<Option<R>, String>,
    ) -> Result<Direct<R>> {
        if matches!(self.links[peer], Link::Idle) {
            self.begin(peer)?;
        }
        Ok(match &mut self.links[peer] {
            Link::Open(open) => open.ask(ask).map_or(Direct::Busy, Direct::Done),
            Link::Tcp(_) => Direct::Impossible,
            Link::Idle | Link::Agreeing(_) | Link::Gone => Direct::Busy,
        })
    }

    /// What the connection to a peer has counted, also when it is gone.
    fn counts_of(&self, peer: usize) -> Counts {
        match &self.links[peer] {
            Link::Open(open) => Counts::sum(&open.lanes),
            _ => self.over.get(&peer).copied().unwrap_or_default(),
        }
    }

    /// Nothing is brought to a peer or taken from it any more.
    fn drop_link(&mut self, peer: usize) {
        if let Link::Open(open) = std::mem::replace(&mut self.links[peer], Link::Gone) {
            self.over.insert(peer, Counts::sum(&open.lanes));
        }
        self.open.retain(|other| *other != peer);
        self.agreeing.retain(|other| *other != peer);
        self.unsaid.retain(|(other, _)| *other != peer);
    }
}

impl Transport for Verbs {
    fn capabilities(&self) -> Capabilities {
        let tcp = self.tcp.capabilities();
        if self.device.is_err() {
            return tcp;
        }
        let ring = self.recipes.bulk.ring;
        let most = if self.fallback { tcp.piece } else { usize::MAX };
        let channels = match self.recipes.low {
            Some(low) => Channels::Two { largest: (low.ring.largest() - HEADER).min(most) },
            None => Channels::One {
                why: "connections have one general channel, since the world has no size hint (low_latency.size_hint)",
            },
        };
        Capabilities {
            name: "verbs",
            inline: 0,
            eager: (ring.largest() - HEADER).min(most),
            // A power of two, as most large messages are; with its header still less than a quarter of the ring.
            piece: (ring.bytes() / 8).min(most),
            channels,
            direct_read: DirectRead::No("pieces are written into the receiver's ring"),
            slow_poll: false,
            gathers: true,
        }
    }

    fn push(&mut self, peer: usize, header: &Header, payload: &[u8], tier: Tier, later: bool) -> Result<bool> {
        match &mut self.links[peer] {
            Link::Open(open) => Ok(open.push(header, payload, tier, later)),
            Link::Tcp(_) => self.tcp.push(peer, header, payload, tier, later),
            Link::Idle => {
                self.begin(peer)?;
                Ok(false)
            }
            Link::Agreeing(_) | Link::Gone => Ok(false),
        }
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        let mut moved = false;
        for &peer in &self.open {
            if let Link::Open(open) = &mut self.links[peer] {
                moved |= open.flush();
            }
        }
        moved |= self.take_completions()?;
        for at in (0..self.open.len()).rev() {
            moved |= self.serve(self.open[at], false, sink)?;
        }
        self.since_tcp += 1;
        let all_over_rdma = self.agreeing.is_empty() && self.unsaid.is_empty() && self.device.is_ok();
        if all_over_rdma && !self.leaving && self.since_tcp < TCP_EVERY && self.lost.is_empty() {
            return Ok(moved);
        }
        self.since_tcp = 0;
        moved |= self.advance()?;
        moved |= self.poll_tcp(sink)?;
        // After the sockets: a peer that has left in order is no failure.
        for at in (0..self.open.len()).rev() {
            moved |= self.serve(self.open[at], true, sink)?;
        }
        for (peer, reason) in std::mem::take(&mut self.lost) {
            sink.departed(peer, Departure::Lost(reason));
            moved = true;
        }
        Ok(moved)
    }

    fn counters(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        let links = (0..self.links.len()).map(|peer| self.counts_of(peer));
        links.fold(Counts::default(), Counts::plus).tell(tell);
        self.tcp.counters(tell);
    }

    fn link_counters(&self, peer: usize, tell: &mut dyn FnMut(&'static str, u64)) {
        let counts = self.counts_of(peer);
        if counts != Counts::default() {
            counts.tell(tell);
        }
    }

    fn device(&self) -> Option<DeviceStatistics> {
        let ((device, _), counted) = (self.device.as_ref().ok()?, self.counted.as_ref()?);
        Some(DeviceStatistics { device: device.name(), counters: counted.since() })
    }

    fn fallen_back(&self, peer: usize) -> Option<&str> {
        match (&self.device, self.links.get(peer)?) {
            (_, Link::Tcp(reason)) => Some(reason),
            (Err(reason), _) => Some(reason),
            _ => None,
        }
    }

    fn expose(&mut self, heap: HeapKey, memory: &Arc<HeapMemory>) -> Option<Remote> {
        let (device, _) = self.device.as_ref().ok()?;
        match Shared::new(device, memory.clone()) {
            Ok(shared) => {
                let remote = shared.remote();
                self.exposed.insert(heap, shared);
                Some(remote)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.said_why, true) {
                    eprintln!("rank {}: one-sided operations on its heap go by messages: {error}", self.rank);
                }
                None
            }
        }
    }

    fn conceal(&mut self, heap: HeapKey) {
        self.exposed.remove(&heap);
    }

    fn put(&mut self, peer: usize, there: Remote, bytes: &[u8]) -> Result<Direct<usize>> {
        self.direct(peer, |lane| lane.put(there, bytes).map(|bytes| Some(bytes).filter(|bytes| *bytes > 0)))
    }

    fn put_own(&mut self, peer: usize, there: Remote, heap: HeapKey, at: usize, bytes: usize) -> Result<Direct<u64>> {
        let Some(shared) = self.exposed.get(&heap) else { return Ok(Direct::Impossible) };
        let here = shared.piece(at, bytes);
        self.direct(peer, |lane| lane.put_piece(there, here))
    }

    fn get(&mut self, peer: usize, there: Remote, bytes: usize) -> Result<Direct<u64>> {
        self.direct(peer, |lane| lane.get(there, bytes))
    }

    fn take(&mut self, peer: usize, request: u64, out: &mut [u8]) -> bool {
        let Link::Open(open) = &mut self.links[peer] else { return false };
        open.ask(|lane| Ok(lane.take(request, out).then_some(()))).is_some()
    }

    fn arm(&mut self) {
        self.since_tcp = TCP_EVERY;
        if let Ok((_, completions)) = &mut self.device {
            completions.arm();
        }
        self.tcp.arm();
    }

    fn disarm(&mut self) {
        self.since_tcp = TCP_EVERY;
        if let Ok((_, completions)) = &mut self.device {
            completions.disarm();
        }
        self.tcp.disarm();
    }

    fn peer_finished(&mut self, peer: usize) {
        self.tcp.peer_finished(peer);
    }

    fn forget(&mut self, peer: usize) {
        self.drop_link(peer);
        self.tcp.forget(peer);
    }

    fn sever(&mut self, choice: u64) {
        self.tcp.sever(choice);
    }

    fn finish(&mut self) -> Result<bool> {
        self.leaving = true;
        let mut settled = true;
        for at in 0..self.open.len() {
            let peer = self.open[at];
            let Link::Open(open) = &mut self.links[peer] else { continue };
            match open.settle() {
                Some(Some(records)) => {
                    self.say(peer, &Message::Farewell { records });
                    settled = false;
                }
                Some(None) => {}
                None => settled = false,
            }
        }
        Ok(settled && self.unsaid.is_empty() && self.tcp.finish()?)
    }
}
