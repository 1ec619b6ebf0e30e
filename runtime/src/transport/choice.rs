//! Which transport reaches a peer: the first of a fixed order that may be used and can. Pure.
//!
//! Knows what each transport needs, not how it works.

use std::fmt;

/// All transports between different ranks, the fastest first.
const ORDER: [&str; 3] = ["shm", "verbs", "tcp"];

/// Why a transport does not carry messages to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The key `transport.allow` leaves it out.
    NotAllowed,
    /// It works within a host only.
    OtherHost,
    /// This host has no RDMA device.
    NoDevice,
    /// It was tried and does not reach the peer.
    Failed(String),
    /// This one comes before it.
    After(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed => f.write_str("transport.allow leaves it out"),
            Self::OtherHost => f.write_str("the peer is on another host"),
            Self::NoDevice => f.write_str("this host has no RDMA device"),
            Self::Failed(why) => f.write_str(why),
            Self::After(first) => write!(f, "{first} reaches the peer and is faster"),
        }
    }
}

/// The transport for a peer, and why not each of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// `None`: nothing that is allowed reaches it.
    pub(crate) transport: Option<&'static str>,
    pub(crate) refused: Vec<(&'static str, Refusal)>,
}

/// Chooses for a peer. `rdma`: this host has an RDMA device; `allowed`: the value of `transport.allow`.
pub(crate) fn choose(same_host: bool, rdma: bool, allowed: &str) -> Choice {
    let mut choice = Choice { transport: None, refused: Vec::new() };
    for name in ORDER {
        let refusal = if !allowed.split(',').any(|word| word.trim() == name) {
            Some(Refusal::NotAllowed)
        } else if name == "shm" && !same_host {
            Some(Refusal::OtherHost)
        } else if name == "verbs" && !rdma {
            Some(Refusal::NoDevice)
        } else {
            choice.transport.map(Refusal::After)
        };
        match refusal {
            Some(refusal) => choice.refused.push((name, refusal)),
            None => choice.transport = Some(name),
        }
    }
    choice
}

impl Choice {
    /// Where nothing reaches the peer: why not what is allowed, and what could be: "verbs: this host has no RDMA device;
    /// add shm or tcp".
    pub(crate) fn advice(&self) -> String {
        let (left_out, useless): (Vec<_>, Vec<_>) =
            self.refused.iter().partition(|(_, refusal)| *refusal == Refusal::NotAllowed);
        let mut text: String = useless.iter().map(|(name, refusal)| format!("{name}: {refusal}; ")).collect();
        // What would be refused for another reason is no advice: shared memory to another host.
        let elsewhere = useless.iter().any(|(_, refusal)| *refusal == Refusal::OtherHost);
        let names: Vec<&str> =
            left_out.iter().map(|(name, _)| *name).filter(|name| !(elsewhere && *name == "shm")).collect();
        text.push_str("add ");
        text.push_str(&names.join(" or "));
        text
    }

    /// The transport that was chosen does not reach the peer after all, and TCP takes its place.
    pub(crate) fn fall_back(&mut self, why: &str) {
        if self.transport == Some("tcp") {
            return;
        }
        self.refused.retain(|(name, _)| *name != "tcp");
        let chosen = self.transport.replace("tcp");
        self.refused.extend(chosen.map(|name| (name, Refusal::Failed(why.to_string()))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_is_left_the_reason_and_the_way_out_are_said() {
        assert_eq!(choose(true, false, "verbs").advice(), "verbs: this host has no RDMA device; add shm or tcp");
        assert_eq!(choose(false, false, "shm").advice(), "shm: the peer is on another host; add verbs or tcp");
    }

    #[test]
    fn the_fastest_that_may_and_can_is_taken_and_the_others_are_refused_with_the_reason() {
        let refused = |same_host, allowed| choose(same_host, false, allowed).refused;
        let taken = |same_host, allowed| choose(same_host, false, allowed).transport;
        let no_rdma = || ("verbs", Refusal::NotAllowed);
        assert_eq!(taken(true, "shm,tcp"), Some("shm"));
        assert_eq!(refused(true, "shm,tcp"), [no_rdma(), ("tcp", Refusal::After("shm"))]);
        assert_eq!(taken(false, "tcp, shm"), Some("tcp"));
        assert_eq!(refused(false, "tcp, shm"), [("shm", Refusal::OtherHost), no_rdma()]);
        assert_eq!(taken(true, "tcp"), Some("tcp"));
        assert_eq!(refused(true, "tcp"), [("shm", Refusal::NotAllowed), no_rdma()]);
        assert_eq!(taken(false, "shm"), None);
        assert_eq!(refused(false, "shm"), [("shm", Refusal::OtherHost), no_rdma(), ("tcp", Refusal::NotAllowed)]);
    }

    #[test]
    fn rdma_goes_before_tcp_where_there_is_a_device() {
        assert_eq!(choose(false, true, "shm,verbs,tcp").transport, Some("verbs"));
        assert_eq!(choose(false, true, "tcp").transport, Some("tcp"));
        let without = choose(false, false, "verbs,tcp");
        assert_eq!(without.transport, Some("tcp"));
        assert!(without.refused.contains(&("verbs", Refusal::NoDevice)));
        assert_eq!(choose(false, false, "verbs").transport, None);
    }

    #[test]
    fn a_transport_that_failed_is_refused_with_its_reason_and_tcp_is_not() {
        let mut choice = choose(false, true, "shm,verbs,tcp");
        choice.fall_back("rxe0:1: the port is down");
        assert_eq!(choice.transport, Some("tcp"));
        let refused: Vec<String> = choice.refused.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        assert_eq!(refused, ["shm: the peer is on another host", "verbs: rxe0:1: the port is down"]);
    }
}
