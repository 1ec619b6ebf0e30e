//! One-sided operations on the symmetric heaps of ranks whose memory is not mapped here: as records that the target's
//! engine carries out when its rank makes progress. Bytes go past it where the transport can move them by itself.
//!
//! No I/O and no clock. Records of one pair of ranks keep their order, so what is asked first is done first: a signal
//! covers every put before it, and an answer says that everything before it has been done.

use super::{Engine, core::Outgoing, operation::OperationId};
use crate::{
    error::{Error, Result},
    memory::heap::{HeapMemory, Update, Width},
    transport::{
        Direct, HeapKey,
        record::{Header, Kind, Payload},
    },
    verbs::Remote,
};
use bytemuck::{Pod, Zeroable};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Records that may wait for one peer before whoever adds to them has to wait.
const BACKLOG: usize = 64;
/// The most bytes that one `Get` asks for: the target copies them before they leave.
pub(crate) const GET: usize = 1 << 20;

/// The payload of an `Update` record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Change {
    /// 0 fetch, 1 set, 2 add, 3 compare and swap.
    code: u32,
    /// 4 or 8.
    width: u32,
    first: u64,
    second: u64,
    /// The number of the request that wants to know what was there before; 0: nobody.
    request: u64,
}

impl Change {
    fn new(width: Width, update: Update, request: u64) -> Self {
        let (code, first, second) = match update {
            Update::Fetch => (0, 0, 0),
            Update::Set(value) => (1, value, 0),
            Update::Add(value) => (2, value, 0),
            Update::CompareSwap(old, new) => (3, old, new),
        };
        let width = match width {
            Width::Four => 4,
            Width::Eight => 8,
        };
        Change { code, width, first, second, request }
    }

    fn parse(&self) -> Option<(Width, Update)> {
        let width = match self.width {
            4 => Width::Four,
            8 => Width::Eight,
            _ => return None,
        };
        let update = match self.code {
            0 => Update::Fetch,
            1 => Update::Set(self.first),
            2 => Update::Add(self.first),
            3 => Update::CompareSwap(self.first, self.second),
            _ => return None,
        };
        Some((width, update))
    }
}

/// The heaps of this rank, and what it waits for from others.
#[derive(Debug, Default)]
pub(crate) struct OneSided {
    heaps: FxHashMap<HeapKey, Arc<HeapMemory>>,
    requests: FxHashMap<OperationId, Request>,
    /// Who has changed something in which heap that is not here: the rank is told when it next asks whether all is done.
    missed: FxHashSet<(usize, HeapKey)>,
}

/// So many ranks and heaps are remembered at most: no correct program has any.
const MISSED: usize = 4096;

#[derive(Debug)]
struct Request {
    peer: usize,
    heap: HeapKey,
    answer: Vec<u8>,
    received: usize,
    outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Done,
    /// The target has no such heap, or no such place in it.
    Refused,
}

impl OneSided {
    /// The heaps of this rank.
    pub(super) fn heaps(&self) -> &FxHashMap<HeapKey, Arc<HeapMemory>> {
        &self.heaps
    }

