//! Which host keys the user trusts: the known_hosts files of OpenSSH.
//!
//! Pure: text, name and key in, verdict out. Understands plain, bracketed, wildcard, negated and hashed names, and the
//! `@revoked` and `@cert-authority` markers; libssh2's own reader knows neither wildcards nor markers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha1::Sha1;

/// What the files say about a host's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// This key is the host's.
    Match,
    /// The host is known with another key of the same type, at this place (`file:line`).
    Changed { place: String },
    /// This key must not be trusted, says this place.
    Revoked { place: String },
    /// No key of this type is known for the host; these types are.
    Unknown { other_types: Vec<String> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    None,
    Revoked,
    Authority,
}

#[derive(Clone, Debug)]
struct Entry {
    marker: Marker,
    hosts: String,
    key_type: String,
    key: String,
    place: String,
}

/// The entries of all files, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownHosts {
    entries: Vec<Entry>,
}

impl KnownHosts {
    /// Adds the entries of one file. Lines that are no entries are skipped, as OpenSSH does.
    pub(super) fn add(&mut self, path: &str, text: &str) {
        for (index, line) in text.lines().enumerate() {
            let mut words = line.split_whitespace().peekable();
            let marker = match words.peek() {
                None => continue,
                Some(word) if word.starts_with('#') => continue,
                Some(&"@revoked") => Marker::Revoked,
                Some(&"@cert-authority") => Marker::Authority,
                Some(_) => Marker::None,
            };
            if marker != Marker::None {
                words.next();
            }
            let (Some(hosts), Some(key_type), Some(key)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            self.entries.push(Entry {
                marker,
                hosts: hosts.to_string(),
                key_type: key_type.to_string(),
                key: key.trim_end_matches('=').to_string(),
                place: format!("{path}:{}", index + 1),
            });
        }
    }

    /// The types of the keys known for a host, in the order of the files.
    pub(super) fn key_types(&self, host: &str, port: u16) -> Vec<String> {
        let mut types = Vec::new();
        for entry in self.of(host, port).filter(|e| e.marker == Marker::None) {
            if !types.contains(&entry.key_type) {
                types.push(entry.key_type.clone());
            }
        }
        types
    }

    /// Whether a certificate authority is trusted for the host, which only the `ssh` command can check.
    pub(super) fn has_authority(&self, host: &str, port: u16) -> bool {
        self.of(host, port).any(|e| e.marker == Marker::Authority)
    }

    /// What the files say about this key (its binary form) of `host`.
    pub(super) fn check(&self, host: &str, port: u16, key: &[u8]) -> Verdict {
        let key_type = key_type(key).unwrap_or_default();
        let encoded = STANDARD.encode(key).trim_end_matches('=').to_string();
        let mut changed = None;
        let mut matched = false;
        for entry in self.of(host, port) {
            let same = entry.key == encoded;
            match entry.marker {
                Marker::Revoked if same => return Verdict::Revoked { place: entry.place.clone() },
                Marker::None if same => matched = true,
                Marker::None if entry.key_type == key_type => {
                    changed.get_or_insert_with(|| entry.place.clone());
                }
                _ => {}
            }
        }
        match changed {
            _ if matched => Verdict::Match,
            Some(place) => Verdict::Changed { place },
            None => Verdict::Unknown { other_types: self.key_types(host, port) },
        }
    }

    /// Entries for a host. At another port than 22 they are written `[host]:port`; entries for the plain name count
    /// too when there are none, as with OpenSSH.
    fn of(&self, host: &str, port: u16) -> impl Iterator<Item = &Entry> {
        let plain = host.to_ascii_lowercase();
        let name = if port == 22 { plain.clone() } else { format!("[{plain}]:{port}") };
        let own = self.entries.iter().any(|e| e.marker == Marker::None && matches(&e.hosts, &name));
        let wanted = if own { name } else { plain };
        self.entries.iter().filter(move |e| matches(&e.hosts, &wanted))
    }
}

/// The type that a key's binary form begins with: `ssh-ed25519`.
pub(super) fn key_type(key: &[u8]) -> Option<String> {
    let (length, rest) = key.split_first_chunk::<4>()?;
    let name = rest.get(..u32::from_be_bytes(*length) as usize)?;
    String::from_utf8(name.to_vec()).ok()
}

/// Whether a host field names `name`.
fn matches(hosts: &str, name: &str) -> bool {
    if let Some(hashed) = hosts.strip_prefix("|1|") {
        return hashed_matches(hashed, name).unwrap_or(false);
    }
    let mut found = false;
    for pattern in hosts.split(',') {
        let (negated, pattern) = pattern.strip_prefix('!').map_or((false, pattern), |rest| (true, rest));
        if wildcard(pattern.to_ascii_lowercase().as_bytes(), name.as_bytes()) {
            if negated {
                return false;
            }
            found = true;
        }
    }
    found
}

fn hashed_matches(field: &str, name: &str) -> Option<bool> {
    let (salt, hash) = field.split_once('|')?;
    let (salt, hash) = (STANDARD.decode(salt).ok()?, STANDARD.decode(hash).ok()?);
    let mut mac = Hmac::<Sha1>::new_from_slice(&salt).ok()?;
    mac.update(name.as_bytes());
    Some(mac.verify_slice(&hash).is_ok())
}

/// `*` is any text, `?` any character. Linear in the text for each star.
fn wildcard(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: &str, body: u8) -> Vec<u8> {
        let length = u32::try_from(kind.len()).unwrap().to_be_bytes();
        [&length[..], kind.as_bytes(), &[0, 0, 0, 2, body, body]].concat()
    }

