//! Which way a call is done and why: what rank 0 of a communicator prints for each new kind of call under
//! `rsrun --explain`, and what it writes into a file under `--explain=FILE.json`.
//!
//! Decides nothing.

#[cfg(doc)]
use crate::algorithms::Collective;
use crate::algorithms::Parameters;
use crate::guard::Limited;
use crate::select::{Choice, Request, Why, legal};
use serde::Serialize;
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

/// The same for programs: an entry of what `rsrun --explain=FILE.json` writes under `collectives`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Entry {
    /// The collective.
    pub collective: String,
    /// Bytes of a rank's part: see [`Collective`].
    pub bytes: usize,
    /// Bytes of an element.
    pub element_bytes: usize,
    /// Ranks of the communicator.
    pub ranks: usize,
    /// The groups of each level that has several, the innermost first.
    pub groups: Vec<usize>,
    /// The algorithm.
    pub algorithm: String,
    /// Bytes of a segment, where it is done in segments.
    pub segment_bytes: Option<usize>,
    /// Bytes of a chunk, where it goes in two hops in chunks.
    pub chunk_bytes: Option<usize>,
    /// Leaders of a group, where it goes in two hops.
    pub leaders: Option<usize>,
    /// What else may be used for such calls.
    pub alternatives: Vec<&'static str>,
    /// `configuration` (it is forced), `rule` (of the tuning table), `memory` (the ranks of one host share it) or `formula` (the
    /// cheapest one).
    pub why: &'static str,
    /// Seconds that the cost formula gives.
    pub predicted_seconds: f64,
    /// Seconds that were measured for the largest call of the rule; none where the call is larger than any that was.
    pub measured_seconds: Option<f64>,
    /// Who leads the first group and why, in words, where that is not simply the first ranks.
    pub leaders_by_device: Option<String>,
    /// What memory does not let.
    pub limited: Option<LimitedEntry>,
}

/// What the guard of aggregators has done: see [`Limited`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LimitedEntry {
    /// Leaders that were asked for.
    pub leaders_asked: usize,
    /// Those that are left.
    pub leaders: usize,
    /// The most ranks that one combines the data of.
    pub fan_in: usize,
    /// What the memory of a host carries.
    pub memory_bytes_per_second: f64,
    /// What a link carries.
    pub link_bytes_per_second: f64,
}

impl Explanation<'_> {
    /// Whether groups, chunks and leaders have a part in it.
    fn in_two_hops(&self) -> bool {
        self.request.groups.are_two_levels() && self.choice.algorithm.name.starts_with("two_hop")
    }

    /// What else may be used for such calls: values of the key `collectives.NAME`.
    fn alternatives(&self) -> Vec<&'static str> {
        let names = legal(&self.request).map(|algorithm| algorithm.name);
        names.filter(|name| *name != self.choice.algorithm.name).collect()
    }

    /// The same for programs.
    #[must_use]
    pub fn entry(&self) -> Entry {
        let Request { collective, groups, elements, element_bytes, .. } = self.request;
        let Parameters { segment, chunk, leaders, .. } = self.choice.parameters;
        let bytes = |elements: usize| elements.saturating_mul(element_bytes);
        let in_two_hops = self.in_two_hops();
        let (why, measured_seconds) = match self.choice.why {
            Why::Forced => ("configuration", None),
            Why::Formula => ("formula", None),
            Why::Rule { measured } => ("rule", measured),
            Why::Memory => ("memory", None),
        };
        Entry {
            collective: collective.to_string(),
            bytes: bytes(elements),
            element_bytes,
            ranks: groups.size(),
            groups: groups.counts().into_iter().filter(|count| *count > 1).collect(),
            algorithm: self.choice.algorithm.name.to_owned(),
            alternatives: self.alternatives(),
            segment_bytes: (segment < elements).then(|| bytes(segment)),
            chunk_bytes: (in_two_hops && chunk < elements).then(|| bytes(chunk)),
            leaders: in_two_hops.then_some(leaders),
            why,
            predicted_seconds: self.choice.cost,
            measured_seconds,
            leaders_by_device: (in_two_hops && !self.leaders.is_empty()).then(|| self.leaders.to_owned()),
            limited: self.limited.map(|Limited { leaders, fan_in, rates }| LimitedEntry {
                leaders_asked: leaders.0,
                leaders: leaders.1,
                fan_in,
                memory_bytes_per_second: rates.0,
                link_bytes_per_second: rates.1,
            }),
        }
    }
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
        let in_two_hops = self.in_two_hops();
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
                write!(f, "; a rule of the tuning table; predicted {predicted}")?;
                match measured {
                    Some(seconds) => write!(f, ", measured {} for the largest of its calls", time(seconds))?,
                    None => write!(f, ", not measured for such calls")?,
                }
            }
            Why::Memory => write!(f, "; the ranks of one host share memory; predicted {predicted}")?,
        }
        if in_two_hops && !self.leaders.is_empty() {
            write!(f, "; {}", self.leaders)?;
        }
        self.limited.map_or(Ok(()), |limited| write!(f, "; {limited}"))?;
        let others = self.alternatives();
        if others.is_empty() { Ok(()) } else { write!(f, "; also allowed: {}", others.join(", ")) }
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
        let explanation = Explanation { request, choice: Choice { parameters, ..choice }, limited, leaders: "" };
        let text = explanation.to_string();
        let begin = "all_reduce of 4096 KiB among 96 ranks in 12 groups: two_hop, segments of 16 KiB, chunks of 256 KiB, 1 leader; \
                     a rule of the tuning table; predicted ";
        assert!(text.starts_with(begin), "{text}");
        assert!(
            text.contains("measured 25.00 ms") && text.contains("1 of 2 leaders; also allowed: linear, "),
            "{text}"
        );
        let json = serde_json::to_value(explanation.entry()).unwrap();
        let part = |name: &str| json[name].clone();
        assert_eq!([part("collective"), part("algorithm"), part("why")], ["all_reduce", "two_hop", "rule"]);
        assert_eq!([part("bytes"), part("element_bytes"), part("ranks")], [4 << 20, 4, 96]);
        assert_eq!([part("segment_bytes"), part("chunk_bytes"), part("leaders")], [16 << 10, 256 << 10, 1]);
        assert_eq!((part("groups"), part("measured_seconds")), (serde_json::json!([12]), serde_json::json!(2.5e-2)));
        assert_eq!((&json["limited"]["leaders_asked"], &json["limited"]["leaders"]), (&2.into(), &1.into()));
        assert_eq!(json["limited"]["memory_bytes_per_second"], 1e9);
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
        assert!(text.ends_with("; rank 3 (eth0) leads; also allowed: binomial, dissemination"), "{text}");
        let entry = explanation.entry();
        assert_eq!(
            (&entry.groups[..], entry.leaders_by_device.as_deref()),
            (&[12, 3][..], Some("rank 3 (eth0) leads"))
        );
        assert_eq!((entry.why, entry.measured_seconds, entry.segment_bytes), ("configuration", None, None));
    }
}
