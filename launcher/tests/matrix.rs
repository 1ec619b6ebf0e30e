//! The page that says which test keeps which bug away names only tests that exist.

use std::path::{Path, PathBuf};

const PAGE: &str = include_str!("../../docs/launcher-matrix.md");

/// All Rust files of these folders, relative to the repository.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<PathBuf> =
        ["launcher/src", "launcher/tests", "runtime/src", "lab/tests"].iter().map(|folder| root.join(folder)).collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.with_extension("").display().to_string();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

/// Whether `text` has a test of this name.
fn has_test(text: &str, name: &str) -> bool {
    let Some(at) = text.find(&format!("fn {name}(")) else { return false };
    text[..at].trim_end().lines().rev().take(4).any(|line| line.trim() == "#[test]")
}

#[test]
fn every_test_that_the_matrix_names_exists() {
    let sources = sources();
    let rows: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("| ")).collect();
    let mut named = 0;
    for quoted in rows.iter().flat_map(|row| row.split('`').skip(1).step_by(2)) {
        let Some((file, name)) = quoted.rsplit_once("::") else { continue };
        if !name.contains('_') {
            continue;
        }
        let ending = format!("/{}", file.replace("::", "/"));
        let there = sources.iter().any(|(path, text)| path.ends_with(&ending) && has_test(text, name));
        assert!(there, "there is no test {quoted}: correct docs/launcher-matrix.md");
        named += 1;
    }
    for title in rows.iter().flat_map(|row| row.split("cluster: \"").skip(1)) {
        let title = title.split('"').next().unwrap();
        let there =
            sources.iter().any(|(path, text)| path.contains("lab/tests/") && text.contains(&format!("(\"{title}\"")));
        assert!(there, "there is no cluster test \"{title}\": correct docs/launcher-matrix.md");
        named += 1;
    }
    assert!(named > 80, "only {named} tests were found on the page");
}

#[test]
fn every_numbered_bug_has_a_test() {
    let rows = PAGE.lines().filter(|line| line.starts_with("| ")).filter_map(|line| {
        let mut cells = line.split(" | ");
        let number = cells.next()?.trim_start_matches("| ").parse::<u32>().ok()?;
        Some((number, cells.nth(1)?.contains("::")))
    });
    let rows: Vec<_> = rows.collect();
    assert!(rows.len() >= 32, "{rows:?}");
    for ((number, has_test), expected) in rows.into_iter().zip(1..) {
        assert_eq!((number, has_test), (expected, true));
    }
}
