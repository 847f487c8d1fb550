//! Estimates from attempts and successes.

#![expect(clippy::cast_precision_loss, reason = "nobody makes 2^53 attempts")]

use super::distribution::normal_reach;

/// What is asked of k attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Question {
    /// Whether at least one succeeds.
    Any,
    /// Whether all succeed.
    All,
}

impl Question {
    /// Returns the unbiased estimate from `successes` of `attempts`; `None` where there are fewer attempts than k.
    pub(super) fn estimate(self, attempts: usize, successes: usize, k: usize) -> Option<f64> {
        if attempts < k {
            return None;
        }
        // C(m, k) / C(n, k) for the m attempts that would all have to be drawn, as a product of k or n - m factors, whichever is shorter.
        let drawn = match self {
            Self::Any => attempts - successes,
            Self::All => successes,
        };
        let all = if drawn < k {
            0.0
        } else if k <= attempts - drawn {
            (0..k).map(|at| (drawn - at) as f64 / (attempts - at) as f64).product()
        } else {
            (drawn + 1..=attempts).map(|of| (of - k) as f64 / of as f64).product()
        };
        Some(if self == Self::Any { 1.0 - all } else { all })
    }

    /// Returns Wilson's interval for one attempt, carried over to k: both ends follow, for more likely successes make every answer more likely.
    pub(super) fn interval(self, attempts: usize, successes: usize, k: usize, confidence: f64) -> Option<(f64, f64)> {
        let (low, high) = wilson(attempts, successes, confidence)?;
        let carry = |one: f64| match self {
            Self::Any => 1.0 - (1.0 - one).powf(k as f64),
            Self::All => one.powf(k as f64),
        };
        Some((carry(low), carry(high)))
    }
}

/// Returns Wilson's score interval of a share; `None` without attempts.
fn wilson(attempts: usize, successes: usize, confidence: f64) -> Option<(f64, f64)> {
    if attempts == 0 {
        return None;
    }
    let n = attempts as f64;
    let share = successes as f64 / n;
    let reach = normal_reach(confidence);
    let square = reach * reach / n;
    let middle = (share + square / 2.0) / (1.0 + square);
    let half = reach / (1.0 + square) * (share * (1.0 - share) / n + square / (4.0 * n)).sqrt();
    let low = if successes == 0 { 0.0 } else { (middle - half).max(0.0) };
    let high = if successes == attempts { 1.0 } else { (middle + half).min(1.0) };
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    /// Counts the draws of k attempts out of n that answer the question, one by one.
    fn counted(question: Question, attempts: usize, successes: usize, k: usize) -> f64 {
        let draws = (0..1usize << attempts).filter(|draw| draw.count_ones() as usize == k);
        let solved = (1usize << successes) - 1;
        let answers = |draw: &usize| match question {
            Question::Any => draw & solved != 0,
            Question::All => draw & solved == *draw,
        };
        let draws: Vec<usize> = draws.collect();
        draws.iter().filter(|draw| answers(draw)).count() as f64 / draws.len() as f64
    }

    proptest! {
        #[test]
        fn estimates_are_those_of_counting_every_draw(attempts in 1..11usize, successes in 0..11usize, k in 1..11usize) {
            let (successes, k) = (successes.min(attempts), k.min(attempts));
            for question in [Question::Any, Question::All] {
                let estimate = question.estimate(attempts, successes, k).unwrap();
                let expected = counted(question, attempts, successes, k);
                prop_assert!((estimate - expected).abs() < 1e-12, "{estimate} is not {expected}");
            }
        }

        #[test]
        fn an_interval_holds_the_share_and_grows_with_confidence(attempts in 1..200usize, successes in 0..200usize, k in 1..9usize) {
            let successes = successes.min(attempts);
            let share = successes as f64 / attempts as f64;
            for (question, plain) in [(Question::Any, 1.0 - (1.0 - share).powf(k as f64)), (Question::All, share.powf(k as f64))] {
                let (low, high) = question.interval(attempts, successes, k, 0.95).unwrap();
                let (lower, higher) = question.interval(attempts, successes, k, 0.99).unwrap();
                prop_assert!(0.0 <= lower && lower <= low && low <= plain + 1e-12);
                prop_assert!(plain - 1e-12 <= high && high <= higher && higher <= 1.0);
            }
        }
    }

    #[rstest]
    // Wilson's interval by the formula of any textbook, at 95 %.
    #[case(10, 5, 0.236_593, 0.763_407)]
    #[case(10, 0, 0.0, 0.277_533)]
    #[case(20, 20, 0.838_875, 1.0)]
    fn wilson_is_that_of_the_textbook(#[case] n: usize, #[case] c: usize, #[case] low: f64, #[case] high: f64) {
        let (found_low, found_high) = wilson(n, c, 0.95).unwrap();
        assert!((found_low - low).abs() < 1e-6 && (found_high - high).abs() < 1e-6, "{found_low} {found_high}");
        assert_eq!(wilson(0, 0, 0.95), None);
    }

    #[test]
    fn many_attempts_take_few_steps_and_too_few_give_nothing() {
        assert_eq!(Question::Any.estimate(3, 1, 4), None);
        let estimate = Question::Any.estimate(100_000, 1, 50_000).unwrap();
        assert!((estimate - 0.5).abs() < 1e-12);
        assert!((Question::All.estimate(100_000, 99_999, 50_000).unwrap() - 0.5).abs() < 1e-9);
    }
}
