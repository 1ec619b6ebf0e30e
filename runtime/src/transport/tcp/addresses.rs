//! Which addresses a rank listens on.

use crate::error::{Context, Error, Result};
use rustc_hash::FxHashMap;
use std::net::{IpAddr, SocketAddr};

/// What stands in front of an interface that must not be used.
const LEFT_OUT: char = '^';

/// One address of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
}

/// The addresses of this host that are up.
pub(crate) fn interfaces() -> Result<Vec<Interface>> {
    let all = if_addrs::get_if_addrs().context("listing the network interfaces")?;
    Ok(all.into_iter().map(|interface| Interface { address: interface.ip(), name: interface.name }).collect())
}

/// The addresses to offer to peers, best first.
///
/// `rules` is `tcp.interfaces`: names, addresses or CIDR prefixes, empty for all; with `^` in front what is left out.
/// `reached_at` is the address under which the launcher reached this host: it works for at least one other host, so it
/// goes first. Loopback is offered only when `one_host`, link-local IPv6 never (it needs a scope that means nothing
/// elsewhere).
pub(crate) fn choose(
    interfaces: &[Interface],
    rules: &str,
    reached_at: Option<IpAddr>,
    one_host: bool,
) -> Result<Vec<IpAddr>> {
    let words = rules.split(',').map(str::trim).filter(|name| !name.is_empty());
    let (left_out, wanted): (Vec<&str>, Vec<&str>) = words.partition(|word| word.starts_with(LEFT_OUT));
    let is_left_out =
        |interface: &Interface| left_out.iter().any(|word| admits(&word[LEFT_OUT.len_utf8()..], interface));
    let mut unused = wanted.clone();
    let mut chosen: Vec<IpAddr> = Vec::new();
    for interface in interfaces {
        let mut named = wanted.iter().filter(|name| admits(name, interface)).peekable();
        if named.peek().is_some() {
            unused.retain(|name| !admits(name, interface));
        } else if !wanted.is_empty() {
            continue;
        }
        if is_left_out(interface) {
            continue;
        }
        let usable = match interface.address {
            address if address.is_loopback() => one_host,
            IpAddr::V6(address) => !address.is_unicast_link_local(),
            IpAddr::V4(address) => !address.is_link_local(),
        };
        if usable && !chosen.contains(&interface.address) {
            chosen.push(interface.address);
        }
    }
    if let Some(unknown) = unused.first() {
        let known: Vec<_> = interfaces.iter().map(|i| format!("{} ({})", i.name, i.address)).collect();
        return Err(Error::Bootstrap {
            reason: format!(
                "tcp.interfaces names {unknown:?}, which this host does not have; it has {}",
                known.join(", ")
            ),
        });
    }
    // Stable: the kernel's order within each class. On one host loopback is as good as any and always there.
    chosen.sort_by_key(|address| (Some(*address) != reached_at, one_host && !address.is_loopback(), address.is_ipv6()));
    Ok(chosen)
}

/// What a rank tries for each peer, best first: `offered` for every rank, less what cannot lead there.
///
/// An address that a rank of another host offers, too, is a bridge of every host, such as the one of a container engine:
/// it leads to whoever listens on the own host. A rank that offers nothing else is tried there all the same: hosts may be
/// names of one machine. `host_of`: for every rank its host.
pub(crate) fn worth_trying(offered: &[Vec<SocketAddr>], host_of: &[u32]) -> Vec<Vec<SocketAddr>> {
    let mut owner: FxHashMap<IpAddr, Option<u32>> = FxHashMap::default();
    for (addresses, host) in offered.iter().zip(host_of) {
        for address in addresses {
            let known = owner.entry(address.ip()).or_insert(Some(*host));
            *known = known.filter(|known| known == host);
        }
    }
    let leads_there = |address: &&SocketAddr| owner.get(&address.ip()).is_some_and(Option::is_some);
    let choose = |addresses: &Vec<SocketAddr>| {
        let good: Vec<SocketAddr> = addresses.iter().filter(leads_there).copied().collect();
        if good.is_empty() { addresses.clone() } else { good }
    };
    offered.iter().map(choose).collect()
}

