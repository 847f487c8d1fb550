//! Rollouts small enough to work out on paper.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use rollbook_schema::table;
use rstest::rstest;

use super::oracle;
use super::rows::{Case, cases, decode_by, encode, int, lists, logical, only, text};
use crate::codec::{Decoder, Encoder, needs_rebase, rebase_rollout};

fn bases(stored: &RecordBatch) -> Vec<(Option<i32>, Option<i32>)> {
    int(stored, "base_index").into_iter().zip(int(stored, "base_len")).collect()
}

fn base(index: i32, len: i32) -> (Option<i32>, Option<i32>) {
    (Some(index), Some(len))
}

const NONE: (Option<i32>, Option<i32>) = (None, None);

#[test]
fn chain_of_three_turns_stores_what_is_new() {
    let calls = [
        Case::new("a", 0, &[1, 2, 3], &[4, 5]),
        Case::new("b", 1, &[1, 2, 3, 4, 5, 6], &[7]).parent("a"),
        Case::new("c", 2, &[1, 2, 3, 4, 5, 6, 7, 8, 9], &[10]).parent("b"),
    ];
    let stored = encode(&calls);
    assert_eq!(int(&stored, "stored_index"), [Some(0), Some(1), Some(2)]);
    assert_eq!(bases(&stored), [NONE, base(0, 5), base(1, 7)]);
    assert_eq!(lists(&stored, "prompt_suffix"), [Some(vec![1, 2, 3]), Some(vec![6]), Some(vec![8, 9])]);
    assert_eq!(int(&stored, "parent_prefix_len"), [None, Some(5), Some(7)]);
    assert_eq!(int(&stored, "prompt_len"), [Some(3), Some(6), Some(9)]);
    assert_eq!(int(&stored, "output_len"), [Some(2), Some(1), Some(1)]);
    // From Python: hashlib.sha256(bytes(32) + struct.pack("<3i", 1, 2, 3)).
    let digest = "sha256:3db346a400ab6b8db792fcf156443a8885b27db208362dcf77084f8c7648e645";
    assert_eq!(text(&stored, "prompt_digest")[0].as_deref(), Some(digest));
    assert_eq!(cases(&decode_by(&stored, 3, usize::MAX)), calls);
}

#[test]
fn compaction_branch_and_retry_find_the_longest_context() {
    let calls = [
        Case::new("a", 0, &[1, 2, 3], &[4, 5]),
        Case::new("b", 1, &[1, 2, 3, 4, 5, 6], &[7]),
        Case::new("compacted", 2, &[1, 2, 99], &[8]),
        Case::new("branch of a", 3, &[1, 2, 3, 4, 5, 50], &[7]),
        Case::new("retry of b", 4, &[1, 2, 3, 4, 5, 6], &[7]),
        Case::new("fresh", 5, &[77], &[8]),
    ];
    let stored = encode(&calls);
    assert_eq!(bases(&stored), [NONE, base(0, 5), base(0, 2), base(0, 5), base(1, 6), NONE]);
    assert_eq!(lists(&stored, "prompt_suffix")[4], Some(vec![]));
    assert_eq!(int(&stored, "parent_prefix_len"), [None, Some(5), Some(2), Some(2), Some(5), Some(0)]);
    assert_eq!(cases(&decode_by(&stored, 2, usize::MAX)), calls);
}

#[test]
fn equal_bases_prefer_the_declared_parent_and_then_the_first() {
    let calls = [
        Case::new("a", 0, &[1, 2], &[3]),
        Case::new("b", 1, &[1, 2], &[3]),
        Case::new("c", 2, &[1, 2, 3, 4], &[]).parent("b"),
        Case::new("d", 3, &[1, 2, 3, 4], &[]),
        Case::new("e", 4, &[1, 2, 3, 4, 5], &[]).parent("b"),
    ];
    assert_eq!(bases(&encode(&calls)), [NONE, base(0, 2), base(1, 3), base(2, 4), base(2, 4)]);
}

