//! The embedded schema against what was agreed: folder, pages, keys, and the design's lists of columns.

use std::{collections::BTreeSet, fs, path::Path};

use arrow_schema::{DataType, Field, TimeUnit};
use rollbook_schema::{Layer, Table, table, tables};
use serde_json::Value;

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn known(name: &str) -> &'static Table {
    table(name).unwrap_or_else(|| panic!("no table {name}"))
}

fn names(table: &Table) -> BTreeSet<&str> {
    table
        .columns
        .iter()
        .map(|column| column.field.name().as_str())
        .collect()
}

/// The keys of the design, and whether the table is keyed (rows repeat with a revision).
const KEYS: [(&str, bool, &[&str]); 10] = [
    ("runs", true, &["run_id"]),
    ("policies", true, &["run_id", "policy_id", "policy_version"]),
    ("encodings", true, &["encoding_id"]),
    ("rollouts", true, &["run_id", "rollout_id"]),
    ("calls", false, &["run_id", "call_id"]),
    ("scores", false, &["run_id", "score_id"]),
    ("environment_records", false, &["run_id", "record_id"]),
    (
        "rewards",
        false,
        &["derivation_id", "run_id", "rollout_id", "call_id"],
    ),
    (
        "credits",
        false,
        &["derivation_id", "run_id", "rollout_id", "call_id"],
    ),
    (
        "samples",
        false,
        &[
            "build_id",
            "epoch",
            "step",
            "micro_batch",
            "rank",
            "row_index",
        ],
    ),
];

/// Columns that the design names, table by table.
const DESIGNED: [(&str, &str); 21] = [
    (
        "runs",
        "run_id name trainer trainer_version expected_group_size max_staleness allow_policy_mix vocab_size \
         logprobs_mode objective_unit objective_scope eos_token_ids bos_token_id pad_token_id max_context_tokens \
         max_output_tokens lora_adapter score_min score_max credit_rule metadata",
    ),
    (
        "policies",
        "run_id policy_id policy_version base_model weights_digest lora_adapter step published_at",
    ),
    (
        "encodings",
        "encoding_id tokenizer_digest chat_template_digest template_kwargs tools_digest renderer renderer_version \
         protocol_adapter_version tool_parser reasoning_parser generation_prompt_ids vocab_size",
    ),
    (
        "imports",
        "import_id format sources source_digest importer_version counts",
    ),
    ("rejects", "import_id file line field reason raw"),
    (
        "rollouts",
        "run_id rollout_id step group_id task_id task environment environment_version initial_state_digest harness \
         harness_version harness_config_digest purpose attempt status termination_reason drop_reason \
         policy_version_min policy_version_max call_count prompt_token_count output_digest origin_rollout_id \
         origin_call_id origin_position relation started_at finished_at metadata",
    ),
    (
        "calls",
        "run_id step group_id rollout_id call_id call_index parent_call_id turn_index continues_call_id attempt kind \
         agent_id role is_trainable request_id choice_index is_selected break_reason prompt_token_ids prompt_len \
         prompt_digest prompt_exactness prompt_sent_len output_token_ids output_len output_digest output_exactness \
         output_logprobs logprobs_source logprobs_mode sampled_mask action_mask policy_id policy_version policy_spans \
         lora_adapter cache_epoch encoding_id model engine engine_version protocol request request_digest response \
         output_text parsed parse_error response_id harness_state_record_id temperature top_p top_k sampling \
         finish_reason stop_token stop_string tokens_trimmed usage_prompt_tokens usage_cached_prompt_tokens \
         usage_output_tokens multimodal_spans started_at finished_at extra parent_prefix_len stored_index base_index \
         base_len prompt_suffix messages_base_len messages_suffix",
    ),
    (
        "call_payloads",
        "run_id step group_id rollout_id call_id name dtype shape start blob",
    ),
    (
        "token_signals",
        "run_id step group_id rollout_id call_id name producer policy_version values",
    ),
    (
        "environment_records",
        "run_id step group_id rollout_id record_id call_id call_index kind name tool_call_id arguments content \
         content_digest blob token_count delivered_call_id state_digest is_error error_type exit_code duration_ms \
         limit_ms",
    ),
    (
        "scores",
        "run_id step group_id rollout_id score_id call_id judge_call_ids comparison_id verifier verifier_version \
         verifier_digest value is_valid error_type metrics detail evidence_record_ids input_digest scored_at",
    ),
    ("step_metrics", "run_id step name value source"),
    (
        "derivations",
        "derivation_id kind name recipe recipe_digest parameters group_key functions snapshot engine_version \
         row_count content_digest",
    ),
    (
        "rewards",
        "run_id name rollout_id call_id group_id value exclusion_reason components score_ids",
    ),
    (
        "credits",
        "run_id step group_id name rollout_id call_id quantity level value token_values baseline_scope baseline_key \
         baseline_count baseline_rollout_ids",
    ),
    (
        "builds",
        "build_id run_id origin derivation_id objective_unit objective_scope objective_constant advantage_scale \
         max_tokens algorithm kl_estimator reported metadata",
    ),
    (
        "samples",
        "run_id build_id step epoch optimizer_step micro_batch rank row_index rollout_id token_ids position_ids \
         action_mask logprobs advantages loss_weights trainer_logprobs reference_logprobs trained_policy_version \
         is_pad segments",
    ),
    (
        "exclusions",
        "run_id build_id rollout_id call_id position length reason",
    ),
    ("audits", "audit_id snapshot checks counts"),
    (
        "findings",
        "audit_id check outcome severity layer run_id step group_id rollout_id call_id build_id derivation_id \
         row_index position position_in length expected observed message",
    ),
    ("quarantine", "level reason audit_id lifted_at"),
];

