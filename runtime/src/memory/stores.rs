//! Which kind of stores a rank uses for long payloads that others read, in lanes and in the memory of collectives: into its cache,
//! or past it into memory.
//!
//! Between cores that share a cache, stores into it are twice as fast once the ring is larger than a core's own cache;
//! between cores that do not, they are five times slower, because every line has to be fetched out of the producer's
//! cache. Which of the two holds nobody says reliably (a hypervisor may even move a processor while the job runs), so both
//! sides measure, and the consumer decides. Pure: no clock, no memory.

/// How long payloads are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stores {
    /// Past the cache. The safe choice as long as nothing is known: never very slow.
    #[default]
    PastCache = 0,
    /// Into the producer's cache.
    IntoCache = 1,
}

impl Stores {
    fn other(self) -> Self {
        match self {
            Stores::PastCache => Stores::IntoCache,
            Stores::IntoCache => Stores::PastCache,
        }
    }

    /// The kind with this number; what no peer writes is the safe one.
    #[must_use]
    pub fn from_number(number: u64) -> Self {
        if number == Stores::IntoCache as u64 { Stores::IntoCache } else { Stores::PastCache }
    }
}

/// Payloads of at least this many bytes are written by the kind that the consumer advises, and measured.
///
/// 512 bytes written past the cache take twice as long between near cores, 4 KiB a sixth longer; between far ones large
/// pieces win a factor of 5 to 8.
pub const LONG: usize = 4096;
/// Of so many long payloads one is measured.
pub(crate) const MEASURED: u32 = 4;
/// Measured bytes that a trial of the other kind lasts: all of them together are more than a core's own cache, which has
/// to overflow into the shared one before the stores into the cache show what they can do.
const TRIAL: u64 = 1 << 20;
/// A trial that is clearly lost ends after this many measured bytes.
const SHORT_TRIAL: u64 = 64 << 10;
/// Measured bytes between two trials at first, and at most: the distance doubles with every trial that changes nothing.
const BETWEEN: std::ops::RangeInclusive<u64> = (8 << 20)..=(512 << 20);
/// What one measurement counts in the average: one in this many.
const SMOOTH: f32 = 16.0;

/// Which side of a lane took a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The producer, to write.
    Write = 0,
    /// The consumer, to read.
    Read = 1,
}

/// How long one payload took one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// How it was written.
    pub stores: Stores,
    /// Nanoseconds a KiB.
    pub cost: f32,
}

impl Sample {
    /// So many bytes took so long.
    #[must_use]
    pub fn new(stores: Stores, bytes: usize, took: std::time::Duration) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a payload is small")]
        let kibibytes = bytes.max(1) as f32 / 1024.0;
        Sample { stores, cost: took.as_secs_f32() * 1e9 / kibibytes }
    }

    /// In one word that is never zero.
    pub(crate) fn pack(self) -> u64 {
        1 << 63 | (self.stores as u64) << 32 | u64::from(self.cost.to_bits())
    }

    /// The other way; `None` for zero and for what no peer writes.
    pub(crate) fn unpack(word: u64) -> Option<Self> {
        let bits = u32::try_from(word & u64::from(u32::MAX)).ok()?;
        let cost = f32::from_bits(bits);
        (word >> 63 == 1 && cost.is_finite() && cost >= 0.0)
            .then_some(Sample { stores: Stores::from_number(word >> 32 & 1), cost })
    }
}

/// The consumer's opinion, from the times that writes and reads take.
#[derive(Debug)]
pub struct Chooser {
    /// Averages by kind and side.
    cost: [[Option<f32>; 2]; 2],
    best: Stores,
    /// The kind that is asked for now: `best`, or the other one for the time of a trial.
    asked: Stores,
    /// Bytes measured since `asked` changed.
    measured: u64,
    between: u64,
}

impl Default for Chooser {
    fn default() -> Self {
        Chooser {
            cost: [[None; 2]; 2],
            best: Stores::default(),
            asked: Stores::default(),
            measured: 0,
            // The first trial comes soon: a job that moves little should profit, too.
            between: TRIAL,
        }
    }
}

impl Chooser {
    /// One side took so long for a payload.
    pub fn sample(&mut self, side: Side, sample: Sample) {
        let average = self.cost[sample.stores as usize][side as usize].get_or_insert(sample.cost);
        // A sample far off is an interruption, not the memory.
        *average += (sample.cost.min(*average * 8.0) - *average) / SMOOTH;
    }

    /// So many bytes, written with `stores`, were read and measured. The kind to ask for from now on.
    pub fn advice(&mut self, stores: Stores, bytes: usize) -> Stores {
        // Else it was written before the producer saw the advice.
        if stores == self.asked {
            self.measured += bytes as u64;
            if self.asked == self.best { self.between_trials() } else { self.in_trial() }
        }
        self.asked
    }

