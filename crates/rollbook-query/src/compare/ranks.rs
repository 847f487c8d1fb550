//! How alike two orders are: Spearman's and Kendall's coefficients, in `O(n log n)`.

/// Returns Spearman's rho: the correlation of the ranks, ties sharing the mean of theirs. Nothing where a side has one value
/// only.
#[expect(clippy::cast_precision_loss, reason = "counts of pairs are far below 2^53")]
pub(super) fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    let a = ranks(pairs, |pair| pair.0);
    let b = ranks(pairs, |pair| pair.1);
    let mean = f64::midpoint(pairs.len() as f64, 1.0);
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(&b) {
        let (a, b) = (a - mean, b - mean);
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
    (aa > 0.0 && bb > 0.0).then(|| (ab / (aa * bb).sqrt()).clamp(-1.0, 1.0))
}

/// The rank of each pair by one of its values, from 1.
#[expect(clippy::cast_precision_loss, reason = "counts of pairs are far below 2^53")]
fn ranks(pairs: &[(f64, f64)], value: impl Fn(&(f64, f64)) -> f64) -> Vec<f64> {
    let mut order: Vec<u32> = (0..u32::try_from(pairs.len()).unwrap_or(u32::MAX)).collect();
    let of = |index: u32| value(&pairs[index as usize]) + 0.0;
    order.sort_unstable_by(|a, b| of(*a).total_cmp(&of(*b)));
    let mut ranks = vec![0.0; pairs.len()];
    let mut before = 0_usize;
    for tied in order.chunk_by(|a, b| of(*a).total_cmp(&of(*b)).is_eq()) {
        let rank = before as f64 + f64::midpoint(tied.len() as f64, 1.0);
        for index in tied {
            ranks[*index as usize] = rank;
        }
        before += tied.len();
    }
    ranks
}

/// Returns Kendall's tau-b: `(C - D) / sqrt((n0 - n1)(n0 - n2))` over all pairs of items, where C agree and D disagree in
/// order, n0 is their number, and n1 and n2 are those tied on one side (Knight 1966). Nothing where a side is all ties.
#[expect(clippy::cast_precision_loss, reason = "rounded once, from exact counts")]
pub(super) fn kendall(pairs: &mut [(f64, f64)]) -> Option<f64> {
    for pair in pairs.iter_mut() {
        // Zeros of both signs are one value.
        *pair = (pair.0 + 0.0, pair.1 + 0.0);
    }
    pairs.sort_unstable_by(|x, y| x.0.total_cmp(&y.0).then_with(|| x.1.total_cmp(&y.1)));
    let same_a = |x: &(f64, f64), y: &(f64, f64)| x.0.total_cmp(&y.0).is_eq();
    let same_both = |x: &(f64, f64), y: &(f64, f64)| same_a(x, y) && x.1.total_cmp(&y.1).is_eq();
    let tied_a: u128 = pairs.chunk_by(same_a).map(|tied| couples(tied.len())).sum();
    let tied_both: u128 = pairs.chunk_by(same_both).map(|tied| couples(tied.len())).sum();
    let mut values: Vec<f64> = pairs.iter().map(|pair| pair.1).collect();
    let discordant = inversions(&mut values);
    let tied_b: u128 = values.chunk_by(|x, y| x.total_cmp(y).is_eq()).map(|tied| couples(tied.len())).sum();
    let all = couples(pairs.len());
    let (free_a, free_b) = (all - tied_a, all - tied_b);
    if free_a == 0 || free_b == 0 {
        return None;
    }
    let untied = (all + tied_both - tied_a - tied_b) as f64;
    let tau = (untied - 2.0 * discordant as f64) / (free_a as f64 * free_b as f64).sqrt();
    Some(tau.clamp(-1.0, 1.0))
}

fn couples(count: usize) -> u128 {
    let count = count as u128;
    count * count.saturating_sub(1) / 2
}

/// Sorts, and counts the couples that stood in the wrong order.
fn inversions(values: &mut [f64]) -> u128 {
    let mut buffer = values.to_vec();
    let mut count = 0_u128;
    let mut width = 1;
    while width < values.len() {
        for start in (0..values.len()).step_by(2 * width) {
            let middle = (start + width).min(values.len());
            let end = (start + 2 * width).min(values.len());
            count += merge(&values[start..middle], &values[middle..end], &mut buffer[start..end]);
        }
        values.copy_from_slice(&buffer);
        width *= 2;
    }
    count
}

