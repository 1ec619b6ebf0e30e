//! Options of other launchers that have an equivalent here.
//!
//! They are never accepted: an option of another launcher rarely means exactly the same. They only make the message
//! better, as settings of other libraries do in `spmd::config`.

const RANKFILE: &str = "here it is --map-by rankfile:FILE";
const BY_SLOT: &str = "here it is --map-by slot";
const BY_NODE: &str = "here it is --map-by node";
const PER_NODE: &str = "here it is -ppn N";
const ORDER: &str = "here it is --map-by node or slot, and --rank-by";
const BIND: &str = "here it is --bind-to none, hwthread, core, l3, numa or package";
const CPU_SET: &str = "ranks stay inside the processors that rsrun was given: taskset -c 0-3 rsrun …";
const THREADS: &str = "here it is --bind-to hwthread";
const ROOT: &str = "root needs no option: leave it out";
const HOSTFILE: &str = "here it is -hostfile FILE";
const HOST: &str = "here it is -host a:2,b:2";
const RANKS: &str = "here it is -n N";
const VARIABLE: &str = "here it is -x NAME=VALUE";
const PASS: &str = "ranks get this machine's variables on this machine; for other hosts pass each with -x NAME";
const TAG: &str = "here it is --tag";
const DIRECTORY: &str = "here it is -wdir DIR";
const LIMIT: &str = "here it is --timeout TIME";
const FILES: &str = "redirect in a shell: rsrun -n 2 sh -c './app > out.$SPMD_RANK'";
const SAME_PATH: &str = "rsrun and the program are found on every host by the same path as here: leave it out";
const ALREADY: &str = "more ranks than slots are refused without --oversubscribe: leave it out";
const MAP: &str = "here it is --report map,bindings";
const ALLOCATION: &str = "here it is --report hosts";

/// Names without dashes; most are Open MPI's, Hydra's or Slurm's.
const OPTIONS: &[(&str, &str)] = &[
    ("rankfile", RANKFILE),
    ("rf", RANKFILE),
    ("byslot", BY_SLOT),
    ("bynode", BY_NODE),
    ("N", PER_NODE),
    ("perhost", PER_NODE),
    ("ntasks-per-node", PER_NODE),
    ("distribution", ORDER),
    ("bind-to-core", BIND),
    ("bind-to-socket", BIND),
    ("bind-to-none", BIND),
    ("cpu-bind", BIND),
    ("cpu-set", CPU_SET),
    ("use-hwthread-cpus", THREADS),
    ("allow-run-as-root", ROOT),
    ("default-hostfile", HOSTFILE),
    ("f", HOSTFILE),
    ("hosts", HOST),
    ("nodelist", HOST),
    ("w", HOST),
    ("ntasks", RANKS),
    ("genv", VARIABLE),
    ("env", VARIABLE),
    ("export", VARIABLE),
    ("genvlist", PASS),
    ("envlist", PASS),
    ("genvall", PASS),
    ("envall", PASS),
    ("l", TAG),
    ("label", TAG),
    ("prepend-rank", TAG),
    ("chdir", DIRECTORY),
    ("D", DIRECTORY),
    ("time", LIMIT),
    ("t", LIMIT),
    ("output", FILES),
    ("output-filename", FILES),
    ("outfile-pattern", FILES),
    ("prefix", SAME_PATH),
    ("nooversubscribe", ALREADY),
    ("no-oversubscribe", ALREADY),
    ("display", MAP),
    ("display-map", MAP),
    ("display-allocation", ALLOCATION),
];

/// What to do here instead of an option of another launcher, named without dashes and value.
pub(super) fn instead(name: &str) -> Option<&'static str> {
    OPTIONS.iter().find(|(known, _)| *known == name).map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn no_option_of_ours_is_taken_for_a_foreign_one() {
        for argument in super::super::Options::command().get_arguments() {
            let long = argument.get_long().map(str::to_string).into_iter();
            let short = argument.get_short().map(String::from).into_iter();
            let others = argument.get_all_aliases().unwrap_or_default().into_iter().map(str::to_string);
            for name in long.chain(short).chain(others) {
                assert_eq!(instead(&name), None, "{name}");
            }
        }
    }
}
