//! Whether what a row says twice of a token's training agrees.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, PrimitiveArray};
use datafusion::arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use datafusion::logical_expr::ScalarUDF;

use super::faults::{Fault, Faults, fault_list, shown};
use super::lists::{any_struct, bits, is_set, item, list, lists, mask, true_runs};
use super::outline::Outline;
use super::row_function::RowFunction;
use super::weights::doubles;

/// What contradicts what, the more telling first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `action_mask` and `segments.trained` differ.
    Segment,
    /// A token that does not train has a loss weight.
    WeightOutside,
    /// A token that trains has a weight of zero or less.
    NoWeight,
    /// A token that trains has no finite advantage.
    NoAdvantage,
    /// A token that does not train has an advantage that is no number.
    AdvantageOutside,
}

/// `mask_faults(segments, action_mask, loss_weights, advantages)`.
pub(super) fn mask_faults() -> ScalarUDF {
    let arguments = vec![list(any_struct()), list(DataType::Boolean), list(DataType::Float64), list(DataType::Float64)];
    RowFunction::udf("mask_faults", arguments, fault_list(), |arrays, rows| {
        let (segments, masks) = (lists(arrays, 0)?, lists(arrays, 1)?);
        let (weights, advantages) = (lists(arrays, 2)?, lists(arrays, 3)?);
        let mut faults = Faults::default();
        for row in 0..rows {
            let outline = item(segments, row).map(|items| Outline::read(&items)).transpose()?;
            let (mask, weights, advantages) = (mask(masks, row)?, item(weights, row), item(advantages, row));
            if mask.as_ref().is_some_and(|mask| agrees(mask, outline.as_ref(), [&weights, &advantages])) {
                faults.add_row(Vec::new());
                continue;
            }
            let row = Told {
                mask,
                weights: doubles(weights)?,
                advantages: doubles(advantages)?,
                said: outline.as_ref().map_or_else(Vec::new, said),
            };
            faults.add_row(row.faults());
        }
        faults.finish()
    })
}

/// What each token's segment says of its training; tokens of padding say nothing here.
fn said(outline: &Outline) -> Vec<Option<bool>> {
    let end = outline.parts().map(|part| part.range().end).max().unwrap_or(0);
    let mut said = vec![None; end];
    for part in outline.parts() {
        if let Some(slots) = said.get_mut(part.range()) {
            slots.fill(part.trained);
        }
    }
    said
}

/// Whether a row surely has no fault, by looks that many tokens take at once. A no may be wrong.
fn agrees(mask: &BooleanArray, outline: Option<&Outline>, [weights, advantages]: [&Option<ArrayRef>; 2]) -> bool {
    let bits = bits(mask);
    let runs: Vec<(usize, usize)> = true_runs(&bits, 0..bits.len()).collect();
    let said = outline.into_iter().flat_map(Outline::parts).all(|part| {
        let range = part.range();
        let wanted = part.trained.map(|trained| if trained { range.len() } else { 0 });
        range.end > bits.len()
            || wanted.is_none_or(|wanted| bits.slice(range.start, range.len()).count_set_bits() == wanted)
    });
    let of_row = |values: &Option<ArrayRef>| values.clone().filter(|values| values.len() == bits.len());
    said && of_row(weights).is_none_or(|weights| {
        stretches_hold(&weights, &runs, |weight| weight > 0.0 || weight.is_nan(), |weight| weight == 0.0)
    }) && of_row(advantages).is_none_or(|advantages| {
        let is_there =
            |run: &(usize, usize)| advantages.nulls().is_none_or(|nulls| nulls.slice(run.0, run.1).null_count() == 0);
        runs.iter().all(is_there) && stretches_hold(&advantages, &runs, f64::is_finite, f64::is_finite)
    })
}

/// Whether all values of the runs are as they must be where a token trains, and all between them as where none does.
pub(super) fn stretches_hold(
    values: &ArrayRef,
    runs: &[(usize, usize)],
    trained: impl Fn(f64) -> bool,
    other: impl Fn(f64) -> bool,
) -> bool {
    match values.data_type() {
        DataType::Float32 => hold(values.as_primitive::<Float32Type>().values(), runs, trained, other),
        DataType::Float64 => hold(values.as_primitive::<Float64Type>().values(), runs, trained, other),
        _ => false,
    }
}

