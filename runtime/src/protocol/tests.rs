//! The ranges of every kind of transport, and what holds for all of them.

use super::*;
use proptest::prelude::*;

const ONE: Channels = Channels::One { why: "there is one lane" };
const KIB: usize = 1 << 10;

fn capabilities(channels: Channels) -> Capabilities {
    Capabilities {
        name: "test",
        inline: 32,
        eager: 32 * KIB,
        piece: 32 * KIB,
        channels,
        direct_read: DirectRead::No("nobody can"),
        slow_poll: false,
        gathers: false,
    }
}

#[test]
fn without_a_hint_there_is_one_general_recipe() {
    for channels in [ONE, Channels::Two { largest: 64 * KIB }] {
        let limits = Limits::new(capabilities(channels), 8 * KIB, "eager.limit");
        let expected = [(32, Path::Inline(Tier::Bulk)), (8 * KIB, Path::Eager(Tier::Bulk)), (usize::MAX, Path::Pieces)];
        assert_eq!(limits.ranges(0), expected);
        assert_eq!(limits.hint(0).effect, Effect::NotAsked);
    }
}

#[test]
fn messages_up_to_the_hint_take_the_low_latency_channel_and_larger_ones_the_other() {
    let limits = Limits::new(capabilities(Channels::Two { largest: 64 * KIB }), 8 * KIB, "eager.limit");
    let below = [
        (32, Path::Inline(Tier::LowLatency)),
        (KIB, Path::Eager(Tier::LowLatency)),
        (8 * KIB, Path::Eager(Tier::Bulk)),
        (usize::MAX, Path::Pieces),
    ];
    assert_eq!(limits.ranges(KIB), below);
    // Beyond the eager limit: the promise makes it safe to send them at once.
    let above =
        [(32, Path::Inline(Tier::LowLatency)), (16 * KIB, Path::Eager(Tier::LowLatency)), (usize::MAX, Path::Pieces)];
    assert_eq!(limits.ranges(16 * KIB), above);
}

#[test]
fn a_hint_beyond_what_the_low_latency_channel_takes_is_cut_to_it() {
    let limits = Limits::new(capabilities(Channels::Two { largest: 64 * KIB }), 8 * KIB, "eager.limit");
    assert_eq!(limits.hint(1 << 20), Hint { requested: 1 << 20, effective: 64 * KIB, effect: Effect::Channel });
    assert_eq!(limits.path(64 * KIB, 1 << 20), Path::Eager(Tier::LowLatency));
    assert_eq!(limits.path(64 * KIB + 1, 1 << 20), Path::Pieces);
}

#[test]
fn with_one_channel_a_hint_raises_what_is_sent_at_once_or_is_inert() {
    let limits = Limits::new(capabilities(ONE), 8 * KIB, "eager.limit");
    let raised = limits.hint(16 * KIB);
    assert_eq!((raised.effective, raised.effect), (16 * KIB, Effect::EagerLimit { without: 8 * KIB }));
    assert_eq!(limits.path(16 * KIB, 16 * KIB), Path::Eager(Tier::Bulk));
    let inert = limits.hint(4 * KIB);
    assert_eq!((inert.effective, inert.effect), (0, Effect::Inert { why: "there is one lane", eager: 8 * KIB }));
    assert_eq!(limits.ranges(4 * KIB), limits.ranges(0));
}

#[test]
fn a_receiver_that_can_read_does_so_from_its_size_on() {
    let reads = Capabilities { direct_read: DirectRead::From(100 * KIB), ..capabilities(ONE) };
    let limits = Limits::new(reads, 8 * KIB, "eager.limit");
    let ends = limits.ranges(0);
    assert_eq!(ends[2..], [(100 * KIB - 1, Path::Pieces), (usize::MAX, Path::DirectRead)]);
    // An eager limit above it wins: those messages are on their way before anyone could read them.
    let early = Limits::new(Capabilities { direct_read: DirectRead::From(KIB), ..reads }, 8 * KIB, "eager.limit");
    assert_eq!(early.ranges(0)[1..], [(8 * KIB, Path::Eager(Tier::Bulk)), (usize::MAX, Path::DirectRead)]);
}

