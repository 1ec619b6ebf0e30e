//! The first word of a hostfile line, or one entry of `-host`: `[user@]host[:number]`.
//!
//! After a plain host the number is its slots; after `user@host` it is the SSH port, as in the addresses that `ssh`
//! users write. `slots=` and `port=` say it without that rule. IPv6 addresses stand in brackets. `n[01-03,7]` is
//! `n01 n02 n03 n7`, in that order.

/// A host word, taken apart. `names` has more than one element when a range was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) names: Vec<String>,
    pub(super) user: Option<String>,
    pub(super) slots: Option<u32>,
    pub(super) port: Option<u16>,
}

/// What is wrong with a word, and where in it (byte range).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EntryError {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) message: String,
}

/// The most ranges in one word.
const MAX_GROUPS: usize = 32;
/// The most hosts that ranges of one word may name.
const MAX_RANGE: usize = 65_536;

pub(super) fn parse(word: &str) -> Result<Entry, EntryError> {
    let (user, rest_at) = match word.find('@') {
        Some(at) => (Some(&word[..at]), at + 1),
        None => (None, 0),
    };
    if let Some(user) = user {
        check_user(user).map_err(|message| EntryError { start: 0, end: rest_at.max(1), message })?;
    }
    let rest = &word[rest_at..];
    let error = |start: usize, end: usize, message: String| EntryError {
        start: rest_at + start,
        end: rest_at + end.max(start + 1),
        message,
    };

    let (names, number_at) = if let Some(inside) = rest.strip_prefix('[') {
        let Some(close) = inside.find(']') else {
            return Err(error(0, rest.len(), "the bracket of an IPv6 address is not closed".to_string()));
        };
        let address = &inside[..close];
        let plain = address.split('%').next().unwrap_or(address);
        if plain.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(error(1, 1 + close, format!("`{address}` is not an IPv6 address")));
        }
        (vec![address.to_string()], close + 2)
    } else {
        let name_end = name_end(rest);
        let name = &rest[..name_end];
        if name.matches('[').count() > MAX_GROUPS {
            return Err(error(0, name_end, format!("more than {MAX_GROUPS} ranges in one name")));
        }
        let names = expand(name).map_err(|(start, end, message)| error(start, end, message))?;
        for expanded in &names {
            check_host(expanded).map_err(|message| error(0, name_end, message))?;
        }
        (names, name_end)
    };

    let (mut slots, mut port) = (None, None);
    let tail = &rest[number_at..];
    if !tail.is_empty() {
        let Some(number) = tail.strip_prefix(':') else {
            return Err(error(number_at, rest.len(), format!("unexpected `{tail}` after the host")));
        };
        if number.contains(':') {
            return Err(error(
                0,
                rest.len(),
                format!("`{rest}` has several colons: write an IPv6 address in brackets, for example [fe80::1]"),
            ));
        }
        if user.is_some() {
            port = Some(parse_port(number).map_err(|message| error(number_at + 1, rest.len(), message))?);
        } else {
            slots = Some(parse_slots(number).map_err(|message| error(number_at + 1, rest.len(), message))?);
        }
    }
    Ok(Entry { names, user: user.map(str::to_string), slots, port })
}

/// The length of the host part: up to the first colon outside brackets.
fn name_end(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ':' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

pub(super) fn parse_slots(text: &str) -> Result<u32, String> {
    match digits(text) {
        Some(slots) if slots <= 1_000_000 => Ok(u32::try_from(slots).unwrap_or(u32::MAX)),
        Some(slots) => Err(format!("{slots} slots are more than a host can have (1000000)")),
        None if text.contains('#') => Err(format!(
            "the number of slots must be a whole number, not `{text}`: a comment needs a blank before its #"
        )),
        None => Err(format!("the number of slots must be a whole number, not `{text}`")),
    }
}

pub(super) fn parse_port(text: &str) -> Result<u16, String> {
    match digits(text).map(u16::try_from) {
        Some(Ok(port)) if port > 0 => Ok(port),
        _ => Err(format!("a port is a number from 1 to 65535, not `{text}`")),
    }
}

fn digits(text: &str) -> Option<u64> {
    if text.is_empty() || text.len() > 18 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

pub(super) fn check_user(user: &str) -> Result<(), String> {
    if user.is_empty() {
        return Err("the user before `@` is empty".to_string());
    }
    if user.starts_with('-') || !user.bytes().all(|b| b.is_ascii_graphic() && !b"@:'\"`$\\;&|<>()".contains(&b)) {
        return Err(format!("`{user}` cannot be a user name"));
    }
    Ok(())
}

/// Host names go into command lines and messages: only characters that names and addresses have.
fn check_host(host: &str) -> Result<(), String> {
    if host.is_empty() {
        return Err("the host is empty".to_string());
    }
    if host.len() > 255 {
        return Err("a host name has at most 255 characters".to_string());
    }
    if host.starts_with('-') {
        return Err(format!("`{host}` cannot be a host: it begins with `-`"));
    }
    match host.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))) {
        Some(c) => Err(format!("`{host}` cannot be a host: it contains `{}`", c.escape_debug())),
        None => Ok(()),
    }
}

