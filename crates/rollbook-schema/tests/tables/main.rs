//! The embedded schema against what was agreed: folder, pages, keys, and the design's lists of columns.

#![expect(clippy::unwrap_used, reason = "a test's own functions may fail like the test")]

mod designed;

use std::{collections::BTreeSet, fs, path::Path};

use arrow_schema::{DataType, Field, TimeUnit};
use rollbook_schema::{Layer, Table, table, tables};
use serde_json::Value;

use crate::designed::{DESIGNED, KEYS};

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn known(name: &str) -> &'static Table {
    table(name).unwrap()
}

fn names(table: &Table) -> BTreeSet<&str> {
    table.columns.iter().map(|column| column.field.name().as_str()).collect()
}

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
        .filter(|name| Path::new(name).extension().is_some_and(|ending| ending == "json"))
        .collect();
    assert_eq!(files, tables().iter().map(|table| format!("{}.json", table.name)).collect());
}

#[test]
fn source_is_the_file_and_names_the_same_columns() {
    for table in tables() {
        let text = fs::read_to_string(repository().join(format!("schema/v1/{}.json", table.name))).unwrap();
        assert_eq!(text, table.source());
        let file: Value = serde_json::from_str(&text).unwrap();
        let named: Vec<&str> =
            file["fields"].as_array().unwrap().iter().map(|field| field["name"].as_str().unwrap()).collect();
        let read: Vec<&str> = table.columns.iter().map(|column| column.field.name().as_str()).collect();
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
        assert!(table.key.iter().all(|column| table.column(column).is_some()), "{}", table.name);
        assert_eq!(table.keyed, names(table).contains("revision"), "{}", table.name);
    }
}

#[test]
fn every_column_says_what_it_means_and_what_null_means() {
    for table in tables() {
        for column in &table.columns {
            let place = format!("{}.{}", table.name, column.field.name());
            assert!(column.comment.ends_with('.'), "{place} has no comment");
            assert_eq!(column.field.is_nullable(), column.null_means.is_some(), "{place}: what does null mean?");
            assert!(!column.is_json || column.field.data_type() == &DataType::Utf8, "{place}: JSON is text");
            assert_eq!(column.since, "1", "{place}");
        }
    }
}

#[test]
fn every_row_says_where_it_comes_from_and_when_it_came() {
    for table in tables() {
        let origin = ["import_id", "derivation_id"];
        assert!(names(table).iter().any(|name| origin.contains(name)), "{}", table.name);
        assert!(names(table).contains("created_at"), "{}", table.name);
    }
    for name in ["rewards", "credits", "builds", "samples", "exclusions"] {
        assert!(names(known(name)).is_superset(&BTreeSet::from(["import_id", "derivation_id"])), "{name}");
    }
}

#[test]
fn run_id_is_required_below_runs_and_nothing_else_but_stored_index() {
    for table in tables() {
        for column in table.columns.iter().filter(|column| !column.field.is_nullable()) {
            assert!(["run_id", "stored_index"].contains(&column.field.name().as_str()), "{}", table.name);
        }
    }
    for name in ["calls", "call_payloads", "token_signals", "environment_records", "scores", "rewards", "credits"] {
        assert!(!known(name).column("run_id").unwrap().field.is_nullable(), "{name}");
    }
}

#[test]
fn delta_schema_is_the_physical_one() {
    for table in tables() {
        let delta: Value = serde_json::from_str(&table.delta_schema_string()).unwrap();
        assert_eq!(delta["type"], "struct");
        let fields = delta["fields"].as_array().unwrap();
        let named: Vec<&str> = fields.iter().map(|field| field["name"].as_str().unwrap()).collect();
        let physical = table.physical();
        assert_eq!(named, physical.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>());
        for field in fields {
            assert!(field["metadata"]["comment"].is_string());
            assert_eq!(field["nullable"].as_bool().unwrap(), table_nullable(table, field));
        }
    }
}

fn table_nullable(table: &Table, field: &Value) -> bool {
    table.column(field["name"].as_str().unwrap()).unwrap().field.is_nullable()
}

#[test]
fn prompts_are_logical_and_their_storage_is_physical() {
    let calls = known("calls");
    assert_eq!(calls.column("prompt_token_ids").unwrap().layer, Layer::Logical);
    assert!(calls.physical().field_with_name("prompt_token_ids").is_err());
    assert!(!calls.delta_schema_string().contains("prompt_token_ids"));
    for name in ["stored_index", "base_index", "base_len", "prompt_suffix", "messages_base_len", "messages_suffix"] {
        assert_eq!(calls.column(name).unwrap().layer, Layer::Physical, "{name}");
        assert!(calls.logical().field_with_name(name).is_err(), "{name}");
    }
    let hidden: usize =
        tables().iter().map(|t| t.columns.iter().filter(|column| column.layer != Layer::Both).count()).sum();
    assert_eq!(hidden, 7, "only calls hide columns");
}

#[test]
fn delta_types_become_the_agreed_arrow_types() {
    let list = |item, nullable| DataType::List(Field::new("element", item, nullable).into());
    let entries = vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Float64, true)];
    let map = DataType::Map(Field::new("key_value", DataType::Struct(entries.into()), false).into(), false);
    let span = vec![Field::new("start", DataType::Int32, true), Field::new("policy_version", DataType::Int64, true)];
    for (table, column, expected) in [
        ("calls", "call_id", DataType::Utf8),
        ("calls", "prompt_len", DataType::Int32),
        ("calls", "policy_version", DataType::Int64),
        ("calls", "temperature", DataType::Float64),
        ("calls", "is_trainable", DataType::Boolean),
        ("calls", "created_at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        ("calls", "output_token_ids", list(DataType::Int32, false)),
        ("calls", "output_logprobs", list(DataType::Float32, true)),
        ("samples", "loss_weights", list(DataType::Float64, true)),
        ("calls", "policy_spans", list(DataType::Struct(span.into()), false)),
        ("scores", "metrics", map),
    ] {
        assert_eq!(known(table).column(column).unwrap().field.data_type(), &expected, "{table}.{column}");
    }
}

#[test]
fn page_shows_every_column() {
    let page = fs::read_to_string(repository().join("docs/schema.md")).unwrap();
    for table in tables() {
        let section = page.split(&format!("\n## {}\n", table.name)).nth(1).unwrap_or_default();
        let section = section.split("\n## ").next().unwrap_or_default();
        for column in &table.columns {
            assert!(section.contains(&format!("\n| {} |", column.field.name())), "{}", table.name);
        }
    }
}

#[test]
fn generated_names_are_current() {
    let source = fs::read_to_string(repository().join("crates/rollbook-schema/src/columns.rs")).unwrap();
    let expected: usize = tables().iter().map(|table| table.columns.len()).sum();
    assert_eq!(source.matches("pub const ").count(), expected);
    for table in tables() {
        let module = source.split(&format!("pub mod {} {{", table.name)).nth(1).unwrap_or_default();
        let module = module.split('}').next().unwrap_or_default();
        for name in names(table) {
            assert!(module.contains(&format!("{}: &str = \"{name}\";", name.to_uppercase())), "{}.{name}", table.name);
        }
    }
}
