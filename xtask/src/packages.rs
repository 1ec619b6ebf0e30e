//! The system packages we need: one table, with each package's name on each family of systems.

use crate::system::Family;

/// One thing that must be installed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Package {
    pub(crate) debian: &'static str,
    fedora: &'static str,
    arch: &'static str,
    suse: &'static str,
    pub(crate) why: &'static str,
}

#[rustfmt::skip]
pub(crate) const PACKAGES: &[Package] = &[
    Package { debian: "cmake", fedora: "cmake", arch: "cmake", suse: "cmake", why: "builds the C parts of crates" },
    Package { debian: "g++", fedora: "gcc-c++", arch: "gcc", suse: "gcc-c++", why: "CUDA headers, run on the host in tests" },
    Package { debian: "pkg-config", fedora: "pkgconf-pkg-config", arch: "pkgconf", suse: "pkg-config", why: "finds libraries" },
    Package { debian: "libclang-dev", fedora: "clang-devel", arch: "clang", suse: "clang-devel", why: "reads C headers (bindgen)" },
    Package { debian: "libssl-dev", fedora: "openssl-devel", arch: "openssl", suse: "libopenssl-devel", why: "cryptography of the SSH client" },
    Package { debian: "zlib1g-dev", fedora: "zlib-devel", arch: "zlib", suse: "zlib-devel", why: "compression of the SSH client" },
    Package { debian: "libhwloc-dev", fedora: "hwloc-devel", arch: "hwloc", suse: "hwloc-devel", why: "topology of a host" },
    Package { debian: "libudev-dev", fedora: "systemd-devel", arch: "systemd-libs", suse: "systemd-devel", why: "devices of a host, for hwloc" },
    Package { debian: "libibverbs-dev", fedora: "rdma-core-devel", arch: "rdma-core", suse: "rdma-core-devel", why: "RDMA definitions" },
    Package { debian: "openssh-client", fedora: "openssh-clients", arch: "openssh", suse: "openssh-clients", why: "ssh, ssh-keygen" },
    Package { debian: "openssh-server", fedora: "openssh-server", arch: "openssh", suse: "openssh-server", why: "sshd for the lab's hosts (its package also starts sshd on this machine)" },
    Package { debian: "iproute2", fedora: "iproute", arch: "iproute2", suse: "iproute2", why: "networks of the lab" },
    Package { debian: "ibverbs-utils", fedora: "libibverbs-utils", arch: "rdma-core", suse: "libibverbs-utils", why: "what RDMA devices say of themselves" },
    Package { debian: "perftest", fedora: "perftest", arch: "perftest", suse: "perftest", why: "RDMA latency and bandwidth, to compare with" },
    Package { debian: "qemu-system-x86", fedora: "qemu-system-x86-core", arch: "qemu-system-x86", suse: "qemu-x86", why: "machines with RDMA for the lab" },
    Package { debian: "libopenmpi-dev", fedora: "openmpi-devel", arch: "openmpi", suse: "openmpi4-devel", why: "cross-check against an MPI" },
    Package { debian: "openmpi-bin", fedora: "openmpi", arch: "openmpi", suse: "openmpi4", why: "mpirun, for the same" },
    Package { debian: "python3-venv", fedora: "python3", arch: "python", suse: "python3", why: "NVRTC, which compiles CUDA headers, comes as a Python package" },
];

/// What `cargo xtask peers setup` needs besides: other libraries to measure beside ours.
#[rustfmt::skip]
pub(crate) const PEER_PACKAGES: &[Package] = &[
    Package { debian: "libopenmpi-dev", fedora: "openmpi-devel", arch: "openmpi", suse: "openmpi4-devel", why: "Open MPI" },
    Package { debian: "openmpi-bin", fedora: "openmpi", arch: "openmpi", suse: "openmpi4", why: "its launcher" },
    Package { debian: "libmpich-dev", fedora: "mpich-devel", arch: "mpich", suse: "mpich-devel", why: "MPICH" },
    Package { debian: "mpich", fedora: "mpich", arch: "mpich", suse: "mpich", why: "its launcher" },
    Package { debian: "python3-venv", fedora: "python3", arch: "python", suse: "python3", why: "newer libraries come as Python packages" },
];

impl Package {
    fn name(&self, family: Family) -> &'static str {
        match family {
            Family::Debian | Family::Other => self.debian,
            Family::Fedora => self.fedora,
            Family::Arch => self.arch,
            Family::Suse => self.suse,
        }
    }
}

/// The command that installs some packages on a family of systems other than Debian's; `None` for an unknown system.
pub(crate) fn install_line(family: Family, packages: &[Package]) -> Option<String> {
    let installer = match family {
        Family::Debian | Family::Other => return None,
        Family::Fedora => "dnf install",
        Family::Arch => "pacman -S --needed",
        Family::Suse => "zypper install",
    };
    let mut names: Vec<&str> = packages.iter().map(|package| package.name(family)).collect();
    names.sort_unstable();
    names.dedup();
    Some(format!("sudo {installer} {}", names.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_has_several_jobs_is_installed_once() {
        let line = install_line(Family::Arch, PACKAGES).expect("Arch is known");
        assert_eq!(line.matches(" openssh").count(), 1, "{line}");
    }

    #[test]
    fn each_known_system_has_its_own_line() {
        assert!(install_line(Family::Fedora, PACKAGES).is_some_and(|line| line.starts_with("sudo dnf install ")));
        assert!(install_line(Family::Suse, PACKAGES).is_some_and(|line| line.contains(" libopenssl-devel")));
        assert!(install_line(Family::Other, PACKAGES).is_none());
    }
}
