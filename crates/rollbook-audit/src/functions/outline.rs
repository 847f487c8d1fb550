//! A trainer row's segments as they were given: in their order, with all that they leave out.

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, Int32Array, StringArray};
use datafusion::common::Result;

use super::lists::{bool_field, index, int_field, structs, text_field};

/// The segments of one row.
pub(super) struct Outline {
    starts: Int32Array,
    lengths: Int32Array,
    sequences: Int32Array,
    origins: Int32Array,
    rollouts: StringArray,
    calls: StringArray,
    sources: StringArray,
    trained: BooleanArray,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) start: Option<usize>,
    pub(super) length: Option<usize>,
    pub(super) sequence: Option<i32>,
    pub(super) rollout: Option<&'a str>,
    pub(super) call: Option<&'a str>,
    pub(super) source: Option<&'a str>,
    pub(super) origin: Option<i32>,
    pub(super) trained: Option<bool>,
}

impl Part<'_> {
    /// Whether it is padding.
    pub(super) fn is_pad(&self) -> bool {
        self.source == Some("pad")
    }

    /// Its tokens' offsets in the row; empty where it has no place.
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        match (self.start, self.length) {
            (Some(start), Some(length)) => start..start + length,
            _ => 0..0,
        }
    }
}

impl Outline {
    /// Reads the list of a row.
    pub(super) fn read(segments: &ArrayRef) -> Result<Self> {
        let items = structs(segments)?;
        Ok(Self {
            starts: int_field(items, "start")?,
            lengths: int_field(items, "length")?,
            sequences: int_field(items, "sequence_index")?,
            origins: int_field(items, "source_start")?,
            rollouts: text_field(items, "rollout_id")?,
            calls: text_field(items, "call_id")?,
            sources: text_field(items, "source")?,
            trained: bool_field(items, "trained")?,
        })
    }

    /// The segments in their order.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let text = |texts: &'_ StringArray, at: usize| texts.is_valid(at).then_some(at);
        (0..self.starts.len()).map(move |at| Part {
            start: index(&self.starts, at),
            length: index(&self.lengths, at),
            sequence: self.sequences.is_valid(at).then(|| self.sequences.value(at)),
            rollout: text(&self.rollouts, at).map(|at| self.rollouts.value(at)),
            call: text(&self.calls, at).map(|at| self.calls.value(at)),
            source: text(&self.sources, at).map(|at| self.sources.value(at)),
            origin: self.origins.is_valid(at).then(|| self.origins.value(at)),
            trained: self.trained.is_valid(at).then(|| self.trained.value(at)),
        })
    }

    /// The segments that have a place, in the order of the row, each with whether it begins another sequence than the token
    /// before it is of. Padding belongs to none.
    pub(super) fn sequences(&self) -> Vec<(Part<'_>, bool)> {
        let mut parts: Vec<Part<'_>> = self.parts().filter(|part| !part.range().is_empty()).collect();
        parts.sort_by_key(|part| part.start);
        let mut before: Option<Part<'_>> = None;
        let mut found = Vec::with_capacity(parts.len());
        for part in parts {
            if part.is_pad() {
                found.push((part, false));
                continue;
            }
            let begins = before.is_none_or(|before| match (before.sequence, part.sequence) {
                (Some(one), Some(other)) => one != other,
                // Without sequences, another rollout is another sequence.
                _ => before.rollout.is_some() && part.rollout.is_some() && before.rollout != part.rollout,
            });
            before = Some(part);
            found.push((part, begins));
        }
        found
    }
}
