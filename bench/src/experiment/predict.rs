//! What the simulator says of a case, with the constants that were measured in the same run: the schedules that the ranks
//! have run, on the network that they ran on. Nothing is fitted to what is predicted.

use super::cases::{CASES, Case, Library, Ranks};
use super::record::{Collective, Record};
use spmd_collectives::algorithms::{self, Parameters, Shape};
use spmd_collectives::groups::Groups;
use spmd_collectives::schedule::Schedule;
use spmd_collectives::select::{AUTO, Request, select};
use spmd_collectives::simulate::{Fabric, in_memory, simulate_each};
use spmd_collectives::table::Table;

/// Values are of four bytes.
const ELEMENT: usize = 4;

/// The table that all ranks of ours get: the measured constants.
#[must_use]
pub fn table(record: &Record) -> Table {
    let queue = record.queue.unwrap_or(f64::INFINITY);
    let told = record.told.map(|told| told.fabric(queue, record.ranks_a_host));
    told.map(|fabric| fabric.network(record.hosts))
        .map_or_else(Table::default, |network| Table { network, ..Table::default() })
}

fn fabric(record: &Record, width: usize) -> Option<Fabric> {
    Some(record.constants?.fabric(record.queue.unwrap_or(f64::INFINITY), width))
}

/// Puts a prediction beside every time that there is one for.
pub fn all(record: &mut Record) {
    for case in CASES {
        for bytes in record.sizes() {
            let predicted = record.row(case, bytes).and_then(|_| predict(record, case, bytes));
            let title = case.title();
            if let Some(row) = record.rows.iter_mut().find(|row| row.case == title && row.bytes == bytes) {
                row.predicted = predicted;
            }
        }
    }
}

/// Seconds that a case of ours takes at a size; `None` for other libraries, and where no constants were measured.
#[must_use]
pub fn predict(record: &Record, case: &Case, bytes: usize) -> Option<f64> {
    let Library::Own(settings) = case.library else { return None };
    let width = if case.ranks == Ranks::All { record.ranks_a_host } else { 1 };
    let fabric = fabric(record, width)?;
    let (size, elements) = (record.hosts * width, bytes / ELEMENT);
    let hosts = Groups::every(size, width).with_memory();
    let setting = |key: &str| {
        settings.iter().find_map(|one| one.strip_prefix("collectives.")?.strip_prefix(key)?.strip_prefix('='))
    };
    let collective = match case.collective {
        Collective::Reduce => algorithms::Collective::Reduce,
        Collective::AllReduce => algorithms::Collective::AllReduce,
    };
    let table = table(record);
    let schedules = |collective: algorithms::Collective, elements: usize| -> Option<Vec<Schedule>> {
        let request = Request { collective, groups: &hosts, elements, element_bytes: ELEMENT, commutative: true };
        let choice = select(&request, setting(collective.name()).unwrap_or(AUTO), &table).ok()?;
        let count = |key: &str, unit: usize| Some((setting(key)?.parse::<usize>().ok()? / unit).max(1));
        let Parameters { segment, chunk, leaders, fan_in } = choice.parameters;
        let parameters = Parameters {
            segment: count("segment_bytes", ELEMENT).unwrap_or(segment),
            chunk: count("chunk_bytes", ELEMENT).unwrap_or(chunk),
            leaders: count("leaders", 1).unwrap_or(leaders),
            fan_in,
        };
        let of = |rank| {
            let shape = Shape { rank, size, root: 0, elements, groups: &hosts, parameters };
            in_memory::schedule(collective, choice.algorithm, &shape, ELEMENT, &table, &fabric)
        };
        (0..size).map(of).collect::<Result<_, _>>().ok()
    };
    // The ranks begin as the barrier before lets them go.
    let (barrier, round) = (schedules(algorithms::Collective::Barrier, 0)?, schedules(collective, elements)?);
    simulate_each(&[&barrier, &round], ELEMENT, &fabric, &hosts).map(|outcome| outcome.seconds)
}
