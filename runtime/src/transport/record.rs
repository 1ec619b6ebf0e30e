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
    /// Forget it: the receiver cannot take it (wrong type or too long). `id` is the sender's.
    Discard = 4,
    /// A piece of a large message; `id` is the receiver's, `tag` the offset in bytes at which the piece belongs. The pieces
    /// of a message may come in any order.
    Data = 5,
    /// The sender of this connection sends nothing more.
    Bye = 6,
    /// The rest of a large message will not come; `id` is the receiver's, `tag` the number of bytes that were sent.
    Abandon = 7,
    /// Messages that cost `total` bytes have been matched, and `id` further messages may be announced.
    Credit = 8,
}

impl Kind {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [
            Kind::Eager,
            Kind::RequestToSend,
            Kind::ClearToSend,
            Kind::Discard,
            Kind::Data,
            Kind::Bye,
            Kind::Abandon,
            Kind::Credit,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
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
    pub(crate) zero_too: u32,
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
}

/// The payload of a record that is being delivered, wherever it lies.
pub(crate) trait Payload {
    /// Bytes not yet copied.
    fn len(&self) -> usize;
    /// Copies the next `out.len()` bytes, at most [`Payload::len`].
    fn copy_to(&mut self, out: &mut [u8]);
}

impl Payload for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn copy_to(&mut self, out: &mut [u8]) {
        let (now, later) = self.split_at(out.len());
        out.copy_from_slice(now);
        *self = later;
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
        let known: Vec<u8> = (0..=255).filter(|byte| Kind::from_byte(*byte).is_some()).collect();
        assert_eq!(known, [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
