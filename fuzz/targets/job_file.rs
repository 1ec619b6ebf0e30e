//! Job files: any text ends in programs, or in an error that names the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rsrun::cli::job_file;
use std::path::Path;

fuzz_target!(|text: &str| match job_file::parse(Path::new("job.toml"), text) {
    Ok(apps) => assert!(!apps.is_empty() && (apps.len() == 1 || apps.iter().all(|app| app.options.ranks.is_some()))),
    Err(error) => assert!(error.to_string().contains("job.toml"), "{error}"),
});
