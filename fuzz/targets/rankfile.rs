//! Rankfiles: any text ends in one entry a rank, or in an error that names file and line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rsrun::placement::rankfile;

fuzz_target!(|text: &str| match rankfile::parse("ranks", text) {
    Ok(entries) =>
        for (rank, entry) in entries.iter().enumerate() {
            assert_eq!(usize::try_from(entry.rank), Ok(rank));
        },
    Err(error) => assert!(error.to_string().starts_with("ranks:"), "{error}"),
});
