//! Which of the addresses that ranks listen on can be told to the other ranks.
//!
//! Pure. An address that several machines have (a bridge of virtual machines or containers) leads to the wrong one.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

/// Every rank's addresses in its own order, without those that ranks of another machine have too. A rank that would
/// have none left keeps them all: the handshake between ranks finds out who answers.
///
/// `ranks`: for each rank the identity of its machine and its addresses.
pub(super) fn usable(ranks: &[(&str, &[SocketAddr])]) -> Vec<Vec<SocketAddr>> {
    let mut machines: HashMap<IpAddr, HashSet<&str>> = HashMap::new();
    for (machine, addresses) in ranks {
        for address in *addresses {
            machines.entry(address.ip()).or_default().insert(machine);
        }
    }
    let unique = |address: &&SocketAddr| machines.get(&address.ip()).is_some_and(|m| m.len() == 1);
    ranks
        .iter()
        .map(|(_, addresses)| {
            let kept: Vec<SocketAddr> = addresses.iter().filter(unique).copied().collect();
            if kept.is_empty() { addresses.to_vec() } else { kept }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(addresses: &[&str]) -> Vec<SocketAddr> {
        addresses.iter().map(|a| a.parse().unwrap()).collect()
    }

    #[test]
    fn an_address_that_two_machines_have_is_dropped_and_the_order_kept() {
        let a = list(&["172.17.0.1:5", "10.0.0.1:5", "[fd00::1]:5"]);
        let b = list(&["10.0.0.2:6", "172.17.0.1:6"]);
        let kept = usable(&[("m1", &a), ("m2", &b)]);
        assert_eq!(kept, [list(&["10.0.0.1:5", "[fd00::1]:5"]), list(&["10.0.0.2:6"])]);
    }

    #[test]
    fn ranks_of_one_machine_share_its_addresses() {
        let (a, b) = (list(&["10.0.0.1:5"]), list(&["10.0.0.1:6"]));
        assert_eq!(usable(&[("m1", &a), ("m1", &b)]), [a, b]);
    }

    #[test]
    fn a_rank_keeps_its_addresses_when_none_would_be_left_and_silence_stays_silence() {
        let (a, b) = (list(&["10.0.0.1:5"]), list(&["10.0.0.1:6"]));
        assert_eq!(usable(&[("m1", &a), ("m2", &b), ("m3", &[])]), [a, b, vec![]]);
    }
}
