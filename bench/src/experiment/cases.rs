//! The ways to reduce that are measured against each other: of this project and of other libraries.

use super::record::Collective;

/// Who does it, and with which settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// This project: settings `collectives.NAME=VALUE`.
    Own(&'static [&'static str]),
    /// This project's compressed sum: of a hundredth of the entries, exact within hosts.
    TopK,
    /// Open MPI: options of `mpirun`.
    OpenMpi(&'static [&'static str]),
}

/// Which ranks take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// All of them.
    All,
    /// One of each host.
    OneAHost,
}

/// One way to do a collective.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name in the table.
    pub name: &'static str,
    /// What is done.
    pub collective: Collective,
    /// By whom.
    pub library: Library,
    /// By which ranks.
    pub ranks: Ranks,
    /// Above so many bytes it takes too long to wait for.
    pub up_to: usize,
    /// Whether the pipelined two-hop algorithm is held against it.
    pub baseline: bool,
}

const fn own(name: &'static str, collective: Collective, settings: &'static [&'static str]) -> Case {
    let library = Library::Own(settings);
    Case { name, collective, library, ranks: Ranks::All, up_to: usize::MAX, baseline: false }
}

const fn other(name: &'static str, collective: Collective, library: Library) -> Case {
    Case { name, collective, library, ranks: Ranks::All, up_to: 4 << 20, baseline: false }
}

const HAN: Library = Library::OpenMpi(&["--mca", "coll_han_priority", "100"]);

/// All of them, in the order of the table.
pub const CASES: &[Case] = &[
    Case { up_to: 4 << 20, baseline: true, ..own("flat, linear", Collective::Reduce, &["collectives.reduce=linear"]) },
    Case { baseline: true, ..own("flat, binomial", Collective::Reduce, &["collectives.reduce=binomial"]) },
    own(
        "two hops, one piece",
        Collective::Reduce,
        &["collectives.reduce=two_hop", "collectives.chunk_bytes=1073741824", "collectives.segment_bytes=1073741824"],
    ),
    own("two hops, pipelined", Collective::Reduce, &["collectives.reduce=two_hop_chain"]),
    Case { ranks: Ranks::OneAHost, ..own("between hosts alone", Collective::Reduce, &["collectives.reduce=chain"]) },
    own("two hops, in memory", Collective::Reduce, &["collectives.reduce=two_hop_shared"]),
    own("automatic choice", Collective::Reduce, &[]),
    other("Open MPI", Collective::Reduce, Library::OpenMpi(&[])),
    other("Open MPI, han", Collective::Reduce, HAN),
    Case {
        up_to: 4 << 20,
        baseline: true,
        ..own("flat, recursive doubling", Collective::AllReduce, &["collectives.all_reduce=recursive_doubling"])
    },
    own("flat, Rabenseifner", Collective::AllReduce, &["collectives.all_reduce=rabenseifner"]),
    own("flat, ring", Collective::AllReduce, &["collectives.all_reduce=ring"]),
    own(
        "two hops, one piece",
        Collective::AllReduce,
        &[
            "collectives.all_reduce=two_hop_ring",
            "collectives.chunk_bytes=1073741824",
            "collectives.segment_bytes=1073741824",
        ],
    ),
    own("two hops, pipelined", Collective::AllReduce, &["collectives.all_reduce=two_hop_ring"]),
    own(
        "two hops, pipelined, 2 leaders",
        Collective::AllReduce,
        &["collectives.all_reduce=two_hop_ring", "collectives.leaders=2"],
    ),
    Case {
        ranks: Ranks::OneAHost,
        ..own("between hosts alone", Collective::AllReduce, &["collectives.all_reduce=segmented_ring"])
    },
    other("two hops, top-k of 1 %", Collective::AllReduce, Library::TopK),
    own("two hops, in memory", Collective::AllReduce, &["collectives.all_reduce=two_hop_shared"]),
    own("automatic choice", Collective::AllReduce, &[]),
    other("Open MPI", Collective::AllReduce, Library::OpenMpi(&[])),
    other("Open MPI, han", Collective::AllReduce, HAN),
];

/// The word for [`Library::TopK`].
pub const TOP_K: &str = "all_reduce_top_k";

/// The name of the case that is held against the baselines.
pub const PIPELINED: &str = "two hops, pipelined";

impl Case {
    /// What tells it from all others: the collective and its name.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}: {}", self.collective.name(), self.name)
    }

    /// What its program is told to do.
    #[must_use]
    pub fn word(&self) -> &'static str {
        if self.library == Library::TopK { TOP_K } else { self.collective.name() }
    }

    /// Whether a round of a large size takes many times as long as of the others: everyone's data crosses one link.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.name == "flat, linear"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_title_of_its_own_and_every_collective_a_pipelined_one_and_baselines() {
        let mut titles: Vec<String> = CASES.iter().map(Case::title).collect();
        titles.sort();
        titles.dedup();
        assert_eq!(titles.len(), CASES.len());
        for collective in Collective::ALL {
            let of = || CASES.iter().filter(|case| case.collective == collective);
            assert!(of().any(|case| case.name == PIPELINED) && of().any(|case| case.baseline), "{collective:?}");
        }
    }

    #[test]
    fn the_settings_are_keys_of_the_configuration() {
        for case in CASES {
            let Library::Own(settings) = case.library else { continue };
            for setting in settings {
                let key = setting.split('=').next().unwrap_or_default();
                assert!(spmd::config::keys::TABLE.iter().any(|spec| spec.name == key), "{key}");
            }
        }
    }
}
