//! Slow links: each host's own, both ways, with a rate and a queue, so that the network and not this machine's processors
//! is what a program waits for.

use super::Lab;
use crate::process::{self, Process};
use crate::{LabError, Result};
use std::process::Command;

/// A link of Ethernet as `tc` counts it: bytes of a packet.
const PACKET: u64 = 1514;

/// What each host's link carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Megabits a second each way.
    pub mbit: u64,
    /// Packets that wait at each end at most; what comes when so many wait is lost.
    pub queue: u64,
}

impl Lab {
    /// Limits the links between the hosts and their switch: what a host sends at its own interface, what it is sent at
    /// its port of the switch, where packets of many senders meet. The caller's own leg stays as fast as it is.
    ///
    /// # Errors
    /// A rate or queue of 0; the kernel has no token bucket filter (`sch_tbf`); the caller lacks the rights.
    pub fn limit_links(&self, link: Link) -> Result<()> {
        let limited = |within: Process, interface: &str| {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/proc/{}/ns/net", within.pid)).arg("tc");
            command.args(arguments(interface, link));
            process::run(&mut command, "")
        };
        if link.mbit == 0 || link.queue == 0 {
            return Err(LabError::Command {
                command: "tc qdisc".into(),
                reason: "a link needs a rate and a queue above 0".into(),
            });
        }
        for (index, &host) in self.state.hosts.iter().enumerate() {
            limited(host, "eth0")?;
            limited(self.state.switch, &format!("port{}", index + 1))?;
        }
        Ok(())
    }
}

/// A bucket of 16 KiB: what the kernel hands down in one piece is larger and is cut into packets, so that the queue is
/// counted in packets of the wire.
fn arguments(interface: &str, link: Link) -> Vec<String> {
    let (rate, limit) = (format!("{}mbit", link.mbit), (link.queue * PACKET).to_string());
    ["qdisc", "replace", "dev", interface, "root", "tbf", "rate", &rate, "burst", "16kb", "limit", &limit]
        .map(str::to_owned)
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_so_many_packets_in_bytes() {
        let line = arguments("eth0", Link { mbit: 200, queue: 100 }).join(" ");
        assert_eq!(line, "qdisc replace dev eth0 root tbf rate 200mbit burst 16kb limit 151400");
    }
}
