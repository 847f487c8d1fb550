//! Windows over calls in order: lists in, lists out, one partition at a time.
//!
//! ```text
//! PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id
//!
//! rows of a partition   [a a a] [b b] [c c c c]      one list a call
//! flattened              a a a   b b   c c c c       one sequence, scanned once
//! result                [a a a] [b b] [c c c c]
//! ```
//!
//! An evaluator waits for the end of its partition and forgets it then, so that a query holds one partition, not its whole input.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion_expr::{Documentation, PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl};

use crate::argument::argument_types;
use crate::constants::Constants;
use crate::function::Function;
use crate::number_lists::{Lists, NotFinite, lists_of, shared_length};

/// What a function computes over one partition.
pub(crate) trait Kernel: fmt::Debug + Send + Sync {
    /// Returns one result for each of the `rows` rows.
    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef>;
}

/// A window function over calls.
#[derive(Clone, Copy)]
pub(crate) struct Definition {
    /// Its entry in the list of functions.
    pub(crate) function: &'static Function,
    /// Leading arguments that are columns; the others are constants.
    pub(crate) columns: usize,
    /// Type of the result.
    pub(crate) output: fn() -> DataType,
    /// Reads the constants of a call.
    pub(crate) kernel: fn(&Constants) -> Result<Arc<dyn Kernel>>,
}

struct CallWindow {
    definition: Definition,
    signature: Signature,
    documentation: Documentation,
}

/// Makes the `DataFusion` function.
pub(crate) fn udwf(definition: Definition) -> WindowUDF {
    WindowUDF::new_from_impl(CallWindow {
        definition,
        signature: Signature::user_defined(Volatility::Immutable),
        documentation: definition.function.documentation(),
    })
}

impl fmt::Debug for CallWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallWindow").field(&self.definition.function.name).finish()
    }
}

impl PartialEq for CallWindow {
    fn eq(&self, other: &Self) -> bool {
        self.definition.function.name == other.definition.function.name
    }
}

impl Eq for CallWindow {}

impl Hash for CallWindow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.function.name.hash(state);
    }
}

impl WindowUDFImpl for CallWindow {
    fn name(&self) -> &str {
        self.definition.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        argument_types(self.definition.function, arg_types)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let Definition { function, columns, kernel, .. } = self.definition;
        let kernel = kernel(&Constants::of_call(function, columns, &args)?)?;
        Ok(Box::new(CallEvaluator { kernel, done: None, next: 0 }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), (self.definition.output)(), true)))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

#[derive(Debug)]
struct CallEvaluator {
    kernel: Arc<dyn Kernel>,
    /// Results of the partition, once it is complete.
    done: Option<ArrayRef>,
    next: usize,
}

impl PartitionEvaluator for CallEvaluator {
    // Every row needs the whole partition, so the engine waits for its end before it asks for the first.
    fn get_range(&self, _idx: usize, n_rows: usize) -> Result<Range<usize>> {
        Ok(0..n_rows)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        let done = match &self.done {
            Some(done) => Arc::clone(done),
            None => {
                let done = self.kernel.evaluate(values, range.end)?;
                self.done = Some(Arc::clone(&done));
                done
            }
        };
        let value = ScalarValue::try_from_array(&done, self.next)?;
        self.next += 1;
        Ok(value)
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], num_rows: usize) -> Result<ArrayRef> {
        self.kernel.evaluate(values, num_rows)
    }

    fn supports_bounded_execution(&self) -> bool {
        true
    }
}

/// Ids of calls as errors show them.
pub(crate) struct CallIds<'a>(&'a StringArray);

impl<'a> CallIds<'a> {
    /// Reads the column.
    pub(crate) fn of(array: &'a ArrayRef) -> Result<Self> {
        match array.as_string_opt::<i32>() {
            Some(ids) => Ok(Self(ids)),
            None => internal_err!("call ids of type {}", array.data_type()),
        }
    }

    /// Returns the id of a row, quoted.
    pub(crate) fn show(&self, row: usize) -> String {
        if self.0.is_valid(row) { format!("{:?}", self.0.value(row)) } else { "without an id".to_owned() }
    }

    /// Returns the id of a row, if it has one.
    pub(crate) fn get(&self, row: usize) -> Option<&'a str> {
        self.0.is_valid(row).then(|| self.0.value(row))
    }
}

/// The calls of one partition, flattened to one sequence of tokens.
pub(crate) struct Tokens {
    /// Tokens of each row; `None` where no list of the row is known.
    pub(crate) lengths: Vec<Option<usize>>,
    /// Whether a token counts.
    pub(crate) selected: Vec<bool>,
    /// The numbers of each list argument, NaN for null.
    pub(crate) numbers: Vec<Vec<f64>>,
}

impl Tokens {
    /// Flattens a partition: `mask` selects, `lists` hold numbers.
    pub(crate) fn read(
        function: &str,
        ids: &CallIds,
        mask: &Lists,
        lists: &[&Lists],
        rows: usize,
        not_finite: NotFinite,
    ) -> Result<Self> {
        let mut tokens =
            Self { lengths: Vec::with_capacity(rows), selected: vec![], numbers: vec![vec![]; lists.len()] };
        let all: Vec<&Lists> = std::iter::once(mask).chain(lists.iter().copied()).collect();
        for row in 0..rows {
            let length = shared_length(function, &ids.show(row), row, &all)?;
            tokens.lengths.push(length);
            let start = tokens.selected.len();
            mask.select(row, length.unwrap_or(0), &mut tokens.selected);
            for (list, numbers) in lists.iter().zip(&mut tokens.numbers) {
                let read = list.numbers(row, &tokens.selected[start..], not_finite, numbers);
                read.or_else(|fault| fault.error(function, &ids.show(row)))?;
            }
        }
        Ok(tokens)
    }

    /// Returns the tokens of each row as ranges of the sequence.
    pub(crate) fn ranges(&self) -> impl DoubleEndedIterator<Item = Range<usize>> + ExactSizeIterator + use<> {
        let mut end = 0;
        let ranges: Vec<Range<usize>> = self
            .lengths
            .iter()
            .map(|length| {
                let start = end;
                end += length.unwrap_or(0);
                start..end
            })
            .collect();
        ranges.into_iter()
    }

    /// Returns row and position of a token, for errors.
    fn place(&self, at: usize) -> (usize, usize) {
        let found = self.ranges().enumerate().find(|(_, range)| range.contains(&at));
        found.map_or((0, at), |(row, range)| (row, at - range.start))
    }

    /// Makes the result; an infinite number is an error that names the call.
    pub(crate) fn lists(&self, function: &str, ids: &CallIds, values: Vec<f64>) -> Result<ArrayRef> {
        if let Some(at) = values.iter().position(|value| value.is_infinite()) {
            let (row, position) = self.place(at);
            return datafusion_common::exec_err!(
                "{function}: the result for call {} at position {position} is beyond a double",
                ids.show(row)
            );
        }
        lists_of(&self.lengths, values)
    }
}
