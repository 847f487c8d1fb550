//! Good and bad input in the exchange format.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, FixedSizeListArray, Float64Array, Int32Array, Int64Array,
    LargeListArray, ListViewArray, StringArray, StructArray, TimestampNanosecondArray, UInt16Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Int32Type};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use rstest::rstest;

use crate::tests::{Gathered, cell, folder, gather, lines, samples};
use crate::{ErrorKind, ImportOptions, importer};

fn read(paths: &[std::path::PathBuf]) -> crate::Result<Gathered> {
    gather(importer("tables").unwrap(), paths, &ImportOptions::default())
}

#[test]
fn samples_become_logical_rows() {
    let read = read(&[samples("tables")]).unwrap();
    assert_eq!(read.order, ["runs", "rollouts", "calls", "scores"]);
    let calls = &read.tables["calls"];
    let row = |column: &str| [cell(calls, column, 0), cell(calls, column, 1)];
    assert_eq!(row("prompt_token_ids"), ["[1, 5, 6]", "[1, 5, 6, 7, 2, 8]"]);
    assert_eq!(row("output_token_ids"), ["[7, 2]", "[9, 2]"]);
    assert_eq!(row("output_logprobs"), ["[-0.5, null]", "[NaN, -inf]"]);
    assert_eq!(row("sampled_mask"), ["[true, false]", "null"]);
    assert_eq!(row("prompt_exactness"), ["assumed", "assumed"]);
    assert_eq!(row("logprobs_source"), ["assumed", "assumed"]);
    assert_eq!(row("request"), ["{\"messages\":[]}", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"]);
    assert_eq!(row("started_at"), ["2026-01-31T07:00:00Z", "2026-01-31T07:00:01Z"]);
    assert_eq!(row("policy_spans"), ["[{start: 0, policy_version: 3}]", "null"]);
    assert_eq!(cell(&read.tables["runs"], "eos_token_ids", 0), "[2]");
    assert_eq!(cell(&read.tables["rollouts"], "task", 0), "{\"a\":1}");
    assert_eq!(cell(&read.tables["scores"], "metrics", 0), "{turns: 2.0, loss: NaN}");
}

#[rstest]
#[case::broken("{\"call_id\": \"c\", ", "1 calls: broken JSON at byte 17: expected a key, found the end")]
#[case::no_object("[1]", "1 calls: a line that is no JSON object")]
#[case::two_values("{\"call_id\":\"c\"} 1", "1 calls: broken JSON at byte 16: expected the end of the line, found '1'")]
#[case::no_key("{\"step\":1}", "1 calls.call_id: missing, and required")]
#[case::null_key("{\"call_id\":null}", "1 calls.call_id: missing, and required")]
#[case::null_token(
    "{\"call_id\":\"c\",\"output_token_ids\":[1,null]}",
    "1 calls.output_token_ids[1]: null inside a list that cannot hold one"
)]
#[case::wide_token(
    "{\"call_id\":\"c\",\"prompt_token_ids\":[1,2,3,2147483648]}",
    "1 calls.prompt_token_ids[3]: 2147483648 is outside int32"
)]
#[case::wide_negative(
    "{\"call_id\":\"c\",\"prompt_token_ids\":[-2147483649]}",
    "1 calls.prompt_token_ids[0]: -2147483649 is outside int32"
)]
#[case::huge_token(
    "{\"call_id\":\"c\",\"prompt_token_ids\":[99999999999999999999]}",
    "1 calls.prompt_token_ids[0]: 99999999999999999999 is no integer of 32 bits"
)]
#[case::text_token(
    "{\"call_id\":\"c\",\"prompt_token_ids\":[\"3\"]}",
    "1 calls.prompt_token_ids[0]: a string where integer of 32 bits is expected"
)]
#[case::half_token(
    "{\"call_id\":\"c\",\"prompt_token_ids\":[3.5]}",
    "1 calls.prompt_token_ids[0]: 3.5 is no integer of 32 bits"
)]
#[case::no_list(
    "{\"call_id\":\"c\",\"prompt_token_ids\":3}",
    "1 calls.prompt_token_ids: a number where an array is expected"
)]
#[case::text_logprob(
    "{\"call_id\":\"c\",\"output_logprobs\":[-1,\"-1\"]}",
    "1 calls.output_logprobs[1]: a string where a number is expected"
)]
#[case::wrong_mask("{\"call_id\":\"c\",\"sampled_mask\":[0,2]}", "1 calls.sampled_mask[1]: 2 is no boolean")]
#[case::zoneless(
    "{\"call_id\":\"c\",\"started_at\":\"2026-01-31T08:00:00\"}",
    "1 calls.started_at: a string that is no RFC 3339 time with a zone, such as 2026-01-31T08:00:00Z"
)]
#[case::deep_span(
    "{\"call_id\":\"c\",\"policy_spans\":[{\"start\":0},{\"start\":true}]}",
    "1 calls.policy_spans[1].start: a boolean where integer of 32 bits is expected"
)]
#[case::span_member(
    "{\"call_id\":\"c\",\"policy_spans\":[{\"begin\":0}]}",
    "1 calls.policy_spans[0].begin: a member that this struct does not have"
)]
#[case::doubled("{\"call_id\":\"c\",\"call_id\":\"d\"}", "1 calls.call_id: the key stands twice")]
#[case::surrogate(
    "{\"call_id\":\"c\",\"output_text\":\"\\ud800\"}",
    "1 calls.output_text: a string with half a surrogate pair, which is no text"
)]
#[case::control(
    "{\"call_id\":\"a\tb\"}",
    "1 calls.call_id: broken JSON at byte 13: expected an escape in place of a control character, found '\\t'"
)]
fn a_bad_line_is_a_reject_and_the_rest_goes_in(#[case] line: &str, #[case] expected: &str) {
    let read = lines("calls", &format!("{line}\n{{\"call_id\":\"good\",\"output_token_ids\":[4]}}\n"));
    assert_eq!(read.reasons(), [expected]);
    assert_eq!(read.rejects[0].raw.as_deref(), Some(line));
    assert_eq!(read.rejects[0].file, "calls.jsonl");
    assert_eq!(read.rows("calls"), 1);
    assert_eq!(cell(&read.tables["calls"], "call_id", 0), "good");
    assert_eq!(cell(&read.tables["calls"], "output_token_ids", 0), "[4]");
    assert_eq!(cell(&read.tables["calls"], "prompt_token_ids", 0), "null");
}

