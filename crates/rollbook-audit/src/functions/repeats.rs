//! Tokens that several rows use.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, StringBuilder};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{
    any_struct, fields, index, int, int_field, item, list, list_of_structs, lists, structs, text_field,
};
use super::row_function::RowFunction;
use super::segments::column;

/// Rows that the text of a finding repeats.
const SHOWN: usize = 6;

fn repeat_fields() -> [(&'static str, DataType); 5] {
    [
        ("position", DataType::Int32),
        ("length", DataType::Int32),
        ("times", DataType::Int32),
        ("last", DataType::Int32),
        ("places", DataType::Utf8),
    ]
}

pub(super) fn repeated_spans() -> ScalarUDF {
    let arguments = vec![list(any_struct())];
    let returns = list(DataType::Struct(fields(&repeat_fields())));
    RowFunction::udf("repeated_spans", arguments, returns, |arrays, rows| {
        let lists = lists(arrays, 0)?;
        let mut counts = Vec::with_capacity(rows);
        let (mut positions, mut lengths, mut times) = (Vec::new(), Vec::new(), Vec::new());
        let (mut last, mut places) = (Vec::new(), StringBuilder::new());
        for row in 0..rows {
            let found = match item(lists, row) {
                Some(items) => repeats(&read(&items)?),
                None => Vec::new(),
            };
            counts.push(found.len());
            for repeat in found {
                positions.push(int(repeat.start));
                lengths.push(int(repeat.end - repeat.start));
                times.push(int(repeat.uses.len()));
                last.push(int(repeat.uses.last().map_or(0, |used| used.number)));
                places.append_value(named(&repeat.uses));
            }
        }
        let columns: Vec<ArrayRef> = vec![
            column(positions),
            column(lengths),
            column(times),
            column(last),
            Arc::new(places.finish()) as ArrayRef,
        ];
        list_of_structs(counts, fields(&repeat_fields()), columns)
    })
}

/// One use of output tokens by a row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Use {
    /// Its place among the uses, from 1 as SQL counts.
    number: usize,
    place: String,
    start: usize,
    end: usize,
}

struct Repeat {
    start: usize,
    end: usize,
    uses: Vec<Use>,
}

fn read(items: &ArrayRef) -> Result<Vec<Use>> {
    let items = structs(items)?;
    let (starts, lengths) = (int_field(items, "start")?, int_field(items, "length")?);
    let places = text_field(items, "place")?;
    let mut uses = Vec::with_capacity(items.len());
    for at in 0..items.len() {
        let (Some(start), Some(length)) = (index(&starts, at), index(&lengths, at)) else {
            continue;
        };
        uses.push(Use {
            number: at + 1,
            place: if places.is_valid(at) { places.value(at).to_owned() } else { String::new() },
            start,
            end: start + length,
        });
    }
    Ok(uses)
}

/// Maximal runs of tokens that the same two or more uses hold.
fn repeats(uses: &[Use]) -> Vec<Repeat> {
    if uses.len() < 2 {
        return Vec::new();
    }
    let mut borders: Vec<usize> = uses.iter().flat_map(|used| [used.start, used.end]).collect();
    borders.sort_unstable();
    borders.dedup();
    let mut found: Vec<Repeat> = Vec::new();
    for pair in borders.windows(2) {
        let &[start, end] = pair else { continue };
        let holding: Vec<Use> = uses.iter().filter(|used| used.start <= start && end <= used.end).cloned().collect();
        if holding.len() < 2 {
            continue;
        }
        match found.last_mut() {
            Some(last) if last.end == start && last.uses == holding => last.end = end,
            _ => found.push(Repeat { start, end, uses: holding }),
        }
    }
    found
}

fn named(uses: &[Use]) -> String {
    let mut text: Vec<&str> = uses.iter().take(SHOWN).map(|used| used.place.as_str()).collect();
    if uses.len() > SHOWN {
        text.push("…");
    }
    text.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(place: &str, start: usize, end: usize) -> Use {
        Use { number: 1, place: place.to_owned(), start, end }
    }

    #[test]
    fn overlaps_are_cut_where_the_rows_change() {
        let found = repeats(&[used("a", 0, 4), used("b", 1, 3), used("c", 2, 6)]);
        let spans: Vec<(usize, usize, usize)> = found.iter().map(|r| (r.start, r.end, r.uses.len())).collect();
        assert_eq!(spans, [(1, 2, 2), (2, 3, 3), (3, 4, 2)]);
    }

    #[test]
    fn neighbours_are_no_repeat() {
        assert!(repeats(&[used("a", 0, 2), used("b", 2, 4)]).is_empty());
    }
}
