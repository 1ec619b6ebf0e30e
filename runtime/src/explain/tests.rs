//! The text for people, line by line, and the JSON for programs.

use super::*;
use crate::{
    config::{self, CommandLineSetting, Layers},
    hint::HintOn,
    protocol::{Capabilities, Channels},
    transport::choice,
};

const KIB: usize = 1 << 10;

fn snapshot(settings: &[(&str, &str)]) -> Snapshot {
    let command_line = settings
        .iter()
        .map(|(key, value)| CommandLineSetting { option: "--set".into(), key: (*key).into(), value: (*value).into() })
        .collect();
    config::resolve(&Layers { command_line, ..Layers::default() }).unwrap()
}

fn limits(channels: Channels, direct_read: DirectRead, eager: usize) -> Limits {
    let capabilities = Capabilities {
        name: "shm",
        inline: 32,
        eager: 32 * KIB,
        piece: 32 * KIB,
        channels,
        direct_read,
        slow_poll: false,
        gathers: false,
    };
    Limits::new(capabilities, eager, "eager.limit")
}

/// Rank 0 of 96 ranks on one host.
fn explanation(limits: Limits, requested: u64, snapshot: &Snapshot) -> Explanation {
    let on = HintOn::new(&limits, usize::try_from(requested).unwrap());
    let hint = SizeHint { requested, source: "command line --set".into(), transports: vec![on] };
    let choice = Some(choice::choose(true, false, "shm,verbs,tcp"));
    let group = Group { ranks: (1..96).collect(), hosts: 1, same_host: true, limits, port: None, choice };
    let peers = vec![Peers::new(group, &hint, snapshot)];
    Explanation { rank: 0, size: 96, host: "a".into(), hint, peers }
}

const LANE: Channels = Channels::One { why: "there is one lane" };

#[test]
fn ninety_five_peers_that_are_reached_alike_are_one_entry() {
    let text = explanation(limits(LANE, DirectRead::No("nobody can"), 8 * KIB), 0, &snapshot(&[])).to_string();
    let expected = "\
rank 0 of 96 on a: how its messages travel (sizes in bytes)
size hint 0 from command line --set

to ranks 1-95 on this host: shm
    chosen   the first that reaches them of transport.allow = shm,verbs,tcp (default)
    refused  verbs: this host has no RDMA device
    refused  tcp: shm reaches the peer and is faster
            0 .. 32         inline                   travels within its header, which holds 32
           33 .. 8192       eager                    up to eager.limit = 8KiB (default)
         8193 .. any        rendezvous, pieces       waits for its receive, then pieces of 32KiB; no direct read: nobody can
    hint     no hint, one recipe for all sizes
";
    assert_eq!(text, expected);
}

#[test]
fn every_limit_says_where_it_comes_from() {
    let reasons = |limits, hint, settings: &[(&str, &str)]| -> Vec<String> {
        let explanation = explanation(limits, hint, &snapshot(settings));
        explanation.peers[0].ranges.iter().map(|range| format!("{}: {}", range.path, range.why)).collect()
    };
    let has =
        |reasons: &[String], part: &str| assert!(reasons.iter().any(|why| why.contains(part)), "{part}: {reasons:#?}");
    let no = DirectRead::No("nobody can");
    let set = [("eager.limit", "4KiB")];
    has(&reasons(limits(LANE, no, 4 * KIB), 0, &set), "eager: up to eager.limit = 4KiB (command line --set)");
    let raised = reasons(limits(LANE, no, 4 * KIB), 16 << 10, &set);
    has(&raised, "eager: up to the size hint of 16KiB (command line --set), which is above eager.limit = 4KiB");
    has(&reasons(limits(LANE, no, 1 << 20), 0, &[("eager.limit", "1MiB")]), "a record carries at most 32KiB");
    has(
        &reasons(limits(LANE, no, 20), 0, &[("eager.limit", "20")]),
        "inline: within its header, up to eager.limit = 20 (",
    );
    let two = Channels::Two { largest: 64 * KIB };
    let tiers = reasons(limits(two, DirectRead::From(100 * KIB), 8 * KIB), 4 << 10, &[]);
    has(&tiers, "eager, low-latency: up to the size hint of 4KiB");
    has(&tiers, "rendezvous, pieces: waits for its receive, then pieces of 32KiB; read directly from 100KiB on");
    has(&tiers, "rendezvous, direct read: ");
    let cut = reasons(limits(two, no, 8 * KIB), 1 << 20, &[]);
    has(&cut, "eager, low-latency: the low-latency channel takes at most 64KiB, less than the size hint of 1MiB");
}

#[test]
fn the_json_has_ranges_without_gaps() {
    let explanation = explanation(limits(LANE, DirectRead::No("nobody can"), 8 * KIB), 16 << 10, &snapshot(&[]));
    let json: Value = serde_json::from_str(&explanation.to_json()).unwrap();
    assert_eq!(json["hint"]["requested"], 16384);
    assert_eq!(json["hint"]["transports"][0]["effective"], 16384);
    let ranges = json["peers"][0]["ranges"].as_array().unwrap();
    for pair in ranges.windows(2) {
        assert_eq!(pair[0]["to"].as_u64().unwrap() + 1, pair[1]["from"].as_u64().unwrap());
    }
    assert_eq!((ranges[0]["from"].as_u64(), ranges.last().unwrap()["to"].as_u64()), (Some(0), None));
    assert_eq!(json["peers"][0]["refused"][0]["transport"], "verbs");
}

#[test]
fn the_port_of_a_network_device_is_named_with_its_address_and_packets() {
    let port =
        PortUsed { device: "rxe0:1".into(), gid: "::ffff:10.0.0.1".into(), gid_index: 1, mtu: 1024, port_mtu: 4096 };
    let mut explanation = explanation(limits(LANE, DirectRead::No("nobody can"), 8 * KIB), 0, &snapshot(&[]));
    assert!(!explanation.to_string().contains("device  "));
    explanation.peers[0].port = Some(port);
    let line = "    device   rxe0:1, GID 1 (::ffff:10.0.0.1), packets of up to 1024 bytes (the port: 4096)\n";
    assert!(explanation.to_string().contains(line), "{explanation}");
    let json: Value = serde_json::from_str(&explanation.to_json()).unwrap();
    assert_eq!(
        (json["peers"][0]["port"]["gid_index"].as_u64(), json["peers"][0]["port"]["mtu"].as_u64()),
        (Some(1), Some(1024))
    );
}

#[test]
fn what_collectives_say_is_beside_the_messages() {
    let text = with_collectives(r#"{"rank":0,"peers":[]}"#, &[r#"{"rank":2,"algorithm":"ring"}"#.to_owned()]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["peers"], &json["collectives"][0]["algorithm"]), (&Value::Array(Vec::new()), &"ring".into()));
    // What is no JSON is not lost.
    let text = with_collectives("{}", &["half an ent".to_owned()]);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["collectives"][0], "half an ent");
}
