//! Settings of other libraries that have an equivalent here.
//!
//! They are never accepted: a setting of another library rarely means exactly the same. They only make the message
//! better. Names are compared without the prefixes that their environment variables have.

use super::spec::KeySpec;

/// A setting of another library.
#[derive(Debug)]
pub(super) struct Foreign {
    /// Its name there, without prefix, in lower case.
    pub(super) name: &'static str,
    pub(super) library: &'static str,
    /// Our key.
    pub(super) equivalent: &'static str,
}

impl Foreign {
    /// The row of our key.
    pub(super) fn key(&self) -> &'static KeySpec {
        super::find(self.equivalent).expect("a test looks up every equivalent")
    }
}

const OPEN_MPI: &str = "Open MPI";
const PRRTE: &str = "PRRTE";
const MPICH: &str = "MPICH";
const HYDRA: &str = "Hydra";
const UCX: &str = "UCX";
const NCCL: &str = "NCCL";

const fn row(name: &'static str, library: &'static str, equivalent: &'static str) -> Foreign {
    Foreign { name, library, equivalent }
}

pub(super) const FOREIGN: &[Foreign] = &[
    row("btl", OPEN_MPI, "transport.allow"),
    row("btl_tcp_if_include", OPEN_MPI, "tcp.interfaces"),
    row("btl_tcp_sndbuf", OPEN_MPI, "tcp.buffer_bytes"),
    row("btl_tcp_rcvbuf", OPEN_MPI, "tcp.buffer_bytes"),
    row("btl_tcp_eager_limit", OPEN_MPI, "eager.limit"),
    row("btl_sm_eager_limit", OPEN_MPI, "eager.limit"),
    row("btl_vader_eager_limit", OPEN_MPI, "eager.limit"),
    row("mpi_yield_when_idle", OPEN_MPI, "wait.policy"),
    row("coll_tuned_allreduce_algorithm", OPEN_MPI, "collectives.all_reduce"),
    row("coll_tuned_bcast_algorithm", OPEN_MPI, "collectives.broadcast"),
    row("coll_tuned_reduce_algorithm", OPEN_MPI, "collectives.reduce"),
    row("coll_tuned_barrier_algorithm", OPEN_MPI, "collectives.barrier"),
    row("coll_tuned_gather_algorithm", OPEN_MPI, "collectives.gather"),
    row("coll_tuned_allgather_algorithm", OPEN_MPI, "collectives.all_gather"),
    row("coll_tuned_scatter_algorithm", OPEN_MPI, "collectives.scatter"),
    row("coll_tuned_alltoall_algorithm", OPEN_MPI, "collectives.all_to_all"),
    row("coll_tuned_reduce_scatter_block_algorithm", OPEN_MPI, "collectives.reduce_scatter"),
    row("coll_tuned_scan_algorithm", OPEN_MPI, "collectives.scan"),
    row("coll_tuned_exscan_algorithm", OPEN_MPI, "collectives.exscan"),
    row("plm_rsh_agent", OPEN_MPI, "launch.agent"),
    row("plm_rsh_num_concurrent", OPEN_MPI, "launch.window"),
    row("plm_ssh_agent", PRRTE, "launch.agent"),
    row("plm_ssh_num_concurrent", PRRTE, "launch.window"),
    row("odls_base_sigkill_timeout", PRRTE, "launch.grace"),
    row("allreduce_intra_algorithm", MPICH, "collectives.all_reduce"),
    row("bcast_intra_algorithm", MPICH, "collectives.broadcast"),
    row("reduce_intra_algorithm", MPICH, "collectives.reduce"),
    row("barrier_intra_algorithm", MPICH, "collectives.barrier"),
    row("gather_intra_algorithm", MPICH, "collectives.gather"),
    row("allgather_intra_algorithm", MPICH, "collectives.all_gather"),
    row("scatter_intra_algorithm", MPICH, "collectives.scatter"),
    row("alltoall_intra_algorithm", MPICH, "collectives.all_to_all"),
    row("reduce_scatter_block_intra_algorithm", MPICH, "collectives.reduce_scatter"),
    row("scan_intra_algorithm", MPICH, "collectives.scan"),
    row("exscan_intra_algorithm", MPICH, "collectives.exscan"),
    row("launcher_exec", HYDRA, "launch.agent"),
    row("tls", UCX, "transport.allow"),
    row("net_devices", UCX, "tcp.interfaces"),
    row("rndv_thresh", UCX, "eager.limit"),
    row("socket_ifname", NCCL, "tcp.interfaces"),
];

const PREFIXES: &[&str] = &["ompi_mca_", "prte_mca_", "mpir_cvar_", "hydra_", "ucx_", "nccl_"];

/// A variable by which another launcher or library is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignVariable {
    /// Whose it is.
    pub library: &'static str,
    /// Our key that means about the same, if there is one.
    pub key: Option<&'static str>,
}

/// Whether a variable configures another MPI, which means nothing here. Variables of UCX or NCCL are not asked for:
/// programs may use these libraries themselves.
pub fn foreign_variable(name: &str) -> Option<ForeignVariable> {
    const PREFIXES: &[(&str, &str)] = &[
        ("OMPI_MCA_", OPEN_MPI),
        ("PRTE_MCA_", PRRTE),
        ("PMIX_MCA_", PRRTE),
        ("MPIR_CVAR_", MPICH),
        ("HYDRA_", HYDRA),
        ("I_MPI_", "Intel MPI"),
    ];
    let (_, library) = PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix))?;
    Some(ForeignVariable { library, key: find(name).map(|foreign| foreign.equivalent) })
}

/// The setting of another library that has this name, with or without the prefix of its environment variable.
pub(super) fn find(name: &str) -> Option<&'static Foreign> {
    let name = name.to_ascii_lowercase();
    let bare = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(&name);
    FOREIGN.iter().find(|foreign| foreign.name == bare)
}
