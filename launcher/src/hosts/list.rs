//! The `-host a:2,b` list of the command line.
//!
//! The same host words as in a hostfile, separated by commas (commas inside a range's brackets belong to the range).

use super::{HostSpec, entry};
use std::collections::HashSet;

/// Parses one or more `-host` lists; the error is a message that names the offending entry.
pub fn parse(lists: &[String]) -> Result<Vec<HostSpec>, String> {
    let mut hosts = Vec::new();
    let mut seen = HashSet::new();
    for list in lists {
        for word in split(list) {
            let word = word.trim();
            let parsed = entry::parse(word).map_err(|e| format!("-host {list}: in `{word}`: {}", e.message))?;
            for name in parsed.names {
                let spec = HostSpec {
                    name,
                    slots: parsed.slots,
                    user: parsed.user.clone(),
                    port: parsed.port,
                    place: "-host".to_string(),
                    ..HostSpec::this_machine()
                };
                if !seen.insert(spec.identity()) {
                    return Err(format!(
                        "-host {list}: the host {0} is named twice: write {0}:N with all its slots",
                        spec.name
                    ));
                }
                hosts.push(spec);
            }
        }
    }
    Ok(hosts)
}

fn split(list: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    list.split(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_separated_by_commas_and_ranges_keep_theirs() {
        let hosts = parse(&["a:2,b".to_string(), "n[1,3]".to_string()]).unwrap();
        let shown: Vec<_> = hosts.iter().map(|h| (h.name.as_str(), h.slots)).collect();
        assert_eq!(shown, [("a", Some(2)), ("b", None), ("n1", None), ("n3", None)]);
    }

    #[test]
    fn an_error_names_the_list_and_the_entry() {
        let error = parse(&["a,b:x".to_string()]).unwrap_err();
        assert!(error.contains("-host a,b:x") && error.contains("`b:x`"), "{error}");
        assert!(parse(&["a,,b".to_string()]).unwrap_err().contains("empty"));
        assert!(parse(&["a,a:2".to_string()]).unwrap_err().contains("twice"));
    }
}