fn hold<T: Copy + Into<f64>>(
    values: &[T],
    runs: &[(usize, usize)],
    trained: impl Fn(f64) -> bool,
    other: impl Fn(f64) -> bool,
) -> bool {
    let mut end = 0;
    runs.iter().copied().chain([(values.len(), 0)]).all(|(start, length)| {
        let (gap, run) = (values.get(end..start), values.get(start..start + length));
        end = start + length;
        all(gap, &other) && all(run, &trained)
    })
}

/// Without a branch, so that the loop takes many values at once.
fn all<T: Copy + Into<f64>>(values: Option<&[T]>, holds: impl Fn(f64) -> bool) -> bool {
    values.is_some_and(|values| values.iter().fold(true, |all, value| all & holds((*value).into())))
}

struct Told {
    mask: Option<BooleanArray>,
    weights: Option<Float64Array>,
    advantages: Option<Float64Array>,
    said: Vec<Option<bool>>,
}

impl Told {
    fn faults(&self) -> Vec<Fault> {
        // Lists of other lengths say nothing of which token they mean: token/length has those.
        let total = self.mask.as_ref().map_or(self.said.len(), Array::len);
        let of_row = |values: &Option<Float64Array>| values.clone().filter(|values| values.len() == total);
        let (weights, advantages) = (of_row(&self.weights), of_row(&self.advantages));
        let said = if self.said.len() == total { self.said.as_slice() } else { &[] };
        let mut runs: Vec<(Kind, usize, usize)> = Vec::new();
        for at in 0..total {
            let segment = said.get(at).copied().flatten();
            let Some(trains) = self.mask.as_ref().map(|mask| is_set(mask, at)).or(segment) else {
                continue;
            };
            let Some(kind) = kind(trains, segment, value(weights.as_ref(), at), value(advantages.as_ref(), at)) else {
                continue;
            };
            match runs.last_mut() {
                Some((last, start, length)) if *last == kind && *start + *length == at => *length += 1,
                _ => runs.push((kind, at, 1)),
            }
        }
        runs.into_iter()
            .map(|(kind, start, length)| fault(kind, start, length, weights.as_ref(), advantages.as_ref()))
            .collect()
    }
}

/// None: no such list; `Some(None)`: a null in it.
fn value(values: Option<&Float64Array>, at: usize) -> Option<Option<f64>> {
    values.map(|values| values.is_valid(at).then(|| values.value(at)))
}

fn kind(
    trains: bool,
    segment: Option<bool>,
    weight: Option<Option<f64>>,
    advantage: Option<Option<f64>>,
) -> Option<Kind> {
    if segment.is_some_and(|segment| segment != trains) {
        return Some(Kind::Segment);
    }
    let weight = weight.flatten();
    if trains {
        // A weight that is no number is a question of its share: pack/weight.
        if weight.is_some_and(|weight| weight <= 0.0) {
            return Some(Kind::NoWeight);
        }
        let is_missing = advantage.is_some_and(|advantage| !advantage.is_some_and(f64::is_finite));
        return is_missing.then_some(Kind::NoAdvantage);
    }
    if weight.is_some_and(|weight| weight != 0.0) {
        return Some(Kind::WeightOutside);
    }
    advantage.flatten().is_some_and(|advantage| !advantage.is_finite()).then_some(Kind::AdvantageOutside)
}

