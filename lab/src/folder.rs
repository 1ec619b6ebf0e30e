//! A lab's folder: its name, its key files, its removal.

use crate::{LabError, Result, process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The labs under a folder: names, in order.
#[must_use]
pub fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Removes what is left of a lab that never came up: a folder without a state. True if there was one.
///
/// # Errors
/// The folder cannot be removed.
pub fn remove_remains(folder: &Path) -> Result<bool> {
    if !folder.exists() {
        return Ok(false);
    }
    remove_folder(folder)?;
    Ok(true)
}

pub(crate) fn name_of(folder: &Path) -> String {
    folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Makes a key pair that needs no passphrase: `path` and `path.pub`.
pub(crate) fn make_key(path: &Path, comment: &str) -> Result<()> {
    let text = path_text(path);
    process::output("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", &text])?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(LabError::file(path))
}

pub(crate) fn path_text(path: &Path) -> String {
    path.display().to_string()
}

pub(crate) fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(LabError::file(folder)(error)),
        _ => Ok(()),
    }
}
