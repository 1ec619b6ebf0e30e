//! One resolved configuration for the whole job.
//!
//! The launcher resolves every key once (default < system file < user file < job file < environment of the launcher <
//! command line) into a [`Snapshot`]; agents and ranks only read what they were given. Nothing here knows how the
//! snapshot travels.
//!
//! ```
//! use spmd::config::{CommandLineSetting, Layers, keys, resolve};
//!
//! let layers = Layers {
//!     command_line: vec![CommandLineSetting {
//!         option: "--set".into(),
//!         key: "shm.ring_bytes".into(),
//!         value: "128KiB".into(),
//!     }],
//!     ..Layers::default()
//! };
//! let snapshot = resolve(&layers)?;
//! assert_eq!(snapshot.get(keys::SHM_RING_BYTES), 128 << 10);
//! # Ok::<(), spmd::config::ConfigError>(())
//! ```

mod document;
mod error;
mod files;
mod foreign;
pub mod keys;
mod layers;
mod reference;
mod report;
mod snapshot;
mod spec;
#[cfg(test)]
mod tests;
mod units;

pub use error::{ConfigError, Place, Problem, Written};
pub use files::{MAX_FILE_BYTES, load_files, system_file, user_file};
pub use foreign::{ForeignVariable, foreign_variable};
pub use keys::{find, group, nearest};
pub use layers::{
    CommandLineSetting, ENVIRONMENT_PREFIX, FileLayer, Layers, is_configuration_variable, program_setting, resolve,
    unknown_key,
};
pub use reference::reference_page;
pub use report::{Filter, JsonEntry, JsonReport, JsonSource, JsonValue, Plain, describe, json, table};
pub use snapshot::{Difference, Entry, Snapshot, SnapshotError, Source, Value};
pub use spec::{Key, KeySpec, Kind, Setting, Words};
