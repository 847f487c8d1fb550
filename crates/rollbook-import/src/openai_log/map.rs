//! From a log line to rows of `runs`, `rollouts` and `calls`.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet, VecDeque};

use rollbook_schema::Table;

use crate::error::{Error, ErrorKind, Result};
use crate::importer::Item;
use crate::json::Parse;
use crate::row::RowBatch;
use crate::stream::LineFormat;

use super::call::read_into;
use super::choices::{Identity, Parent, Several, identity, selected};
use super::keys;
use super::request::{self, Request};
use super::response;
use super::wire::{self, Choice, Exchange, Response};

/// Reads lines of a log.
pub(super) struct LogLines {
    pub(super) runs: RowBatch,
    pub(super) rollouts: RowBatch,
    pub(super) calls: RowBatch,
    pub(super) run_id: Option<String>,
    pub(super) several: Several,
    pub(super) seen_runs: HashSet<u128>,
    pub(super) seen_rollouts: HashSet<u128>,
    pub(super) named: BTreeSet<String>,
    pub(super) notes: Vec<String>,
    pub(super) mismatched: u64,
}

/// One line, read.
pub(super) struct Read<'a> {
    pub(super) exchange: &'a Exchange<'a>,
    pub(super) request: Request,
    pub(super) response: Response,
    pub(super) identity: Identity,
    pub(super) selected: Option<i64>,
    /// The parent's id as it is stored, and where it could not be resolved the plain one.
    pub(super) parent: (Option<String>, Option<String>),
    pub(super) bytes: usize,
}

fn table(name: &'static str) -> Result<&'static Table> {
    rollbook_schema::table(name)
        .ok_or_else(|| Error::new(ErrorKind::Unsupported, "the schema lacks a table").with("table", name))
}

impl LogLines {
    pub(super) fn new(run_id: Option<&str>, several: Several) -> Result<Self> {
        Ok(Self {
            runs: RowBatch::new(table("runs")?),
            rollouts: RowBatch::new(table("rollouts")?),
            calls: RowBatch::new(table("calls")?),
            run_id: run_id.map(str::to_owned),
            several,
            seen_runs: HashSet::new(),
            seen_rollouts: HashSet::new(),
            named: BTreeSet::new(),
            notes: Vec::new(),
            mismatched: 0,
        })
    }

    fn rows(&mut self, text: &str) -> Parse<()> {
        let exchange = wire::exchange(text)?;
        let request = match &exchange.request {
            Some(text) => request::request(text).map_err(|fault| fault.at_key("request"))?,
            None => Request::default(),
        };
        let mut response = match &exchange.response {
            Some(text) => response::response(text).map_err(|fault| fault.at_key("response"))?,
            None => Response::default(),
        };
        if response.choices.is_empty() {
            // A request without an answer is a call nevertheless.
            response.choices.push(Choice::default());
        }
        let identity = identity(&exchange, &response, self.run_id.as_deref(), text)?;
        let selected = selected(&exchange, &response);
        let parent = self.parent(&identity);
        if response.choices.len() > 1 {
            self.several.add(&identity, selected);
        }
        let bytes = text.len();
        let read = Read { exchange: &exchange, request, response, identity, selected, parent, bytes };
        for position in 0..read.response.choices.len() {
            self.call(&read, position)?;
            self.calls.commit(bytes);
        }
        self.rollout(&read)
    }

    fn parent(&self, identity: &Identity) -> (Option<String>, Option<String>) {
        let Some(plain) = &identity.parent else {
            return (None, None);
        };
        match self.several.resolve(identity.run.as_deref(), plain) {
            Parent::Plain => (Some(plain.clone()), None),
            Parent::Choice(index) => (Some(format!("{plain}/{index}")), None),
            Parent::Unknown => (None, Some(plain.clone())),
        }
    }

    /// Adds the rollout and the run of a line when they are new.
    fn rollout(&mut self, read: &Read<'_>) -> Parse<()> {
        let run_id = read.identity.run.as_deref();
        if let Some(run_id) = run_id.filter(|run_id| self.seen_runs.insert(keys::stand_in(None, run_id))) {
            self.runs.column("run_id")?.push_text(run_id)?;
            self.runs.commit(run_id.len());
        }
        let Some(rollout_id) = &read.identity.rollout else {
            return Ok(());
        };
        let key = keys::stand_in(run_id, rollout_id);
        if self.seen_rollouts.contains(&key) {
            return Ok(());
        }
        let is_column = |name: &Cow<'_, str>| keys::ROLLOUTS.contains(&name.as_ref());
        for (name, raw) in read.exchange.metadata.iter().filter(|(name, _)| is_column(name)) {
            read_into(&mut self.rollouts, name, raw).map_err(|fault| fault.at_key("metadata"))?;
        }
        if let Some(run_id) = run_id {
            self.rollouts.default_text("run_id", run_id)?;
        }
        self.rollouts.commit(read.bytes.min(1024));
        self.seen_rollouts.insert(key);
        Ok(())
    }
}

impl LineFormat for LogLines {
    fn line(&mut self, text: &str) -> Parse<()> {
        let marks = (self.calls.rows(), self.rollouts.rows(), self.runs.rows(), self.mismatched);
        let read = self.rows(text);
        if read.is_err() {
            self.calls.roll_back_to(marks.0);
            self.rollouts.roll_back_to(marks.1);
            self.runs.roll_back_to(marks.2);
            self.mismatched = marks.3;
        }
        read
    }

    fn is_full(&self) -> bool {
        self.calls.is_full()
    }

    fn flush(&mut self, queue: &mut VecDeque<Item>) -> Result<()> {
        queue.extend(self.notes.drain(..).map(Item::Note));
        for rows in [&mut self.runs, &mut self.rollouts, &mut self.calls] {
            if rows.rows() == 0 {
                continue;
            }
            let table = rows.table();
            let batch = rows.finish().map_err(|source| {
                Error::new(ErrorKind::Corrupt, "rows that make no batch").with("table", &table.name).because(source)
            })?;
            queue.push_back(Item::Rows { table, batch });
        }
        Ok(())
    }

    fn prefix(&self) -> &'static str {
        ""
    }

    fn end(&mut self, queue: &mut VecDeque<Item>) {
        if self.mismatched > 0 {
            let note = "calls whose logprobs do not belong to their ids: stored as null, the list kept in extra";
            queue.push_back(Item::Note(format!("{} {note}", self.mismatched)));
        }
    }
}