#[test]
fn a_reject_between_rows_leaves_no_trace_in_any_column() {
    let good = |id: u32| {
        format!(
            "{{\"call_id\":\"c{id}\",\"prompt_token_ids\":[{id},{id}],\"output_logprobs\":[-{id}.5],\
             \"policy_spans\":[{{\"start\":{id},\"policy_version\":{id}}}],\"sampled_mask\":[true],\"new\":{id}}}"
        )
    };
    let bad = good(9).replace("[true]", "[true,\"x\"]");
    let read = lines("calls", &[good(1), bad.clone(), good(2), bad, good(3)].join("\n"));
    let clean = lines("calls", &[good(1), good(2), good(3)].join("\n"));
    assert_eq!(read.tables, clean.tables);
    assert_eq!(read.rejects.iter().map(|reject| reject.line).collect::<Vec<_>>(), [Some(2), Some(4)]);
}

#[test]
fn faults_of_content_go_in_untouched() {
    let line = "{\"call_id\":\"c\",\"output_token_ids\":[1,2],\"output_logprobs\":[null,NaN,0.5,-Infinity],\"sampled_mask\":[]}";
    let read = lines("calls", &format!("{line}\n{line}\n"));
    assert_eq!(read.reasons(), Vec::<String>::new());
    assert_eq!(read.rows("calls"), 2);
    assert_eq!(cell(&read.tables["calls"], "output_logprobs", 1), "[null, NaN, 0.5, -inf]");
    assert_eq!(cell(&read.tables["calls"], "sampled_mask", 1), "[]");
}

#[test]
fn provenance_is_assumed_where_there_are_ids_and_else_absent() {
    let read = lines(
        "calls",
        "{\"call_id\":\"a\",\"prompt_token_ids\":[],\"output_exactness\":\"rendered\"}\n{\"call_id\":\"b\",\"output_logprobs\":[]}\n",
    );
    let calls = &read.tables["calls"];
    let row = |row| ["prompt_exactness", "output_exactness", "logprobs_source"].map(|column| cell(calls, column, row));
    assert_eq!(row(0), ["assumed", "rendered", "absent"]);
    assert_eq!(row(1), ["absent", "absent", "assumed"]);
}

