//! Why a task ended, and the exit code that says so.

use spmd_lab::LabError;

pub(crate) type Result<T> = std::result::Result<T, XtaskError>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum XtaskError {
    #[error("{0} (cargo xtask --help)")]
    Usage(String),
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error("cannot run `{command}`: {source}")]
    Start { command: String, source: std::io::Error },
    #[error("`{command}` failed ({status})")]
    Failed { command: String, status: std::process::ExitStatus },
    #[error("{what}; an administrator can run:\n\n    {command}\n")]
    NeedsRights { what: String, command: String },
    #[error("stopped by signal {0}")]
    Interrupted(i32),
    #[error("signals cannot be caught: {0}")]
    Signals(std::io::Error),
}

impl XtaskError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 64,
            Self::NeedsRights { .. } | Self::Lab(LabError::NoRights { .. }) => 77,
            Self::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(1),
            _ => 1,
        }
    }
}

impl From<lexopt::Error> for XtaskError {
    fn from(error: lexopt::Error) -> Self {
        Self::Usage(error.to_string())
    }
}