fn merge(left: &[f64], right: &[f64], merged: &mut [f64]) -> u128 {
    let (mut l, mut r) = (0, 0);
    let mut count = 0_u128;
    for slot in merged {
        let from_left = match (left.get(l), right.get(r)) {
            (Some(a), Some(b)) => a.total_cmp(b).is_le(),
            (Some(_), None) => true,
            (None, _) => false,
        };
        if from_left {
            *slot = left[l];
            l += 1;
        } else {
            *slot = right[r];
            r += 1;
            count += (left.len() - l) as u128;
        }
    }
    count
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "few small whole numbers")]
mod tests {
    use rstest::rstest;

    use super::*;

    /// By the definition, couple by couple.
    fn naive_kendall(pairs: &[(f64, f64)]) -> Option<f64> {
        let (mut difference, mut free_a, mut free_b) = (0_i64, 0_i64, 0_i64);
        for (at, x) in pairs.iter().enumerate() {
            for y in &pairs[..at] {
                let (a, b) = (x.0.partial_cmp(&y.0).unwrap() as i64, x.1.partial_cmp(&y.1).unwrap() as i64);
                difference += a * b;
                free_a += a * a;
                free_b += b * b;
            }
        }
        let size = (free_a as f64).sqrt() * (free_b as f64).sqrt();
        (size > 0.0).then(|| difference as f64 / size)
    }

    fn naive_spearman(pairs: &[(f64, f64)]) -> Option<f64> {
        let rank = |value: f64, all: &dyn Fn(usize) -> f64| {
            let below = (0..pairs.len()).filter(|at| all(*at) < value).count() as f64;
            let same = (0..pairs.len()).filter(|at| all(*at) == value).count() as f64;
            below + f64::midpoint(same, 1.0)
        };
        let a: Vec<f64> = pairs.iter().map(|pair| rank(pair.0, &|at| pairs[at].0)).collect();
        let b: Vec<f64> = pairs.iter().map(|pair| rank(pair.1, &|at| pairs[at].1)).collect();
        let n = pairs.len() as f64;
        let (ma, mb) = (a.iter().sum::<f64>() / n, b.iter().sum::<f64>() / n);
        let cov: f64 = a.iter().zip(&b).map(|(a, b)| (a - ma) * (b - mb)).sum();
        let (va, vb): (f64, f64) = (a.iter().map(|a| (a - ma).powi(2)).sum(), b.iter().map(|b| (b - mb).powi(2)).sum());
        (va > 0.0 && vb > 0.0).then(|| cov / (va * vb).sqrt())
    }

    /// From a textbook: ranks 1 2 3 4 5 against 3 4 1 2 5 have rho 0.2 and tau 0.2.
    #[test]
    fn known_values_come_out() {
        let mut pairs = [(1.0, 3.0), (2.0, 4.0), (3.0, 1.0), (4.0, 2.0), (5.0, 5.0)];
        assert!((spearman(&pairs).unwrap() - 0.2).abs() < 1e-12);
        assert!((kendall(&mut pairs).unwrap() - 0.2).abs() < 1e-12);
    }

    #[rstest]
    fn random_pairs_with_ties_agree_with_the_definitions(
        #[values(1, 2, 3, 4, 5, 6)] seed: u64,
        #[values(0, 1, 2, 3, 17, 64)] count: usize,
    ) {
        let mut state = seed;
        let mut roll = |sides: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % sides) as f64 - 2.0
        };
        let mut pairs: Vec<(f64, f64)> = (0..count).map(|_| (roll(3 + seed), roll(2 + seed * seed))).collect();
        let close = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-12,
            (a, b) => a.is_none() && b.is_none(),
        };
        assert!(close(spearman(&pairs), naive_spearman(&pairs)));
        let naive = naive_kendall(&pairs);
        assert!(close(kendall(&mut pairs), naive));
    }

    #[test]
    fn one_order_and_its_reverse_are_one_and_minus_one_and_ties_are_nothing() {
        let mut same: Vec<(f64, f64)> = (0..1000).map(|n| (f64::from(n), f64::from(n * n))).collect();
        assert_eq!((spearman(&same), kendall(&mut same)), (Some(1.0), Some(1.0)));
        let mut reversed: Vec<(f64, f64)> = (0..1000).map(|n| (f64::from(n), f64::from(-n))).collect();
        assert_eq!((spearman(&reversed), kendall(&mut reversed)), (Some(-1.0), Some(-1.0)));
        let mut tied = [(0.0, 1.0), (-0.0, 2.0)];
        assert_eq!((spearman(&tied), kendall(&mut tied)), (None, None));
    }
}
