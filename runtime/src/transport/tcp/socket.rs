//! Sockets: made, dialled, set up, and asked what the kernel still holds.

#![expect(unsafe_code, reason = "one ioctl and one socket option that no crate wraps")]

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt},
};
use std::{
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::Duration,
};

/// Bytes sent that the peer's kernel has not acknowledged (tcp(7), SIOCOUTQ); 0 when the connection is gone.
pub(super) fn unacknowledged(socket: impl AsFd) -> i32 {
    /// The same number as TIOCOUTQ on every architecture that Linux supports with a generic ioctl table.
    const SIOCOUTQ: rustix::ioctl::Opcode = 0x5411;
    // SAFETY: SIOCOUTQ writes one int.
    unsafe { rustix::ioctl::ioctl(socket, rustix::ioctl::Getter::<SIOCOUTQ, i32>::new()) }.unwrap_or(0)
}

/// Begins to connect; the socket becomes writable when that has succeeded or failed.
pub(super) fn dial(address: SocketAddr, silence: Duration) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        Some(ipproto::TCP),
    )?;
    prepare(&socket, silence)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Small messages leave at once, and a host that says nothing for `silence` is found out: unacknowledged bytes by
/// TCP_USER_TIMEOUT (RFC 5482), an idle connection by keep-alive probes (tcp(7)).
pub(super) fn prepare(socket: impl AsFd, silence: Duration) -> Result<(), Errno> {
    /// Probes without an answer after which the kernel gives a connection up.
    const PROBES: u32 = 3;
    let socket = socket.as_fd();
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    // The kernel counts in whole seconds.
    let every = Duration::from_secs((silence / (PROBES + 1)).as_secs().max(1));
    sockopt::set_tcp_keepidle(socket, every)?;
    sockopt::set_tcp_keepintvl(socket, every)?;
    sockopt::set_tcp_keepcnt(socket, PROBES)?;
    sockopt::set_tcp_user_timeout(socket, u32::try_from(silence.as_millis()).unwrap_or(u32::MAX))
}

/// For the lane of small messages: a read that finds nothing looks at the network device's queue itself, where the driver
/// and the rights of this process allow that (socket(7), SO_BUSY_POLL).
pub(super) fn busy_poll(socket: impl AsFd) {
    let microseconds: libc::c_int = 50;
    // SAFETY: the option takes one int, which lives until the call returns.
    unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BUSY_POLL,
            (&raw const microseconds).cast(),
            libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(0),
        );
    }
}

/// Breaks a connection as the network might: the peer is reset, and what is under way in both directions is gone.
pub(super) fn reset(socket: impl AsFd) {
    // When even that fails the connection is broken already.
    let _ = rustix::net::connect_unspec(socket);
}
