//! The programs of a job as agents need them.

use crate::cli::{self, AppLine};
use crate::exit::{ExitCode, Failure};
use spmd::bootstrap::messages::{App, Bytes};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// A program and how many ranks run it; `None`: all there are.
#[derive(Clone, Debug, Default)]
pub struct PlannedApp {
    /// What agents are told.
    pub app: App,
    /// Its number of ranks.
    pub ranks: Option<u32>,
}

/// The programs as asked for, with the present directory and environment filled in; and the names of `-x` variables that
/// are not set here. `ranks`: of all programs together, if that is known.
///
/// # Errors
/// What cannot be: a variable without name, a command with an open quote, no present directory.
pub fn plan(lines: &[AppLine], ranks: Option<u32>) -> Result<(Vec<PlannedApp>, Vec<String>), Failure> {
    let mut missing = Vec::new();
    let here = std::env::current_dir();
    let mut apps = Vec::new();
    for line in lines {
        let directory = match (&line.options.wdir, &here) {
            (Some(directory), Ok(here)) => here.join(directory),
            (Some(directory), Err(_)) => directory.clone(),
            (None, Ok(here)) => here.clone(),
            (None, Err(error)) => {
                let message = format!("the present directory cannot be found ({error}): give one with -wdir DIR");
                return Err(Failure::new(ExitCode::Directory, message));
            }
        };
        let last = line.options.wrap_ranks.iter().flat_map(|ranges| &ranges.0).map(|(_, last)| *last).max();
        if let (Some(last), Some(ranks)) = (last, ranks)
            && last >= ranks
        {
            let message = format!("--wrap-ranks: there is no rank {last}, the last one is {}", ranks.saturating_sub(1));
            return Err(Failure::new(ExitCode::Usage, message));
        }
        let exports = cli::exports(&line.options.export)?;
        missing.extend(exports.missing);
        let app = App {
            program: line.program.as_bytes().to_vec(),
            arguments: line.arguments.iter().map(|a| a.as_bytes().to_vec()).collect(),
            environment: exports.variables,
            directory: tidy(&directory),
            wrap: line.options.wrap.as_deref().map_or_else(|| Ok(Vec::new()), words)?,
            wrap_ranks: line.options.wrap_ranks.as_ref().map(|ranges| ranges.0.clone()).unwrap_or_default(),
        };
        apps.push(PlannedApp { app, ranks: line.options.ranks });
    }
    missing.sort_unstable();
    missing.dedup();
    Ok((apps, missing))
}

/// The bytes of a directory.
fn tidy(directory: &Path) -> Bytes {
    directory.as_os_str().to_os_string().into_vec()
}

/// The words of a `--wrap` command.
fn words(command: &str) -> Result<Vec<Bytes>, Failure> {
    match shlex::split(command) {
        Some(words) if !words.is_empty() => Ok(words.into_iter().map(String::into_bytes).collect()),
        _ => Err(Failure::new(
            ExitCode::Usage,
            format!("--wrap `{command}` is not a command: a quote is not closed, or it is empty"),
        )),
    }
}

/// The program of each rank: an index into `apps`. Ranks are numbered through the programs in order.
pub fn of_ranks(apps: &[PlannedApp], ranks: usize) -> Vec<usize> {
    let last = apps.len().saturating_sub(1);
    let all = apps.iter().enumerate().flat_map(|(index, app)| {
        std::iter::repeat_n(index, app.ranks.map_or(ranks, |count| count as usize).min(ranks))
    });
    all.chain(std::iter::repeat(last)).take(ranks).collect()
}

/// Of all programs only those that these ranks run, and for each rank its index among them: what one host is told.
pub fn slice(apps: &[PlannedApp], of_ranks: impl Iterator<Item = usize>) -> (Vec<App>, Vec<u32>) {
    let mut place: Vec<Option<u32>> = vec![None; apps.len()];
    let (mut used, mut app_of) = (Vec::new(), Vec::new());
    for index in of_ranks {
        let Some(planned) = apps.get(index) else { continue };
        let at = *place[index].get_or_insert_with(|| {
            used.push(planned.app.clone());
            u32::try_from(used.len() - 1).unwrap_or(u32::MAX)
        });
        app_of.push(at);
    }
    (used, app_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(name: &str, ranks: Option<u32>) -> PlannedApp {
        PlannedApp { app: App { program: name.into(), ..App::default() }, ranks }
    }

    #[test]
    fn ranks_are_numbered_through_the_programs() {
        let apps = [app("a", Some(1)), app("b", Some(3)), app("c", Some(2))];
        assert_eq!(of_ranks(&apps, 6), [0, 1, 1, 1, 2, 2]);
        assert_eq!(of_ranks(&[app("a", None)], 3), [0, 0, 0]);
    }

    #[test]
    fn a_host_is_told_only_of_programs_that_it_runs() {
        let apps = [app("a", Some(1)), app("b", Some(3)), app("c", Some(2))];
        let (used, app_of) = slice(&apps, [1, 2, 1].into_iter());
        let names: Vec<_> = used.iter().map(|app| app.program.as_slice()).collect();
        assert_eq!(names, [b"b", b"c"]);
        assert_eq!(app_of, [0, 1, 0]);
    }

    #[test]
    fn a_command_with_an_open_quote_is_refused() {
        assert_eq!(words("perf 'record -o'").unwrap(), [b"perf".to_vec(), b"record -o".to_vec()]);
        assert!(words("perf 'record").unwrap_err().message.contains("--wrap"));
    }
}
