//! The loss account of a build: what became of every sampled token, and what weight it trained with.
//!
//! ```text
//! sampled = trained + excluded (by reason) + unaccounted        duplicated: trained once more in the same epoch
//! step     Σ of its loss weights, beside what the objective gives: their ratio scales the learning rate
//! rollout  its share of a step's loss weight, beside what the objective gives
//! ```

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt, stream};
use rollbook_query::{Error, Result, Session};

use crate::catalog::check;
use crate::register::register;

const TOKENS: &str = include_str!("../../../sql/audits/pack/weight/account_tokens.sql");
const ROWS: &str = include_str!("../../../sql/audits/pack/weight/account_rows.sql");
/// Ends the part of a check's query that the account reads as well.
const MARK: &str = "-- findings:";

const STEPS: &str = "
SELECT
    'step' AS part, concat('optimizer step ', coalesce(CAST(given.optimizer_step AS VARCHAR), '?')) AS name,
    given.epoch, given.optimizer_step, CAST(NULL AS VARCHAR) AS rollout_id, counted.rows, given.tokens, given.weight,
    judged.expected, judged.observed / judged.expected AS observed
FROM given
JOIN (
    SELECT build_id, epoch, optimizer_step, count(DISTINCT row_number) AS rows
    FROM row_weights GROUP BY build_id, epoch, optimizer_step
) AS counted
    ON counted.build_id = given.build_id AND counted.epoch = given.epoch
    AND counted.optimizer_step IS NOT DISTINCT FROM given.optimizer_step
LEFT JOIN judged
    ON judged.build_id = given.build_id AND judged.epoch = given.epoch
    AND judged.optimizer_step IS NOT DISTINCT FROM given.optimizer_step
WHERE given.build_id = $build AND given.run_id = $run
ORDER BY given.epoch, given.optimizer_step";

const ROLLOUTS: &str = "
SELECT
    'rollout' AS part, counted.rollout_id AS name, counted.epoch, counted.optimizer_step, counted.rollout_id,
    counted.rows, counted.tokens, counted.weight, wanted.expected, wanted.observed
FROM (
    SELECT
        run_id, build_id, epoch, optimizer_step, rollout_id, count(DISTINCT row_number) AS rows, sum(tokens) AS tokens,
        sum(weight) AS weight
    FROM row_weights
    WHERE rollout_id IS NOT NULL AND build_id = $build AND run_id = $run
    GROUP BY run_id, build_id, epoch, optimizer_step, rollout_id
) AS counted
LEFT JOIN (
    SELECT *, row_number() OVER (PARTITION BY run_id, build_id, epoch, optimizer_step, rollout_id ORDER BY whose) AS place
    FROM judged
) AS wanted
    ON wanted.place = 1 AND wanted.run_id = counted.run_id AND wanted.build_id = counted.build_id
    AND wanted.epoch = counted.epoch AND wanted.optimizer_step IS NOT DISTINCT FROM counted.optimizer_step
    AND wanted.rollout_id = counted.rollout_id
ORDER BY counted.epoch, counted.optimizer_step, counted.rollout_id";

/// A build of the lake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildKey {
    /// Its id.
    pub build_id: String,
    /// The run it trains.
    pub run_id: String,
}

