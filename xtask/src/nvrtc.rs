//! NVRTC, NVIDIA's compiler for kernels at run time, as a Python package in an environment of its own: the tests of the
//! CUDA headers take it from there. It needs no GPU and no driver.

use crate::command::{Interrupts, line, target};
use crate::error::Result;
use crate::say::say;
use crate::system::quiet;
use std::process::Command;

/// The release with which the kernels in the repository were compiled.
const PACKAGE: &str = "nvidia-cuda-nvrtc-cu12==12.8.93";

/// Installs it where it is missing. A machine that cannot get it goes on without: what then is not tested says so.
pub(crate) fn install() -> Result<()> {
    let folder = target().join("nvrtc");
    // Written last, so that an installation that was cut off is begun again.
    let mark = folder.join(PACKAGE);
    if mark.is_file() {
        return Ok(());
    }
    if !quiet("python3", &["-m", "venv", "--help"]) {
        say!("setup: no python3 with venv: the CUDA headers will NOT be compiled in tests");
        return Ok(());
    }
    let interrupts = Interrupts::catch()?;
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", PACKAGE]);
    say!("setup: {}", line(&pip));
    let made = interrupts.status(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    if made.success() && interrupts.status(&mut pip)?.success() && std::fs::write(&mark, "").is_ok() {
        return Ok(());
    }
    say!("setup: {PACKAGE} could not be installed: the CUDA headers will NOT be compiled in tests");
    Ok(())
}
