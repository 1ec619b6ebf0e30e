//! Who last wrote and who has since read each element of one buffer: what a new step has to wait for.
//!
//! Knows steps by number only.

use std::ops::Range;

/// A run of elements with the same past.
#[derive(Clone, Debug)]
struct Span {
    start: usize,
    end: usize,
    writer: Option<u32>,
    readers: Vec<u32>,
}

/// The past of one buffer, as spans in order and without overlap; elements in none have no past.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    spans: Vec<Span>,
}

impl History {
    /// Step `step` reads `range`: it waits for the writers of its elements.
    pub(super) fn read(&mut self, range: Range<usize>, step: u32, after: &mut Vec<u32>) {
        if range.is_empty() {
            return;
        }
        let first = self.cut(range.start);
        self.cut(range.end);
        let (mut index, mut start) = (first, range.start);
        while start < range.end {
            let gap_end = self.spans.get(index).map_or(range.end, |span| span.start.min(range.end));
            if gap_end > start {
                self.spans.insert(index, Span { start, end: gap_end, writer: None, readers: Vec::new() });
            }
            let span = &mut self.spans[index];
            after.extend(span.writer);
            span.readers.push(step);
            start = span.end;
            index += 1;
        }
    }

    /// Step `step` writes `range`: it waits for whoever wrote or reads its elements.
    pub(super) fn write(&mut self, range: Range<usize>, step: u32, after: &mut Vec<u32>) {
        if range.is_empty() {
            return;
        }
        let first = self.cut(range.start);
        let end = self.cut(range.end);
        for span in &self.spans[first..end] {
            // Readers have waited for the writer already.
            match span.readers.as_slice() {
                [] => after.extend(span.writer),
                readers => after.extend_from_slice(readers),
            }
        }
        let written = Span { start: range.start, end: range.end, writer: Some(step), readers: Vec::new() };
        self.spans.splice(first..end, [written]);
    }

    /// Makes `at` a border and returns the index of the first span that begins there or later.
    fn cut(&mut self, at: usize) -> usize {
        let index = self.spans.partition_point(|span| span.end <= at);
        match self.spans.get_mut(index) {
            Some(span) if span.start < at => {
                let rest = Span { start: at, ..span.clone() };
                span.end = at;
                self.spans.insert(index + 1, rest);
                index + 1
            }
            _ => index,
        }
    }
}
