//! Finds rows that the lake holds already, reading only files whose run, step and group ranges can hold them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, NullArray, RecordBatch};
use futures::TryStreamExt;
use rollbook_lake::{DataFile, Lake};
use rollbook_schema::Table;

use super::files;
use super::resolve::{is_filled, long, number, text, value};
use crate::error::Result;
use crate::row_digest::row_digests;

type Short = [u8; 16];

/// Where incoming rows lie: for each run the least and greatest step and group, none where a row has none.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranges {
    runs: BTreeMap<Option<String>, Range>,
}

#[derive(Debug, Clone, Default)]
struct Range {
    step: Option<(i64, i64)>,
    group: Option<(String, String)>,
    any_step: bool,
    any_group: bool,
}

impl Ranges {
    /// Takes a batch's rows in.
    pub(super) fn add(&mut self, batch: &RecordBatch) {
        let (runs, groups, steps) = (text(batch, "run_id"), text(batch, "group_id"), long(batch, "step"));
        for row in 0..batch.num_rows() {
            let run = value(runs, row);
            // Rows of one run come together: the owned key is made once a run, not once a row.
            if !self.runs.keys().any(|known| known.as_deref() == run) {
                self.runs.insert(run.map(str::to_owned), Range::default());
            }
            for (_, range) in self.runs.iter_mut().filter(|(known, _)| known.as_deref() == run) {
                range.add(number(steps, row), value(groups, row));
            }
        }
    }

    /// Whether a file of the lake may hold one of the rows.
    fn touch(&self, file: &DataFile) -> bool {
        self.runs
            .iter()
            .any(|(run, range)| run.as_deref().is_none_or(|run| files::may_hold_run(file, run)) && range.touches(file))
    }
}

impl Range {
    fn add(&mut self, step: Option<i64>, group: Option<&str>) {
        match step {
            None => self.any_step = true,
            Some(step) => {
                let (least, greatest) = self.step.unwrap_or((step, step));
                self.step = Some((least.min(step), greatest.max(step)));
            }
        }
        match (group, &mut self.group) {
            (None, _) => self.any_group = true,
            (Some(group), None) => self.group = Some((group.to_owned(), group.to_owned())),
            (Some(group), Some((least, greatest))) => {
                if group < least.as_str() {
                    group.clone_into(least);
                } else if group > greatest.as_str() {
                    group.clone_into(greatest);
                }
            }
        }
    }

    fn touches(&self, file: &DataFile) -> bool {
        let step = self.any_step
            || file.step_nulls > 0
            || match (self.step, file.step) {
                (Some((least, greatest)), Some((low, high))) => least <= high && low <= greatest,
                _ => true,
            };
        let group = self.any_group
            || file.group_nulls > 0
            || match (&self.group, &file.group_id) {
                (Some((least, greatest)), Some((low, high))) => least <= high && low <= greatest,
                _ => true,
            };
        step && group
    }
}

/// The columns that say whether two rows are the same record.
pub(super) struct Identity {
    table: &'static Table,
    key: Vec<&'static str>,
    content: Vec<&'static str>,
}

impl Identity {
    /// Reads a table's key from the schema; a table without one is known by all its content.
    pub(super) fn of(table: &'static Table) -> Self {
        let content: Vec<&'static str> = table
            .columns
            .iter()
            .map(|column| column.field.name().as_str())
            .filter(|name| is_content(table, name))
            .collect();
        let key = if table.key.is_empty() { content.clone() } else { table.key.iter().map(String::as_str).collect() };
        Self { table, key, content }
    }

    /// The digests of each row's key and content: of a keyed row column by column, else of all columns at once.
    pub(super) fn digests(&self, batch: &RecordBatch) -> Result<Vec<(Short, Vec<Short>)>> {
        let keys = row_digests(batch, &self.key)?;
        let columns = if self.table.keyed {
            self.content.iter().map(|column| row_digests(batch, &[*column])).collect::<Result<Vec<_>>>()?
        } else {
            vec![row_digests(batch, &self.content)?]
        };
        let content = |row: usize| columns.iter().map(|digests| short(&digests[row])).collect();
        Ok(keys.iter().enumerate().map(|(row, key)| (short(key), content(row))).collect())
    }

