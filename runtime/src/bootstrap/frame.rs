//! Length-framed bincode: `u32` little-endian length, then the message.
//!
//! The only place that uses bincode. A length above the limit is refused before anything is allocated, and decoding is
//! bounded by the same limit, so a hostile or confused peer cannot make us allocate more than [`MAX_FRAME`].

use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};

/// The largest message in bytes (64 MiB): a start frame for thousands of ranks, not more.
pub const MAX_FRAME: usize = 64 << 20;

/// A frame could not be read, written or understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The stream ended or failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The length field is larger than [`MAX_FRAME`].
    #[error("a frame of {length} bytes is announced, {MAX_FRAME} are allowed: the peer does not speak this protocol")]
    TooLong {
        /// The announced length in bytes.
        length: usize,
    },
    /// The bytes are not a message of the expected type.
    #[error("a frame of {length} bytes cannot be decoded: {reason}")]
    Malformed {
        /// The frame's length in bytes.
        length: usize,
        /// What the decoder said.
        reason: String,
    },
    /// The message is too large to be sent.
    #[error("a message of {length} bytes is larger than the {MAX_FRAME} bytes a frame may carry")]
    Oversize {
        /// The encoded length in bytes.
        length: usize,
    },
}

fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<MAX_FRAME>()
}

/// The bytes of `message`, without the length field.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, FrameError> {
    let bytes = bincode::serde::encode_to_vec(message, config())
        .map_err(|error| FrameError::Malformed { length: 0, reason: error.to_string() })?;
    if bytes.len() > MAX_FRAME {
        return Err(FrameError::Oversize { length: bytes.len() });
    }
    Ok(bytes)
}

/// The message in `bytes`, all of which must be used.
pub fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, FrameError> {
    let malformed = |reason: String| FrameError::Malformed { length: bytes.len(), reason };
    let (message, used) =
        bincode::serde::decode_from_slice(bytes, config()).map_err(|error| malformed(error.to_string()))?;
    if used != bytes.len() {
        return Err(malformed(format!("{} bytes are left over", bytes.len() - used)));
    }
    Ok(message)
}

/// Writes one frame and flushes.
pub fn write<M: Serialize>(writer: &mut impl Write, message: &M) -> Result<(), FrameError> {
    writer.write_all(&to_frame(message)?)?;
    writer.flush()?;
    Ok(())
}

/// One frame, length field included, for writers that send by themselves.
pub fn to_frame<M: Serialize>(message: &M) -> Result<Vec<u8>, FrameError> {
    framed(&encode(message)?)
}

/// The frame of a message that is encoded already: its length field and itself.
pub fn framed(body: &[u8]) -> Result<Vec<u8>, FrameError> {
    if body.len() > MAX_FRAME {
        return Err(FrameError::Oversize { length: body.len() });
    }
    let length = u32::try_from(body.len()).map_err(|_| FrameError::Oversize { length: body.len() })?;
    let mut frame = Vec::with_capacity(body.len() + 4);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(body);
    Ok(frame)
}

/// Reads one frame; `None` when the stream ends between two frames.
pub fn read<M: DeserializeOwned>(reader: &mut impl Read) -> Result<Option<M>, FrameError> {
    let mut length = [0_u8; 4];
    let mut have = 0;
    while have < length.len() {
        match reader.read(&mut length[have..]) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(n) => have += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME {
        return Err(FrameError::TooLong { length });
    }
    let mut body = Vec::new();
    // `take` grows the buffer as bytes arrive: a peer that announces much and sends little costs little.
    reader.take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    decode(&body).map(Some)
}

/// Splits a byte stream that arrives in arbitrary pieces into frames, for readers that must not block.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
}

impl Decoder {
    /// Adds bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete message, if one has arrived.
    pub fn next_frame<M: DeserializeOwned>(&mut self) -> Result<Option<M>, FrameError> {
        let Some(end) = self.complete()? else { return Ok(None) };
        let message = decode(&self.buffer[4..end])?;
        self.buffer.drain(..end);
        Ok(Some(message))
    }

    /// The next complete frame as it came, length field included, for those who only pass it on.
    pub fn next_raw(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let end = self.complete()?;
        Ok(end.map(|end| self.buffer.drain(..end).collect()))
    }

    /// Where the first frame ends, if it is complete.
    fn complete(&self) -> Result<Option<usize>, FrameError> {
        let Some(length) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_FRAME {
            return Err(FrameError::TooLong { length });
        }
        Ok(Some(4 + length).filter(|end| *end <= self.buffer.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_stream_in_pieces_of_any_size() {
        let message = (7_u32, "rank".to_string(), vec![1_u8, 2, 3]);
        let mut bytes = Vec::new();
        write(&mut bytes, &message).unwrap();
        write(&mut bytes, &message).unwrap();
        for piece in 1..bytes.len() {
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for part in bytes.chunks(piece) {
                decoder.push(part);
                while let Some(m) = decoder.next_frame::<(u32, String, Vec<u8>)>().unwrap() {
                    seen.push(m);
                }
            }
            assert_eq!(seen, [message.clone(), message.clone()]);
        }
    }

    #[test]
    fn frames_that_are_passed_on_stay_as_they_are() {
        let bytes = [to_frame(&"one").unwrap(), framed(&encode(&"two").unwrap()).unwrap()].concat();
        for piece in 1..bytes.len() {
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for part in bytes.chunks(piece) {
                decoder.push(part);
                while let Some(frame) = decoder.next_raw().unwrap() {
                    seen.extend(frame);
                }
            }
            assert_eq!(seen, bytes);
        }
        let mut decoder = Decoder::default();
        decoder.push(&[0xff; 5]);
        assert!(matches!(decoder.next_raw(), Err(FrameError::TooLong { .. })));
    }

    #[test]
    fn a_stream_that_ends_within_a_frame_is_an_error_and_between_frames_is_not() {
        let mut bytes = Vec::new();
        write(&mut bytes, &"hello").unwrap();
        assert!(matches!(read::<String>(&mut &bytes[..0]), Ok(None)));
        for end in 1..bytes.len() {
            assert!(matches!(read::<String>(&mut &bytes[..end]), Err(FrameError::Io(_))), "end {end}");
        }
        assert_eq!(read::<String>(&mut &bytes[..]).unwrap().as_deref(), Some("hello"));
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_allocation() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 0];
        assert!(matches!(read::<String>(&mut &bytes[..]), Err(FrameError::TooLong { .. })));
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        assert!(matches!(decoder.next_frame::<String>(), Err(FrameError::TooLong { .. })));
    }

    #[test]
    fn a_vector_that_claims_more_elements_than_the_frame_has_is_refused() {
        let mut body = encode(&u64::MAX).unwrap();
        body.push(0);
        assert!(matches!(decode::<Vec<u8>>(&body), Err(FrameError::Malformed { .. })));
    }

    #[test]
    fn trailing_bytes_are_refused() {
        let mut body = encode(&1_u8).unwrap();
        body.push(0);
        assert!(matches!(decode::<u8>(&body), Err(FrameError::Malformed { .. })));
    }
}
