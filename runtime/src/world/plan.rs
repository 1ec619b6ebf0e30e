//! Which ranks of the world are reached by which transport, and where this rank listens for those that use sockets.

use crate::{
    bootstrap::messages::Boot,
    config::keys,
    error::{Error, Result},
    transport::{
        choice,
        tcp::{self, addresses},
    },
};
use std::net::{IpAddr, SocketAddr, TcpListener};

/// Which ranks are reached how.
pub(crate) struct Plan {
    /// The ranks of this host, by place, when shared memory may be used; ourselves included.
    pub(super) near: Vec<usize>,
    /// The ranks that are reached over TCP.
    pub(super) far: Vec<usize>,
    pub(super) listener: Option<(TcpListener, Vec<SocketAddr>)>,
}

impl Plan {
    /// `one_machine`: all hosts of the job are this machine, so loopback reaches everyone.
    pub(crate) fn new(boot: &Boot, one_machine: bool) -> Result<Self> {
        let rank = boot.rank as usize;
        let allowed = boot.snapshot.get(keys::TRANSPORT_ALLOW);
        let here = boot.host_of[rank];
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for (other, &host) in boot.host_of.iter().enumerate().filter(|(other, _)| *other != rank) {
            let choice = choice::choose(host == here, crate::verbs::has_device(), &allowed);
            match choice.transport {
                Some("shm") => near.push(other),
                Some(_) => far.push(other),
                None => {
                    let host = &boot.hosts[host as usize].name;
                    let advice = choice.advice();
                    return Err(Error::Bootstrap {
                        reason: format!(
                            "rank {other} on host {host} is reached by no transport of transport.allow = {allowed}: {advice}"
                        ),
                    });
                }
            }
        }
        if let Some(after) = near.iter().position(|other| *other > rank).or((!near.is_empty()).then_some(near.len())) {
            near.insert(after, rank);
        }
        let listener = if far.is_empty() { None } else { Some(listen(boot, one_machine)?) };
        Ok(Plan { near, far, listener })
    }

    /// The addresses under which others reach this rank.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.listener.as_ref().map(|(_, addresses)| addresses.clone()).unwrap_or_default()
    }
}

fn listen(boot: &Boot, one_machine: bool) -> Result<(TcpListener, Vec<SocketAddr>)> {
    let one_host = one_machine || boot.host_of.iter().all(|host| *host == boot.host_of[0]);
    let wanted = boot.snapshot.get(keys::TCP_INTERFACES);
    let chosen: Vec<IpAddr> = addresses::choose(&addresses::interfaces()?, &wanted, boot.reached_at, one_host)?;
    if chosen.is_empty() {
        return Err(Error::Bootstrap {
            reason: "this host has no network address that other hosts can reach (see tcp.interfaces)".into(),
        });
    }
    tcp::listen(&chosen)
}