#[test]
fn strings_and_json_take_bare_values() {
    let read = lines(
        "calls",
        "{\"call_id\":17,\"role\":true,\"parsed\":\"no json\",\"response\":\"{\\\"a\\\" : 1.50}\",\"sampling\":{ \"t\" : 1e0 },\"extra\":[1, NaN]}\n",
    );
    let calls = &read.tables["calls"];
    let row = ["call_id", "role", "parsed", "response", "sampling", "extra"].map(|column| cell(calls, column, 0));
    assert_eq!(row, ["17", "true", "\"no json\"", "{\"a\":1.50}", "{\"t\":1e0}", "[1,\"NaN\"]"]);
}

#[test]
fn unknown_columns_are_named_once_and_kept() {
    let read = lines(
        "calls",
        "{\"call_id\":\"a\",\"x\":{\"y\": 1}}\n{\"x\":2,\"extra\":{\"k\":0},\"call_id\":\"b\",\"created_at\":5}\n",
    );
    assert_eq!(read.notes, ["calls.x: unknown column, kept in extra"]);
    assert_eq!(cell(&read.tables["calls"], "extra", 0), "{\"x\":{\"y\":1}}");
    assert_eq!(cell(&read.tables["calls"], "extra", 1), "{\"k\":0,\"x\":2}");
    assert_eq!(cell(&read.tables["calls"], "created_at", 1), "null");
    let read = lines("rejects", "{\"reason\":\"r\",\"import_id\":\"i\",\"x\":1}\n");
    assert_eq!(read.notes, ["rejects.x: unknown column, not kept: the table has no extra"]);
    assert_eq!(cell(&read.tables["rejects"], "import_id", 0), "i");
}

#[test]
fn marks_line_ends_and_blank_lines_do_not_matter() {
    let read = lines("runs", "\u{feff}{\"run_id\":\"a\"}\r\n\r\n   \n{\"run_id\":\"b\"}\n\n\n");
    assert_eq!((read.rows("runs"), read.rejects.len()), (2, 0));
    assert_eq!(lines("runs", "").rows("runs"), 0);
}

#[test]
fn bytes_that_are_no_text_are_a_reject() {
    let folder = folder(&[("runs.jsonl", b"{\"run_id\":\"a\xff\"}\n{\"run_id\":\"b\"}\n")]);
    let read = read(&[folder.path().to_owned()]).unwrap();
    assert_eq!(read.reasons(), ["1 -: not UTF-8 at byte 12 of the line"]);
    assert_eq!(read.rows("runs"), 1);
}

#[test]
fn nesting_of_ten_thousand_levels_is_a_reject() {
    let deep = "[".repeat(10_000);
    let read =
        lines("calls", &format!("{{\"call_id\":\"a\",\"request\":{deep}}}\n{{\"call_id\":\"b\",\"new\":{deep}}}\n"));
    let reasons = read.reasons();
    assert_eq!(reasons.len(), 2);
    assert!(reasons[0].contains("nested deeper than the limit of 128 levels"), "{}", reasons[0]);
    assert!(reasons[0].len() < 1000, "the path stays readable");
    assert_eq!(read.rejects[0].raw.as_ref().map(String::len), Some(4096));
}

#[test]
fn a_line_of_two_hundred_megabytes_is_a_reject_that_names_the_limit() {
    let folder = folder(&[]);
    let path = folder.path().join("calls.jsonl");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"{\"call_id\":\"a\",\"output_text\":\"").unwrap();
    let block = vec![b'x'; 1 << 20];
    for _ in 0..200 {
        file.write_all(&block).unwrap();
    }
    file.write_all(b"\"}\n{\"call_id\":\"b\"}\n").unwrap();
    let read = read(&[path]).unwrap();
    assert_eq!(read.reasons(), ["1 -: a line of 209715233 bytes, longer than the limit of 67108864"]);
    assert_eq!(read.rows("calls"), 1);
}

