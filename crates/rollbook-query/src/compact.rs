//! Compaction: the small files of a run become few, a rollout's rows come together, and what waited for its rollout is
//! filled.
//!
//! ```text
//! files of a run that are small, unsorted or unresolved
//!   -> step and group_id filled from the rollouts
//!   -> sort            by run, step, group, rollout, then as the files had them; spills beyond the memory limit
//!   -> calls: re-base  a rollout's rows from several files share their prompts again
//!   -> files           uploaded, then one entry puts them in the place of the old ones
//! ```
//!
//! No logical row changes. The old files stay where they are for snapshots before this one.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use futures::TryStreamExt;
use rollbook_lake::codec::{needs_rebase, rebase_rollout};
use rollbook_lake::{Change, DataFile, Entry, Intent, Lake, Outcome, Prepare, Snapshot, sort_columns};
use rollbook_schema::Table;

use crate::error::{Error, Result};
use crate::external_sort::{ExternalSort, sorted_rows, spilling_runtime};
use crate::ingest::files;
use crate::ingest::resolve::Resolver;
use crate::ingest::rollout_rows::RolloutRows;
use crate::ingest::spool::{ARRIVAL, conform};
use crate::row_digest::row_digests;

/// A file below this is joined with others.
const SMALL_BYTES: u64 = 128 << 20;

/// Rows read from a file at a time; they may carry long prompts.
const READ_ROWS: usize = 256;

/// Tables whose newest row wins: equal times would be told apart by the entry, which joining files forgets.
const NEWEST_WINS: [&str; 3] = ["scores", "rewards", "credits"];

/// What to compact.
#[derive(Debug, Clone)]
pub struct CompactOptions {
    /// Run to which it is restricted; none = all runs, and the tables that hold no run.
    pub run: Option<String>,
    /// Bytes that the sort may hold before it spills.
    pub memory_limit: usize,
    /// Where it spills; none = the system's temporary folder.
    pub spill_dir: Option<PathBuf>,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self { run: None, memory_limit: 512 << 20, spill_dir: None }
    }
}

/// What became of one table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableCompaction {
    /// Files that were joined.
    pub files_before: u64,
    /// Files that stand in their place.
    pub files_after: u64,
    /// Bytes of the old files.
    pub bytes_before: u64,
    /// Bytes of the new ones.
    pub bytes_after: u64,
    /// Rows of either.
    pub rows: u64,
}

/// What a compaction did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactReport {
    /// Snapshot that shows it; none where there was nothing to do.
    pub snapshot: Option<u64>,
    /// Tables of which files were joined.
    pub tables: BTreeMap<String, TableCompaction>,
    /// Tables left as they are, with the reason.
    pub notes: Vec<String>,
}

/// Joins small files, as one rewrite.
///
/// # Errors
///
/// A store that does not answer; `Conflict` where another rewrite was faster with the same files.
pub async fn compact(lake: &Lake, options: &CompactOptions) -> Result<CompactReport> {
    let head = lake.snapshot().await?;
    let mut report = CompactReport::default();
    let mut changes = Vec::new();
    for table in rollbook_schema::tables() {
        let mut change = Change { table: table.name.clone(), ..Change::default() };
        for files in candidates(&head, table, options.run.as_deref()) {
            if let Some(reason) = reason_to_leave(lake, table, &files).await? {
                report.notes.push(format!("{}: {reason}", table.name));
                continue;
            }
            let joined = join(lake, &head, table, &files, options).await?;
            report.tables.entry(table.name.clone()).or_default().add(&files, &joined);
            change.add.extend(joined);
            change.remove.extend(files);
        }
        if !change.remove.is_empty() {
            changes.push(change);
        }
    }
    match lake.commit(head, Intent::rewrite("compact"), &mut Ready(changes)).await? {
        Outcome::Published { n, warnings } => {
            report.snapshot = Some(n);
            report.notes.extend(warnings);
        }
        Outcome::AlreadyIn { .. } | Outcome::Nothing => {}
    }
    Ok(report)
}

impl TableCompaction {
    fn add(&mut self, before: &[Arc<DataFile>], after: &[DataFile]) {
        self.files_before += before.len() as u64;
        self.files_after += after.len() as u64;
        self.bytes_before += before.iter().map(|file| file.size).sum::<u64>();
        self.bytes_after += after.iter().map(|file| file.size).sum::<u64>();
        self.rows += before.iter().map(|file| file.rows).sum::<u64>();
    }
}

/// The files worth joining, a list for each run.
fn candidates(head: &Snapshot, table: &Table, run: Option<&str>) -> Vec<Vec<Arc<DataFile>>> {
    let mut by_run: BTreeMap<Option<&str>, Vec<Arc<DataFile>>> = BTreeMap::new();
    for file in &head.table(&table.name).files {
        let of = match &file.run_id {
            Some((least, greatest)) if least == greatest => Some(least.as_str()),
            // A file of several runs would be cut, not joined.
            Some(_) => continue,
            None => None,
        };
        let is_wanted = run.is_none_or(|run| of == Some(run));
        if is_wanted && (file.size < SMALL_BYTES || file.unresolved || !file.sorted) {
            by_run.entry(of).or_default().push(Arc::clone(file));
        }
    }
    let is_worth_it = |files: &Vec<Arc<DataFile>>| {
        files.len() > 1 || files.iter().any(|file| file.unresolved || (!file.sorted && file.run_id.is_some()))
    };
    by_run.into_values().filter(is_worth_it).collect()
}

