//! Drives the importer: resolves, encodes and hands each table's rows to its sort.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, UInt32Array, new_null_array,
};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use datafusion::execution::runtime_env::RuntimeEnv;
use rollbook_import::{ImportOptions, Importer, Item, Items, Reject};
use rollbook_lake::codec::Encoder;
use rollbook_lake::{Lake, Snapshot};
use rollbook_schema::Table;
use tokio::sync::mpsc;

use super::known::Ranges;
use super::resolve::{Resolver, long, number, text, value};
use super::{IngestOptions, Progress, REJECTS_SHOWN, TableCount};
use crate::error::{Error, ErrorKind, Result};
use crate::external_sort::{ExternalSort, sorted_rows, spilling_runtime};

/// Tokens of earlier contexts that the encoder keeps at hand, 128 MB; a small memory limit makes it less.
const CACHED_TOKENS: usize = 32 << 20;

/// The column that keeps the source's order in the sort and never reaches a file.
pub(crate) const ARRIVAL: &str = "__arrival";

/// Everything read: one sort a table, and what was counted on the way.
pub(super) struct Spooled {
    pub(super) sorts: BTreeMap<&'static str, Pending>,
    pub(super) counts: BTreeMap<String, TableCount>,
    pub(super) rejected: u64,
    pub(super) rejects: Vec<Reject>,
    pub(super) notes: Vec<String>,
}

/// A table's rows on their way through the sort.
pub(super) struct Pending {
    pub(super) table: &'static Table,
    pub(super) sort: ExternalSort,
    /// Which runs, steps and groups the rows lie in: only such files of the lake can hold a row already.
    pub(super) ranges: Ranges,
    /// Whether a row's rollout is known neither here nor in the lake.
    pub(super) unresolved: bool,
}

/// Reads the whole source.
#[expect(clippy::too_many_arguments, reason = "the import's own parameters, passed on once")]
pub(super) async fn spool(
    lake: &Lake,
    head: &Snapshot,
    importer: &'static dyn Importer,
    paths: &[PathBuf],
    import_options: &ImportOptions,
    options: &IngestOptions,
    import_id: &str,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Spooled> {
    let items = importer.open(paths, import_options)?;
    let mut received = read_ahead(items);
    let mut spooler = Spooler {
        resolver: Resolver::new(lake, head, import_options.run_id.clone()),
        runtime: spilling_runtime(options.memory_limit, options.spill_dir.as_ref())?,
        sorted_rows: sorted_rows(options.memory_limit),
        strict: options.strict,
        dry_run: options.dry_run,
        import_id: import_id.to_owned(),
        created_at: lake.now_us(),
        encoders: Vec::new(),
        cached_tokens: CACHED_TOKENS.min(options.memory_limit / 16),
        variants: HashMap::new(),
        places: HashMap::new(),
        arrived: 0,
        waiting: Waiting::default(),
        noted: BTreeSet::new(),
        spooled: Spooled {
            sorts: BTreeMap::new(),
            counts: BTreeMap::new(),
            rejected: 0,
            rejects: Vec::new(),
            notes: Vec::new(),
        },
    };
    while let Some(item) = received.recv().await {
        match item? {
            Item::Rows { table, batch } => spooler.rows(table, &batch).await?,
            // Found by its content, a blob is nothing that a reader could see too early.
            Item::Blob { .. } if options.dry_run => {}
            Item::Blob { file, bytes } => {
                lake.put_blob(bytes).await.map_err(|error| Error::from(error).with("file", file))?;
            }
            Item::Reject(reject) => spooler.reject(reject).await?,
            Item::Note(note) => spooler.note(note),
            Item::Progress { bytes_done, bytes_total } => {
                progress(Progress::Reading { done: bytes_done, total: bytes_total });
            }
        }
    }
    spooler.settle_waiting().await?;
    Ok(spooler.spooled)
}

/// Runs the importer on a thread of its own, so that parsing and encoding overlap.
fn read_ahead(items: Items) -> mpsc::Receiver<rollbook_import::Result<Item>> {
    let (sender, receiver) = mpsc::channel(4);
    drop(tokio::task::spawn_blocking(move || {
        for item in items {
            // The receiver is gone when the import failed: nothing is left to read for.
            if sender.blocking_send(item).is_err() {
                break;
            }
        }
    }));
    receiver
}

struct Spooler<'a> {
    resolver: Resolver<'a>,
    runtime: Arc<RuntimeEnv>,
    /// Rows of a sorted batch. Few, since one row of a call may carry a prompt of 100k tokens.
    sorted_rows: usize,
    strict: bool,
    dry_run: bool,
    import_id: String,
    created_at: i64,
    /// One encoder for each way in which a rollout's rows name their step and group: see [`Spooler::encode`].
    encoders: Vec<Encoder>,
    cached_tokens: usize,
    variants: HashMap<(String, Option<String>), Vec<u32>>,
    places: HashMap<(Option<i64>, Option<String>), u32>,
    arrived: i64,
    waiting: Waiting,
    noted: BTreeSet<String>,
    spooled: Spooled,
}

