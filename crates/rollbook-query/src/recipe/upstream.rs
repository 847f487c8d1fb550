//! The derivation that a credit or a build is computed from: `NAME`, or `NAME@DERIVATION_ID`.

use std::collections::BTreeSet;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use crate::error::{Error, Result};
use crate::session::Session;

/// Rows of `rewards` or `credits` that one derivation (or one a run) made.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    /// `rewards` or `credits`.
    table: &'static str,
    /// Table or view that holds the rows.
    from: String,
    /// Condition that picks them.
    condition: String,
    /// Name without the id.
    pub(crate) name: String,
    /// Derivations they come from; none where they were imported without one.
    pub(crate) derivation_ids: Vec<String>,
}

/// Which rollouts a recipe sees of its upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purposes {
    /// Those for training: what credits and builds take.
    Train,
    /// All of them: a reward of a reward scores evaluation too.
    All,
}

/// Writes text as a SQL literal.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Collects the values of a text column that are not null.
pub(crate) fn text_column(batches: &[RecordBatch], column: usize) -> Result<Vec<String>> {
    let mut values = Vec::new();
    for batch in batches {
        let texts = cast(batch.column(column), &DataType::Utf8)?;
        let texts = texts.as_string::<i32>();
        values.extend((0..texts.len()).filter(|row| texts.is_valid(*row)).map(|row| texts.value(row).to_owned()));
    }
    Ok(values)
}

impl Upstream {
    /// Finds the rows that `spec` names, of one run or of all.
    pub(crate) async fn find(session: &Session, table: &'static str, spec: &str, run: Option<&str>) -> Result<Self> {
        let (name, id) = match spec.rsplit_once('@') {
            Some((name, id)) => (name, Some(id)),
            None => (spec, None),
        };
        match Self::pick(session, table, Some(name), id, run).await? {
            Some(found) => Ok(found),
            None => Err(Self::missing(session, table, spec, run).await?),
        }
    }

    /// Finds the rows that `spec` names or that the derivation of that id made, if there are any.
    pub(crate) async fn seek(
        session: &Session,
        table: &'static str,
        spec: &str,
        run: Option<&str>,
    ) -> Result<Option<Self>> {
        let (name, id) = match spec.rsplit_once('@') {
            Some((name, id)) => (name, Some(id)),
            None => (spec, None),
        };
        match Self::pick(session, table, Some(name), id, run).await? {
            Some(found) => Ok(Some(found)),
            None if id.is_none() => Self::pick(session, table, None, Some(spec), run).await,
            None => Ok(None),
        }
    }

    async fn pick(
        session: &Session,
        table: &'static str,
        name: Option<&str>,
        id: Option<&str>,
        run: Option<&str>,
    ) -> Result<Option<Self>> {
        let wanted = [("name", name), ("derivation_id", id), ("run_id", run)];
        let wanted = wanted.iter().filter_map(|(column, value)| Some(format!("{column} = {}", quoted((*value)?))));
        let condition = wanted.collect::<Vec<_>>().join(" AND ");
        let from = if id.is_some() { format!("{table}_history") } else { table.to_owned() };
        let found = session
            .collect(&format!(
                "SELECT derivation_id, count(*) FROM {from} WHERE {condition} GROUP BY derivation_id ORDER BY 1"
            ))
            .await?;
        if found.iter().all(|batch| batch.num_rows() == 0) {
            return Ok(None);
        }
        let derivation_ids = text_column(&found, 0)?;
        let name = name.or(id).unwrap_or_default().to_owned();
        Ok(Some(Self { table, from, condition, name, derivation_ids }))
    }

    /// Returns a query for some columns of the rows, all of them.
    pub(crate) fn rows_sql(&self, columns: &str) -> String {
        format!("SELECT {columns} FROM {} WHERE {}", self.from, self.condition)
    }

    /// The rows that certain derivations made, whatever is current.
    pub(crate) fn of_ids(table: &'static str, ids: &[String]) -> Self {
        let list: Vec<String> = ids.iter().map(|id| quoted(id)).collect();
        Self {
            table,
            from: format!("{table}_history"),
            condition: format!("derivation_id IN ({})", list.join(", ")),
            name: String::new(),
            derivation_ids: ids.to_vec(),
        }
    }

    async fn missing(session: &Session, table: &str, spec: &str, run: Option<&str>) -> Result<Error> {
        let scope = run.map_or_else(String::new, |run| format!(" WHERE run_id = {}", quoted(run)));
        let known = session.collect(&format!("SELECT DISTINCT name FROM {table}{scope} ORDER BY 1 LIMIT 20")).await?;
        let known = text_column(&known, 0)?;
        let kind = table.trim_end_matches('s');
        let place = run.map_or_else(|| "the lake".to_owned(), |run| format!("run {run}"));
        let hint = if known.is_empty() {
            format!("it has no {table} yet: run `rollbook {kind}` first")
        } else {
            format!("its {table} are {}", known.join(", "))
        };
        Ok(Error::not_found(format!("{place} has no {kind} {spec} at snapshot {}; {hint}", session.snapshot().n)))
    }

    /// Returns the query behind `reward` or `credit`: the upstream's rows, with the columns of the rollouts that the upstream
    /// does not have itself. The rollouts stand on the left: that side of the join is held, while token values stream.
    pub(crate) fn view_sql(&self, purposes: Purposes) -> Result<String> {
        let columns = |table: &str| -> Result<Vec<String>> {
            let table = rollbook_schema::table(table)
                .ok_or_else(|| Error::corrupt(format!("the schema has no table {table}")))?;
            Ok(table.logical().fields().iter().map(|field| field.name().clone()).collect())
        };
        let own = columns(self.table)?;
        let mut seen: BTreeSet<String> = own.iter().cloned().collect();
        seen.insert("revision".to_owned());
        // An imported reward may not say its rollout's step; the batch it belongs to is that of the rollout.
        let own_column = |name: &String| match name.as_str() {
            "step" => "COALESCE(r.step, w.step) AS step".to_owned(),
            _ => format!("w.{name}"),
        };
        let mut selected: Vec<String> = own.iter().map(own_column).collect();
        selected.extend(
            columns("rollouts")?.into_iter().filter(|name| !seen.contains(name)).map(|name| format!("r.{name}")),
        );
        Ok(format!(
            "SELECT {} FROM rollouts AS r RIGHT JOIN (SELECT * FROM {} WHERE {}) AS w \
             ON w.run_id = r.run_id AND w.rollout_id = r.rollout_id WHERE {}",
            selected.join(", "),
            self.from,
            self.condition,
            match purposes {
                Purposes::Train => "COALESCE(r.purpose, 'train') = 'train'",
                Purposes::All => "true",
            }
        ))
    }
}