#[test]
fn a_strict_import_ends_at_the_first_reject() {
    let folder = folder(&[("runs.jsonl", b"{\"run_id\":\"a\"}\n{\"run_id\":[]}\n{\"run_id\":\"b\"}\n")]);
    let options = ImportOptions { run_id: None, strict: true };
    let mut items = importer("tables").unwrap().open(&[folder.path().to_owned()], &options).unwrap();
    let error = items.find_map(Result::err).unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(error.to_string(), "an array where a string is expected; file: runs.jsonl; line: 2; field: runs.run_id");
    assert!(items.next().is_none());
}

#[test]
fn the_run_of_the_options_fills_rows_without_one() {
    let folder = folder(&[
        ("calls.jsonl", b"{\"call_id\":\"a\"}\n{\"call_id\":\"b\",\"run_id\":\"own\"}\n"),
        ("encodings.jsonl", b"{\"encoding_id\":\"e\"}"),
    ]);
    let options = ImportOptions { run_id: Some("given".to_owned()), strict: true };
    let read = gather(importer("tables").unwrap(), &[folder.path().to_owned()], &options).unwrap();
    assert_eq!([0, 1].map(|row| cell(&read.tables["calls"], "run_id", row)), ["given", "own"]);
}

#[rstest]
#[case::missing("", b"", "nowhere", ErrorKind::NotFound, "no such file or folder")]
#[case::empty("", b"", "", ErrorKind::Invalid, "the folder holds no table")]
#[case::unknown("a.txt", b"", "", ErrorKind::Invalid, "the folder holds no table")]
#[case::other_file("a.txt", b"", "a.txt", ErrorKind::Invalid, "the name is no table's")]
#[case::gz_name(
    "calls.jsonl.gz",
    b"",
    "",
    ErrorKind::Unsupported,
    "compressed files are not read; decompress it first"
)]
#[case::gz_bytes(
    "calls.jsonl",
    b"\x1f\x8b\x08",
    "",
    ErrorKind::Unsupported,
    "compressed files are not read; decompress it first"
)]
#[case::no_parquet(
    "calls.parquet",
    b"PAR1 and",
    "",
    ErrorKind::Corrupt,
    "the file cannot be read as what its name says"
)]
#[case::no_arrow(
    "calls.arrow",
    b"ARROW1 and more bytes",
    "",
    ErrorKind::Corrupt,
    "the file cannot be read as what its name says"
)]
fn a_source_that_is_none_is_an_error<const N: usize>(
    #[case] name: &str,
    #[case] bytes: &[u8; N],
    #[case] path: &str,
    #[case] kind: ErrorKind,
    #[case] message: &str,
) {
    let folder = if name.is_empty() { folder(&[]) } else { folder(&[(name, bytes)]) };
    let error = read(&[folder.path().join(path)]).unwrap_err();
    assert_eq!((error.kind(), error.message()), (kind, message));
}

#[cfg(unix)]
#[test]
fn an_entry_that_leads_out_of_its_folder_is_an_error() {
    let outside = folder(&[("runs.jsonl", b"{\"run_id\":\"a\"}\n")]);
    let inside = folder(&[]);
    std::os::unix::fs::symlink(outside.path().join("runs.jsonl"), inside.path().join("runs.jsonl")).unwrap();
    let error = read(&[inside.path().to_owned()]).unwrap_err();
    assert!(error.message().starts_with("the entry leads out of its folder"), "{error}");
    assert_eq!(read(&[inside.path().join("runs.jsonl")]).unwrap().rows("runs"), 1);
}

#[test]
fn parts_and_strangers_are_told_apart_by_name() {
    let line = b"{\"run_id\":\"a\"}\n";
    let folder =
        folder(&[("runs.jsonl", line), ("runs-0002.jsonl", line), ("runs2.jsonl", line), (".runs.jsonl.swp", b"")]);
    std::fs::create_dir(folder.path().join("calls")).unwrap();
    let read = read(&[folder.path().to_owned(), folder.path().join("runs.jsonl")]).unwrap();
    assert_eq!(read.rows("runs"), 2);
    assert_eq!(read.notes, ["calls: a folder, not read", "runs2.jsonl: no table has this name, not read"]);
}

fn list<T: arrow::array::Array + 'static>(values: T, ends: &[usize]) -> ArrayRef {
    let field = Arc::new(Field::new("item", values.data_type().clone(), true));
    Arc::new(LargeListArray::new(field, OffsetBuffer::from_lengths(ends.iter().copied()), Arc::new(values), None))
}

