//! What has been measured, as JSON that further runs add to.

use super::cases::Case;
use super::constants::{Constants, Measured};
use crate::measure::median;
use crate::port::Failure;
use serde::{Deserialize, Serialize};

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

/// Everything that was measured on one set of hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Hosts.
    pub hosts: usize,
    /// Ranks of each.
    pub ranks_a_host: usize,
    /// Bytes that wait at a port of the switch at most, where that is known.
    pub queue: Option<f64>,
    /// What the benchmarks took by which that is known.
    #[serde(default)]
    pub measured: Vec<Measured>,
    /// What messages cost there, by all of that.
    pub constants: Option<Constants>,
    /// What the ranks were told of it, by the first of that.
    #[serde(default)]
    pub told: Option<Constants>,
    /// The times.
    pub rows: Vec<Row>,
}

/// One way to do it at one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The title of the case.
    pub case: String,
    /// Bytes of a rank.
    pub bytes: usize,
    /// Of each round.
    pub seconds: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// What the simulator says.
    pub predicted: Option<f64>,
}

impl Row {
    /// The least and the most of its rounds in seconds, without the tenth of them at either end, where one of these is a
    /// quarter of the median or more away from it: a comparison with the median means no more than that.
    #[must_use]
    pub fn range(&self) -> Option<(f64, f64)> {
        let mut seconds = self.seconds.clone();
        seconds.sort_by(f64::total_cmp);
        let strays = seconds.len() / 10;
        let (least, most) = (*seconds.get(strays)?, *seconds.iter().nth_back(strays)?);
        (least < 0.75 * self.median || most > 1.25 * self.median).then_some((least, most))
    }
}

impl Record {
    /// Reads what [`Record::to_text`] wrote.
    ///
    /// # Errors
    /// It is not.
    pub fn from_text(text: &str) -> Result<Record, Failure> {
        let not_one = |error| format!("not a record of two-hop, or one of an older version: {error}");
        Ok(serde_json::from_str(text).map_err(not_one)?)
    }

    /// As JSON, to be read again.
    ///
    /// # Errors
    /// A time is not a number.
    pub fn to_text(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Adds a round of a case.
    pub fn add(&mut self, case: &Case, bytes: usize, seconds: f64) {
        let title = case.title();
        let found = self.rows.iter().position(|row| row.case == title && row.bytes == bytes);
        let row = match found {
            Some(index) => &mut self.rows[index],
            None => {
                self.rows.push(Row { case: title, bytes, seconds: Vec::new(), median: 0.0, predicted: None });
                self.rows.last_mut().unwrap_or_else(|| unreachable!("it was pushed"))
            }
        };
        row.seconds.push(seconds);
        row.median = median(row.seconds.clone()).unwrap_or(seconds);
    }

    /// What there is of a case at a size.
    #[must_use]
    pub fn row(&self, case: &Case, bytes: usize) -> Option<&Row> {
        let title = case.title();
        self.rows.iter().find(|row| row.case == title && row.bytes == bytes)
    }

    /// The median of all rounds.
    #[must_use]
    pub fn median(&self, case: &Case, bytes: usize) -> Option<f64> {
        self.row(case, bytes).map(|row| row.median)
    }

    /// All sizes, in order.
    #[must_use]
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = self.rows.iter().map(|row| row.bytes).collect();
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
    fn a_row_has_a_range_where_its_rounds_vary_strays_apart() {
        let range = |seconds: &[f64]| {
            let mut record = Record::default();
            seconds.iter().for_each(|&seconds| record.add(&CASES[0], 8, seconds));
            record.rows[0].range()
        };
        assert_eq!(range(&[1.0, 1.1, 0.9]), None);
        assert_eq!(range(&[1.0, 1.1, 0.5]), Some((0.5, 1.1)));
        let mut many = [1.0; 20];
        (many[3], many[7], many[9]) = (5.0, 3.0, 0.1);
        assert_eq!(range(&many), None);
        many[12] = 2.0;
        assert_eq!(range(&many), Some((1.0, 2.0)));
    }

    #[test]
    fn what_was_written_is_read_again_and_rounds_are_added_to_it() {
        let mut record = Record { hosts: 12, ranks_a_host: 8, ..Record::default() };
        for seconds in [0.5, 0.25, 4.0] {
            record.add(&CASES[0], 1024, seconds);
        }
        record.add(&CASES[1], 8, 1.0);
        let mut read = Record::from_text(&record.to_text().expect("numbers")).expect("its own text");
        assert_eq!(read, record);
        assert_eq!(read.median(&CASES[0], 1024), Some(0.5));
        assert_eq!(read.sizes(), [8, 1024]);
        assert_eq!(read.median(&CASES[1], 1024), None);
        read.add(&CASES[1], 8, 3.0);
        assert_eq!(read.row(&CASES[1], 8).map(|row| row.seconds.len()), Some(2));
        assert!(Record::from_text("reduce 8 1.0").is_err());
    }
}
