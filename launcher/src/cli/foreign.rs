//! Options of other launchers that have an equivalent here.
//!
//! They are never accepted: an option of another launcher rarely means exactly the same. They only make the message
//! better, as settings of other libraries do in `spmd::config`.

const PLACE: &str = "ranks fill the slots of the hosts in their order: say how many each takes, with -host a:2,b:2 or \
                     slots=2 in the hostfile";
const BIND: &str = "ranks may use every core of their host: leave it out";
const ROOT: &str = "root needs no option: leave it out";
const HOSTFILE: &str = "here it is -hostfile FILE";
const HOST: &str = "here it is -host a:2,b:2";
const RANKS: &str = "here it is -n N";
const VARIABLE: &str = "here it is -x NAME=VALUE";
const PASS: &str = "ranks get this machine's variables on this machine; for other hosts pass each with -x NAME";
const TAG: &str = "here it is --tag";
const DIRECTORY: &str = "here it is -wdir DIR";
const LIMIT: &str = "here it is --timeout TIME";
const FILES: &str = "here it is --output-dir DIR";
const SAME_PATH: &str = "rsrun and the program are found on every host by the same path as here: leave it out";
const ALREADY: &str = "more ranks than slots are refused without --oversubscribe: leave it out";
const WHERE: &str = "to see where ranks run: rsrun --tag … hostname";

/// Names without dashes; most are Open MPI's, Hydra's or Slurm's.
const OPTIONS: &[(&str, &str)] = &[
    ("map-by", PLACE),
    ("rank-by", PLACE),
    ("rankfile", PLACE),
    ("rf", PLACE),
    ("byslot", PLACE),
    ("bynode", PLACE),
    ("npernode", PLACE),
    ("N", PLACE),
    ("ppn", PLACE),
    ("perhost", PLACE),
    ("ntasks-per-node", PLACE),
    ("distribution", PLACE),
    ("bind-to", BIND),
    ("bind-to-core", BIND),
    ("bind-to-socket", BIND),
    ("bind-to-none", BIND),
    ("cpu-bind", BIND),
    ("cpu-set", BIND),
    ("report-bindings", BIND),
    ("use-hwthread-cpus", BIND),
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
    ("display", WHERE),
    ("display-map", WHERE),
    ("display-allocation", WHERE),
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
