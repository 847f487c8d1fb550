//! Calls with several choices: their ids, and which choice a later call continues.
//!
//! A `parent_call_id` names the call as its client knew it, `{call_id}` without an index, and its line may stand
//! anywhere in the source. So the lines are passed over once beforehand; only those that look like several choices are parsed.

use std::collections::HashMap;
use std::io::BufReader;

use crate::error::{Error, Result};
use crate::json::{Cursor, LINE_LIMIT, Line, Lines, Parse};
use crate::row::text;
use crate::source::SourceFile;

use super::keys::{line_id, stand_in};
use super::response;
use super::wire::{self, Exchange, Response};

/// Who a line is, before choices make several calls of it.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) run: Option<String>,
    pub(super) rollout: Option<String>,
    pub(super) call: String,
    pub(super) parent: Option<String>,
}

/// What a plain parent id stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parent {
    /// A call of one choice, or one that this source does not hold.
    Plain,
    /// The selected one of several choices.
    Choice(i64),
    /// Several choices, none or more than one of them selected.
    Unknown,
}

/// The calls with several choices of a source, each with its selected choice.
#[derive(Debug, Default)]
pub(super) struct Several {
    selected: HashMap<u128, Option<i64>>,
}

impl Several {
    /// Adds a call with several choices, should the scan have missed it.
    pub(super) fn add(&mut self, identity: &Identity, selected: Option<i64>) {
        self.selected.insert(stand_in(identity.run.as_deref(), &identity.call), selected);
    }

    pub(super) fn resolve(&self, run_id: Option<&str>, parent: &str) -> Parent {
        if self.selected.is_empty() {
            return Parent::Plain;
        }
        match self.selected.get(&stand_in(run_id, parent)) {
            None => Parent::Plain,
            Some(Some(index)) => Parent::Choice(*index),
            Some(None) => Parent::Unknown,
        }
    }
}

/// Returns the identity that a line's metadata and response give.
pub(super) fn identity(
    exchange: &Exchange<'_>,
    response: &Response,
    run_id: Option<&str>,
    line: &str,
) -> Parse<Identity> {
    let get = |name: &str| -> Parse<Option<String>> {
        let Some((_, raw)) = exchange.metadata.iter().find(|(key, _)| key == name) else {
            return Ok(None);
        };
        if *raw == "null" {
            return Ok(None);
        }
        let value = text(&mut Cursor::new(raw)).map_err(|fault| fault.at_key(name).at_key("metadata"))?;
        Ok(Some(value.into_owned()))
    };
    let given = get("call_id")?.or_else(|| response.id.clone());
    Ok(Identity {
        run: get("run_id")?.or_else(|| run_id.map(str::to_owned)),
        rollout: get("rollout_id")?,
        call: given.unwrap_or_else(|| line_id(line)),
        parent: get("parent_call_id")?,
    })
}

/// Returns the one choice of several that was selected.
pub(super) fn selected(exchange: &Exchange<'_>, response: &Response) -> Option<i64> {
    let declared = exchange.metadata.iter().find(|(key, _)| key == "selected_index");
    if let Some((_, raw)) = declared.filter(|(_, raw)| *raw != "null") {
        return raw.parse().ok();
    }
    let mut indexes = (0_i64..)
        .zip(&response.choices)
        .filter(|(_, choice)| choice.is_selected == Some(true))
        .map(|(at, choice)| choice.index.unwrap_or(at));
    indexes.next().filter(|_| indexes.next().is_none())
}

/// Finds the calls with several choices; lines that cannot be read are left to the import itself.
pub(super) fn scan(files: &[SourceFile], run_id: Option<&str>) -> Result<Several> {
    let mut several = Several::default();
    for file in files {
        let mut lines = Lines::new(BufReader::with_capacity(1 << 18, file.open()?), LINE_LIMIT);
        while let Some(line) = lines.next_line().map_err(|source| Error::io(&file.name, source))? {
            let Line::Text(text) = line else { continue };
            if !may_have_several(text) {
                continue;
            }
            if let Ok(Some((key, choice))) = of_line(text, run_id) {
                several.selected.insert(key, choice);
            }
        }
    }
    Ok(several)
}

fn of_line(line: &str, run_id: Option<&str>) -> Parse<Option<(u128, Option<i64>)>> {
    let exchange = wire::exchange(line)?;
    let Some(text) = &exchange.response else {
        return Ok(None);
    };
    let response = response::response(text)?;
    if response.choices.len() < 2 {
        return Ok(None);
    }
    let identity = identity(&exchange, &response, run_id, line)?;
    let key = stand_in(identity.run.as_deref(), &identity.call);
    Ok(Some((key, selected(&exchange, &response))))
}

/// Says whether a line may hold more than one choice: an index of 1, or a list of native answers.
///
/// Index and colon may be escaped, where the response is a string.
fn may_have_several(line: &str) -> bool {
    const MARKS: [&str; 6] =
        ["index\":1", "index\": 1", "index\\\":1", "index\\\": 1", "response\":[", "response\": ["];
    MARKS.iter().any(|mark| line.contains(mark))
}
