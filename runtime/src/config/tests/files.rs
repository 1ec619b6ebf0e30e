use super::variable;
use crate::config::files::load;
use crate::config::{MAX_FILE_BYTES, system_file, user_file};
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory with `etc.toml`, and a user's home in it.
fn machine() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("home/.config/rsrun")).unwrap();
    root
}

fn home(root: &Path) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    vec![variable("HOME", root.join("home").to_str().unwrap())]
}

#[test]
fn the_system_file_is_in_etc() {
    assert_eq!(system_file(), PathBuf::from("/etc/rsrun/config.toml"));
}

#[test]
fn the_user_file_is_in_the_configuration_directory_or_in_the_home() {
    let file = |variables: &[(&str, &str)]| {
        user_file(&variables.iter().map(|(name, value)| variable(name, value)).collect::<Vec<_>>())
    };
    assert_eq!(file(&[]), None);
    assert_eq!(file(&[("HOME", "/home/u")]), Some("/home/u/.config/rsrun/config.toml".into()));
    assert_eq!(file(&[("HOME", "/home/u"), ("XDG_CONFIG_HOME", "/c")]), Some("/c/rsrun/config.toml".into()));
    assert_eq!(file(&[("HOME", "/home/u"), ("XDG_CONFIG_HOME", "")]), Some("/home/u/.config/rsrun/config.toml".into()));
    assert_eq!(file(&[("HOME", "relative")]), None);
}

#[test]
fn all_three_files_are_read_and_the_environment_is_kept() {
    let root = machine();
    let system = root.path().join("etc.toml");
    let user = root.path().join("home/.config/rsrun/config.toml");
    let job = root.path().join("job.toml");
    for (path, text) in [(&system, "# system"), (&user, "# user"), (&job, "# job")] {
        fs::write(path, text).unwrap();
    }
    let layers = load(&system, Some(&job), home(root.path())).unwrap();
    let layer = |layer: Option<crate::config::FileLayer>| layer.map(|layer| (layer.path, layer.text)).unwrap();
    assert_eq!(layer(layers.system), (system, "# system".into()));
    assert_eq!(layer(layers.user), (user, "# user".into()));
    assert_eq!(layer(layers.job), (job, "# job".into()));
    assert_eq!(layers.environment, home(root.path()));
}

#[test]
fn a_missing_system_or_user_file_is_fine() {
    let root = machine();
    let layers = load(&root.path().join("none/etc.toml"), None, home(root.path())).unwrap();
    assert_eq!((layers.system, layers.user, layers.job), (None, None, None));
    // A file in the place of a directory of the path: the configuration file is missing as well.
    fs::remove_dir(root.path().join("home/.config/rsrun")).unwrap();
    fs::write(root.path().join("home/.config/rsrun"), "").unwrap();
    assert_eq!(load(&root.path().join("etc.toml"), None, home(root.path())).unwrap().user, None);
}

#[test]
fn a_missing_job_file_is_an_error() {
    let root = machine();
    let job = root.path().join("job.toml");
    let error = load(&root.path().join("etc.toml"), Some(&job), Vec::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot read the configuration file {}: No such file or directory (os error 2)", job.display())
    );
}

#[test]
fn every_file_that_cannot_be_read_is_named_with_the_reason_in_one_go() {
    let root = machine();
    let system = root.path().join("etc.toml");
    fs::create_dir(&system).unwrap();
    let user = root.path().join("home/.config/rsrun/config.toml");
    let _listener = UnixListener::bind(&user).unwrap();
    let job = root.path().join("job.toml");
    fs::write(&job, b"a = 1\nb = '\xff'\n").unwrap();
    let error = load(&system, Some(&job), home(root.path())).unwrap_err();
    let named = |path: &Path, reason: &str| format!("cannot read the configuration file {}: {reason}", path.display());
    assert_eq!(
        error.to_string().lines().collect::<Vec<_>>(),
        [
            named(&system, "it is a directory: name a TOML file"),
            named(&user, "it is no regular file: name a TOML file"),
            named(&job, "line 2 is not valid UTF-8"),
        ]
    );
}

#[test]
fn a_file_of_more_than_a_mebibyte_is_refused_and_one_of_exactly_that_size_is_not() {
    let root = machine();
    let job = root.path().join("job.toml");
    let system = root.path().join("etc.toml");
    let size = usize::try_from(MAX_FILE_BYTES).unwrap();
    fs::write(&job, "#".repeat(size)).unwrap();
    assert_eq!(load(&system, Some(&job), Vec::new()).unwrap().job.unwrap().text.len(), size);
    fs::write(&job, "#".repeat(size + 1)).unwrap();
    let error = load(&system, Some(&job), Vec::new()).unwrap_err().to_string();
    assert!(error.contains(job.to_str().unwrap()) && error.contains("larger than 1048576 bytes"), "{error}");
}
