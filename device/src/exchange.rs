//! Passes one file descriptor of each rank to every other rank of its host (SCM_RIGHTS).
//!
//! Ranks tell each other, through the communicator, where they listen and a random word that a message must carry: a
//! process that is no rank cannot pass anything. The sockets have abstract names, so that nothing can stay behind.

use crate::{
    agree::agree,
    error::{Error, Result},
};
use rustix::{
    cmsg_space,
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recvmsg, sendmsg_addr, socket_with,
    },
};
use spmd::Communicator;
use spmd_collectives::Collectives;
use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    time::{Duration, Instant},
};

/// How long the others may take: they are at the same place of the program.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_micros(200);

/// Gives `own` to every other rank of the communicator, all of one host, and returns theirs by rank (its own: none).
/// Collective.
pub(crate) fn descriptors(near: &Communicator, own: BorrowedFd<'_>) -> Result<Vec<Option<OwnedFd>>> {
    let mut got: Vec<Option<OwnedFd>> = (0..near.size()).map(|_| None).collect();
    let mut card = [0_u8; 32];
    rustix::rand::getrandom(&mut card, rustix::rand::GetRandomFlags::empty())
        .map_err(system("drawing random bytes"))?;
    // The first half names the socket, the second must come with what is sent there.
    let socket = listen(&card[..16]);
    let cards = near.all_gather(&card)?;
    let mut missing: Vec<usize> = (0..near.size()).filter(|rank| *rank != near.rank()).collect();
    let given = socket.and_then(|socket| {
        let mut waiting = missing.len();
        let begun = Instant::now();
        while waiting > 0 || !missing.is_empty() {
            let mut moved = false;
            if let Some(&rank) = missing.last()
                && send(&socket, &cards[rank * 32..][..32], near.rank(), own)?
            {
                missing.pop();
                moved = true;
            }
            if let Some((rank, descriptor)) = receive(&socket, &card[16..])?
                && got.get(rank).is_some_and(Option::is_none)
            {
                got[rank] = Some(descriptor);
                waiting -= 1;
                moved = true;
            }
            if !moved {
                if begun.elapsed() > PATIENCE {
                    let error = std::io::ErrorKind::TimedOut.into();
                    return Err(Error::System { what: "passing file descriptors between ranks of a host", error });
                }
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    });
    // Nobody closes its socket while others still send there, and all give up together.
    let others = |reason| {
        let error = std::io::Error::other(reason);
        Error::System { what: "passing file descriptors between ranks of a host", error }
    };
    agree(near, given)?.map(|()| got).map_err(|refused| refused.error(others))
}

fn listen(name: &[u8]) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).map_err(system("making a socket"))?;
    let address = SocketAddrUnix::new_abstract_name(name).map_err(system("naming a socket"))?;
    bind(&socket, &address).map_err(system("naming a socket"))?;
    Ok(socket)
}

/// Sends; `false` when the other has no room yet.
fn send(socket: &OwnedFd, card: &[u8], rank: usize, own: BorrowedFd<'_>) -> Result<bool> {
    let address = SocketAddrUnix::new_abstract_name(&card[..16]).map_err(system("naming a socket"))?;
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights = [own];
    control.push(SendAncillaryMessage::ScmRights(&rights));
    let number = (rank as u64).to_ne_bytes();
    let parts = [IoSlice::new(&card[16..]), IoSlice::new(&number)];
    match sendmsg_addr(socket.as_fd(), &address, &parts, &mut control, SendFlags::NOSIGNAL) {
        Ok(_) => Ok(true),
        // ECONNREFUSED: nobody has that name. All names were there before they were told, so it is another namespace.
        Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Ok(false),
        Err(error) => Err(system("passing a file descriptor to a rank of this host")(error)),
    }
}

/// What has come with the right word: from which rank, and the descriptor.
fn receive(socket: &OwnedFd, word: &[u8]) -> Result<Option<(usize, OwnedFd)>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0_u8; 24];
    let received = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(system("receiving a file descriptor")(error)),
    };
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    let number = u64::from_ne_bytes(bytes[16..].try_into().expect("eight bytes"));
    let is_ours = received.bytes == bytes.len() && bytes[..16] == *word;
    Ok(descriptor.filter(|_| is_ours).and_then(|descriptor| Some((usize::try_from(number).ok()?, descriptor))))
}

fn system(what: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::System { what, error: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::io::{pread, write};

    #[test]
    fn every_rank_gets_the_descriptor_of_every_other() {
        for ranks in [1, 2, 5, 16] {
            spmd::local::run(ranks, |world| {
                let comm = world.communicator();
                let own = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
                write(&own, &[u8::try_from(comm.rank()).unwrap()]).unwrap();
                let got = descriptors(&comm, own.as_fd()).unwrap();
                for (rank, descriptor) in got.iter().enumerate() {
                    let Some(descriptor) = descriptor else {
                        assert_eq!(rank, comm.rank());
                        continue;
                    };
                    let mut byte = [0];
                    pread(descriptor, &mut byte, 0).unwrap();
                    assert_eq!(usize::from(byte[0]), rank);
                }
            });
        }
    }

    #[test]
    fn a_message_without_the_word_is_dropped() {
        let socket = listen(b"spmd-device-test").unwrap();
        let own = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        let mut card = *b"spmd-device-test0123456789abcdef";
        assert!(send(&socket, &card, 1, own.as_fd()).unwrap());
        assert!(receive(&socket, b"another word....").unwrap().is_none());
        card[16..].copy_from_slice(b"the right word..");
        assert!(send(&socket, &card, 1, own.as_fd()).unwrap());
        assert_eq!(receive(&socket, b"the right word..").unwrap().map(|(rank, _)| rank), Some(1));
        assert!(receive(&socket, b"the right word..").unwrap().is_none());
    }
}
