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
                "{} need {need} open files here ({PER_HOST} for each and {OWN} more), and the hard limit is \
                 {limit}: raise it (ulimit -Hn)",
                crate::count(hosts, "host")
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

/// What users believe to matter and does not: settings of another MPI, and an allocation that nobody told us to use.
/// `named`: the user named hosts.
pub(super) fn notes(environment: &[(String, String)], named: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let value = |name: &str| environment.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
    let nodes = value("SLURM_JOB_NUM_NODES").and_then(|number| number.parse::<u32>().ok());
    if let (false, Some(nodes @ 2..)) = (named, nodes) {
        let list = value("SLURM_JOB_NODELIST").unwrap_or("LIST");
        notes.push(format!(
            "this Slurm job has {nodes} nodes, but without -host or -hostfile every rank runs on this one; to use all: \
             -host '{list}'"
        ));
    }
    let mut foreign: Vec<_> = environment
        .iter()
        .filter_map(|(name, _)| Some((name.as_str(), spmd::config::foreign_variable(name)?)))
        .collect();
    // Those that have an equivalent first.
    foreign.sort_by_key(|(name, variable)| (variable.key.is_none(), *name));
    if let Some((name, variable)) = foreign.first() {
        let more = match foreign.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more of its kind)"),
        };
        let here = match variable.key {
            Some(key) => format!("here it would be --set {key}=..."),
            None => "rsrun config lists what can be set".to_string(),
        };
        notes.push(format!("{name}{more} is a setting of {} and means nothing here; {here}", variable.library));
    }
    notes
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
    fn settings_of_another_mpi_and_an_allocation_that_is_not_used_are_noted_once() {
        let environment = |variables: &[(&str, &str)]| {
            variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect::<Vec<_>>()
        };
        let mpi = environment(&[("OMPI_MCA_pml", "ucx"), ("OMPI_MCA_btl_tcp_if_include", "eth0"), ("HYDRA_X", "1")]);
        let [note] = notes(&mpi, true).try_into().unwrap();
        assert!(
            note.starts_with("OMPI_MCA_btl_tcp_if_include (and 2 more of its kind) is a setting of Open MPI"),
            "{note}"
        );
        assert!(note.ends_with("--set tcp.interfaces=..."), "{note}");
        let slurm =
            environment(&[("SLURM_JOB_NUM_NODES", "4"), ("SLURM_JOB_NODELIST", "n[1-4]"), ("SLURM_NTASKS", "8")]);
        let [note] = notes(&slurm, false).try_into().unwrap();
        assert!(note.contains("4 nodes") && note.ends_with("-host 'n[1-4]'"), "{note}");
        assert!(notes(&slurm, true).is_empty());
        // Programs may use these libraries themselves; and one node is where the job runs anyway.
        let quiet = environment(&[("UCX_TLS", "rc"), ("NCCL_DEBUG", "INFO"), ("SLURM_JOB_NUM_NODES", "1")]);
        assert!(notes(&quiet, false).is_empty());
    }

    #[test]
    fn one_task_is_a_launcher_and_one_of_many_is_not() {
        let with = |tasks: &'static str| move |name: &str| (name == "SLURM_STEP_NUM_TASKS").then(|| tasks.to_string());
        assert!(not_a_task_of_many(|_| None).is_ok());
        assert!(not_a_task_of_many(with("1")).is_ok());
        assert!(not_a_task_of_many(with("8")).unwrap_err().message.contains("of 8"));
    }
}