impl Spooler<'_> {
    async fn rows(&mut self, table: &'static Table, batch: &RecordBatch) -> Result<()> {
        let split = self.resolver.runs(batch, None)?;
        if let Some(waiting) = split.waiting {
            self.waiting.put(table, &waiting)?;
        }
        match split.ready {
            Some(ready) => self.ready(table, ready).await,
            None => Ok(()),
        }
    }

    async fn ready(&mut self, table: &'static Table, batch: RecordBatch) -> Result<()> {
        self.resolver.observe(table, &batch);
        self.spooled.counts.entry(table.name.clone()).or_default().read += batch.num_rows() as u64;
        if self.dry_run {
            return Ok(());
        }
        let (batch, unresolved) = self.resolver.places(table, batch).await?;
        let batch = self.stamp(table, &batch)?;
        if table.name == "calls" {
            for part in self.encode(&batch)? {
                self.push(table, part, unresolved).await?;
            }
            return Ok(());
        }
        self.push(table, conform(&batch, &table.physical())?, unresolved).await
    }

    /// Fills what every row of an import shares.
    fn stamp(&self, table: &Table, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let mut columns = Vec::with_capacity(batch.num_columns() + 2);
        let mut fields = Vec::with_capacity(batch.num_columns() + 2);
        for field in table.logical().fields() {
            let column: ArrayRef = match field.name().as_str() {
                "import_id" => Arc::new(StringArray::from(vec![self.import_id.as_str(); rows])),
                "created_at" => {
                    let times = TimestampMicrosecondArray::from(vec![self.created_at; rows]);
                    Arc::new(times.with_timezone("UTC"))
                }
                name => match batch.column_by_name(name) {
                    Some(column) => Arc::clone(column),
                    None => new_null_array(field.data_type(), rows),
                },
            };
            fields.push(Arc::new(field.as_ref().clone().with_nullable(true)));
            columns.push(column);
        }
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
    }

    /// Turns calls into prefix deltas.
    ///
    /// A base must lie beside its row in the file, and the file is sorted by step and group before the rollout. So where
    /// the rows of one rollout name several steps or groups, each such part is encoded as a rollout of its own.
    fn encode(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let (runs, rollouts) = (text(batch, "run_id"), text(batch, "rollout_id"));
        let (steps, groups) = (long(batch, "step"), text(batch, "group_id"));
        let mut rows_of: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for row in 0..batch.num_rows() {
            let place = (number(steps, row), value(groups, row).map(str::to_owned));
            let next = u32::try_from(self.places.len()).map_err(too_many)?;
            let place = *self.places.entry(place).or_insert(next);
            let key = (value(runs, row).unwrap_or_default().to_owned(), value(rollouts, row).map(str::to_owned));
            let seen = self.variants.entry(key).or_default();
            let variant = seen.iter().position(|known| *known == place).unwrap_or_else(|| {
                seen.push(place);
                seen.len() - 1
            });
            rows_of.entry(variant).or_default().push(u32::try_from(row).map_err(too_many)?);
        }
        let whole = rows_of.len() == 1;
        let mut parts = Vec::with_capacity(rows_of.len());
        for (variant, rows) in rows_of {
            while self.encoders.len() <= variant {
                self.encoders.push(Encoder::new(self.cached_tokens));
            }
            let part = if whole { batch.clone() } else { take_record_batch(batch, &UInt32Array::from(rows))? };
            parts.push(self.encoders[variant].encode(&part)?);
        }
        Ok(parts)
    }

    async fn push(&mut self, table: &'static Table, batch: RecordBatch, unresolved: bool) -> Result<()> {
        let batch = self.number(&batch)?;
        if !self.spooled.sorts.contains_key(table.name.as_str()) {
            let mut columns = rollbook_lake::sort_columns(table);
            columns.retain(|name| *name != "stored_index");
            columns.push(ARRIVAL);
            let sort = ExternalSort::start(&batch.schema(), &columns, self.sorted_rows, &self.runtime)?;
            let pending = Pending { table, sort, ranges: Ranges::default(), unresolved: false };
            self.spooled.sorts.insert(&table.name, pending);
        }
        if let Some(pending) = self.spooled.sorts.get_mut(table.name.as_str()) {
            pending.ranges.add(&batch);
            pending.unresolved |= unresolved;
            if !pending.sort.push(batch).await? {
                // The sort's own error says why it ended.
                return match self.spooled.sorts.remove(table.name.as_str()) {
                    Some(pending) => pending.sort.finish().await.map(|_| ()),
                    None => Ok(()),
                };
            }
        }
        Ok(())
    }

    /// Adds the arrival column.
    fn number(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = i64::try_from(batch.num_rows()).map_err(too_many)?;
        let arrival: ArrayRef = Arc::new(Int64Array::from_iter_values(self.arrived..self.arrived + rows));
        self.arrived += rows;
        let mut fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(ARRIVAL, DataType::Int64, false)));
        let mut columns = batch.columns().to_vec();
        columns.push(arrival);
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
    }

    async fn reject(&mut self, reject: Reject) -> Result<()> {
        if self.strict {
            return Err(rejected(&reject));
        }
        self.spooled.rejected += 1;
        if !self.dry_run
            && let Some(table) = rollbook_schema::table("rejects")
        {
            let batch = self.stamp(table, &super::record::reject_row(table, &reject)?)?;
            self.push(table, conform(&batch, &table.physical())?, false).await?;
        }
        if self.spooled.rejects.len() < REJECTS_SHOWN {
            self.spooled.rejects.push(reject);
        }
        Ok(())
    }

    fn note(&mut self, note: String) {
        if self.noted.insert(note.clone()) {
            self.spooled.notes.push(note);
        }
    }

    /// Gives the rows without a run what only the whole source can tell, or rejects them.
    async fn settle_waiting(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let parts = waiting.tables();
        if parts.is_empty() {
            return Ok(());
        }
        let only = self.resolver.only_run();
        for (table, file) in parts {
            for batch in StreamReader::try_new(file, None)? {
                let split = self.resolver.runs(&batch?, only.as_deref())?;
                if let Some(batch) = split.ready {
                    self.ready(table, batch).await?;
                }
                if let Some(batch) = split.waiting {
                    self.reject_runless(table, &batch).await?;
                }
            }
        }
        Ok(())
    }

    async fn reject_runless(&mut self, table: &Table, batch: &RecordBatch) -> Result<()> {
        let key = table.key.iter().map(String::as_str).find(|name| *name != "run_id");
        for row in 0..batch.num_rows() {
            let raw = key.and_then(|name| Some(format!("{name} {}", value(text(batch, name), row)?)));
            self.reject(Reject {
                file: format!("{}.*", table.name),
                line: None,
                field: Some(format!("{}.run_id", table.name)),
                reason:
                    "no run: the row names none, and neither its rollout, its build nor a single run of the source \
                         or the lake tells; give --run"
                        .to_owned(),
                raw,
            })
            .await?;
        }
        Ok(())
    }
}

