//! Criteria that reject tokens and trajectories, as verl spells them: `token_k1`, `seq_mean_k3` and so on, each with a threshold.

use datafusion_common::{Result, plan_err};

use super::ratio::{Divergence, Sum, bounded};

/// What a criterion looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// Each token.
    Token,
    /// The sum over the trajectory.
    Sum,
    /// The mean over the trajectory.
    Mean,
    /// The largest of the trajectory.
    Max,
}

/// Added to counts in means, as verl does.
pub(super) const COUNT_EPS: f64 = 1e-8;

const OPTIONS: [(&str, Level, Divergence); 11] = [
    ("token_k1", Level::Token, Divergence::K1),
    ("token_k2", Level::Token, Divergence::K2),
    ("token_k3", Level::Token, Divergence::K3),
    ("seq_sum_k1", Level::Sum, Divergence::K1),
    ("seq_sum_k2", Level::Sum, Divergence::K2),
    ("seq_sum_k3", Level::Sum, Divergence::K3),
    ("seq_mean_k1", Level::Mean, Divergence::K1),
    ("seq_mean_k2", Level::Mean, Divergence::K2),
    ("seq_mean_k3", Level::Mean, Divergence::K3),
    ("seq_max_k2", Level::Max, Divergence::K2),
    ("seq_max_k3", Level::Max, Divergence::K3),
];

/// One criterion with its bounds; those of k1 are bounds of ratios and stand here as logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Criterion {
    pub(super) name: &'static str,
    pub(super) level: Level,
    pub(super) divergence: Divergence,
    pub(super) lower: Option<f64>,
    pub(super) upper: f64,
}

impl Criterion {
    /// Reads a list of criteria and their thresholds: one for all, or one each.
    pub(super) fn parse(options: &str, thresholds: &str) -> Result<Vec<Self>> {
        let mut names: Vec<&str> = Vec::new();
        for name in options.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let specs: Vec<&str> = thresholds.split(',').map(str::trim).filter(|spec| !spec.is_empty()).collect();
        if names.is_empty() || (specs.len() != 1 && specs.len() != names.len()) {
            return plan_err!(
                "{} thresholds for {} criteria: there must be one for all, or one for each",
                specs.len(),
                names.len()
            );
        }
        let pairs = names.iter().enumerate().map(|(at, name)| (name, specs.get(at).or(specs.first())));
        pairs.map(|(name, spec)| Self::one(name, spec.copied().unwrap_or_default())).collect()
    }

    fn one(wanted: &str, spec: &str) -> Result<Self> {
        let Some((name, level, divergence)) = OPTIONS.iter().find(|(name, _, _)| *name == wanted).copied() else {
            let known: Vec<&str> = OPTIONS.iter().map(|(name, _, _)| *name).collect();
            return plan_err!("there is no criterion {wanted}; there are {}", known.join(", "));
        };
        let bounds = Bounds::parse(spec)?;
        if divergence != Divergence::K1 {
            return match bounds.lower {
                None => Ok(Self { name, level, divergence, lower: None, upper: bounds.upper }),
                Some(_) => plan_err!("the threshold of {name} is one upper bound, not {spec}"),
            };
        }
        let lower = bounds.lower.unwrap_or(1.0 / bounds.upper);
        if lower > bounds.upper {
            return plan_err!("the threshold {spec} of {name} has its lower bound above the upper");
        }
        Ok(Self { name, level, divergence, lower: Some(lower.ln()), upper: bounds.upper.ln() })
    }

    /// Returns whether a statistic passes; an unknown one passes neither way.
    pub(super) fn keeps(&self, statistic: f64) -> Option<bool> {
        if statistic.is_nan() {
            return None;
        }
        Some(statistic <= self.upper && self.lower.is_none_or(|lower| statistic >= lower))
    }

    /// Returns the statistic of a trajectory with these log ratios; NaN where one is unknown. 0 where there is none.
    pub(super) fn statistic(&self, log_ratios: impl Iterator<Item = f64>) -> f64 {
        let mut sum = Sum::default();
        let (mut count, mut largest) = (0.0, f64::NEG_INFINITY);
        for log_ratio in log_ratios {
            let value = self.divergence.of(bounded(log_ratio));
            sum.add(value);
            count += 1.0;
            if value.is_nan() || value > largest {
                largest = if f64::is_nan(largest) { largest } else { value };
            }
        }
        match self.level {
            Level::Mean => sum.get() / (count + COUNT_EPS),
            Level::Max if count == 0.0 => 0.0,
            Level::Max => largest,
            Level::Token | Level::Sum => sum.get(),
        }
    }
}

/// Bounds of a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bounds {
    pub(super) lower: Option<f64>,
    pub(super) upper: f64,
}

impl Bounds {
    /// Reads `upper` or `lower_upper`.
    pub(super) fn parse(spec: &str) -> Result<Self> {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|value| *value > 0.0 && value.is_finite());
        let bounds = match spec.split_once('_') {
            Some((lower, upper)) => number(lower).map(Some).zip(number(upper)),
            None => number(spec).map(|upper| (None, upper)),
        };
        match bounds {
            Some((lower, upper)) if lower.is_none_or(|lower| lower <= upper) => Ok(Self { lower, upper }),
            _ => plan_err!("the threshold `{spec}` is neither a number above 0 nor two of them, as in 0.5_2.0"),
        }
    }
}
