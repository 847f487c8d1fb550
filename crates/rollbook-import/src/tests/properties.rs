//! Properties of every importer: no bytes make it panic, its counts add up, and it is a function of its bytes.

use proptest::prelude::*;

use super::{Gathered, folder, gather};
use crate::{ImportOptions, importer};

fn read(name: &str, file: &str, bytes: &[u8]) -> crate::Result<Gathered> {
    let folder = folder(&[(file, bytes)]);
    gather(importer(name).unwrap(), &[folder.path().join(file)], &ImportOptions::default())
}

/// Lines that are nearly good.
fn line() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("null".to_owned()),
        Just("[1, 2, 3]".to_owned()),
        Just("[1, null]".to_owned()),
        Just("[-0.5, NaN, null]".to_owned()),
        Just("\"x\"".to_owned()),
        Just("{\"a\": [1]}".to_owned()),
        Just("[99999999999]".to_owned()),
        Just("{\"choices\": [{\"index\": 1, \"token_ids\": [1], \"logprobs\": {\"content\": []}}, {}]}".to_owned()),
        any::<i64>().prop_map(|value| value.to_string()),
        any::<f64>().prop_map(|value| value.to_string()),
        "[ -~]{0,12}",
    ];
    let key = prop_oneof![
        Just("call_id"),
        Just("prompt_token_ids"),
        Just("output_token_ids"),
        Just("output_logprobs"),
        Just("request"),
        Just("response"),
        Just("metadata"),
        Just("policy_spans"),
        Just("sampled_mask"),
        Just("started_at"),
        Just("temperature"),
        Just("extra"),
        Just("unknown"),
    ];
    proptest::collection::vec((key, value), 0..5).prop_map(|members| {
        let members: Vec<_> = members.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
        format!("{{{}}}", members.join(", "))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for (name, file) in [
            ("tables", "calls.jsonl"),
            ("tables", "samples.parquet"),
            ("tables", "scores.arrow"),
            ("openai-log", "log.jsonl"),
        ] {
            drop(read(name, file, &bytes));
        }
    }

    #[test]
    fn rows_and_rejects_add_up_and_repeat(lines in proptest::collection::vec(line(), 0..12)) {
        let text = lines.join("\n");
        let tables = read("tables", "calls.jsonl", text.as_bytes()).unwrap();
        prop_assert_eq!(tables.rows("calls") + tables.rejects.len(), lines.len());
        prop_assert_eq!(&tables, &read("tables", "calls.jsonl", text.as_bytes()).unwrap());
        let log = read("openai-log", "log.jsonl", text.as_bytes()).unwrap();
        let choices = lines.iter().filter(|line| line.contains("choices")).count();
        prop_assert!(log.rows("calls") + log.rejects.len() >= lines.len());
        prop_assert!(log.rows("calls") + log.rejects.len() <= lines.len() + choices);
        prop_assert_eq!(&log, &read("openai-log", "log.jsonl", text.as_bytes()).unwrap());
    }
}
