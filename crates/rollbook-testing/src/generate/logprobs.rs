//! Logprobs as engines report them: `log_softmax` in float over bf16 logits.
//!
//! Most tokens of an agent are nearly certain: 14 % have a logprob of exactly zero and 71 % one above -0.01. The bf16
//! grid of the logits and the float arithmetic after it give the values their real, ragged distribution, which matters
//! to every codec.
#![expect(clippy::cast_possible_truncation, reason = "logits are floats by nature")]

use super::draw::Draw;

/// Candidates for each token; what lies further down has no weight.
const CANDIDATES: usize = 32;
const LANES: usize = 8;

/// The logprob of one sampled token.
pub(super) fn draw_logprob(draw: &mut Draw) -> f32 {
    let (top, gap) = (draw.normal(22.0, 4.0) as f32, gap(draw));
    let mut logits = [0.0_f32; CANDIDATES];
    let mut nearest = f32::INFINITY;
    for logit in &mut logits[1..] {
        *logit = draw.exponential(2.5) as f32;
        nearest = nearest.min(*logit);
    }
    logits[0] = to_bf16(top);
    for logit in &mut logits[1..] {
        // The best of the others lies `gap` below the top, the rest below it.
        *logit = to_bf16(top - gap - (*logit - nearest));
    }
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let log_total = total(logits.map(|logit| (logit - highest).exp())).ln();
    let mut rest = draw.fraction() as f32;
    for logit in logits {
        let logprob = (logit - highest) - log_total;
        rest -= logprob.exp();
        if rest < 0.0 {
            return logprob.min(0.0);
        }
    }
    // Rounding can leave a sliver of probability: it belongs to the first.
    ((logits[0] - highest) - log_total).min(0.0)
}

/// Sums as vector units do, in eight lanes and then pairwise. The order decides which tokens end at exactly zero: small
/// weights that are summed before they meet the large one are not lost in it.
fn total(weights: [f32; CANDIDATES]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    for row in weights.chunks_exact(LANES) {
        lanes.iter_mut().zip(row).for_each(|(lane, weight)| *lane += weight);
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] = lanes[2 * lane] + lanes[2 * lane + 1];
        }
    }
    lanes[0]
}

/// How far the runner-up lies below the top: far, near, or a real choice.
fn gap(draw: &mut Draw) -> f32 {
    let kind = draw.fraction();
    let gap = if kind < 0.64 {
        draw.normal(15.0, 4.0)
    } else if kind < 0.86 {
        draw.normal(6.0, 2.5)
    } else {
        draw.gamma(1.5, 1.0)
    };
    gap.max(0.0) as f32
}

/// Rounds to the nearest bf16, half up.
fn to_bf16(value: f32) -> f32 {
    f32::from_bits(value.to_bits().wrapping_add(0x8000) & 0xffff_0000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_is_that_of_real_engines() {
        let mut draw = Draw::new(3, &[]);
        let drawn: Vec<f32> = (0..100_000).map(|_| draw_logprob(&mut draw)).collect();
        let share = |test: fn(&f32) -> bool| {
            let count = drawn.iter().filter(|value| test(value)).count();
            f64::from(u32::try_from(count).unwrap()) / 100_000.0
        };
        let (zero, near, positive) = (share(|x| *x == 0.0), share(|x| *x > -0.01), share(|x| *x > 0.0));
        assert!((zero - 0.14).abs() < 0.02, "exactly zero: {zero}");
        assert!((near - 0.71).abs() < 0.02, "within 0.01 of zero: {near}");
        assert!(positive == 0.0 && drawn.iter().all(|value| value.is_finite()));
    }
}
