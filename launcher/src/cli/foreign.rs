//! Options of other launchers and what they are called here: for the messages about unknown options, and for the table in
//! `docs/launcher.md`.
//!
//! One table, so that the two cannot disagree. Options that are spelt the same here are not in it.

/// An option of another launcher.
#[derive(Clone, Copy, Debug)]
pub(super) struct Foreign {
    /// Its spellings, without dashes.
    pub(super) names: &'static [&'static str],
    /// Whose it is.
    pub(super) from: &'static str,
    /// What to write here instead.
    pub(super) instead: &'static str,
}

const OMPI: &str = "Open MPI";
const MPICH: &str = "MPICH";
const SRUN: &str = "srun";

const fn foreign(names: &'static [&'static str], from: &'static str, instead: &'static str) -> Foreign {
    Foreign { names, from, instead }
}

/// All of them, launcher by launcher.
const TABLE: &[Foreign] = &[
    foreign(&["rankfile", "rf"], OMPI, "--map-by rankfile:FILE"),
    foreign(&["byslot"], OMPI, "--map-by slot"),
    foreign(&["bynode"], OMPI, "--map-by node"),
    foreign(&["bycore"], OMPI, "--map-by core"),
    foreign(&["ppr"], OMPI, "--map-by ppr:N:RESOURCE"),
    foreign(&["npersocket"], OMPI, "--map-by ppr:N:package"),
    foreign(&["pernode"], OMPI, "-ppn 1"),
    foreign(&["nolocal", "skip-launch-node"], "Open MPI, MPICH", "a hostfile without this host"),
    foreign(&["max-vm-size", "novm"], OMPI, "nothing: only hosts that get a rank are contacted"),
    foreign(&["cf", "cartofile", "topolib"], "Open MPI, MPICH", "nothing: hwloc describes each host"),
    foreign(&["N", "perhost", "ntasks-per-node"], "all", "-ppn N"),
    foreign(&["distribution", "m"], SRUN, "--map-by node or slot, and --rank-by"),
    foreign(
        &["bind-to-core", "bind-to-socket", "bind-to-none", "cpu-bind"],
        "Open MPI, srun",
        "--bind-to none, hwthread, core, l3, numa or package",
    ),
    foreign(
        &["cpu-set", "cpu-list"],
        OMPI,
        "taskset 'in front of rsrun': ranks stay inside the processors that it was given; or --map-by rankfile:FILE",
    ),
    foreign(&["membind"], MPICH, "nothing: memory comes from the NUMA domain of the rank's cores"),
    foreign(
        &["gpus-per-proc", "gpus-per-task", "gpus-per-node", "gpus", "gres"],
        "MPICH, srun",
        "--gpu-bind nearest, for one GPU each",
    ),
    foreign(&["use-hwthread-cpus"], OMPI, "--bind-to hwthread"),
    foreign(
        &["display", "display-map", "display-devel-map", "display-diffable-map"],
        OMPI,
        "--report map,bindings; for programs also --report-format json",
    ),
    foreign(&["display-allocation", "display-devel-allocation"], OMPI, "--report hosts"),
    foreign(&["display-topo"], OMPI, "--report hosts, or the command rsrun topo"),
    foreign(&["do-not-launch"], OMPI, "--dry-run"),
    foreign(&["nooversubscribe", "no-oversubscribe"], OMPI, "nothing: that is the default"),
    foreign(&["am", "tune"], OMPI, "--config FILE"),
    foreign(&["gmca", "pmixmca", "prtemca"], OMPI, "--mca KEY VALUE or --set KEY=VALUE"),
    foreign(
        &["prefix", "noprefix", "app-prefix"],
        OMPI,
        "nothing: rsrun is called by its own path on every host; install it at the same one",
    ),
    foreign(&["path"], OMPI, "-x PATH=..."),
    foreign(&["preload-binary", "preload-files", "s"], OMPI, "a copy by scp, or a file system that all hosts share"),
    foreign(&["personality"], OMPI, "nothing: there is one command line"),
    foreign(&["initial-hostfile", "default-hostfile"], OMPI, "-hostfile FILE"),
    foreign(
        &["debug", "debugger", "tv", "xterm", "gdb", "valgrind"],
        "Open MPI, MPICH",
        "--wrap 'gdb --args', --wrap 'xterm -e gdb --args' or --wrap valgrind, for some ranks with --wrap-ranks 0,4-7",
    ),
    foreign(
        &[
            "q",
            "quiet",
            "v",
            "verbose",
            "d",
            "debug-daemons",
            "debug-daemons-file",
            "debug-devel",
            "leave-session-attached",
            "profile",
        ],
        "Open MPI, MPICH",
        "--phases for times of the start; messages are few and cannot be silenced",
    ),
    foreign(
        &["output-filename", "outfile-pattern", "errfile-pattern", "output", "o", "error", "e"],
        "all",
        "--output-dir DIR",
    ),
    foreign(&["merge-stderr-to-stdout"], OMPI, "2>&1 'behind the command line'"),
    foreign(&["xml", "xml-file"], OMPI, "--report-format json and --status-file FILE"),
    foreign(&["show-progress"], OMPI, "nothing: a terminal shows it by itself; the times of a start: --phases"),
    foreign(&["enable-recovery", "continuous", "disable-auto-cleanup"], "Open MPI, MPICH", "--on-failure continue"),
    foreign(&["disable-recovery"], OMPI, "--on-failure abort, the default"),
    foreign(&["max-restarts"], OMPI, "nothing: a rank that failed is not started again; see --on-failure continue"),
    foreign(&["report-state-on-timeout"], OMPI, "nothing: --timeout says where every rank is"),
    foreign(&["get-stack-traces"], OMPI, "--timeout says where every rank is; stacks: gdb or eu-stack on the host"),
    foreign(
        &["output-proctable", "report-pid"],
        OMPI,
        "--status-file FILE, at the end; while it runs: SPMD_JOB in /proc",
    ),
    foreign(&["report-child-jobs-separately"], OMPI, "nothing: ranks start no further ranks"),
    foreign(
        &["dvm", "hnp", "report-uri", "report-events", "ompi-server", "nameserver"],
        "Open MPI, MPICH",
        "nothing: there are no daemons between jobs, and jobs do not connect to each other",
    ),
    foreign(
        &["set-cwd-to-session-dir"],
        OMPI,
        "-wdir DIR: there is no session directory, nothing of a job is in a file system",
    ),
    foreign(&["index-argv-by-rank"], OMPI, "nothing: a rank finds its number in SPMD_RANK"),
    foreign(&["f"], MPICH, "-hostfile FILE"),
    foreign(&["hosts"], MPICH, "-host a,b"),
    foreign(&["genv", "env"], MPICH, "-x NAME=VALUE"),
    foreign(
        &["genvlist", "envlist", "genvall", "envall", "genvnone", "envnone", "genvexcl", "export"],
        "MPICH, srun",
        "-x NAME for each variable; nothing else is passed on from here",
    ),
    foreign(&["l", "prepend-rank", "prepend-pattern", "label"], "MPICH, srun", "--tag and --timestamp"),
    foreign(&["configfile", "multi-prog"], "MPICH, srun", "--app FILE, or programs between `:`"),
    foreign(
        &["launcher", "bootstrap", "rsh", "plm_rsh_agent"],
        "MPICH, Open MPI",
        "--set launch.ssh=command, or --launch-agent COMMAND",
    ),
    foreign(&["launcher-exec", "bootstrap-exec"], MPICH, "--launch-agent COMMAND"),
    foreign(&["iface"], MPICH, "--set tcp.interfaces=NAME"),
    foreign(
        &[
            "do-not-resolve",
            "fwd-mpirun-port",
            "use-regexp",
            "enable-instant-on-support",
            "pmi-port",
            "demux",
            "localhost",
        ],
        "Open MPI, MPICH",
        "nothing: there is one way to start ranks, and it opens no port",
    ),
    foreign(&["enable-x", "disable-x"], MPICH, "ForwardX11 in the SSH configuration, with --set launch.ssh=command"),
    foreign(&["rmk", "resource-manager"], MPICH, "-hostfile FILE or -host LIST"),
    foreign(&["info"], MPICH, "--version"),
    foreign(&["print-all-exitcodes", "usize", "disable-hostname-propagation", "order-nodes"], MPICH, "nothing"),
    foreign(&["ntasks"], SRUN, "-n N"),
    foreign(&["cpus-per-task"], SRUN, "--cpus-per-rank N"),
    foreign(&["nodes", "w", "nodelist"], SRUN, "-host LIST"),
    foreign(&["exclude"], SRUN, "a hostfile without that host"),
    foreign(&["D", "chdir"], SRUN, "-wdir DIR"),
    foreign(&["O", "overcommit"], SRUN, "--oversubscribe"),
    foreign(&["input", "i"], SRUN, "--stdin RANK, all or none"),
    foreign(&["K", "kill-on-bad-exit"], SRUN, "nothing: that is the default"),
    foreign(&["t", "time"], SRUN, "--timeout TIME"),
    foreign(&["mpi"], SRUN, "nothing: ranks are started the same way everywhere"),
    foreign(&["u", "unbuffered"], SRUN, "nothing: output is shown line by line as it comes"),
    foreign(
        &["p", "partition", "A", "account", "J", "job-name", "qos", "exclusive", "mem"],
        SRUN,
        "nothing: ask Slurm for hosts by salloc or sbatch, and name them with -host LIST or -hostfile FILE",
    ),
];