#[test]
fn unknown_and_empty_prompts_stay_apart() {
    let unknown = Case { prompt: None, ..Case::new("a", 0, &[], &[4]) };
    let empty = Case::new("b", 1, &[], &[5, 6]);
    let after_empty = Case::new("c", 2, &[5, 6, 7], &[]);
    let no_output = Case { output: None, ..Case::new("d", 3, &[5, 6, 7, 8], &[]) };
    let last = Case::new("e", 4, &[5, 6, 7, 8, 9], &[]);
    let calls = [unknown, empty, after_empty, no_output, last];
    let stored = encode(&calls);
    assert_eq!(lists(&stored, "prompt_suffix"), [None, Some(vec![]), Some(vec![7]), Some(vec![8]), Some(vec![9])]);
    assert_eq!(int(&stored, "prompt_len"), [None, Some(0), Some(3), Some(4), Some(5)]);
    assert_eq!(bases(&stored), [NONE, NONE, base(1, 2), base(2, 3), base(3, 4)]);
    // Neither the unknown prompt of the first call nor the unknown output of the fourth gives a prefix length.
    assert_eq!(int(&stored, "parent_prefix_len"), [None, None, Some(2), Some(3), None]);
    assert_eq!(text(&stored, "prompt_digest")[0], None);
    assert_eq!(text(&stored, "prompt_digest")[1], Some(format!("sha256:{}", "00".repeat(32))));
    assert_eq!(cases(&decode_by(&stored, 5, 1)), calls);
}

#[test]
fn huge_prompt_goes_in_and_out_whole() {
    let prompt: Vec<i32> = (0..1_000_000).map(|i| i % 50_021).collect();
    let longer = [prompt.as_slice(), &[1, 2], &[3]].concat();
    let calls = [Case::new("a", 0, &prompt, &[1, 2]), Case::new("b", 1, &longer, &[])];
    let stored = encode(&calls);
    assert_eq!(lists(&stored, "prompt_suffix")[1], Some(vec![3]));
    let digests = text(&stored, "prompt_digest");
    assert_eq!(digests, [Some(oracle::digest(&prompt)), Some(oracle::digest(&longer))]);
    assert_eq!(cases(&decode_by(&stored, 2, 1)), calls);
}

#[test]
fn doubled_indexes_and_ids_refer_to_the_latest_and_the_first() {
    let calls = [
        Case::new("a", 0, &[1], &[2]),
        Case::new("b", 1, &[1, 2, 3], &[4]),
        Case::new("b", 1, &[1, 2, 9], &[4]),
        Case::new("c", 2, &[1, 2, 9, 4], &[5]),
        Case::new("d", 3, &[1, 2, 9, 4], &[5]).parent("b"),
        Case { index: None, ..Case::new("e", 0, &[1, 2, 9, 4, 5], &[5]) },
        Case::new("f", 6, &[1], &[5]).parent("f"),
        Case::new("g", 7, &[1], &[5]).parent("nobody"),
    ];
    let prefixes = [None, Some(2), Some(2), Some(4), Some(2), Some(5), None, None];
    assert_eq!(int(&encode(&calls), "parent_prefix_len"), prefixes);
}

#[test]
fn given_digests_are_kept_and_given_lengths_are_not() {
    let calls = [Case::new("a", 0, &[1, 2], &[3]).request("{}")];
    let batch = logical(&calls);
    let given = Arc::new(StringArray::from(vec!["given"])) as ArrayRef;
    let wrong = Arc::new(Int32Array::from(vec![99])) as ArrayRef;
    let mut columns: Vec<_> =
        batch.schema().fields().iter().map(|f| f.name().clone()).zip(batch.columns().to_vec()).collect();
    columns
        .extend(["prompt_digest", "output_digest", "request_digest"].map(|name| (name.to_owned(), Arc::clone(&given))));
    columns.extend(["prompt_len", "output_len", "parent_prefix_len"].map(|name| (name.to_owned(), Arc::clone(&wrong))));
    let stored = Encoder::new(0).encode(&RecordBatch::try_from_iter(columns).unwrap()).unwrap();
    for name in ["prompt_digest", "output_digest", "request_digest"] {
        assert_eq!(text(&stored, name), [Some("given".to_owned())], "{name}");
    }
    assert_eq!((int(&stored, "prompt_len"), int(&stored, "output_len")), (vec![Some(2)], vec![Some(1)]));
    assert_eq!(int(&stored, "parent_prefix_len"), [None]);
}

