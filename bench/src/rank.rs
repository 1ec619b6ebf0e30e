//! A measuring rank from start to end: floors, then size after size. The same for every library.

use crate::floors::Floors;
use crate::measure::{Distribution, Pattern, Plan};
use crate::patterns;
use crate::port::{Failure, Port};
use crate::record::{Place, Row, Run};
use std::collections::BTreeMap;

/// What rank 0 is told while it goes on.
#[derive(Debug)]
pub enum Event<'a> {
    /// The floors are known, the rows are still missing.
    Begun(&'a Run),
    /// This size comes next.
    Size(usize),
    /// A size is done.
    Row(&'a Row),
}

/// What the caller knows of its library.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// The name by which it was asked for.
    pub name: String,
    /// What it calls itself.
    pub version: String,
    /// Settings that are not its defaults.
    pub settings: BTreeMap<String, String>,
}

/// Measures all sizes of a plan; all ranks call it, and rank 0 gets the run.
///
/// # Errors
/// The number of ranks does not fit, the library failed, or a message came damaged.
pub fn run<P: Port>(
    port: &mut P,
    plan: &Plan,
    library: Library,
    mut tell: impl FnMut(Event<'_>),
) -> Result<Option<Run>, Failure> {
    patterns::fits(plan.pattern, port.size())?;
    let ranks = places(port)?;
    let on_host_of =
        |place: Option<&Place>| ranks.iter().filter(|other| Some(&other.host) == place.map(|p| &p.host)).count();
    let beside = [on_host_of(ranks.first()), on_host_of(ranks.last())];
    let mut floors = Floors::arrange(port, plan, beside)?;
    let before = floors.cache_line();
    let first = port.rank() == 0;
    let mut run = Run {
        library: library.name,
        version: library.version,
        turn: 0,
        ranks,
        transport: floors.transport(),
        cache_line_us: before.map(|before| [before, before]),
        settings: library.settings,
        notes: floors.notes().to_vec(),
        rows: Vec::new(),
    };
    if first {
        tell(Event::Begun(&run));
    }
    let windows =
        matches!(plan.pattern, Pattern::Bandwidth | Pattern::Bibw | Pattern::Rate | Pattern::Incast | Pattern::Put);
    for &bytes in &plan.sizes {
        if first {
            tell(Event::Size(bytes));
        }
        let floor = floors.of_size(port, plan, bytes)?;
        let Some(measured) = patterns::measure(port, plan, bytes)? else { continue };
        let unit = plan.pattern.unit();
        let Some(figures) = Distribution::of(measured.samples, unit) else { continue };
        let row = Row {
            bytes,
            window: windows.then(|| plan.window_of(bytes)),
            warm_up: measured.rounds.warm_up,
            rounds: measured.rounds.measured,
            unit,
            figures,
            floor,
        };
        tell(Event::Row(&row));
        run.rows.push(row);
    }
    // The cores may have moved apart meanwhile, on a virtual machine.
    if let (Some([_, end]), Some(after)) = (&mut run.cache_line_us, floors.cache_line()) {
        *end = after;
    }
    port.barrier()?;
    Ok(first.then_some(run))
}

/// Where every rank is, on rank 0; elsewhere nothing.
fn places<P: Port>(port: &mut P) -> Result<Vec<Place>, Failure> {
    // A fixed length for each, so that one receive will do; longer lists are cut.
    const ROOM: usize = 256;
    let own = Place { host: hostname(), processors: allowed_processors() };
    let mut text = format!("{}\n{}", own.host, own.processors).into_bytes();
    text.resize(ROOM, 0);
    if port.rank() != 0 {
        port.send(&text, 0)?;
        return Ok(vec![]);
    }
    let mut places = vec![own];
    for rank in 1..port.size() {
        port.receive(&mut text, rank)?;
        let words = String::from_utf8_lossy(&text);
        let (host, processors) = words.trim_end_matches('\0').split_once('\n').unwrap_or_default();
        places.push(Place { host: host.to_owned(), processors: processors.to_owned() });
    }
    Ok(places)
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The processors that this process may use, as the kernel lists them.
fn allowed_processors() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::own::Own;
    use crate::record::samples;

    #[test]
    fn rank_0_gets_a_row_a_size_and_is_told_as_it_goes() {
        let (pattern, sizes) = (Pattern::Bandwidth, vec![0, 1024]);
        let plan = Plan { pattern, sizes, rounds: 5, warm_up: 1, seconds: 5.0, window: 4, ..samples::plan() };
        let runs = spmd::local::run(2, |world| {
            let mut told = Vec::new();
            let library = Library { name: "rsrun".into(), ..Library::default() };
            let run = run(&mut Own::new(world.communicator()), &plan, library, |event| {
                told.push(match event {
                    Event::Begun(run) => format!("{} rows", run.rows.len()),
                    Event::Size(bytes) => format!("size {bytes}"),
                    Event::Row(row) => format!("row {}", row.bytes),
                });
            });
            (run.expect("it runs"), told)
        });
        let (run, told) = &runs[0];
        let run = run.as_ref().expect("rank 0 has it");
        assert_eq!(told.as_slice(), ["0 rows", "size 0", "row 0", "size 1024", "row 1024"]);
        assert_eq!(
            run.rows.iter().map(|row| (row.bytes, row.window, row.rounds)).collect::<Vec<_>>(),
            [(0, Some(4), 5), (1024, Some(4), 5)]
        );
        assert_eq!(run.ranks.len(), 2);
        assert!(runs[1].0.is_none());
    }
}
