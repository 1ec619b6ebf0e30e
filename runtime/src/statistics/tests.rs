//! Sums, the busiest pairs and the table of a job.

use super::*;
use crate::protocol::Tier;

fn tally(messages: u64, bytes: u64) -> Tally {
    Tally { messages, bytes }
}

fn rank(rank: usize, peers: Vec<PeerStatistics>) -> Statistics {
    Statistics {
        rank,
        host: "a".into(),
        complete: rank != 1,
        peers,
        waits: Waits { spins: 10, yields: 2, sleeps: 1 },
        memory: MemoryStatistics {
            collectives: Accesses { calls: 4, bytes: 4096 },
            collective_waits: 1,
            puts: Accesses { calls: 5, bytes: 100 },
            gets: Accesses::default(),
            updates: 7,
        },
        transports: vec![TransportStatistics {
            transport: "shm".into(),
            counters: vec![("wake-ups".into(), 3)],
            device: None,
        }],
    }
}

fn peer(peer: usize, sent: &[(Path, Tally)], eager: Tally) -> PeerStatistics {
    let received = Received { eager, rendezvous: Tally::default() };
    PeerStatistics { peer, transport: "shm".into(), sent: sent.to_vec(), received, stalls: 4, link: Vec::new() }
}

const INLINE: Path = Path::Inline(Tier::Bulk);

fn job() -> JobStatistics {
    let zero = rank(0, vec![peer(1, &[(INLINE, tally(5, 40)), (Path::Pieces, tally(2, 3 << 20))], tally(7, 70))]);
    let one = rank(1, vec![peer(0, &[(INLINE, tally(7, 70))], tally(7, 3_145_768))]);
    JobStatistics::new(4, vec![one, zero])
}

#[test]
fn the_table_has_paths_ranks_and_pairs_and_names_who_is_missing() {
    let expected = "\
statistics of 4 ranks: 14 messages, 3.00 MiB sent
  path                messages     bytes
  inline                    12     110 B
  rendezvous, pieces         2  3.00 MiB
  over                messages     bytes
  shm                       14  3.00 MiB
  rank on host                        sent     bytes  received     bytes  stalls  spins  yields  sleeps
  0 a                                    7  3.00 MiB         7      70 B       4     10       2       1
  1 a (until shortly before its end)     7      70 B         7  3.00 MiB       4     10       2       1
  busiest pairs  messages     bytes
  0 to 1                7  3.00 MiB
  1 to 0                7      70 B
  past messages: 8 collectives in shared memory (8192 B), which waited 2 times, 10 puts (200 B), 0 gets (0 B), 14 signals and atomic operations
  counted by transports: shm wake-ups 6
  nothing is known of ranks 2-3
";
    assert_eq!(job().to_string(), expected);
}

#[test]
fn the_table_of_ranks_that_never_ran_is_one_line() {
    let text = JobStatistics::new(2, Vec::new()).to_string();
    assert_eq!(text, "statistics of 2 ranks: nothing is known of any of them\n");
}

#[test]
fn the_json_has_the_same_numbers() {
    let json: serde_json::Value = serde_json::from_str(&job().to_json()).unwrap();
    assert_eq!(json["paths"][0][1]["messages"], 12);
    assert_eq!(json["paths"][1][0], "pieces");
    assert_eq!(json["top_pairs"][0][2]["bytes"], (3 << 20) + 40);
    assert_eq!(json["ranks"][1]["complete"], false);
    assert_eq!(json["missing"], serde_json::json!([2, 3]));
}

#[test]
fn a_table_of_ninety_six_ranks_that_talk_to_all_is_as_long_as_their_number_and_not_its_square() {
    let ranks = (0..96).map(|me| {
        let peers = (0..96).filter(|other| *other != me);
        rank(me, peers.map(|other| peer(other, &[(INLINE, tally(1, 8))], tally(1, 8))).collect())
    });
    let text = JobStatistics::new(96, ranks.collect()).to_string();
    assert!(text.lines().count() < 96 + 25, "{text}");
    assert!(text.contains("statistics of 96 ranks: 9120 messages, 71.2 KiB sent"), "{text}");
}

#[test]
fn ranks_that_follow_each_other_are_joined() {
    assert_eq!(rank_ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    assert_eq!(rank_ranges(&[3]), "3");
}

#[test]
fn ranks_that_share_a_device_count_it_once_and_what_must_not_happen_is_shown_although_it_has_not() {
    let counter = |name: &str, meaning, count| DeviceCounter { name: name.into(), meaning, count };
    let with = |number: usize, host: &str, sent| {
        let counters = vec![
            counter("sent_pkts", Some(Meaning::Sent), sent),
            counter("rcvd_rnr_err", Some(Meaning::NotReady), 0),
            counter("link_downed", Some(Meaning::LinkDown), 0),
            counter("odd_name", None, 2),
        ];
        let device = Some(DeviceStatistics { device: "rxe0:1".into(), counters });
        let verbs = TransportStatistics { transport: "verbs".into(), counters: Vec::new(), device };
        Statistics { host: host.into(), transports: vec![verbs], ..rank(number, Vec::new()) }
    };
    let job = JobStatistics::new(3, vec![with(0, "a", 40), with(1, "a", 42), with(2, "b", 7)]);
    let text = job.to_string();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("counted by rxe0:1")).collect();
    assert_eq!(
        lines,
        [
            "  counted by rxe0:1 on a: odd_name 2, rcvd_rnr_err 0 (receiver not ready), sent_pkts 42 (packets sent)",
            "  counted by rxe0:1 on b: odd_name 2, rcvd_rnr_err 0 (receiver not ready), sent_pkts 7 (packets sent)",
        ]
    );
}
