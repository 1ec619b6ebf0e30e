//! What an experiment found: tables of samples, each with its row, column and turn. Pure.

use crate::measure::median;
use serde::{Deserialize, Serialize};

/// Everything that one experiment found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Which one.
    pub experiment: String,
    /// In the order in which they were begun.
    pub tables: Vec<Table>,
    /// What could not be measured, and why.
    pub left_out: Vec<String>,
}

/// One question, and the samples that answer it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What is measured, with its unit.
    pub title: String,
    /// What the rows are.
    pub rows: String,
    /// In the order in which they were taken.
    pub samples: Vec<Sample>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Its row.
    pub row: String,
    /// Its column.
    pub column: String,
    /// In which turn it was taken, from 0.
    pub turn: u32,
    /// What came out.
    pub value: f64,
}

impl Record {
    /// Of an experiment that has not begun.
    #[must_use]
    pub fn new(experiment: &str) -> Self {
        Record { experiment: experiment.to_owned(), ..Record::default() }
    }

    /// Adds a sample to the table of this title.
    pub fn add(&mut self, (title, rows): (&str, &str), row: &str, column: &str, turn: u32, value: f64) {
        let sample = Sample { row: row.to_owned(), column: column.to_owned(), turn, value };
        match self.tables.iter_mut().find(|table| table.title == title) {
            Some(table) => table.samples.push(sample),
            None => {
                let (title, rows) = (title.to_owned(), rows.to_owned());
                self.tables.push(Table { title, rows, samples: vec![sample] });
            }
        }
    }

    /// Adds the turns of another record of the same experiment after its own.
    pub fn append(&mut self, other: Record) {
        let turns =
            self.tables.iter().flat_map(|table| &table.samples).map(|sample| sample.turn + 1).max().unwrap_or(0);
        for table in other.tables {
            for sample in table.samples {
                let turn = turns + sample.turn;
                self.add((&table.title, &table.rows), &sample.row, &sample.column, turn, sample.value);
            }
        }
        other.left_out.into_iter().for_each(|what| self.leave_out(what));
    }

    /// Notes once that something was left out.
    pub fn leave_out(&mut self, what: String) {
        if !self.left_out.contains(&what) {
            self.left_out.push(what);
        }
    }
}

impl Table {
    /// The names of its rows, in the order of their first samples.
    #[must_use]
    pub fn row_names(&self) -> Vec<&str> {
        distinct(self.samples.iter().map(|sample| sample.row.as_str()))
    }

    /// The names of its columns, alike.
    #[must_use]
    pub fn columns(&self) -> Vec<&str> {
        distinct(self.samples.iter().map(|sample| sample.column.as_str()))
    }

    /// The median of the turns.
    #[must_use]
    pub fn median(&self, row: &str, column: &str) -> Option<f64> {
        let of = self.samples.iter().filter(|sample| sample.row == row && sample.column == column);
        median(of.map(|sample| sample.value).collect())
    }

    /// The least and the most of the turns.
    #[must_use]
    pub fn range(&self, row: &str, column: &str) -> Option<(f64, f64)> {
        let of = self.samples.iter().filter(|sample| sample.row == row && sample.column == column);
        of.map(|sample| (sample.value, sample.value)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// A column in parts of another one: the median over the turns, each beside its own turn.
    #[must_use]
    pub fn ratio(&self, row: &str, column: &str, to: &str) -> Option<f64> {
        let in_turn = |column: &str, turn: u32| {
            self.samples
                .iter()
                .find(|sample| sample.row == row && sample.column == column && sample.turn == turn)
                .map(|sample| sample.value)
        };
        let turns = self.samples.iter().filter(|sample| sample.row == row && sample.column == column);
        let ratios = turns.filter_map(|sample| Some(sample.value / in_turn(to, sample.turn).filter(|to| *to > 0.0)?));
        median(ratios.collect())
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_the_median_of_its_turns_and_names_keep_their_order() {
        let mut record = Record::new("loss");
        for (turn, value) in [(0, 5.0), (1, 1.0), (2, 3.0)] {
            record.add(("MB/s", "loss"), "0%", "ours", turn, value);
            record.add(("MB/s", "loss"), "0%", "ib_write_bw", turn, 2.0 * value);
        }
        record.add(("MB/s", "loss"), "0.1%", "ours", 0, 9.0);
        let table = &record.tables[0];
        assert_eq!((table.row_names(), table.columns()), (vec!["0%", "0.1%"], vec!["ours", "ib_write_bw"]));
        assert_eq!(table.median("0%", "ours"), Some(3.0));
        assert_eq!(table.median("0.1%", "ib_write_bw"), None);
        assert_eq!((table.range("0%", "ours"), table.range("0.1%", "ib_write_bw")), (Some((1.0, 5.0)), None));
        assert_eq!(table.ratio("0%", "ours", "ib_write_bw"), Some(0.5));
        assert_eq!(table.ratio("0.1%", "ours", "ib_write_bw"), None);
    }

    #[test]
    fn the_turns_of_a_second_record_come_after_those_of_the_first() {
        let mut first = Record::new("loss");
        first.add(("MB/s", "loss"), "0%", "ours", 0, 1.0);
        let second = first.clone();
        first.append(second.clone());
        first.append(second);
        let turns: Vec<u32> = first.tables[0].samples.iter().map(|sample| sample.turn).collect();
        assert_eq!((first.tables.len(), turns), (1, vec![0, 1, 2]));
    }

    #[test]
    fn a_record_survives_its_text() {
        let mut record = Record::new("hint");
        record.add(("us", "bytes"), "8", "0", 0, 1.5);
        record.leave_out("ucx: no way".into());
        record.leave_out("ucx: no way".into());
        let text = serde_json::to_string(&record).expect("plain numbers");
        assert_eq!(serde_json::from_str::<Record>(&text).expect("its own text"), record);
        assert_eq!(record.left_out.len(), 1);
    }
}
