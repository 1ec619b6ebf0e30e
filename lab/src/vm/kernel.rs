//! A kernel with RDMA for the machines: Debian's own, downloaded and unpacked, never installed.
//!
//! What is needed of it (the image and a few modules) stays in a cache; the packages do not.

use super::archive::Archive;
use crate::folder::{path_text, remove_folder};
use crate::process;
use crate::{LabError, Result};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The modules that a machine loads; those they depend on are found. A name that is no module is built into the kernel.
/// Without the check sums `rdma link add` fails.
const MODULES: &[&str] = &[
    "crc32_generic",
    "crc32_pclmul",
    "crc32c_generic",
    "crc32c_intel",
    "ib_uverbs",
    "rdma_rxe",
    "rdma_ucm",
    "veth",
    "sch_netem",
    "sch_tbf",
    "9p",
    "9pnet_virtio",
    "virtio_pci",
    "virtio_net",
    "overlay",
];
/// The package whose dependency is the current kernel.
const NEWEST: &str = "linux-image-amd64";
/// Written last: a cache without it, or for other modules, is made anew.
const COMPLETE: &str = "complete";
/// The first program of a machine.
const INIT: &str = include_str!("../../vm/init.sh");

/// What a machine boots from.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    pub(super) initramfs: PathBuf,
}

/// The kernel from the cache, which is filled when it must be; the first file system is written to `folder`.
pub(super) fn prepare(cache: &Path, folder: &Path) -> Result<Kernel> {
    let contents = MODULES.join(" ");
    if fs::read_to_string(cache.join(COMPLETE)).is_ok_and(|text| text == contents) {
        return boot_files(cache, folder);
    }
    let parent = cache.parent().unwrap_or(cache);
    let work = parent.join(format!("kernel-{}", std::process::id()));
    remove_folder(&work)?;
    let filled = fill(&work).and_then(|()| {
        let path = work.join(COMPLETE);
        fs::write(&path, contents).map_err(LabError::file(path))?;
        remove_folder(cache)?;
        fs::rename(&work, cache).map_err(LabError::file(cache))
    });
    let cleaned = remove_folder(&work);
    filled.and(cleaned)?;
    boot_files(cache, folder)
}

/// Fills a cache: `vmlinuz`, `busybox`, and `modules/` with their order in front of their names.
fn fill(cache: &Path) -> Result<()> {
    let unpacked = cache.join("unpacked");
    fs::create_dir_all(&unpacked).map_err(LabError::file(&unpacked))?;
    let image = newest_image()?;
    for package in [image.as_str(), "busybox-static"] {
        process::run(Command::new("apt-get").args(["download", "-qq", package]).current_dir(cache), "")?;
        let file = find(cache, |name| name.starts_with(package) && name.ends_with(".deb"))?;
        process::output("dpkg-deb", &["-x", &path_text(&file), &path_text(&unpacked)])?;
        fs::remove_file(&file).map_err(LabError::file(&file))?;
    }
    let boot = unpacked.join("boot");
    let image = find(&boot, |name| name.starts_with("vmlinuz-"))?;
    fs::rename(&image, cache.join("vmlinuz")).map_err(LabError::file(image))?;
    let busybox = ["bin/busybox", "usr/bin/busybox"].map(|path| unpacked.join(path));
    let busybox = busybox.iter().find(|path| path.exists()).unwrap_or(&busybox[0]);
    fs::rename(busybox, cache.join("busybox")).map_err(LabError::file(busybox))?;
    let modules = cache.join("modules");
    fs::create_dir_all(&modules).map_err(LabError::file(&modules))?;
    let mut files = HashMap::new();
    for root in ["lib/modules", "usr/lib/modules"] {
        list_modules(&unpacked.join(root), &mut files)?;
    }
    let mut order = Vec::new();
    for module in MODULES {
        take(module, &files, &mut order)?;
    }
    for (index, (name, content)) in order.iter().enumerate() {
        let path = modules.join(format!("{index:03}-{name}.ko"));
        fs::write(&path, content).map_err(LabError::file(path))?;
    }
    remove_folder(&unpacked)
}

/// The name of the newest kernel's package.
fn newest_image() -> Result<String> {
    let find = || -> Option<String> {
        let text = process::output("apt-cache", &["depends", NEWEST]).ok()?;
        text.lines().find_map(|line| Some(line.trim().strip_prefix("Depends: ")?.to_owned()))
    };
    if let Some(image) = find() {
        return Ok(image);
    }
    if rustix::process::geteuid().is_root() {
        process::output("apt-get", &["update", "-qq"])?;
    }
    find().ok_or_else(|| LabError::Missing {
        what: format!("the package {NEWEST}"),
        way_out: "machines take their kernel from Debian; there, `sudo apt-get update` makes its packages known".into(),
    })
}

