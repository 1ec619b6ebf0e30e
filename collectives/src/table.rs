//! The tuning table of a job: what was measured on its network, and which algorithm was found best for which calls.
//!
//! A text that the launcher reads once and that every rank gets with the configuration, so that ranks cannot disagree.
//! Knows no communicator: [`select`](crate::select) asks it, and takes a rule only where the algorithm is legal.

#[cfg(test)]
mod tests;

use crate::algorithms::Collective;
use crate::groups::Groups;
use crate::price::{Model, Network};
use crate::select::AUTO;
use std::fmt;
use std::ops::RangeInclusive;

/// What is known of a network and of algorithms on it.
///
/// As text each entry is a line of words, or several of them with `;` between; `#` begins a comment. Times are in seconds:
///
/// ```text
/// network inside latency=4e-7 overhead=2e-7 byte=1.25e-10 reduced=1e-10
/// network between latency=5e-6 overhead=5e-7 byte=5e-10 reduced=1e-10
/// network across latency=1e-5 overhead=5e-7 byte=2.5e-10 reduced=1e-10
/// memory bandwidth=2e10
/// rule all_reduce ranks=96 groups=12 bytes=8193..65536 operator=commutative algorithm=two_hop_ring segment=16384 chunk=262144 leaders=1 predicted=1.4e-2 measured=1.3e-2
/// ```
///
/// A rule `bytes=65537..` has no end; `segment=auto` and `chunk=auto` leave these to the cost formulas; `predicted` and `measured`
/// may be left out. `across` is between groups of groups, as racks of hosts, if that is known; a rule for ranks that are so divided has the
/// number of groups on each level, as `groups=12,3`.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The constants of the cost formulas.
    pub network: Network,
    /// Bytes a second that the memory of a host carries, for the guard of aggregators; `None`: not measured, no guard.
    pub memory: Option<f64>,
    /// The first that fits a call decides.
    pub rules: Vec<Rule>,
}

impl Default for Table {
    /// Nothing measured.
    fn default() -> Table {
        Table { network: Network::ASSUMED, memory: None, rules: Vec::new() }
    }
}

/// Calls that a rule is for, and how they are best done.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The collective.
    pub collective: Collective,
    /// The number of ranks.
    pub ranks: usize,
    /// The number of groups of ranks, and of each level above.
    pub groups: Vec<usize>,
    /// Bytes of a rank: see [`Collective`]; up to `usize::MAX` where the rule has no end.
    pub bytes: RangeInclusive<usize>,
    /// Operators that it is for.
    pub operator: OperatorClass,
    /// The name of the algorithm.
    pub algorithm: String,
    /// Bytes of a segment at most; `None`: what the cost formulas say for each call.
    pub segment: Option<usize>,
    /// Bytes of a chunk at most; `None`: what the cost formulas say for each call.
    pub chunk: Option<usize>,
    /// Leaders of a group.
    pub leaders: usize,
    /// Seconds that the cost formula gave for the largest of these calls; `None`: it is for calls that were not measured.
    pub predicted: Option<f64>,
    /// Seconds that it took.
    pub measured: Option<f64>,
}

/// What an algorithm may do with an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorClass {
    /// All operators, and collectives without one.
    Any,
    /// Those that commute.
    Commutative,
}

impl OperatorClass {
    fn name(self) -> &'static str {
        match self {
            OperatorClass::Any => "any",
            OperatorClass::Commutative => "commutative",
        }
    }
}

/// A line that is no entry of a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {entry}: {reason}")]
pub struct TableError {
    /// The number of the entry, counted from 1; lines without one count as well.
    pub entry: usize,
    /// What is wrong.
    pub reason: String,
}

impl Table {
    /// Reads the text form. An empty text is the table of what is assumed.
    ///
    /// # Errors
    /// The first line that is none of the entries above.
    pub fn parse(text: &str) -> Result<Table, TableError> {
        let mut table = Table::default();
        for (index, line) in text.split(['\n', ';']).enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                table.add(line).map_err(|reason| TableError { entry: index + 1, reason })?;
            }
        }
        Ok(table)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_whitespace();
        match words.next().unwrap_or_default() {
            "network" => {
                let place = match words.next() {
                    Some("inside") => &mut self.network.inside,
                    Some("between") => &mut self.network.between,
                    Some("across") => self.network.across.insert(Model::ASSUMED),
                    _ => return Err("network inside, network between or network across".into()),
                };
                let words = Words::new(words)?;
                *place = Model {
                    latency: words.number("latency")?,
                    overhead: words.number("overhead")?,
                    per_byte: words.number("byte")?,
                    per_byte_reduced: words.number("reduced")?,
                };
                words.done(4)
            }
            "memory" => {
                let words = Words::new(words)?;
                self.memory = Some(words.number("bandwidth")?);
                words.done(1)
            }
            "rule" => {
                let name = words.next().unwrap_or_default();
                let collective = Collective::ALL.into_iter().find(|one| one.name() == name);
                let collective = collective.ok_or_else(|| format!("there is no collective '{name}'"))?;
                self.rules.push(Rule::read(collective, &Words::new(words)?)?);
                Ok(())
            }
            other => Err(format!("'{other}' is not network, memory or rule")),
        }
    }

    /// The rules for a collective among ranks that are so divided.
    pub fn concerning(&self, collective: Collective, groups: &Groups) -> impl Iterator<Item = &Rule> {
        let (ranks, counts) = (groups.size(), groups.counts());
        let concerns =
            move |rule: &&Rule| rule.collective == collective && (rule.ranks, &rule.groups) == (ranks, &counts);
        self.rules.iter().filter(concerns)
    }

    /// Those of them that fit a call.
    pub fn fitting(
        &self,
        collective: Collective,
        groups: &Groups,
        bytes: usize,
        commutative: bool,
    ) -> impl Iterator<Item = &Rule> {
        let fits =
            move |rule: &&Rule| rule.bytes.contains(&bytes) && (commutative || rule.operator == OperatorClass::Any);
        self.concerning(collective, groups).filter(fits)
    }
}