/// Three calls whose columns are encoded in every way but ours; the second has an id outside int32.
fn foreign() -> RecordBatch {
    let ids: ArrayRef = Arc::new("a b c".split(' ').map(Some).collect::<DictionaryArray<Int32Type>>());
    let masks: ArrayRef = Arc::new(FixedSizeListArray::new(
        Arc::new(Field::new("item", DataType::UInt16, false)),
        2,
        Arc::new(UInt16Array::from(vec![1, 0, 1, 1, 0, 0])),
        None,
    ));
    let spans: ArrayRef = Arc::new(StructArray::from(vec![(
        Arc::new(Field::new("k", DataType::Boolean, true)),
        Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])) as ArrayRef,
    )]));
    RecordBatch::try_from_iter([
        ("call_id", ids),
        ("call_index", Arc::new(Float64Array::from(vec![0.0, 1.0, 2.0])) as ArrayRef),
        ("prompt_token_ids", list(Int64Array::from(vec![1, 2, 3_000_000_000, 4]), &[2, 1, 1])),
        ("output_token_ids", list(Float64Array::from(vec![5.0, 6.0, 7.0]), &[1, 1, 1])),
        ("output_logprobs", list(Float64Array::from(vec![Some(-0.5), None, Some(f64::NAN)]), &[1, 1, 1])),
        ("sampled_mask", masks),
        ("parsed", spans),
        ("request", Arc::new(StringArray::from(vec!["{ \"a\" : 1 }", "x", "[]"])) as ArrayRef),
        (
            "started_at",
            Arc::new(TimestampNanosecondArray::from(vec![1_000, 2_000, 3_999]).with_timezone("+02:00")) as ArrayRef,
        ),
        ("mine", Arc::new(Int64Array::from(vec![7, 8, 9])) as ArrayRef),
    ])
    .unwrap()
}

