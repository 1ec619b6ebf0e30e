//! Hostfiles: any bytes end in hosts or in an error that names the file, and what is parsed has names and slots that
//! the rest of the launcher can use.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rsrun::hosts::{file, list};

fuzz_target!(|bytes: &[u8]| {
    match file::parse("hosts", bytes) {
        Ok(hosts) => {
            assert!(!hosts.is_empty());
            for host in hosts {
                assert!(!host.name.is_empty() && !host.name.starts_with('-'));
                assert!(host.place.starts_with("hosts:"));
            }
        }
        Err(error) => assert!(error.to_string().contains("hosts")),
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = list::parse(&[text.to_string()]);
    }
});
