use super::{file, option, set, variable, with_file, with_set};
use crate::config::keys::{self, TABLE};
use crate::config::{KeySpec, Kind, Layers, Snapshot, Source, Value, Words, program_setting, resolve};
use std::time::Duration;

/// Two allowed texts of a key, neither of them the default.
fn samples(spec: &KeySpec) -> [String; 2] {
    let own = |text: &str| text.to_string();
    match &spec.kind {
        Kind::Flag { default } => [(!default).to_string(), own(if *default { "no" } else { "yes" })],
        Kind::Count { range, .. } => [range.start().to_string(), range.end().to_string()],
        Kind::Bytes { range, .. } => [(range.end() / 2).to_string(), range.end().to_string()],
        Kind::Duration { range, .. } => {
            [format!("{}ns", range.start().as_nanos() + 1), format!("{}ns", range.end().as_nanos())]
        }
        Kind::Choice { choices, .. } => [own(choices[1]), own(choices[2])],
        Kind::List { of: Words::OneOf(words), .. } => [own(words[0]), own(words[1])],
        Kind::List { of: Words::Interfaces, .. } => [own("eth0"), own("10.0.0.0/8")],
        Kind::List { of: Words::Levels, .. } => [own("host,group"), own("4,host")],
        Kind::Text { .. } => [own("ssh -q"), own("{host} rsrun")],
    }
}

/// The layers over the defaults, weakest first; `texts` has the text of each layer that sets the key.
fn layers(spec: &KeySpec, texts: &[Option<&str>; 5]) -> (Layers, Vec<Source>) {
    let toml = |path: &str, text: &str| file(path, format!("# a comment\n{} = {text:?}\n", spec.name));
    let from_file = |path: &str| Source::File { path: path.into(), line: 2 };
    let layers = Layers {
        system: texts[0].map(|text| toml("/etc/rsrun/config.toml", text)),
        user: texts[1].map(|text| toml("/home/u/.config/rsrun/config.toml", text)),
        job: texts[2].map(|text| toml("job.toml", text)),
        environment: texts[3].map(|text| variable(&spec.environment(), text)).into_iter().collect(),
        command_line: texts[4].map(|text| set(spec.name, text)).into_iter().collect(),
    };
    let sources = vec![
        from_file("/etc/rsrun/config.toml"),
        from_file("/home/u/.config/rsrun/config.toml"),
        from_file("job.toml"),
        Source::Environment { name: spec.environment() },
        Source::CommandLine { option: "--set".into() },
    ];
    (layers, sources)
}

/// All pairs of layers and all larger sets, for every key.
#[test]
fn for_every_key_and_every_set_of_layers_the_strongest_wins_and_the_chain_lists_the_others() {
    for (index, spec) in TABLE.iter().enumerate() {
        let samples = samples(spec);
        for subset in 0_u32..32 {
            let sets = |layer: usize| subset >> layer & 1 == 1;
            // Neighbours in the chain differ, so that the value of the wrong layer cannot pass for the right one.
            let text = |layer: usize| {
                let weaker = (0..layer).filter(|other| sets(*other)).count();
                samples[weaker % 2].as_str()
            };
            let texts = std::array::from_fn(|layer| sets(layer).then(|| text(layer)));
            let (layers, sources) = layers(spec, &texts);
            let snapshot = resolve(&layers).unwrap();

            let mut chain = vec![(spec.kind.default_value(), Source::Default)];
            for (text, source) in texts.iter().zip(sources) {
                chain.extend(text.map(|text| (spec.kind.parse(text).unwrap(), source)));
            }
            let (value, source) = chain.pop().unwrap();
            let entry = &snapshot.entries()[index];
            assert_eq!((&entry.value, &entry.source), (&value, &source), "{} in layers {subset:05b}", spec.name);
            assert_eq!(entry.overrode, chain, "{} in layers {subset:05b}", spec.name);

            let others = snapshot.entries().iter().enumerate().filter(|(other, _)| *other != index);
            for (other, entry) in others {
                assert_eq!(*entry, Snapshot::defaults().entries()[other], "{} changed {}", spec.name, entry.key);
            }
        }
    }
}

#[test]
fn nothing_set_gives_the_defaults() {
    assert_eq!(resolve(&Layers::default()).unwrap(), Snapshot::defaults());
}

#[test]
fn the_last_of_several_options_wins_whatever_its_name() {
    let command_line = vec![
        option("--mca", "low_latency_rdma_size_hint", "1k"),
        set("low_latency.size_hint", "2k"),
        option("--mca", "low_latency_rdma_size_hint", "3k"),
    ];
    let snapshot = resolve(&Layers { command_line, ..Layers::default() }).unwrap();
    assert_eq!(snapshot.get(keys::LOW_LATENCY_SIZE_HINT), 3072);
    let entry = &snapshot.entries()[0];
    assert_eq!(entry.source.to_string(), "command line --mca");
    let overrode: Vec<_> = entry.overrode.iter().map(|(value, source)| format!("{value} {source}")).collect();
    assert_eq!(overrode, ["0 default", "1KiB command line --mca", "2KiB command line --set"]);
}

