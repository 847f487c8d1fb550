//! Which output tokens of a call train, and why the others do not.
//!
//! The reasons are tried in the order they are listed; the first that holds is the one recorded.

use std::ops::Range;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float32Array, Int32Array, ListArray, RecordBatch, StringArray,
};
use arrow::datatypes::{DataType, Float32Type, Int32Type};

use crate::error::{Error, Result};

/// Why a sampled token does not train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// The source or the call's kind says that it is not for training.
    NotTrainable,
    /// Its ids, or those of its prompt, are not those of the engine.
    NotExact,
    /// The policy did not sample it.
    NotSampled,
    /// The source masks it.
    ActionMask,
    /// It has no rollout logprob.
    NoLogprob,
    /// There is no credit: the reward's reason by its number, or none.
    NoCredit(Option<u16>),
    /// The run has another call of the same id.
    DoubledId,
    /// The plan leaves the call out.
    NotPlanned,
    /// The call or its rollout is quarantined.
    Quarantined,
}

impl Reason {
    /// Returns the text for `exclusions.reason`; `rewards` are the reasons the reward gave.
    pub(crate) fn text(self, rewards: &[String]) -> &str {
        match self {
            Self::NotTrainable => "not_trainable",
            Self::NotExact => "not_exact",
            Self::NotSampled => "not_sampled",
            Self::ActionMask => "action_mask",
            Self::NoLogprob => "no_logprob",
            Self::NoCredit(reason) => {
                reason.and_then(|reason| rewards.get(usize::from(reason))).map_or("no_credit", String::as_str)
            }
            Self::DoubledId => "doubled_id",
            Self::NotPlanned => "not_planned",
            Self::Quarantined => "quarantined",
        }
    }
}

/// Neighbouring output tokens with one verdict; `None` trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) length: u32,
    pub(super) reason: Option<Reason>,
}

/// The columns that [`CallColumns`] reads.
pub(super) const COLUMNS: &[&str] = &[
    "call_id",
    "rollout_id",
    "step",
    "group_id",
    "kind",
    "is_trainable",
    "prompt_exactness",
    "output_exactness",
    "logprobs_source",
    "prompt_len",
    "output_len",
    "output_token_ids",
    "output_logprobs",
    "sampled_mask",
    "action_mask",
];

/// Typed access to the columns of a batch of calls.
pub(super) struct CallColumns {
    pub(super) call_id: StringArray,
    pub(super) rollout_id: StringArray,
    pub(super) step: ArrayRef,
    pub(super) group_id: StringArray,
    kind: StringArray,
    is_trainable: BooleanArray,
    prompt_exactness: StringArray,
    output_exactness: StringArray,
    logprobs_source: StringArray,
    prompt_len: Int32Array,
    output_len: Int32Array,
    pub(super) output: ListArray,
    logprobs: ListArray,
    sampled_mask: ListArray,
    action_mask: ListArray,
}

/// Finds a column of a batch.
pub(crate) fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::corrupt(format!("the scan lost column {name}")))
}

/// Finds a text column of a batch.
pub(crate) fn text(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    let array = arrow::compute::cast(column(batch, name)?, &DataType::Utf8)?;
    Ok(array.as_string::<i32>().clone())
}

/// Finds an integer column of a batch.
pub(super) fn integer(batch: &RecordBatch, name: &str) -> Result<Int32Array> {
    let array = arrow::compute::cast(column(batch, name)?, &DataType::Int32)?;
    Ok(array.as_primitive::<Int32Type>().clone())
}

/// Finds a list column of a batch.
pub(crate) fn list(batch: &RecordBatch, name: &str) -> Result<ListArray> {
    let array = column(batch, name)?;
    array.as_list_opt::<i32>().cloned().ok_or_else(|| Error::corrupt(format!("column {name} is no list")))
}

impl CallColumns {
    pub(super) fn new(batch: &RecordBatch) -> Result<Self> {
        let is_trainable = column(batch, "is_trainable")?;
        Ok(Self {
            call_id: text(batch, "call_id")?,
            rollout_id: text(batch, "rollout_id")?,
            step: arrow::compute::cast(column(batch, "step")?, &DataType::Int64)?,
            group_id: text(batch, "group_id")?,
            kind: text(batch, "kind")?,
            is_trainable: is_trainable.as_boolean().clone(),
            prompt_exactness: text(batch, "prompt_exactness")?,
            output_exactness: text(batch, "output_exactness")?,
            logprobs_source: text(batch, "logprobs_source")?,
            prompt_len: integer(batch, "prompt_len")?,
            output_len: integer(batch, "output_len")?,
            output: list(batch, "output_token_ids")?,
            logprobs: list(batch, "output_logprobs")?,
            sampled_mask: list(batch, "sampled_mask")?,
            action_mask: list(batch, "action_mask")?,
        })
    }

    /// Returns the output's logprobs, where they can be told to belong to its tokens.
    pub(super) fn logprobs(&self, row: usize) -> Option<Float32Array> {
        if self.logprobs.is_null(row) {
            return None;
        }
        let values = self.logprobs.value(row);
        let values = values.as_primitive_opt::<Float32Type>()?.clone();
        (values.len() == self.output_tokens(row)).then_some(values)
    }

