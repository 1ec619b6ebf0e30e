//! What a row of the key table says, and the check of a value against it.
//!
//! Knows the kinds of values, not the keys: those are in [`keys`](super::keys).

use super::error::shown;
use super::layers::ENVIRONMENT_PREFIX;
use super::snapshot::Value;
use super::units;
use sealed::{RustType, Sealed};
use std::marker::PhantomData;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The longest text a value may have, in bytes.
const MAX_TEXT: usize = 262_144;

/// One row of the table.
#[derive(Debug)]
pub struct KeySpec {
    /// The dotted name.
    pub name: &'static str,
    /// Type, unit, default and range.
    pub kind: Kind,
    /// What it does, in one or two sentences.
    pub doc: &'static str,
    /// The code that reads it.
    pub reader: &'static str,
    /// Other names that files, `--set` and `--mca` understand.
    pub aliases: &'static [&'static str],
    /// Other environment variables that are understood.
    pub environment_aliases: &'static [&'static str],
}

impl KeySpec {
    /// The environment variable of the key: `RSRUN_SHM_RING_BYTES` for `shm.ring_bytes`.
    pub fn environment(&self) -> String {
        format!("{ENVIRONMENT_PREFIX}{}", self.name.replace('.', "_").to_ascii_uppercase())
    }
}

/// What values a key takes, and which one it has when nobody sets it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// `true` or `false`.
    Flag {
        /// The default.
        default: bool,
    },
    /// A plain number.
    Count {
        /// The default.
        default: u64,
        /// The allowed numbers.
        range: RangeInclusive<u64>,
    },
    /// A size in bytes.
    Bytes {
        /// The default in bytes.
        default: u64,
        /// The allowed sizes in bytes.
        range: RangeInclusive<u64>,
        /// Whether only powers of two are allowed.
        power_of_two: bool,
    },
    /// A time.
    Duration {
        /// The default.
        default: Duration,
        /// The allowed times.
        range: RangeInclusive<Duration>,
    },
    /// One of a fixed set of words.
    Choice {
        /// The default.
        default: &'static str,
        /// All words.
        choices: &'static [&'static str],
    },
    /// Words separated by commas, none of them twice.
    List {
        /// The default.
        default: &'static str,
        /// Which words.
        of: Words,
    },
    /// Free text of one line.
    Text {
        /// The default.
        default: &'static str,
    },
}

/// The words of a [`Kind::List`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Words {
    /// At least one of these.
    OneOf(&'static [&'static str]),
    /// Names of network interfaces, addresses, or address prefixes such as `10.0.0.0/8`, each with `^` in front to leave it
    /// out; may be empty.
    Interfaces,
    /// Levels of groups of ranks from the inner to the outer: `host`, `group` (outside of hosts), and numbers of neighbours
    /// from 2 on; or `none` alone.
    Levels,
}

impl Kind {
    /// The default as a value.
    pub fn default_value(&self) -> Value {
        match self {
            Self::Flag { default } => Value::Flag(*default),
            Self::Count { default, .. } => Value::Count(*default),
            Self::Bytes { default, .. } => Value::Bytes(*default),
            Self::Duration { default, .. } => Value::Duration(*default),
            Self::Choice { default, .. } | Self::List { default, .. } | Self::Text { default } => {
                Value::Text((*default).to_string())
            }
        }
    }