impl Rule {
    fn read(collective: Collective, words: &Words<'_>) -> Result<Rule, String> {
        let bytes = words.text("bytes")?;
        let end = |to: &str| if to.is_empty() { Some(usize::MAX) } else { to.parse().ok() };
        let ends = bytes.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, end(to)?)));
        let (from, to) = ends
            .filter(|(from, to)| from <= to)
            .ok_or_else(|| format!("bytes={bytes}: write 0..65536, or 65537.. without an end"))?;
        let algorithm = words.text("algorithm")?;
        if collective.algorithms().iter().all(|known| known.name != algorithm) {
            return Err(format!("{collective} has no algorithm '{algorithm}'"));
        }
        let rule = Rule {
            collective,
            ranks: words.count("ranks")?,
            groups: words.counts("groups")?,
            bytes: from..=to,
            operator: match words.text("operator")? {
                "any" => OperatorClass::Any,
                "commutative" => OperatorClass::Commutative,
                other => return Err(format!("operator={other}: any or commutative")),
            },
            algorithm: algorithm.to_string(),
            segment: words.count_or_auto("segment")?,
            chunk: words.count_or_auto("chunk")?,
            leaders: words.count("leaders")?,
            predicted: words.optional("predicted")?,
            measured: words.optional("measured")?,
        };
        words.done(8 + [rule.predicted, rule.measured].iter().flatten().count()).map(|()| rule)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Network { inside, between, across } = self.network;
        let known = [("inside", Some(inside)), ("between", Some(between)), ("across", across)];
        for (name, model) in known.into_iter().filter_map(|(name, model)| Some((name, model?))) {
            let Model { latency, overhead, per_byte, per_byte_reduced } = model;
            writeln!(
                f,
                "network {name} latency={latency:e} overhead={overhead:e} byte={per_byte:e} reduced={per_byte_reduced:e}"
            )?;
        }
        if let Some(memory) = self.memory {
            writeln!(f, "memory bandwidth={memory:e}")?;
        }
        self.rules.iter().try_for_each(|rule| writeln!(f, "{rule}"))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { collective, ranks, groups, bytes, operator, algorithm, segment, chunk, leaders, .. } = self;
        let groups = groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        write!(f, "rule {collective} ranks={ranks} groups={groups} bytes={}..", bytes.start())?;
        if *bytes.end() < usize::MAX {
            write!(f, "{}", bytes.end())?;
        }
        let most = |bytes: &Option<usize>| bytes.map_or_else(|| AUTO.into(), |bytes| bytes.to_string());
        let (operator, segment, chunk) = (operator.name(), most(segment), most(chunk));
        write!(f, " operator={operator} algorithm={algorithm} segment={segment} chunk={chunk} leaders={leaders}")?;
        for (name, seconds) in [("predicted", self.predicted), ("measured", self.measured)] {
            seconds.map_or(Ok(()), |seconds| write!(f, " {name}={seconds:.3e}"))?;
        }
        Ok(())
    }
}

/// A whole number above 0.
fn count(text: &str) -> Option<usize> {
    text.parse().ok().filter(|number| *number > 0)
}

/// The words `NAME=VALUE` of an entry.
struct Words<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Words<'a> {
    fn new(words: impl Iterator<Item = &'a str>) -> Result<Words<'a>, String> {
        let pair = |word: &'a str| word.split_once('=').ok_or_else(|| format!("'{word}' is not NAME=VALUE"));
        words.map(pair).collect::<Result<_, _>>().map(Words)
    }

    fn text(&self, name: &str) -> Result<&'a str, String> {
        let mut found = self.0.iter().filter(|(word, _)| *word == name);
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Ok(value),
            (None, _) => Err(format!("{name}= is missing")),
            _ => Err(format!("{name}= is there twice")),
        }
    }

    fn count(&self, name: &str) -> Result<usize, String> {
        let text = self.text(name)?;
        count(text).ok_or_else(|| format!("{name}={text}: a whole number above 0"))
    }

    fn count_or_auto(&self, name: &str) -> Result<Option<usize>, String> {
        match self.text(name)? {
            AUTO => Ok(None),
            text => count(text).map(Some).ok_or_else(|| format!("{name}={text}: a whole number above 0, or {AUTO}")),
        }
    }

    fn counts(&self, name: &str) -> Result<Vec<usize>, String> {
        let text = self.text(name)?;
        let counts = text.split(',').map(count).collect::<Option<_>>();
        counts.ok_or_else(|| format!("{name}={text}: whole numbers above 0, separated by commas"))
    }

    fn number(&self, name: &str) -> Result<f64, String> {
        let text = self.text(name)?;
        let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| format!("{name}={text}: a number, 0 or more"))
    }

    /// A number that need not be there.
    fn optional(&self, name: &str) -> Result<Option<f64>, String> {
        match self.0.iter().any(|(word, _)| *word == name) {
            true => self.number(name).map(Some),
            false => Ok(None),
        }
    }

    /// No other words than those that were asked for.
    fn done(&self, asked: usize) -> Result<(), String> {
        if self.0.len() > asked { Err(format!("{} words where {asked} have a meaning", self.0.len())) } else { Ok(()) }
    }
}
