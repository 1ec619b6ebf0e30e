//! How a program finds its launcher, and what it says when it finds something else. Each test starts this test program
//! again as a rank with a prepared environment.

use rustix::{
    fs::{MemfdFlags, memfd_create},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
};
use spmd::{
    World,
    bootstrap::{
        messages::{BOOT_FD_VARIABLE, BOOT_MAGIC, CONTROL_FD_VARIABLE, PROTOCOL, RANK_MAGIC},
        versioned_prefix,
    },
};
use std::{
    io::{Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::Command,
};

/// Not a test of its own: what the started program does.
#[test]
fn rank() {
    if std::env::var_os("SPMD_TEST_RANK").is_some() {
        match World::init() {
            Ok(world) => println!("joined a world of {}", world.size()),
            Err(error) => println!("refused: {error}"),
        }
        println!("again: {}", World::init().expect_err("a process joins once"));
    }
}

/// What a rank with these variables says.
fn said(variables: &[(&str, String)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "rank", "--nocapture"]).env("SPMD_TEST_RANK", "1").envs(variables.iter().cloned());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Starts a rank with this boot record; what it says and what it wrote on its control socket.
fn born_with(record: &[u8]) -> (String, Vec<u8>) {
    // Without CLOEXEC: inherited.
    let memfd = memfd_create(c"boot", MemfdFlags::empty()).unwrap();
    std::fs::File::from(memfd.try_clone().unwrap()).write_all(record).unwrap();
    let memfd_inherited = inheritable(&memfd);
    let (ours, theirs): (OwnedFd, OwnedFd) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).unwrap();
    let text =
        said(&[(BOOT_FD_VARIABLE, memfd_inherited.to_string()), (CONTROL_FD_VARIABLE, theirs.as_raw_fd().to_string())]);
    drop(theirs);
    let mut written = Vec::new();
    UnixStream::from(ours).read_to_end(&mut written).unwrap();
    (text, written)
}

fn inheritable(fd: &OwnedFd) -> i32 {
    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).unwrap();
    fd.as_raw_fd()
}

#[test]
fn without_a_launcher_a_program_is_alone_and_joins_once() {
    let text = said(&[]);
    assert!(text.contains("joined a world of 1"), "{text}");
    assert!(text.contains("again: World::init: this process has already joined a world"), "{text}");
}

#[test]
fn a_launcher_of_another_version_is_refused_with_both_versions_and_told_so() {
    let mut record = versioned_prefix(BOOT_MAGIC);
    record[8..12].copy_from_slice(&(PROTOCOL + 1).to_le_bytes());
    let (text, written) = born_with(&record);
    assert!(text.contains(&format!("protocol {},", PROTOCOL + 1)), "{text}");
    assert!(text.contains(&format!("and protocol {PROTOCOL}:")), "{text}");
    assert_eq!(written, versioned_prefix(RANK_MAGIC));
}

#[test]
fn a_boot_record_that_is_damaged_anywhere_is_refused() {
    let (text, _) = born_with(b"no record at all");
    assert!(text.contains("refused: World::init: the launcher's boot record is garbled"), "{text}");
    let (text, _) = born_with(&[&versioned_prefix(BOOT_MAGIC)[..], &[0xff; 40]].concat());
    assert!(text.contains("refused: World::init: the launcher's boot record:"), "{text}");
    let (text, _) = born_with(&versioned_prefix(BOOT_MAGIC));
    assert!(text.contains("refused: World::init: the launcher's boot record:"), "{text}");
}

#[test]
fn variables_without_their_descriptors_are_explained() {
    let text = said(&[(BOOT_FD_VARIABLE, "soon".into())]);
    assert!(text.contains("SPMD_BOOT_FD=soon is not a descriptor"), "{text}");
    let text = said(&[(BOOT_FD_VARIABLE, "199".into())]);
    assert!(text.contains("descriptor 199") && text.contains("unset SPMD_BOOT_FD"), "{text}");
    let text = said(&[(BOOT_FD_VARIABLE, "1".into())]);
    assert!(text.contains("standard stream"), "{text}");
}

#[test]
fn a_program_that_another_launcher_started_says_so_instead_of_running_n_times_alone() {
    for variable in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"] {
        let text = said(&[(variable, "4".into())]);
        assert!(text.contains(&format!("{variable}=4")) && text.contains("rsrun -n 4"), "{text}");
        let text = said(&[(variable, "1".into())]);
        assert!(text.contains("joined a world of 1"), "{text}");
    }
}
