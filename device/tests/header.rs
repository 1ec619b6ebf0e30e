//! The CUDA headers and kernels go through NVRTC as they are: for every architecture that is named, with the layouts that
//! Rust knows. `cargo xtask setup` installs NVRTC as a Python package; without it, and outside of CI, these tests say that
//! they were not run.

use spmd_device::{Nvrtc, context::LAYOUT, header::header};
use std::path::{Path, PathBuf};

/// Kernels that are compiled ahead: source, output, architecture, and the name and type of elements.
type Ahead = (&'static str, &'static str, &'static str, Option<(&'static str, &'static str)>);

const AHEAD: &[Ahead] = &[
    ("kernels/check.cu", "kernels/ptx/check.ptx", "compute_80", None),
    ("kernels/collectives.cu", "kernels/ptx/f16.ptx", "compute_80", Some(("f16", "f16_t"))),
    ("kernels/collectives.cu", "kernels/ptx/bf16.ptx", "compute_80", Some(("bf16", "bf16_t"))),
    ("kernels/collectives.cu", "kernels/ptx/f32.ptx", "compute_80", Some(("f32", "float"))),
    ("kernels/collectives.cu", "kernels/ptx/f64.ptx", "compute_80", Some(("f64", "double"))),
    ("kernels/collectives.cu", "kernels/ptx/i32.ptx", "compute_80", Some(("i32", "int"))),
    ("kernels/collectives.cu", "kernels/ptx/u32.ptx", "compute_80", Some(("u32", "u32"))),
    ("kernels/collectives.cu", "kernels/ptx/i64.ptx", "compute_80", Some(("i64", "long long"))),
    ("kernels/collectives.cu", "kernels/ptx/u64.ptx", "compute_80", Some(("u64", "u64"))),
    ("examples/gpu_check.cu", "examples/gpu_check.ptx", "compute_80", None),
    ("examples/gpu_bench.cu", "examples/gpu_bench.ptx", "compute_80", None),
    ("examples/gpu_bench.cu", "examples/gpu_bench_90.ptx", "compute_90", None),
    ("examples/gpu_nic.cu", "examples/gpu_nic.ptx", "compute_80", None),
    ("../examples/device_put.cu", "../examples/device_put.ptx", "compute_80", None),
    ("../examples/train_device.cu", "../examples/train_device.ptx", "compute_80", None),
];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// NVRTC from where `cargo xtask setup` puts it, else from the system.
fn nvrtc() -> Option<Nvrtc> {
    // The test's own program is in `target/debug/deps`.
    let target = std::env::current_exe().ok()?.ancestors().nth(3)?.to_owned();
    let libraries = std::fs::read_dir(target.join("nvrtc/lib")).into_iter().flatten().flatten();
    let packaged = libraries
        .map(|python| python.path().join("site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"))
        .find(|path| path.is_file());
    match Nvrtc::open(packaged.as_deref()) {
        Ok(nvrtc) => Some(nvrtc),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{error}");
            eprintln!("NOT RUN: {error} (`cargo xtask setup` installs it)");
            None
        }
    }
}

fn compile(nvrtc: &Nvrtc, source: &str, architecture: &str, defines: &[(&str, &str)]) -> Vec<u8> {
    nvrtc.compile(source, architecture, defines).unwrap_or_else(|error| panic!("{architecture}: {error}"))
}

#[test]
fn the_structures_have_the_same_size_and_offsets_on_both_sides() {
    let Some(nvrtc) = nvrtc() else { return };
    // NVRTC has no `offsetof`; this is what the front end behind it makes of one.
    let mut source = String::from("#include \"spmd_device.cuh\"\n#define AT(t, f) __INTADDR__(&(((t *)0)->f))\n");
    let mut count = 0;
    for (name, bytes, fields) in LAYOUT {
        source += &format!("static_assert(sizeof(spmd::{name}) == {bytes}, \"{name}\");\n");
        for (field, offset) in *fields {
            source += &format!("static_assert(AT(spmd::{name}, {field}) == {offset}, \"{name}::{field}\");\n");
            count += 1;
        }
    }
    assert!(count > 20, "the table is empty");
    compile(&nvrtc, &source, "compute_80", &[]);
    let wrong = source.replacen("version) == 0", "version) == 4", 1);
    let error = nvrtc.compile(&wrong, "compute_80", &[]).expect_err("another offset is refused");
    assert!(error.to_string().contains("context_t::version"), "{error}");
}

#[test]
fn the_header_compiles_for_every_architecture_from_volta_on_as_files_and_as_one_text() {
    let Some(nvrtc) = nvrtc() else { return };
    const KERNEL: &str = "
        extern \"C\" __global__ void all(spmd::context_t context, unsigned char *to, spmd::u64 *word, spmd::packet_t *slot) {
            using namespace spmd;
            put(context, to, word, 100, 1);
            put(context, to, word, 100, 1, spmd::warp);
            put_signal(context, to, word, 100, word, 1, SIGNAL_ADD, 1, spmd::block);
            get(context, to, word, 100, 1, spmd::warp);
            signal(context, word, 1, SIGNAL_SET, 0);
            signal_relaxed(context, word, 1, SIGNAL_SET, 0);
            wait_signal(context, word, NOT_EQUAL, 0, spmd::block);
            send_small(context, slot, to, 9, 16, 1, 1);
            receive_small(context, to, slot, 9, 16, 1, 1, spmd::warp);
            fence(context);
            quiet(context, spmd::block);
        }";
    for architecture in ["compute_70", "compute_80", "sm_80", "sm_90", "sm_100"] {
        compile(&nvrtc, &format!("#include \"spmd_device.cuh\"\n{KERNEL}"), architecture, &[]);
    }
    compile(&nvrtc, &format!("{}{KERNEL}", header()), "sm_90", &[]);
}

#[test]
fn an_error_in_a_kernel_names_its_line() {
    let Some(nvrtc) = nvrtc() else { return };
    let error = nvrtc.compile("#include \"spmd_device.cuh\"\n\nint x = nothing;\n", "sm_90", &[]).unwrap_err();
    assert!(error.to_string().contains("kernel.cu(3)"), "{error}");
}

#[test]
fn kernels_compiled_ahead_are_those_of_their_sources() {
    let Some(nvrtc) = nvrtc() else { return };
    let update = std::env::var_os("UPDATE_PTX").is_some();
    let mut stale = Vec::new();
    for (source, output, architecture, element) in AHEAD {
        let text = std::fs::read_to_string(here(source)).unwrap();
        let defines = element.map(|(name, kind)| [("SPMD_NAME", name), ("SPMD_TYPE", kind)]);
        let compiled = compile(&nvrtc, &text, architecture, defines.as_ref().map_or(&[], |defines| &defines[..]));
        let compiled = String::from_utf8(compiled).unwrap();
        let compiled = compiled.trim_end_matches('\0');
        if update {
            std::fs::write(here(output), compiled).unwrap();
        }
        let kept = std::fs::read_to_string(here(output)).unwrap_or_default();
        // Another release of NVRTC writes other text.
        let release = |text: &str| text.lines().find(|line| line.contains("release")).map(str::to_owned);
        if kept != compiled && (kept.is_empty() || release(&kept) == release(compiled)) {
            stale.push(*output);
        }
    }
    assert!(stale.is_empty(), "{stale:?}: UPDATE_PTX=1 cargo test -p spmd-device --test header");
}
