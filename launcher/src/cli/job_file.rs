//! The job file: programs of a job in TOML, for `--app FILE`.
//!
//! Pure: text in, [`AppLine`]s or an error with file, line and column out.

use super::apps::{AppLine, AppOptions};
use super::{ranges, words};
use crate::exit::{ExitCode, Failure};
use std::ffi::OsString;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The keys of an `[[app]]`, as messages list them.
const KEYS: &str = "ranks, program, arguments, directory, environment, wrap, wrap_ranks";

/// The programs in a job file's text.
///
/// # Errors
/// What is wrong and where, with [`ExitCode::Data`].
pub fn parse(path: &Path, text: &str) -> Result<Vec<AppLine>, Failure> {
    let file = File { path, text };
    let (document, errors) = DeTable::parse_recoverable(text);
    if let Some(error) = errors.iter().min_by_key(|error| error.span().map_or(0, |span| span.start)) {
        let mut message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        if text.trim_start().starts_with('-') {
            message += "; a job file is TOML, one [[app]] a program (see rsrun --help), not a list of command lines";
        }
        return Err(file.wrong(error.span().map_or(0, |span| span.start), &message));
    }
    let mut apps = Vec::new();
    for (key, value) in document.get_ref() {
        let DeValue::Array(tables) = value.get_ref() else {
            return Err(
                file.wrong(key.span().start, &format!("`{}`: a job file consists of [[app]] tables", key.get_ref()))
            );
        };
        if key.get_ref() != "app" {
            let text = format!("unknown table [[{}]]: a job file consists of [[app]] tables", key.get_ref());
            return Err(file.wrong(key.span().start, &text));
        }
        for table in tables {
            let DeValue::Table(keys) = table.get_ref() else {
                return Err(file.wrong(table.span().start, "an app is a table: write [[app]]"));
            };
            apps.push(file.app(table.span().start, keys)?);
        }
    }
    if apps.is_empty() {
        return Err(file.wrong(0, "there is no [[app]] in this file"));
    }
    if apps.len() > 1
        && let Some(app) = apps.iter().find(|app| app.options.ranks.is_none())
    {
        let text = format!("how many ranks of {}? With several apps each needs `ranks`", app.program.display());
        return Err(file.wrong(0, &text));
    }
    Ok(apps)
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    fn app(&self, at: usize, keys: &DeTable<'_>) -> Result<AppLine, Failure> {
        let mut app = AppLine::default();
        let mut wrap_ranks_at = None;
        for (key, value) in keys {
            let here = value.span().start;
            match key.get_ref().as_ref() {
                "ranks" => {
                    let number = match value.get_ref() {
                        DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
                        _ => return Err(self.wrong(here, "`ranks` is a whole number")),
                    };
                    app.options.ranks = Some(words::count(number).map_err(|text| self.wrong(here, &text))?);
                }
                "program" => app.program = self.text_of(value, "program")?.into(),
                "arguments" => {
                    let DeValue::Array(list) = value.get_ref() else {
                        return Err(self.wrong(here, "`arguments` is an array of strings: [\"-i\", \"in.dat\"]"));
                    };
                    let words = list.iter().map(|word| self.text_of(word, "arguments").map(OsString::from));
                    app.arguments = words.collect::<Result<_, _>>()?;
                }
                "directory" => app.options.wdir = Some(self.text_of(value, "directory")?.into()),
                "environment" => {
                    let DeValue::Table(table) = value.get_ref() else {
                        return Err(
                            self.wrong(here, "`environment` is a table of strings: { OMP_NUM_THREADS = \"4\" }")
                        );
                    };
                    for (name, value) in table {
                        let text = self.text_of(value, name.get_ref())?;
                        if name.get_ref().is_empty() || name.get_ref().contains(['=', '\0']) {
                            return Err(self.wrong(name.span().start, "this is no name of a variable"));
                        }
                        if super::is_ours(name.get_ref().as_bytes()) {
                            let text = format!("`{}`: {}", name.get_ref(), super::OURS);
                            return Err(self.wrong(name.span().start, &text));
                        }
                        app.options.export.push(format!("{}={text}", name.get_ref()).into());
                    }
                }
                "wrap" => {
                    let command = self.text_of(value, "wrap")?;
                    if shlex::split(&command).is_none_or(|words| words.is_empty()) {
                        return Err(self.wrong(here, "this is not a command: a quote is not closed, or it is empty"));
                    }
                    app.options.wrap = Some(command);
                }
                "wrap_ranks" => {
                    wrap_ranks_at = Some(here);
                    let text = self.text_of(value, "wrap_ranks")?;
                    app.options.wrap_ranks = Some(ranges::parse(&text).map_err(|text| self.wrong(here, &text))?);
                }
                other => {
                    return Err(self.wrong(key.span().start, &format!("unknown key `{other}`; there are {KEYS}")));
                }
            }
        }
        if app.program.is_empty() {
            return Err(self.wrong(at, "this app has no `program`"));
        }
        if let (Some(at), None) = (wrap_ranks_at, &app.options.wrap) {
            return Err(self.wrong(at, "`wrap_ranks` without `wrap`"));
        }
        Ok(app)
    }

    fn text_of(&self, value: &Spanned<DeValue<'_>>, key: &str) -> Result<String, Failure> {
        match value.get_ref() {
            DeValue::String(text) if text.contains('\0') => {
                Err(self.wrong(value.span().start, &format!("`{key}`: no program can be given a zero byte")))
            }
            DeValue::String(text) => Ok(text.to_string()),
            _ => Err(self.wrong(value.span().start, &format!("`{key}` takes strings: put it in quotes"))),
        }
    }

    fn wrong(&self, offset: usize, message: &str) -> Failure {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let message = crate::input::fit(message);
        Failure::new(ExitCode::Data, format!("{}:{line}:{column}: {message}", self.path.display()))
    }
}

