//! Steps that may fail on some ranks and must then fail on all: nobody waits for a rank that has given up.

use crate::error::{Error, Result};
use spmd::Communicator;
use spmd_collectives::Collectives;

/// Why a step is not done on any rank.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Whose step failed first, and why: the same text on all ranks.
    pub(crate) reason: String,
    /// Whether that was for want of the GPU's memory.
    pub(crate) wants_memory: bool,
    /// What this rank's own step failed with.
    own: Option<Error>,
}

impl Refused {
    /// This rank's own error, else what `others` makes of the reason.
    pub(crate) fn error(self, others: impl FnOnce(String) -> Error) -> Error {
        self.own.unwrap_or_else(|| others(self.reason))
    }
}

/// Whether a step worked on all ranks; else whose failed first, and why. Collective.
pub(crate) fn agree<T>(communicator: &Communicator, step: Result<T>) -> Result<std::result::Result<T, Refused>> {
    // The kind of error as one byte, then its text.
    let said = |error: &Error| format!("{}{error}", if matches!(error, Error::Memory { .. }) { 'm' } else { 'o' });
    let text = step.as_ref().err().map(said).unwrap_or_default();
    let (texts, lengths) = communicator.all_gather_v(text.as_bytes())?;
    let Some(rank) = lengths.iter().position(|length| *length > 0) else {
        return Ok(Ok(step?));
    };
    // Those before it have none.
    let text = String::from_utf8_lossy(&texts[1..lengths[rank]]);
    let reason = format!("rank {}: {text}", communicator.world_rank(rank));
    Ok(Err(Refused { reason, wants_memory: texts[0] == b'm', own: step.err() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ranks_learn_whose_step_failed_first_and_why_and_keep_their_own_error() {
        spmd::local::run(4, |world| {
            let comm = world.communicator();
            let step = if comm.rank() >= 2 { Err(Error::NoDriver) } else { Ok(comm.rank()) };
            let refused = agree(&comm, step).unwrap().unwrap_err();
            assert!(!refused.wants_memory);
            assert!(refused.reason.starts_with("rank 2: no device"), "{}", refused.reason);
            let error = refused.error(|reason| Error::Way { way: "mapped".into(), reason });
            assert_eq!(matches!(error, Error::NoDriver), comm.rank() >= 2, "{error}");
            let full = Error::Memory { what: "a test", wanted: 1000, free: 10, total: 500 };
            let refused = agree(&comm, if comm.rank() == 1 { Err(full) } else { Ok(()) }).unwrap().unwrap_err();
            assert!(refused.wants_memory, "all ranks know");
            assert_eq!(
                refused.reason,
                "rank 1: a test: 1000 bytes of the GPU's memory are wanted, 10 of its 500 are free"
            );
            assert_eq!(agree(&comm, Ok(7)).unwrap().unwrap(), 7);
        });
    }
}
