//! Whether all ranks entered `World::init` with the same settings.
//!
//! Pure. The first difference is described with rank, host, key and both values.

use spmd::bootstrap::messages::Hello;
use spmd::config::Value;

/// Compares what every rank said (with the name of its host) with the snapshot's hash and with rank 0.
pub(super) fn check(hellos: &[(&Hello, &str)], snapshot: [u8; 32]) -> Result<(), String> {
    for (rank, (hello, host)) in hellos.iter().enumerate() {
        if hello.snapshot != snapshot {
            return Err(format!(
                "rank {rank} on host {host} works with another configuration than this launcher resolved (snapshot {}, \
                 here {}): was its program built against another version?",
                short(hello.snapshot),
                short(snapshot)
            ));
        }
    }
    let Some(((first, first_host), others)) = hellos.split_first() else { return Ok(()) };
    for (rank, (hello, host)) in (1..).zip(others) {
        for key in first.program.iter().chain(&hello.program).map(|(key, _)| key) {
            let (ours, theirs) = (value(first, key), value(hello, key));
            if ours != theirs {
                return Err(format!(
                    "ranks disagree about {key}, set in code: rank 0 on host {first_host} has {}, rank {rank} on host \
                     {host} has {}; every rank must set the same",
                    show(ours),
                    show(theirs)
                ));
            }
        }
    }
    Ok(())
}

/// The value in force: the last one set.
fn value<'a>(hello: &'a Hello, key: &str) -> Option<&'a Value> {
    hello.program.iter().rev().find(|(k, _)| k == key).map(|(_, value)| value)
}

fn show(value: Option<&Value>) -> String {
    value.map_or_else(|| "not set it".to_string(), Value::to_string)
}

fn short(hash: [u8; 32]) -> String {
    hash[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(program: &[(&str, u64)]) -> Hello {
        let program = program.iter().map(|(k, v)| (k.to_string(), Value::Count(*v))).collect();
        Hello { pid: 1, snapshot: [7; 32], program, addresses: vec![] }
    }

    #[test]
    fn equal_settings_agree_in_any_order() {
        let (a, b) = (hello(&[("x", 1), ("y", 2)]), hello(&[("y", 2), ("x", 1)]));
        assert_eq!(check(&[(&a, "h0"), (&b, "h1")], [7; 32]), Ok(()));
        assert_eq!(check(&[], [7; 32]), Ok(()));
    }

    #[test]
    fn a_difference_names_rank_host_key_and_both_values() {
        let (a, b) = (hello(&[("x", 1)]), hello(&[("x", 2)]));
        let error = check(&[(&a, "h0"), (&a, "h0"), (&b, "h1")], [7; 32]).unwrap_err();
        for part in ["about x", "rank 0 on host h0 has 1", "rank 2 on host h1 has 2"] {
            assert!(error.contains(part), "{error}");
        }
        let error = check(&[(&a, "h0"), (&hello(&[]), "h1")], [7; 32]).unwrap_err();
        assert!(error.contains("rank 1 on host h1 has not set it"), "{error}");
        let error = check(&[(&hello(&[]), "h0"), (&b, "h1")], [7; 32]).unwrap_err();
        assert!(error.contains("rank 0 on host h0 has not set it"), "{error}");
    }

    #[test]
    fn another_snapshot_is_named_by_rank_and_host() {
        let error = check(&[(&hello(&[]), "h0")], [8; 32]).unwrap_err();
        assert!(error.contains("rank 0 on host h0") && error.contains("07070707"), "{error}");
    }
}
