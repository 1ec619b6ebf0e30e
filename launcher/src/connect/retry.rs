//! When a connection that failed is tried again, and after how long.
//!
//! Pure. Connections fail for reasons that pass: sshd drops newcomers at random when many come at once (`MaxStartups`), a
//! host of a cluster that is just being made has no address yet, its sshd does not listen yet. The latter is far more
//! often a wrong name or a host that is down, so it is tried for a short while only, unless the user knows better. What
//! does not pass (a wrong key, a password prompt, a program that is not there) is not tried again.

use std::time::Duration;

/// The pause before the second try; later ones double.
const FIRST: Duration = Duration::from_millis(100);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(1);

/// What `ssh`, or a command in its place, says when trying again is no use.
const FINAL: &[&str] = &[
    "permission denied",
    "host key verification failed",
    "identification has changed",
    "too many authentication failures",
    "bad configuration option",
    "terminating, ",
    "no such identity",
];

/// What it says when there is nobody.
const ABSENT: &[&str] = &[
    "could not resolve hostname",
    "name or service not known",
    "temporary failure in name resolution",
    "connection refused",
    "no route to host",
    "network is unreachable",
];

/// Why a connection failed, as far as it decides about another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Trying again is no use.
    Final,
    /// There is nobody: the name is not known, or nothing listens there.
    Absent,
    /// Somebody is there, and did not let us in this time.
    Busy,
}

/// Why a command ended with `code` before the agent spoke. `ssh` ends with 255 for every reason of its own; which one
/// stands in what it `said`.
pub(super) fn cause(code: Option<i32>, said: &str) -> Cause {
    let said = said.to_lowercase();
    let says = |texts: &[&str]| texts.iter().any(|text| said.contains(text));
    match code {
        Some(255) if says(FINAL) => Cause::Final,
        Some(255) if says(ABSENT) => Cause::Absent,
        Some(255) => Cause::Busy,
        _ => Cause::Final,
    }
}

/// The pause after `tries` failed tries, between half and one and a half of its nominal length, so that hosts that failed
/// together do not come back together. `random` is any number.
pub(super) fn pause(tries: u32, random: u64) -> Duration {
    let nominal = FIRST.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(LONGEST);
    nominal / 2 + nominal.mul_f64((random % 1000) as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_second_and_differ() {
        assert_eq!(pause(1, 500), Duration::from_millis(100));
        assert_eq!(pause(2, 0), Duration::from_millis(100));
        assert_eq!(pause(3, 999), Duration::from_micros(599_600));
        assert_eq!(pause(1000, 500), Duration::from_secs(1));
    }

    #[test]
    fn only_failures_of_the_connection_pass_and_absence_is_told_apart() {
        for said in ["", "kex_exchange_identification: read: Connection reset by peer"] {
            assert_eq!(cause(Some(255), said), Cause::Busy, "{said}");
        }
        for said in [
            "ssh: Could not resolve hostname n9: Name or service not known",
            "ssh: connect to host n9 port 22: Connection refused",
            "ssh: connect to host n9 port 22: No route to host",
        ] {
            assert_eq!(cause(Some(255), said), Cause::Absent, "{said}");
        }
        for said in [
            "ann@n9: Permission denied (publickey).",
            "Host key verification failed.",
            "x: Bad configuration option: y",
        ] {
            assert_eq!(cause(Some(255), said), Cause::Final, "{said}");
        }
        for code in [Some(1), Some(127), None] {
            assert_eq!(cause(code, "Connection refused"), Cause::Final);
        }
    }
}
