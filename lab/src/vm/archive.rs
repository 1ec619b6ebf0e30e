//! The archive that a kernel unpacks as its first file system (`cpio`, format "newc"). Pure: names and bytes in, bytes out.
//!
//! The format is in the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.

/// An archive under construction.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

impl Archive {
    /// Adds a folder; those above it must have been added.
    pub(super) fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER, &[]);
    }

    /// Adds an executable file.
    pub(super) fn program(&mut self, name: &str, content: &[u8]) {
        self.entry(name, PROGRAM, content);
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, name: &str, target: &str) {
        self.entry(name, LINK, target.as_bytes());
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let length = u32::try_from(content.len()).expect("a file of the first file system is below 4 GiB");
        let name_length = u32::try_from(name.len() + 1).expect("a name is short");
        // Number, mode, owner, group, links, time, length, two devices of two numbers each, length of the name, check sum.
        let fields = [self.entries, mode, 0, 0, 1, 0, length, 0, 0, 0, 0, name_length, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_and_every_content_begins_at_a_multiple_of_four() {
        for length in 0..5 {
            let mut archive = Archive::default();
            archive.folder("d");
            archive.program("d/f", &vec![b'x'; length]);
            archive.link("l", "d/f");
            let bytes = archive.finish();
            assert_eq!(bytes.len() % 4, 0);
            let headers = bytes.windows(6).enumerate().filter(|(_, window)| *window == b"070701").map(|(at, _)| at);
            let headers: Vec<usize> = headers.collect();
            assert_eq!(headers.len(), 4, "three entries and the end");
            assert!(headers.iter().all(|at| at % 4 == 0), "{headers:?}");
        }
    }

    #[test]
    fn a_header_is_110_bytes_and_names_the_length_of_its_content() {
        let mut archive = Archive::default();
        archive.program("f", b"hello");
        let bytes = archive.finish();
        assert_eq!(&bytes[6 + 6 * 8..6 + 7 * 8], b"00000005");
        assert_eq!(&bytes[110..112], b"f\0");
        assert_eq!(&bytes[112..117], b"hello");
    }
}
