//! One channel to a peer: a queue pair, the ring that the peer writes, and our copy of the ring that we write.
//!
//! Records are copied into our copy, written from there to the same place of the peer's ring, and announced by the number
//! that comes with the write. A write takes one receive of the peer; there are as many as the ring has units, and credits
//! have their own, so that a receiver is always ready.

use super::{
    agree::Offer,
    bounce::{Bounce, PLACE, PLACES, Places},
    ring::{Arrival, Inbox, MOST_CREDITS, Notice, Outbox},
    settings::Recipe,
};
use crate::{
    transport::record::{HEADER, Header, Payload},
    verbs::{Completions, Device, Piece, QueuePair, Region, Remote, Shape, VerbsError, What, Work, reclaim::SendQueue},
};
use std::{collections::VecDeque, sync::Arc};

/// Requests that leave with one doorbell, at most.
const BATCH: usize = 32;
/// Places of the send queue that records leave free: one for a credit, one for a request that asks for a completion.
const RESERVED: u32 = 2;
/// Receives beyond one a unit: for credits, and the request that asks for the last completion.
const SPARE: u32 = MOST_CREDITS + 4;
/// Receives that are posted again together, at most.
const RECEIVES: usize = 16;

type Result<T> = std::result::Result<T, String>;

#[derive(Debug)]
pub(super) struct Lane {
    // Dropped first: the device then uses the memory no more.
    pair: QueuePair,
    /// The peer writes here.
    ring: Region,
    /// What the device sends to the peer's ring.
    copy: Region,
    recipe: Recipe,
    /// For one-sided operations, once there are any.
    bounce: Option<Bounce>,
    device: Arc<Device>,
    /// The peer's ring. Nowhere until it is known.
    remote: Remote,
    outbox: Outbox,
    inbox: Inbox,
    queue: SendQueue,
    batch: Vec<Work>,
    arrived: VecDeque<Arrival>,
    /// Receives that were used up and are to be posted again.
    used: usize,
    /// So many are posted together.
    together: usize,
    /// The name of its requests; receives add one.
    id: u64,
    pub(super) counts: Counts,
}

/// What a lane has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Work requests posted.
    pub(super) posts: u64,
    /// Calls that posted them.
    pub(super) doorbells: u64,
    /// Completions of our requests.
    pub(super) completions: u64,
    /// Times that a record found no room.
    pub(super) stalls: u64,
    /// Credits returned by a write of their own.
    pub(super) credits: u64,
    /// Credits returned with a record.
    pub(super) carried: u64,
}

impl Counts {
    /// Of all lanes of a link.
    pub(super) fn sum<'a>(lanes: impl IntoIterator<Item = &'a Lane>) -> Self {
        lanes.into_iter().fold(Counts::default(), |sum, lane| sum.plus(lane.counts))
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Counts {
            posts: self.posts + other.posts,
            doorbells: self.doorbells + other.doorbells,
            completions: self.completions + other.completions,
            stalls: self.stalls + other.stalls,
            credits: self.credits + other.credits,
            carried: self.carried + other.carried,
        }
    }

    /// Names them for the statistics.
    pub(super) fn tell(self, tell: &mut dyn FnMut(&'static str, u64)) {
        tell("work requests", self.posts);
        tell("doorbells", self.doorbells);
        tell("send completions", self.completions);
        tell("records that found no room", self.stalls);
        tell("credits returned", self.credits);
        tell("credits returned with records", self.carried);
    }
}

impl Lane {
    /// A lane that is not connected. `id`: even, the name of its requests.
    pub(super) fn new(
        device: &Arc<Device>,
        completions: &mut Completions,
        recipe: Recipe,
        id: u64,
        random: u32,
    ) -> std::result::Result<Self, VerbsError> {
        let size = recipe.ring;
        let shape = Shape { send_depth: recipe.send_depth, receive_depth: size.units + SPARE, inline: recipe.inline };
        let mut pair = QueuePair::new(device, completions, shape, random)?;
        let receives = recipe.receives.map_or(shape.receive_depth, |few| few.min(shape.receive_depth)) as usize;
        pair.post_receives(receives, id + 1)?;
        Ok(Lane {
            ring: Region::incoming(device, size.bytes(), recipe.relaxed)?,
            copy: Region::outgoing(device, size.bytes())?,
            recipe,
            bounce: None,
            device: device.clone(),
            remote: Remote::default(),
            outbox: Outbox::new(size),
            inbox: Inbox::new(size),
            queue: SendQueue::new(recipe.send_depth, u64::from(size.units), recipe.signal_all),
            batch: Vec::new(),
            arrived: VecDeque::new(),
            used: 0,
            together: RECEIVES.min(receives),
            id,
            counts: Counts::default(),
            pair,
        })
    }

