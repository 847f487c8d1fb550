//! One table of the lake at a snapshot.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::TableType;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use rollbook_lake::DataFile;
use rollbook_schema::Table;

use super::fill;
use super::prune::matching;
use super::scan::Scan;
use super::within;

/// Hidden column: the snapshot entry that brought a row in. Views order by it; it is in no schema that users see.
pub(crate) const ENTRY: &str = "_entry";

/// Hidden column of every scan: the number of a row's file among those of the scan. In no schema that users see.
pub(crate) const FILE: &str = "_file";

/// Columns that are rebuilt on reading, at a price.
pub(super) const PROMPT: &str = "prompt_token_ids";
pub(super) const REQUEST: &str = "request";

/// Text columns that may be long although they hold no JSON.
const LONG_TEXTS: [&str; 5] = ["output_text", "content", "recipe", "raw", "counts"];

/// All rows of a table at a snapshot, whatever their revision.
#[derive(Debug, Clone)]
pub struct LakeTable {
    table: &'static Table,
    files: Vec<Arc<DataFile>>,
    store: ObjectStoreUrl,
    schema: SchemaRef,
    with_entry: bool,
    /// What holds for every row that is read.
    within: Option<Expr>,
}

impl LakeTable {
    /// Creates the table over the files of a snapshot.
    pub(crate) fn new(table: &'static Table, files: &[Arc<DataFile>], store: ObjectStoreUrl) -> Self {
        Self { table, files: files.to_vec(), store, schema: table.logical(), with_entry: false, within: None }
    }

    /// Adds the hidden column [`ENTRY`].
    pub(crate) fn with_entry(self) -> Self {
        let mut fields: Vec<Arc<Field>> = self.table.logical().fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(ENTRY, DataType::Int64, false)));
        Self { schema: Arc::new(Schema::new(fields)), with_entry: true, ..self }
    }

    /// Reads the rows alone for which a condition holds.
    pub(crate) fn within(self, condition: Option<Expr>) -> Self {
        Self { within: condition, ..self }
    }

    /// Returns the files.
    pub fn files(&self) -> &[Arc<DataFile>] {
        &self.files
    }

    /// Returns the definition of the table.
    pub fn definition(&self) -> &'static Table {
        self.table
    }

    /// Whether a column's values may be long: lists, JSON, prompts and requests, or texts of calls and records.
    pub fn is_wide(&self, column: &str) -> bool {
        self.rebuilds(column)
            || LONG_TEXTS.contains(&column)
            || self.table.column(column).is_some_and(|column| column.is_json || column.field.data_type().is_nested())
    }

    /// Whether a column is rebuilt from what other rows of the rollout hold.
    pub fn rebuilds(&self, column: &str) -> bool {
        self.table.name == "calls" && [PROMPT, REQUEST].contains(&column)
    }

    pub(super) fn with_files(&self, files: Vec<Arc<DataFile>>) -> Self {
        Self { files, ..self.clone() }
    }

    pub(super) fn store(&self) -> &ObjectStoreUrl {
        &self.store
    }

    pub(super) fn has_entry(&self) -> bool {
        self.with_entry
    }

    /// Estimates the bytes that one row of these columns may take, from what the snapshot knows of the files.
    ///
    /// Prompts and outputs are taken at their longest; lists whose length no statistic tells at eight times their
    /// compressed average: twice what lists of tokens and their numbers come to.
    pub(crate) fn row_bytes<'a>(&self, columns: impl IntoIterator<Item = &'a str>) -> u64 {
        let columns: Vec<&str> = columns.into_iter().collect();
        let prompts = columns.iter().filter(|name| [PROMPT, REQUEST].contains(name) && self.rebuilds(name)).count();
        let lists = columns.iter().filter(|name| self.is_list(name)).count();
        let mut widest = 0;
        for file in &self.files {
            let prompt = 4 * u64::try_from(file.max_prompt_len.unwrap_or(0)).unwrap_or(0);
            let average = file.size.checked_div(file.rows).unwrap_or(0);
            let mut bytes = prompt * u64::try_from(prompts).unwrap_or(0);
            if lists > 0 {
                bytes += 8 * average;
            }
            widest = widest.max(bytes);
        }
        widest
    }

    /// Scans with step and group as they are stored.
    pub(super) async fn scan_stored(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = self.names(projection);
        let files = matching(&self.files, filters, &self.schema, state)?;
        let scan = Scan { table: self, files, columns, filters, limit: limit.filter(|_| filters.is_empty()) };
        if scan.columns.iter().any(|name| self.rebuilds(name)) { scan.decoded(state).await } else { scan.plain(state) }
    }

    fn names(&self, projection: Option<&Vec<usize>>) -> Vec<String> {
        match projection {
            Some(indices) => indices.iter().map(|index| self.schema.field(*index).name().clone()).collect(),
            None => self.schema.fields().iter().map(|field| field.name().clone()).collect(),
        }
    }

    fn is_list(&self, column: &str) -> bool {
        column != PROMPT
            && self.table.column(column).is_some_and(|column| matches!(column.field.data_type(), DataType::List(_)))
    }
}

#[async_trait]
impl TableProvider for LakeTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // Files and row groups are left out by what the filter says; the physical filter pushdown takes the rest.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(within) = &self.within {
            return within::scan(&self.clone().within(None), within, state, projection, filters).await;
        }
        let columns = self.names(projection);
        let touches_keys = columns.iter().any(|name| fill::filled_columns(self.table).contains(&name.as_str()));
        if touches_keys && self.files.iter().any(|file| file.unresolved) {
            let files = matching(&self.files, filters, &self.schema, state)?;
            if files.iter().any(|file| file.unresolved) {
                return fill::scan(&self.with_files(files), state, &columns, filters).await;
            }
        }
        self.scan_stored(state, projection, filters, limit).await
    }
}
