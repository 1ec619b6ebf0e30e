//! The images of handwritten digits in `data/`, split into rows to train on and rows held out.

use std::io::Read;

/// Pixels of an image: 8 x 8.
pub const PIXELS: usize = 64;
/// Classes: the digits 0 to 9.
pub const CLASSES: usize = 10;

const PACKED: &[u8] = include_bytes!("../data/digits.csv.gz");
/// Every fifth row is held out. The rows are not sorted, so that both parts look alike.
const HELD_OUT: usize = 5;

/// One image.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Its pixels from 0 (paper) to 1 (ink), row by row.
    pub pixels: [f64; PIXELS],
    /// The digit it shows, `0..CLASSES`.
    pub class: usize,
}

/// All images, in file order within each part.
#[derive(Clone, Debug)]
pub struct Digits {
    /// Rows to train on.
    pub train: Vec<Image>,
    /// Rows that no rank trains on.
    pub held_out: Vec<Image>,
}

/// Unpacks the images that are compiled into this program.
///
/// # Panics
/// The file in `data/` was damaged when this was compiled.
#[must_use]
pub fn load() -> Digits {
    let mut text = String::new();
    flate2::read::GzDecoder::new(PACKED).read_to_string(&mut text).expect("the compiled-in data unpacks");
    let mut digits = Digits { train: Vec::new(), held_out: Vec::new() };
    for (row, line) in text.lines().enumerate() {
        let image = parse(line).unwrap_or_else(|| panic!("row {} of the compiled-in data is damaged", row + 1));
        if row % HELD_OUT == 0 { digits.held_out.push(image) } else { digits.train.push(image) }
    }
    digits
}

/// Reads 64 pixels of 0..=16 and a class.
fn parse(line: &str) -> Option<Image> {
    let numbers: Vec<u8> = line.split(',').map(|field| field.trim().parse().ok()).collect::<Option<_>>()?;
    let (class, pixels) = numbers.split_last()?;
    let pixels: [u8; PIXELS] = pixels.try_into().ok()?;
    let in_range = usize::from(*class) < CLASSES && pixels.iter().all(|pixel| *pixel <= 16);
    in_range.then(|| Image { pixels: pixels.map(|pixel| f64::from(pixel) / 16.0), class: usize::from(*class) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_one_part_and_all_digits_are_in_both() {
        let digits = load();
        assert_eq!((digits.train.len(), digits.held_out.len()), (1437, 360));
        for part in [&digits.train, &digits.held_out] {
            for class in 0..CLASSES {
                let count = part.iter().filter(|image| image.class == class).count();
                assert!(count * 20 > part.len(), "digit {class}: {count} of {}", part.len());
            }
        }
    }

    #[test]
    fn a_row_of_the_wrong_length_or_range_is_refused() {
        let row = |pixel: &str, class: &str| format!("{}{class}", format!("{pixel},").repeat(PIXELS));
        assert!(parse(&row("16", "9")).is_some());
        assert!(parse(&row("17", "9")).is_none());
        assert!(parse(&row("16", "10")).is_none());
        assert!(parse("1,2,3").is_none());
    }
}
