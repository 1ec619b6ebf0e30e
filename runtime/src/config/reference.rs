//! The reference page of all keys, written from the key table.

use super::files::{MAX_FILE_BYTES, system_file};
use super::keys::TABLE;
use super::snapshot::quoted;
use super::spec::KeySpec;
use super::units;
use std::fmt::Write;

/// `docs/configuration.md`, as Markdown.
pub fn reference_page() -> String {
    let mut page = introduction();
    let mut section = "";
    for spec in TABLE {
        let own = spec.name.split('.').next().unwrap_or_default();
        if own != section {
            section = own;
            write!(page, "\n## {section}\n").expect("a String takes everything");
        }
        page.push_str(&key(spec));
    }
    page
}

fn introduction() -> String {
    format!(
        "\
<!-- Written from the key table in runtime/src/config/keys.rs. Change that one, then run
     UPDATE_DOCS=1 cargo test -p spmd --lib reference_page -->
# Configuration

`rsrun` reads the configuration once, on the machine where it is started, and gives every rank on every host the same
snapshot. Files and `RSRUN_…` variables on other hosts change nothing; they are named in a warning.
`rsrun config` shows every key with its value, where the value came from, and what it overrode.

A later layer overrides an earlier one:

1. the built-in default,
2. the system's file `{system}`,
3. the user's file `rsrun/config.toml` in `$XDG_CONFIG_HOME`, or else in `~/.config`,
4. the file of the job, `--config FILE`,
5. the environment of `rsrun`: `RSRUN_SHM_RING_BYTES` is the key `shm.ring_bytes`, and so on for every key,
6. the command line, `--set key=value` or `--mca key value`; the last one wins.

Files are TOML of at most {limit}. These two say the same:

```toml
shm.ring_bytes = \"128KiB\"
```

```toml
[shm]
ring_bytes = 131072
```

Sizes are bytes, or a number with `KiB`, `MiB` or `GiB` (also `k`, `m`, `g`, all powers of 1024; `KB` is refused because
it can mean two things). Times need a unit: `ns`, `us`, `ms`, `s`, `min` or `h`. Flags are `true` or `false`, `1` or `0`,
`yes` or `no`, `on` or `off`. Lists are words with commas between them, in a file also an array of strings.

An unknown key and a wrong value are errors, in any layer, even when a stronger layer overrides them. One layer cannot
give one key two different values under two names, except the command line, whose order counts.
",
        system = system_file().display(),
        limit = units::format_size(MAX_FILE_BYTES),
    )
}

fn key(spec: &KeySpec) -> String {
    let code = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "\n### `{}`\n\n{}\n\n- Default: `{}`\n- Allowed: {}\n- Environment: `{}`",
        spec.name,
        spec.doc.trim(),
        quoted(&spec.kind.default_value()),
        spec.kind.allowed(),
        spec.environment(),
    );
    if !spec.environment_aliases.is_empty() {
        text.push_str(&format!(", {}", code(spec.environment_aliases)));
    }
    if !spec.aliases.is_empty() {
        text.push_str(&format!("\n- Also understood in files, `--set` and `--mca`: {}", code(spec.aliases)));
    }
    text.push_str(&format!("\n- Read by: {}\n", spec.reader));
    text
}
