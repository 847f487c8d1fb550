//! Columns of lists, one list a call and one item a token, flattened for arithmetic.
//!
//! Unknown is NaN inside: inputs are checked to be finite where they count, so a NaN can only be a null, it spreads as a null has to, and it
//! becomes a null again in the result.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Float64Type};
use datafusion_common::{Result, exec_err, internal_err};

use crate::argument::wrong_type;
use crate::constants::Constants;
use crate::function::{Function, Param};

/// What a number that is not finite is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotFinite {
    /// An error that names call and position.
    Error,
    /// The same as a null.
    Missing,
}

/// What stands in the result for a token that is not selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unselected {
    /// Nothing.
    Null,
    /// Zero.
    Zero,
    /// What the scan carries over the token.
    Carry,
}

/// Argument that says what NaN and infinity are.
pub(crate) const NOT_FINITE: Param = Param::optional(
    "not_finite",
    "varchar",
    "'error'",
    "NaN or an infinity where a token is selected: 'error', or 'missing' to treat it as a null.",
);

/// Argument that says what stands where no token is selected.
pub(crate) const UNSELECTED: Param =
    Param::optional("unselected", "varchar", "'null'", "Result of a token that is not selected: 'null' or 'zero'.");

impl NotFinite {
    /// Reads the argument `not_finite`.
    pub(crate) fn of(constants: &Constants) -> Result<Self> {
        constants.choice("not_finite", &[("error", Self::Error), ("missing", Self::Missing)])
    }
}

impl Unselected {
    /// Reads the argument `unselected` of a function that carries nothing.
    pub(crate) fn of(constants: &Constants) -> Result<Self> {
        constants.choice("unselected", &[("null", Self::Null), ("zero", Self::Zero)])
    }

    /// Reads the argument `unselected` of a scan.
    pub(crate) fn of_scan(constants: &Constants) -> Result<Self> {
        constants.choice("unselected", &[("null", Self::Null), ("zero", Self::Zero), ("carry", Self::Carry)])
    }

    /// Returns the result where no token is selected; NaN is null.
    pub(crate) fn value(self, carried: f64) -> f64 {
        match self {
            Self::Null => f64::NAN,
            Self::Zero => 0.0,
            Self::Carry => carried,
        }
    }
}

/// Returns the type that a list of numbers is read as.
pub(crate) fn number_list_type(function: &Function, position: usize, given: &DataType) -> Result<DataType> {
    list_type(function, position, given, &DataType::Float64)
}

/// Returns the type that a mask is read as.
pub(crate) fn mask_type(function: &Function, position: usize, given: &DataType) -> Result<DataType> {
    list_type(function, position, given, &DataType::Boolean)
}

/// Returns the type of lists of numbers.
pub(crate) fn number_list() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)))
}

/// Returns the type of masks.
pub(crate) fn mask_list() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Boolean, true)))
}

fn list_type(function: &Function, position: usize, given: &DataType, item: &DataType) -> Result<DataType> {
    let fits = |given: &DataType| {
        let is_mask = given.is_integer() || given == &DataType::Boolean;
        given.is_null() || if item == &DataType::Boolean { is_mask } else { given.is_numeric() }
    };
    let is_list = match given {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            fits(field.data_type())
        }
        other => other.is_null(),
    };
    if is_list {
        return Ok(DataType::List(Arc::new(Field::new_list_field(item.clone(), true))));
    }
    let wanted = if item == &DataType::Boolean { "a list of true and false" } else { "a list of numbers" };
    wrong_type(function, position, wanted, given)
}

/// One argument: a list for each row.
pub(crate) struct Lists<'a> {
    name: &'static str,
    offsets: &'a OffsetBuffer<i32>,
    nulls: Option<&'a NullBuffer>,
    items: Items<'a>,
}

