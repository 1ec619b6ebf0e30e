//! What an agent writes on its standard output: noise of a login shell, the marker line, then frames.
//!
//! Pure: bytes in, frames out. The noise is kept (its last part) because it is the best explanation when no marker
//! ever comes.

use spmd::bootstrap::frame::{Decoder, FrameError};
use spmd::bootstrap::messages::{AGENT_MARKER, FromAgent, PROTOCOL};

/// How much noise is kept for error messages, in bytes.
const MAX_NOISE: usize = 8 << 10;
/// The longest rest of the marker line, in bytes.
const MAX_LINE: usize = 256;

/// What cannot be understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The agent speaks another protocol.
    #[error(
        "the rsrun there is version {version} with protocol {protocol}, this one is version {} with protocol {PROTOCOL}: install the same version on both",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// The agent's protocol version.
        protocol: u32,
        /// The agent's package version.
        version: String,
    },
    /// The marker line is damaged.
    #[error("the line that announces the agent is damaged: {line:?}")]
    Marker {
        /// The line.
        line: String,
    },
    /// A frame is damaged.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// The marker line an agent prints, newline included.
pub fn marker_line(nonce: &str) -> String {
    format!("{AGENT_MARKER} {nonce} {PROTOCOL} {}\n", env!("CARGO_PKG_VERSION"))
}

/// The reading side of one agent's output.
#[derive(Debug)]
pub struct AgentStream {
    needle: Vec<u8>,
    buffer: Vec<u8>,
    noise: Tail,
    decoder: Option<Decoder>,
}

impl AgentStream {
    /// A stream whose marker line carries `nonce`.
    pub fn new(nonce: &str) -> Self {
        Self {
            needle: format!("{AGENT_MARKER} {nonce} ").into_bytes(),
            buffer: Vec::new(),
            noise: Tail::default(),
            decoder: None,
        }
    }

    /// Whether the marker has been seen: the agent runs.
    pub fn is_open(&self) -> bool {
        self.decoder.is_some()
    }

    /// What came before the marker (all of it when there was none): its last part.
    pub fn noise(&self) -> String {
        let mut noise = self.noise.clone();
        noise.push(&self.buffer);
        noise.text()
    }

    /// Adds bytes as they came; complete frames are appended to `frames`.
    pub fn push(&mut self, bytes: &[u8], frames: &mut Vec<FromAgent>) -> Result<(), StreamError> {
        if self.decoder.is_none() {
            self.buffer.extend_from_slice(bytes);
            self.find_marker()?;
        } else if let Some(decoder) = &mut self.decoder {
            decoder.push(bytes);
        }
        if let Some(decoder) = &mut self.decoder {
            while let Some(frame) = decoder.next_frame()? {
                frames.push(frame);
            }
        }
        Ok(())
    }

    fn find_marker(&mut self) -> Result<(), StreamError> {
        let found = self.buffer.windows(self.needle.len()).position(|w| w == self.needle);
        let Some(at) = found else {
            // A needle may be cut by the end of what has come so far: keep that much.
            let keep = self.needle.len().min(self.buffer.len());
            let noise: Vec<u8> = self.buffer.drain(..self.buffer.len() - keep).collect();
            self.noise.push(&noise);
            return Ok(());
        };
        let rest = &self.buffer[at + self.needle.len()..];
        let Some(end) = rest.iter().position(|b| *b == b'\n') else {
            if rest.len() > MAX_LINE {
                return Err(StreamError::Marker { line: String::from_utf8_lossy(&rest[..MAX_LINE]).into_owned() });
            }
            return Ok(());
        };
        let line = String::from_utf8_lossy(&rest[..end]).trim_end().to_string();
        let damaged = || StreamError::Marker { line: line.clone() };
        let (protocol, version) = line.split_once(' ').ok_or_else(damaged)?;
        let protocol = protocol.parse::<u32>().map_err(|_| damaged())?;
        if protocol != PROTOCOL {
            return Err(StreamError::Version { protocol, version: version.to_string() });
        }
        let mut decoder = Decoder::default();
        decoder.push(&rest[end + 1..]);
        self.noise.push(&self.buffer[..at]);
        self.buffer = Vec::new();
        self.decoder = Some(decoder);
        Ok(())
    }
}

