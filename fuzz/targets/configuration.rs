//! Configuration from files, the environment and the command line: any text ends in a snapshot or in an error, and the
//! same text always in the same snapshot.

#![no_main]

use libfuzzer_sys::fuzz_target;
use spmd::config::{CommandLineSetting, FileLayer, Layers, resolve};

fuzz_target!(|text: &str| {
    let (file, rest) = text.split_once('\0').unwrap_or((text, ""));
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    let layers = Layers {
        user: Some(FileLayer { path: "config.toml".into(), text: file.into() }),
        environment: vec![(format!("RSRUN_{key}").into(), value.into())],
        command_line: vec![CommandLineSetting { option: "--set".into(), key: key.into(), value: value.into() }],
        ..Layers::default()
    };
    match (resolve(&layers), resolve(&layers)) {
        (Ok(one), Ok(two)) => assert_eq!(one.hash(), two.hash()),
        (Err(one), Err(two)) => assert_eq!(one.to_string(), two.to_string()),
        _ => panic!("the same layers gave a snapshot and an error"),
    }
});
