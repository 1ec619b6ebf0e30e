//! Which addresses a rank listens on.

use crate::error::{Context, Error, Result};
use std::net::{IpAddr, SocketAddr};

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
/// `wanted` is `tcp.interfaces`: names or CIDR prefixes, empty for all. `reached_at` is the address under which the
/// launcher reached this host: it works for at least one other host, so it goes first. Loopback is offered only when
/// `one_host`, link-local IPv6 never (it needs a scope that means nothing elsewhere).
pub(crate) fn choose(
    interfaces: &[Interface],
    wanted: &str,
    reached_at: Option<IpAddr>,
    one_host: bool,
) -> Result<Vec<IpAddr>> {
    let wanted: Vec<&str> = wanted.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let mut unused = wanted.clone();
    let mut chosen: Vec<IpAddr> = Vec::new();
    for interface in interfaces {
        let mut named = wanted.iter().filter(|name| admits(name, interface)).peekable();
        if named.peek().is_some() {
            unused.retain(|name| !admits(name, interface));
        } else if !wanted.is_empty() {
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
    fn an_interface_that_does_not_exist_is_an_error_that_names_those_that_do() {
        let error = choose(&host(), "ib1", None, false).unwrap_err().to_string();
        assert!(error.contains("\"ib1\"") && error.contains("ib0 (10.9.0.3)"), "{error}");
    }
}
