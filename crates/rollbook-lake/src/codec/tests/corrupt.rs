//! Stored rows that name no prompt or request are errors that say where, whatever is in them.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, ListArray, ListBuilder, RecordBatch, StringArray, StringBuilder};
use arrow::datatypes::Int32Type;
use proptest::prelude::*;
use rstest::rstest;

use super::rows::{Case, encode};
use crate::codec::{Decoder, Encoder, rebase_rollout};
use crate::error::Kind;

fn stored() -> RecordBatch {
    encode(&[
        Case::new("a", 0, &[1, 2], &[3]).request(r#"{"messages":[1]}"#),
        Case::new("b", 1, &[1, 2, 3, 4], &[5]).request(r#"{"messages":[1,2]}"#),
    ])
}

fn with(batch: &RecordBatch, name: &str, column: &ArrayRef) -> RecordBatch {
    let fields = batch.schema();
    let columns = fields.fields().iter().zip(batch.columns()).map(|(field, old)| {
        let column = if field.name() == name { Arc::clone(column) } else { Arc::clone(old) };
        (field.name().clone(), column, true)
    });
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn ints(values: [Option<i32>; 2]) -> ArrayRef {
    Arc::new(Int32Array::from(values.to_vec()))
}

#[rstest]
#[case::base_is_itself("base_index", [None, Some(1)], "the base is no earlier row")]
#[case::base_is_later("base_index", [None, Some(7)], "the base is no earlier row")]
#[case::base_is_negative("base_index", [None, Some(-1)], "the base is no earlier row")]
#[case::base_is_missing("base_index", [None, None], "a base without its length, or a length without its base")]
#[case::base_len_is_missing("base_len", [None, None], "a base without its length, or a length without its base")]
#[case::base_len_is_negative("base_len", [None, Some(-3)], "the base length is negative")]
#[case::base_len_is_too_long("base_len", [None, Some(4)], "the base length exceeds the base's context")]
#[case::base_len_is_huge("base_len", [None, Some(i32::MAX)], "the base length exceeds the base's context")]
#[case::prompt_len_differs("prompt_len", [Some(2), Some(5)], "the prompt length differs from that of the prompt rebuilt")]
#[case::messages_base_len_is_too_long("messages_base_len", [Some(0), Some(2)], "the number of base messages exceeds the base's")]
#[case::messages_base_len_is_negative("messages_base_len", [Some(0), Some(-2)], "the number of base messages is negative")]
#[case::number_is_missing("stored_index", [Some(0), None], "a stored row has no number")]
fn bad_number_is_corrupt(#[case] column: &str, #[case] values: [Option<i32>; 2], #[case] message: &str) {
    let batch = with(&stored(), column, &ints(values));
    let error = Decoder::new(true, true).decode(&batch).unwrap_err();
    assert_eq!((error.kind(), error.message()), (Kind::Corrupt, message));
    let named = |key: &str| error.context().iter().any(|(name, _)| *name == key);
    assert!(named("run_id") && named("rollout_id") && named("stored_index"), "{error}");
    assert_eq!(rebase_rollout(&[batch]).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn unknown_prompt_with_a_base_length_is_corrupt() {
    let suffix = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), Some(2)]), None]);
    let error = Decoder::new(true, false)
        .decode(&with(&stored(), "prompt_suffix", &(Arc::new(suffix) as ArrayRef)))
        .unwrap_err();
    assert_eq!((error.kind(), error.message()), (Kind::Corrupt, "an unknown prompt has a base length"));
}

#[rstest]
#[case::no_place(r#"{"n":1}"#)]
#[case::place_is_taken(r#"{"messages":[1]}"#)]
#[case::no_json("messages")]
fn request_without_a_place_for_messages_is_corrupt(#[case] request: &str) {
    let requests: ArrayRef = Arc::new(StringArray::from(vec![r#"{"messages":[]}"#, request]));
    let error = Decoder::new(false, true).decode(&with(&stored(), "request", &requests)).unwrap_err();
    assert_eq!((error.kind(), error.message()), (Kind::Corrupt, "a request without messages has no place for them"));
}

#[test]
fn null_message_is_corrupt() {
    let mut suffix = ListBuilder::new(StringBuilder::new());
    suffix.append_value([Some("1")]);
    suffix.append_value([None::<&str>]);
    let batch = with(&stored(), "messages_suffix", &(Arc::new(suffix.finish()) as ArrayRef));
    assert_eq!(Decoder::new(false, true).decode(&batch).unwrap_err().message(), "a message is null");
}

#[test]
fn row_after_an_error_cannot_lean_on_what_was_not_read() {
    let rows = stored();
    let mut decoder = Decoder::new(true, false);
    let error = decoder.decode(&rows.slice(1, 1)).unwrap_err();
    assert_eq!(error.message(), "the base is no earlier row");
    assert_eq!(decoder.decode(&rows).unwrap().batch.num_rows(), 2);
}

#[test]
fn missing_and_mistyped_columns_are_named() {
    let batch = stored();
    let index = batch.schema().index_of("prompt_suffix").unwrap();
    let mut without = batch.clone();
    without.remove_column(index);
    let error = Decoder::new(true, false).decode(&without).unwrap_err();
    assert_eq!((error.kind(), error.message()), (Kind::Invalid, "column prompt_suffix is missing"));
    let error = Decoder::new(true, false).decode(&with(&batch, "prompt_suffix", &ints([None, None]))).unwrap_err();
    assert_eq!(error.message(), "column prompt_suffix has type Int32");
    let nulls = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), Some(vec![Some(1), None])]);
    let batch = RecordBatch::try_from_iter([("prompt_token_ids", Arc::new(nulls) as ArrayRef)]).unwrap();
    let error = Encoder::new(9).encode(&batch).unwrap_err();
    assert_eq!(error.message(), "column prompt_token_ids holds a null token in row 1");
}

proptest! {
    #[test]
    fn random_numbers_never_panic(
        columns in prop::collection::vec((0_usize..6, [prop::option::of(-2..6_i32), prop::option::of(-2..6_i32)]), 1..5),
    ) {
        let names = ["stored_index", "base_index", "base_len", "messages_base_len", "prompt_len", "output_len"];
        let mut batch = stored();
        for (name, values) in columns {
            batch = with(&batch, names[name], &ints(values));
        }
        let mut decoder = Decoder::new(true, true);
        for result in [decoder.decode(&batch).map(drop), decoder.decode(&batch).map(drop), rebase_rollout(&[batch]).map(drop)] {
            prop_assert!(result.is_ok() || result.is_err_and(|error| error.kind() == Kind::Corrupt));
        }
    }
}