#[rstest]
#[case::parquet("calls.parquet")]
#[case::file("calls.arrow")]
#[case::stream("calls-stream.arrow")]
fn columns_of_other_encodings_convert(#[case] name: &str) {
    let folder = folder(&[]);
    let path = folder.path().join(name);
    let (file, batch) = (File::create(&path).unwrap(), foreign());
    if name == "calls.parquet" {
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    } else if name == "calls.arrow" {
        let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    } else {
        let mut writer = StreamWriter::try_new(file, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    }
    let read = read(&[path]).unwrap();
    assert_eq!(read.reasons(), ["2 calls.prompt_token_ids[0]: an integer outside int32"]);
    assert_eq!(read.rejects[0].raw.as_deref(), Some("[3000000000]"));
    assert_eq!(read.notes, ["calls.mine: unknown column, kept in extra"]);
    let calls = &read.tables["calls"];
    let row = |column: &str| [cell(calls, column, 0), cell(calls, column, 1)];
    assert_eq!(row("call_id"), ["a", "c"]);
    assert_eq!(row("call_index"), ["0", "2"]);
    assert_eq!(row("prompt_token_ids"), ["[1, 2]", "[4]"]);
    assert_eq!(row("output_token_ids"), ["[5]", "[7]"]);
    assert_eq!(row("output_logprobs"), ["[-0.5]", "[NaN]"]);
    assert_eq!(row("sampled_mask"), ["[true, false]", "[false, false]"]);
    assert_eq!(row("parsed"), ["{\"k\":true}", "{\"k\":false}"]);
    assert_eq!(row("request"), ["{\"a\":1}", "[]"]);
    assert_eq!(row("started_at"), ["1970-01-01T00:00:00.000001Z", "1970-01-01T00:00:00.000003Z"]);
    assert_eq!(row("extra"), ["{\"mine\":7}", "{\"mine\":9}"]);
    assert_eq!(row("prompt_exactness"), ["assumed", "assumed"]);
    assert_eq!(calls.schema(), crate::row::logical_nullable(rollbook_schema::table("calls").unwrap()));
}

#[rstest]
#[case::text_ids("prompt_token_ids", Arc::new(StringArray::from(vec!["1"])) as ArrayRef, "1 calls.prompt_token_ids: Utf8 where an array is expected")]
#[case::null_id("output_token_ids", list(Int32Array::from(vec![Some(1), None]), &[2]), "1 calls.output_token_ids[1]: null inside a list that cannot hold one")]
#[case::half_id("output_token_ids", list(Float64Array::from(vec![1.5]), &[1]), "1 calls.output_token_ids[0]: 1.5 is no integer")]
#[case::zoneless("started_at", Arc::new(TimestampNanosecondArray::from(vec![1])) as ArrayRef, "1 calls.started_at: Timestamp(ns) where a time with a zone is expected")]
#[case::wrong_mask("action_mask", list(UInt16Array::from(vec![2]), &[1]), "1 calls.action_mask[0]: 2 is no boolean")]
fn a_bad_cell_is_a_reject_of_its_row(#[case] column: &str, #[case] array: ArrayRef, #[case] expected: &str) {
    let folder = folder(&[]);
    let path = folder.path().join("calls.arrow");
    let id: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let batch = RecordBatch::try_from_iter_with_nullable([("call_id", id, true), (column, array, true)]).unwrap();
    let mut writer = FileWriter::try_new(File::create(&path).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let read = read(&[path]).unwrap();
    assert_eq!(read.reasons(), [expected]);
    assert_eq!(read.rows("calls"), 0);
}

#[test]
fn what_one_form_gives_all_forms_give() {
    let given = read(&[samples("tables")]).unwrap();
    let folder = folder(&[]);
    for (name, batch) in &given.tables {
        let file = File::create(folder.path().join(format!("{name}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
    }
    let again = read(&[folder.path().to_owned()]).unwrap();
    for (name, batch) in &given.tables {
        assert_eq!(format!("{:?}", batch.columns()), format!("{:?}", again.tables[name].columns()), "{name}");
    }
}

#[test]
fn large_rows_make_small_batches() {
    let folder = folder(&[]);
    let ids = vec![123_456; 1 << 20];
    let line = format!("{{\"call_id\":\"c\",\"prompt_token_ids\":{ids:?}}}\n");
    std::fs::write(folder.path().join("calls.jsonl"), line.repeat(5)).unwrap();
    let items = importer("tables").unwrap().open(&[folder.path().to_owned()], &ImportOptions::default()).unwrap();
    let sizes: Vec<_> = items
        .filter_map(|item| match item.unwrap() {
            crate::Item::Rows { batch, .. } => Some(batch.num_rows()),
            _ => None,
        })
        .collect();
    assert_eq!(sizes, [2, 2, 1], "8 MB a line, 16 MB a batch");
}

/// Views as Arrow's newer writers leave them, out of order in their values, and decimals as SQL engines sum integers.
#[test]
fn list_views_and_decimals_convert() {
    let views = ListViewArray::new(
        Arc::new(Field::new("item", DataType::Int32, true)),
        vec![2, 0, 0].into(),
        vec![1, 2, 0].into(),
        Arc::new(Int32Array::from(vec![10, 20, 30])),
        None,
    );
    let decimals = |digits: Vec<i128>, scale: i8| -> ArrayRef {
        Arc::new(Decimal128Array::from(digits).with_precision_and_scale(38, scale).unwrap())
    };
    let batch = RecordBatch::try_from_iter([
        ("call_id", Arc::new(StringArray::from(vec!["a", "b", "c"])) as ArrayRef),
        ("call_index", decimals(vec![0, 100, 250], 2)),
        ("policy_version", decimals(vec![9_007_199_254_740_993, 1, 2], 0)),
        ("temperature", decimals(vec![7, 10, 15], 1)),
        ("prompt_token_ids", Arc::new(views) as ArrayRef),
    ])
    .unwrap();
    let folder = folder(&[]);
    let path = folder.path().join("calls.arrow");
    let mut writer = FileWriter::try_new(File::create(&path).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let read = read(&[path]).unwrap();
    assert_eq!(read.reasons(), ["3 calls.call_index: 2.50 is no integer"]);
    let row = |column: &str| [cell(&read.tables["calls"], column, 0), cell(&read.tables["calls"], column, 1)];
    assert_eq!(row("prompt_token_ids"), ["[30]", "[10, 20]"]);
    assert_eq!(row("call_index"), ["0", "1"]);
    assert_eq!(row("policy_version"), ["9007199254740993", "1"]);
    assert_eq!(row("temperature"), ["0.7", "1.0"]);
}
