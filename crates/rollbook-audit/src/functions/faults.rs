//! What is wrong at places of one trainer row, as a list of structs.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Builder, StringBuilder};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;

use super::lists::{fields, int, list, list_of_structs};

/// Values that a text repeats.
const SHOWN: usize = 6;

fn fault_fields() -> [(&'static str, DataType); 7] {
    [
        ("position", DataType::Int32),
        ("length", DataType::Int32),
        ("rollout_id", DataType::Utf8),
        ("call_id", DataType::Utf8),
        ("expected", DataType::Utf8),
        ("observed", DataType::Utf8),
        ("message", DataType::Utf8),
    ]
}

/// The type of a list of faults.
pub(super) fn fault_list() -> DataType {
    list(DataType::Struct(fields(&fault_fields())))
}

/// One place of a row where something is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) position: usize,
    pub(super) length: usize,
    pub(super) rollout: Option<String>,
    pub(super) call: Option<String>,
    pub(super) expected: String,
    pub(super) observed: String,
    pub(super) message: String,
}

/// Faults of rows, row after row.
#[derive(Default)]
pub(super) struct Faults {
    counts: Vec<usize>,
    positions: Int32Builder,
    lengths: Int32Builder,
    rollouts: StringBuilder,
    calls: StringBuilder,
    expected: StringBuilder,
    observed: StringBuilder,
    messages: StringBuilder,
}

impl Faults {
    /// Adds one row's faults; a row without any has an empty list.
    pub(super) fn add_row(&mut self, faults: Vec<Fault>) {
        self.counts.push(faults.len());
        for fault in faults {
            self.positions.append_value(int(fault.position));
            self.lengths.append_value(int(fault.length));
            self.rollouts.append_option(fault.rollout);
            self.calls.append_option(fault.call);
            self.expected.append_value(fault.expected);
            self.observed.append_value(fault.observed);
            self.messages.append_value(fault.message);
        }
    }

    /// The lists as a column.
    pub(super) fn finish(mut self) -> Result<ArrayRef> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.positions.finish()),
            Arc::new(self.lengths.finish()),
            Arc::new(self.rollouts.finish()) as ArrayRef,
            Arc::new(self.calls.finish()),
            Arc::new(self.expected.finish()),
            Arc::new(self.observed.finish()),
            Arc::new(self.messages.finish()),
        ];
        list_of_structs(self.counts, fields(&fault_fields()), columns)
    }
}

/// The first values of a run as text.
pub(super) fn shown<T: ToString>(values: impl ExactSizeIterator<Item = T>) -> String {
    let more = values.len() > SHOWN;
    let mut text = values.take(SHOWN).map(|value| value.to_string()).collect::<Vec<_>>().join(", ");
    if more {
        text.push_str(", …");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_shortened() {
        assert_eq!(shown([1, 2].iter()), "1, 2");
        assert_eq!(shown(0..9), "0, 1, 2, 3, 4, 5, …");
    }
}
