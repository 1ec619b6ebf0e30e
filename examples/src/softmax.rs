//! Softmax regression by gradient descent with momentum, as sums over rows: a rank computes the sums of its own rows,
//! the sums of all ranks added up are those of all rows.

use crate::digits::{CLASSES, Image, PIXELS};

/// How often all training rows are seen.
pub const EPOCHS: usize = 40;
const STEP: f64 = 0.5;
const MOMENTUM: f64 = 0.9;

/// Weights of one class: one for each pixel, then a constant.
const ROW: usize = PIXELS + 1;
/// Numbers in a [`Model`]'s weights.
pub const WEIGHTS: usize = CLASSES * ROW;
/// Numbers in the sums of [`Model::sums`]: a gradient, then the loss.
pub const SUMS: usize = WEIGHTS + 1;

/// A classifier that starts knowing nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    weights: Vec<f64>,
    momentum: Vec<f64>,
}

impl Default for Model {
    fn default() -> Self {
        Self { weights: vec![0.0; WEIGHTS], momentum: vec![0.0; WEIGHTS] }
    }
}

impl Model {
    /// Gradient and loss (cross entropy) summed over some rows: [`SUMS`] numbers.
    #[must_use]
    pub fn sums(&self, images: &[Image]) -> Vec<f64> {
        let mut sums = vec![0.0; SUMS];
        for image in images {
            let scores = self.scores(image);
            let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let exponentials = scores.map(|score| (score - highest).exp());
            let total: f64 = exponentials.iter().sum();
            for class in 0..CLASSES {
                let target = if class == image.class { 1.0 } else { 0.0 };
                let error = exponentials[class] / total - target;
                let row = &mut sums[class * ROW..(class + 1) * ROW];
                for (sum, pixel) in row.iter_mut().zip(&image.pixels) {
                    *sum += error * pixel;
                }
                row[PIXELS] += error;
            }
            sums[WEIGHTS] += total.ln() - (scores[image.class] - highest);
        }
        sums
    }

    /// One step of gradient descent by the sums over all `rows` rows; returns the mean loss before the step.
    ///
    /// # Panics
    /// `sums` does not hold [`SUMS`] numbers.
    #[expect(clippy::cast_precision_loss, reason = "there are a few thousand rows")]
    pub fn step(&mut self, sums: &[f64], rows: usize) -> f64 {
        assert_eq!(sums.len(), SUMS, "a gradient and a loss");
        for ((weight, momentum), sum) in self.weights.iter_mut().zip(&mut self.momentum).zip(sums) {
            *momentum = MOMENTUM * *momentum - STEP * sum / rows as f64;
            *weight += *momentum;
        }
        sums[WEIGHTS] / rows as f64
    }

    /// How many of some images are read correctly.
    #[must_use]
    pub fn correct(&self, images: &[Image]) -> u64 {
        images.iter().map(|image| u64::from(self.class_of(image) == image.class)).sum()
    }

    /// The weights as bit patterns, to compare to the last bit.
    #[must_use]
    pub fn bits(&self) -> Vec<u64> {
        self.weights.iter().map(|weight| weight.to_bits()).collect()
    }

    fn class_of(&self, image: &Image) -> usize {
        let scores = self.scores(image);
        (1..CLASSES).fold(0, |best, class| if scores[class] > scores[best] { class } else { best })
    }

    fn scores(&self, image: &Image) -> [f64; CLASSES] {
        std::array::from_fn(|class| {
            let row = &self.weights[class * ROW..(class + 1) * ROW];
            let products = row.iter().zip(&image.pixels).map(|(weight, pixel)| weight * pixel);
            products.sum::<f64>() + row[PIXELS]
        })
    }
}

/// The line that tells of one epoch.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "there are a few thousand rows")]
pub fn epoch_line(epoch: usize, loss: f64, correct: u64, held_out: usize) -> String {
    let percent = 100.0 * correct as f64 / held_out as f64;
    format!("epoch {epoch:>2}  loss {loss:.6}  held-out accuracy {percent:.1}% ({correct}/{held_out})")
}

/// The last line of the program: everything to compare with another run, the loss with all its digits.
#[must_use]
pub fn final_line(ranks: usize, loss: f64, correct: u64, held_out: usize) -> String {
    format!(
        "final: loss {loss:.17e}, {correct} of {held_out} held-out rows right, weights identical on all ranks ({ranks})"
    )
}

/// Whether the held-out accuracy is what this model reaches: above 90 percent.
#[must_use]
pub fn good_enough(correct: u64, held_out: usize) -> bool {
    usize::try_from(correct).is_ok_and(|correct| correct * 10 > held_out * 9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{digits, share};

    #[test]
    fn one_rank_reaches_more_than_ninety_percent_on_held_out_rows() {
        let digits = digits::load();
        let mut model = Model::default();
        let mut losses = Vec::new();
        for _ in 0..EPOCHS {
            let sums = model.sums(&digits.train);
            losses.push(model.step(&sums, digits.train.len()));
        }
        assert!((losses[0] - 10.0_f64.ln()).abs() < 1e-12, "an untrained model guesses: {}", losses[0]);
        assert!(losses[EPOCHS - 1] < losses[0] / 5.0, "{losses:?}");
        let correct = model.correct(&digits.held_out);
        assert!(good_enough(correct, digits.held_out.len()), "{correct} of {}", digits.held_out.len());
    }

    #[test]
    fn the_sums_of_all_shares_are_the_sums_of_all_rows_but_for_rounding() {
        let digits = digits::load();
        let mut model = Model::default();
        model.step(&model.sums(&digits.train), digits.train.len());
        let whole = model.sums(&digits.train);
        let mut added = vec![0.0; SUMS];
        for rank in 0..7 {
            let part = model.sums(&digits.train[share(digits.train.len(), rank, 7)]);
            added.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        for (one, other) in whole.iter().zip(&added) {
            assert!((one - other).abs() <= 1e-9 * one.abs().max(1.0), "{one} {other}");
        }
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let digits = digits::load();
        let rows = &digits.train[..50];
        let mut model = Model::default();
        model.step(&model.sums(rows), rows.len());
        let sums = model.sums(rows);
        for index in [0, 20, 64, 300, WEIGHTS - 1] {
            let mut moved = model.clone();
            moved.weights[index] += 1e-6;
            let slope = (moved.sums(rows)[WEIGHTS] - sums[WEIGHTS]) / 1e-6;
            assert!((slope - sums[index]).abs() < 1e-3, "weight {index}: {slope} {}", sums[index]);
        }
    }
}
