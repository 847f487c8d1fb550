//! `agg_loss(loss_mat, loss_mask)`: the loss of a batch.

mod totals;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, ReversedUDAF, Signature, Volatility,
};

use crate::argument::argument_types;
use crate::constants::Constants;
use crate::function::{Function, Kind, Param};
use crate::number_lists::{Lists, NotFinite, shared_length};
use totals::{Mode, Rule, Totals, needs};

/// `agg_loss`.
pub(crate) const AGG_LOSS: Function = Function {
    name: "agg_loss",
    family: "objective",
    version: 1,
    kind: Kind::Aggregate(|| AggregateUDF::new_from_impl(AggLoss::new())),
    params: &[
        Param::required("loss_mat", "double[]", "Loss of each token of the row."),
        Param::required("loss_mask", "boolean[]", "Which tokens train; a null list selects all, a null item none."),
        Param::optional(
            "loss_agg_mode",
            "varchar",
            "'token-mean'",
            "'token-mean', 'token-sum', 'seq-mean-token-sum', 'seq-mean-token-sum-norm' or 'seq-mean-token-mean'.",
        ),
        Param::optional(
            "dp_size",
            "bigint",
            "1",
            "Data ranks whose gradients are averaged: the loss is multiplied by it.",
        ),
        Param::optional(
            "batch_num_tokens",
            "bigint",
            "NULL",
            "Denominator of token-mean; null is the number of selected tokens.",
        ),
        Param::optional(
            "global_batch_size",
            "bigint",
            "NULL",
            "Denominator of the seq-mean modes; null is the number of rows with a selected token.",
        ),
        Param::optional(
            "loss_scale_factor",
            "bigint",
            "NULL",
            "Second denominator of seq-mean-token-sum-norm; null is the length of the longest row, to which verl pads the others.",
        ),
    ],
    returns: "double",
    doc: "Returns the loss of a batch of rows, aggregated as verl does.",
    definition: "\
With l and m loss and mask, T the number of selected tokens and N the number of rows that have one:\n\
\n\
| mode | loss |\n\
|---|---|\n\
| token-mean | `sum(l m) / T` |\n\
| token-sum | `sum(l m)` |\n\
| seq-mean-token-sum | `sum(l m) / N` |\n\
| seq-mean-token-sum-norm | `sum(l m) / N / loss_scale_factor` |\n\
| seq-mean-token-mean | `sum over rows of (sum(l m) / (sum(m) + 1e-8)) / N` |\n\
\n\
- **Mask** comes before arithmetic: what a token that is not selected holds, NaN included, is never looked at.\n\
- **Null**: an unknown loss of a selected token makes the result null. So does a denominator of 0, where verl has NaN.\n\
- **NaN or infinity** in a selected token, and lists of one row that differ in length, are errors. A row whose lists are both null is none.\n\
- With `dp_size` above 1 the denominator must be given, since a rank sees only its part of the batch.\n\
- The sum is exact until it is rounded once, so no order of rows and no number of threads can change a bit.",
    source: Some("verl/trainer/ppo/core_algos.py at commit 1dda039b, agg_loss"),
    slt: include_str!("agg_loss.slt"),
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct AggLoss {
    signature: Signature,
    documentation: Documentation,
}

impl AggLoss {
    fn new() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable), documentation: AGG_LOSS.documentation() }
    }
}

/// Reads a count that must be positive where it is given.
#[expect(clippy::cast_precision_loss, reason = "no batch has 2^53 tokens")]
fn positive(constants: &Constants, name: &str) -> Result<Option<f64>> {
    match constants.integer(name)? {
        Some(count) if count < 1 => plan_err!("agg_loss: {name} must be at least 1, not {count}"),
        count => Ok(count.map(|count| count as f64)),
    }
}

fn rule(constants: &Constants) -> Result<Rule> {
    let Some(dp_size) = positive(constants, "dp_size")? else {
        return plan_err!("agg_loss: dp_size must not be null");
    };
    let mode = constants.choice(
        "loss_agg_mode",
        &[
            ("token-mean", Mode::TokenMean),
            ("token-sum", Mode::TokenSum),
            ("seq-mean-token-sum", Mode::SequenceMeanTokenSum),
            ("seq-mean-token-sum-norm", Mode::SequenceMeanTokenSumNorm),
            ("seq-mean-token-mean", Mode::SequenceMeanTokenMean),
        ],
    )?;
    let rule = Rule {
        mode,
        dp_size,
        batch_num_tokens: positive(constants, "batch_num_tokens")?,
        global_batch_size: positive(constants, "global_batch_size")?,
        loss_scale_factor: positive(constants, "loss_scale_factor")?,
    };
    match needs(&rule) {
        Ok(()) => Ok(rule),
        Err(name) => plan_err!("agg_loss: {name} must be given where dp_size is above 1"),
    }
}

impl AggregateUDFImpl for AggLoss {
    fn name(&self) -> &str {
        AGG_LOSS.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        argument_types(&AGG_LOSS, arg_types)
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return plan_err!("{} takes no DISTINCT", AGG_LOSS.name);
        }
        let rule = rule(&Constants::of_aggregate(&AGG_LOSS, 2, &args)?)?;
        Ok(Box::new(LossAccumulator { rule, totals: Totals::default() }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "totals"), DataType::Binary, true))])
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

/// The losses of one group of rows.
#[derive(Debug)]
struct LossAccumulator {
    rule: Rule,
    totals: Totals,
}

impl Accumulator for LossAccumulator {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let name = AGG_LOSS.name;
        let [losses, mask, ..] = columns else {
            return internal_err!("{name} over {} columns", columns.len());
        };
        let rows = losses.len();
        let (losses, mask) = (Lists::of("loss_mat", losses)?, Lists::of("loss_mask", mask)?);
        let (mut selected, mut numbers) = (Vec::new(), Vec::new());
        for row in 0..rows {
            let Some(length) = shared_length(name, "of a row", row, &[&mask, &losses])? else { continue };
            selected.clear();
            numbers.clear();
            mask.select(row, length, &mut selected);
            let read = losses.numbers(row, &selected, NotFinite::Error, &mut numbers);
            if let Err(fault) = read {
                return exec_err!("{name}: loss_mat is {} at a selected token", fault.value);
            }
            let mut chosen = selected.iter();
            numbers.retain(|_| chosen.next().copied().unwrap_or(false));
            self.totals.add(self.rule.mode, length, &numbers);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.totals.loss(&self.rule)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.totals.heap_size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Binary(Some(self.totals.to_bytes()))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [states] = states else {
            return internal_err!("{} merges {} columns", AGG_LOSS.name, states.len());
        };
        for state in states.as_binary::<i32>().iter().flatten() {
            let Some(totals) = Totals::from_bytes(state) else {
                return internal_err!("the state of {} is damaged", AGG_LOSS.name);
            };
            self.totals.merge(&totals);
        }
        Ok(())
    }
}
