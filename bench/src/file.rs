//! Files that a program writes when it has measured for minutes: found out before whether that is possible.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A file that cannot be written; the program ends with [`CannotWrite::EXIT`].
#[derive(Debug, thiserror::Error)]
#[error("{}: it cannot be written: {source}", .path.display())]
pub struct CannotWrite {
    path: PathBuf,
    source: io::Error,
}

impl CannotWrite {
    /// `EX_CANTCREAT` of sysexits.h, as of `rsrun`.
    pub const EXIT: u8 = 73;
}

/// Whether a file can be written, if one is asked for. What is there stays as it is, and nothing is made.
///
/// # Errors
/// It cannot.
pub fn check<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> Result<(), CannotWrite> {
    paths
        .into_iter()
        .try_for_each(|path| can_be_written(path).map_err(|source| CannotWrite { path: path.clone(), source }))
}

fn can_be_written(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        // To open a pipe is to begin to write.
        Ok(there) if !there.is_file() && !there.is_dir() => Ok(()),
        Ok(_) => OpenOptions::new().write(true).open(path).map(drop),
        // A link to nowhere is one to a file that is to be made.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
            fs::remove_file(fs::canonicalize(path)?)
        }
        Err(error) => Err(error),
    }
}

/// Writes it.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, text: &str) -> Result<(), CannotWrite> {
    fs::write(path, text).map_err(|source| CannotWrite { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_out_without_a_trace() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        check([&file]).unwrap();
        assert!(!file.exists());
        write(&file, "old").unwrap();
        check([&file, &PathBuf::from("/dev/null")]).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        check([&link]).unwrap();
        assert_eq!((fs::read_dir(folder.path()).unwrap().count(), link.is_symlink()), (2, true));
        for wrong in [folder.path().to_owned(), folder.path().join("none/file"), file.join("below")] {
            let text = check([&file, &wrong]).unwrap_err().to_string();
            assert!(text.starts_with(&format!("{}: it cannot be written: ", wrong.display())), "{text}");
        }
    }
}
