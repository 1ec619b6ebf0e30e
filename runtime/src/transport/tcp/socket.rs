//! Sockets: made, dialled, and asked what the kernel still holds.

#![expect(unsafe_code, reason = "one ioctl that no crate wraps")]

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt},
};
use std::{
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
};

/// Bytes sent that the peer's kernel has not acknowledged (tcp(7), SIOCOUTQ); 0 when the connection is gone.
pub(super) fn unacknowledged(socket: impl AsFd) -> i32 {
    /// The same number as TIOCOUTQ on every architecture that Linux supports with a generic ioctl table.
    const SIOCOUTQ: rustix::ioctl::Opcode = 0x5411;
    // SAFETY: SIOCOUTQ writes one int.
    unsafe { rustix::ioctl::ioctl(socket, rustix::ioctl::Getter::<SIOCOUTQ, i32>::new()) }.unwrap_or(0)
}

/// Begins to connect; the socket becomes writable when that has succeeded or failed.
pub(super) fn dial(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        Some(ipproto::TCP),
    )?;
    prepare(&socket)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Small messages leave at once.
pub(super) fn prepare(socket: impl AsFd) -> Result<(), Errno> {
    sockopt::set_tcp_nodelay(socket, true)
}
