//! `rollout_correction_metrics(train_logprobs, rollout_logprobs, mask, trajectory_id, call_id)`: verl's metrics of a batch.

mod metrics;
mod record;
mod rule;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Builder, MapBuilder, StringBuilder};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, ReversedUDAF, Signature, Volatility,
};

use super::{CALL_ID, MASK, ROLLOUT_LOGPROBS, TRAIN_LOGPROBS};
use crate::argument::argument_types;
use crate::call_window::{CallIds, Tokens};
use crate::constants::Constants;
use crate::function::{Function, Kind, Param};
use crate::number_lists::{Lists, NotFinite};
use metrics::Batch;
use record::Record;
use rule::Rule;

/// `rollout_correction_metrics`.
pub(crate) const ROLLOUT_CORRECTION_METRICS: Function = Function {
    name: "rollout_correction_metrics",
    family: "off_policy",
    version: 1,
    kind: Kind::Aggregate(|| AggregateUDF::new_from_impl(CorrectionMetrics::new())),
    params: &[
        TRAIN_LOGPROBS,
        ROLLOUT_LOGPROBS,
        MASK,
        Param::required("trajectory_id", "varchar", "The trajectory; its calls are one sequence."),
        CALL_ID,
        Param::optional(
            "rollout_is",
            "varchar",
            "NULL",
            "Weights whose metrics are wanted: 'token', 'sequence' or null.",
        ),
        Param::optional("rollout_is_threshold", "varchar", "'2.0'", "An upper bound (TIS), or lower_upper (IcePop)."),
        Param::optional("rollout_is_batch_normalize", "boolean", "false", "Whether weights are divided by their mean."),
        Param::optional("rollout_rs", "varchar", "NULL", "Criteria whose metrics are wanted, as for rejection_mask."),
        Param::optional("rollout_rs_threshold", "varchar", "NULL", "Their thresholds, as for rejection_mask."),
    ],
    returns: "map<varchar, double>",
    doc: "Returns verl's metrics on the distance between the policy that sampled and the one that trains, by verl's names.",
    definition: "\
Perplexities, kl, k3_kl, ppl_ratio, chi2_token and chi2_seq always; with rollout_is the mean, std, extremes, effective sample size and fractions of the \
weights; with rollout_rs those of each criterion and the share that is rejected. Names are verl's, with `rollout_corr/` before them. Means add 1e-8 to counts, \
as verl's do.\n\
\n\
- **Trajectories**: rows with one trajectory_id are one sequence, a row of verl's batch; a null trajectory_id is an error. Sequences without a selected token \
count in means over sequences, as they do in verl.\n\
- **Null**: a token one of whose logprobs is unknown is not counted.\n\
- Without any selected token the map is empty.\n\
- **NaN or infinity** in a selected token, and lists of a call that differ in length, are errors that name the call.\n\
- Sequences are summed in the order of their ids, so that the order of rows leaves no trace. What is held is a few hundred bytes a trajectory.",
    source: Some("verl/trainer/ppo/rollout_corr_helper.py"),
    slt: include_str!("rollout_correction_metrics.slt"),
};

/// Leading arguments that are columns.
const COLUMNS: usize = 5;

#[derive(Debug, PartialEq, Eq, Hash)]
struct CorrectionMetrics {
    signature: Signature,
    documentation: Documentation,
}

impl CorrectionMetrics {
    fn new() -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
            documentation: ROLLOUT_CORRECTION_METRICS.documentation(),
        }
    }
}

fn map_type() -> DataType {
    let entries = vec![Field::new("keys", DataType::Utf8, false), Field::new("values", DataType::Float64, true)];
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries.into()), false)), false)
}

impl AggregateUDFImpl for CorrectionMetrics {
    fn name(&self) -> &str {
        ROLLOUT_CORRECTION_METRICS.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        argument_types(&ROLLOUT_CORRECTION_METRICS, arg_types)
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(map_type())
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return plan_err!("{} takes no DISTINCT", self.name());
        }
        let rule = Rule::of(&Constants::of_aggregate(&ROLLOUT_CORRECTION_METRICS, COLUMNS, &args)?)?;
        Ok(Box::new(MetricsAccumulator { rule, records: BTreeMap::new() }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "records"), DataType::Binary, true))])
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