/// Values of options that are spelt the same here but do not take them: option, values, what to write instead. What
/// stands behind a colon of a value is looked at only when the whole of it is not here.
const VALUES: &[(&str, &[&str], &str)] = &[
    ("bind-to", &["l1cache", "l2cache", "l1", "l2", "rr"], "--bind-to core"),
    ("bind-to", &["board", "machine", "node"], "--bind-to none or package"),
    ("bind-to", &["cpu-list", "user"], "--map-by rankfile:FILE"),
    (
        "bind-to",
        &["none", "hwthread", "core", "l3", "l3cache", "numa", "package", "socket"],
        "the word without what follows its colon; --cpus-per-rank N, and --oversubscribe for more ranks than cores",
    ),
    ("map-by", &["hwthread"], "--map-by core with --bind-to hwthread"),
    ("map-by", &["l1cache", "l2cache", "l1", "l2"], "--map-by core"),
    ("map-by", &["board"], "--map-by package or node"),
    ("map-by", &["seq", "pe-list"], "--map-by rankfile:FILE"),
    ("map-by", &["dist"], "--map-by device=nic"),
    (
        "rank-by",
        &["hwthread", "core", "l1cache", "l2cache", "l3cache", "socket", "numa", "board"],
        "--rank-by fill, or span to take one of each in turn",
    ),
];

