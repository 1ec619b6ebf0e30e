//! What a rank writes on its control socket: magic, version, then frames.
//!
//! Pure: bytes in, events out.

use spmd::bootstrap::frame::Decoder;
use spmd::bootstrap::messages::{FromRank, PROTOCOL, RANK_MAGIC};

/// The longest version text, in bytes.
const MAX_VERSION: usize = 256;

/// What came from a rank.
#[derive(Debug)]
pub(super) enum Event {
    /// A message.
    Message(FromRank),
    /// The rank speaks another protocol; nothing more can be understood.
    OtherVersion { protocol: u32, version: String },
}

/// The reading side of one rank's control socket.
#[derive(Debug, Default)]
pub(super) struct RankStream {
    head: Vec<u8>,
    decoder: Option<Decoder>,
    deaf: bool,
}

impl RankStream {
    /// Adds bytes as they came. The error is a reason in words: this is not a rank speaking.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, String> {
        let mut events = Vec::new();
        if self.deaf {
            return Ok(events);
        }
        match &mut self.decoder {
            Some(decoder) => decoder.push(bytes),
            None => {
                self.head.extend_from_slice(bytes);
                match self.read_head() {
                    Ok(Some(event)) => {
                        self.deaf = true;
                        events.push(event);
                        return Ok(events);
                    }
                    Ok(None) => {}
                    Err(reason) => {
                        self.deaf = true;
                        return Err(reason);
                    }
                }
            }
        }
        if let Some(decoder) = &mut self.decoder {
            loop {
                match decoder.next_frame() {
                    Ok(Some(message)) => events.push(Event::Message(message)),
                    Ok(None) => break,
                    Err(error) => {
                        self.deaf = true;
                        return Err(error.to_string());
                    }
                }
            }
        }
        Ok(events)
    }

    /// Magic, protocol, length, version text: as far as they have come.
    fn read_head(&mut self) -> Result<Option<Event>, String> {
        let seen = self.head.len().min(RANK_MAGIC.len());
        if self.head[..seen] != RANK_MAGIC[..seen] {
            return Err("its first bytes are not those of a rank".to_string());
        }
        let Some((numbers, rest)) = self.head.get(RANK_MAGIC.len()..).and_then(|rest| rest.split_first_chunk::<8>())
        else {
            return Ok(None);
        };
        let [a, b, c, d, e, f, g, h] = *numbers;
        let (protocol, length) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]) as usize);
        if length > MAX_VERSION {
            return Err(format!("it announces a version text of {length} bytes"));
        }
        let Some(version) = rest.get(..length) else { return Ok(None) };
        if protocol != PROTOCOL {
            let version = String::from_utf8_lossy(version).into_owned();
            return Ok(Some(Event::OtherVersion { protocol, version }));
        }
        let mut decoder = Decoder::default();
        decoder.push(&rest[length..]);
        self.decoder = Some(decoder);
        self.head = Vec::new();
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spmd::bootstrap::frame::to_frame;

    fn head(protocol: u32, version: &str) -> Vec<u8> {
        let length = u32::try_from(version.len()).unwrap();
        [&RANK_MAGIC[..], &protocol.to_le_bytes(), &length.to_le_bytes(), version.as_bytes()].concat()
    }

    #[test]
    fn messages_arrive_however_the_bytes_are_cut() {
        let mut bytes = head(PROTOCOL, "0.1.0");
        bytes.extend(to_frame(&FromRank::Finalized).unwrap());
        bytes.extend(to_frame(&FromRank::Abort { code: 3, message: "x".into() }).unwrap());
        for piece in 1..bytes.len() {
            let mut stream = RankStream::default();
            let mut events = Vec::new();
            for part in bytes.chunks(piece) {
                events.extend(stream.push(part).unwrap());
            }
            assert!(
                matches!(
                    events[..],
                    [Event::Message(FromRank::Finalized), Event::Message(FromRank::Abort { code: 3, .. })]
                ),
                "{piece}: {events:?}"
            );
        }
    }

    #[test]
    fn another_protocol_is_reported_once_with_its_version() {
        let mut stream = RankStream::default();
        let events = stream.push(&head(PROTOCOL + 1, "9.9.9")).unwrap();
        assert!(matches!(&events[..], [Event::OtherVersion { version, .. }] if version == "9.9.9"));
        assert!(stream.push(&[0xff; 100]).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_rank_is_an_error_once() {
        let mut stream = RankStream::default();
        assert!(stream.push(b"hello world").is_err());
        assert!(stream.push(b"more").unwrap().is_empty());
        let mut long = head(PROTOCOL, "");
        long.splice(12..16, 100_000_u32.to_le_bytes());
        assert!(RankStream::default().push(&long).is_err());
        let mut garbage = head(PROTOCOL, "0");
        garbage.extend([0xff; 8]);
        assert!(RankStream::default().push(&garbage).is_err());
    }
}