    /// What the peer must know of it.
    pub(super) fn offer(&self) -> Offer {
        let size = self.recipe.ring;
        let end = self.pair.endpoint(self.recipe.attributes.mtu);
        let unit = u32::try_from(size.unit).expect("a ring is far below 4 GiB");
        Offer::new(&end, self.ring.address(), self.ring.remote_key(), size.units, unit)
    }

    /// Connects it with the peer's end. The error says whether trying again may help.
    pub(super) fn connect(&mut self, offer: &Offer) -> std::result::Result<(), (String, bool)> {
        let size = self.recipe.ring;
        let end = offer.endpoint().filter(|_| offer.units == size.units && offer.unit as usize == size.unit);
        let Some(end) = end else { return Err(("its ring has another size than ours".into(), false)) };
        self.remote = Remote { address: offer.address, key: offer.key };
        self.pair
            .connect(&end, &self.recipe.attributes)
            .map_err(|error| (error.to_string(), crate::verbs::is_transient(&error)))
    }

    /// What differs between the attributes that were asked for and those that the device has, in words.
    pub(super) fn deviations(&mut self) -> Result<Vec<String>> {
        let has = self.pair.read_back().map_err(|error| error.to_string())?;
        Ok(super::settings::deviations(&self.recipe.attributes, &has))
    }

    /// Takes a record; `false` when there is no room now.
    pub(super) fn push(&mut self, header: &Header, payload: &[u8], later: bool) -> Result<bool> {
        let bytes = HEADER + payload.len();
        let place = if self.queue.room() > RESERVED { self.outbox.place(bytes, self.queue.sent()) } else { None };
        let Some(unit) = place else {
            self.counts.stalls += 1;
            self.flush()?;
            return Ok(false);
        };
        let at = unit as usize * self.recipe.ring.unit;
        self.copy.write(at, bytemuck::bytes_of(header));
        self.copy.write(at + HEADER, payload);
        if self.inbox.owes_some() {
            // The receives first: the peer may use them as soon as it has the credit.
            self.post_receives()?;
            self.inbox.credit();
            self.counts.carried += 1;
        }
        self.enqueue(at, bytes, Notice::Record { unit, count: self.inbox.returned() });
        if !later || self.batch.len() >= BATCH {
            self.flush()?;
        }
        Ok(true)
    }

    fn enqueue(&mut self, at: usize, length: usize, notice: Notice) {
        let (here, there) = (self.copy.piece(at, length), self.remote.plus(at));
        self.request(What::WriteAndTell(notice.to_number()), here, there);
    }

    fn request(&mut self, what: What, here: Piece, there: Remote) {
        let signalled = self.queue.post(self.outbox.written());
        self.batch.push(Work { id: self.id, what, here, there, signalled });
    }

    /// Puts bytes into the peer's memory, behind everything posted so far: how many; 0: there is no room now.
    pub(super) fn put(&mut self, there: Remote, bytes: &[u8]) -> Result<usize> {
        let now = bytes.len().min(PLACE);
        let Some(place) = self.place()? else { return Ok(0) };
        let bounce = self.bounce.as_mut().expect("a place is part of it");
        bounce.memory.write(place * PLACE, &bytes[..now]);
        let here = bounce.memory.piece(place * PLACE, now);
        let number = self.one_sided(What::Write, here, there)?;
        self.bounce.as_mut().expect("as above").places.send(place, number);
        Ok(now)
    }

    /// Begins to fetch bytes from the peer's memory, at most [`PLACE`]: the number of the request. `None`: no room now.
    pub(super) fn get(&mut self, there: Remote, bytes: usize) -> Result<Option<u64>> {
        let Some(place) = self.place()? else { return Ok(None) };
        let bounce = self.bounce.as_mut().expect("a place is part of it");
        let here = bounce.memory.piece(place * PLACE, bytes);
        let number = self.one_sided(What::Read, here, there)?;
        self.bounce.as_mut().expect("as above").places.fetch(place, number);
        Ok(Some(number))
    }

    /// Takes what was fetched; `false`: it has not come yet.
    pub(super) fn take(&mut self, number: u64, out: &mut [u8]) -> bool {
        if !self.queue.is_done(number) {
            return false;
        }
        if let Some(Bounce { memory, places }) = &mut self.bounce
            && let Some(place) = places.take(number)
        {
            memory.read(place * PLACE, out);
        }
        true
    }

    /// Puts bytes of registered memory, which must not change until the request of this number is done.
    pub(super) fn put_piece(&mut self, there: Remote, here: Piece) -> Result<Option<u64>> {
        if self.queue.room() <= RESERVED {
            return Ok(None);
        }
        self.one_sided(What::Write, here, there).map(Some)
    }

