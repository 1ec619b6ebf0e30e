//! The programs of a job: one, several between `:`, or those of a job file.
//!
//! Pure: words and texts in, [`AppLine`]s out.

use super::{ranges, usage, words};
use crate::exit::Failure;
use clap::{Args, CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;
use std::path::PathBuf;

/// Options that each program of a job may have of its own.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = super::help::PROGRAMS)]
pub struct AppOptions {
    /// How many ranks to start; without it, one for each slot
    #[arg(short = 'n', long = "np", visible_short_alias = 'c', value_name = "N", value_parser = words::count)]
    pub ranks: Option<u32>,

    /// Set a variable for every rank, or pass on the value it has here
    #[arg(short = 'x', value_name = "NAME[=VALUE]")]
    pub export: Vec<OsString>,

    /// The directory to start in, on every host; without it, the present one
    #[arg(long, visible_alias = "wd", value_name = "DIR")]
    pub wdir: Option<PathBuf>,

    /// A command in front of the program, for example 'perf record -o perf.%r' (%r: rank, %n: number of ranks)
    #[arg(long, value_name = "COMMAND")]
    pub wrap: Option<String>,

    /// The ranks that get it; without it, all
    #[arg(long, value_name = "0,4-7", value_parser = ranges::parse, requires = "wrap")]
    pub wrap_ranks: Option<ranges::Ranges>,
}

/// The options after a `:`.
#[derive(Debug, Parser)]
#[command(name = "rsrun", disable_version_flag = true, disable_help_flag = true)]
struct Later {
    #[command(flatten)]
    app: AppOptions,
}

/// One program of the job, as asked for.
#[derive(Clone, Debug, Default)]
pub struct AppLine {
    /// Its own options, with those before the first program filled in.
    pub options: AppOptions,
    /// The program as written.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// The programs on the command line: `first` are the options before all of them, `words` what follows these options.
/// `literal`: a `:` is an argument like any other, because `--` stood before the program.
pub(super) fn on_command_line(
    first: &AppOptions,
    words: Vec<OsString>,
    literal: bool,
) -> Result<Vec<AppLine>, Failure> {
    let mut apps: Vec<AppLine> = Vec::new();
    let (mut options, mut rest, mut literal) = (first.clone(), words, literal);
    loop {
        let end = rest.iter().position(|word| word == ":").filter(|_| !literal);
        let later = end.map(|end| rest.split_off(end));
        let mut own = rest.into_iter();
        let program = match own.next() {
            Some(program) if program.is_empty() => return Err(usage("the program's name is empty")),
            Some(program) => program,
            None if apps.is_empty() && later.is_none() => {
                return Err(usage("which program? For example: rsrun -n 4 ./app (see rsrun --help)"));
            }
            None => {
                return Err(usage(
                    "there is no program on one side of a `:`; if it is an argument, write `--` before the program",
                ));
            }
        };
        apps.push(AppLine { options, program, arguments: own.collect() });
        let Some(later) = later else { break };
        let command = Later::command();
        let split = words::split(&command, later[1..].to_vec());
        let matches = command
            .try_get_matches_from(std::iter::once(OsString::from("rsrun")).chain(split.options))
            .map_err(|error| {
                let text = words::one_line(&error.render().to_string(), "rsrun");
                usage(format!(
                    "after a `:` only options of one program may stand (-n, -x, -wdir, -wrap, -wrap-ranks): {text}"
                ))
            })?;
        let own = Later::from_arg_matches(&matches).map_err(|error| usage(error.to_string()))?.app;
        options = inherit(own, first);
        (rest, literal) = (split.program, split.marked);
    }
    if apps.len() > 1
        && let Some(app) = apps.iter().find(|app| app.options.ranks.is_none())
    {
        return Err(usage(format!(
            "how many ranks of {}? Between `:` every program needs its own -n",
            app.program.display()
        )));
    }
    Ok(apps)
}

/// What stands before the first program holds for all, unless a program has its own. The number of ranks is always a
/// program's own.
pub(super) fn inherit(own: AppOptions, first: &AppOptions) -> AppOptions {
    let wraps = own.wrap.is_some();
    AppOptions {
        ranks: own.ranks,
        // A later one of the same name wins.
        export: first.export.iter().cloned().chain(own.export).collect(),
        wdir: own.wdir.or_else(|| first.wdir.clone()),
        wrap: own.wrap.or_else(|| first.wrap.clone()),
        wrap_ranks: if wraps { own.wrap_ranks } else { first.wrap_ranks.clone() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<AppLine>, String> {
        let words = text.split_whitespace().map(OsString::from).collect();
        let first = AppOptions { ranks: Some(1), export: vec!["A=1".into()], ..AppOptions::default() };
        on_command_line(&first, words, false).map_err(|failure| failure.message)
    }

    #[test]
    fn programs_stand_between_colons_with_options_of_their_own() {
        let apps = parse("a 1 : -n 3 -x B=2 -wdir /d b : -np 2 --wrap w -wrap-ranks 0,4-7 c -n 9").unwrap();
        let names: Vec<_> = apps.iter().map(|app| (app.program.to_str().unwrap(), app.options.ranks)).collect();
        assert_eq!(names, [("a", Some(1)), ("b", Some(3)), ("c", Some(2))]);
        assert_eq!(apps[1].options.export, ["A=1", "B=2"]);
        assert_eq!(apps[1].options.wdir, Some("/d".into()));
        assert_eq!(apps[2].options.wrap_ranks.as_ref().unwrap().0, [(0, 0), (4, 7)]);
        assert_eq!(apps[2].arguments, ["-n", "9"]);
        assert_eq!(apps[0].options.wrap, None);
    }

    #[test]
    fn a_colon_after_two_dashes_is_an_argument() {
        let words = ["a", ":", "b"].map(OsString::from).to_vec();
        let apps = on_command_line(&AppOptions::default(), words, true).unwrap();
        assert_eq!(apps.len(), 1);
        assert_eq!(apps[0].arguments, [":", "b"]);
        let apps = parse("a : -n 2 -- b : c").unwrap();
        assert_eq!(apps[1].arguments, [":", "c"]);
    }

    #[test]
    fn what_is_missing_or_misplaced_is_named() {
        assert!(parse("").unwrap_err().contains("which program"));
        for text in ["a :", ": a", "a : : b", "a : -n 2"] {
            assert!(parse(text).unwrap_err().contains("one side of a `:`"), "{text}: {:?}", parse(text));
        }
        assert!(parse("a : b").unwrap_err().contains("how many ranks of b"));
        let misplaced = parse("a : -hostfile h -n 2 b").unwrap_err();
        assert!(misplaced.contains("only options of one program") && misplaced.contains("hostfile"), "{misplaced}");
    }
}