#[test]
fn tables_stand_in_the_order_of_the_design() {
    let listed: Vec<&str> = tables().iter().map(|table| table.name.as_str()).collect();
    let designed: Vec<&str> = DESIGNED.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed, designed);
}

#[test]
fn list_agrees_with_the_folder() {
    let files: BTreeSet<String> = fs::read_dir(repository().join("schema/v1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".json"))
        .collect();
    assert_eq!(
        files,
        tables()
            .iter()
            .map(|table| format!("{}.json", table.name))
            .collect()
    );
}

#[test]
fn source_is_the_file_and_names_the_same_columns() {
    for table in tables() {
        let text = fs::read_to_string(repository().join(format!("schema/v1/{}.json", table.name)))
            .unwrap();
        assert_eq!(text, table.source());
        let file: Value = serde_json::from_str(&text).unwrap();
        let named: Vec<&str> = file["fields"]
            .as_array()
            .unwrap()
            .iter()
            .map(|field| field["name"].as_str().unwrap())
            .collect();
        let read: Vec<&str> = table
            .columns
            .iter()
            .map(|column| column.field.name().as_str())
            .collect();
        assert_eq!(named, read, "{}", table.name);
    }
}

#[test]
fn every_designed_column_is_there() {
    for (name, columns) in DESIGNED {
        for column in columns.split_whitespace() {
            assert!(known(name).column(column).is_some(), "{name}.{column}");
        }
    }
}

#[test]
fn keys_are_those_of_the_design() {
    for (name, keyed, key) in KEYS {
        assert_eq!(known(name).key, key, "{name}");
        assert_eq!(known(name).keyed, keyed, "{name}");
    }
    for table in tables() {
        assert!(
            table
                .key
                .iter()
                .all(|column| table.column(column).is_some()),
            "{}",
            table.name
        );
        assert_eq!(
            table.keyed,
            names(table).contains("revision"),
            "{}",
            table.name
        );
    }
}

#[test]
fn every_column_says_what_it_means_and_what_null_means() {
    for table in tables() {
        for column in &table.columns {
            let place = format!("{}.{}", table.name, column.field.name());
            assert!(column.comment.ends_with('.'), "{place} has no comment");
            assert_eq!(
                column.field.is_nullable(),
                column.null_means.is_some(),
                "{place}: what does null mean?"
            );
            assert!(
                !column.is_json || column.field.data_type() == &DataType::Utf8,
                "{place}: JSON is text"
            );
            assert_eq!(column.since, "1", "{place}");
        }
    }
}

#[test]
fn every_row_says_where_it_comes_from_and_when_it_came() {
    for table in tables() {
        let origin = ["import_id", "derivation_id"];
        assert!(
            names(table).iter().any(|name| origin.contains(name)),
            "{}",
            table.name
        );
        assert!(names(table).contains("created_at"), "{}", table.name);
    }
    for name in ["rewards", "credits", "builds", "samples", "exclusions"] {
        assert!(
            names(known(name)).is_superset(&BTreeSet::from(["import_id", "derivation_id"])),
            "{name}"
        );
    }
}

#[test]
fn run_id_is_required_below_runs_and_nothing_else_but_stored_index() {
    for table in tables() {
        for column in table
            .columns
            .iter()
            .filter(|column| !column.field.is_nullable())
        {
            assert!(
                ["run_id", "stored_index"].contains(&column.field.name().as_str()),
                "{}",
                table.name
            );
        }
    }
    for name in [
        "calls",
        "call_payloads",
        "token_signals",
        "environment_records",
        "scores",
        "rewards",
        "credits",
    ] {
        assert!(
            !known(name).column("run_id").unwrap().field.is_nullable(),
            "{name}"
        );
    }
}

#[test]
fn delta_schema_is_the_physical_one() {
    for table in tables() {
        let delta: Value = serde_json::from_str(&table.delta_schema_string()).unwrap();
        assert_eq!(delta["type"], "struct");
        let fields = delta["fields"].as_array().unwrap();
        let named: Vec<&str> = fields
            .iter()
            .map(|field| field["name"].as_str().unwrap())
            .collect();
        let physical = table.physical();
        assert_eq!(
            named,
            physical
                .fields()
                .iter()
                .map(|field| field.name().as_str())
                .collect::<Vec<_>>()
        );
        for field in fields {
            assert!(field["metadata"]["comment"].is_string());
            assert_eq!(
                field["nullable"].as_bool().unwrap(),
                table_nullable(table, field)
            );
        }
    }
}

fn table_nullable(table: &Table, field: &Value) -> bool {
    table
        .column(field["name"].as_str().unwrap())
        .unwrap()
        .field
        .is_nullable()
}

#[test]
fn prompts_are_logical_and_their_storage_is_physical() {
    let calls = known("calls");
    assert_eq!(
        calls.column("prompt_token_ids").unwrap().layer,
        Layer::Logical
    );
    assert!(
        calls
            .physical()
            .field_with_name("prompt_token_ids")
            .is_err()
    );
    assert!(!calls.delta_schema_string().contains("prompt_token_ids"));
    for name in [
        "stored_index",
        "base_index",
        "base_len",
        "prompt_suffix",
        "messages_base_len",
        "messages_suffix",
    ] {
        assert_eq!(calls.column(name).unwrap().layer, Layer::Physical, "{name}");
        assert!(calls.logical().field_with_name(name).is_err(), "{name}");
    }
    let hidden: usize = tables()
        .iter()
        .map(|t| {
            t.columns
                .iter()
                .filter(|column| column.layer != Layer::Both)
                .count()
        })
        .sum();
    assert_eq!(hidden, 7, "only calls hide columns");
}

#[test]
fn delta_types_become_the_agreed_arrow_types() {
    let list = |item, nullable| DataType::List(Field::new("element", item, nullable).into());
    let entries = vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Float64, true),
    ];
    let map = DataType::Map(
        Field::new("key_value", DataType::Struct(entries.into()), false).into(),
        false,
    );
    let span = vec![
        Field::new("start", DataType::Int32, true),
        Field::new("policy_version", DataType::Int64, true),
    ];
    for (table, column, expected) in [
        ("calls", "call_id", DataType::Utf8),
        ("calls", "prompt_len", DataType::Int32),
        ("calls", "policy_version", DataType::Int64),
        ("calls", "temperature", DataType::Float64),
        ("calls", "is_trainable", DataType::Boolean),
        (
            "calls",
            "created_at",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ),
        ("calls", "output_token_ids", list(DataType::Int32, false)),
        ("calls", "output_logprobs", list(DataType::Float32, true)),
        ("samples", "loss_weights", list(DataType::Float64, true)),
        (
            "calls",
            "policy_spans",
            list(DataType::Struct(span.into()), false),
        ),
        ("scores", "metrics", map),
    ] {
        assert_eq!(
            known(table).column(column).unwrap().field.data_type(),
            &expected,
            "{table}.{column}"
        );
    }
}

#[test]
fn page_shows_every_column() {
    let page = fs::read_to_string(repository().join("docs/schema.md")).unwrap();
    for table in tables() {
        let section = page
            .split(&format!("\n## {}\n", table.name))
            .nth(1)
            .unwrap_or_default();
        let section = section.split("\n## ").next().unwrap_or_default();
        for column in &table.columns {
            assert!(
                section.contains(&format!("\n| {} |", column.field.name())),
                "{}",
                table.name
            );
        }
    }
}

#[test]
fn generated_names_are_current() {
    let source =
        fs::read_to_string(repository().join("crates/rollbook-schema/src/columns.rs")).unwrap();
    let expected: usize = tables().iter().map(|table| table.columns.len()).sum();
    assert_eq!(source.matches("pub const ").count(), expected);
    for table in tables() {
        let module = source
            .split(&format!("pub mod {} {{", table.name))
            .nth(1)
            .unwrap_or_default();
        let module = module.split('}').next().unwrap_or_default();
        for name in names(table) {
            assert!(
                module.contains(&format!("{}: &str = \"{name}\";", name.to_uppercase())),
                "{}.{name}",
                table.name
            );
        }
    }
}