#[derive(Debug)]
struct MetricsAccumulator {
    rule: Rule,
    records: BTreeMap<String, Record>,
}

impl Accumulator for MetricsAccumulator {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let name = ROLLOUT_CORRECTION_METRICS.name;
        let [train, rollout, mask, trajectories, call_ids, ..] = columns else {
            return internal_err!("{name} over {} columns", columns.len());
        };
        let rows = train.len();
        let (ids, trajectories) = (CallIds::of(call_ids)?, CallIds::of(trajectories)?);
        let (train, rollout) = (Lists::of("train_logprobs", train)?, Lists::of("rollout_logprobs", rollout)?);
        let mask = Lists::of("mask", mask)?;
        let tokens = Tokens::read(name, &ids, &mask, &[&train, &rollout], rows, NotFinite::Error)?;
        for (row, range) in tokens.ranges().enumerate() {
            let Some(trajectory) = trajectories.get(row) else {
                return exec_err!("{name}: call {} has no trajectory_id", ids.show(row));
            };
            if !self.records.contains_key(trajectory) {
                self.records.insert(trajectory.to_owned(), Record::new(&self.rule));
            }
            let Some(record) = self.records.get_mut(trajectory) else { continue };
            for at in range.filter(|at| tokens.selected[*at]) {
                let (train, rollout) = (tokens.numbers[0][at], tokens.numbers[1][at]);
                if !train.is_nan() && !rollout.is_nan() {
                    record.add(&self.rule, train, rollout);
                }
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut map = MapBuilder::new(None, StringBuilder::new(), Float64Builder::new());
        for (name, value) in Batch::new(self.records.values()).metrics(&self.rule) {
            map.keys().append_value(name);
            map.values().append_value(value);
        }
        map.append(true)?;
        Ok(ScalarValue::Map(Arc::new(map.finish())))
    }

    fn size(&self) -> usize {
        let one = size_of::<(String, Record)>() + 16 * (32 + 5 * self.rule.token_criteria().count());
        size_of_val(self) + self.records.keys().map(|id| id.capacity() + one).sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut bytes = Vec::new();
        for (id, record) in &self.records {
            let Ok(length) = u32::try_from(id.len()) else {
                return internal_err!("an id of {} bytes", id.len());
            };
            bytes.extend(length.to_le_bytes());
            bytes.extend(id.as_bytes());
            record.write(&mut bytes);
        }
        Ok(vec![ScalarValue::Binary(Some(bytes))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [states] = states else {
            return internal_err!("{} merges {} columns", ROLLOUT_CORRECTION_METRICS.name, states.len());
        };
        for state in states.as_binary::<i32>().iter().flatten() {
            let mut rest = state;
            while !rest.is_empty() {
                let Some((id, record, tail)) = read_state(&self.rule, rest) else {
                    return internal_err!("the state of {} is damaged", ROLLOUT_CORRECTION_METRICS.name);
                };
                rest = tail;
                match self.records.get_mut(id) {
                    Some(known) => known.merge(&record),
                    None => drop(self.records.insert(id.to_owned(), record)),
                }
            }
        }
        Ok(())
    }
}

/// Returns an accumulator with these constants.
#[cfg(test)]
pub(super) fn accumulator(given: &[ScalarValue]) -> Result<impl Accumulator + use<>> {
    let rule = Rule::of(&Constants::new(&ROLLOUT_CORRECTION_METRICS, COLUMNS, given.to_vec())?)?;
    Ok(MetricsAccumulator { rule, records: BTreeMap::new() })
}

fn read_state<'a>(rule: &Rule, bytes: &'a [u8]) -> Option<(&'a str, Record, &'a [u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (id, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let (record, rest) = Record::read(rule, rest)?;
    Some((std::str::from_utf8(id).ok()?, record, rest))
}