fn find(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).map_err(LabError::file(folder))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| wanted(&name.to_string_lossy()));
    let missing = || std::io::Error::other("the downloaded package does not hold what its name says");
    paths.find(named).ok_or_else(|| LabError::file(folder)(missing()))
}

/// Every module file below a folder by the module's name.
fn list_modules(folder: &Path, files: &mut HashMap<String, PathBuf>) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(LabError::file(folder))? {
        let entry = entry.map_err(LabError::file(folder))?;
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list_modules(&path, files)?;
        } else if let Some((name, "ko" | "ko.xz")) = entry.file_name().to_string_lossy().split_once('.') {
            files.insert(name.replace('-', "_"), path);
        }
    }
    Ok(())
}

/// Adds a module after those it depends on; nothing when the kernel holds it.
fn take(name: &str, files: &HashMap<String, PathBuf>, order: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let name = name.replace('-', "_");
    let Some(path) = files.get(&name).filter(|_| order.iter().all(|(taken, _)| *taken != name)) else { return Ok(()) };
    if path.extension().is_some_and(|extension| extension == "xz") {
        process::output("xz", &["-d", "-k", "-f", &path_text(path)])?;
    }
    let path = if path.extension().is_some_and(|extension| extension == "xz") {
        path.with_extension("")
    } else {
        path.clone()
    };
    let content = fs::read(&path).map_err(LabError::file(&path))?;
    for needed in depends(&content) {
        take(&needed, files, order)?;
    }
    order.push((name, content));
    Ok(())
}

/// The modules that a module says it depends on (the field `depends=` of its section `.modinfo`).
fn depends(module: &[u8]) -> Vec<String> {
    const FIELD: &[u8] = b"\0depends=";
    let Some(at) = module.windows(FIELD.len()).position(|window| window == FIELD) else { return Vec::new() };
    let list = module[at + FIELD.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(list).split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Writes the first file system: busybox, the modules, and the program that mounts everything else.
fn boot_files(cache: &Path, folder: &Path) -> Result<Kernel> {
    let read = |path: PathBuf| fs::read(&path).map_err(LabError::file(path));
    let mut archive = Archive::default();
    for name in ["bin", "dev", "modules", "proc", "sys", "host", "overlay", "new", "share"] {
        archive.folder(name);
    }
    archive.program("init", INIT.as_bytes());
    archive.program("bin/busybox", &read(cache.join("busybox"))?);
    for tool in ["sh", "cat", "chroot", "insmod", "mkdir", "mount", "sleep"] {
        archive.link(&format!("bin/{tool}"), "busybox");
    }
    for module in crate::folder::names(&cache.join("modules")) {
        archive.program(&format!("modules/{module}"), &read(cache.join("modules").join(&module))?);
    }
    let initramfs = folder.join("initramfs");
    fs::write(&initramfs, archive.finish()).map_err(LabError::file(&initramfs))?;
    Ok(Kernel { image: cache.join("vmlinuz"), initramfs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modules_dependencies_are_read_from_its_own_information() {
        assert_eq!(
            depends(b"\x7fELF...\0license=GPL\0depends=ib_core,udp_tunnel\0name=rdma_rxe\0"),
            ["ib_core", "udp_tunnel"]
        );
        assert_eq!(depends(b"\x7fELF...\0depends=\0name=veth\0"), Vec::<String>::new());
        assert_eq!(depends(b"no module"), Vec::<String>::new());
    }

    #[test]
    fn a_module_comes_after_what_it_needs_and_only_once() {
        let folder = std::env::temp_dir().join(format!("lab-modules-{}", std::process::id()));
        fs::create_dir_all(folder.join("net")).expect("a folder");
        for (name, needs) in [("a-x", "b,c"), ("b", "c"), ("c", ""), ("unused", "")] {
            fs::write(folder.join("net").join(format!("{name}.ko")), format!("\0depends={needs}\0")).expect("a file");
        }
        let mut files = HashMap::new();
        list_modules(&folder, &mut files).expect("it can be listed");
        let mut order = Vec::new();
        for name in ["a_x", "b", "built_in"] {
            take(name, &files, &mut order).expect("it can be read");
        }
        remove_folder(&folder).expect("it can be removed");
        assert_eq!(order.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["c", "b", "a_x"]);
    }
}
