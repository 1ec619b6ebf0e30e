//! Compiles the CUDA headers and the collectives' kernels for the host, as they are, with `tests/host/spmd_memory.cuh` in place of the one with the
//! instructions: what tests then run is the text that kernels are built from.

#![expect(unsafe_code, reason = "functions of a library made for a test")]

use std::{
    ffi::{CString, c_void},
    path::Path,
    process::{Command, Stdio},
};

/// A library of functions compiled from a test's C++.
#[derive(Debug)]
pub(crate) struct Compiled {
    handle: *mut c_void,
    _folder: tempfile::TempDir,
}

// SAFETY: a handle of the dynamic linker, which any thread may use.
unsafe impl Send for Compiled {}
// SAFETY: as above.
unsafe impl Sync for Compiled {}

/// Whether there is a C++ compiler; says so when there is none, because then nothing was tested.
fn has_compiler() -> bool {
    let found = Command::new("c++").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        eprintln!("no C++ compiler (cargo xtask setup): the headers were NOT run on the host");
    }
    found
}

fn write_headers(folder: &Path) {
    for (name, text) in crate::header::HEADERS {
        std::fs::write(folder.join(name), text).unwrap();
    }
    // In place of the instructions.
    std::fs::write(folder.join("spmd_memory.cuh"), include_str!("../tests/host/spmd_memory.cuh")).unwrap();
    std::fs::write(folder.join("collectives.cu"), include_str!("../kernels/collectives.cu")).unwrap();
}

fn compile(folder: &Path, text: &str, arguments: &[&str]) {
    let source = folder.join("test.cpp");
    std::fs::write(&source, text).unwrap();
    let output = Command::new("c++")
        .args([
            "-std=c++17",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-function",
            "-Wno-unknown-pragmas",
            "-I",
        ])
        .arg(folder)
        .arg(&source)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Compiles C++ that includes our headers; `None` without a compiler.
pub(crate) fn library(text: &str) -> Option<Compiled> {
    if !has_compiler() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    write_headers(folder.path());
    let library = folder.path().join("test.so");
    compile(folder.path(), text, &["-shared", "-fPIC", "-o", library.to_str().unwrap()]);
    let name = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: a NUL-terminated name of a library without initializers.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "the library that was just made cannot be loaded");
    Some(Compiled { handle, _folder: folder })
}

impl Compiled {
    /// A function of the library.
    ///
    /// # Safety
    /// `F` must be the type of a function pointer as the C++ declares it, and must not be called after `self` is gone.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &str) -> F {
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        let name = CString::new(name).unwrap();
        // SAFETY: a handle that is open, and a NUL-terminated name.
        let symbol = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!symbol.is_null(), "no function {name:?}");
        // SAFETY: of the same size, and of this type as promised.
        unsafe { std::mem::transmute_copy(&symbol) }
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        // SAFETY: opened once, and functions are not called any more, as promised.
        unsafe { libc::dlclose(self.handle) };
    }
}

/// Has the compiler compare expressions over a header's structures with what Rust has for them.
pub(crate) fn assert_equal(header: &str, expectations: &[(String, u64)]) {
    if !has_compiler() {
        return;
    }
    let mut text = format!("#include <cstddef>\n#include \"{header}\"\n");
    for (expression, value) in expectations {
        text += &format!("static_assert((unsigned long long)({expression}) == {value}ull, \"{expression}\");\n");
    }
    let folder = tempfile::tempdir().unwrap();
    write_headers(folder.path());
    compile(folder.path(), &text, &["-fsyntax-only"]);
}