/// What is said of a value that another launcher takes.
pub(super) fn value(option: &str, value: &str) -> Option<String> {
    let find = |word: &str| VALUES.iter().find(|(of, words, _)| *of == option && words.contains(&word));
    let lower = value.to_ascii_lowercase();
    let (_, _, instead) = find(&lower).or_else(|| find(lower.split(':').next()?))?;
    Some(format!("--{option} {value} is a way of other launchers to say it; here: {instead}"))
}

/// An option of another launcher, named without dashes and value.
pub(super) fn find(name: &str) -> Option<&'static Foreign> {
    TABLE.iter().find(|foreign| foreign.names.contains(&name))
}

impl Foreign {
    /// The message about it, `option` as written.
    pub(super) fn message(&self, option: &str) -> String {
        format!("{option} is an option of {}; here: {}", launchers(self.from), self.instead)
    }
}

fn launchers(from: &str) -> &str {
    if from == "all" { "other launchers" } else { from }
}

/// The table as Markdown.
#[cfg(test)]
fn markdown() -> String {
    let mut text = String::from("| option there | whose | here |\n|---|---|---|\n");
    for foreign in TABLE {
        let names: Vec<String> = foreign.names.iter().map(|name| format!("`-{name}`")).collect();
        text += &format!("| {} | {} | {} |\n", names.join(", "), launchers(foreign.from), foreign.instead);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{Options, words};
    use super::*;
    use clap::CommandFactory;
    use std::ffi::OsString;

    #[test]
    fn what_is_known_here_is_not_foreign_and_what_is_advised_exists() {
        let command = Options::command();
        let known = |name: &str| {
            command.get_arguments().any(|arg| {
                arg.get_long() == Some(name)
                    || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
                    || arg.get_short().is_some_and(|short| short.to_string() == name)
            }) || name == "version"
        };
        let advised = |advice: &str, other: &str| {
            for option in advice.split([' ', ',', ';']).filter(|word| word.starts_with('-')) {
                let name = option.trim_start_matches('-').trim_end_matches('\'');
                assert!(known(name), "{option} is advised for {other} and does not exist");
            }
        };
        for foreign in TABLE {
            for name in foreign.names {
                assert!(!known(name), "-{name} is an option here");
            }
            // What stands in quotes is a command's.
            let advice: String = foreign.instead.split('\'').step_by(2).collect();
            advised(&advice, foreign.names[0]);
        }
        for (option, values, instead) in VALUES {
            assert!(known(option));
            advised(instead, values[0]);
        }
    }

    /// Options without dashes as a launcher's own help lists them.
    const PEERS: [(&str, &str); 2] =
        [("Open MPI", include_str!("peers/openmpi-4.1.4.txt")), ("MPICH", include_str!("peers/mpich-4.0.txt"))];

    #[test]
    fn every_option_of_mpirun_is_taken_here_or_answered_with_what_to_write() {
        let command = Options::command();
        for (peer, list) in PEERS {
            let options: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
            assert!(options.len() > 40, "{peer}: {}", options.len());
            for option in options {
                // Spelt as people type it there: with one dash or two.
                for dashes in ["-", "--"].into_iter().take(option.len().min(2)) {
                    let word = format!("{dashes}{option}");
                    let line = [OsString::from(&word), "1".into(), "2".into(), "app".into()];
                    let said = match super::super::parse(line.to_vec()) {
                        Ok(_) => continue,
                        Err(failure) => failure.message,
                    };
                    let unknown = said.contains("unexpected argument") || said.contains("is not an option");
                    assert!(!unknown, "{word} of {peer} is neither taken nor answered: {said}");
                    let answered = find(option).is_some_and(|foreign| said.contains(foreign.instead));
                    let taken = words::split(&command, line.to_vec()).options.len() > 1;
                    assert!(answered || taken, "{word} of {peer}: {said}");
                }
            }
        }
    }

    #[test]
    fn every_value_that_mpirun_takes_for_these_options_is_taken_here_or_answered() {
        let places = ["hwthread", "core", "l1cache", "l2cache", "l3cache", "socket", "numa", "board"];
        let bind = ["none", "cpu-list", "core:overload-allowed", "socket:if-supported", "cpu-list:ordered"];
        // MPICH's.
        let mpich = ["rr", "user:0,1", "core:2", "machine"];
        let map = [
            "slot",
            "node",
            "ppr:2:socket",
            "ppr:1:node:pe=2",
            "seq",
            "dist:auto",
            "core:PE=2",
            "node:NOOVERSUBSCRIBE",
        ];
        let all = [
            ("--bind-to", [&places[..], &bind, &mpich].concat()),
            ("--map-by", [&places[..], &map].concat()),
            ("--rank-by", [&places[..], &["slot", "node"]].concat()),
        ];
        for (option, values) in all {
            for value in values {
                let line = [option, value, "app"].map(OsString::from);
                if let Err(failure) = super::super::parse(line.to_vec()) {
                    assert!(failure.message.contains("; here: "), "{option} {value}: {}", failure.message);
                }
            }
        }
    }

    #[test]
    fn no_option_is_in_the_table_twice() {
        let mut names: Vec<&str> = TABLE.iter().flat_map(|foreign| foreign.names).copied().collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    #[test]
    fn the_documentation_shows_the_table() {
        let page = include_str!("../../../docs/launcher.md");
        assert!(page.contains(&markdown()), "put this into docs/launcher.md:\n{}", markdown());
    }
}
