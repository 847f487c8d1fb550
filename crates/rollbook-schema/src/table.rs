//! Tables and columns, in the design's order.

use std::sync::{Arc, LazyLock};

use arrow_schema::{Field, Schema, SchemaRef};
use serde_json::{Value, json};

use crate::parse;

/// Where a column exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Stored and shown.
    Both,
    /// Shown only: rebuilt on read.
    Logical,
    /// Stored only: nobody queries it, and compaction may change it.
    Physical,
}

/// One column and what its values mean.
#[derive(Debug, Clone)]
pub struct Column {
    /// Arrow name, type and nullability.
    pub field: Field,
    /// Where the column exists.
    pub layer: Layer,
    /// What a value means.
    pub comment: String,
    /// What a number counts.
    pub unit: Option<String>,
    /// What null means; none where a value is required.
    pub null_means: Option<String>,
    /// Format version that added the column.
    pub since: String,
    /// Whether a string column holds JSON text.
    pub is_json: bool,
    pub(crate) delta: Value,
}

impl Column {
    /// Returns the column's name.
    pub fn name(&self) -> &str {
        self.field.name()
    }

    /// Returns the column's type as Delta spells it: a name, or an object for nested types.
    pub fn delta_type(&self) -> &Value {
        &self.delta["type"]
    }
}

/// One table of the lake.
#[derive(Debug)]
pub struct Table {
    /// Name of the table, its folder and its SQL table.
    pub name: String,
    /// What one row is.
    pub comment: String,
    /// Whether rows repeat with a `revision`, the highest of a key being shown.
    pub keyed: bool,
    /// Columns that name a row; empty where rows have no key.
    pub key: Vec<String>,
    /// All columns of all layers, in file order.
    pub columns: Vec<Column>,
    source: &'static str,
    logical: SchemaRef,
    physical: SchemaRef,
}

impl Table {
    pub(crate) fn new(
        name: &str,
        source: &'static str,
        comment: String,
        keyed: bool,
        key: Vec<String>,
        columns: Vec<Column>,
    ) -> Self {
        let logical = schema_without(&columns, Layer::Physical);
        let physical = schema_without(&columns, Layer::Logical);
        Self { name: name.to_owned(), comment, keyed, key, columns, source, logical, physical }
    }

    /// Returns what SQL, dump and importers see.
    pub fn logical(&self) -> SchemaRef {
        Arc::clone(&self.logical)
    }

    /// Returns what Parquet and Delta hold.
    pub fn physical(&self) -> SchemaRef {
        Arc::clone(&self.physical)
    }

    /// Returns Delta's `schemaString` of [`Table::physical`].
    pub fn delta_schema_string(&self) -> String {
        let fields: Vec<&Value> =
            self.columns.iter().filter(|column| column.layer != Layer::Logical).map(|column| &column.delta).collect();
        json!({ "type": "struct", "fields": fields }).to_string()
    }

    /// Returns the column of that name, of any layer.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name() == name)
    }

    /// Returns the string columns that hold JSON text, in file order.
    pub fn json_columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().filter(|column| column.is_json).map(Column::name)
    }

    /// Returns the text of the table's file in `schema/v1`.
    pub fn source(&self) -> &'static str {
        self.source
    }
}

fn schema_without(columns: &[Column], hidden: Layer) -> SchemaRef {
    let shown = columns.iter().filter(|column| column.layer != hidden);
    Arc::new(Schema::new(shown.map(|column| column.field.clone()).collect::<Vec<_>>()))
}

/// Returns all tables, in the order of the design.
pub fn tables() -> &'static [Table] {
    &TABLES
}

/// Returns the table of that name.
pub fn table(name: &str) -> Option<&'static Table> {
    tables().iter().find(|table| table.name == name)
}

macro_rules! sources {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../schema/v1/", $name, ".json")))),*]
    };
}

/// The list: a forgotten or surplus file fails a test.
const SOURCES: [(&str, &str); 21] = sources![
    "runs" "policies" "encodings" "imports" "rejects" "rollouts" "calls" "call_payloads" "token_signals"
    "environment_records" "scores" "step_metrics" "derivations" "rewards" "credits" "builds" "samples" "exclusions"
    "audits" "findings" "quarantine"
];

static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the files are embedded, and a test parses every one of them")]
    SOURCES.iter().map(|(name, text)| parse::table(name, text).expect("schema/v1 is well formed")).collect()
});
