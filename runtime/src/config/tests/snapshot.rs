use super::{file, set, variable, with_set};
use crate::bootstrap::frame;
use crate::config::keys::{self, TABLE};
use crate::config::snapshot::hash_of;
use crate::config::{Entry, Layers, Snapshot, SnapshotError, Source, Value, resolve};
use std::time::Duration;

fn hex(bytes: [u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_hash_is_that_of_the_documented_encoding() {
    let pairs = [
        ("b.time", &Value::Duration(Duration::new(5, 7))),
        ("a.size", &Value::Bytes(65_536)),
        ("c.word", &Value::Text("ring".into())),
        ("d.flag", &Value::Flag(true)),
        ("e.count", &Value::Count(64)),
    ];
    // Computed with another implementation of SHA-256 from the description of the encoding.
    assert_eq!(hex(hash_of(pairs.to_vec())), "23097642cbf97e415f8dc5d5fbd5efd41342125983a1c1842290242802a7acaf");
}

#[test]
fn the_hash_does_not_depend_on_where_values_came_from() {
    let command_line = resolve(&Layers { command_line: vec![set("eager.limit", "4k")], ..Layers::default() }).unwrap();
    let environment = vec![variable("RSRUN_EAGER_LIMIT", "4096")];
    let environment = resolve(&Layers { environment, ..Layers::default() }).unwrap();
    let job = Some(file("job.toml", "[eager]\nlimit = 4096"));
    let overridden = vec![set("eager.limit", "1"), set("eager.limit", "4KiB")];
    let both = resolve(&Layers { job, command_line: overridden, ..Layers::default() }).unwrap();
    assert_eq!(command_line.hash(), environment.hash());
    assert_eq!(command_line.hash(), both.hash());
    assert_ne!(command_line.hash(), Snapshot::defaults().hash());
}

#[test]
fn every_key_counts_in_the_hash() {
    let defaults = Snapshot::defaults();
    for index in 0..TABLE.len() {
        let mut pairs: Vec<_> = defaults.entries().iter().map(|entry| (entry.key.as_str(), &entry.value)).collect();
        assert_eq!(hash_of(pairs.clone()), defaults.hash());
        let other = Value::Text("another value".into());
        pairs[index].1 = &other;
        assert_ne!(hash_of(pairs), defaults.hash(), "{}", TABLE[index].name);
    }
}

#[test]
fn equal_numbers_of_different_types_have_different_hashes() {
    let hashes: Vec<_> = [Value::Flag(true), Value::Count(1), Value::Bytes(1), Value::Duration(Duration::from_secs(1))]
        .iter()
        .map(|value| hash_of(vec![("key", value)]))
        .collect();
    for (place, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..place].contains(hash));
    }
}

#[test]
fn a_difference_names_the_key_and_both_values() {
    let here = with_set(&[("eager.limit", "4k"), ("launch.agent", "sh")]).unwrap();
    let there = Snapshot::defaults();
    let difference: Vec<_> = here.difference(&there).iter().map(ToString::to_string).collect();
    assert_eq!(difference, ["eager.limit is 4KiB here and 8KiB there", "launch.agent is sh here and \"\" there"]);
    assert_eq!(here.difference(&here), []);
}

#[test]
fn sources_and_values_are_shown_as_people_write_them() {
    assert_eq!(Source::Default.to_string(), "default");
    let path = "/etc/rsrun/config.toml".to_string();
    assert_eq!(Source::File { path, line: 3 }.to_string(), "/etc/rsrun/config.toml:3");
    assert_eq!(Source::Environment { name: "RSRUN_X".into() }.to_string(), "environment RSRUN_X");
    assert_eq!(Source::CommandLine { option: "--set".into() }.to_string(), "command line --set");
    assert_eq!(Value::Flag(true).to_string(), "true");
    assert_eq!(Value::Bytes(65_536).to_string(), "64KiB");
    assert_eq!(Value::Duration(Duration::from_millis(200)).to_string(), "200ms");
    assert_eq!(format!("{:>6}", Value::Count(64)), "    64");
}

#[test]
fn a_snapshot_survives_the_frame_with_sources_and_chain() {
    let job = Some(file("job.toml", "[wait]\nspin = '1ms'"));
    let snapshot = resolve(&Layers { job, command_line: vec![set("wait.spin", "2ms")], ..Layers::default() }).unwrap();
    let decoded: Snapshot = frame::decode(&frame::encode(&snapshot).unwrap()).unwrap();
    assert_eq!(decoded, snapshot);
    assert_eq!(decoded.hash(), snapshot.hash());
    assert_eq!(decoded.get(keys::WAIT_SPIN), Duration::from_millis(2));
    let decoded: Snapshot = serde_json::from_str(&serde_json::to_string(&snapshot).unwrap()).unwrap();
    assert_eq!(decoded, snapshot);
}

#[test]
fn entries_that_are_no_snapshot_of_this_program_are_refused() {
    let good = || Snapshot::defaults().entries().to_vec();
    let refused = |entries: Vec<Entry>| {
        // What a peer would send: the entries without the checks of `Snapshot`.
        let decoded = frame::decode::<Snapshot>(&frame::encode(&entries).unwrap());
        let error = Snapshot::try_from(entries).unwrap_err();
        assert!(decoded.unwrap_err().to_string().contains(&error.to_string()));
        error
    };

    let mut missing = good();
    missing.remove(2);
    let expected = SnapshotError::Keys { expected: "shm.ring_bytes".into(), found: "shm.direct_read".into() };
    assert_eq!(refused(missing), expected);

    let mut cut = good();
    cut.pop();
    let expected = SnapshotError::Keys { expected: "launch.grace".into(), found: "(nothing more)".into() };
    assert_eq!(refused(cut), expected);

    let mut more = good();
    more.push(Entry { key: "new.key".into(), ..good()[0].clone() });
    let expected = SnapshotError::Keys { expected: "(nothing more)".into(), found: "new.key".into() };
    assert_eq!(refused(more), expected);

    let mut swapped = good();
    swapped.swap(0, 1);
    assert!(matches!(refused(swapped), SnapshotError::Keys { .. }));

    assert!(matches!(refused(Vec::new()), SnapshotError::Keys { .. }));

    let mut type_changed = good();
    type_changed[2].value = Value::Count(65_536);
    assert!(matches!(refused(type_changed), SnapshotError::Value { key: "shm.ring_bytes", .. }));

    let mut out_of_range = good();
    out_of_range[2].value = Value::Bytes(65_537);
    assert_eq!(
        refused(out_of_range).to_string(),
        "the configuration snapshot holds a wrong value for shm.ring_bytes: not a power of two; \
         allowed: 4KiB to 16MiB, a power of two"
    );

    let mut overrode = good();
    overrode[2].overrode.push((Value::Text("x".into()), Source::Default));
    assert!(matches!(refused(overrode), SnapshotError::Value { key: "shm.ring_bytes", .. }));
}
