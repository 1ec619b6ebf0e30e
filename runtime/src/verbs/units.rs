//! The timers of a reliable connection in physical units, and their encodings. Pure.
//!
//! Encodings: InfiniBand Architecture Specification vol. 1, 9.7.6.1.3 and 12.7.34 (acknowledge time-out), 9.7.5.2.8 (receiver
//! not ready).

use std::time::Duration;

/// How long a sender waits for an acknowledgement before it sends again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckTimeout {
    /// It never sends again by itself: a lost packet is never noticed.
    Infinite,
    /// 4.096 us times two to the power of this code, 1 to 31.
    Code(u8),
}

impl AckTimeout {
    /// The shortest time that is at least this long; zero means for ever. `None` beyond the longest (2 h 26 min):
    /// a time is never silently made infinite, nor the reverse.
    pub(crate) fn at_least(time: Duration) -> Option<Self> {
        if time.is_zero() {
            return Some(Self::Infinite);
        }
        (1..=31).map(Self::Code).find(|code| code.time().is_some_and(|reached| reached >= time))
    }

    /// The field of the queue pair.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Infinite => 0,
            Self::Code(code) => code,
        }
    }

    /// From the field of a queue pair.
    pub(crate) fn from_code(code: u8) -> Self {
        if code == 0 { Self::Infinite } else { Self::Code(code) }
    }

    /// The time; `None`: for ever.
    pub(crate) fn time(self) -> Option<Duration> {
        match self {
            Self::Infinite => None,
            Self::Code(code) => Some(Duration::from_nanos(4096 << code)),
        }
    }
}

/// How long a receiver that is not ready asks a sender to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RnrTimer(u8);

/// The times of codes 1 to 31 in units of 10 us; code 0 is the longest, 655.36 ms.
const RNR_TIMES: [u64; 31] = [
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
    8192, 12288, 16384, 24576, 32768, 49152,
];
const RNR_LONGEST: Duration = Duration::from_micros(655_360);

impl RnrTimer {
    /// The shortest time that is at least this long; `None` beyond the longest, 655.36 ms.
    pub(crate) fn at_least(time: Duration) -> Option<Self> {
        (1..=31).chain([0]).map(Self).find(|timer| timer.time() >= time)
    }

    /// The field of the queue pair.
    pub(crate) fn code(self) -> u8 {
        self.0
    }

    /// From the field of a queue pair, 0 to 31.
    pub(crate) fn from_code(code: u8) -> Self {
        Self(code & 31)
    }

    /// The time.
    pub(crate) fn time(self) -> Duration {
        match usize::from(self.0).checked_sub(1) {
            None => RNR_LONGEST,
            Some(index) => Duration::from_micros(10 * RNR_TIMES[index]),
        }
    }
}

/// The largest payload of a packet, as a device encodes it: 1 for 256 bytes to 5 for 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mtu(u8);

impl Mtu {
    /// From a device's code; `None` when it is none.
    pub(crate) fn from_code(code: i32) -> Option<Self> {
        u8::try_from(code).ok().filter(|code| (1..=5).contains(code)).map(Self)
    }

    /// From bytes; `None` when it is no power of two from 256 to 4096.
    pub(crate) fn from_bytes(bytes: u32) -> Option<Self> {
        (1..=5).map(Self).find(|mtu| mtu.bytes() == bytes)
    }

    pub(crate) fn code(self) -> u8 {
        self.0
    }

    pub(crate) fn bytes(self) -> u32 {
        128 << self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_times_of_the_specification() {
        let time = |code| AckTimeout::from_code(code).time().unwrap();
        assert_eq!(time(1), Duration::from_nanos(8192));
        assert_eq!(time(14), Duration::from_nanos(67_108_864));
        assert_eq!(time(20), Duration::from_nanos(4_294_967_296));
        assert_eq!(time(31).as_secs(), 8796);
        let rnr = |code| RnrTimer::from_code(code).time();
        assert_eq!(rnr(0), Duration::from_micros(655_360));
        assert_eq!(rnr(1), Duration::from_micros(10));
        assert_eq!(rnr(12), Duration::from_micros(640));
        assert_eq!(rnr(25), Duration::from_micros(61_440));
        assert_eq!(rnr(31), Duration::from_micros(491_520));
        assert_eq!([1, 2, 3, 4, 5].map(|code| Mtu::from_code(code).unwrap().bytes()), [256, 512, 1024, 2048, 4096]);
    }

    #[test]
    fn nothing_becomes_infinite_and_nothing_infinite_becomes_a_time() {
        assert_eq!(AckTimeout::at_least(Duration::ZERO), Some(AckTimeout::Infinite));
        assert_eq!(AckTimeout::at_least(Duration::from_nanos(1)), Some(AckTimeout::Code(1)));
        assert_eq!(AckTimeout::at_least(Duration::from_secs(8796)), Some(AckTimeout::Code(31)));
        assert_eq!(AckTimeout::at_least(Duration::from_secs(8797)), None);
        assert_eq!(RnrTimer::at_least(Duration::ZERO).map(RnrTimer::code), Some(1));
        assert_eq!(RnrTimer::at_least(Duration::from_millis(500)).map(RnrTimer::code), Some(0));
        assert_eq!(RnrTimer::at_least(Duration::from_millis(656)), None);
        assert_eq!([Mtu::from_bytes(1500), Mtu::from_bytes(0), Mtu::from_code(6)], [None; 3]);
    }

    proptest! {
        #[test]
        fn a_time_is_never_shortened_and_at_most_doubled(nanos in 8192_u64..8_796_093_000_000) {
            let time = Duration::from_nanos(nanos);
            let reached = AckTimeout::at_least(time).and_then(AckTimeout::time).unwrap();
            prop_assert!(reached >= time && reached < 2 * time);
        }

        #[test]
        fn a_wait_is_never_shortened_and_at_most_doubled(micros in 10_u64..=655_360) {
            let time = Duration::from_micros(micros);
            let reached = RnrTimer::at_least(time).unwrap().time();
            prop_assert!(reached >= time && reached < 2 * time);
        }

        #[test]
        fn what_was_encoded_is_read_back(code in 0_u8..32) {
            prop_assert_eq!(AckTimeout::from_code(code).code(), code);
            prop_assert_eq!(RnrTimer::from_code(code).code(), code);
            let timer = RnrTimer::from_code(code);
            prop_assert_eq!(RnrTimer::at_least(timer.time()), Some(timer));
        }
    }
}