/// The options before everything else hold for all apps of a file that have not their own.
pub(super) fn with_options(apps: Vec<AppLine>, first: &AppOptions) -> Result<Vec<AppLine>, Failure> {
    if apps.len() > 1 && first.ranks.is_some() {
        return Err(super::usage("-n beside a job file with several apps: their `ranks` say how many"));
    }
    let filled = |app: AppLine| {
        let ranks = app.options.ranks.or(first.ranks);
        AppLine { options: AppOptions { ranks, ..super::apps::inherit(app.options, first) }, ..app }
    };
    Ok(apps.into_iter().map(filled).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<AppLine>, String> {
        super::parse(Path::new("job.toml"), text).map_err(|failure| failure.message)
    }

    #[test]
    fn every_key_of_an_app_is_understood() {
        let apps = parse(
            "# a job\n[[app]]\nranks = 2\nprogram = \"./solver\"\narguments = [\"-i\", \"a b\"]\ndirectory = \"/data\"\n\
             environment = { OMP_NUM_THREADS = \"4\" }\nwrap = \"perf record -o perf.%r\"\nwrap_ranks = \"0\"\n\n\
             [[app]]\nranks = 1\nprogram = \"viewer\"\n[app.environment]\nA = \"x=\\n\"\n",
        )
        .unwrap();
        assert_eq!(apps.len(), 2);
        assert_eq!((apps[0].options.ranks, apps[1].options.ranks), (Some(2), Some(1)));
        assert_eq!(apps[0].program, "./solver");
        assert_eq!(apps[0].arguments, ["-i", "a b"]);
        assert_eq!(apps[0].options.wdir, Some("/data".into()));
        assert_eq!(apps[0].options.export, ["OMP_NUM_THREADS=4"]);
        assert_eq!(apps[0].options.wrap.as_deref(), Some("perf record -o perf.%r"));
        assert_eq!(apps[0].options.wrap_ranks.as_ref().unwrap().0, [(0, 0)]);
        assert_eq!(apps[1].options.export, ["A=x=\n"]);
    }

    proptest::proptest! {
        #[test]
        fn any_words_of_the_language_give_programs_or_an_error(
            words in proptest::collection::vec(
                proptest::sample::select(
                    &["[[app]]", "[app]", "ranks", "program", "wrap", "wrap_ranks", "environment", "=", "'a'", "\"0-\"", "1", "[", "]",
                      "{", "}", ",", "é", "\0", "#", " ", "\n"][..]
                ),
                0..24
            )
        ) {
            match parse(&words.concat()) {
                Ok(apps) => proptest::prop_assert!(apps.iter().all(|app| !app.program.is_empty())),
                Err(message) => proptest::prop_assert!(message.starts_with("job.toml:"), "{}", message),
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_line_and_column() {
        for (text, place, part) in [
            ("", "1:1", "no [[app]]"),
            ("[[app]]\nranks = 1\n", "1:1", "no `program`"),
            ("[[app]]\nprogram = \"a\"\nranks = \"2\"\n", "3:9", "whole number"),
            ("[[app]]\nprogram = \"a\"\nranks = 0\n", "3:9", "at least one"),
            ("[[app]]\nprogram = \"a\"\n  nproc = 2\n", "3:3", "unknown key `nproc`; there are ranks"),
            ("[[app]]\nprogram = \"a\"\narguments = [\"x\", 3]\n", "3:19", "in quotes"),
            ("[[app]]\nprogram = 'a'\nwrap_ranks = \"1-\"\nwrap = 'w'", "3:14", "not a rank"),
            ("[[app]]\nprogram = 'a'\nwrap_ranks = \"1\"\n", "3:14", "without `wrap`"),
            ("[[job]]\nx = 1\n", "1:3", "[[job]]"),
            ("ranks = 1\n", "1:1", "[[app]] tables"),
            ("[[app]]\nprogram = 'a'\nprogram = 'b'\n", "3:1", "duplicate"),
            ("[[app]\n", "1:", ""),
            ("[[app]]\nprogram = \"a\\u0000\"\n", "2:11", "zero byte"),
            ("[[app]]\nprogram = 'a'\nenvironment = { SPMD_RANK = '1' }", "3:17", "not for ranks"),
            ("[[app]]\nprogram = 'a'\nwrap = \"gdb 'x\"", "3:8", "a quote is not closed"),
            ("-n 2 hostname\n", "1:4", "a job file is TOML"),
            ("[[app]]\nprogram = 'a'\n[[app]]\nprogram = 'b'\n", "1:1", "how many ranks of a"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.starts_with(&format!("job.toml:{place}")), "{text:?}: {message}");
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }
}
