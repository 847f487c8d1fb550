//! Quantiles that intervals need.

use std::f64::consts::{FRAC_2_PI, FRAC_2_SQRT_PI, SQRT_2};

/// Returns how far from the mean a share `confidence` of a normal distribution reaches, in standard deviations.
pub(super) fn normal_reach(confidence: f64) -> f64 {
    solve(confidence, |reach| erf(reach / SQRT_2))
}

/// Returns the same for Student's distribution.
pub(super) fn student_reach(confidence: f64, freedom: usize) -> f64 {
    solve(confidence, |reach| student_share(reach, freedom))
}

/// Finds where a share that grows with its argument reaches `wanted`.
fn solve(wanted: f64, share: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while share(high) < wanted && high < 1e300 {
        (low, high) = (high, high * 2.0);
    }
    // Halving ends where no double lies between the two.
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if share(middle) < wanted { low = middle } else { high = middle }
    }
    high
}

/// The error function, by its series of positive terms (Abramowitz and Stegun 7.1.6).
fn erf(x: f64) -> f64 {
    if x > 6.0 {
        return 1.0;
    }
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term > sum * 1e-17 {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// Returns the share of Student's distribution within `reach` of its mean (Abramowitz and Stegun 26.7.3 and 26.7.4).
#[expect(clippy::cast_precision_loss, reason = "degrees of freedom stay far below 2^53")]
fn student_share(reach: f64, freedom: usize) -> f64 {
    let angle = (reach / (freedom as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let square = cosine * cosine;
    if freedom.is_multiple_of(2) {
        let (mut term, mut sum) = (1.0, 1.0);
        for at in (2..freedom).step_by(2) {
            term *= square * (at as f64 - 1.0) / at as f64;
            sum += term;
        }
        return sine * sum;
    }
    if freedom == 1 {
        return FRAC_2_PI * angle;
    }
    let (mut term, mut sum) = (cosine, cosine);
    for at in (3..freedom).step_by(2) {
        term *= square * (at as f64 - 1.0) / at as f64;
        sum += term;
    }
    FRAC_2_PI * (angle + sine * sum)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    // Tables of the normal and of Student's distribution.
    #[rstest]
    #[case(0.5, 0.674_489_750_196_082)]
    #[case(0.9, 1.644_853_626_951_473)]
    #[case(0.95, 1.959_963_984_540_054)]
    #[case(0.99, 2.575_829_303_548_901)]
    fn normal_quantiles(#[case] confidence: f64, #[case] expected: f64) {
        assert!((normal_reach(confidence) - expected).abs() < 1e-12);
    }

    #[rstest]
    #[case(0.95, 1, 12.706_204_736)]
    #[case(0.95, 2, 4.302_652_730)]
    #[case(0.95, 3, 3.182_446_305)]
    #[case(0.95, 4, 2.776_445_105)]
    #[case(0.95, 10, 2.228_138_852)]
    #[case(0.95, 29, 2.045_229_642)]
    #[case(0.99, 5, 4.032_142_984)]
    #[case(0.95, 1_000_000, 1.959_966_356)]
    fn student_quantiles(#[case] confidence: f64, #[case] freedom: usize, #[case] expected: f64) {
        assert!((student_reach(confidence, freedom) - expected).abs() < 2e-9 * expected.max(1.0));
    }
}