    /// A record has come; answers go to the same peer through `reply`.
    pub(crate) fn record(
        &mut self,
        peer: usize,
        header: &Header,
        payload: &mut dyn Payload,
        reply: &mut dyn FnMut(Header, Vec<u8>),
    ) -> Result<()> {
        let corrupt = |what| Error::Corrupt { peer, what };
        let mut bytes = vec![0; payload.len()];
        payload.copy_to(&mut bytes);
        let heap = self.heaps.get(&(header.context, header.id));
        let refused = |id| Header { id, total: 1, ..Header::new(Kind::Answer) };
        // What a heap that has been dropped is still sent is nobody's; who wants an answer is told.
        let within = |length: usize| {
            let at = usize::try_from(header.tag).ok()?;
            heap.filter(|heap| at.checked_add(length).is_some_and(|end| end <= heap.part())).map(|heap| (heap, at))
        };
        match Kind::from_byte(header.kind) {
            Some(Kind::Put) => match within(bytes.len()) {
                Some((heap, at)) => heap.write(heap.own(), at, &bytes),
                None => self.miss(peer, header),
            },
            Some(Kind::Update) => {
                let change: Change =
                    bytemuck::try_pod_read_unaligned(&bytes).map_err(|_| corrupt("an update of another length"))?;
                let (width, update) = change.parse().ok_or(corrupt("an update of no known kind"))?;
                let found = within(width.bytes()).filter(|(_, at)| at.is_multiple_of(width.bytes()));
                let before = found.map(|(heap, at)| heap.update(heap.own(), at, width, update));
                match before {
                    None if change.request == 0 => self.miss(peer, header),
                    Some(_) if change.request == 0 => {}
                    None => reply(refused(change.request), Vec::new()),
                    Some(before) => answer(change.request, &before.to_ne_bytes(), reply),
                }
            }
            Some(Kind::Get) => {
                let request =
                    bytes.try_into().map(u64::from_ne_bytes).map_err(|_| corrupt("a get without a number"))?;
                let length = usize::try_from(header.total).unwrap_or(usize::MAX);
                if length == 0 {
                    // Everything before it has been done, or missed: records are taken in order.
                    match self.missed.remove(&(peer, (header.context, header.id))) {
                        true => reply(refused(request), Vec::new()),
                        false => answer(request, &[], reply),
                    }
                } else if let Some((heap, at)) = within(length).filter(|_| length <= GET) {
                    let mut found = vec![0; length];
                    heap.read(heap.own(), at, &mut found);
                    answer(request, &found, reply);
                } else {
                    reply(refused(request), Vec::new());
                }
            }
            Some(Kind::Answer) => {
                // Gone: whoever asked has given up.
                let Some(request) = self.requests.get_mut(&header.id) else { return Ok(()) };
                if request.peer != peer {
                    return Err(corrupt("an answer to what another rank was asked"));
                }
                if header.total != 0 {
                    request.outcome = Some(Outcome::Refused);
                    return Ok(());
                }
                let at = usize::try_from(header.tag).unwrap_or(usize::MAX);
                let room = at.checked_add(bytes.len()).and_then(|end| request.answer.get_mut(at..end));
                room.ok_or(corrupt("an answer longer than was asked for"))?.copy_from_slice(&bytes);
                request.received += bytes.len();
                if request.received == request.answer.len() {
                    request.outcome = Some(Outcome::Done);
                }
            }
            _ => return Err(corrupt("a record that is not one-sided")),
        }
        Ok(())
    }
}

impl OneSided {
    /// A rank has changed something in a heap that is not here, and does not wait for an answer.
    #[cold]
    fn miss(&mut self, peer: usize, header: &Header) {
        if self.missed.len() < MISSED {
            self.missed.insert((peer, (header.context, header.id)));
        }
    }
}

/// Bytes of one record of an answer or a put.
pub(crate) const PIECE: usize = 16 << 10;

fn answer(request: u64, bytes: &[u8], reply: &mut dyn FnMut(Header, Vec<u8>)) {
    let mut send = |at: usize, piece: &[u8]| {
        let header = Header { id: request, tag: at as u64, ..Header::new(Kind::Answer) };
        reply(with_payload(header, piece), piece.to_vec());
    };
    if bytes.is_empty() {
        send(0, bytes);
    }
    for (number, piece) in bytes.chunks(PIECE).enumerate() {
        send(number * PIECE, piece);
    }
}

fn with_payload(header: Header, payload: &[u8]) -> Header {
    Header { payload: u32::try_from(payload.len()).expect("pieces are small"), ..header }
}

impl Engine {
    pub(crate) fn add_heap(&mut self, key: HeapKey, memory: Arc<HeapMemory>) {
        self.core.one_sided.heaps.insert(key, memory);
    }

    pub(crate) fn remove_heap(&mut self, key: HeapKey) {
        for route in &mut self.routes.routes {
            route.transport.conceal(key);
        }
        self.core.one_sided.heaps.remove(&key);
    }

    /// Lets peers access a heap without this rank's help, where a transport can: what they must know.
    pub(crate) fn expose(&mut self, key: HeapKey, memory: &Arc<HeapMemory>) -> Option<Remote> {
        self.routes.routes.iter_mut().find_map(|route| route.transport.expose(key, memory))
    }

    /// Puts the front of `bytes` into memory that the peer has exposed, without its help.
    pub(crate) fn put_direct(&mut self, peer: usize, there: Remote, bytes: &[u8]) -> Result<Direct<usize>> {
        self.check(peer, "a put to it")?;
        self.transport(peer).put(peer, there, bytes)
    }

    /// The same with bytes of this rank's own part: the number of the request.
    pub(crate) fn put_own_direct(
        &mut self,
        peer: usize,
        there: Remote,
        key: HeapKey,
        at: usize,
        bytes: usize,
    ) -> Result<Direct<u64>> {
        self.check(peer, "a put to it")?;
        self.transport(peer).put_own(peer, there, key, at, bytes)
    }

