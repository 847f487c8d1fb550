//! How values are distributed, on both sides over the same bins.

/// Counts of two sides over bins of equal width; the last bin holds the greatest value too.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Least value of either side.
    pub low: f64,
    /// Greatest value of either side.
    pub high: f64,
    /// Values of the first side, by bin.
    pub a: Vec<u64>,
    /// Values of the second side, by bin.
    pub b: Vec<u64>,
}

/// Bins of a histogram.
const BINS: u16 = 16;

impl Histogram {
    /// Counts pairs of finite numbers; nothing without a pair.
    pub(super) fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let low = pairs.iter().map(|pair| pair.0.min(pair.1)).reduce(f64::min)?;
        let high = pairs.iter().map(|pair| pair.0.max(pair.1)).reduce(f64::max)?;
        let bins = if low < high { BINS } else { 1 };
        let mut histogram = Self { low, high, a: vec![0; usize::from(bins)], b: vec![0; usize::from(bins)] };
        for (a, b) in pairs {
            let (a, b) = (histogram.bin(*a), histogram.bin(*b));
            histogram.a[a] += 1;
            histogram.b[b] += 1;
        }
        Some(histogram)
    }

    /// The number of the bin of a value.
    fn bin(&self, value: f64) -> usize {
        let last = self.a.len() - 1;
        // Halves first: the range of two finite numbers may be beyond the doubles.
        let part = (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a range lies between 0 and 1; NaN, of a range of one point, becomes 0"
        )]
        let bin = (part * f64::from(BINS)) as usize;
        bin.min(last)
    }

    /// Returns where a bin begins; the bin after the last begins where the range ends.
    pub fn edge(&self, bin: usize) -> f64 {
        if bin >= self.a.len() {
            return self.high;
        }
        #[expect(clippy::cast_precision_loss, reason = "there are few bins")]
        let part = bin as f64 / self.a.len() as f64;
        self.low * (1.0 - part) + self.high * part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_share_their_bins() {
        let pairs: Vec<(f64, f64)> = (0..16).map(|n| (f64::from(n), 16.0)).collect();
        let histogram = Histogram::of(&pairs).unwrap();
        assert_eq!((histogram.low, histogram.high), (0.0, 16.0));
        assert_eq!(histogram.a, [1; 16]);
        assert_eq!(histogram.b[15], 16);
        assert_eq!((histogram.edge(0), histogram.edge(4), histogram.edge(16)), (0.0, 4.0, 16.0));
    }

    #[test]
    fn one_value_is_one_bin_and_the_ends_of_the_doubles_fit() {
        assert_eq!(Histogram::of(&[(2.0, 2.0)]).unwrap().a, [1]);
        let wide = Histogram::of(&[(-f64::MAX, f64::MAX)]).unwrap();
        assert_eq!((wide.a[0], wide.b[15]), (1, 1));
        assert_eq!(wide.edge(8), 0.0);
        assert_eq!(Histogram::of(&[]), None);
    }
}
