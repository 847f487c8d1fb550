//! The record of a recipe's run, and its publication together with the rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int64Array, ListBuilder, RecordBatch, StringArray, StringBuilder, TimestampMicrosecondArray,
    new_null_array,
};
use arrow::compute::cast;
use async_trait::async_trait;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use rollbook_lake::{Change, DataFile, Entry, Intent, Lake, Outcome, Prepare, Snapshot};
use rollbook_schema::Table;
use uuid::{NoContext, Timestamp, Uuid};

use crate::error::{Error, Result};
use crate::recipe::{Bindings, Recipe};
use crate::session::Session;

/// Makes an id that sorts by the time it was made: `derivation-0192…`.
pub(crate) fn new_id(prefix: &str, now_us: i64) -> String {
    let micros = u64::try_from(now_us).unwrap_or(0);
    let nanos = u32::try_from(micros % 1_000_000).unwrap_or(0) * 1000;
    let time = Timestamp::from_unix(NoContext, micros / 1_000_000, nanos);
    format!("{prefix}-{}", Uuid::new_v7(time))
}

/// Makes stored rows of a table from some of its columns; the others are null.
pub(crate) fn table_batch(table: &Table, rows: usize, mut columns: BTreeMap<&str, ArrayRef>) -> Result<RecordBatch> {
    let schema = table.physical();
    let arrays = schema
        .fields()
        .iter()
        .map(|field| {
            let Some(array) = columns.remove(field.name().as_str()) else {
                return Ok(new_null_array(field.data_type(), rows));
            };
            // Lists differ in the name or the nullability of their items, nothing else.
            if array.data_type() == field.data_type() { Ok(array) } else { Ok(cast(&array, field.data_type())?) }
        })
        .collect::<Result<_>>()?;
    if let Some(name) = columns.keys().next() {
        return Err(Error::corrupt(format!("table {} has no column {name}", table.name)));
    }
    Ok(RecordBatch::try_new(schema, arrays)?)
}

/// Returns the functions of ours that a plan calls, with the versions of their definitions.
pub(crate) fn functions_used(plan: &LogicalPlan) -> Result<BTreeMap<&'static str, u32>> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                let called = match expr {
                    Expr::ScalarFunction(call) => Some(call.func.name()),
                    Expr::AggregateFunction(call) => Some(call.func.name()),
                    Expr::WindowFunction(call) => Some(call.fun.name()),
                    _ => None,
                };
                names.extend(called.map(str::to_owned));
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    let ours = rollbook_functions::functions().iter().filter(|function| names.contains(function.name));
    Ok(ours.map(|function| (function.name, function.version)).collect())
}

/// One row of `derivations`.
#[derive(Debug, Clone)]
pub(crate) struct Derivation {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) run_id: Option<String>,
    pub(crate) snapshot: u64,
    pub(crate) upstream_ids: Vec<String>,
    pub(crate) functions: BTreeMap<&'static str, u32>,
    pub(crate) rows: u64,
    pub(crate) content_digest: String,
    pub(crate) created_at: i64,
}

impl Derivation {
    /// Starts the record of a run of a recipe that begins now.
    pub(crate) fn start(session: &Session, recipe: &Recipe, name: Option<&str>, run_id: Option<&str>) -> Self {
        let now = session.lake().now_us();
        Self {
            id: new_id("derivation", now),
            name: name.unwrap_or_else(|| recipe.name()).to_owned(),
            run_id: run_id.map(str::to_owned),
            snapshot: session.snapshot().n,
            upstream_ids: Vec::new(),
            functions: BTreeMap::new(),
            rows: 0,
            content_digest: String::new(),
            created_at: now,
        }
    }

    fn batch(&self, recipe: &Recipe, bindings: &Bindings) -> Result<RecordBatch> {
        let table = table("derivations")?;
        let text = |value: Option<&str>| Arc::new(StringArray::from(vec![value])) as ArrayRef;
        let long =
            |value: u64| -> ArrayRef { Arc::new(Int64Array::from(vec![i64::try_from(value).unwrap_or(i64::MAX)])) };
        let functions = serde_json::to_string(&self.functions).unwrap_or_default();
        let group_key = (recipe.kind() != crate::recipe::Kind::Build).then(|| bindings.group_key());
        let columns = BTreeMap::from([
            ("derivation_id", text(Some(&self.id))),
            ("kind", text(Some(recipe.kind().as_str()))),
            ("name", text(Some(&self.name))),
            ("run_id", text(self.run_id.as_deref())),
            ("recipe", text(Some(recipe.text()))),
            ("recipe_digest", text(Some(&recipe.digest()))),
            ("parameters", text(Some(&bindings.to_json()))),
            ("group_key", text(group_key)),
            ("functions", text(Some(&functions))),
            ("snapshot", long(self.snapshot)),
            ("upstream_derivation_ids", text_list(&self.upstream_ids)),
            ("engine_version", text(Some(env!("CARGO_PKG_VERSION")))),
            ("row_count", long(self.rows)),
            ("content_digest", text(Some(&self.content_digest))),
            ("created_at", times(self.created_at, 1)),
        ]);
        table_batch(table, 1, columns)
    }
}

fn text_list(values: &[String]) -> ArrayRef {
    let mut builder = ListBuilder::new(StringBuilder::new());
    builder.append_value(values.iter().map(Some));
    Arc::new(builder.finish())
}

/// A column of one time.
pub(crate) fn times(micros: i64, rows: usize) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from(vec![micros; rows]).with_timezone("UTC"))
}

/// Finds a table of the schema.
pub(crate) fn table(name: &str) -> Result<&'static Table> {
    rollbook_schema::table(name).ok_or_else(|| Error::corrupt(format!("the schema has no table {name}")))
}

/// The files of one derivation, made visible in one commit.
#[derive(Debug, Default)]
pub(crate) struct Publication {
    changes: Vec<Change>,
}

impl Publication {
    /// Adds the files of a table.
    pub(crate) fn add(&mut self, table: &str, derivation_id: &str, mut files: Vec<DataFile>) {
        for file in &mut files {
            file.derivation_id = Some(derivation_id.to_owned());
        }
        if !files.is_empty() {
            self.changes.push(Change { table: table.to_owned(), add: files, remove: Vec::new() });
        }
    }

    /// Writes the derivation's own row and publishes all files; returns the snapshot that holds them, and warnings.
    pub(crate) async fn publish(
        mut self,
        lake: &Lake,
        recipe: &Recipe,
        bindings: &Bindings,
        derivation: &Derivation,
    ) -> Result<(u64, Vec<String>)> {
        let mut writer = lake.writer(table("derivations")?);
        writer.write(&derivation.batch(recipe, bindings)?).await?;
        self.add("derivations", &derivation.id, writer.finish().await?);
        let mut intent = Intent::append(format!("{} {}", recipe.kind().as_str(), derivation.name));
        intent.derivation_id = Some(derivation.id.clone());
        let head = lake.snapshot().await?;
        match lake.commit(head, intent, &mut self).await? {
            Outcome::Published { n, warnings } => Ok((n, warnings)),
            Outcome::AlreadyIn { n } => Ok((n, Vec::new())),
            Outcome::Nothing => Err(Error::corrupt("a derivation published nothing")),
        }
    }
}

#[async_trait]
impl Prepare for Publication {
    /// New rows under a new id: whatever others wrote meanwhile, they go in as they are.
    async fn changes(&mut self, _: &Snapshot, _: &[Entry]) -> rollbook_lake::Result<Vec<Change>> {
        Ok(self.changes.clone())
    }
}
