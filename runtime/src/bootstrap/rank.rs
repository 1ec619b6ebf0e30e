//! A rank's side of the bootstrap: what it was born with, and its conversation with the agent.

use super::{
    frame::{self, Decoder},
    inherited,
    messages::{
        BOOT_FD_VARIABLE, BOOT_MAGIC, Boot, CONTROL_FD_VARIABLE, FromRank, Hello, PROTOCOL, RANK_MAGIC, Release, ToRank,
    },
};
use crate::{
    engine::News,
    error::{Context, Error, Result},
};
use std::{
    io::{Read, Seek, SeekFrom, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Mutex,
};

/// Variables that other launchers set, with the number of ranks they mean to have started.
const OTHER_LAUNCHERS: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun"),
    ("PMI_SIZE", "MPICH's mpiexec"),
    ("MPI_LOCALNRANKS", "an MPI launcher"),
];

/// What the agent handed over; `None` when this program was started without `rsrun`.
pub(crate) fn born_with() -> Result<Option<(Boot, Control)>> {
    let Some(number) = descriptor(BOOT_FD_VARIABLE)? else {
        return refuse_other_launchers().map(|()| None);
    };
    let bad = |reason: String| Error::Bootstrap { reason };
    let mut file = std::fs::File::from(inherited::take(number, "boot record")?);
    let control = Control::take()?;
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.take(frame::MAX_FRAME as u64 + 4096).read_to_end(&mut bytes))
        .context("reading the launcher's boot record")?;
    let body = versioned(&bytes, BOOT_MAGIC).ok_or_else(|| bad("the launcher's boot record is garbled".into()))?;
    let body = body.map_err(|(protocol, version)| {
        control.present_version();
        bad(format!(
            "rsrun {version} speaks protocol {protocol}, this program was built with spmd {} and protocol {PROTOCOL}: \
             build the program and rsrun from the same version",
            env!("CARGO_PKG_VERSION")
        ))
    })?;
    let boot: Boot = frame::decode(body).map_err(|error| bad(format!("the launcher's boot record: {error}")))?;
    check(&boot)?;
    Ok(Some((boot, control)))
}

/// The number of a descriptor in a variable that the agent sets.
fn descriptor(variable: &str) -> Result<Option<i32>> {
    let Some(text) = std::env::var_os(variable) else { return Ok(None) };
    let number = text.to_str().and_then(|number| number.parse().ok());
    number.map(Some).ok_or_else(|| Error::Bootstrap {
        reason: format!("{variable}={} is not a descriptor: only rsrun sets it", text.display()),
    })
}

/// What a stream or record begins with: `magic, protocol, length, version text`.
#[must_use]
pub fn versioned_prefix(magic: [u8; 8]) -> Vec<u8> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    #[expect(clippy::cast_possible_truncation, reason = "a version text is short")]
    const LENGTH: u32 = VERSION.len() as u32;
    [&magic[..], &PROTOCOL.to_le_bytes(), &LENGTH.to_le_bytes(), VERSION.as_bytes()].concat()
}

/// Splits `magic, protocol, length, version text, body`. `None`: garbled. The inner error: another protocol.
fn versioned(bytes: &[u8], magic: [u8; 8]) -> Option<std::result::Result<&[u8], (u32, String)>> {
    let rest = bytes.strip_prefix(&magic)?;
    let (protocol, rest) = rest.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (version, body) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let protocol = u32::from_le_bytes(*protocol);
    if protocol == PROTOCOL { Some(Ok(body)) } else { Some(Err((protocol, String::from_utf8_lossy(version).into()))) }
}

/// A program that another launcher started would be n worlds of size 1 without anyone noticing.
fn refuse_other_launchers() -> Result<()> {
    for (variable, launcher) in OTHER_LAUNCHERS {
        let size = std::env::var(variable).ok().and_then(|size| size.parse::<u32>().ok());
        if let Some(size) = size.filter(|size| *size > 1) {
            return Err(Error::Bootstrap {
                reason: format!(
                    "this program was started by {launcher} ({variable}={size}), which it does not understand: start it \
                     with rsrun -n {size}, or unset {variable} to run alone"
                ),
            });
        }
    }
    Ok(())
}

/// A record of our own version can still be wrong: nothing in it is relied upon before this.
fn check(boot: &Boot) -> Result<()> {
    let bad = |what: &str| Err(Error::Bootstrap { reason: format!("the launcher's boot record {what}") });
    let Some(&host) = boot.host_of.get(boot.rank as usize) else { return bad("numbers this rank beyond the last one") };
    if boot.host_of.iter().any(|host| *host as usize >= boot.hosts.len()) {
        return bad("places a rank on a host that does not exist");
    }
    if boot.host_of.iter().filter(|other| **other == host).count() != boot.wake_fds.len() {
        return bad("has not one eventfd for every rank of this host");
    }
    Ok(())
}

