//! `<table>.jsonl`: one row a line.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

use rollbook_schema::Table;

use crate::error::{Error, ErrorKind, Result};
use crate::importer::Item;
use crate::json::{Cursor, Fault, Parse};
use crate::row::{RowBatch, is_ours, merge_extra};
use crate::stream::LineFormat;

use super::rules;

/// Reads lines of one table.
pub(crate) struct TableLines {
    rows: RowBatch,
    run_id: Option<String>,
    named: BTreeSet<String>,
    notes: Vec<String>,
}

impl TableLines {
    pub(crate) fn new(table: &'static Table, run_id: Option<&str>) -> Self {
        let run_id = run_id.filter(|_| table.column("run_id").is_some()).map(str::to_owned);
        Self { rows: RowBatch::new(table), run_id, named: BTreeSet::new(), notes: Vec::new() }
    }

    fn row(&mut self, text: &str) -> Parse<()> {
        let mut unknown: Vec<(Cow<'_, str>, &str)> = Vec::new();
        let mut cursor = Cursor::new(text);
        if cursor.peek() != Some(b'{') {
            return Err(Fault::new("a line that is no JSON object"));
        }
        let rows = &mut self.rows;
        let table = rows.table();
        cursor.object(|cursor, key| {
            if is_ours(table, &key) {
                return cursor.skip().map(drop).map_err(|fault| fault.at_key(&key));
            }
            if let Some(at) = rows.find(&key) {
                return rows.read(at, cursor).map_err(|fault| fault.at_key(&key));
            }
            if unknown.iter().any(|(known, _)| *known == key) {
                return Err(Fault::new("the key stands twice").at_key(&key));
            }
            let value = cursor.skip().map_err(|fault| fault.at_key(&key))?;
            unknown.push((key, value));
            Ok(())
        })?;
        cursor.end()?;
        if let Some(column) = rules::required(table).filter(|column| !rows.is_given(column)) {
            return Err(Fault::new("missing, and required").at_key(column));
        }
        self.defaults()?;
        self.extra(&unknown)
    }

    fn defaults(&mut self) -> Parse<()> {
        if rules::has_provenance(self.rows.table()) {
            for (column, of) in rules::PROVENANCE {
                let value = if self.rows.is_given(of) { "assumed" } else { "absent" };
                self.rows.default_text(column, value)?;
            }
        }
        match &self.run_id {
            Some(run_id) => self.rows.default_text("run_id", run_id),
            None => Ok(()),
        }
    }

    fn extra(&mut self, unknown: &[(Cow<'_, str>, &str)]) -> Parse<()> {
        if unknown.is_empty() {
            return Ok(());
        }
        let table = self.rows.table();
        let is_kept = rules::keeps_extra(table);
        for (key, _) in unknown {
            if self.named.len() < rules::NAMED_COLUMNS && !self.named.contains(key.as_ref()) {
                self.named.insert(key.clone().into_owned());
                self.notes.push(rules::unknown_column(table, key, is_kept));
            }
        }
        if !is_kept {
            return Ok(());
        }
        let given = self.rows.text("extra").map(str::to_owned);
        let text = merge_extra(given.as_deref(), unknown)?;
        self.rows.column("extra")?.push_text(&text)
    }
}

impl LineFormat for TableLines {
    fn line(&mut self, text: &str) -> Parse<()> {
        let read = self.row(text);
        match &read {
            Ok(()) => self.rows.commit(text.len()),
            Err(_) => self.rows.roll_back(),
        }
        read
    }

    fn is_full(&self) -> bool {
        self.rows.is_full()
    }

    fn flush(&mut self, queue: &mut VecDeque<Item>) -> Result<()> {
        queue.extend(self.notes.drain(..).map(Item::Note));
        if self.rows.rows() == 0 {
            return Ok(());
        }
        let table = self.rows.table();
        let batch = self.rows.finish().map_err(|source| {
            Error::new(ErrorKind::Corrupt, "rows that make no batch").with("table", &table.name).because(source)
        })?;
        queue.push_back(Item::Rows { table, batch });
        Ok(())
    }

    fn prefix(&self) -> &str {
        &self.rows.table().name
    }
}
