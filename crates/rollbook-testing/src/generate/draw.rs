//! Draws from the distributions that the generator needs, over a seeded generator.
//!
//! They are written out here so that a seed gives the same draws whatever `rand` changes in its own; only the stream of
//! 64-bit words comes from `StdRng`, whose algorithm `Cargo.lock` pins. Logarithms and exponentials are the platform's,
//! so bytes are the same on one platform, and the same up to rounding on all.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "draws turn words into fractions and fractions into small counts"
)]

use std::f64::consts::TAU;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

/// A source of draws.
#[derive(Debug, Clone)]
pub(super) struct Draw(StdRng);

impl Draw {
    /// A source of its own for each path of numbers below one seed.
    pub(super) fn new(seed: u64, path: &[u64]) -> Self {
        Self(StdRng::seed_from_u64(path.iter().fold(mix(seed), |state, part| mix(state ^ mix(*part)))))
    }

    /// A fraction from 0 to below 1.
    pub(super) fn fraction(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    /// A number from 0 to below `end`; 0 where `end` is 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.0.next_u64()) * end as u128) >> 64) as usize
    }

    pub(super) fn between(&mut self, start: usize, end: usize) -> usize {
        start + self.below(end - start)
    }

    pub(super) fn exponential(&mut self, scale: f64) -> f64 {
        -(1.0 - self.fraction()).ln() * scale
    }

    pub(super) fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.fraction()).ln()).sqrt();
        mean + deviation * radius * (TAU * self.fraction()).cos()
    }

    /// Marsaglia and Tsang's method; below a shape of 1 the usual power of a uniform draw mends it.
    pub(super) fn gamma(&mut self, shape: f64, scale: f64) -> f64 {
        if shape < 1.0 {
            let power = (1.0 - self.fraction()).powf(shape.recip());
            return self.gamma(shape + 1.0, scale) * power;
        }
        let d = shape - 1.0 / 3.0;
        let c = (9.0 * d).sqrt().recip();
        loop {
            let x = self.normal(0.0, 1.0);
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && (1.0 - self.fraction()).ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
                return d * v * scale;
            }
        }
    }

    pub(super) fn beta(&mut self, a: f64, b: f64) -> f64 {
        let (x, y) = (self.gamma(a, 1.0), self.gamma(b, 1.0));
        x / (x + y)
    }

    /// A length with this median and spread, cut to the bounds.
    pub(super) fn length(&mut self, median: f64, sigma: f64, least: usize, most: usize) -> usize {
        let drawn = self.normal(median.ln(), sigma).exp();
        (drawn as usize).clamp(least, most)
    }

    /// A number of turns: gamma with shape 4 around `mean`, at least 3, at most 2.5 times the mean.
    pub(super) fn turns(&mut self, mean: f64) -> usize {
        let most = ((mean * 2.5) as usize).max(3);
        (self.gamma(4.0, mean / 4.0) as usize).clamp(3, most)
    }
}

/// Item counts from 0 with Zipf's popularity; what lies beyond the last counts as the last.
#[derive(Debug, Clone)]
pub(super) struct Zipf(Vec<f64>);

impl Zipf {
    /// `count` items with the popularity rank^-exponent.
    pub(super) fn new(count: usize, exponent: f64) -> Self {
        Self::with_total(count, exponent, None)
    }

    /// The same cut from an endless list whose popularities sum to `total`: the tail falls to the last item.
    pub(super) fn with_total(count: usize, exponent: f64, total: Option<f64>) -> Self {
        let mut sum = 0.0;
        let mut table: Vec<f64> = (1..=count)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        let total = total.unwrap_or(sum);
        for bound in &mut table {
            *bound /= total;
        }
        Self(table)
    }

    pub(super) fn draw(&self, draw: &mut Draw) -> usize {
        let fraction = draw.fraction();
        self.0.partition_point(|bound| *bound <= fraction).min(self.0.len() - 1)
    }
}

/// The finalizer of `SplitMix64`.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(count: u32, mut draw: impl FnMut() -> f64) -> f64 {
        (0..count).map(|_| draw()).sum::<f64>() / f64::from(count)
    }

    #[test]
    fn draws_have_the_means_of_their_distributions() {
        let mut d = Draw::new(1, &[]);
        assert!((mean(40_000, || d.normal(3.0, 2.0)) - 3.0).abs() < 0.05);
        assert!((mean(40_000, || d.exponential(2.5)) - 2.5).abs() < 0.06);
        assert!((mean(40_000, || d.gamma(4.0, 10.0)) - 40.0).abs() < 0.5);
        assert!((mean(40_000, || d.gamma(0.7, 2.0)) - 1.4).abs() < 0.05);
        assert!((mean(40_000, || d.beta(0.7, 0.9)) - 0.4375).abs() < 0.01);
        assert!((mean(40_000, || d.below(10) as f64) - 4.5).abs() < 0.1);
        let zipf = Zipf::new(2, 1.0);
        assert!((mean(40_000, || zipf.draw(&mut d) as f64) - 1.0 / 3.0).abs() < 0.02);
    }

    #[test]
    fn a_path_has_draws_of_its_own() {
        let words = |path: &[u64]| Draw::new(7, path).0.next_u64();
        assert_eq!(words(&[1, 2]), words(&[1, 2]));
        assert_ne!(words(&[1, 2]), words(&[2, 1]));
        assert_ne!(words(&[1]), words(&[1, 0]));
    }
}