#[test]
fn an_eager_limit_beyond_the_transport_is_cut_and_zero_announces_everything_but_empty_messages() {
    let limits = Limits::new(capabilities(ONE), 1 << 20, "eager.limit");
    assert_eq!(limits.path(32 * KIB, 0), Path::Eager(Tier::Bulk));
    assert_eq!(limits.path(32 * KIB + 1, 0), Path::Pieces);
    let none = Limits::new(capabilities(ONE), 0, "eager.limit");
    assert_eq!(none.ranges(0), [(0, Path::Inline(Tier::Bulk)), (usize::MAX, Path::Pieces)]);
}

#[test]
fn every_path_is_at_its_place() {
    assert!(Path::ALL.into_iter().enumerate().all(|(at, path)| path.index() == at));
}

fn any_limits() -> impl Strategy<Value = Limits> {
    let size = || prop_oneof![Just(0_usize), 1..100_usize, 1..(1_usize << 21)];
    let channels = prop_oneof![Just(ONE), size().prop_map(|largest| Channels::Two { largest })];
    let direct_read = prop_oneof![Just(DirectRead::No("nobody can")), size().prop_map(DirectRead::From)];
    (size(), size(), size(), channels, direct_read, size()).prop_map(
        |(inline, eager, piece, channels, direct_read, wanted)| {
            let capabilities = Capabilities {
                name: "any",
                inline,
                eager,
                piece,
                channels,
                direct_read,
                slow_poll: false,
                gathers: false,
            };
            Limits::new(capabilities, wanted, "eager.limit")
        },
    )
}

proptest! {
    #[test]
    fn the_ranges_say_what_every_message_does(limits in any_limits(), hint in 0..(1_usize << 21), bytes in 0..(1_usize << 22)) {
        let ranges = limits.ranges(hint);
        prop_assert!(ranges.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1), "{ranges:?}");
        prop_assert_eq!(ranges.last().unwrap().0, usize::MAX);
        for at in ranges.iter().flat_map(|(end, _)| [end.saturating_sub(1), *end, end.saturating_add(1)]).chain([bytes]) {
            let said = ranges.iter().find(|(end, _)| at <= *end).unwrap().1;
            prop_assert_eq!(limits.path(at, hint), said, "{} bytes of {:?}", at, ranges);
        }
    }

    #[test]
    fn no_message_leaves_at_once_that_its_channel_cannot_take(limits in any_limits(), hint in 0..(1_usize << 21), bytes in 0..(1_usize << 22)) {
        let path = limits.path(bytes, hint);
        let room = match (path.tier(), limits.capabilities.channels) {
            (Tier::LowLatency, Channels::Two { largest }) => largest,
            _ => limits.capabilities.eager,
        };
        prop_assert!(!path.is_eager() || bytes <= room, "{path:?}");
    }

    #[test]
    fn a_hint_never_makes_a_message_wait_that_went_at_once_before(limits in any_limits(), hint in 0..(1_usize << 21), bytes in 0..(1_usize << 22)) {
        prop_assert!(!limits.path(bytes, 0).is_eager() || limits.path(bytes, hint).is_eager());
    }
}

#[test]
fn what_is_sent_at_once_in_any_case_takes_no_channel_that_is_not_there() {
    let capabilities = |channels| Capabilities {
        name: "some",
        inline: 32,
        eager: 1000,
        piece: 1000,
        channels,
        direct_read: DirectRead::No("nobody can"),
        slow_poll: false,
        gathers: false,
    };
    let one = Limits::new(capabilities(Channels::One { why: "one is enough" }), 0, "eager.limit");
    assert_eq!((one.at_once(32), one.at_once(33)), (Path::Inline(Tier::Bulk), Path::Eager(Tier::Bulk)));
    let two = Limits::new(capabilities(Channels::Two { largest: 100 }), 0, "eager.limit");
    assert_eq!((two.at_once(32), two.at_once(33)), (Path::Inline(Tier::LowLatency), Path::Eager(Tier::LowLatency)));
}