    /// A place for bytes on their way, and a place of the send queue.
    fn place(&mut self) -> Result<Option<usize>> {
        if self.queue.room() <= RESERVED {
            return Ok(None);
        }
        if self.bounce.is_none() {
            let memory = Region::landing(&self.device, PLACE * PLACES).map_err(|error| error.to_string())?;
            self.bounce = Some(Bounce { memory, places: Places::new() });
        }
        let queue = &self.queue;
        Ok(self.bounce.as_mut().and_then(|bounce| bounce.places.free(|request| queue.is_done(request))))
    }

    /// Posts a one-sided request at once, with a completion of its own: somebody waits for it, or its place does.
    fn one_sided(&mut self, what: What, here: Piece, there: Remote) -> Result<u64> {
        self.queue.ask_next();
        self.request(what, here, there);
        let number = self.queue.posted();
        self.flush()?;
        Ok(number)
    }

    /// Gives the device what is kept, with one doorbell; `true` when there was any.
    pub(super) fn flush(&mut self) -> Result<bool> {
        if self.batch.is_empty() {
            return Ok(false);
        }
        self.pair.post(&self.batch).map_err(|error| error.to_string())?;
        self.counts.posts += self.batch.len() as u64;
        self.counts.doorbells += 1;
        self.batch.clear();
        Ok(true)
    }

    /// A request that asked for it is done.
    pub(super) fn sent(&mut self) -> Result<()> {
        self.counts.completions += 1;
        self.queue.complete().map_err(str::to_string)
    }

    /// The peer has written and sent this number.
    pub(super) fn received(&mut self, number: u32, bytes: usize) -> Result<()> {
        self.used += 1;
        if self.used >= self.together {
            self.post_receives()?;
        }
        match Notice::from_number(number) {
            Notice::Record { unit, count } => {
                self.outbox.credit(count)?;
                let arrival = self.inbox.arrive(unit, bytes)?;
                self.arrived.push_back(arrival);
            }
            Notice::Credit(count) => self.outbox.credit(count)?,
        }
        Ok(())
    }

    fn post_receives(&mut self) -> Result<()> {
        let count = std::mem::take(&mut self.used);
        self.pair.post_receives(count, self.id + 1).map_err(|error| error.to_string())
    }

    /// The header of the oldest record that has not been taken, and its payload where it lies.
    pub(super) fn peek(&self) -> Option<std::result::Result<(Header, InRing<'_>), &'static str>> {
        let arrival = self.arrived.front()?;
        if arrival.bytes < HEADER {
            return Some(Err("shorter than a header"));
        }
        let mut bytes = [0; HEADER];
        self.ring.read(arrival.at, &mut bytes);
        let header = Header::from_bytes(&bytes);
        if header.payload as usize != arrival.bytes - HEADER {
            return Some(Err("a payload of another length"));
        }
        let payload = InRing { ring: &self.ring, at: arrival.at + HEADER, left: arrival.bytes - HEADER };
        Some(Ok((header, payload)))
    }

    /// The oldest record has been taken. Returns its place to the peer when enough has come together.
    pub(super) fn release(&mut self) -> Result<()> {
        if let Some(arrival) = self.arrived.pop_front() {
            self.inbox.release(arrival);
        }
        self.return_credit()
    }

    /// Returns what is owed, as far as the send queue has a place for it: tried again at every poll.
    pub(super) fn return_credit(&mut self) -> Result<()> {
        if !self.inbox.owes() || self.queue.room() == 0 {
            return Ok(());
        }
        // The receives first, as in `push`.
        self.post_receives()?;
        let count = self.inbox.credit();
        self.enqueue(0, 0, Notice::Credit(count));
        self.counts.credits += 1;
        self.flush().map(drop)
    }

    /// Whether the device has sent everything and the peer's has it; when only a completion is missing that nothing asked
    /// for, asks for it.
    pub(super) fn settle(&mut self) -> Result<bool> {
        self.flush()?;
        if self.queue.is_idle() {
            return Ok(true);
        }
        if self.queue.has_silent() && self.queue.room() > 0 {
            self.queue.ask_next();
            let count = self.inbox.credit();
            self.enqueue(0, 0, Notice::Credit(count));
            self.flush()?;
        }
        Ok(false)
    }
}

/// A payload that still lies in the ring.
pub(super) struct InRing<'a> {
    ring: &'a Region,
    at: usize,
    left: usize,
}

impl Payload for InRing<'_> {
    fn len(&self) -> usize {
        self.left
    }

    fn copy_to(&mut self, out: &mut [u8]) -> usize {
        self.ring.read(self.at, out);
        self.at += out.len();
        self.left -= out.len();
        out.len()
    }
}
