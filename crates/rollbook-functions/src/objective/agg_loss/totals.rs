//! What is known of the losses of many rows, and the loss they come to.

use datafusion_common::Result;

use crate::exact::Superaccumulator;

/// How losses are aggregated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    TokenMean,
    TokenSum,
    SequenceMeanTokenSum,
    SequenceMeanTokenSumNorm,
    SequenceMeanTokenMean,
}

/// The constant arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rule {
    pub(super) mode: Mode,
    pub(super) dp_size: f64,
    pub(super) batch_num_tokens: Option<f64>,
    pub(super) global_batch_size: Option<f64>,
    pub(super) loss_scale_factor: Option<f64>,
}

/// The losses of some rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Totals {
    /// Sum of the losses of tokens, or of the mean losses of rows.
    sum: Superaccumulator,
    tokens: u64,
    /// Rows with a selected token.
    rows: u64,
    /// Length of the longest row.
    width: u64,
    /// Whether a selected token has no loss.
    unknown: bool,
}

impl Totals {
    /// Adds a row: its length, and the losses of its selected tokens, which are finite, or NaN for unknown.
    #[expect(clippy::cast_precision_loss, reason = "no row has 2^53 tokens")]
    pub(super) fn add(&mut self, mode: Mode, width: usize, selected: &[f64]) {
        self.width = self.width.max(width as u64);
        self.tokens += selected.len() as u64;
        self.rows += u64::from(!selected.is_empty());
        if selected.iter().any(|loss| loss.is_nan()) {
            self.unknown = true;
        } else if mode == Mode::SequenceMeanTokenMean {
            // Fully masked rows have mean 0.
            let sum = crate::exact::total(selected.iter().copied());
            self.sum.add(sum / (selected.len() as f64 + 1e-8));
        } else {
            selected.iter().for_each(|loss| self.sum.add(*loss));
        }
    }

    /// Adds the rows of another.
    pub(super) fn merge(&mut self, other: &Self) {
        self.sum.merge(&other.sum);
        self.tokens += other.tokens;
        self.rows += other.rows;
        self.width = self.width.max(other.width);
        self.unknown |= other.unknown;
    }

    /// Returns the loss; `None` where it is unknown or divides by nothing.
    #[expect(clippy::cast_precision_loss, reason = "no batch has 2^53 tokens")]
    pub(super) fn loss(&self, rule: &Rule) -> Option<f64> {
        let sum = self.sum.to_f64();
        let of_rows = || rule.global_batch_size.unwrap_or(self.rows as f64);
        let loss = match rule.mode {
            Mode::TokenMean => sum / rule.batch_num_tokens.unwrap_or(self.tokens as f64),
            Mode::TokenSum => sum,
            Mode::SequenceMeanTokenSum | Mode::SequenceMeanTokenMean => sum / of_rows(),
            Mode::SequenceMeanTokenSumNorm => sum / of_rows() / rule.loss_scale_factor.unwrap_or(self.width as f64),
        };
        let loss = loss * rule.dp_size;
        (!self.unknown && loss.is_finite()).then_some(loss)
    }

    /// Returns the bytes held beside the struct itself.
    pub(super) fn heap_size(&self) -> usize {
        self.sum.heap_size()
    }

    /// Writes the totals.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.unknown)];
        for counter in [self.tokens, self.rows, self.width] {
            bytes.extend(counter.to_le_bytes());
        }
        bytes.extend(self.sum.to_bytes());
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote; `None` for anything else.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (unknown, rest) = bytes.split_first()?;
        let (tokens, rest) = rest.split_first_chunk::<8>()?;
        let (rows, rest) = rest.split_first_chunk::<8>()?;
        let (width, rest) = rest.split_first_chunk::<8>()?;
        Some(Self {
            sum: Superaccumulator::from_bytes(rest)?,
            tokens: u64::from_le_bytes(*tokens),
            rows: u64::from_le_bytes(*rows),
            width: u64::from_le_bytes(*width),
            unknown: *unknown != 0,
        })
    }
}

/// Says which argument a mode needs where a batch is spread over several ranks.
pub(super) fn needs(rule: &Rule) -> Result<(), &'static str> {
    let missing = match rule.mode {
        Mode::TokenMean => rule.batch_num_tokens.is_none().then_some("batch_num_tokens"),
        Mode::TokenSum => None,
        _ => rule.global_batch_size.is_none().then_some("global_batch_size"),
    };
    match missing {
        Some(name) if rule.dp_size > 1.0 => Err(name),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MODES: [Mode; 5] = [
        Mode::TokenMean,
        Mode::TokenSum,
        Mode::SequenceMeanTokenSum,
        Mode::SequenceMeanTokenSumNorm,
        Mode::SequenceMeanTokenMean,
    ];

    type Row = Vec<(bool, f64)>;

    fn totals(mode: Mode, rows: &[Row]) -> Totals {
        let mut totals = Totals::default();
        for row in rows {
            let selected: Vec<f64> = row.iter().filter(|token| token.0).map(|token| token.1).collect();
            totals.add(mode, row.len(), &selected);
        }
        totals
    }

    /// The padded matrix, row by row.
    fn naive(mode: Mode, rows: &[Row]) -> f64 {
        let width = rows.iter().map(Vec::len).max().unwrap_or(0);
        let count = |row: &Row| f64::from(u32::try_from(row.iter().filter(|token| token.0).count()).unwrap());
        let sum = |row: &Row| row.iter().map(|token| if token.0 { token.1 } else { 0.0 }).sum::<f64>();
        let tokens: f64 = rows.iter().map(count).sum();
        let filled = f64::from(u32::try_from(rows.iter().filter(|row| count(row) > 0.0).count()).unwrap());
        let all: f64 = rows.iter().map(sum).sum();
        match mode {
            Mode::TokenMean => all / tokens,
            Mode::TokenSum => all,
            Mode::SequenceMeanTokenSum => all / filled,
            Mode::SequenceMeanTokenSumNorm => all / filled / f64::from(u32::try_from(width).unwrap()),
            Mode::SequenceMeanTokenMean => rows.iter().map(|row| sum(row) / (count(row) + 1e-8)).sum::<f64>() / filled,
        }
    }

    proptest! {
        #[test]
        fn losses_are_those_of_the_padded_matrix(
            rows in proptest::collection::vec(
                proptest::collection::vec((any::<bool>(), -1e3..1e3f64), 0..9), 0..9),
            mode in proptest::sample::select(&MODES[..]),
            cut in 0..9usize,
        ) {
            let rule = Rule {
                mode, dp_size: 1.0, batch_num_tokens: None, global_batch_size: None, loss_scale_factor: None,
            };
            let whole = totals(mode, &rows);
            let expected = naive(mode, &rows);
            match whole.loss(&rule) {
                Some(found) => prop_assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{found} {expected}"),
                None => prop_assert!(!expected.is_finite(), "{expected}"),
            }
            let (head, tail) = rows.split_at(cut.min(rows.len()));
            let mut merged = Totals::from_bytes(&totals(mode, tail).to_bytes()).unwrap();
            merged.merge(&totals(mode, head));
            prop_assert_eq!(merged.loss(&rule).map(f64::to_bits), whole.loss(&rule).map(f64::to_bits));
        }
    }
}
