//! `cargo xtask device FOLDER`: everything that a machine with GPUs needs to run the checks and measurements of the device
//! side, in one folder, so that nothing has to be built or installed there.

use crate::command::{Interrupts, cargo, root, target};
use crate::error::{Result, XtaskError};
use crate::say::say;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What ranks run.
const EXAMPLES: &[(&str, &[&str])] =
    &[("spmd-device", &["gpu_check", "gpu_bench", "gpu_nic"]), ("spmd-examples", &["device_put", "train_device"])];

/// Builds and copies.
pub(crate) fn pack(folder: &Path) -> Result<()> {
    let interrupts = Interrupts::catch()?;
    interrupts.run(&mut cargo(&["build", "--release", "--quiet", "--package", "rsrun"]))?;
    let release = target().join("release");
    let lib = folder.join("lib");
    let copy = |from: &Path, to: &Path| {
        fs::copy(from, to).map(drop).map_err(|error| XtaskError::Usage(format!("copying {}: {error}", from.display())))
    };
    fs::create_dir_all(&lib).map_err(|error| XtaskError::Usage(format!("making {}: {error}", lib.display())))?;
    let launcher = release.join("rsrun");
    copy(&launcher, &folder.join("rsrun"))?;
    // The launcher's libraries, hwloc above all, which such a machine need not have. The C library is the machine's own.
    for library in libraries(&launcher) {
        let name = Path::new(&library).file_name().unwrap_or_default().to_owned();
        copy(Path::new(&library), &lib.join(name))?;
    }
    for (package, names) in EXAMPLES {
        for name in *names {
            interrupts.run(&mut cargo(&["build", "--release", "--quiet", "--package", package, "--example", name]))?;
            copy(&release.join("examples").join(name), &folder.join(name))?;
        }
    }
    let peers = folder.join("peers");
    fs::create_dir_all(&peers).map_err(|error| XtaskError::Usage(format!("making {}: {error}", peers.display())))?;
    for name in ["floors.cu", "nvshmem.cu", "nccl.py"] {
        copy(&root().join("device/peers").join(name), &peers.join(name))?;
    }
    copy(&root().join("device/run.sh"), &folder.join("run.sh"))?;
    // Without line tables: a fifth of the size.
    let programs = EXAMPLES.iter().flat_map(|(_, names)| *names).chain(&["rsrun"]);
    interrupts.run(Command::new("strip").arg("--strip-debug").args(programs.map(|name| folder.join(name))))?;
    say!("device: {0} is complete; on a machine with two GPUs: {0}/run.sh", folder.display());
    Ok(())
}

/// The shared libraries of a program that are not the C library's.
fn libraries(program: &Path) -> Vec<String> {
    let output = Command::new("ldd").arg(program).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().filter_map(library).map(str::to_owned).collect()
}

/// The path in a line of `ldd`.
fn library(line: &str) -> Option<&str> {
    const OF_LIBC: &[&str] = &["libc.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "ld-linux"];
    let (name, rest) = line.trim().split_once(" => ")?;
    (!OF_LIBC.iter().any(|own| name.starts_with(own))).then(|| rest.split(' ').next()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_stays_behind() {
        assert_eq!(
            library("\tlibhwloc.so.15 => /lib/x86_64-linux-gnu/libhwloc.so.15 (0x1)"),
            Some("/lib/x86_64-linux-gnu/libhwloc.so.15")
        );
        assert_eq!(library("\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x1)"), None);
        assert_eq!(library("\t/lib64/ld-linux-x86-64.so.2 (0x1)"), None);
    }
}