/// Finds a build by its id, else the newest of that name; builds of which only rows were imported count as well.
///
/// # Errors
///
/// `NotFound` where there is none; the error names those that there are.
pub async fn find_build(session: &Session, wanted: &str) -> Result<BuildKey> {
    let name = quoted(wanted);
    let sql = format!(
        "SELECT build_id, run_id FROM ( \
           SELECT b.build_id, b.run_id, b.build_id = {name} AS is_id, b.created_at \
           FROM builds AS b LEFT JOIN derivations AS d ON d.derivation_id = b.derivation_id \
           WHERE b.build_id = {name} OR d.name = {name} \
           UNION ALL SELECT build_id, run_id, true, NULL FROM samples WHERE build_id = {name} GROUP BY build_id, run_id \
         ) ORDER BY is_id DESC, created_at DESC NULLS LAST, build_id DESC LIMIT 1"
    );
    for batch in session.collect(&sql).await?.iter().filter(|batch| batch.num_rows() > 0) {
        let (builds, runs) = (text(batch, 0)?, text(batch, 1)?);
        if builds.is_valid(0) && runs.is_valid(0) {
            return Ok(BuildKey { build_id: builds.value(0).to_owned(), run_id: runs.value(0).to_owned() });
        }
    }
    let known = "SELECT DISTINCT coalesce(d.name, b.build_id) FROM builds AS b \
                 LEFT JOIN derivations AS d ON d.derivation_id = b.derivation_id ORDER BY 1 LIMIT 20";
    let mut names = Vec::new();
    for batch in session.collect(known).await? {
        names.extend(text(&batch, 0)?.iter().flatten().map(str::to_owned));
    }
    let hint = if names.is_empty() { "it has none yet".to_owned() } else { format!("it has {}", names.join(", ")) };
    Err(Error::not_found(format!("the lake has no build {wanted} at snapshot {}; {hint}", session.snapshot().n)))
}

/// The account's lines: `part` (tokens, step, rollout), `name`, `epoch`, `optimizer_step`, `rollout_id`, `rows`, `tokens`,
/// `weight` (sum of loss weights), `expected` and `observed`, and `opens`, a statement that selects what is behind the line.
///
/// | part | expected | observed |
/// |---|---|---|
/// | tokens | | share of the sampled tokens |
/// | step | sum of loss weights that the objective gives | factor on the learning rate: sum over expected sum |
/// | rollout | share of the step that the objective gives | share of the step's loss weight |
///
/// # Errors
///
/// A store that does not answer.
pub async fn account(session: &Session, build: &BuildKey) -> Result<SendableRecordBatchStream> {
    register(session)?;
    let schema = schema();
    let mut parts = Vec::new();
    let queries = [
        TOKENS.to_owned(),
        format!("{}{STEPS}", shared("pack/scale")?),
        format!("{}{ROLLOUTS}", shared("pack/weight")?),
    ];
    for query in queries {
        let stream = session.stream(&filled(&query, build, None)).await?;
        let (build, schema) = (build.clone(), Arc::clone(&schema));
        parts.push(stream.and_then(move |batch| {
            let conformed = conform(&batch, &schema, &build).map_err(datafusion::common::DataFusionError::from);
            futures::future::ready(conformed)
        }));
    }
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(parts).flatten())))
}

/// What the build trains of one rollout, span by span, and what it leaves out, with the reason.
///
/// # Errors
///
/// A store that does not answer.
pub async fn rollout_account(session: &Session, build: &BuildKey, rollout: &str) -> Result<SendableRecordBatchStream> {
    register(session)?;
    session.stream(&filled(ROWS, build, Some(rollout))).await
}

/// The part of a check's query before its findings.
fn shared(code: &str) -> Result<&'static str> {
    let sql = check(code).map(|check| check.sql).unwrap_or_default();
    sql.split_once(MARK)
        .map(|(before, _)| before)
        .ok_or_else(|| Error::corrupt(format!("the query of {code} has no line {MARK}")))
}