enum Items<'a> {
    Numbers(&'a Float64Array),
    Booleans(&'a BooleanArray),
}

impl<'a> Lists<'a> {
    /// Reads an argument; `name` stands in errors.
    pub(crate) fn of(name: &'static str, array: &'a ArrayRef) -> Result<Self> {
        let Some(list) = array.as_list_opt::<i32>() else {
            return internal_err!("{name} is of type {}", array.data_type());
        };
        let items = match list.values().data_type() {
            DataType::Float64 => Items::Numbers(list.values().as_primitive::<Float64Type>()),
            DataType::Boolean => Items::Booleans(list.values().as_boolean()),
            other => return internal_err!("{name} is a list of {other}"),
        };
        Ok(Self { name, offsets: list.offsets(), nulls: list.nulls(), items })
    }

    /// Returns the items of a row's list as positions; `None` where the list is null.
    fn range(&self, row: usize) -> Option<std::ops::Range<usize>> {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return None;
        }
        let bound = |at: usize| usize::try_from(self.offsets[at]).unwrap_or(0);
        Some(bound(row)..bound(row + 1))
    }

    /// Returns the length of a row's list; `None` where it is null.
    pub(crate) fn length(&self, row: usize) -> Option<usize> {
        self.range(row).map(|range| range.len())
    }

    /// Appends a row's mask to `out`: a null list selects every token, a null item none.
    pub(crate) fn select(&self, row: usize, length: usize, out: &mut Vec<bool>) {
        match (self.range(row), &self.items) {
            (None, _) => out.extend(std::iter::repeat_n(true, length)),
            (Some(range), Items::Booleans(items)) => out.extend(range.map(|at| items.is_valid(at) && items.value(at))),
            (Some(range), Items::Numbers(_)) => out.extend(range.map(|_| false)),
        }
    }

    /// Whether a row's mask selects every token: it is null, or true throughout.
    pub(crate) fn selects_all(&self, row: usize) -> bool {
        match (self.range(row), &self.items) {
            (None, _) => true,
            (Some(range), Items::Booleans(items)) => {
                let length = range.len();
                items.null_count() == 0 && items.values().slice(range.start, length).count_set_bits() == length
            }
            (Some(range), Items::Numbers(_)) => range.is_empty(),
        }
    }

    /// Appends a row's numbers to `out`, NaN for nulls. What is `selected` must be finite; the others are taken as they are if finite.
    pub(crate) fn numbers(
        &self,
        row: usize,
        selected: &[bool],
        not_finite: NotFinite,
        out: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let (Some(range), Items::Numbers(items)) = (self.range(row), &self.items) else {
            out.extend(std::iter::repeat_n(f64::NAN, selected.len()));
            return Ok(());
        };
        for (position, (at, is_selected)) in range.zip(selected).enumerate() {
            let value = items.value(at);
            if items.is_null(at) || !value.is_finite() {
                if items.is_valid(at) && *is_selected && not_finite == NotFinite::Error {
                    return Err(Fault { argument: self.name, position, value });
                }
                out.push(f64::NAN);
            } else {
                out.push(value);
            }
        }
        Ok(())
    }
}

/// A number that is not finite where it counts.
#[derive(Debug, PartialEq)]
pub(crate) struct Fault {
    /// Argument that holds it.
    pub(crate) argument: &'static str,
    /// Position in the list.
    pub(crate) position: usize,
    /// NaN or an infinity.
    pub(crate) value: f64,
}

impl Fault {
    /// Says what is wrong with which call.
    pub(crate) fn error<T>(&self, function: &str, call: &str) -> Result<T> {
        let Self { argument, position, value } = self;
        exec_err!("{function}: {argument} of call {call} is {value} at position {position}")
    }
}

/// Returns the length that all lists of a row share: that of the mask, else of any; `None` where all are null.
pub(crate) fn shared_length(function: &str, call: &str, row: usize, lists: &[&Lists]) -> Result<Option<usize>> {
    let mut known: Option<(&'static str, usize)> = None;
    for list in lists {
        let Some(length) = list.length(row) else { continue };
        match known {
            None => known = Some((list.name, length)),
            Some((_, first)) if first == length => {}
            Some((name, first)) => {
                return exec_err!(
                    "{function}: the lists of call {call} differ in length: {name} has {first} items, {} has {length}",
                    list.name
                );
            }
        }
    }
    Ok(known.map(|(_, length)| length))
}

/// Makes a column of lists of numbers; NaN becomes null. `lengths` has `None` for a list that is null.
pub(crate) fn lists_of(lengths: &[Option<usize>], values: Vec<f64>) -> Result<ArrayRef> {
    let has_null = values.iter().any(|value| value.is_nan());
    let nulls = has_null.then(|| NullBuffer::from_iter(values.iter().map(|value| !value.is_nan())));
    wrap(lengths, Arc::new(Float64Array::new(values.into(), nulls)), DataType::Float64)
}

/// Makes a column of masks.
pub(crate) fn masks_of(lengths: &[Option<usize>], items: BooleanArray) -> Result<ArrayRef> {
    wrap(lengths, Arc::new(items), DataType::Boolean)
}

fn wrap(lengths: &[Option<usize>], items: ArrayRef, item: DataType) -> Result<ArrayRef> {
    let offsets = OffsetBuffer::from_lengths(lengths.iter().map(|length| length.unwrap_or(0)));
    let nulls = NullBuffer::from_iter(lengths.iter().map(Option::is_some));
    let nulls = (nulls.null_count() > 0).then_some(nulls);
    let field = Arc::new(Field::new_list_field(item, true));
    Ok(Arc::new(ListArray::try_new(field, offsets, items, nulls)?))
}
