//! Reads the files that users name on the command line, and makes wrong pieces of them fit for a message.
//!
//! Every such file is read here, so that none can be without an end (`/dev/zero`), and all are refused in the same
//! words. Knows nothing of what stands in them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The largest file in bytes: a larger one is something else.
pub(crate) const MAX_BYTES: u64 = 16 << 20;
/// The longest word that a message shows.
const WORD: usize = 80;

/// The bytes of a file or pipe of at most [`MAX_BYTES`].
///
/// # Errors
/// The reason in words, without the file's name.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| describe(&error))?;
    if file.metadata().map_err(|error| describe(&error))?.is_dir() {
        return Err("it is a directory".to_string());
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| describe(&error))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("it is larger than {} MiB", MAX_BYTES >> 20));
    }
    Ok(bytes)
}

/// The same as text.
///
/// # Errors
/// As of [`bytes`], and the first line that is not UTF-8.
pub(crate) fn text(path: &Path) -> Result<String, String> {
    String::from_utf8(bytes(path)?).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8 text")
    })
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "No such file".to_string(),
        io::ErrorKind::PermissionDenied => "Permission denied".to_string(),
        _ => error.to_string(),
    }
}

/// A message that quotes a file: control characters would move the cursor or worse, and of a word as long as a book the
/// beginning says enough.
pub(crate) fn fit(message: &str) -> String {
    let mut fit = String::new();
    let mut length = 0;
    for c in message.chars() {
        length = if c.is_whitespace() { 0 } else { length + 1 };
        match c {
            '\n' => fit.push(c),
            _ if length == WORD => fit.push('…'),
            _ if length > WORD => {}
            _ if c.is_control() => fit.extend(c.escape_debug()),
            _ => fit.push(c),
        }
    }
    fit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_and_what_is_no_text_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(bytes(Path::new("/dev/zero")).unwrap_err().contains("larger than 16 MiB"));
        assert_eq!(bytes(folder.path()).unwrap_err(), "it is a directory");
        assert_eq!(bytes(&folder.path().join("none")).unwrap_err(), "No such file");
        let file = folder.path().join("file");
        std::fs::write(&file, b"one\ntw\xff\n").unwrap();
        assert_eq!(text(&file).unwrap_err(), "line 2 is not UTF-8 text");
        assert_eq!(bytes(&file).unwrap().len(), 8);
    }

    #[test]
    fn a_message_is_safe_for_a_terminal_and_short() {
        assert_eq!(fit("a\u{1b}[31m\0b"), "a\\u{1b}[31m\\0b");
        let long = fit(&format!("`{}` is wrong", "x".repeat(100_000)));
        assert!(long.chars().count() < 100 && long.ends_with("… is wrong"), "{long}");
    }
}
