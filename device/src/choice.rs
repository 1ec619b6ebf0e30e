//! Where a device's heap lies and which way leads to its peers: the decision, and the reasons.
//!
//! Pure: facts in, a choice out. `Device` finds the facts and carries the choice out.

use crate::context::Way;
use spmd::bootstrap::node::cpu_list;
use std::fmt;

/// What `device.way` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Auto,
    Exactly(Way),
}

impl Asked {
    /// The value of the key.
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "mapped" => Asked::Exactly(Way::Mapped),
            "proxy" => Asked::Exactly(Way::Proxy),
            "mlx5" => Asked::Exactly(Way::Mlx5),
            _ => Asked::Auto,
        }
    }
}

/// What was found out, the same on every rank.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) asked: Asked,
    pub(crate) ranks: usize,
    pub(crate) hosts: usize,
    /// Whether every rank maps every other's memory; none: it was not tried.
    pub(crate) mapped: Option<Result<(), String>>,
    /// Whether there is a NIC whose doorbell a GPU can ring.
    pub(crate) mlx5: Result<(), String>,
}

/// Which way leads from a device to its peers, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// The way to every other rank.
    pub way: Way,
    /// Why this one.
    pub why: String,
    /// The others, and why not.
    pub refused: Vec<(Way, String)>,
    /// What was asked for and is not done.
    pub warning: Option<String>,
}

/// The choice, or why what was asked for is impossible.
pub(crate) fn choose(facts: &Facts) -> Result<Choice, String> {
    let Facts { asked, ranks, hosts, mapped, mlx5 } = facts;
    let hosts_apart = || format!("the {ranks} ranks are on {hosts} hosts");
    let not_mapped = match mapped {
        Some(Ok(())) => None,
        Some(Err(reason)) => Some(reason.clone()),
        None if *hosts > 1 => Some(hosts_apart()),
        None => Some("not asked for".into()),
    };
    let not_mlx5 = match mlx5 {
        Ok(()) => "has not run on hardware yet: only when asked for (device.way=mlx5)".to_string(),
        Err(reason) => reason.clone(),
    };
    let (mut refused, mut warning) = (Vec::new(), None);
    let (way, why) = match asked {
        Asked::Exactly(Way::Mapped) => match not_mapped {
            None => (Way::Mapped, "asked for (device.way=mapped)".to_string()),
            Some(reason) => return Err(reason),
        },
        Asked::Exactly(Way::Mlx5) => match mlx5 {
            Ok(()) => (Way::Mlx5, "asked for (device.way=mlx5); not run on hardware yet".to_string()),
            Err(reason) => {
                warning = Some(format!("device.way=mlx5 is not possible, the proxy takes its place: {reason}"));
                (Way::Proxy, "in place of mlx5".to_string())
            }
        },
        Asked::Exactly(_) => (Way::Proxy, "asked for (device.way=proxy)".to_string()),
        Asked::Auto => match &not_mapped {
            None => (Way::Mapped, "every rank maps every other's memory, and what is stored there arrives".to_string()),
            Some(_) => (Way::Proxy, "reaches every rank".to_string()),
        },
    };
    if way != Way::Mapped {
        let reason = match (mapped, hosts) {
            (None, 2..) => hosts_apart(),
            (Some(Err(reason)), _) => reason.clone(),
            _ => "not asked for".into(),
        };
        refused.push((Way::Mapped, reason));
    }
    if way != Way::Mlx5 {
        refused.push((Way::Mlx5, not_mlx5));
    }
    if way == Way::Mapped {
        refused.push((Way::Proxy, "slower than stores".into()));
    }
    Ok(Choice { way, why, refused, warning })
}

/// How a device reaches its peers, for people; `Display` gives it as text.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The rank in the world.
    pub rank: usize,
    /// How many ranks there are.
    pub size: usize,
    /// The GPU's name.
    pub gpu: String,
    /// Why this GPU.
    pub gpu_why: String,
    /// Bytes of the heap, and what memory that is.
    pub heap: String,
    /// The way to the other ranks.
    pub choice: Choice,
    /// How its collectives go.
    pub collectives: String,
    /// What makes all of it slower than it need be.
    pub warning: Option<String>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = 0..u32::try_from(self.size).unwrap_or(u32::MAX);
        let others: Vec<u32> = numbers.filter(|rank| usize::try_from(*rank) != Ok(self.rank)).collect();
        writeln!(f, "rank {} of {}: what its kernels put and signal", self.rank, self.size)?;
        writeln!(f, "    gpu      {} ({})", self.gpu, self.gpu_why)?;
        writeln!(f, "    heap     {}", self.heap)?;
        if !others.is_empty() {
            let many = if others.len() == 1 { "rank" } else { "ranks" };
            writeln!(f, "to {many} {}: {}", cpu_list(&others), self.choice.way)?;
            writeln!(f, "    chosen   {}", self.choice.why)?;
            for (way, why) in &self.choice.refused {
                writeln!(f, "    refused  {way}: {why}")?;
            }
            writeln!(f, "collectives: {}", self.collectives)?;
            if let Some(warning) = &self.warning {
                writeln!(f, "warning: {warning}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(asked: Asked, hosts: usize, mapped: Option<Result<(), String>>) -> Facts {
        Facts { asked, ranks: 4, hosts, mapped, mlx5: Err("there is no NIC".into()) }
    }

    #[test]
    fn ranks_that_map_each_other_store_directly_and_others_go_through_the_proxy() {
        let mapped = choose(&facts(Asked::Auto, 1, Some(Ok(())))).unwrap();
        assert_eq!(mapped.way, Way::Mapped);
        let apart = choose(&facts(Asked::Auto, 2, None)).unwrap();
        assert_eq!(apart.way, Way::Proxy);
        assert_eq!(apart.refused[0], (Way::Mapped, "the 4 ranks are on 2 hosts".into()));
        let broken = choose(&facts(Asked::Auto, 1, Some(Err("stores do not arrive".into())))).unwrap();
        assert_eq!((broken.way, broken.refused[0].1.as_str()), (Way::Proxy, "stores do not arrive"));
    }

    #[test]
    fn what_is_asked_for_is_done_or_refused_with_the_reason() {
        let proxy = choose(&facts(Asked::Exactly(Way::Proxy), 1, None)).unwrap();
        assert_eq!((proxy.way, proxy.why.as_str()), (Way::Proxy, "asked for (device.way=proxy)"));
        assert_eq!(choose(&facts(Asked::Exactly(Way::Mapped), 2, None)), Err("the 4 ranks are on 2 hosts".into()));
        let mapped = choose(&facts(Asked::Exactly(Way::Mapped), 1, Some(Ok(())))).unwrap();
        assert_eq!(mapped.way, Way::Mapped);
    }

    #[test]
    fn a_nic_of_another_maker_falls_back_to_the_proxy_and_says_so() {
        let choice = choose(&facts(Asked::Exactly(Way::Mlx5), 2, None)).unwrap();
        assert_eq!(choice.way, Way::Proxy);
        assert!(choice.warning.is_some_and(|warning| warning.contains("there is no NIC")));
        let mut with_nic = facts(Asked::Exactly(Way::Mlx5), 2, None);
        with_nic.mlx5 = Ok(());
        assert_eq!(choose(&with_nic).unwrap().way, Way::Mlx5);
        with_nic.asked = Asked::Auto;
        let choice = choose(&with_nic).unwrap();
        assert_eq!(choice.way, Way::Proxy, "what has not run on hardware is not chosen by itself");
    }
}
