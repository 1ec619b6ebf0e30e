//! Chunks of several ranks' output put together so that lines stay whole, with tags and times.
//!
//! Pure. A chunk is whole lines, a piece of a line that is too long to be held, or a line that has not ended yet.

use spmd::bootstrap::messages::Stream;

/// What follows, with tags, on a last line without its end.
const NO_NEWLINE: &[u8] = b"\\ No newline at end of output\n";

/// What stands before every line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tag {
    /// Nothing.
    #[default]
    None,
    /// `[3] `
    Rank,
    /// `[3@node1] `
    Host,
}

/// A piece of output on its way.
#[derive(Debug)]
pub struct Chunk {
    /// `None`: a line of the launcher itself.
    pub rank: Option<u32>,
    /// Which stream it belongs to.
    pub stream: Stream,
    /// When the agent read it: microseconds since 1970.
    pub at: u64,
    /// The rank's stream ended without a newline.
    pub cut: bool,
    /// The bytes.
    pub data: Vec<u8>,
}

impl Chunk {
    /// A line of the launcher itself.
    pub fn own(data: Vec<u8>) -> Self {
        Self { rank: None, stream: Stream::Stderr, at: 0, cut: false, data }
    }
}

/// What has been put together so far.
#[derive(Debug, Default)]
pub(super) struct Lines {
    tag: Tag,
    timestamp: bool,
    /// The hosts' names, by rank.
    hosts: Vec<String>,
    /// For each stream: who wrote the line that has no end yet.
    unfinished: [Option<Option<u32>>; 2],
}

impl Lines {
    pub(super) fn new(tag: Tag, timestamp: bool) -> Self {
        Self { tag, timestamp, ..Self::default() }
    }

    /// The names of the ranks' hosts, by rank.
    pub(super) fn hosts(&mut self, hosts: Vec<String>) {
        self.hosts = hosts;
    }

    /// Whether the last line of a stream has no end yet.
    pub(super) fn is_unfinished(&self, stream: Stream) -> bool {
        self.unfinished[usize::from(stream == Stream::Stderr)].is_some()
    }

    /// Appends what is to be written for one chunk.
    pub(super) fn add(&mut self, chunk: &Chunk, out: &mut Vec<u8>) {
        let unfinished = &mut self.unfinished[usize::from(chunk.stream == Stream::Stderr)];
        // A last line without its end must not be glued to a line of someone else.
        if unfinished.is_some_and(|writer| writer != chunk.rank) && !chunk.data.is_empty() {
            out.push(b'\n');
            *unfinished = None;
        }
        let prefix = match chunk.rank {
            Some(rank) => prefix(self.tag, self.timestamp, &self.hosts, rank, chunk.at),
            None => String::new(),
        };
        if prefix.is_empty() {
            out.extend_from_slice(&chunk.data);
        } else {
            let mut begins = unfinished.is_none();
            for line in chunk.data.split_inclusive(|b| *b == b'\n') {
                if begins {
                    out.extend_from_slice(prefix.as_bytes());
                }
                out.extend_from_slice(line);
                begins = true;
            }
        }
        if let Some(last) = chunk.data.last() {
            *unfinished = (*last != b'\n').then_some(chunk.rank);
        }
        if chunk.cut && !prefix.is_empty() && *unfinished == Some(chunk.rank) {
            out.push(b'\n');
            out.extend_from_slice(prefix.as_bytes());
            out.extend_from_slice(NO_NEWLINE);
            *unfinished = None;
        }
    }
}

fn prefix(tag: Tag, timestamp: bool, hosts: &[String], rank: u32, at: u64) -> String {
    let time = if timestamp { utc(at) + " " } else { String::new() };
    match tag {
        Tag::None => time,
        Tag::Rank => format!("{time}[{rank}] "),
        Tag::Host => format!("{time}[{rank}@{}] ", hosts.get(rank as usize).map_or("?", String::as_str)),
    }
}

/// A time as `2026-11-29T21:30:12.123456Z`; `micros` since 1970.
pub(super) fn utc(micros: u64) -> String {
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March: the leap day comes last. 719468 days lie between 0000-03-01 and 1970-01-01.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + next;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stream::{Stderr, Stdout};

    fn chunk(rank: Option<u32>, stream: Stream, text: &str) -> Chunk {
        Chunk { rank, stream, at: 1_000_000, cut: false, data: text.as_bytes().into() }
    }

    fn render(mut lines: Lines, chunks: &[Chunk]) -> String {
        lines.hosts(vec!["a".into(), "a".into(), "b".into(), "b".into()]);
        let mut out = Vec::new();
        chunks.iter().for_each(|chunk| lines.add(chunk, &mut out));
        String::from_utf8(out).unwrap()
    }

    fn plain(chunks: &[(Option<u32>, Stream, &str)]) -> String {
        let chunks: Vec<Chunk> = chunks.iter().map(|(rank, stream, text)| chunk(*rank, *stream, text)).collect();
        render(Lines::new(Tag::None, false), &chunks)
    }

    #[test]
    fn bytes_of_one_rank_pass_unchanged() {
        assert_eq!(plain(&[(Some(0), Stdout, "a\nb"), (Some(0), Stdout, "c")]), "a\nbc");
    }

    #[test]
    fn an_unfinished_line_is_ended_before_someone_elses_line() {
        let chunks = [(Some(0), Stdout, "a"), (Some(1), Stdout, "b\n"), (Some(0), Stdout, "c\n")];
        assert_eq!(plain(&chunks), "a\nb\nc\n");
        assert_eq!(plain(&[(Some(0), Stderr, "a"), (None, Stderr, "rsrun: x\n")]), "a\nrsrun: x\n");
        // The other stream is another matter.
        assert_eq!(plain(&[(Some(0), Stdout, "a"), (Some(1), Stderr, "b\n")]), "ab\n");
    }

    #[test]
    fn a_tag_stands_at_line_starts_only() {
        let chunks = [chunk(Some(3), Stdout, "a\nb"), chunk(Some(3), Stdout, "c\n\n"), chunk(Some(1), Stdout, "d\n")];
        assert_eq!(render(Lines::new(Tag::Rank, false), &chunks), "[3] a\n[3] bc\n[3] \n[1] d\n");
        assert_eq!(render(Lines::new(Tag::Host, false), &chunks), "[3@b] a\n[3@b] bc\n[3@b] \n[1@a] d\n");
        let time = "1970-01-01T00:00:01.000000Z";
        assert_eq!(render(Lines::new(Tag::None, true), &chunks[2..]), format!("{time} d\n"));
        assert_eq!(render(Lines::new(Tag::Rank, true), &chunks[2..]), format!("{time} [1] d\n"));
    }

    #[test]
    fn a_last_line_without_its_end_is_marked_with_tags_and_unchanged_without() {
        for (tag, expected) in [(Tag::None, "a"), (Tag::Rank, "[3] a\n[3] \\ No newline at end of output\n")] {
            for pieces in [vec!["a"], vec!["a", ""]] {
                let mut chunks: Vec<Chunk> = pieces.iter().map(|text| chunk(Some(3), Stdout, text)).collect();
                chunks.last_mut().unwrap().cut = true;
                assert_eq!(render(Lines::new(tag, false), &chunks), expected, "{pieces:?}");
            }
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (1_709_251_200, "2024-03-01T00:00:00.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(utc(seconds * 1_000_000), text);
        }
        assert_eq!(utc(1_500_000), "1970-01-01T00:00:01.500000Z");
    }
}
