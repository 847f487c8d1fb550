//! Ids that a vocabulary does not have.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int32Builder, StringBuilder, StructArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::logical_expr::ScalarUDF;

use super::lists::{fields, index, int, integers, item, list, list_of_structs, lists};
use super::row_function::RowFunction;

/// Ids of a run that its text repeats.
const SHOWN: usize = 6;

fn fault_fields() -> [(&'static str, DataType); 4] {
    [
        ("position", DataType::Int32),
        ("length", DataType::Int32),
        ("class", DataType::Utf8),
        ("observed", DataType::Utf8),
    ]
}

/// What is wrong with an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Negative,
    Outside,
    Unnamed,
}

impl Class {
    fn as_str(self) -> &'static str {
        match self {
            Self::Negative => "negative",
            Self::Outside => "outside",
            Self::Unnamed => "unnamed",
        }
    }
}

/// `id_faults`: runs of ids from an offset on that are negative, not below `vocab_size`, or not below `named_size`.
pub(super) fn id_faults() -> ScalarUDF {
    let arguments = vec![list(DataType::Int32), DataType::Int32, DataType::Int32, DataType::Int32];
    let returns = list(DataType::Struct(fields(&fault_fields())));
    RowFunction::udf("id_faults", arguments, returns, |arrays, rows| {
        let ids = lists(arrays, 0)?;
        let (sizes, named, froms) = (integers(arrays, 1)?, integers(arrays, 2)?, integers(arrays, 3)?);
        let (mut positions, mut lengths) = (Int32Builder::new(), Int32Builder::new());
        let (mut classes, mut observed) = (StringBuilder::new(), StringBuilder::new());
        let mut counts = Vec::with_capacity(rows);
        for row in 0..rows {
            let found = match item(ids, row) {
                Some(items) => {
                    let items = cast(&items, &DataType::Int32)?;
                    let limit = |sizes: &Int32Array| sizes.is_valid(row).then(|| sizes.value(row));
                    let from = index(&froms, row).unwrap_or(0);
                    faults(items.as_primitive::<Int32Type>().values(), limit(&sizes), limit(&named), from)
                }
                None => Vec::new(),
            };
            counts.push(found.len());
            for fault in found {
                positions.append_value(int(fault.position));
                lengths.append_value(int(fault.ids.len()));
                classes.append_value(fault.class.as_str());
                observed.append_value(shown(&fault.ids));
            }
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(positions.finish()) as ArrayRef,
            Arc::new(lengths.finish()),
            Arc::new(classes.finish()),
            Arc::new(observed.finish()),
        ];
        list_of_structs(counts, fields(&fault_fields()), columns)
    })
}

/// `id_range`: the lowest and the highest id from an offset on, null where there is none.
pub(super) fn id_range() -> ScalarUDF {
    let returns = DataType::Struct(fields(&range_fields()));
    RowFunction::udf("id_range", vec![list(DataType::Int32), DataType::Int32], returns, |arrays, rows| {
        let (ids, froms) = (lists(arrays, 0)?, integers(arrays, 1)?);
        let (mut lowest, mut highest) = (Int32Builder::with_capacity(rows), Int32Builder::with_capacity(rows));
        for row in 0..rows {
            let range = match item(ids, row) {
                Some(items) => {
                    let items = cast(&items, &DataType::Int32)?;
                    let ids = items.as_primitive::<Int32Type>().values();
                    range(ids.get(index(&froms, row).unwrap_or(0)..).unwrap_or_default())
                }
                None => None,
            };
            lowest.append_option(range.map(|(lowest, _)| lowest));
            highest.append_option(range.map(|(_, highest)| highest));
        }
        let columns: Vec<ArrayRef> = vec![Arc::new(lowest.finish()) as ArrayRef, Arc::new(highest.finish())];
        Ok(Arc::new(StructArray::try_new(fields(&range_fields()), columns, None)?) as ArrayRef)
    })
}

fn range_fields() -> [(&'static str, DataType); 2] {
    [("lowest", DataType::Int32), ("highest", DataType::Int32)]
}

fn range(ids: &[i32]) -> Option<(i32, i32)> {
    let first = *ids.first()?;
    // A fold without a branch, so that it runs over many ids at once.
    Some(ids.iter().fold((first, first), |(lowest, highest), id| (lowest.min(*id), highest.max(*id))))
}

struct Fault {
    position: usize,
    class: Class,
    ids: Vec<i32>,
}

fn faults(ids: &[i32], vocab_size: Option<i32>, named_size: Option<i32>, from: usize) -> Vec<Fault> {
    let class = |id: i32| {
        if id < 0 {
            Some(Class::Negative)
        } else if vocab_size.is_some_and(|size| id >= size) {
            Some(Class::Outside)
        } else if named_size.is_some_and(|size| id >= size) {
            Some(Class::Unnamed)
        } else {
            None
        }
    };
    let mut found: Vec<Fault> = Vec::new();
    for (position, id) in ids.iter().copied().enumerate().skip(from) {
        let Some(class) = class(id) else { continue };
        match found.last_mut() {
            Some(last) if last.class == class && last.position + last.ids.len() == position => last.ids.push(id),
            _ => found.push(Fault { position, class, ids: vec![id] }),
        }
    }
    found
}

fn shown(ids: &[i32]) -> String {
    let mut text: Vec<String> = ids.iter().take(SHOWN).map(ToString::to_string).collect();
    if ids.len() > SHOWN {
        text.push("…".to_owned());
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_class_are_one_run() {
        let found = faults(&[1, -1, 12, 13, 20, 9], Some(15), Some(12), 0);
        let seen: Vec<(usize, Class, &[i32])> = found.iter().map(|f| (f.position, f.class, f.ids.as_slice())).collect();
        assert_eq!(seen, [(1, Class::Negative, &[-1][..]), (2, Class::Unnamed, &[12, 13]), (4, Class::Outside, &[20])]);
    }

    #[test]
    fn a_range_is_of_what_there_is() {
        assert_eq!(range(&[7, -2, 9, 3]), Some((-2, 9)));
        assert_eq!(range(&[]), None);
    }

    #[test]
    fn without_sizes_only_negative_ids_are_wrong_and_the_beginning_is_left_out() {
        assert!(faults(&[-1, 7, 1_000_000], None, None, 1).is_empty());
    }
}
