//! `cargo xtask fuzz`: the fuzz targets, built as `cargo fuzz` would, without having to install it.

use crate::command::{Interrupts, cargo, root};
use crate::error::{Result, XtaskError};
use crate::say::say;
use crate::system::quiet;
use std::path::PathBuf;
use std::process::Command;

/// The fuzz targets and a folder with samples for each, from the root.
const TARGETS: &[(&str, Option<&str>)] = &[
    ("frames", None),
    ("hostfile", Some("hostfiles")),
    ("rankfile", None),
    ("job_file", None),
    ("configuration", None),
    ("rdma", None),
    ("work_queue", None),
];

/// What libFuzzer needs to see where a program went (rustc's flags, as `cargo fuzz` sets them), and AddressSanitizer.
const FLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares";

/// What `cargo xtask fuzz` was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Only this target; all when `None`.
    pub(crate) only: Option<String>,
    /// Seconds a target.
    pub(crate) seconds: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { only: None, seconds: 10 }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let chosen: Vec<_> =
        TARGETS.iter().filter(|(name, _)| options.only.as_ref().is_none_or(|only| only == name)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        return Err(XtaskError::Usage(format!("there is no such fuzz target; there are {}", names.join(", "))));
    }
    if !quiet("cargo", &["+nightly", "--version"]) {
        return Err(XtaskError::Usage(
            "fuzzing needs a nightly toolchain: rustup toolchain install nightly --profile minimal".into(),
        ));
    }
    let host = std::env::consts::ARCH.to_owned() + "-unknown-linux-gnu";
    let interrupts = Interrupts::catch()?;
    let mut build = cargo(&["+nightly", "build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", &host]);
    build.env("RUSTFLAGS", FLAGS);
    say!("fuzz: building {} targets, which takes minutes the first time", TARGETS.len());
    interrupts.run(&mut build)?;
    let fuzz = root().join("fuzz");
    for (name, samples) in chosen {
        let corpus: PathBuf = fuzz.join("corpus").join(name);
        let artifacts = fuzz.join("artifacts").join(name);
        for folder in [&corpus, &artifacts] {
            std::fs::create_dir_all(folder)
                .map_err(|error| XtaskError::Usage(format!("{}: {error}", folder.display())))?;
        }
        let mut target = Command::new(fuzz.join("target").join(&host).join("release").join(name));
        target.current_dir(root()).arg(&corpus).args(samples.map(|folder| root().join(folder)));
        target.arg(format!("-max_total_time={}", options.seconds));
        target.arg(format!("-artifact_prefix={}/", artifacts.display())).arg("-rss_limit_mb=2048");
        say!("fuzz: {name} for {} seconds", options.seconds);
        interrupts.run(&mut target)?;
    }
    Ok(())
}
