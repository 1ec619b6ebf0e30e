//! The texts of `--help`.

pub(crate) const ALL: &str = "\
cargo xtask: from a fresh clone to running ranks

    cargo xtask demo                8 ranks on 3 hosts learn to read digits; takes a few minutes the first time
    cargo xtask test                everything that is checked: style, tests, cross-checks, hosts that fail

    cargo xtask setup               only install what is missing (demo and test do it too)
    cargo xtask lab netns up 3      three hosts on this machine, to try things on
    cargo xtask lab netns status    which hosts there are, and how to start ranks on them
    cargo xtask lab netns down      take them down again, leaving no trace
    cargo xtask peers setup         other libraries, for rsbench to measure beside ours
    cargo xtask peers ends          how fast jobs end, next to other launchers
    cargo xtask device FOLDER       what checks and measures kernels that communicate, for a machine with GPUs
    cargo xtask experiment two-hop  reductions over 12 hosts with slow links, flat and in two hops
    cargo xtask experiment hint     RDMA on an emulated machine: hint, loss, slow-receiver, timeout, figures
    cargo xtask fuzz                decoders of what comes from outside, fed with anything (nightly)
    cargo xtask deny                licences and known defects of every crate we use

Each task explains itself: cargo xtask demo --help
";

pub(crate) const SETUP: &str = "\
cargo xtask setup: install the system packages that are missing

On Debian and its relatives the packages are installed with apt-get, as root or through a sudo that asks for no
password. Each is named with the reason. Without those rights the one command that an administrator would run is
printed. On other systems the packages' names there are printed. A second run installs nothing.
";

pub(crate) const DEMO: &str = "\
cargo xtask demo: train a classifier on 8 ranks over 3 hosts

  1. installs what is missing (cargo xtask setup)
  2. builds rsrun and the examples in release mode
  3. brings up three hosts: network namespaces joined by a bridge, each with its own sshd, keys and host name
  4. runs   rsrun -n 8 -hostfile lab/state/demo/hosts target/release/examples/train
     Each rank takes its share of 1,797 images of digits; gradients go through all_reduce; every epoch prints loss and
     accuracy on rows that no rank trained on.
  5. takes the hosts down, also after a failure or an interrupt

Making namespaces needs the rights of root (or sudo without a password). Without them the command that an administrator
would run once is printed, and the same program runs on this machine alone, over shared memory.
";

pub(crate) const TEST: &str = "\
cargo xtask test [STEP...]: run every check, or only the named steps

    --list    name the steps and what each runs

Installs what is missing first. A step that fails does not stop the others; a table at the end shows each step with its
time. Exit code 0: every step passed, or was left out for a reason that the table gives (no nightly toolchain, no
rights to make namespaces).
";

pub(crate) const DEVICE: &str = "\
cargo xtask device FOLDER: put together what a machine with two GPUs needs to check and measure the device side

Builds rsrun and the programs in release mode and copies them into FOLDER with the libraries of the launcher, the sources
of the peers and a script. Take the folder to the machine and start FOLDER/run.sh there; its programs need nothing but the
CUDA driver. The peers (NVSHMEM, NCCL) are measured where nvcc and PyTorch are installed.
";

pub(crate) const EXPERIMENT: &str = "\
cargo xtask experiment hint|loss|slow-receiver|timeout|figures [OPTION...]: RDMA on an emulated machine

  1. builds rsrun and the measuring program in release mode
  2. brings up a machine with two RDMA devices on one wire (docs/lab.md)
  3. measures there, everything in turn: low-latency size hints; a wire that loses packets, beside ib_write_bw; a receiver
     that computes; acknowledge time-outs; figures beside ib_write_lat and ib_write_bw
  4. writes docs/rdma/NAME.json, docs/rdma/NAME.svg and the tables of docs/rdma.md
  5. takes the machine down, also after a failure or an interrupt

Options go to the program: --turns 5, --effort 0.3 for a first look. Some minutes each; the machine should do nothing else.

