//! Addresses of ports (GIDs): which there are, and in which order to try them. Reads files under `/sys`; no device.
//!
//! What number an address has differs between vendors and hosts, so that no number is ever assumed.

use std::{
    fmt, fs,
    net::{IpAddr, Ipv6Addr},
    path::Path,
};

/// The address of a port: an IPv6 address, or an IPv4 address mapped into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gid(pub(crate) [u8; 16]);

impl Gid {
    /// As an IP address, IPv4 where it is one.
    pub(crate) fn address(self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from(self.0)).to_canonical()
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

/// How packets to an address travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// UDP over IP: it can be routed.
    RoceV2,
    /// InfiniBand, or Ethernet within one segment.
    Plain,
}

/// One address of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) index: u8,
    pub(super) gid: Gid,
    pub(super) kind: Kind,
}

/// The addresses of a port. `port` is its folder, as `/sys/class/infiniband/mlx5_0/ports/1`.
///
/// An empty slot cannot be read (EINVAL), as one whose interface is in another network namespace: both are left out.
pub(super) fn entries(port: &Path) -> Vec<Entry> {
    let read = |folder: &str, index: u8| fs::read_to_string(port.join(folder).join(index.to_string())).ok();
    let entry = |index: u8| {
        let gid = parse(read("gids", index)?.trim())?;
        let kind = match read("gid_attrs/types", index)?.trim() {
            "RoCE v2" => Kind::RoceV2,
            _ => Kind::Plain,
        };
        (gid.0 != [0; 16]).then_some(Entry { index, gid, kind })
    };
    (0..=u8::MAX).filter_map(entry).collect()
}

/// The order in which to try the addresses of an Ethernet port: best first. `reached_at`: where others have reached this
/// host already.
pub(super) fn by_preference(entries: &[Entry], reached_at: Option<IpAddr>) -> Vec<Entry> {
    let mut sorted = entries.to_vec();
    let rank = |entry: &Entry| {
        let scope = match entry.gid.address() {
            IpAddr::V4(_) => 0,
            IpAddr::V6(address) if address.is_unicast_link_local() => 2,
            IpAddr::V6(_) => 1,
        };
        (entry.kind == Kind::Plain, reached_at != Some(entry.gid.address()), scope)
    };
    sorted.sort_by_key(rank);
    sorted
}

/// An address as the kernel writes it: eight groups of four hexadecimal digits.
fn parse(text: &str) -> Option<Gid> {
    text.parse::<Ipv6Addr>().ok().map(|address| Gid(address.octets()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Port folders as drivers make them: for each slot its address and type.
    fn fake(slots: &[(&str, Option<&str>)]) -> (tempfile::TempDir, Vec<Entry>) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("gids")).unwrap();
        fs::create_dir_all(folder.path().join("gid_attrs/types")).unwrap();
        for (index, (gid, kind)) in slots.iter().enumerate() {
            fs::write(folder.path().join("gids").join(index.to_string()), format!("{gid}\n")).unwrap();
            if let Some(kind) = kind {
                fs::write(folder.path().join("gid_attrs/types").join(index.to_string()), format!("{kind}\n")).unwrap();
            }
        }
        let entries = entries(folder.path());
        (folder, entries)
    }

    const LOCAL: &str = "fe80:0000:0000:0000:0a00:27ff:fe00:0001";
    const GLOBAL: &str = "fd00:0000:0000:0000:0000:0000:0000:0009";
    const FIRST: &str = "0000:0000:0000:0000:0000:ffff:0a58:0001";
    const SECOND: &str = "0000:0000:0000:0000:0000:ffff:0a58:0002";
    const EMPTY: &str = "0000:0000:0000:0000:0000:0000:0000:0000";
    const V1: Option<&str> = Some("IB/RoCE v1");
    const V2: Option<&str> = Some("RoCE v2");

    fn order(slots: &[(&str, Option<&str>)], reached_at: Option<&str>) -> Vec<u8> {
        let reached_at = reached_at.map(|address| address.parse().unwrap());
        by_preference(&fake(slots).1, reached_at).iter().map(|entry| entry.index).collect()
    }

    #[test]
    fn routable_ipv4_first_whatever_number_it_has() {
        // As mlx5 numbers them, as irdma does, and as rxe does.
        assert_eq!(order(&[(LOCAL, V1), (LOCAL, V2), (FIRST, V1), (FIRST, V2)], None), [3, 1, 2, 0]);
        assert_eq!(order(&[(LOCAL, V2), (FIRST, V2)], None), [1, 0]);
        assert_eq!(order(&[(LOCAL, V2), (GLOBAL, V2)], None), [1, 0]);
        assert_eq!(order(&[(GLOBAL, V1), (FIRST, V1)], None), [1, 0]);
    }

    #[test]
    fn the_address_at_which_the_host_was_reached_goes_first() {
        assert_eq!(order(&[(FIRST, V2), (SECOND, V2)], Some("10.88.0.2")), [1, 0]);
        assert_eq!(order(&[(FIRST, V2), (GLOBAL, V2)], Some("fd00::9")), [1, 0]);
        assert_eq!(
            order(&[(FIRST, V2), (SECOND, V1)], Some("10.88.0.2")),
            [0, 1],
            "version 1 does not leave its segment"
        );
    }

    #[test]
    fn empty_slots_and_slots_that_cannot_be_read_are_left_out() {
        assert_eq!(order(&[(EMPTY, V2), (FIRST, None), (SECOND, V2)], None), [2]);
        assert_eq!(order(&[], None), [0_u8; 0]);
        assert_eq!(entries(Path::new("/no/such/port")), []);
    }

    #[test]
    fn a_mapped_address_is_shown_as_ipv4() {
        assert_eq!(parse(FIRST).unwrap().to_string(), "10.88.0.1");
        assert_eq!(parse(LOCAL).unwrap().to_string(), "fe80::a00:27ff:fe00:1");
        assert_eq!(parse("no address"), None);
    }
}
