//! `cargo xtask setup`: installs the system packages that are missing, or says how.

use crate::command::{Interrupts, line};
use crate::error::Result;
use crate::nvrtc;
use crate::packages::{PACKAGES, Package, install_line};
use crate::say::say;
use crate::system::{Family, Rights, for_administrator, quiet};
use std::process::{Command, Stdio};

const APT: &[&str] = &["-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0", "-qq"];

/// Installs what is missing. True when nothing is missing any more; false when rights or knowledge of this system lack,
/// which has been said, and the caller may go on with what is possible.
pub(crate) fn run() -> Result<bool> {
    let complete = install(PACKAGES)?;
    nvrtc::install()?;
    Ok(complete)
}

/// As [`run`], for these packages.
pub(crate) fn install(packages: &'static [Package]) -> Result<bool> {
    let family = Family::of_this_machine();
    if family != Family::Debian {
        print_for(family, packages);
        return Ok(false);
    }
    let missing = missing(packages)?;
    if missing.is_empty() {
        say!("setup: all {} packages are there, nothing to install", packages.len());
        return Ok(true);
    }
    say!("setup: missing on this machine:");
    for package in &missing {
        say!("    {:<16} {}", package.debian, package.why);
    }
    let install = install_arguments(&missing);
    let rights = Rights::of_caller();
    let (Some(mut command), Some(mut update)) =
        (rights.command("apt-get", &install), rights.command("apt-get", &apt(&["update"])))
    else {
        say!("setup: no rights to install them; an administrator can run:\n");
        say!("    {}\n", for_administrator("apt-get", &install));
        return Ok(false);
    };
    let interrupts = Interrupts::catch()?;
    say!("setup: {}", line(&command));
    let names: Vec<&str> = missing.iter().map(|package| package.debian).collect();
    // Package lists may be missing or name versions that are gone; then an update helps.
    let known = quiet("apt-get", &[&["install", "--simulate", "-q"][..], &names].concat());
    if !known || !interrupts.status(unattended(&mut command))?.success() {
        say!("setup: {}", line(&update));
        interrupts.run(unattended(&mut update))?;
        interrupts.run(unattended(&mut command))?;
    }
    say!("setup: installed {} packages", missing.len());
    Ok(true)
}

fn missing(packages: &'static [Package]) -> Result<Vec<&'static Package>> {
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f", "${Package} ${db:Status-Abbrev}\\n"]);
    query.args(packages.iter().map(|package| package.debian)).stderr(Stdio::null());
    // It exits with 1 when it knows nothing of one of them, and still tells of the others.
    let output = query.output().map_err(|source| crate::error::XtaskError::Start { command: line(&query), source })?;
    let installed = installed(&String::from_utf8_lossy(&output.stdout));
    Ok(packages.iter().filter(|package| !installed.iter().any(|name| name == package.debian)).collect())
}

/// The packages that a `dpkg-query` listing shows as installed; one that was removed may still be listed.
fn installed(listing: &str) -> Vec<String> {
    let installed = |line: &str| {
        let (name, status) = line.split_once(' ')?;
        status.starts_with("ii").then(|| name.to_owned())
    };
    listing.lines().filter_map(installed).collect()
}

fn install_arguments(missing: &[&Package]) -> Vec<String> {
    let mut arguments = apt(&["install", "--yes", "--no-install-recommends"]);
    arguments.extend(missing.iter().map(|package| package.debian.to_owned()));
    arguments
}

fn apt(words: &[&str]) -> Vec<String> {
    APT.iter().chain(words).map(|word| (*word).to_owned()).collect()
}

fn unattended(command: &mut Command) -> &mut Command {
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null())
}

fn print_for(family: Family, packages: &[Package]) {
    match install_line(family, packages) {
        Some(line) => say!("setup: this is no Debian; if something is missing below, install:\n\n    {line}\n"),
        None => {
            say!("setup: this system's packages are not known here; it takes what Debian names:\n");
            for package in packages {
                say!("    {:<16} {}", package.debian, package.why);
            }
            say!("");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_package_that_dpkg_still_lists_is_not_installed() {
        assert_eq!(installed("cmake ii \nlibssl-dev rc \nopenssh-server un \niproute2 ii \n"), ["cmake", "iproute2"]);
    }
}