    /// The value that `text` means, checked; an error says what is wrong with the text.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let value = match self {
            Self::Flag { .. } => Value::Flag(units::flag(text)?),
            Self::Count { .. } => Value::Count(units::whole(text)?),
            Self::Bytes { .. } => Value::Bytes(units::size(text)?),
            Self::Duration { .. } => Value::Duration(units::duration(text)?),
            Self::Choice { .. } => Value::Text(text.trim().to_string()),
            Self::List { .. } if text.trim().is_empty() => Value::Text(String::new()),
            Self::List { .. } => Value::Text(text.split(',').map(str::trim).collect::<Vec<_>>().join(",")),
            Self::Text { .. } => Value::Text(text.to_string()),
        };
        self.check(&value)?;
        Ok(value)
    }

    /// Whether `value` is of this kind and allowed; an error says what is wrong with it.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        match (self, value) {
            (Self::Flag { .. }, Value::Flag(_)) => Ok(()),
            (Self::Count { range, .. }, Value::Count(number)) => within(range, number),
            (Self::Bytes { range, power_of_two, .. }, Value::Bytes(bytes)) => {
                within(range, bytes)?;
                if *power_of_two && !bytes.is_power_of_two() {
                    return Err("not a power of two".into());
                }
                Ok(())
            }
            (Self::Duration { range, .. }, Value::Duration(time)) => within(range, time),
            (Self::Choice { choices, .. }, Value::Text(word)) => {
                if choices.contains(&word.as_str()) {
                    Ok(())
                } else {
                    Err(unknown_word(word, choices))
                }
            }
            (Self::List { of, .. }, Value::Text(text)) => one_line(text).and_then(|()| of.check(text)),
            (Self::Text { .. }, Value::Text(text)) => one_line(text),
            _ => Err("a value of another type".into()),
        }
    }

    /// What the key takes, for messages and the reference page.
    pub fn allowed(&self) -> String {
        match self {
            Self::Flag { .. } => "true or false (also 1/0, yes/no, on/off)".into(),
            Self::Count { range, .. } => format!("{} to {}", range.start(), range.end()),
            Self::Bytes { range, power_of_two, .. } => {
                let powers = if *power_of_two { ", a power of two" } else { "" };
                format!("{} to {}{powers}", units::format_size(*range.start()), units::format_size(*range.end()))
            }
            Self::Duration { range, .. } => {
                format!("{} to {}", units::format_duration(*range.start()), units::format_duration(*range.end()))
            }
            Self::Choice { choices, .. } => choices.join(", "),
            Self::List { of: Words::OneOf(words), .. } => {
                format!("one or more of {}, separated by commas", words.join(", "))
            }
            Self::List { of: Words::Interfaces, .. } => {
                "interface names, addresses or address prefixes separated by commas, each with ^ in front to leave it out, \
                 for example eth0,10.0.0.0/8 or ^docker0; or empty"
                    .into()
            }
            Self::List { of: Words::Levels, .. } => {
                "none, or levels separated by commas, from the inner to the outer: host, group (racks or switches, the group= \
                 of the hostfile), and numbers of 2 and more, which put so many neighbours of the level before together; for \
                 example host,group or 4,host or host,8"
                    .into()
            }
            Self::Text { .. } => format!("text of one line, at most {MAX_TEXT} bytes"),
        }
    }

    const fn rust_type(&self) -> RustType {
        match self {
            Self::Flag { .. } => RustType::Flag,
            Self::Count { .. } | Self::Bytes { .. } => RustType::Number,
            Self::Duration { .. } => RustType::Duration,
            Self::Choice { .. } | Self::List { .. } | Self::Text { .. } => RustType::Text,
        }
    }

    /// The kind in one word, as in the JSON form.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Flag { .. } => "flag",
            Self::Count { .. } => "count",
            Self::Bytes { .. } => "bytes",
            Self::Duration { .. } => "duration",
            Self::Choice { .. } => "choice",
            Self::List { .. } => "list",
            Self::Text { .. } => "text",
        }
    }
}

impl Words {
    fn check(self, text: &str) -> Result<(), String> {
        if text.is_empty() {
            return match self {
                Self::OneOf(_) | Self::Levels => Err("at least one word is needed".into()),
                Self::Interfaces => Ok(()),
            };
        }
        let mut seen = Vec::new();
        for word in text.split(',') {
            if word.is_empty() {
                return Err("there is nothing before or after a comma".into());
            }
            // Pairs of pairs are two levels.
            let may_repeat = self == Self::Levels && word.bytes().all(|byte| byte.is_ascii_digit());
            if seen.contains(&word) && !may_repeat {
                return Err(format!("`{}` is there twice", shown(word)));
            }
            match self {
                Self::OneOf(words) if words.contains(&word) => {}
                Self::OneOf(words) => return Err(unknown_word(word, words)),
                Self::Interfaces => interface(word.strip_prefix('^').unwrap_or(word))?,
                Self::Levels => level(word, &seen, text)?,
            }
            seen.push(word);
        }
        Ok(())
    }
}