#[test]
fn sections_dotted_keys_inline_tables_and_quoted_names_are_the_same() {
    for text in [
        "shm.ring_bytes = '128KiB'",
        "shm.ring_bytes = 131072",
        "shm.ring_bytes = 0x2_0000",
        "shm.ring_bytes = +131_072",
        "[shm]\nring_bytes = '128k'",
        "shm = { ring_bytes = '131072' }",
        "'shm.ring_bytes' = \"128 KiB\"",
        "shm . ring_bytes = '128KiB' # with a comment",
        "\u{feff}shm.ring_bytes = '128KiB'\r\n",
    ] {
        assert_eq!(with_file(text).unwrap().get(keys::SHM_RING_BYTES), 131_072, "{text:?}");
    }
}

#[test]
fn a_list_may_be_an_array_in_a_file() {
    let snapshot = with_file("transport.allow = ['tcp', 'shm']\ntcp.interfaces = []").unwrap();
    assert_eq!(snapshot.get(keys::TRANSPORT_ALLOW), "tcp,shm");
    assert_eq!(snapshot.get(keys::TCP_INTERFACES), "");
}

#[test]
fn the_hint_of_other_systems_is_understood_in_files_and_in_the_environment() {
    let job = Some(file("job.toml", "low_latency_rdma_size_hint=16384"));
    let snapshot = resolve(&Layers { job: job.clone(), ..Layers::default() }).unwrap();
    assert_eq!(snapshot.get(keys::LOW_LATENCY_SIZE_HINT), 16_384);
    let environment = vec![variable("RDMA_LOW_LATENCY_HINT", "8k"), variable("HOME", "/root")];
    let snapshot = resolve(&Layers { job, environment, ..Layers::default() }).unwrap();
    assert_eq!(snapshot.get(keys::LOW_LATENCY_SIZE_HINT), 8192);
    assert_eq!(snapshot.entries()[0].source.to_string(), "environment RDMA_LOW_LATENCY_HINT");
}

#[test]
fn one_key_under_two_names_with_equal_values_is_no_conflict() {
    let text = "low_latency_rdma_size_hint = 16384\nlow_latency.size_hint = '16KiB'";
    let snapshot = with_file(text).unwrap();
    assert_eq!(snapshot.get(keys::LOW_LATENCY_SIZE_HINT), 16_384);
    assert_eq!(snapshot.entries()[0].overrode, [(Value::Bytes(0), Source::Default)]);
}

#[test]
fn variables_of_other_programs_are_left_alone() {
    let environment = vec![
        variable("OMPI_MCA_btl", "self"),
        variable("UCX_TLS", "tcp"),
        variable("SPMD_RANK", "x"),
        variable("EAGER_LIMIT", "x"),
    ];
    assert_eq!(resolve(&Layers { environment, ..Layers::default() }).unwrap(), Snapshot::defaults());
}

#[test]
fn a_program_sets_a_key_by_name_or_alias_and_gets_the_keys_own_name() {
    let expected = ("low_latency.size_hint".to_string(), Value::Bytes(8192));
    assert_eq!(program_setting("low_latency.size_hint", "8k").unwrap(), expected);
    assert_eq!(program_setting("low_latency_rdma_size_hint", "8192").unwrap(), expected);
    assert_eq!(
        program_setting("low_latency.size_hnt", "8k").unwrap_err().to_string(),
        "set by the program: unknown key `low_latency.size_hnt`: did you mean low_latency.size_hint?"
    );
    assert_eq!(
        program_setting("wait.spin", "2s").unwrap_err().to_string(),
        "set by the program: wait.spin = `2s`: too large; allowed: 0s to 1s"
    );
}

#[test]
fn every_type_of_value_is_read_through_its_handle() {
    let snapshot = with_set(&[
        ("launch.window", "7"),
        ("eager.limit", "1MiB"),
        ("wait.spin", "1.5ms"),
        ("wait.policy", "sleep"),
        ("transport.allow", "tcp"),
        ("launch.agent", "sh -c"),
    ])
    .unwrap();
    assert_eq!(snapshot.get(keys::LAUNCH_WINDOW), 7);
    assert_eq!(snapshot.get(keys::EAGER_LIMIT), 1 << 20);
    assert_eq!(snapshot.get(keys::WAIT_SPIN), Duration::from_micros(1500));
    assert_eq!(snapshot.get(keys::WAIT_POLICY), "sleep");
    assert_eq!(snapshot.get(keys::TRANSPORT_ALLOW), "tcp");
    assert_eq!(snapshot.get(keys::LAUNCH_AGENT), "sh -c");
}
