use super::{file, option};
use crate::bootstrap::frame;
use crate::config::keys::TABLE;
use crate::config::units::{duration, format_duration, format_size, size};
use crate::config::{
    ENVIRONMENT_PREFIX, Filter, KeySpec, Kind, Layers, Snapshot, Value, Words, json, nearest, resolve, table,
};
use proptest::prelude::*;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

fn key() -> impl Strategy<Value = &'static KeySpec> {
    (0..TABLE.len()).prop_map(|index| &TABLE[index])
}

/// A value that the key allows.
fn value_of(kind: &'static Kind) -> BoxedStrategy<Value> {
    let words = |words: &'static [&'static str]| {
        let all = proptest::sample::subsequence(words, 1..=words.len()).prop_shuffle();
        all.prop_map(|words| Value::Text(words.join(","))).boxed()
    };
    match kind {
        Kind::Flag { .. } => any::<bool>().prop_map(Value::Flag).boxed(),
        Kind::Count { range, .. } => range.clone().prop_map(Value::Count).boxed(),
        Kind::Bytes { range, power_of_two, .. } => {
            let power_of_two = *power_of_two;
            let size = range.clone().prop_map(move |n| if power_of_two { 1 << n.ilog2() } else { n });
            size.prop_map(Value::Bytes).boxed()
        }
        Kind::Duration { range, .. } => {
            let nanoseconds = |time: &Duration| u64::try_from(time.as_nanos()).unwrap();
            let range = nanoseconds(range.start())..=nanoseconds(range.end());
            range.prop_map(|n| Value::Duration(Duration::from_nanos(n))).boxed()
        }
        Kind::Choice { choices, .. } => {
            proptest::sample::select(*choices).prop_map(|word| Value::Text(word.into())).boxed()
        }
        Kind::List { of: Words::OneOf(known), .. } => words(known),
        Kind::List { of: Words::Interfaces, .. } => {
            proptest::sample::select(&["", "eth0", "ib0,10.1.0.0/16", "fd00::/8"][..])
                .prop_map(|text| Value::Text(text.into()))
                .boxed()
        }
        Kind::List { of: Words::Levels, .. } => {
            proptest::sample::select(&["none", "host", "host,group", "2,host,16,group"][..])
                .prop_map(|text| Value::Text(text.into()))
                .boxed()
        }
        Kind::Text { .. } => "\\PC{0,40}".prop_map(Value::Text).boxed(),
    }
}

/// A name that is right, nearly right, or anything.
fn name() -> impl Strategy<Value = String> {
    let known = || key().prop_map(|spec| spec.name.to_string());
    prop_oneof![
        4 => known(),
        1 => (known(), any::<proptest::sample::Index>(), any::<char>()).prop_map(|(mut name, place, character)| {
            let place = place.index(name.len());
            name.insert(place, character);
            name
        }),
        1 => Just("low_latency_rdma_size_hint".to_string()),
        1 => any::<String>(),
    ]
}

/// A value that fits some key, or anything.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9]{1,6}(k|KiB|MiB|ms|us|s|min)?",
        "(auto|tcp|shm|ring|linear|true|eth0|'|\"|,|\\[|\\]){1,3}",
        any::<String>()
    ]
}

/// A file that is often TOML and often nearly.
fn document() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        4 => (name(), text()).prop_map(|(name, text)| format!("{name} = {text:?}\n")),
        2 => (name(), text()).prop_map(|(name, text)| format!("{name} = {text}\n")),
        1 => "\\[[a-z.]{1,8}\\]\n",
        1 => any::<String>(),
    ];
    proptest::collection::vec(line, 0..6).prop_map(|lines| lines.concat())
}

fn variable() -> impl Strategy<Value = (OsString, OsString)> {
    let bytes = || proptest::collection::vec(1_u8..=255, 0..12).prop_map(OsString::from_vec);
    let named = name()
        .prop_map(|name| OsString::from(format!("{ENVIRONMENT_PREFIX}{}", name.to_uppercase().replace('.', "_"))));
    let prefixed = bytes().prop_map(|rest| {
        let mut name = OsString::from(ENVIRONMENT_PREFIX);
        name.push(rest);
        name
    });
    let name = prop_oneof![3 => named, 1 => prefixed, 1 => Just("RDMA_LOW_LATENCY_HINT".into()), 1 => bytes()];
    (name, prop_oneof![3 => text().prop_map(OsString::from), 1 => bytes()])
}