/// The last part (8 KiB) of a text that may be long.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    bytes: Vec<u8>,
    cut: bool,
}

impl Tail {
    /// Adds bytes; the oldest are forgotten.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > MAX_NOISE {
            let excess = self.bytes.len() - MAX_NOISE;
            self.bytes.drain(..excess);
            self.cut = true;
        }
    }

    /// The text, its lines joined by ` | ` so that it fits into a message of one line.
    pub fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let clean: String = text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
        let lines: Vec<&str> = clean.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        // The reason stands last in what shells and ssh print.
        let shown = &lines[lines.len().saturating_sub(4)..];
        let dots = if self.cut || shown.len() < lines.len() { "… | " } else { "" };
        if shown.is_empty() { String::new() } else { format!("{dots}{}", shown.join(" | ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spmd::bootstrap::frame;

    fn hello() -> FromAgent {
        FromAgent::Hello { hostname: "n1".into(), allowed_cores: 4, identity: "x".into(), pid: 7 }
    }

    #[test]
    fn noise_before_the_marker_is_skipped_and_kept_however_the_bytes_are_cut() {
        let mut bytes = b"Welcome to n1\r\nlast login: RSRUN-AGENT beef 1 0\nprompt> ".to_vec();
        bytes.extend_from_slice(marker_line("cafe").as_bytes());
        bytes.extend_from_slice(&frame::to_frame(&hello()).unwrap());
        bytes.extend_from_slice(&frame::to_frame(&FromAgent::Done).unwrap());
        for piece in 1..bytes.len() {
            let mut stream = AgentStream::new("cafe");
            let mut frames = Vec::new();
            for part in bytes.chunks(piece) {
                stream.push(part, &mut frames).unwrap();
            }
            assert!(matches!(frames[..], [FromAgent::Hello { pid: 7, .. }, FromAgent::Done]), "piece {piece}");
            assert!(stream.noise().starts_with("Welcome to n1 | "), "{}", stream.noise());
        }
    }

    #[test]
    fn another_protocol_is_refused_with_both_versions() {
        let (mut stream, other) = (AgentStream::new("cafe"), PROTOCOL + 1);
        let hello = format!("RSRUN-AGENT cafe {other} 7.8.9\n");
        let error = stream.push(hello.as_bytes(), &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("7.8.9") && error.contains(&format!("protocol {other}")), "{error}");
        assert!(
            error.contains(env!("CARGO_PKG_VERSION")) && error.contains(&format!("protocol {PROTOCOL}")),
            "{error}"
        );
    }

    #[test]
    fn endless_noise_costs_bounded_memory() {
        let mut stream = AgentStream::new("cafe");
        for _ in 0..1000 {
            stream.push(&[b'x'; 4096], &mut Vec::new()).unwrap();
        }
        assert!(stream.buffer.len() < 100 && stream.noise.bytes.len() <= MAX_NOISE);
        assert!(!stream.is_open());
        stream.push(b"RSRUN-AGENT cafe ", &mut Vec::new()).unwrap();
        assert!(matches!(stream.push(&[b'1'; 300], &mut Vec::new()), Err(StreamError::Marker { .. })));
    }

    #[test]
    fn a_damaged_frame_after_the_marker_is_an_error() {
        let mut stream = AgentStream::new("cafe");
        stream.push(marker_line("cafe").as_bytes(), &mut Vec::new()).unwrap();
        assert!(matches!(stream.push(&[0xff; 8], &mut Vec::new()), Err(StreamError::Frame(_))));
    }
}