cargo xtask experiment two-hop [OPTION...]: reductions over slow links, flat and in two hops

  1. builds rsrun and the measuring program in release mode
  2. brings up 12 hosts of 8 slots as namespaces; each link carries 100 Mbit/s with a queue of 100 packets (tc, tbf)
  3. measures what messages cost there, then reduce and all_reduce of 96 ranks: ours flat and in two hops, and Open MPI
     (default and coll/han) where it is installed (cargo xtask peers setup openmpi), all in turn
  4. prints the medians in ms, with how many times as long as the pipelined two-hop algorithm, and what the simulator says
     with the constants of this run; draws docs/two-hop.svg and keeps everything in docs/two-hop.json
  5. takes the hosts down, also after a failure or an interrupt

Options go to the program: target/release/two-hop --help has them; --quick, --turns 5, --sizes 64K,4M,
--only 'all_reduce: flat'. It takes about twenty minutes, with --quick about five, and the machine should do nothing
else. Needs the rights of root, or sudo without a password.
";

pub(crate) const FUZZ: &str = "\
cargo xtask fuzz [TARGET] [SECONDS]: feed the decoders with whatever libFuzzer thinks of

Targets: frames, hostfile, rankfile, job_file, configuration, rdma (fuzz/targets); all of them for 10 seconds each when nothing is said.
Needs a nightly toolchain and a C++ compiler. What was found interesting stays in fuzz/corpus, what failed in
fuzz/artifacts. No part of `cargo xtask test`, because building with the sanitizer takes minutes.
";

pub(crate) const DENY: &str = "\
cargo xtask deny: check licences and advisories of all crates (deny.toml)

Needs cargo-deny, which takes minutes to build (cargo install --locked cargo-deny), so that it is no part of
`cargo xtask test`. The list of advisories is fetched from the network; where that is impossible, licences, bans and
sources are still checked, and the output says that advisories were not.
";

pub(crate) const PEERS: &str = "\
cargo xtask peers setup [NAME...]: install other libraries and build rsbench-mpi against each

Names: openmpi, mpich (the distribution's), openmpi5, mpich5, intel (Python packages, each in an environment of its own);
all of them when nothing is said. Everything is put into target/peers. One that cannot be had does not stop the others.
`rsbench peers` says what is ready; `rsbench latency --peer all` measures.

cargo xtask peers ends: how long jobs take to end, next to MPICH's and Open MPI's launchers

    --runs N         runs of each, in turn; their median is printed (9)
    --ranks A,B      numbers of ranks (2,16)
    --hostfile FILE  rsrun alone, over these hosts in turn (whose processes must be visible here, as those of the lab are)

A rank gets SIGKILL, or the launcher SIGINT; the time counts until the launcher has exited and every process is gone.
";

pub(crate) const LAB: &str = "\
cargo xtask lab netns: hosts on this machine

    up N [--slots S] [--name NAME] [--user USER] [--mbit RATE [--queue PACKETS]]
              bring up N hosts (1 to 200). Each is a set of namespaces with its own network, host name, processes,
              /etc, /tmp, /dev/shm, HOME and sshd. Prints the hostfile and how to use it. A second `up` says what is up.
        S     ranks a host takes in the hostfile (32)
        NAME  the lab's folder in lab/state (netns): several labs can be up at once
        USER  who logs in to the hosts (the user who calls, also through sudo)
        RATE  megabits a second of each host's link, each way, with a queue of so many PACKETS (100); without it links
              are as fast as this machine
    status    the labs, their hosts, what runs there
    down [--name NAME]
              end everything that runs on the hosts and remove every trace

    rsrun -n 96 -hostfile lab/state/netns/hosts target/release/examples/train
    ssh -F lab/state/netns/ssh_config node1

Needs the rights of root (or sudo without a password).

cargo xtask lab vm: machines with RDMA on this machine, emulated

    up N [--name NAME]
              bring up N machines (1 to 16) with Debian's kernel and its software RDMA devices, joined by a network. One
              machine alone has two devices, joined by a wire of its own.
    run [--machine M] [--name NAME] 'COMMAND'
              run a command for the shell on machine M (1); its output and exit code are the command's
    status    the labs and their machines
    down [--name NAME]
              end the machines and remove every trace

    cargo xtask lab vm run 'ibv_devinfo'

Needs no rights. More: docs/lab.md
";