#[test]
fn whole_logical_schema_becomes_the_physical_one_and_comes_back() {
    let calls = table("calls").unwrap();
    let empty = RecordBatch::new_empty(calls.logical());
    let stored = Encoder::new(10).encode(&empty).unwrap();
    assert_eq!(stored.schema(), calls.physical());
    let decoded = Decoder::new(true, true).decode(&stored).unwrap();
    assert_eq!(decoded.batch.schema(), calls.logical());
    assert_eq!(rebase_rollout(&[]).unwrap().schema(), calls.physical());
    assert!(!needs_rebase(&[stored]).unwrap());
}

#[test]
fn parent_that_arrives_later_is_found_by_rebasing() {
    let calls = [
        Case::new("b", 1, &[1, 2, 3, 4], &[5]).parent("a"),
        Case::new("a", 0, &[1, 2], &[3]),
        Case::new("odd", 0, &[1, 2, 3, 9], &[3]).parent("b"),
    ];
    let stored = encode(&calls);
    assert_eq!(int(&stored, "parent_prefix_len"), [None, None, Some(3)]);
    assert!(needs_rebase(std::slice::from_ref(&stored)).unwrap());
    let joined = rebase_rollout(&[stored]).unwrap();
    assert_eq!(text(&joined, "call_id"), ["a", "odd", "b"].map(|id| Some(id.to_owned())));
    assert_eq!(bases(&joined), [NONE, base(0, 3), base(0, 3)]);
    // `odd` declares a parent that follows it.
    assert_eq!(int(&joined, "parent_prefix_len"), [None, Some(3), Some(3)]);
    assert!(!needs_rebase(&[joined]).unwrap());
}

#[test]
fn imports_of_one_rollout_join_into_one_sequence() {
    let first = encode(&[Case::new("a", 0, &[1, 2], &[3])]);
    let second = encode(&[Case::new("b", 1, &[1, 2, 3, 4], &[5]), Case::new("c", 2, &[1, 2, 3, 4, 5, 6], &[7])]);
    let files = [first, second];
    assert!(needs_rebase(&files).unwrap());
    let joined = rebase_rollout(&files).unwrap();
    assert_eq!(int(&joined, "stored_index"), [Some(0), Some(1), Some(2)]);
    assert_eq!(bases(&joined), [NONE, base(0, 3), base(1, 5)]);
    assert_eq!(int(&joined, "parent_prefix_len"), [None, Some(3), Some(5)]);
    assert!(!needs_rebase(&[joined]).unwrap());
}

#[rstest]
#[case::nothing_fits(0)]
#[case::one_rollout_fits(150)]
fn forgotten_rollouts_go_on_without_bases(#[case] limit: usize) {
    let calls = [
        Case::new("a", 0, &[1, 2], &[3]),
        Case { rollout: Some("other".to_owned()), ..Case::new("x", 0, &[1, 2], &[3]) },
        Case::new("b", 1, &[1, 2, 3, 4], &[5]),
    ];
    let stored = Encoder::new(limit).encode(&logical(&calls)).unwrap();
    assert_eq!(int(&stored, "stored_index"), [Some(0), Some(0), Some(1)]);
    assert_eq!(bases(&stored), [NONE, NONE, NONE]);
    let own = only(&stored, Some("r"));
    assert!(needs_rebase(std::slice::from_ref(&own)).unwrap());
    assert_eq!(bases(&rebase_rollout(&[own]).unwrap()), [NONE, base(0, 3)]);
}

#[test]
fn decoder_goes_over_rollouts_and_files_in_one_stream() {
    let one = encode(&[Case::new("a", 0, &[1, 2], &[3]), Case::new("b", 1, &[1, 2, 3, 4], &[5])]);
    let other = Case { rollout: None, ..Case::new("x", 0, &[8], &[9]) };
    let two = encode(&[other.clone(), Case { index: Some(1), prompt: Some(vec![8, 9, 1]), ..other.clone() }]);
    let stream = concat_batches(&one.schema(), [&one, &two, &one, &one]).unwrap();
    let expected: Vec<Case> = [&one, &two, &one, &one].iter().flat_map(|rows| cases(&decode_by(rows, 9, 9))).collect();
    for step in 1..9 {
        assert_eq!(cases(&decode_by(&stream, step, usize::MAX)), expected, "{step} rows a batch");
    }
    assert_eq!(expected[3].prompt, Some(vec![8, 9, 1]));
}