type RangeError = (usize, usize, String);

/// `n[01-03,7]x` → `n01x n02x n03x n7x`. Leading zeros give the width.
fn expand(text: &str) -> Result<Vec<String>, RangeError> {
    let Some(open) = text.find('[') else {
        if let Some(at) = text.find(']') {
            return Err((at, at + 1, "`]` without `[`".to_string()));
        }
        return Ok(vec![text.to_string()]);
    };
    let Some(close) = text[open..].find(']').map(|at| open + at) else {
        return Err((open, text.len(), "the range is not closed by `]`".to_string()));
    };
    let tails =
        expand(&text[close + 1..]).map_err(|(start, end, message)| (close + 1 + start, close + 1 + end, message))?;
    let mut names = Vec::new();
    let mut at = open + 1;
    for part in text[open + 1..close].split(',') {
        let bad = |message: String| (at, at + part.len().max(1), message);
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Some(low), Some(high)) = (digits(first), digits(last)) else {
            return Err(bad(format!("`{part}` is not a number or a range like 01-10")));
        };
        if low > high {
            return Err(bad(format!("the range `{part}` runs backwards")));
        }
        let count = usize::try_from(high - low).unwrap_or(usize::MAX).saturating_add(1);
        if count.saturating_add(names.len()).saturating_mul(tails.len()) > MAX_RANGE {
            return Err(bad(format!("the range names more than {MAX_RANGE} hosts")));
        }
        let width = first.len();
        for number in low..=high {
            for tail in &tails {
                names.push(format!("{}{number:0width$}{tail}", &text[..open]));
            }
        }
        at += part.len() + 1;
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(names: &[&str], user: Option<&str>, slots: Option<u32>, port: Option<u16>) -> Entry {
        Entry { names: names.iter().map(ToString::to_string).collect(), user: user.map(str::to_string), slots, port }
    }

    #[test]
    fn a_number_after_a_plain_host_is_slots_and_after_user_at_host_the_port() {
        assert_eq!(parse("n1").unwrap(), entry(&["n1"], None, None, None));
        assert_eq!(parse("n1:4").unwrap(), entry(&["n1"], None, Some(4), None));
        assert_eq!(parse("ann@n1").unwrap(), entry(&["n1"], Some("ann"), None, None));
        assert_eq!(parse("ann@n1:2222").unwrap(), entry(&["n1"], Some("ann"), None, Some(2222)));
        assert_eq!(parse("n1:0").unwrap(), entry(&["n1"], None, Some(0), None));
    }

    #[test]
    fn ipv6_addresses_stand_in_brackets() {
        assert_eq!(parse("[fe80::1]:3").unwrap(), entry(&["fe80::1"], None, Some(3), None));
        assert_eq!(parse("ann@[::1]:22").unwrap(), entry(&["::1"], Some("ann"), None, Some(22)));
        assert_eq!(parse("[fe80::1%eth0]").unwrap(), entry(&["fe80::1%eth0"], None, None, None));
        assert!(parse("fe80::1").unwrap_err().message.contains("brackets"));
        assert!(parse("[fe80::1").unwrap_err().message.contains("not closed"));
        assert!(parse("[n1]").unwrap_err().message.contains("not an IPv6 address"));
    }

    #[test]
    fn ranges_keep_their_order_and_width() {
        assert_eq!(parse("n[01-03,7]").unwrap().names, ["n01", "n02", "n03", "n7"]);
        assert_eq!(parse("n[9-11]x:2").unwrap(), entry(&["n9x", "n10x", "n11x"], None, Some(2), None));
        assert_eq!(parse("r[1-2]n[1-2]").unwrap().names, ["r1n1", "r1n2", "r2n1", "r2n2"]);
        for bad in ["n[", "n[1-", "n[]", "n[3-1]", "n[a-b]", "n]", "n[1-99999999]", "n[1-300]x[1-300]"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_that_could_be_taken_for_options_or_shell_text_are_refused() {
        for bad in
            ["", "-oProxyCommand=x", "a;b", "$(id)", "@n1", "-l@n1", "n1:x", "n1:", "n1:4:5", "a@n1:0", "a@n1:70000"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