    /// Begins to fetch bytes from memory that the peer has exposed: the number of the request.
    pub(crate) fn get_direct(&mut self, peer: usize, there: Remote, bytes: usize) -> Result<Direct<u64>> {
        self.check(peer, "a get from it")?;
        self.transport(peer).get(peer, there, bytes)
    }

    /// Whether such a request is done; fills `out` with what it has fetched.
    pub(crate) fn take_direct(&mut self, peer: usize, request: u64, out: &mut [u8]) -> Result<bool> {
        if self.transport(peer).take(peer, request, out) {
            return Ok(true);
        }
        self.check(peer, "a one-sided operation on it").map(|()| false)
    }

    fn post(&mut self, peer: usize, header: Header, payload: Vec<u8>) {
        let header = with_payload(header, &payload);
        self.core.enqueue(peer, Outgoing::Parcel(header, payload));
    }

    /// As much of `bytes` as may wait for the peer now, to be put at `offset`; how much that was.
    pub(crate) fn put(&mut self, peer: usize, key: HeapKey, offset: usize, bytes: &[u8]) -> Result<usize> {
        self.check(peer, "a put to it")?;
        let room = BACKLOG.saturating_sub(self.core.peers[peer].outgoing.len());
        let mut done = 0;
        for piece in bytes.chunks(PIECE).take(room) {
            let (context, id) = key;
            let header = Header { context, id, tag: (offset + done) as u64, ..Header::new(Kind::Put) };
            self.post(peer, header, piece.to_vec());
            done += piece.len();
        }
        Ok(done)
    }

    /// Asks the peer to update a word, and for what was there before where `wanted`: the number of that request. `None` when
    /// nothing more may wait for the peer now.
    pub(crate) fn update(
        &mut self,
        peer: usize,
        key: HeapKey,
        offset: usize,
        (width, update): (Width, Update),
        wanted: bool,
    ) -> Result<Option<OperationId>> {
        self.check(peer, "an atomic operation on it")?;
        if self.core.peers[peer].outgoing.len() >= BACKLOG {
            return Ok(None);
        }
        let request = if wanted { self.request(peer, key, size_of::<u64>()) } else { 0 };
        let (context, id) = key;
        let header = Header { context, id, tag: offset as u64, ..Header::new(Kind::Update) };
        self.post(peer, header, bytemuck::bytes_of(&Change::new(width, update, request)).to_vec());
        Ok(Some(request))
    }

    /// Asks the peer for bytes of its part, at most [`GET`]; for none: whether it has done everything before.
    pub(crate) fn get(&mut self, peer: usize, key: HeapKey, offset: usize, bytes: usize) -> Result<OperationId> {
        self.check(peer, "a get from it")?;
        let request = self.request(peer, key, bytes);
        let (context, id) = key;
        let header = Header { context, id, tag: offset as u64, total: bytes as u64, ..Header::new(Kind::Get) };
        self.post(peer, header, request.to_ne_bytes().to_vec());
        Ok(request)
    }

    fn request(&mut self, peer: usize, heap: HeapKey, bytes: usize) -> OperationId {
        let id = self.core.new_id();
        let request = Request { peer, heap, answer: vec![0; bytes], received: 0, outcome: None };
        self.core.one_sided.requests.insert(id, request);
        id
    }

    /// The answer to a request, once it has come; an error when it never will.
    pub(crate) fn take_answer(&mut self, id: OperationId) -> Option<Result<Vec<u8>>> {
        let request = self.core.one_sided.requests.get(&id)?;
        let (peer, outcome) = (request.peer, request.outcome);
        let result = match outcome {
            Some(Outcome::Done) => Ok(()),
            Some(Outcome::Refused) => Err(Error::Heap {
                operation: "a one-sided operation",
                reason: format!(
                    "rank {peer} has dropped heap {} of its communicator, and what was put or changed there is lost: drop \
                     heaps on all ranks after a barrier",
                    request.heap.1
                ),
            }),
            None => match self.check(peer, "a one-sided operation on it") {
                Ok(()) => return None,
                Err(error) => Err(error),
            },
        };
        let request = self.core.one_sided.requests.remove(&id)?;
        Some(result.map(|()| request.answer))
    }

    /// Nobody waits for this answer any more.
    pub(crate) fn abandon_request(&mut self, id: OperationId) {
        self.core.one_sided.requests.remove(&id);
    }
}

