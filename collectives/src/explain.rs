//! Which way a call is done and why, in words: what rank 0 prints for each new kind of call under `rsrun --explain`.
//!
//! Decides nothing.

use crate::algorithms::Parameters;
use crate::guard::Limited;
use crate::select::{Choice, Request, Why};
use std::fmt;

/// A call, what was chosen for it, and whether the guard of aggregators has changed that.
#[derive(Clone, Copy, Debug)]
pub struct Explanation<'a> {
    /// The call.
    pub request: Request<'a>,
    /// What was chosen, with the parameters that are used.
    pub choice: Choice,
    /// What the guard has done.
    pub limited: Option<Limited>,
    /// Who leads and why, where that is not simply the first ranks.
    pub leaders: &'a str,
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { collective, groups, elements, element_bytes, .. } = self.request;
        let bytes = |elements: usize| size(elements.saturating_mul(element_bytes));
        write!(f, "{collective} of {} among {} ranks", bytes(elements), groups.size())?;
        for (level, count) in groups.counts().into_iter().enumerate().filter(|(_, count)| *count > 1) {
            write!(f, " in {count} {}groups", if level > 0 { "larger " } else { "" })?;
        }
        let Parameters { segment, chunk, leaders, .. } = self.choice.parameters;
        write!(f, ": {}", self.choice.algorithm.name)?;
        if segment < elements {
            write!(f, ", segments of {}", bytes(segment))?;
        }
        let in_two_hops = groups.are_two_levels() && self.choice.algorithm.name.starts_with("two_hop");
        if in_two_hops {
            if chunk < elements {
                write!(f, ", chunks of {}", bytes(chunk))?;
            }
            write!(f, ", {leaders} leader{}", if leaders == 1 { "" } else { "s" })?;
        }
        let predicted = time(self.choice.cost);
        match self.choice.why {
            Why::Forced => write!(f, "; the configuration says so; predicted {predicted}")?,
            Why::Formula => write!(f, "; the cheapest by the cost formulas; predicted {predicted}")?,
            Why::Rule { measured } => {
                write!(
                    f,
                    "; a rule of the tuning table; predicted {predicted}, measured {} for the largest of its calls",
                    time(measured)
                )?;
            }
        }
        if in_two_hops && !self.leaders.is_empty() {
            write!(f, "; {}", self.leaders)?;
        }
        self.limited.map_or(Ok(()), |limited| write!(f, "; {limited}"))
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 10 << 20 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 10 << 10 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1e-3 => format!("{:.1} us", seconds * 1e6),
        seconds if seconds < 1.0 => format!("{:.2} ms", seconds * 1e3),
        seconds => format!("{seconds:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::Collective;
    use crate::groups::{Groups, Link};
    use crate::guard::guard;
    use crate::select::{AUTO, select};
    use crate::table::Table;

    #[test]
    fn it_names_the_way_why_it_is_taken_and_what_memory_does_not_let() {
        let groups = Groups::every(96, 8);
        let rule = "rule all_reduce ranks=96 groups=12 bytes=0..4194304 operator=any algorithm=two_hop segment=16384 \
                    chunk=262144 leaders=2 predicted=1e-2 measured=2.5e-2; memory bandwidth=1e9";
        let table = Table::parse(rule).unwrap();
        let request = Request {
            collective: Collective::AllReduce,
            groups: &groups,
            elements: 1 << 20,
            element_bytes: 4,
            commutative: true,
        };
        let choice = select(&request, AUTO, &table).unwrap();
        let (parameters, limited) = guard(request.collective, &groups, &table, choice.parameters);
        let text = Explanation { request, choice: Choice { parameters, ..choice }, limited, leaders: "" }.to_string();
        let begin = "all_reduce of 4096 KiB among 96 ranks in 12 groups: two_hop, segments of 16 KiB, chunks of 256 KiB, 1 leader; \
                     a rule of the tuning table; predicted ";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.contains("measured 25.00 ms") && text.ends_with("1 of 2 leaders"), "{text}");
    }

    #[test]
    fn it_says_the_levels() {
        let groups = Groups::every(96, 8).within((0..96).map(|rank| rank / 32), Link::Between).unwrap();
        let collective = Collective::Barrier;
        let request = Request { collective, groups: &groups, elements: 0, element_bytes: 1, commutative: true };
        let choice = select(&request, "two_hop", &Table::default()).unwrap();
        let explanation = Explanation { request, choice, limited: None, leaders: "rank 3 (eth0) leads" };
        let text = explanation.to_string();
        assert!(text.starts_with("barrier of 0 B among 96 ranks in 12 groups in 3 larger groups: two_hop"), "{text}");
        assert!(text.ends_with("; rank 3 (eth0) leads"), "{text}");
    }
}
