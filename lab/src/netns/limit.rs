//! Slow links: each host's own, both ways, with a rate and a queue, so that the network and not this machine's processors
//! is what a program waits for.

use super::Lab;
use crate::process::{self, Process};
use crate::{LabError, Result};
use std::process::Command;

/// A link of Ethernet as `tc` counts it: bytes of a packet.
const PACKET: u64 = 1514;

/// Packets that wait in a host for its own link, as an interface has by default (`txqueuelen`): a sender waits for its
/// own card and loses nothing there.
const OWN_QUEUE: u64 = 1000;

/// What a host hands to its link in one piece at most: six packets. A card with segmentation offload takes them so and cuts
/// them up itself; here the processors that all hosts share would do that, packet by packet, and be the bottleneck instead
/// of the links.
const TRAIN: u64 = 6 * PACKET;

/// How hosts divide a link: what every kernel has and every namespace may choose. Whatever this machine's own is, another one
/// would measure something else; and `bbr`, which some have, sends on where queues overflow, and slows down for 200 ms when
/// a queue has not been empty for ten seconds.
const CONTROL: &str = "reno";

/// What each host's link carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Megabits a second each way.
    pub mbit: u64,
    /// Packets that wait in the switch for a host at most; what comes when so many wait is lost.
    pub queue: u64,
}

impl Lab {
    /// Limits the links between the hosts and their switch: what a host sends at its own interface, what it is sent at
    /// its port of the switch, where packets of many senders meet. The caller's own leg stays as fast as it is.
    ///
    /// # Errors
    /// A rate or queue of 0; the kernel has no token bucket filter (`sch_tbf`); the caller lacks the rights.
    pub fn limit_links(&self, link: Link) -> Result<()> {
        let limited = |within: Process, interface: &str, queue: u64| {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/proc/{}/ns/net", within.pid)).arg("tc");
            command.args(arguments(interface, link.mbit, queue));
            process::run(&mut command, "")
        };
        let in_trains = |host: Process| {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/proc/{}/ns/net", host.pid));
            command.args(["ip", "link", "set", "dev", "eth0", "gso_max_size", &TRAIN.to_string()]);
            process::run(&mut command, "")
        };
        if link.mbit == 0 || link.queue == 0 {
            return Err(LabError::Command {
                command: "tc qdisc".into(),
                reason: "a link needs a rate and a queue above 0".into(),
            });
        }
        let cautious = |host: Process| {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/proc/{}/ns/net", host.pid));
            // Written there rather than by sysctl(8), which is a package of its own.
            let write = format!("echo {CONTROL} > /proc/sys/net/ipv4/tcp_congestion_control");
            command.args(["sh", "-c", &write]);
            process::run(&mut command, "")
        };
        for (index, &host) in self.state.hosts.iter().enumerate() {
            in_trains(host)?;
            cautious(host)?;
            limited(host, "eth0", OWN_QUEUE.max(link.queue))?;
            limited(self.state.switch, &format!("port{}", index + 1), link.queue)?;
        }
        Ok(())
    }
}

/// A bucket of 16 KiB: what is handed down in one piece passes whole, and anything larger is cut into packets. The queue
/// counts bytes.
fn arguments(interface: &str, mbit: u64, queue: u64) -> Vec<String> {
    let (rate, limit) = (format!("{mbit}mbit"), (queue * PACKET).to_string());
    ["qdisc", "replace", "dev", interface, "root", "tbf", "rate", &rate, "burst", "16kb", "limit", &limit]
        .map(str::to_owned)
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_so_many_packets_in_bytes() {
        let line = arguments("eth0", 200, 100).join(" ");
        assert_eq!(line, "qdisc replace dev eth0 root tbf rate 200mbit burst 16kb limit 151400");
    }
}