/// Takes any record: it is carried out, refused, or an error, and never touches anything but the heap. The first bytes are
/// the header.
#[cfg(fuzzing)]
pub fn fuzz(bytes: &[u8]) {
    use crate::transport::record::HEADER;
    let Some((header, mut payload)) = bytes.split_first_chunk::<HEADER>() else { return };
    let mut rank = OneSided::default();
    let heap = HeapMemory::private(4096).expect("a page");
    rank.heaps.insert((2, 7), Arc::new(heap));
    rank.requests.insert(3, Request { peer: 1, heap: (2, 7), answer: vec![0; 64], received: 0, outcome: None });
    let header = Header::from_bytes(header);
    let mut answered = 0;
    let taken = rank.record(1, &header, &mut payload, &mut |header, bytes| {
        assert_eq!(header.kind, Kind::Answer as u8);
        answered += bytes.len();
    });
    assert!(answered <= 4096, "never more than the heap has");
    // Its length is not the header's to choose.
    let _ = taken;
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: HeapKey = (2, 7);

    /// Lets a rank with one heap take a record; its replies.
    fn take(rank: &mut OneSided, header: Header, payload: &[u8]) -> Result<Vec<(Header, Vec<u8>)>> {
        let mut replies = Vec::new();
        let mut payload = payload;
        rank.record(1, &header, &mut payload, &mut |header, payload| replies.push((header, payload)))?;
        Ok(replies)
    }

    fn rank() -> OneSided {
        let mut rank = OneSided::default();
        rank.heaps.insert(KEY, Arc::new(HeapMemory::private(4096).unwrap()));
        rank
    }

    fn header(kind: Kind, tag: u64) -> Header {
        Header { context: KEY.0, id: KEY.1, tag, ..Header::new(kind) }
    }

    #[test]
    fn what_was_put_is_got() {
        let mut rank = rank();
        assert!(take(&mut rank, header(Kind::Put, 10), b"hello").unwrap().is_empty());
        let get = Header { total: 7, ..header(Kind::Get, 9) };
        let replies = take(&mut rank, get, &99_u64.to_ne_bytes()).unwrap();
        assert_eq!(replies.len(), 1);
        assert_eq!((replies[0].0.id, replies[0].0.total, &replies[0].1[..]), (99, 0, &b"\0hello\0"[..]));
    }

    #[test]
    fn every_update_survives_its_record() {
        for width in [Width::Four, Width::Eight] {
            for update in [Update::Fetch, Update::Set(1), Update::Add(2), Update::CompareSwap(3, 4)] {
                assert_eq!(Change::new(width, update, 5).parse(), Some((width, update)));
            }
        }
        let wrong = Change { width: 5, ..Change::new(Width::Four, Update::Fetch, 0) };
        assert_eq!(wrong.parse(), None);
    }

    #[test]
    fn places_that_do_not_exist_are_refused_and_never_written() {
        let mut rank = rank();
        for (tag, id) in [(4090, KEY.1), (u64::MAX - 3, KEY.1), (0, 8)] {
            let wrong = |kind| Header { id, ..header(kind, tag) };
            assert!(take(&mut rank, wrong(Kind::Put), &[1; 7]).unwrap().is_empty());
            let change = Change::new(Width::Eight, Update::Set(1), 5);
            let replies = take(&mut rank, wrong(Kind::Update), bytemuck::bytes_of(&change)).unwrap();
            assert_eq!((replies[0].0.id, replies[0].0.total), (5, 1));
            let get = Header { total: 8, ..wrong(Kind::Get) };
            assert_eq!(take(&mut rank, get, &6_u64.to_ne_bytes()).unwrap()[0].0.total, 1);
        }
        let mut all = [0; 4096];
        rank.heaps[&KEY].read(0, 0, &mut all);
        assert_eq!(all, [0; 4096]);
    }

    #[test]
    fn records_that_no_peer_sends_are_errors() {
        let mut rank = rank();
        assert!(take(&mut rank, header(Kind::Update, 0), &[0; 31]).is_err());
        assert!(take(&mut rank, header(Kind::Update, 0), &[9; 32]).is_err());
        assert!(take(&mut rank, header(Kind::Get, 0), &[0; 7]).is_err());
        assert!(take(&mut rank, header(Kind::Eager, 0), &[]).is_err());
        rank.requests.insert(3, Request { peer: 1, heap: KEY, answer: vec![0; 2], received: 0, outcome: None });
        assert!(take(&mut rank, Header { id: 3, tag: 1, ..Header::new(Kind::Answer) }, &[1; 2]).is_err());
        assert!(take(&mut rank, Header { id: 4, ..Header::new(Kind::Answer) }, &[]).unwrap().is_empty());
    }
}