    fn line(hosts: &str, kind: &str, body: u8) -> String {
        format!("{hosts} {kind} {} comment\n", STANDARD.encode(key(kind, body)))
    }

    fn known(text: &str) -> KnownHosts {
        let mut known = KnownHosts::default();
        known.add("kh", text);
        known
    }

    const ED: &str = "ssh-ed25519";

    #[test]
    fn a_key_matches_only_under_the_hosts_own_name_and_port() {
        let known = known(&(line("n1,10.0.0.1", ED, 1) + &line("[n2]:2222", ED, 2)));
        assert_eq!(known.check("n1", 22, &key(ED, 1)), Verdict::Match);
        assert_eq!(known.check("N1", 22, &key(ED, 1)), Verdict::Match);
        assert_eq!(known.check("10.0.0.1", 22, &key(ED, 1)), Verdict::Match);
        assert_eq!(known.check("n2", 2222, &key(ED, 2)), Verdict::Match);
        assert_eq!(known.check("n2", 22, &key(ED, 2)), Verdict::Unknown { other_types: vec![] });
        assert_eq!(known.check("n3", 22, &key(ED, 1)), Verdict::Unknown { other_types: vec![] });
        // As with OpenSSH: a key known for the plain name serves another port.
        assert_eq!(known.check("n1", 99, &key(ED, 1)), Verdict::Match);
    }

    #[test]
    fn another_key_of_the_same_type_is_a_change_and_of_another_type_unknown() {
        let known = known(&("# comment\n\n".to_string() + &line("n1", ED, 1)));
        assert_eq!(known.check("n1", 22, &key(ED, 9)), Verdict::Changed { place: "kh:3".into() });
        assert_eq!(known.check("n1", 22, &key("ssh-rsa", 1)), Verdict::Unknown { other_types: vec![ED.to_string()] });
        assert_eq!(known.key_types("n1", 22), [ED]);
    }

    #[test]
    fn wildcards_negation_and_markers_are_understood() {
        let text = line("*.cluster,!bad.cluster", ED, 1)
            + "@revoked "
            + &line("*", ED, 7)
            + "@cert-authority "
            + &line("*.ca", ED, 8)
            + &line("x.cluster", ED, 7);
        let known = known(&text);
        assert_eq!(known.check("a.cluster", 22, &key(ED, 1)), Verdict::Match);
        assert!(matches!(known.check("bad.cluster", 22, &key(ED, 1)), Verdict::Unknown { .. }));
        assert!(matches!(known.check("x.cluster", 22, &key(ED, 7)), Verdict::Revoked { .. }));
        assert!(known.has_authority("h.ca", 22) && !known.has_authority("a.cluster", 22));
        assert!(matches!(known.check("h.ca", 22, &key(ED, 8)), Verdict::Unknown { .. }));
    }

    #[test]
    fn hashed_names_are_found() {
        let mut mac = Hmac::<Sha1>::new_from_slice(b"01234567890123456789").unwrap();
        mac.update(b"[n1]:2222");
        let hosts =
            format!("|1|{}|{}", STANDARD.encode(b"01234567890123456789"), STANDARD.encode(mac.finalize().into_bytes()));
        let known = known(&line(&hosts, ED, 1));
        assert_eq!(known.check("n1", 2222, &key(ED, 1)), Verdict::Match);
        assert!(matches!(known.check("n2", 2222, &key(ED, 1)), Verdict::Unknown { .. }));
    }

    #[test]
    fn lines_that_are_no_entries_are_skipped() {
        let known = known(&("one two\n|1|bad|bad ssh-rsa AAAA\n@revoked\n".to_string() + &line("n1", ED, 1)));
        assert_eq!(known.check("n1", 22, &key(ED, 1)), Verdict::Match);
        assert!(wildcard(b"a*b*c", b"axxbyyc") && !wildcard(b"a*b*c", b"axxbyy") && wildcard(b"?n", b"xn"));
    }
}
