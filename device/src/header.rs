//! The CUDA headers, as text that is part of this library: a program needs no path to them.

/// Their names, as `#include` writes them, and their texts, each after those that it includes.
pub const HEADERS: &[(&str, &str)] = &[
    ("spmd_types.cuh", include_str!("../include/spmd_types.cuh")),
    ("spmd_memory.cuh", include_str!("../include/spmd_memory.cuh")),
    ("spmd_errors.cuh", include_str!("../include/spmd_errors.cuh")),
    ("spmd_proxy.cuh", include_str!("../include/spmd_proxy.cuh")),
    ("spmd_mlx5.cuh", include_str!("../include/spmd_mlx5.cuh")),
    ("spmd_device.cuh", include_str!("../include/spmd_device.cuh")),
];

/// All of them in one text without `#include` lines, to put in front of a kernel's source.
#[must_use]
pub fn header() -> String {
    let is_kept = |line: &&str| !line.starts_with("#include \"spmd_") && !line.starts_with("#pragma once");
    HEADERS.iter().flat_map(|(_, text)| text.lines().filter(is_kept).flat_map(|line| [line, "\n"])).collect()
}
