//! `token_kl(logprobs, reference_logprobs, mask, call_id)`: an estimate of the divergence from a reference, by token.

use arrow::array::ArrayRef;
use datafusion_common::{Result, exec_err, internal_err};

use super::{CALL_ID, MASK};
use crate::call_window::CallIds;
use crate::constants::Constants;
use crate::function::{Function, Kind, Param};
use crate::list_function::{ListFunction, declared, udf};
use crate::number_lists::{Lists, NOT_FINITE, NotFinite, UNSELECTED, Unselected, lists_of, number_list, shared_length};

/// `token_kl`.
pub(crate) const TOKEN_KL: Function = Function {
    name: "token_kl",
    family: "off_policy",
    version: 1,
    kind: Kind::Scalar(|| udf(DEFINITION)),
    params: &[
        Param::required("logprobs", "double[]", "Logprob of each token under the policy."),
        Param::required("reference_logprobs", "double[]", "Logprob of each token under the reference."),
        MASK,
        CALL_ID,
        Param::optional(
            "estimator",
            "varchar",
            "'k1'",
            "'k1' (or 'kl'), 'abs', 'k2' ('mse') or 'k3' ('low_var_kl'); a '+' behind it, straight-through, has the same value.",
        ),
        Param::optional("log_bound", "double", "20.0", "Bound of the exponent of k3, both ways; null is none."),
        Param::optional("bound", "double", "10.0", "Bound of k3 itself, both ways; null is none."),
        UNSELECTED,
        NOT_FINITE,
    ],
    returns: "double[]",
    doc: "Returns an estimate of the divergence of the policy from a reference, for each token.",
    definition: "\
With `d = reference - logprob`: k1 is `-d`, abs is `|d|`, k2 is `d^2 / 2`, k3 is `exp(d) - d - 1` with d clamped to the log_bound and the result to the bound. \
The straight-through forms ('k1+', 'k3+') change the gradient alone, so their value is that of the plain form.\n\
\n\
- **Mask** comes before arithmetic.\n\
- **Null** where either logprob is null.\n\
- **NaN or infinity** in a selected token is an error that names call and position (`not_finite`); so is a result beyond a double.\n\
- **Lengths**: lists that differ in length are an error that names the call.",
    source: Some("http://joschu.net/blog/kl-approx.html; clamps as in kl_penalty of verl/trainer/ppo/core_algos.py"),
    slt: include_str!("token_kl.slt"),
};

const DEFINITION: ListFunction =
    ListFunction { function: &TOKEN_KL, columns: 4, output: number_list, evaluate, types: declared };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Estimator {
    K1,
    Abs,
    K2,
    K3,
}

const ESTIMATORS: &[(&str, Estimator)] = &[
    ("k1", Estimator::K1),
    ("kl", Estimator::K1),
    ("abs", Estimator::Abs),
    ("k2", Estimator::K2),
    ("mse", Estimator::K2),
    ("k3", Estimator::K3),
    ("low_var_kl", Estimator::K3),
    ("k1+", Estimator::K1),
    ("kl+", Estimator::K1),
    ("abs+", Estimator::Abs),
    ("k2+", Estimator::K2),
    ("mse+", Estimator::K2),
    ("k3+", Estimator::K3),
    ("low_var_kl+", Estimator::K3),
];

impl Estimator {
    fn of(self, logprob: f64, reference: f64, log_bound: f64, bound: f64) -> f64 {
        let difference = logprob - reference;
        match self {
            Self::K1 => difference,
            Self::Abs => difference.abs(),
            Self::K2 => 0.5 * difference * difference,
            Self::K3 => {
                let d = (-difference).clamp(-log_bound, log_bound);
                (d.exp() - d - 1.0).clamp(-bound, bound)
            }
        }
    }
}

fn evaluate(columns: &[ArrayRef], rows: usize, constants: &Constants) -> Result<ArrayRef> {
    let name = TOKEN_KL.name;
    let [logprobs, reference, mask, call_ids] = columns else {
        return internal_err!("{name} of {} columns", columns.len());
    };
    let estimator = constants.choice("estimator", ESTIMATORS)?;
    let bound = |name: &str| -> Result<f64> { Ok(constants.optional_number(name)?.map_or(f64::INFINITY, f64::abs)) };
    let (log_bound, bound) = (bound("log_bound")?, bound("bound")?);
    let unselected = Unselected::of(constants)?;
    let not_finite = NotFinite::of(constants)?;
    let ids = CallIds::of(call_ids)?;
    let lists = [Lists::of("logprobs", logprobs)?, Lists::of("reference_logprobs", reference)?];
    let mask = Lists::of("mask", mask)?;
    let mut lengths = Vec::with_capacity(rows);
    let (mut items, mut selected) = (Vec::new(), Vec::new());
    let mut numbers = [Vec::new(), Vec::new()];
    for row in 0..rows {
        let length = shared_length(name, &ids.show(row), row, &[&mask, &lists[0], &lists[1]])?;
        lengths.push(length);
        let Some(length) = length else { continue };
        selected.clear();
        mask.select(row, length, &mut selected);
        for (list, numbers) in lists.iter().zip(&mut numbers) {
            numbers.clear();
            let read = list.numbers(row, &selected, not_finite, numbers);
            read.or_else(|fault| fault.error(name, &ids.show(row)))?;
        }
        for (position, is_selected) in selected.iter().enumerate() {
            if !*is_selected {
                items.push(unselected.value(0.0));
                continue;
            }
            let kl = estimator.of(numbers[0][position], numbers[1][position], log_bound, bound);
            if kl.is_infinite() {
                return exec_err!(
                    "{name}: the result for call {} at position {position} is beyond a double",
                    ids.show(row)
                );
            }
            items.push(kl);
        }
    }
    lists_of(&lengths, items)
}
