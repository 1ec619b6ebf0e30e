//! The unit that transports carry: a fixed header and a payload.

use bytemuck::{Pod, Zeroable};

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A whole message.
    Eager = 1,
    /// A large message waits at the sender; `id` is the sender's.
    RequestToSend = 2,
    /// Send it: `id` is the sender's, `tag` the receiver's own id, which data records carry.
    ClearToSend = 3,
    /// Forget it: the receiver cannot take it (wrong type or too long), or (`tag` 1) leaves, or its communicator is revoked
    /// (2) or was dropped there (3). `id` is the sender's.
    Discard = 4,
    /// A piece of a large message; `id` is the receiver's, `tag` the offset in bytes at which the piece belongs. The pieces
    /// of a message may come in any order.
    Data = 5,
    /// The sender of this connection sends nothing more.
    Bye = 6,
    /// The rest of a large message will not come; `id` is the receiver's, `tag` the number of bytes that were sent.
    Abandon = 7,
    /// Nothing but what its header confirms. Within a transport only.
    Confirm = 8,
    /// Bytes for the receiver's part of a symmetric heap: `context` and `id` name the heap, `tag` is the offset.
    Put = 9,
    /// Change a word of the receiver's part: heap and offset as in `Put`; the payload is a `one_sided::Change`.
    Update = 10,
    /// Send bytes of your part: heap and offset as in `Put`, `total` the length; the payload is the number of the request.
    /// Of length 0 it asks whether everything before it has been done.
    Get = 11,
    /// The answer to an `Update` or a `Get`: `id` is the number of the request, `tag` the offset within the answer, `total`
    /// 0, or 1 when the receiver has no such heap or no such place in it.
    Answer = 12,
    /// What two ends of a transport say to each other about another way between them. Never leaves the transports.
    Agree = 13,
    /// Messages that cost `total` bytes have been matched, and `id` further messages may be announced.
    Credit = 14,
    /// The communicator `context` is revoked, by rank `id` of the world; `tag` 1 answers a rank that has said so.
    Revoke = 15,
}

impl Kind {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Kind::Eager,
            2 => Kind::RequestToSend,
            3 => Kind::ClearToSend,
            4 => Kind::Discard,
            5 => Kind::Data,
            6 => Kind::Bye,
            7 => Kind::Abandon,
            8 => Kind::Confirm,
            9 => Kind::Put,
            10 => Kind::Update,
            11 => Kind::Get,
            12 => Kind::Answer,
            13 => Kind::Agree,
            14 => Kind::Credit,
            15 => Kind::Revoke,
            _ => return None,
        })
    }
}

/// The header of a record: 48 bytes, native byte order (all ranks run the same program on the same architecture).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) kind: u8,
    pub(crate) zero: [u8; 3],
    /// The element type's signature.
    pub(crate) signature: u32,
    /// The communicator, and whether this is point-to-point or collective traffic.
    pub(crate) context: u64,
    pub(crate) tag: u64,
    /// Bytes of the whole message.
    pub(crate) total: u64,
    pub(crate) id: u64,
    /// Bytes of payload that follow in this record.
    pub(crate) payload: u32,
    /// For the transport: bytes that have arrived from the peer, the lower 32 bits of their number. 0 elsewhere.
    pub(crate) confirmed: u32,
}

/// The size of a header in bytes.
pub(crate) const HEADER: usize = size_of::<Header>();

impl Header {
    pub(crate) fn new(kind: Kind) -> Self {
        Header { kind: kind as u8, ..Header::zeroed() }
    }

    pub(crate) fn from_bytes(bytes: &[u8; HEADER]) -> Self {
        bytemuck::pod_read_unaligned(bytes)
    }

    /// The header of a whole message that is delivered as pieces for the receive `id`.
    pub(crate) fn as_piece_for(&self, id: u64) -> Self {
        Header { id, payload: self.payload, ..Header::new(Kind::Data) }
    }

    /// The first `bytes` bytes of the payload of a piece have been delivered: what is left of it.
    pub(crate) fn shorten(&mut self, bytes: usize) {
        self.payload -= u32::try_from(bytes).expect("no more than the payload");
        self.tag += bytes as u64;
    }
}

/// The payload of a record that is being delivered, wherever it lies.
pub(crate) trait Payload {
    /// Bytes not yet copied.
    fn len(&self) -> usize;
    /// Copies the next `out.len()` bytes, at most [`Payload::len`], and returns how many: fewer only of a piece
    /// ([`Kind::Data`]) whose rest has not arrived. That comes as a piece of its own.
    fn copy_to(&mut self, out: &mut [u8]) -> usize;
}

impl Payload for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn copy_to(&mut self, out: &mut [u8]) -> usize {
        let (now, later) = self.split_at(out.len());
        out.copy_from_slice(now);
        *self = later;
        now.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_its_bytes_at_any_alignment() {
        let header = Header {
            signature: 7,
            context: 1 << 40,
            tag: 3,
            total: u64::MAX,
            id: 9,
            payload: 5,
            ..Header::new(Kind::Data)
        };
        let mut bytes = [0_u8; HEADER + 1];
        bytes[1..].copy_from_slice(bytemuck::bytes_of(&header));
        assert_eq!(Header::from_bytes(bytes[1..].try_into().unwrap()), header);
        assert_eq!(HEADER, 48);
    }

    #[test]
    fn only_the_known_kinds_are_understood() {
        for byte in 0..=255 {
            let known = (1..=15).contains(&byte).then_some(byte);
            assert_eq!(Kind::from_byte(byte).map(|kind| kind as u8), known);
        }
    }
}
