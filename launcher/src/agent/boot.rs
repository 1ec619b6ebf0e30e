//! What ranks are born with: the sealed boot record, and the memory and wake-up descriptors that ranks of a host share.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use spmd::bootstrap::messages::{BOOT_MAGIC, Boot, Start};
use spmd::bootstrap::node::{Devices, Placement};
use spmd::bootstrap::{frame, versioned_prefix};
use spmd::config::keys;
use spmd::memory::Segment;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

/// What all ranks of this host inherit.
#[derive(Debug)]
pub(super) struct Shared {
    segment: OwnedFd,
    board: Segment,
    wake: Vec<OwnedFd>,
}

impl Shared {
    pub(super) fn create(ranks: usize, start: &Start) -> io::Result<Self> {
        let ring = usize::try_from(start.snapshot.get(keys::SHM_RING_BYTES)).unwrap_or(usize::MAX);
        let segment = Segment::create(ranks, ring)?;
        let board = Segment::map(&segment)?;
        // Not closed on exec: every rank inherits all of them, and nothing else is executed by the agent.
        fcntl_setfd(&segment, FdFlags::empty())?;
        let wake = (0..ranks).map(|_| eventfd(0, EventfdFlags::NONBLOCK)).collect::<rustix::io::Result<_>>()?;
        Ok(Self { segment, board, wake })
    }

    pub(super) fn boot(&self, start: &Start, rank: u32, placement: Placement, reached_at: Option<IpAddr>) -> Boot {
        Boot {
            job: start.job.clone(),
            key: start.key.clone(),
            snapshot: start.snapshot.clone(),
            rank,
            host_of: start.host_of.clone(),
            hosts: start.hosts.to_vec(),
            segment_fd: self.segment.as_raw_fd(),
            wake_fds: self.wake.iter().map(AsRawFd::as_raw_fd).collect(),
            oversubscribed: start.oversubscribed,
            reached_at,
            placement,
            devices: Devices::clone(&start.devices),
            survives: start.survives,
        }
    }

    /// Where ranks say what they are doing.
    pub(super) fn into_board(self) -> Segment {
        self.board
    }
}

/// The boot record in a memfd that nobody can change any more.
pub(super) fn record(boot: &Boot) -> io::Result<OwnedFd> {
    let body = frame::encode(boot).map_err(io::Error::other)?;
    let bytes = [versioned_prefix(BOOT_MAGIC), body].concat();
    let memfd = memfd_create(c"spmd-boot", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(memfd);
    file.write_all(&bytes)?;
    let memfd = OwnedFd::from(file);
    fcntl_add_seals(&memfd, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(memfd)
}

/// The address of this host in `SSH_CONNECTION` (`client port server port`).
pub(super) fn reached_at(ssh_connection: &str) -> Option<IpAddr> {
    let server = ssh_connection.split_whitespace().nth(2)?;
    // An IPv6 address may carry the interface it was reached on.
    server.split('%').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_we_were_reached_at_is_the_third_word() {
        assert_eq!(reached_at("10.0.0.9 5000 10.0.0.2 22"), "10.0.0.2".parse().ok());
        assert_eq!(reached_at("fe80::9%eth0 5000 fe80::2%eth0 22"), "fe80::2".parse().ok());
        assert_eq!(reached_at("nonsense"), None);
    }
}
