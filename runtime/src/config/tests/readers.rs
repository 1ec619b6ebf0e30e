use crate::config::keys::HANDLES;
use std::fs;
use std::path::{Path, PathBuf};

/// All Rust sources of the workspace outside the configuration itself, tests and build output.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    let configuration = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config");
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            let skipped = name.starts_with('.') || name.starts_with("target") || name == "tests" || name == "fuzz";
            if !skipped && path != configuration {
                sources(&path, found);
            }
        } else if kind.is_file() && name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// Whether the line names the handle in code: after `keys::`, as a whole word, not in a comment.
fn reads(line: &str, handle: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let mut rest = code;
    while let Some(at) = rest.find("keys::") {
        rest = &rest[at + "keys::".len()..];
        let word = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(rest, |end| &rest[..end]);
        if word == handle {
            return true;
        }
    }
    false
}

#[test]
fn every_key_has_a_reader() {
    let mut files = Vec::new();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    sources(workspace, &mut files);
    assert!(files.iter().any(|path| path.ends_with("runtime/src/lib.rs")), "the walk missed the sources: {files:?}");
    let texts: Vec<_> = files.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let unread: Vec<_> = HANDLES
        .iter()
        .filter(|handle| !texts.iter().any(|text| text.lines().any(|line| reads(line, handle))))
        .collect();
    assert!(unread.is_empty(), "no code reads (as `keys::NAME`) {unread:?}: remove the key or read it");
}

#[test]
fn a_reader_is_code_that_names_the_whole_handle() {
    assert!(reads("snapshot.get(keys::EAGER_LIMIT)", "EAGER_LIMIT"));
    assert!(reads("a(keys::WAIT_SPIN, config::keys::EAGER_LIMIT);", "EAGER_LIMIT"));
    assert!(!reads("// snapshot.get(keys::EAGER_LIMIT)", "EAGER_LIMIT"));
    assert!(!reads("snapshot.get(keys::EAGER_LIMIT_OF_TCP)", "EAGER_LIMIT"));
    assert!(!reads("const EAGER_LIMIT: u64 = 1;", "EAGER_LIMIT"));
}