    fn ask(&mut self, stores: Stores) {
        self.asked = stores;
        self.measured = 0;
    }

    fn between_trials(&mut self) {
        let other = self.best.other();
        if let (Some(best), Some(other_cost)) = (self.cost_of(self.best), self.cost_of(other))
            && best > 1.5 * other_cost
        {
            // What was best is not any more: the processors have moved.
            self.best = other;
            self.between = *BETWEEN.start();
            self.ask(other);
        } else if self.measured >= self.between {
            // What is known of it is old.
            self.cost[other as usize] = [None; 2];
            self.ask(other);
        }
    }

    fn in_trial(&mut self) {
        let (Some(tried), Some(known)) = (self.cost_of(self.asked), self.cost_of(self.best)) else { return };
        if self.measured >= SHORT_TRIAL && tried > 2.0 * known {
            self.between = (self.between * 2).clamp(*BETWEEN.start(), *BETWEEN.end());
            self.ask(self.best);
        } else if self.measured >= TRIAL {
            if tried < 0.9 * known {
                self.best = self.asked;
                self.between = *BETWEEN.start();
            } else {
                self.between = (self.between * 2).clamp(*BETWEEN.start(), *BETWEEN.end());
            }
            self.ask(self.best);
        }
    }

    /// What both sides take together, once both are known.
    fn cost_of(&self, stores: Stores) -> Option<f32> {
        let [write, read] = self.cost[stores as usize];
        Some(write? + read?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = 32 << 10;

    /// Runs `bytes` through a chooser on a machine where both kinds cost so many nanoseconds a KiB; what it asked for in
    /// the end, and the share of bytes that went the dearer way.
    fn run(chooser: &mut Chooser, bytes: u64, past_cache: f32, into_cache: f32) -> (Stores, f64) {
        let mut dear = 0_u32;
        let pieces = u32::try_from(bytes / PIECE as u64).unwrap();
        for _ in 0..pieces {
            let stores = chooser.asked;
            let cost = if stores == Stores::PastCache { past_cache } else { into_cache };
            dear += u32::from(cost > past_cache.min(into_cache));
            for side in [Side::Write, Side::Read] {
                chooser.sample(side, Sample { stores, cost: cost / 2.0 });
            }
            chooser.advice(stores, PIECE);
        }
        (chooser.best, f64::from(dear) / f64::from(pieces))
    }

    #[test]
    fn cores_that_share_a_cache_are_found_out_and_used() {
        let mut chooser = Chooser::default();
        let (best, _) = run(&mut chooser, 4 << 20, 55.0, 25.0);
        assert_eq!(best, Stores::IntoCache);
        let (best, dear) = run(&mut chooser, 1 << 30, 55.0, 25.0);
        assert_eq!(best, Stores::IntoCache);
        assert!(dear < 0.01, "{dear}");
    }

    #[test]
    fn cores_that_share_none_pay_little_for_the_trials() {
        let mut chooser = Chooser::default();
        let (best, dear) = run(&mut chooser, 1 << 30, 45.0, 250.0);
        assert_eq!(best, Stores::PastCache);
        assert!(dear < 0.002, "{dear}");
    }

    #[test]
    fn a_processor_that_moves_is_noticed_in_both_directions() {
        let mut chooser = Chooser::default();
        run(&mut chooser, 4 << 20, 55.0, 25.0);
        let (best, dear) = run(&mut chooser, 16 << 20, 45.0, 250.0);
        assert_eq!(best, Stores::PastCache);
        assert!(dear < 0.05, "{dear}");
        let (best, _) = run(&mut chooser, 256 << 20, 55.0, 25.0);
        assert_eq!(best, Stores::IntoCache);
    }

    #[test]
    fn a_sample_survives_its_word_and_other_words_are_none() {
        for stores in [Stores::PastCache, Stores::IntoCache] {
            let sample = Sample { stores, cost: 12.5 };
            assert_eq!(Sample::unpack(sample.pack()), Some(sample));
        }
        let wrong = [0, 1, u64::from(f32::NAN.to_bits()) | 1 << 63, u64::from((-1.0_f32).to_bits()) | 1 << 63];
        assert!(wrong.iter().all(|word| Sample::unpack(*word).is_none()));
    }

    #[test]
    fn an_interruption_decides_nothing() {
        let mut chooser = Chooser::default();
        run(&mut chooser, 64 << 20, 55.0, 25.0);
        chooser.sample(Side::Read, Sample { stores: chooser.asked, cost: 1e7 });
        assert_eq!(run(&mut chooser, 1 << 20, 55.0, 25.0).0, Stores::IntoCache);
    }
}