/// The socket to the agent.
#[derive(Debug)]
pub(crate) struct Control {
    socket: UnixStream,
    reader: Mutex<Decoder>,
}

impl Control {
    fn take() -> Result<Self> {
        let number = descriptor(CONTROL_FD_VARIABLE)?.ok_or_else(|| Error::Bootstrap {
            reason: format!("{BOOT_FD_VARIABLE} is set and {CONTROL_FD_VARIABLE} is not: rsrun sets both"),
        })?;
        let socket = UnixStream::from(inherited::take(number, "control socket")?);
        Ok(Control { socket, reader: Mutex::default() })
    }

    /// Tells the agent, which speaks another protocol, which one this program speaks. The error is already known here;
    /// this lets the launcher report it with both versions.
    fn present_version(&self) {
        let _ = (&self.socket).write_all(&versioned_prefix(RANK_MAGIC));
    }

    /// The inherited segment and eventfds.
    pub(crate) fn descriptors(boot: &Boot) -> Result<(OwnedFd, Vec<OwnedFd>)> {
        let segment = inherited::take(boot.segment_fd, "shared segment")?;
        let wake = boot.wake_fds.iter().map(|fd| inherited::take(*fd, "eventfd")).collect::<Result<_>>()?;
        Ok((segment, wake))
    }

    pub(crate) fn descriptor(&self) -> &UnixStream {
        &self.socket
    }

    /// Says hello and waits until the launcher releases or refuses the job.
    pub(crate) fn agree(&self, hello: Hello) -> Result<Release> {
        let mut first = versioned_prefix(RANK_MAGIC);
        first.extend_from_slice(&frame::to_frame(&FromRank::Hello(hello)).map_err(lost)?);
        (&self.socket).write_all(&first).map_err(lost)?;
        match frame::read(&mut &self.socket).map_err(lost)? {
            Some(ToRank::Release(release)) => Ok(release),
            Some(ToRank::Refuse { reason }) => Err(Error::Refused { reason }),
            // A rank that is lost before all have come ends the job.
            Some(ToRank::Lost { rank, reason }) => {
                Err(Error::Refused { reason: format!("rank {rank} is lost: {reason}") })
            }
            // Only ranks of a released job are told: this answer belongs to no question.
            Some(ToRank::Finished { .. }) | None => Err(lost("it closed the connection")),
        }
    }

    pub(crate) fn say(&self, message: &FromRank) -> Result<()> {
        let bytes = frame::to_frame(message).map_err(lost)?;
        (&self.socket).write_all(&bytes).map_err(lost)
    }

    /// Looks at what the agent has sent.
    pub(crate) fn listen(&self) -> Vec<News> {
        let mut reader = self.reader.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut bytes = [0; 4096];
        loop {
            match rustix::net::recv(&self.socket, &mut bytes, rustix::net::RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return vec![News::Fatal(lost("it closed the connection"))],
                Ok((_, read)) => reader.push(&bytes[..read]),
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return vec![News::Fatal(lost(error))],
            }
        }
        let mut news = Vec::new();
        loop {
            match reader.next_frame::<ToRank>() {
                Ok(None) => return news,
                Ok(Some(ToRank::Release(_))) => {}
                Ok(Some(ToRank::Lost { rank, reason })) => news.push(News::Lost { peer: rank as usize, reason }),
                Ok(Some(ToRank::Finished { ranks })) => {
                    news.extend(ranks.into_iter().map(|rank| News::Finished { peer: rank as usize }));
                }
                Ok(Some(ToRank::Refuse { reason })) => news.push(News::Fatal(Error::Aborted { reason })),
                Err(error) => {
                    news.push(News::Fatal(lost(error)));
                    return news;
                }
            }
        }
    }
}

fn lost(error: impl std::fmt::Display) -> Error {
    Error::Aborted { reason: format!("the agent of this host is lost ({error})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(protocol: u32, version: &'static str, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::from(BOOT_MAGIC);
        bytes.extend_from_slice(&protocol.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(version.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(version.as_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn a_record_of_another_protocol_names_its_version_and_a_garbled_one_is_none() {
        assert_eq!(versioned(&record(PROTOCOL, "0.1.0", b"body"), BOOT_MAGIC), Some(Ok(&b"body"[..])));
        assert_eq!(
            versioned(&record(PROTOCOL + 1, "9.9.9", b"body"), BOOT_MAGIC),
            Some(Err((PROTOCOL + 1, "9.9.9".to_string())))
        );
        let good = record(PROTOCOL, "0.1.0", b"");
        for end in 0..good.len() {
            assert_eq!(versioned(&good[..end], BOOT_MAGIC), None, "cut at {end}");
        }
        assert_eq!(versioned(&record(PROTOCOL, "0.1.0", b""), RANK_MAGIC), None);
    }
}
