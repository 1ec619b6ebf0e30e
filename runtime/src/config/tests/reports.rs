use super::{file, set, variable, with_set};
use crate::config::{Filter, Layers, Snapshot, describe, find, json, reference_page, resolve, table};
use std::path::Path;

fn snapshot() -> Snapshot {
    resolve(&Layers {
        system: Some(file("/etc/rsrun/config.toml", "[shm]\nring_bytes = '32KiB'\n")),
        environment: vec![variable("RSRUN_WAIT_SPIN", "1.5ms")],
        command_line: vec![set("shm.ring_bytes", "128k"), set("launch.agent", "")],
        ..Layers::default()
    })
    .unwrap()
}

#[test]
fn the_table_shows_value_source_and_what_was_overridden() {
    assert_eq!(
        table(&snapshot(), Filter::Changed),
        "\
key             value   source                       overrode
shm.ring_bytes  128KiB  command line --set           32KiB (/etc/rsrun/config.toml:2), 4MiB (default)
wait.spin       1500us  environment RSRUN_WAIT_SPIN  50us (default)
launch.agent    \"\"      command line --set           \"\" (default)
"
    );
}

#[test]
fn the_table_of_all_keys_has_one_line_for_each() {
    let all = table(&snapshot(), Filter::All);
    let keys: Vec<_> = all.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(keys, snapshot().entries().iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>());
    assert!(all.lines().all(|line| line == line.trim_end()));
}

#[test]
fn one_key_is_described_with_all_that_is_known_about_it() {
    let text = describe(&snapshot(), "shm.ring_bytes").unwrap();
    for part in [
        "shm.ring_bytes = 128KiB (command line --set)\n",
        "overrode  32KiB (/etc/rsrun/config.toml:2)\n",
        "default   4MiB\n",
        "variable  RSRUN_SHM_RING_BYTES\n",
    ] {
        assert!(text.contains(part), "{text}");
    }
    for entry in snapshot().entries() {
        let lines = describe(&snapshot(), &entry.key).unwrap();
        assert!(lines.lines().count() >= 5 && lines.lines().all(|line| !line.trim().is_empty()), "{lines}");
    }
    assert_eq!(describe(&snapshot(), "no.such"), None);
    let some = table(&snapshot(), Filter::Only(&["wait.spin"]));
    assert_eq!(some.lines().count(), 2, "{some}");
}

#[test]
fn a_table_without_rows_says_so() {
    assert_eq!(table(&Snapshot::defaults(), Filter::Changed), "every key has its default\n");
}

#[test]
fn a_key_that_is_set_to_its_default_counts_as_changed() {
    let snapshot = with_set(&[("eager.limit", "8k")]).unwrap();
    assert!(table(&snapshot, Filter::Changed).contains("eager.limit"));
}

#[test]
fn the_json_form_has_the_number_the_text_and_the_sources() {
    let snapshot = snapshot();
    let report = serde_json::to_value(json(&snapshot, Filter::Changed)).unwrap();
    let doc = |key: &str| find(key).unwrap().doc.trim();
    let allowed = |key: &str| find(key).unwrap().kind.allowed();
    let hash: String = snapshot.hash().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        report,
        serde_json::json!({
            "hash": hash,
            "keys": [
                {
                    "key": "shm.ring_bytes", "kind": "bytes", "doc": doc("shm.ring_bytes"), "allowed": allowed("shm.ring_bytes"), "value": 131_072, "text": "128KiB",
                    "source": {"layer": "command_line", "option": "--set"},
                    "overrode": [
                        {"value": 4194304, "text": "4MiB", "source": {"layer": "default"}},
                        {"value": 32768, "text": "32KiB",
                         "source": {"layer": "file", "path": "/etc/rsrun/config.toml", "line": 2}},
                    ],
                },
                {
                    "key": "wait.spin", "kind": "duration", "doc": doc("wait.spin"), "allowed": allowed("wait.spin"), "value": 1_500_000, "text": "1500us",
                    "source": {"layer": "environment", "name": "RSRUN_WAIT_SPIN"},
                    "overrode": [{"value": 50_000, "text": "50us", "source": {"layer": "default"}}],
                },
                {
                    "key": "launch.agent", "kind": "text", "doc": doc("launch.agent"), "allowed": allowed("launch.agent"), "value": "", "text": "",
                    "source": {"layer": "command_line", "option": "--set"},
                    "overrode": [{"value": "", "text": "", "source": {"layer": "default"}}],
                },
            ],
        })
    );
    let all = serde_json::to_value(json(&snapshot, Filter::All)).unwrap();
    assert_eq!(all["keys"].as_array().unwrap().len(), snapshot.entries().len());
}

#[test]
fn the_committed_reference_page_is_the_one_of_the_key_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, reference_page()).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == reference_page(),
        "docs/configuration.md is not up to date: run UPDATE_DOCS=1 cargo test -p spmd --lib reference_page"
    );
}