    pub(super) fn output_tokens(&self, row: usize) -> usize {
        if self.output.is_null(row) { 0 } else { self.output.value_length(row).unsigned_abs() as usize }
    }

    fn is_trainable(&self, row: usize) -> bool {
        if self.is_trainable.is_valid(row) {
            return self.is_trainable.value(row);
        }
        self.kind.is_null(row) || matches!(self.kind.value(row), "act" | "compact")
    }

    fn is_exact(&self, row: usize, accept_assumed: bool) -> bool {
        self.prompt_len.is_valid(row)
            && self.output_len.is_valid(row)
            && is_usable(&self.prompt_exactness, row, accept_assumed)
            && is_usable(&self.output_exactness, row, accept_assumed)
    }

    /// Gives the verdict on each output token; `call` is what is known of all of them.
    pub(super) fn verdicts(&self, row: usize, accept_assumed: bool, call: CallVerdict<'_>) -> Vec<Run> {
        let tokens = self.output_tokens(row);
        let whole = |reason| {
            let length = u32::try_from(tokens).unwrap_or(u32::MAX);
            if length == 0 { Vec::new() } else { vec![Run { start: 0, length, reason: Some(reason) }] }
        };
        if !self.is_trainable(row) {
            return whole(Reason::NotTrainable);
        }
        if !self.is_exact(row, accept_assumed) {
            return whole(Reason::NotExact);
        }
        let sampled = Mask::new(&self.sampled_mask, row, tokens);
        let action = Mask::new(&self.action_mask, row, tokens);
        let is_rollout_logprob = is_usable(&self.logprobs_source, row, accept_assumed);
        let logprobs = self.logprobs(row).filter(|_| is_rollout_logprob);
        let mut runs: Vec<Run> = Vec::new();
        for token in 0..tokens {
            let has_logprob =
                logprobs.as_ref().is_some_and(|values| values.is_valid(token) && values.value(token).is_finite());
            let reason = match () {
                () if !sampled.is_set(token) => Some(Reason::NotSampled),
                () if !action.is_set(token) => Some(Reason::ActionMask),
                () if !has_logprob => Some(Reason::NoLogprob),
                () => call.of(token),
            };
            match runs.last_mut() {
                Some(run) if run.reason == reason => run.length += 1,
                _ => runs.push(Run { start: u32::try_from(token).unwrap_or(u32::MAX), length: 1, reason }),
            }
        }
        runs
    }
}

/// What is known of a call as a whole.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CallVerdict<'a> {
    reason: Option<Reason>,
    gaps: &'a [Range<u32>],
    no_value: Option<Reason>,
}

impl<'a> CallVerdict<'a> {
    /// A call that is quarantined.
    pub(super) fn quarantined() -> Self {
        Self { reason: Some(Reason::Quarantined), gaps: &[], no_value: None }
    }

    /// Combines the call's credit, its id and its place in the plan, in the order of the reasons.
    pub(super) fn new(no_credit: Option<Reason>, is_doubled: bool, is_planned: bool) -> Self {
        let doubled = is_doubled.then_some(Reason::DoubledId);
        let unplanned = (!is_planned).then_some(Reason::NotPlanned);
        Self { reason: no_credit.or(doubled).or(unplanned), gaps: &[], no_value: None }
    }

    /// Adds the ranges of tokens that have no credit where the others have, in order, and the reason for them.
    pub(super) fn with_gaps(self, gaps: &'a [Range<u32>], reason: Reason) -> Self {
        Self { gaps, no_value: Some(reason), ..self }
    }

    fn of(&self, token: usize) -> Option<Reason> {
        let token = u32::try_from(token).unwrap_or(u32::MAX);
        let gap = self.gaps.partition_point(|gap| gap.end <= token);
        let is_gap = self.gaps.get(gap).is_some_and(|gap| gap.contains(&token));
        if is_gap { self.no_value } else { self.reason }
    }
}

/// Whether a stream comes from the engine, or is taken to.
pub(super) fn is_usable(source: &StringArray, row: usize, accept_assumed: bool) -> bool {
    // Given without saying is assumed.
    let source = if source.is_null(row) { "assumed" } else { source.value(row) };
    source == "engine" || (accept_assumed && source == "assumed")
}

/// A mask over output tokens; null means all.
struct Mask(Option<BooleanArray>);

impl Mask {
    fn new(masks: &ListArray, row: usize, tokens: usize) -> Self {
        if masks.is_null(row) {
            return Self(None);
        }
        let mask = masks.value(row);
        match mask.as_boolean_opt() {
            Some(mask) if mask.len() == tokens => Self(Some(mask.clone())),
            // A mask of another length says nothing about any one token: none of them is safe to train.
            _ => Self(Some(BooleanArray::from(vec![false; tokens]))),
        }
    }

    fn is_set(&self, token: usize) -> bool {
        self.0.as_ref().is_none_or(|mask| mask.is_valid(token) && mask.value(token))
    }
}