fn filled(sql: &str, build: &BuildKey, rollout: Option<&str>) -> String {
    sql.replace("$build", &quoted(&build.build_id))
        .replace("$run", &quoted(&build.run_id))
        .replace("$rollout", &quoted(rollout.unwrap_or_default()))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn schema() -> SchemaRef {
    let fields = [
        ("part", DataType::Utf8),
        ("name", DataType::Utf8),
        ("epoch", DataType::Int32),
        ("optimizer_step", DataType::Int64),
        ("rollout_id", DataType::Utf8),
        ("rows", DataType::Int64),
        ("tokens", DataType::Int64),
        ("weight", DataType::Float64),
        ("expected", DataType::Float64),
        ("observed", DataType::Float64),
        ("opens", DataType::Utf8),
    ];
    Arc::new(Schema::new(fields.map(|(name, kind)| Field::new(name, kind, true)).to_vec()))
}

fn conform(batch: &RecordBatch, schema: &SchemaRef, build: &BuildKey) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    for field in schema.fields().iter().filter(|field| field.name() != "opens") {
        let column = batch
            .column_by_name(field.name())
            .ok_or_else(|| Error::corrupt(format!("the account lost column {}", field.name())))?;
        columns.push(cast(column, field.data_type())?);
    }
    let (parts, names) = (text(batch, 0)?, text(batch, 1)?);
    let (epochs, steps) = (text(batch, 2)?, text(batch, 3)?);
    let opens = (0..batch.num_rows()).map(|row| {
        let step = if steps.is_valid(row) {
            format!("optimizer_step = {}", steps.value(row))
        } else {
            "optimizer_step IS NULL".to_owned()
        };
        Some(opens(build, parts.value(row), names.value(row), &format!("epoch = {} AND {step}", epochs.value(row))))
    });
    columns.push(Arc::new(opens.collect::<StringArray>()));
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// A statement that selects what a line counts.
fn opens(build: &BuildKey, part: &str, name: &str, place: &str) -> String {
    let of_build = format!("build_id = {} AND run_id = {}", quoted(&build.build_id), quoted(&build.run_id));
    match (part, name) {
        ("step", _) => format!("SELECT * FROM row_weights WHERE {of_build} AND {place}"),
        ("rollout", rollout) => {
            format!("SELECT * FROM row_weights WHERE {of_build} AND {place} AND rollout_id = {}", quoted(rollout))
        }
        (_, "sampled") => format!(
            "SELECT rollout_id, call_id, output_len FROM calls WHERE run_id = {} AND rollout_id IN \
             (SELECT rollout_id FROM row_segment WHERE {of_build} UNION SELECT rollout_id FROM exclusions WHERE {of_build})",
            quoted(&build.run_id)
        ),
        (_, "trained") => format!("SELECT * FROM trained_span WHERE {of_build}"),
        (_, "unaccounted") => {
            format!("SELECT * FROM audit('token/coverage') WHERE {of_build} AND observed = 'neither'")
        }
        (_, "duplicated") => format!("SELECT * FROM audit('pack/once') WHERE {of_build}"),
        (_, "untraced") => untraced(build, &of_build),
        (_, excluded) => {
            let reason = excluded.strip_prefix("excluded: ").unwrap_or(excluded);
            format!("SELECT * FROM exclusions WHERE {of_build} AND coalesce(reason, 'no reason') = {}", quoted(reason))
        }
    }
}

/// A statement that selects what trains and comes from no output that the lake holds.
fn untraced(build: &BuildKey, of_build: &str) -> String {
    const PLACE: &str = "step, epoch, micro_batch, rank, row_index";
    format!(
        "SELECT {PLACE}, rollout_id, NULL AS call_id, NULL AS row_start, cardinality(token_ids) AS length FROM samples \
         WHERE {of_build} AND segments IS NULL \
         UNION ALL SELECT {PLACE}, rollout_id, call_id, row_start, length FROM stray_span WHERE {of_build} \
         UNION ALL SELECT {PLACE}, span.rollout_id, span.call_id, span.row_start, span.length \
         FROM (SELECT * FROM trained_span WHERE {of_build}) AS span \
         LEFT ANTI JOIN (SELECT call_id, output_len FROM calls WHERE run_id = {}) AS call \
         ON call.call_id = span.call_id AND call.output_len >= span.start + span.length",
        quoted(&build.run_id)
    )
}

fn text(batch: &RecordBatch, column: usize) -> Result<StringArray> {
    Ok(cast(batch.column(column), &DataType::Utf8)?.as_string::<i32>().clone())
}