/// One of the words of [`Words::Levels`] after those `before` it in `text`.
fn level(word: &str, before: &[&str], text: &str) -> Result<(), String> {
    match word {
        "none" if text == "none" => Ok(()),
        "none" => Err("`none` stands alone".into()),
        "host" if before.contains(&"group") => {
            Err("levels go from the inner to the outer, and hosts are inside of groups: write `host` before `group`"
                .into())
        }
        "host" | "group" => Ok(()),
        number if number.bytes().all(|byte| byte.is_ascii_digit()) => match number.parse::<u32>() {
            Ok(2..=1_000_000) => Ok(()),
            _ => Err(format!("`{}` must be 2 to 1000000 neighbours", shown(number))),
        },
        other => Err(unknown_word(other, &["host", "group", "none"])),
    }
}

/// An interface name as the kernel allows it, an address, or `address/prefix length`.
fn interface(word: &str) -> Result<(), String> {
    if let Some((address, length)) = word.split_once('/') {
        let most = match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return Err(format!("`{}` is no address prefix such as 10.0.0.0/8", shown(word))),
        };
        let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        return match length.parse::<u32>() {
            Ok(length) if digits && length <= most => Ok(()),
            _ => Err(format!("the prefix length of `{}` must be 0 to {most}", shown(word))),
        };
    }
    if word.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    // The kernel's IFNAMSIZ is 16 with the zero at the end.
    if word.is_empty() || word.len() > 15 || word == "." || word == ".." || word.contains(char::is_whitespace) {
        return Err(format!("`{}` cannot be the name of an interface", shown(word)));
    }
    Ok(())
}

fn within<N: PartialOrd>(range: &RangeInclusive<N>, number: &N) -> Result<(), String> {
    if number < range.start() {
        Err("too small".into())
    } else if number > range.end() {
        Err("too large".into())
    } else {
        Ok(())
    }
}

fn one_line(text: &str) -> Result<(), String> {
    if text.len() > MAX_TEXT {
        return Err(format!("the text has {} bytes", text.len()));
    }
    if text.chars().any(char::is_control) {
        return Err("the text holds a line end or another control character".into());
    }
    Ok(())
}

fn unknown_word(word: &str, words: &[&str]) -> String {
    let near = words.iter().map(|known| (strsim::damerau_levenshtein(&clip(word), known), known)).min();
    match near {
        Some((distance, known)) if distance <= 2 && distance < known.len() => {
            format!("`{}` is not known, did you mean `{known}`?", shown(word))
        }
        _ => format!("`{}` is not known", shown(word)),
    }
}

/// Edit distance is quadratic: no known word is longer than this.
pub(super) fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}

/// A typed handle on one key of the table; `T` is [`u64`], [`bool`], [`Duration`] or [`String`].
#[derive(Debug)]
pub struct Key<T> {
    /// The dotted name, as in files and on the command line.
    pub name: &'static str,
    pub(super) index: usize,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T: Setting> Key<T> {
    /// The handle on a row; of a row whose kind has another type it does not compile.
    pub(super) const fn on(table: &[KeySpec], index: usize) -> Self {
        let spec = &table[index];
        assert!(spec.kind.rust_type() as u8 == T::TYPE as u8, "the handle's type is not the type of its row");
        Self { name: spec.name, index, kind: PhantomData }
    }
}

mod sealed {
    /// The Rust type of a value.
    #[derive(Clone, Copy, Debug)]
    pub enum RustType {
        Flag,
        Number,
        Duration,
        Text,
    }

    pub trait Sealed {
        const TYPE: RustType;
    }
}

impl Sealed for bool {
    const TYPE: RustType = RustType::Flag;
}

impl Sealed for u64 {
    const TYPE: RustType = RustType::Number;
}

impl Sealed for Duration {
    const TYPE: RustType = RustType::Duration;
}

impl Sealed for String {
    const TYPE: RustType = RustType::Text;
}

/// A type that [`Snapshot::get`](super::Snapshot::get) returns.
pub trait Setting: Sealed + Sized {
    /// The value as this type; `None` when it is of another type.
    fn from_value(value: &Value) -> Option<Self>;
}

impl Setting for bool {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Flag(flag) = value { Some(*flag) } else { None }
    }
}

impl Setting for u64 {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Count(number) | Value::Bytes(number) = value { Some(*number) } else { None }
    }
}

impl Setting for Duration {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Duration(time) = value { Some(*time) } else { None }
    }
}

impl Setting for String {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Text(text) = value { Some(text.clone()) } else { None }
    }
}
