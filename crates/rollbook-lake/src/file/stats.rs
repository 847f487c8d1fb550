//! Delta statistics of a file, gathered while it is written and read back from the log.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{max, max_string, min, min_string};
use arrow::datatypes::{
    DataType, Field, Float32Type, Float64Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use chrono::{DateTime, SecondsFormat};
use rollbook_schema::Table;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::{Error, Kind, Result};
use crate::file::text_bounds;

/// Delta's usual length of text bounds.
const TEXT_CHARS: usize = 32;
/// Keys are searched by these ranges, so they stay whole unless they are absurd.
const KEY_CHARS: usize = 256;
const KEYS: [&str; 2] = ["run_id", "group_id"];
/// Keys whose nulls are counted even where there is nothing else.
const COUNTED: [&str; 3] = ["run_id", "step", "group_id"];
/// Short words that queries filter by; other texts than these and ids have no useful bounds.
const WORDS: [&str; 14] = [
    "kind",
    "status",
    "purpose",
    "verifier",
    "quantity",
    "level",
    "name",
    "check",
    "outcome",
    "severity",
    "environment",
    "relation",
    "break_reason",
    "source",
];

#[derive(Debug, Clone, PartialEq)]
enum Bounds {
    Int(i64, i64),
    Float(f64, f64),
    Text(String, String),
    Time(i64, i64),
}

#[derive(Debug, Default)]
struct ColumnStats {
    nulls: u64,
    bounds: Option<Bounds>,
    /// A NaN has no place in an order, so that column gets no bounds.
    has_nan: bool,
}

/// Gathers one file's statistics.
pub(super) struct StatsBuilder {
    /// Place in the batch, name.
    columns: Vec<(usize, String)>,
    stats: Vec<ColumnStats>,
    rows: u64,
}

impl StatsBuilder {
    pub(super) fn new(table: &Table, fields: &[&Field]) -> Self {
        let is_wanted = |field: &Field| match field.data_type() {
            DataType::Utf8 => {
                let name = field.name().as_str();
                let is_json = table.column(name).is_some_and(|column| column.is_json);
                !is_json && (name.ends_with("_id") || WORDS.contains(&name))
            }
            DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Boolean
            | DataType::Timestamp(TimeUnit::Microsecond, _) => true,
            _ => false,
        };
        let columns: Vec<_> = fields
            .iter()
            .enumerate()
            .filter(|(_, field)| is_wanted(field))
            .map(|(index, field)| (index, field.name().clone()))
            .collect();
        let stats = columns.iter().map(|_| ColumnStats::default()).collect();
        Self { columns, stats, rows: 0 }
    }

    pub(super) fn update(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        for ((index, _), stats) in self.columns.iter().zip(&mut self.stats) {
            let array = batch.column(*index);
            stats.nulls += array.null_count() as u64;
            stats.has_nan |= has_nan(array);
            stats.bounds = match (stats.bounds.take(), bounds_of(array)) {
                (Some(old), Some(new)) => Some(widen(old, new)),
                (old, new) => old.or(new),
            };
        }
    }

    /// Returns the statistics as Delta's JSON.
    pub(super) fn finish(&self) -> String {
        let (mut low, mut high, mut nulls) = (Map::new(), Map::new(), Map::new());
        for ((_, name), stats) in self.columns.iter().zip(&self.stats) {
            // Most columns of most files are all null; saying so would be half of every commit.
            if stats.nulls < self.rows || COUNTED.contains(&name.as_str()) {
                nulls.insert(name.clone(), json!(stats.nulls));
            }
            let Some(bounds) = stats.bounds.as_ref().filter(|_| !stats.has_nan) else {
                continue;
            };
            let (smallest, largest) = bounds_json(name, bounds);
            if let (Some(smallest), Some(largest)) = (smallest, largest) {
                low.insert(name.clone(), smallest);
                high.insert(name.clone(), largest);
            }
        }
        json!({ "numRecords": self.rows, "minValues": low, "maxValues": high, "nullCount": nulls }).to_string()
    }
}

fn bounds_of(array: &ArrayRef) -> Option<Bounds> {
    match array.data_type() {
        DataType::Utf8 => {
            let texts = array.as_string::<i32>();
            Some(Bounds::Text(min_string(texts)?.to_owned(), max_string(texts)?.to_owned()))
        }
        DataType::Int32 => {
            let numbers = array.as_primitive::<Int32Type>();
            Some(Bounds::Int(min(numbers)?.into(), max(numbers)?.into()))
        }
        DataType::Int64 => {
            let numbers = array.as_primitive::<Int64Type>();
            Some(Bounds::Int(min(numbers)?, max(numbers)?))
        }
        DataType::Float32 => {
            let numbers = array.as_primitive::<Float32Type>();
            Some(Bounds::Float(min(numbers)?.into(), max(numbers)?.into()))
        }
        DataType::Float64 => {
            let numbers = array.as_primitive::<Float64Type>();
            Some(Bounds::Float(min(numbers)?, max(numbers)?))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let times = array.as_primitive::<TimestampMicrosecondType>();
            Some(Bounds::Time(min(times)?, max(times)?))
        }
        _ => None,
    }
}

fn has_nan(array: &ArrayRef) -> bool {
    match array.data_type() {
        DataType::Float32 => array.as_primitive::<Float32Type>().iter().flatten().any(f32::is_nan),
        DataType::Float64 => array.as_primitive::<Float64Type>().iter().flatten().any(f64::is_nan),
        _ => false,
    }
}

fn widen(old: Bounds, new: Bounds) -> Bounds {
    match (old, new) {
        (Bounds::Int(a, b), Bounds::Int(c, d)) => Bounds::Int(a.min(c), b.max(d)),
        (Bounds::Time(a, b), Bounds::Time(c, d)) => Bounds::Time(a.min(c), b.max(d)),
        (Bounds::Float(a, b), Bounds::Float(c, d)) => Bounds::Float(a.min(c), b.max(d)),
        (Bounds::Text(a, b), Bounds::Text(c, d)) => Bounds::Text(a.min(c), b.max(d)),
        // A column has one type, so this never happens; the older bounds alone would be wrong, so widen to nothing.
        (_, new) => new,
    }
}

fn bounds_json(name: &str, bounds: &Bounds) -> (Option<Value>, Option<Value>) {
    match bounds {
        Bounds::Int(low, high) => (Some(json!(low)), Some(json!(high))),
        Bounds::Float(low, high) if low.is_finite() && high.is_finite() => {
            // Zeros of both signs are equal to a query but not to an order of bits.
            let low = if *low == 0.0 { -0.0 } else { *low };
            let high = if *high == 0.0 { 0.0 } else { *high };
            (Some(json!(low)), Some(json!(high)))
        }
        Bounds::Float(..) => (None, None),
        Bounds::Text(low, high) => {
            let chars = if KEYS.contains(&name) { KEY_CHARS } else { TEXT_CHARS };
            (Some(json!(text_bounds::lower(low, chars))), text_bounds::upper(high, chars).map(Value::from))
        }
        Bounds::Time(low, high) => {
            // Delta's times are milliseconds here: round outwards.
            let ceiling = high.div_euclid(1000) + i64::from(high.rem_euclid(1000) != 0);
            (time(low.div_euclid(1000)), time(ceiling))
        }
    }
}

fn time(millis: i64) -> Option<Value> {
    DateTime::from_timestamp_millis(millis).map(|time| json!(time.to_rfc3339_opts(SecondsFormat::Millis, true)))
}

/// What a scan and a key search need from a file's statistics.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Ranges {
    pub(crate) rows: u64,
    pub(crate) run_id: Option<(String, String)>,
    pub(crate) step: Option<(i64, i64)>,
    pub(crate) group_id: Option<(String, String)>,
    pub(crate) step_nulls: u64,
    pub(crate) group_nulls: u64,
    pub(crate) max_prompt_len: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatsText {
    num_records: u64,
    #[serde(default)]
    min_values: BTreeMap<String, Value>,
    #[serde(default)]
    max_values: BTreeMap<String, Value>,
    #[serde(default)]
    null_count: BTreeMap<String, Value>,
}

/// Reads the ranges back from Delta's JSON, so that the log alone rebuilds a file's description.
pub(crate) fn ranges_of_stats(text: &str) -> Result<Ranges> {
    let stats: StatsText = serde_json::from_str(text)
        .map_err(|source| Error::new(Kind::Corrupt, "a file's statistics cannot be read").with_source(source))?;
    let texts = |name: &str| {
        let low = stats.min_values.get(name)?.as_str()?;
        Some((low.to_owned(), stats.max_values.get(name)?.as_str()?.to_owned()))
    };
    let numbers = |name: &str| Some((stats.min_values.get(name)?.as_i64()?, stats.max_values.get(name)?.as_i64()?));
    let nulls = |name: &str| stats.null_count.get(name).and_then(Value::as_u64).unwrap_or(0);
    Ok(Ranges {
        rows: stats.num_records,
        run_id: texts("run_id"),
        step: numbers("step"),
        group_id: texts("group_id"),
        step_nulls: nulls("step"),
        group_nulls: nulls("group_id"),
        max_prompt_len: numbers("prompt_len").and_then(|(_, largest)| i32::try_from(largest).ok()),
    })
}