/// The error that a reject becomes under `strict`.
fn rejected(reject: &Reject) -> Error {
    let mut error = Error::invalid(reject.reason.clone()).with("file", &reject.file);
    if let Some(line) = reject.line {
        error = error.with("line", line);
    }
    match &reject.field {
        Some(field) => error.with("field", field),
        None => error,
    }
}

fn too_many(error: std::num::TryFromIntError) -> Error {
    Error::new(ErrorKind::Unsupported, format!("too many rows for one import: {error}"))
}

/// Brings a batch to a table's stored schema: a null where none may be is an error, not a guess.
pub(crate) fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = schema
        .fields()
        .iter()
        .map(|field| match batch.column_by_name(field.name()) {
            Some(column) => Arc::clone(column),
            None => new_null_array(field.data_type(), batch.num_rows()),
        })
        .collect();
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// Rows whose run is not known yet, kept on disk: they may be the whole source.
#[derive(Default)]
struct Waiting {
    parts: BTreeMap<&'static str, (&'static Table, StreamWriter<File>)>,
}

impl Waiting {
    fn put(&mut self, table: &'static Table, batch: &RecordBatch) -> Result<()> {
        if !self.parts.contains_key(table.name.as_str()) {
            let file = tempfile::tempfile().map_err(|error| no_spool(&error))?;
            let writer = StreamWriter::try_new(file, &batch.schema())?;
            self.parts.insert(&table.name, (table, writer));
        }
        if let Some((_, writer)) = self.parts.get_mut(table.name.as_str()) {
            writer.write(batch)?;
        }
        Ok(())
    }

    /// The tables in schema order, so that rollouts are known before their calls.
    fn tables(self) -> Vec<(&'static Table, File)> {
        use std::io::Seek;
        let mut parts = self.parts;
        let mut found = Vec::new();
        for table in rollbook_schema::tables() {
            let Some((table, mut writer)) = parts.remove(table.name.as_str()) else {
                continue;
            };
            let file = writer.finish().and_then(|()| writer.into_inner());
            if let Ok(mut file) = file
                && file.rewind().is_ok()
            {
                found.push((table, file));
            }
        }
        found
    }
}

fn no_spool(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("no temporary file for rows that wait for their run: {error}"))
}
