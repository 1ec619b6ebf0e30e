//! Floors between two sockets: bytes there and back, and windows one way, both ends spinning on one connection without
//! delay, one system call a message. Both ranks call the same function at the same time.

use super::memory::spin_until;
use crate::measure::median;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long a peer may take to connect.
const LIMIT: Duration = Duration::from_secs(5);
/// How long to try one address.
const TRY: Duration = Duration::from_secs(1);
const TOKEN: usize = 16;
const WARM_UP: usize = 10;
/// Bytes to send for one figure, about.
const VOLUME: usize = 64 << 20;

/// One end of the connection.
#[derive(Debug)]
pub(super) struct Line {
    stream: TcpStream,
    first: bool,
}

impl Line {
    /// Waits for the one who says the token; others are sent away.
    pub(super) fn accept(listener: &TcpListener, token: [u8; TOKEN]) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let until = Instant::now() + LIMIT;
        while Instant::now() < until {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    stream.set_nonblocking(false)?;
                    stream.set_read_timeout(Some(TRY))?;
                    let mut said = [0; TOKEN];
                    if stream.read_exact(&mut said).is_ok() && said == token {
                        return Self::prepared(stream, true);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(TRY / 500),
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Connects to the first address that answers.
    pub(super) fn connect(addresses: &[IpAddr], port: u16, token: [u8; TOKEN]) -> io::Result<Self> {
        let mut last = io::Error::other("the first rank's host has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&SocketAddr::new(*address, port), TRY) {
                Ok(mut stream) => {
                    stream.write_all(&token)?;
                    return Self::prepared(stream, false);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn prepared(stream: TcpStream, first: bool) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Line { stream, first })
    }

    /// Microseconds of half a round trip of `bytes` (one at least), P50. On the first rank.
    pub(super) fn round_trip(&mut self, bytes: usize) -> io::Result<f64> {
        let mut message = vec![7; bytes.max(1)];
        let rounds = (VOLUME / message.len()).clamp(20, 1000);
        let mut samples = Vec::new();
        for round in 0..WARM_UP + rounds {
            let begun = Instant::now();
            if self.first {
                self.write(&message)?;
                self.read(&mut message)?;
            } else {
                self.read(&mut message)?;
                self.write(&message)?;
            }
            if round >= WARM_UP {
                samples.push(begun.elapsed().as_secs_f64() * 1e6 / 2.0);
            }
        }
        Ok(median(samples).unwrap_or(f64::NAN))
    }

    /// Microseconds for each message of windows that the first rank writes and the last answers with a byte, P50. On the
    /// first rank.
    pub(super) fn windows(&mut self, window: usize, bytes: usize) -> io::Result<f64> {
        let mut message = vec![7; bytes.max(1)];
        let rounds = (VOLUME * 4 / (window * message.len())).clamp(3, 200);
        let mut samples = Vec::new();
        for round in 0..1 + rounds {
            let begun = Instant::now();
            for _ in 0..window {
                if self.first {
                    self.write(&message)?;
                } else {
                    self.read(&mut message)?;
                }
            }
            if self.first {
                self.read(&mut [0])?;
            } else {
                self.write(&[1])?;
            }
            if round > 0 {
                samples.push(begun.elapsed().as_secs_f64() * 1e6 / window as f64);
            }
        }
        Ok(median(samples).unwrap_or(f64::NAN))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut written = 0;
        spin(|| {
            written += match self.stream.write(&bytes[written..]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                result => result?,
            };
            Ok(written == bytes.len())
        })
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        spin(|| {
            filled += match self.stream.read(&mut bytes[filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                result => result?,
            };
            Ok(filled == bytes.len())
        })
    }
}

fn spin(mut done: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let mut result = Ok(());
    spin_until(|| match done() {
        Ok(done) => done,
        Err(error) => {
            result = Err(error);
            true
        }
    });
    result
}

/// The addresses of this network namespace, without those of one link only, and without loopback.
pub(super) fn own_addresses() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let others = interfaces.iter().filter(|interface| !interface.is_loopback() && !interface.is_link_local());
    others.map(if_addrs::Interface::ip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_without_the_token_is_sent_away() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let stranger =
            std::thread::spawn(move || TcpStream::connect(address).and_then(|mut s| s.write_all(&[9; TOKEN])));
        stranger.join().expect("no panic").expect("it connects");
        let friend = std::thread::spawn(move || Line::connect(&[address.ip()], address.port(), [3; TOKEN]));
        let mut first = Line::accept(&listener, [3; TOKEN]).expect("the friend comes");
        let mut last = friend.join().expect("no panic").expect("it connects");
        let other = std::thread::spawn(move || last.round_trip(8).and_then(|_| last.windows(4, 100)));
        assert!(first.round_trip(8).expect("bytes go round") > 0.0);
        assert!(first.windows(4, 100).expect("bytes arrive") > 0.0);
        other.join().expect("no panic").expect("the other end works");
    }
}
