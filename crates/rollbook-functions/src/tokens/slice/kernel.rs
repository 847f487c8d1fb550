//! Slices of a column of lists.

use std::ops::Range;

use arrow::array::{Array, GenericListArray, Int64Array, MutableArrayData, OffsetSizeTrait, make_array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::FieldRef;
use datafusion_common::{Result, exec_datafusion_err, exec_err};

/// Cuts every list; the items of neighboring cuts are copied in one go.
pub(super) fn slice_lists<O: OffsetSizeTrait>(
    item: &FieldRef,
    lists: &GenericListArray<O>,
    starts: &Int64Array,
    lengths: &Int64Array,
) -> Result<GenericListArray<O>> {
    let nulls = NullBuffer::union(NullBuffer::union(lists.nulls(), starts.nulls()).as_ref(), lengths.nulls());
    let mut cuts = Vec::with_capacity(lists.len());
    for row in 0..lists.len() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            cuts.push(0..0);
            continue;
        }
        let whole = lists.value_offsets()[row].as_usize()..lists.value_offsets()[row + 1].as_usize();
        cuts.push(cut(whole, starts.value(row), lengths.value(row))?);
    }
    let values = if let [only] = cuts.as_slice() {
        // One list needs no copy: its items are a slice already.
        lists.values().slice(only.start, only.len())
    } else {
        let items = lists.values().to_data();
        let mut copied = MutableArrayData::new(vec![&items], false, cuts.iter().map(Range::len).sum());
        for cut in &cuts {
            copied.try_extend(0, cut.start, cut.end)?;
        }
        make_array(copied.freeze())
    };
    let offsets = OffsetBuffer::from_lengths(cuts.iter().map(Range::len));
    Ok(GenericListArray::try_new(FieldRef::clone(item), offsets, values, nulls)?)
}

/// Returns the items of `whole` that a slice keeps.
fn cut(whole: Range<usize>, start: i64, length: i64) -> Result<Range<usize>> {
    if start < 0 || length < 0 {
        return exec_err!("slice: start {start} and length {length} must not be negative");
    }
    let too_far = |source| exec_datafusion_err!("slice: {source}");
    let start = whole.start.saturating_add(usize::try_from(start).map_err(too_far)?).min(whole.end);
    let end = start.saturating_add(usize::try_from(length).map_err(too_far)?).min(whole.end);
    Ok(start..end)
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, ListArray};
    use arrow::datatypes::{Field, Int32Type};
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    type Lists = Vec<Option<Vec<Option<i32>>>>;

    fn slice(lists: &Lists, starts: Vec<i64>, lengths: Vec<i64>) -> Result<Lists> {
        let array = ListArray::from_iter_primitive::<Int32Type, _, _>(lists.clone());
        let item = Field::new_list_field(array.value_type(), true).into();
        let sliced = slice_lists(&item, &array, &starts.into(), &lengths.into())?;
        Ok(sliced.iter().map(|list| list.map(|list| list.as_primitive::<Int32Type>().iter().collect())).collect())
    }

    #[rstest]
    #[case::inside(1, 2, &[20, 30])]
    #[case::over_the_end(2, 9, &[30, 40])]
    #[case::at_the_end(4, 1, &[])]
    #[case::beyond_the_end(7, 1, &[])]
    #[case::nothing(1, 0, &[])]
    #[case::huge(1, i64::MAX, &[20, 30, 40])]
    fn counts_from_zero_and_stops_at_the_end(#[case] start: i64, #[case] length: i64, #[case] expected: &[i32]) {
        let list = vec![Some(vec![Some(10), Some(20), Some(30), Some(40)])];
        let expected = vec![Some(expected.iter().copied().map(Some).collect::<Vec<_>>())];
        assert_eq!(slice(&list, vec![start], vec![length]).unwrap(), expected);
    }

    #[rstest]
    #[case(-1, 1)]
    #[case(0, -1)]
    fn negative_is_an_error(#[case] start: i64, #[case] length: i64) {
        assert!(slice(&vec![Some(vec![])], vec![start], vec![length]).unwrap_err().to_string().contains("negative"));
    }

    proptest! {
        #[test]
        fn agrees_with_skip_and_take(
            rows in proptest::collection::vec(
                (proptest::option::of(proptest::collection::vec(proptest::option::of(0..9i32), 0..6)), 0..7i64, 0..7i64),
                0..20,
            ),
        ) {
            let lists: Lists = rows.iter().map(|row| row.0.clone()).collect();
            let count = |count: i64| usize::try_from(count).unwrap();
            let expected: Lists = rows
                .iter()
                .map(|(list, start, length)| {
                    let list = list.as_ref()?;
                    Some(list.iter().skip(count(*start)).take(count(*length)).copied().collect())
                })
                .collect();
            let (starts, lengths) = rows.iter().map(|row| (row.1, row.2)).unzip();
            prop_assert_eq!(slice(&lists, starts, lengths).unwrap(), expected);
        }
    }

    #[test]
    fn a_sliced_column_is_cut_like_its_copy() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1)]),
            Some(vec![Some(2), Some(3)]),
            None,
            Some(vec![Some(4), Some(5), Some(6)]),
        ]);
        let item = Field::new_list_field(lists.value_type(), true).into();
        let cut = lists.slice(1, 3);
        let sliced = slice_lists(&item, &cut, &vec![1; 3].into(), &vec![1; 3].into()).unwrap();
        let expected =
            ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(3)]), None, Some(vec![Some(5)])]);
        assert_eq!(sliced, expected);
    }
}