fn fault(
    kind: Kind,
    start: usize,
    length: usize,
    weights: Option<&Float64Array>,
    advantages: Option<&Float64Array>,
) -> Fault {
    let weights = || texts(weights, start, length);
    let advantages = || texts(advantages, start, length);
    let (expected, observed, message) = match kind {
        Kind::Segment => (
            "action_mask and segments.trained agree",
            "they differ".to_owned(),
            "action_mask and segments.trained differ".to_owned(),
        ),
        Kind::WeightOutside => {
            ("0 where nothing trains", weights(), format!("they do not train and have the loss weight {}", weights()))
        }
        Kind::NoWeight => {
            ("above 0 where a token trains", weights(), format!("they train and have the loss weight {}", weights()))
        }
        Kind::NoAdvantage => (
            "a finite advantage where a token trains",
            advantages(),
            format!("they train and have the advantage {}", advantages()),
        ),
        Kind::AdvantageOutside => (
            "a finite advantage, or none",
            advantages(),
            format!("they do not train, and their advantage {} makes a product with the mask no number", advantages()),
        ),
    };
    let message = format!("{length} tokens from row token {start} on: {message}");
    Fault { position: start, length, expected: expected.to_owned(), observed, message, ..Fault::default() }
}

/// The values of a run as text.
fn texts<T: ArrowPrimitiveType>(values: Option<&PrimitiveArray<T>>, start: usize, length: usize) -> String
where
    T::Native: ToString,
{
    let Some(values) = values else {
        return String::new();
    };
    let end = (start + length).min(values.len());
    shown((start..end).map(|at| if values.is_valid(at) { values.value(at).to_string() } else { "null".to_owned() }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn told(mask: &[bool], said: &[bool], weights: &[f64], advantages: Vec<Option<f64>>) -> Told {
        Told {
            mask: Some(mask.to_vec().into()),
            weights: Some(weights.to_vec().into()),
            advantages: Some(advantages.into()),
            said: said.iter().copied().map(Some).collect(),
        }
    }

    fn is_sure(told: &Told) -> bool {
        let array = |values: &Option<Float64Array>| values.clone().map(|values| Arc::new(values) as ArrayRef);
        let (weights, advantages) = (array(&told.weights), array(&told.advantages));
        told.mask.as_ref().is_some_and(|mask| agrees(mask, None, [&weights, &advantages]))
    }

    /// Every value that matters in every place of three tokens: what the quick look passes, the slow one does.
    #[test]
    fn the_quick_look_passes_nothing_that_is_wrong() {
        let weights = [0.0, 1.0, -1.0, f64::NAN];
        let advantages = [None, Some(0.0), Some(f64::NAN)];
        let mut passed = 0;
        for mask in 0..8_usize {
            for case in 0..(weights.len() * advantages.len()).pow(3) {
                let digit = |at: u32| case / 12_usize.pow(at) % 12;
                let told = told(
                    &[0, 1, 2].map(|at| mask >> at & 1 == 1),
                    &[],
                    &[0, 1, 2].map(|at| weights[digit(at) % 4]),
                    [0, 1, 2].map(|at| advantages[digit(at) / 4]).to_vec(),
                );
                if is_sure(&told) {
                    passed += 1;
                    assert!(places(&told).is_empty(), "{mask} {case}");
                }
            }
        }
        // One that trains passes with a weight of 1 or NaN and an advantage of 0, one that does not with a weight of 0 and an advantage of
        // 0 or none: two of twelve pairs either way, for each of three tokens, under eight masks.
        assert_eq!(passed, 64);
    }

    fn places(told: &Told) -> Vec<(usize, usize)> {
        told.faults().iter().map(|fault| (fault.position, fault.length)).collect()
    }

    #[test]
    fn a_row_that_agrees_with_itself_has_no_fault() {
        let told = told(&[false, true], &[false, true], &[0.0, 1.0], vec![None, Some(0.0)]);
        assert!(places(&told).is_empty());
    }

    #[test]
    fn each_contradiction_is_a_run() {
        let one = told(
            &[true, true, false, false],
            &[false, false, false, true],
            &[1.0, 1.0, 0.5, 0.0],
            vec![Some(1.0), Some(1.0), None, None],
        );
        assert_eq!(places(&one), [(0, 2), (2, 1), (3, 1)]);
        let other = told(
            &[true, true, false],
            &[true, true, false],
            &[-0.5, 1.0, 0.0],
            vec![Some(1.0), Some(f64::NAN), Some(f64::INFINITY)],
        );
        assert_eq!(places(&other), [(0, 1), (1, 1), (2, 1)]);
    }
}
