//! What has been measured, as lines of text that further runs append to: `COLLECTIVE BYTES SECONDS CASE`.

use super::cases::Case;
use crate::measure::median;
use crate::port::Failure;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collective {
    /// To rank 0.
    Reduce,
    /// To all ranks.
    AllReduce,
}

impl Collective {
    /// Both.
    pub const ALL: [Collective; 2] = [Collective::Reduce, Collective::AllReduce];

    /// Its name on the command line and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Collective::Reduce => "reduce",
            Collective::AllReduce => "all_reduce",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Collective> {
        Self::ALL.into_iter().find(|collective| collective.name() == name)
    }
}

/// Times in seconds, by title of the case and bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times(BTreeMap<(String, usize), Vec<f64>>);

impl Times {
    /// Reads what [`Times::to_text`] wrote.
    ///
    /// # Errors
    /// A line that is none of its own, with its number.
    pub fn from_text(text: &str) -> Result<Times, Failure> {
        let mut times = Times::default();
        for (number, line) in text.lines().enumerate() {
            let mut words = line.splitn(4, ' ');
            let mut word = || words.next().unwrap_or_default();
            let (collective, bytes, seconds, name) = (word(), word(), word(), word());
            match (Collective::of_name(collective), bytes.parse(), seconds.parse::<f64>()) {
                (Some(collective), Ok(bytes), Ok(seconds)) if seconds > 0.0 && !name.is_empty() => {
                    times.0.entry((format!("{}: {name}", collective.name()), bytes)).or_default().push(seconds);
                }
                _ => return Err(format!("line {}: '{line}' is not COLLECTIVE BYTES SECONDS CASE", number + 1).into()),
            }
        }
        Ok(times)
    }

    /// As lines, to be read again.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for ((title, bytes), times) in &self.0 {
            let Some((collective, name)) = title.split_once(": ") else { continue };
            for seconds in times {
                let _ = writeln!(text, "{collective} {bytes} {seconds:.6} {name}");
            }
        }
        text
    }

    /// Adds a round of a case.
    pub fn add(&mut self, case: &Case, bytes: usize, seconds: f64) {
        self.0.entry((case.title(), bytes)).or_default().push(seconds);
    }

    /// The median of all rounds.
    #[must_use]
    pub fn median(&self, case: &Case, bytes: usize) -> Option<f64> {
        median(self.0.get(&(case.title(), bytes))?.clone())
    }

    /// How many rounds there are of a case.
    #[must_use]
    pub fn rounds(&self, case: &Case, bytes: usize) -> usize {
        self.0.get(&(case.title(), bytes)).map_or(0, Vec::len)
    }

    /// All sizes, in order.
    #[must_use]
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = self.0.keys().map(|(_, bytes)| *bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::CASES;
    use super::*;

    #[test]
    fn what_was_written_is_read_again_and_rounds_are_added_to_it() {
        let mut times = Times::default();
        for seconds in [0.5, 0.25, 4.0] {
            times.add(&CASES[0], 1024, seconds);
        }
        times.add(&CASES[1], 8, 1.0);
        let read = Times::from_text(&times.to_text()).expect("its own lines");
        assert_eq!(read, times);
        assert_eq!((read.median(&CASES[0], 1024), read.rounds(&CASES[0], 1024)), (Some(0.5), 3));
        assert_eq!(read.sizes(), [8, 1024]);
        assert_eq!(read.median(&CASES[1], 1024), None);
    }

    #[test]
    fn a_line_that_is_no_measurement_is_named() {
        for line in ["reduce 8 x flat", "gather 8 1.0 flat", "reduce 8 1.0", "reduce 8 0.0 flat", ""] {
            let error = Times::from_text(&format!("reduce 8 1.0 flat, linear\n{line}\n")).expect_err("damaged");
            assert!(error.to_string().starts_with("line 2: "), "{error}");
        }
    }
}