/// Why files must stay apart: views tell equal rows of several entries apart by the entry, which belongs to the file.
async fn reason_to_leave(lake: &Lake, table: &Table, files: &[Arc<DataFile>]) -> Result<Option<&'static str>> {
    let (columns, reason): (Vec<&str>, _) = if NEWEST_WINS.contains(&table.name.as_str()) {
        (vec!["created_at"], "left as it is: rows of several snapshots were made in the same microsecond")
    } else if table.keyed {
        let key = table.key.iter().map(String::as_str).chain(["revision"]);
        (key.collect(), "left as it is: a key has the same revision in several snapshots")
    } else {
        return Ok(None);
    };
    let mut entry_of = HashMap::new();
    for file in files {
        for batch in files::read(lake, file, &columns).await? {
            for row in row_digests(&batch, &columns)? {
                if *entry_of.entry(row).or_insert(file.snapshot) != file.snapshot {
                    return Ok(Some(reason));
                }
            }
        }
    }
    Ok(None)
}

/// Writes the rows of several files as if one import had brought them.
async fn join(
    lake: &Lake,
    head: &Snapshot,
    table: &'static Table,
    files: &[Arc<DataFile>],
    options: &CompactOptions,
) -> Result<Vec<DataFile>> {
    let physical = table.physical();
    let mut fields: Vec<_> = physical.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(ARRIVAL, DataType::Int64, false)));
    let schema = Arc::new(Schema::new(fields));
    let mut columns = sort_columns(table);
    columns.retain(|name| *name != "stored_index");
    columns.push(ARRIVAL);
    let runtime = spilling_runtime(options.memory_limit, options.spill_dir.as_ref())?;
    let sort = ExternalSort::start(&schema, &columns, sorted_rows(options.memory_limit), &runtime)?;
    let mut resolver = Resolver::new(lake, head, None);
    let (mut arrived, mut is_unresolved) = (0_i64, false);
    'files: for file in files {
        let mut rows = files::stream(lake, file, None, READ_ROWS).await?;
        while let Some(batch) = rows.try_next().await? {
            let batch = conform(&batch, &physical)?;
            let batch = if file.unresolved {
                let (batch, unknown) = resolver.places(table, batch).await?;
                is_unresolved |= unknown;
                batch
            } else {
                batch
            };
            let next = arrived + i64::try_from(batch.num_rows()).unwrap_or(i64::MAX);
            let arrival: ArrayRef = Arc::new(Int64Array::from_iter_values(arrived..next));
            arrived = next;
            let numbered = batch.columns().iter().cloned().chain([arrival]).collect();
            if !sort.push(RecordBatch::try_new(Arc::clone(&schema), numbered)?).await? {
                break 'files;
            }
        }
    }
    let mut sorted = sort.finish().await?;
    let mut writer = lake.writer(table);
    let mut rollout = RolloutRows::default();
    while let Some(batch) = sorted.try_next().await? {
        let batch = conform(&batch, &physical)?;
        if table.name == "calls" {
            for rows in rollout.take(&batch) {
                writer.write(&rebased(&rows)?).await?;
            }
        } else {
            writer.write(&batch).await?;
        }
    }
    let last = rollout.finish();
    if !last.is_empty() {
        writer.write(&rebased(&last)?).await?;
    }
    let mut joined = writer.finish().await?;
    for file in &mut joined {
        file.unresolved = is_unresolved;
    }
    let [before, after] =
        [files.iter().map(|file| file.rows).sum::<u64>(), joined.iter().map(|file| file.rows).sum::<u64>()];
    if before != after {
        return Err(
            Error::corrupt(format!("compaction read {before} rows and wrote {after}")).with("table", &table.name)
        );
    }
    Ok(joined)
}

/// One rollout's rows, in one epoch.
fn rebased(rows: &[RecordBatch]) -> Result<RecordBatch> {
    if needs_rebase(rows)? {
        return Ok(rebase_rollout(rows)?);
    }
    let schema = rows.first().map(RecordBatch::schema).ok_or_else(|| Error::corrupt("a rollout without rows"))?;
    Ok(arrow::compute::concat_batches(&schema, rows)?)
}

/// Changes that no winner of a race can alter: the commit refuses them where an input is gone.
struct Ready(Vec<Change>);

#[async_trait::async_trait]
impl Prepare for Ready {
    async fn changes(&mut self, _head: &Snapshot, _won: &[Entry]) -> rollbook_lake::Result<Vec<Change>> {
        Ok(self.0.clone())
    }
}
