//! What is checked before anything is started.
//!
//! Pure: what is found out comes as arguments.

use crate::exit::{ExitCode, Failure};

/// Descriptors that the connection to one host needs: three pipes, one to wake its thread, one to wait for its end.
const PER_HOST: u64 = 5;
/// Descriptors that the launcher needs besides.
const OWN: u64 = 24;

/// Whether this many connections may be open at once. `limit`: how many files may be open, after it was raised.
///
/// # Errors
/// What is needed and what is there.
pub(super) fn open_files(hosts: usize, limit: Option<u64>) -> Result<(), Failure> {
    let need = PER_HOST * hosts as u64 + OWN;
    match limit.filter(|limit| *limit < need) {
        None => Ok(()),
        Some(limit) => Err(Failure::new(
            ExitCode::Internal,
            format!(
                "{hosts} hosts need {need} open files here ({PER_HOST} for each and {OWN} more), and the hard limit is \
                 {limit}: raise it (ulimit -Hn)"
            ),
        )),
    }
}

/// Refuses to be one of several launchers that `srun rsrun …` started: each would start the whole job.
///
/// # Errors
/// Which task this is, and the way out.
pub(super) fn not_a_task_of_many(variable: impl Fn(&str) -> Option<String>) -> Result<(), Failure> {
    let number = |name: &str| variable(name).and_then(|text| text.parse::<u32>().ok());
    match number("SLURM_STEP_NUM_TASKS") {
        Some(tasks) if tasks > 1 => {
            let task = number("SLURM_PROCID").unwrap_or(0);
            let message = format!(
                "rsrun was started by srun as task {task} of {tasks}, and each of them would start the whole job: start it \
                 once, in the batch script or with srun -n 1"
            );
            Err(Failure::new(ExitCode::Usage, message))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_cannot_all_be_open_are_refused_with_the_numbers() {
        assert!(open_files(1000, Some(5024)).is_ok() && open_files(1000, None).is_ok());
        let message = open_files(1000, Some(5023)).unwrap_err().message;
        for part in ["1000 hosts", "5024 open files", "5023"] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn one_task_is_a_launcher_and_one_of_many_is_not() {
        let with = |tasks: &'static str| move |name: &str| (name == "SLURM_STEP_NUM_TASKS").then(|| tasks.to_string());
        assert!(not_a_task_of_many(|_| None).is_ok());
        assert!(not_a_task_of_many(with("1")).is_ok());
        assert!(not_a_task_of_many(with("8")).unwrap_err().message.contains("of 8"));
    }
}
