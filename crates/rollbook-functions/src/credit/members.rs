//! The members of a group: its distinct rollouts, each with its one value.

use std::cmp::Ordering;

use arrow::array::{Array, Float64Array, StringArray};
use datafusion_common::{Result, exec_err};

/// What a null value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Skip,
    Zero,
    Error,
}

/// What a NaN is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotANumber {
    Error,
    Missing,
}

/// The members of one partition.
#[derive(Debug, PartialEq)]
pub(super) struct Members<'a> {
    /// One value a member, by rollout id.
    pub(super) values: Vec<f64>,
    /// The id of each member.
    pub(super) ids: Vec<&'a str>,
    /// The member that each row belongs to, if its rollout is one.
    pub(super) of_row: Vec<Option<usize>>,
}

/// Collects the members. Which of several faults is reported does not depend on the order of rows.
pub(super) fn members<'a>(
    function: &str,
    values: &Float64Array,
    rollout_ids: &'a StringArray,
    missing: Missing,
    not_a_number: NotANumber,
) -> Result<Members<'a>> {
    if rollout_ids.null_count() > 0 {
        return exec_err!("{function}: a rollout_id is null");
    }
    let value = |row: usize| {
        let value = values.is_valid(row).then(|| values.value(row));
        let value = value.filter(|value| not_a_number == NotANumber::Error || !value.is_nan());
        if missing == Missing::Zero { value.or(Some(0.0)) } else { value }
    };
    let mut rows: Vec<usize> = (0..values.len()).collect();
    rows.sort_unstable_by(|a, b| {
        let by_id = rollout_ids.value(*a).cmp(rollout_ids.value(*b));
        by_id.then_with(|| compare(value(*a), value(*b)))
    });

    let mut members = Members { values: vec![], ids: vec![], of_row: vec![None; values.len()] };
    for rollout in rows.chunk_by(|a, b| rollout_ids.value(*a) == rollout_ids.value(*b)) {
        let (Some(first), Some(last)) = (rollout.first(), rollout.last()) else {
            continue;
        };
        let id = rollout_ids.value(*first);
        let Some(member) = member(function, id, value(*first), value(*last), missing)? else {
            continue;
        };
        for row in rollout {
            members.of_row[*row] = Some(members.values.len());
        }
        members.values.push(member);
        members.ids.push(id);
    }
    Ok(members)
}

fn compare(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Returns the value of a rollout whose rows hold values from `least` to `greatest`.
fn member(
    function: &str,
    id: &str,
    least: Option<f64>,
    greatest: Option<f64>,
    missing: Missing,
) -> Result<Option<f64>> {
    match (least, greatest) {
        (None, None) if missing == Missing::Error => {
            exec_err!("{function}: the value of rollout {id:?} is null")
        }
        (None, None) => Ok(None),
        (None, Some(value)) => {
            exec_err!("{function}: rollout {id:?} has two values in one group: null and {value:?}")
        }
        (Some(least), Some(greatest)) => {
            if let Some(value) = [least, greatest].into_iter().find(|value| !value.is_finite()) {
                return exec_err!("{function}: the value of rollout {id:?} is {value}");
            }
            if least < greatest {
                return exec_err!("{function}: rollout {id:?} has two values in one group: {least:?} and {greatest:?}");
            }
            Ok(Some(least))
        }
        (Some(value), None) => {
            exec_err!("{function}: rollout {id:?} has two values in one group: {value:?} and null")
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const NAN: Option<f64> = Some(f64::NAN);

    fn collect(rows: &[(Option<f64>, &str)], missing: Missing, nan: NotANumber) -> Result<Vec<(String, f64)>> {
        let values: Float64Array = rows.iter().map(|row| row.0).collect();
        let ids: StringArray = rows.iter().map(|row| Some(row.1)).collect();
        let members = members("f", &values, &ids, missing, nan)?;
        Ok(members.ids.iter().map(|id| (*id).to_owned()).zip(members.values).collect())
    }

    #[test]
    fn a_rollout_counts_once_however_often_it_stands_there() {
        let rows = [(Some(1.0), "b"), (Some(0.0), "a"), (Some(1.0), "b"), (None, "c"), (None, "c")];
        let members = collect(&rows, Missing::Skip, NotANumber::Error).unwrap();
        assert_eq!(members, [("a".to_owned(), 0.0), ("b".to_owned(), 1.0)]);
    }

    #[rstest]
    #[case::unequal(&[(Some(2.0), "b"), (Some(1.0), "b")], "rollout \"b\" has two values in one group: 1.0 and 2.0")]
    #[case::null_and_value(&[(Some(2.0), "b"), (None, "b")], "rollout \"b\" has two values in one group: null and 2.0")]
    #[case::nan(&[(Some(2.0), "a"), (NAN, "b")], "the value of rollout \"b\" is NaN")]
    #[case::nan_beside_a_value(&[(Some(2.0), "b"), (NAN, "b")], "the value of rollout \"b\" is NaN")]
    #[case::infinite(&[(Some(f64::NEG_INFINITY), "b")], "the value of rollout \"b\" is -inf")]
    #[case::first_by_id(&[(NAN, "b"), (NAN, "a")], "rollout \"a\"")]
    fn wrong_data_is_named(#[case] rows: &[(Option<f64>, &str)], #[case] message: &str) {
        let mut reversed = rows.to_vec();
        reversed.reverse();
        for rows in [rows, &reversed] {
            let error = collect(rows, Missing::Skip, NotANumber::Error).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[rstest]
    #[case(Missing::Skip, NotANumber::Missing, Some(vec![1.0]))]
    #[case(Missing::Zero, NotANumber::Missing, Some(vec![1.0, 0.0, 0.0]))]
    #[case(Missing::Error, NotANumber::Missing, None)]
    #[case(Missing::Zero, NotANumber::Error, None)]
    fn null_and_nan_follow_their_arguments(
        #[case] missing: Missing,
        #[case] nan: NotANumber,
        #[case] expected: Option<Vec<f64>>,
    ) {
        let members = collect(&[(Some(1.0), "a"), (None, "b"), (NAN, "c")], missing, nan);
        assert_eq!(members.ok().map(|members| members.into_iter().map(|(_, value)| value).collect()), expected);
    }

    #[test]
    fn zeros_of_both_signs_are_one_value() {
        assert_eq!(collect(&[(Some(0.0), "a"), (Some(-0.0), "a")], Missing::Skip, NotANumber::Error).unwrap().len(), 1);
    }

    #[test]
    fn a_null_id_is_an_error() {
        let ids = StringArray::from(vec![None::<&str>]);
        let error = members("f", &Float64Array::from(vec![1.0]), &ids, Missing::Skip, NotANumber::Error).unwrap_err();
        assert!(error.to_string().contains("a rollout_id is null"));
    }
}