fn layers() -> impl Strategy<Value = Layers> {
    let file = || proptest::option::of(document().prop_map(|text| file("some.toml", text)));
    let environment = proptest::collection::vec(variable(), 0..3);
    let setting = (name(), text()).prop_map(|(key, value)| option("--set", &key, &value));
    let command_line = proptest::collection::vec(setting, 0..3);
    (file(), file(), file(), environment, command_line).prop_map(|(system, user, job, environment, command_line)| {
        Layers { system, user, job, environment, command_line }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_size_reads_back_from_its_text(bytes in prop_oneof![any::<u64>(), (0_u32..64).prop_map(|bit| 1 << bit)]) {
        prop_assert_eq!(size(&format_size(bytes)), Ok(bytes));
    }

    #[test]
    fn every_time_reads_back_from_its_text(count in any::<u64>(), unit in proptest::sample::select(&[1_u64, 1000, 1_000_000, 1_000_000_000, 60_000_000_000][..])) {
        let time = Duration::from_nanos(count / unit * unit);
        prop_assert_eq!(duration(&format_duration(time)), Ok(time));
    }

    #[test]
    fn reading_any_text_as_a_size_or_a_time_does_not_panic(text in any::<String>()) {
        let _ = (size(&text), duration(&text));
    }

    #[test]
    fn every_allowed_value_of_every_key_reads_back_from_its_text_in_every_layer(
        (spec, value) in key().prop_flat_map(|spec| (Just(spec), value_of(&spec.kind)))
    ) {
        let text = value.to_string();
        prop_assert_eq!(spec.kind.parse(&text), Ok(value.clone()));
        let quoted = serde_json::to_string(&text).unwrap();
        let by_file = Layers { job: Some(file("j", format!("{} = {quoted}", spec.name))), ..Layers::default() };
        let by_variable = Layers { environment: vec![(spec.environment().into(), (&text).into())], ..Layers::default() };
        let by_option = Layers { command_line: vec![option("--set", spec.name, &text)], ..Layers::default() };
        for layers in [by_file, by_variable, by_option] {
            let snapshot = resolve(&layers).unwrap();
            let entry = snapshot.entries().iter().find(|entry| entry.key == spec.name).unwrap();
            prop_assert_eq!(&entry.value, &value);
        }
    }

    #[test]
    fn resolving_anything_gives_a_valid_snapshot_or_problems_of_one_line_each(layers in layers()) {
        match resolve(&layers) {
            Ok(snapshot) => {
                prop_assert_eq!(Snapshot::try_from(snapshot.entries().to_vec()), Ok(snapshot.clone()));
                prop_assert_eq!(table(&snapshot, Filter::All).lines().count(), TABLE.len() + 1);
                prop_assert!(serde_json::to_string(&json(&snapshot, Filter::All)).is_ok());
            }
            Err(error) => {
                prop_assert!(!error.problems().is_empty());
                prop_assert_eq!(error.to_string().lines().count(), error.problems().len().min(41));
            }
        }
    }

    #[test]
    fn any_bytes_decode_to_a_valid_snapshot_or_to_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        place in any::<proptest::sample::Index>(),
    ) {
        let _ = frame::decode::<Snapshot>(&bytes);
        // Also a real one with some bytes overwritten, which gets further.
        let mut encoded = frame::encode(&Snapshot::defaults()).unwrap();
        let place = place.index(encoded.len());
        for (target, byte) in encoded[place..].iter_mut().zip(bytes.iter().take(3)) {
            *target = *byte;
        }
        if let Ok(snapshot) = frame::decode::<Snapshot>(&encoded) {
            prop_assert_eq!(Snapshot::try_from(snapshot.entries().to_vec()), Ok(snapshot));
        }
    }

    #[test]
    fn looking_for_the_nearest_of_any_name_does_not_panic(name in any::<String>()) {
        let _ = nearest(&name);
    }
}