/// Whether `name` (an interface, or a prefix such as `10.1.0.0/16`) admits the interface.
fn admits(name: &str, interface: &Interface) -> bool {
    let Some((prefix, bits)) = name.split_once('/') else {
        return name == interface.name || name.parse() == Ok(interface.address);
    };
    let Ok(bits) = bits.parse::<u32>() else { return false };
    match (prefix.parse(), interface.address) {
        (Ok(IpAddr::V4(prefix)), IpAddr::V4(address)) if bits <= 32 => {
            (u32::from(prefix) ^ u32::from(address)).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (Ok(IpAddr::V6(prefix)), IpAddr::V6(address)) if bits <= 128 => {
            (u128::from(prefix) ^ u128::from(address)).checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// The address to bind so that all of `addresses` are reached: the one, or any.
pub(crate) fn bind_address(addresses: &[IpAddr]) -> SocketAddr {
    match addresses {
        [one] => SocketAddr::new(*one, 0),
        many if many.iter().all(IpAddr::is_ipv4) => SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0),
        _ => SocketAddr::new(IpAddr::from([0_u16; 8]), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Vec<Interface> {
        [
            ("lo", "127.0.0.1"),
            ("lo", "::1"),
            ("docker0", "172.17.0.1"),
            ("eth0", "10.1.2.3"),
            ("eth0", "fe80::1"),
            ("eth0", "fd00::3"),
            ("ib0", "10.9.0.3"),
        ]
        .map(|(name, address)| Interface { name: name.into(), address: address.parse().unwrap() })
        .into()
    }

    fn chosen(wanted: &str, reached_at: Option<&str>, one_host: bool) -> Vec<String> {
        let reached_at = reached_at.map(|address| address.parse().unwrap());
        choose(&host(), wanted, reached_at, one_host).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_address_that_the_launcher_used_goes_first_and_loopback_is_never_offered_to_other_hosts() {
        assert_eq!(chosen("", Some("10.9.0.3"), false), ["10.9.0.3", "172.17.0.1", "10.1.2.3", "fd00::3"]);
    }

    #[test]
    fn loopback_is_offered_where_all_ranks_are_on_one_host() {
        assert_eq!(chosen("", None, true)[0], "127.0.0.1");
    }

    #[test]
    fn interfaces_can_be_named_and_given_as_prefixes() {
        assert_eq!(chosen("ib0", None, false), ["10.9.0.3"]);
        assert_eq!(chosen("10.1.0.0/16, ib0", None, false), ["10.1.2.3", "10.9.0.3"]);
        assert_eq!(chosen("fd00::/8", None, false), ["fd00::3"]);
        assert_eq!(chosen("0.0.0.0/0", None, false), ["172.17.0.1", "10.1.2.3", "10.9.0.3"]);
        assert_eq!(chosen("10.1.2.3", None, false), ["10.1.2.3"]);
    }

    #[test]
    fn interfaces_can_be_left_out() {
        assert_eq!(chosen("^docker0", None, false), ["10.1.2.3", "10.9.0.3", "fd00::3"]);
        assert_eq!(chosen("10.0.0.0/8, ^10.9.0.0/16", None, false), ["10.1.2.3"]);
        assert_eq!(chosen("^docker0,^no-such", Some("10.9.0.3"), false), ["10.9.0.3", "10.1.2.3", "fd00::3"]);
        assert_eq!(chosen("^eth0,^ib0,^docker0", None, false), [""; 0]);
    }

    fn offered(rank: &[&str]) -> Vec<SocketAddr> {
        rank.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 7)).collect()
    }

    #[test]
    fn a_bridge_that_every_host_has_is_never_tried() {
        let ranks = [
            offered(&["172.17.0.1", "10.1.0.1", "fd00::1"]),
            offered(&["172.17.0.1", "10.1.0.1"]),
            offered(&["10.1.0.2", "172.17.0.1", "fd00::2"]),
            offered(&["172.17.0.1"]),
        ];
        let tried = worth_trying(&ranks, &[0, 0, 1, 2]);
        assert_eq!(tried[0], offered(&["10.1.0.1", "fd00::1"]));
        assert_eq!(tried[1], offered(&["10.1.0.1"]));
        assert_eq!(tried[2], offered(&["10.1.0.2", "fd00::2"]));
        assert_eq!(tried[3], ranks[3], "it has nothing else");
    }

    #[test]
    fn an_interface_that_does_not_exist_is_an_error_that_names_those_that_do() {
        let error = choose(&host(), "ib1", None, false).unwrap_err().to_string();
        assert!(error.contains("\"ib1\"") && error.contains("ib0 (10.9.0.3)"), "{error}");
    }
}
