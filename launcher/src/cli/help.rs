//! The texts of `--help`.

/// What rsrun is.
pub(super) const ABOUT: &str = "Starts a program as many ranks on one or several hosts, and ends when they end.";

/// Headings of the groups of options.
pub(super) const PROGRAMS: &str = "Each program (also after a `:`)";
/// Where ranks run.
pub(super) const HOSTS: &str = "Hosts";
/// What is printed.
pub(super) const OUTPUT: &str = "Output";
/// How long, and when not.
pub(super) const LIFE: &str = "Life and death";

/// How it is called.
pub(super) const USAGE: &str = "rsrun [OPTIONS] PROGRAM [ARGUMENTS]... [: [OPTIONS] PROGRAM [ARGUMENTS]...]...\n       rsrun [OPTIONS] --app FILE\n       rsrun config [--json] [--changed] [--set KEY=VALUE]... [KEY|GROUP]...\n       rsrun topo [-n N] [--topology FILE.xml] [--svg FILE]\n       rsrun simulate --ranks N --group K [OPTIONS]\n       rsrun completions bash|zsh|fish\n       rsrun man";

/// What `rsrun config` is.
pub(super) const CONFIG_ABOUT: &str = "Prints every configuration key: its value, where the value came from, and what it overrode. With KEYs: all about these.";

/// What `rsrun topo` is.
pub(super) const TOPO_ABOUT: &str =
    "Draws hosts: packages, NUMA domains, caches, cores, devices, and where ranks would sit.";

/// Examples.
const EXAMPLES: &str = r#"Options stop at the first word that is none: everything from PROGRAM on belongs to the program.
Long options may be written with one dash: -np 4, -hostfile hosts, -wdir /tmp.

Examples:
  rsrun -n 4 ./app                         4 ranks on this machine
  rsrun -n 96 -hostfile hosts ./app in.dat 96 ranks on the hosts in the file `hosts`
  rsrun -host a:2,b:2 hostname             2 ranks on a and 2 on b
  rsrun -x OMP_NUM_THREADS=1 -n 8 ./app    with a variable set for every rank
  rsrun -ppn 2 -hostfile hosts ./app       2 ranks on each host
  rsrun --map-by ppr:1:numa ./app          one rank on each NUMA domain
  rsrun topo -n 4 --svg host.svg           a picture of this machine with 4 ranks on it
  rsrun --set transport.allow=tcp -n 2 ./app
  rsrun -n 1 ./master : -n 4 ./worker      two programs in one world: rank 0, and ranks 1 to 4
  rsrun --app job.toml                     the same from a file
  rsrun -n 8 --wrap 'perf record -o perf.%r' --wrap-ranks 0,4-7 ./app
  rsrun --stdin none --tag -n 4 ./app      nobody reads the input; every line says whose it is
  rsrun --timeout 10min -n 4 ./app         at the end of the time, and on ^\: where every rank is
  rsrun --explain --stats -n 4 ./app       which way messages take and why; how many took it
  rsrun --trace app.trace.json -n 4 ./app  what every rank did when, for ui.perfetto.dev
  rsrun simulate --ranks 4096 --group 8    which algorithm and grouping would be best on a network
  rsrun config --changed                   which settings are not at their default, and who set them

Hostfile, one host a line (# begins a comment):
  n1 slots=4 group=rack1    4 ranks at most; rack or switch for later placement
  n2:4                      the same in short: after a host the number is its slots
  ann@n3:2222 slots=4       after user@host the number is the SSH port
  n[04-07] slots=2          n04 n05 n06 n07
  [fe80::1%eth0]:2          IPv6 addresses stand in brackets
  n8 identity=key known_hosts=file   instead of what the SSH configuration says; relative to the hostfile
Without slots a host takes as many ranks as it has cores that may be used there.

Job file, in TOML, one table a program (only `program` must be there; with several programs also `ranks`):
  [[app]]
  ranks = 2
  program = "./solver"
  arguments = ["-i", "in.dat"]
  directory = "/data"
  environment = { OMP_NUM_THREADS = "4" }
  wrap = "perf record -o perf.%r"
  wrap_ranks = "0"

Hosts are reached by SSH without any question asked: keys in ssh-agent or in files, host keys in known_hosts.
rsrun must be installed there at the same path as here.

Exit codes:
"#;

/// Examples and exit codes.
pub(super) fn after() -> String {
    let mut text = EXAMPLES.to_string();
    for (code, meaning) in crate::exit::TABLE {
        text.push_str(&format!("  {code:<8} {meaning}\n"));
    }
    text + "A line on standard error says which it was: `rsrun: ...`; wrong lines of a file follow it"
}
