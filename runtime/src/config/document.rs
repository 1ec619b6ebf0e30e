//! One TOML file as a list of named settings with their places.
//!
//! Knows the syntax, not the keys: names are looked up by the caller, except that a section must lead to some key.

use super::error::{Place, Problem};
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// More syntax errors of one file than this say nothing new.
const MAX_SYNTAX_ERRORS: usize = 10;

/// A leaf of the document.
pub(super) struct Leaf {
    /// The dotted name, section included.
    pub(super) name: String,
    pub(super) name_place: Place,
    pub(super) name_line: u32,
    pub(super) value: Literal,
    pub(super) value_place: Place,
}

/// A value as it stands in the file.
pub(super) enum Literal {
    /// A string.
    Text(String),
    /// A number or a truth value, as text.
    Bare(String),
    /// An array of strings, numbers and truth values.
    Array(Vec<String>),
    /// Something that no key takes: what it is, and its text.
    Other(&'static str, String),
}

/// All leaves of `text` in its order, and what is wrong between them. A file that is not TOML gives its syntax errors
/// and no leaves: what follows an error is guesswork.
pub(super) fn leaves(path: &Path, text: &str) -> Vec<Result<Leaf, Problem>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let reader = Reader { path, text, line_starts };
    if !errors.is_empty() {
        let mut errors: Vec<_> =
            errors.iter().map(|error| (error.span().map_or(0, |span| span.start), error.message())).collect();
        errors.sort_unstable();
        let errors = errors.iter().take(MAX_SYNTAX_ERRORS).map(|(offset, message)| {
            Err(Problem::Syntax {
                place: reader.place(*offset),
                message: message.split_whitespace().collect::<Vec<_>>().join(" "),
                line: reader.line_text(*offset).to_string(),
            })
        });
        return errors.collect();
    }
    let mut found = Vec::new();
    reader.walk("", document.get_ref(), &mut found);
    found.sort_by_key(|(offset, _)| *offset);
    found.into_iter().map(|(_, leaf)| leaf).collect()
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    /// The offset of each line: a file of a mebibyte can have half a million.
    line_starts: Vec<usize>,
}

impl Reader<'_> {
    fn walk(&self, section: &str, table: &DeTable<'_>, found: &mut Vec<(usize, Result<Leaf, Problem>)>) {
        for (key, value) in table {
            let offset = key.span().start;
            let separator = if section.is_empty() { "" } else { "." };
            let name = format!("{section}{separator}{}", key.get_ref());
            let name_place = self.place(offset);
            if let DeValue::Table(inner) = value.get_ref() {
                let reason = if super::find(&name).is_some() {
                    "is a key and takes a value, not a section"
                } else if inner.is_empty() && !leads_to_a_key(&name) {
                    "is a section that no key belongs to"
                } else {
                    self.walk(&name, inner, found);
                    continue;
                };
                found.push((offset, Err(Problem::Section { place: name_place, name, reason })));
                continue;
            }
            let leaf = Leaf {
                name,
                name_line: self.position(offset).0,
                name_place,
                value: self.literal(value),
                value_place: self.place(value.span().start),
            };
            found.push((offset, Ok(leaf)));
        }
    }

    fn literal(&self, value: &Spanned<DeValue<'_>>) -> Literal {
        let source = || self.text.get(value.span()).unwrap_or_default().to_string();
        match value.get_ref() {
            DeValue::String(text) => Literal::Text(text.to_string()),
            DeValue::Integer(number) if number.radix() == 10 => {
                Literal::Bare(number.as_str().trim_start_matches('+').to_string())
            }
            DeValue::Integer(number) => match u64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Literal::Bare(number.to_string()),
                Err(_) => Literal::Bare(source()),
            },
            DeValue::Float(_) => Literal::Bare(source()),
            DeValue::Boolean(flag) => Literal::Bare(flag.to_string()),
            DeValue::Array(elements) => {
                let words = elements.iter().map(|element| match self.literal(element) {
                    Literal::Text(word) | Literal::Bare(word) => Some(word),
                    _ => None,
                });
                words.collect::<Option<_>>().map_or_else(|| Literal::Other("a nested array", source()), Literal::Array)
            }
            DeValue::Datetime(_) => Literal::Other("a date", source()),
            DeValue::Table(_) => Literal::Other("a table", source()),
        }
    }

    fn place(&self, offset: usize) -> Place {
        let (line, column) = self.position(offset);
        Place::File { path: self.path.to_path_buf(), line, column }
    }

    /// Line and column of a byte, both from 1; the column counts characters.
    fn position(&self, offset: usize) -> (u32, u32) {
        // The first line starts at 0: there is always one that starts at or before the offset.
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let before = self.text.get(self.line_starts[line - 1]..offset).unwrap_or_default();
        let column = before.trim_start_matches('\u{feff}').chars().count() + 1;
        (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
    }

    fn line_text(&self, offset: usize) -> &str {
        let line = self.line_starts.partition_point(|start| *start <= offset);
        self.text[self.line_starts[line - 1]..].lines().next().unwrap_or_default().trim()
    }
}

fn leads_to_a_key(section: &str) -> bool {
    super::keys::TABLE.iter().any(|spec| spec.name.strip_prefix(section).is_some_and(|rest| rest.starts_with('.')))
}