    fn columns(&self) -> Vec<&'static str> {
        let mut columns = self.content.clone();
        columns.extend(self.key.iter().filter(|name| !self.content.contains(name)));
        if self.table.keyed {
            columns.push("revision");
        }
        columns
    }
}

/// Whether a column is part of what a record says, and not of how or when it was stored.
fn is_content(table: &Table, name: &str) -> bool {
    let stored = ["import_id", "created_at", "revision"].contains(&name);
    let placed = is_filled(&table.name) && ["step", "group_id"].contains(&name);
    // Of a call, the digests stand for the prompt and the request, whose stored form depends on the file.
    let encoded = table.name == "calls"
        && [
            "stored_index",
            "base_index",
            "base_len",
            "prompt_suffix",
            "prompt_token_ids",
            "messages_base_len",
            "messages_suffix",
            "request",
            "parent_prefix_len",
        ]
        .contains(&name);
    !(stored || placed || encoded)
}

fn short(digest: &[u8; 32]) -> Short {
    let mut short = [0; 16];
    short.copy_from_slice(&digest[..16]);
    short
}

/// The digest of a column that is null.
fn null_digest() -> Result<Short> {
    let batch = RecordBatch::try_from_iter([("null", Arc::new(NullArray::new(1)) as ArrayRef)])?;
    Ok(row_digests(&batch, &["null"])?.first().map(short).unwrap_or_default())
}

#[derive(Debug, Default)]
struct Seen {
    contents: Vec<Vec<Short>>,
    revision: i64,
}

impl Seen {
    /// Whether a row adds nothing: an equal one is there, or, for a keyed row, one revision says all that it says.
    fn covers(&self, content: &[Short], null: Short) -> bool {
        self.contents
            .iter()
            .any(|seen| seen.iter().zip(content).all(|(seen, new)| seen == new || (content.len() > 1 && *new == null)))
    }
}

/// What the lake holds in the files that incoming rows could repeat.
#[derive(Debug, Default)]
pub(super) struct Known {
    rows: HashMap<Short, Seen>,
    null: Short,
}

/// What to do with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The lake holds it: leave it out.
    Known,
    /// Write it, in a keyed table with this revision.
    New(i64),
}

impl Known {
    /// Reads the files among `files` that may hold rows in the ranges.
    pub(super) async fn load(
        lake: &Lake,
        identity: &Identity,
        files: &[Arc<DataFile>],
        ranges: &Ranges,
    ) -> Result<Self> {
        let mut known = Self { rows: HashMap::new(), null: null_digest()? };
        // A reject belongs to its import: the same fault in two sources is two rejects.
        if identity.table.name == "rejects" {
            return Ok(known);
        }
        let columns = identity.columns();
        for file in files.iter().filter(|file| ranges.touch(file)) {
            let mut stream = files::stream(lake, file, Some(&columns), 1024).await?;
            while let Some(batch) = stream.try_next().await? {
                let revisions = long(&batch, "revision");
                for (row, (key, content)) in identity.digests(&batch)?.into_iter().enumerate() {
                    known.see(identity, key, content, number(revisions, row).unwrap_or(1));
                }
            }
        }
        Ok(known)
    }

    fn see(&mut self, identity: &Identity, key: Short, content: Vec<Short>, revision: i64) {
        let seen = self.rows.entry(key).or_default();
        seen.contents.push(content);
        if identity.table.keyed {
            seen.revision = seen.revision.max(revision);
        }
    }

    /// Whether nothing can be known already.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Judges a row of the import; rows of the same import never make each other known.
    pub(super) fn judge(&self, key: Short, content: &[Short]) -> Verdict {
        match self.rows.get(&key) {
            Some(seen) if seen.covers(content, self.null) => Verdict::Known,
            Some(seen) => Verdict::New(seen.revision + 1),
            None => Verdict::New(1),
        }
    }
}
