//! `template_differences`: prompts that are not what the template makes of their requests, and marks that stand where no template
//! puts them.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use rollbook_encoding::Inherited;
use rollbook_query::{Encoding, LakeEncodings, Result, Session};
use serde_json::{Map, Value};

use super::super::Origin;
use super::super::tokens::{ids, integers, list, longs, text};
use super::markers::{Look, Markers, expectations};
use super::parts::Parts;
use super::prompts::{Rendered, Renderer};
use super::rows::{Call, Said, batch};

/// All differences, of calls in the order of the lake.
pub(in crate::tables) fn differences(
    origin: Origin,
    _read: Vec<Vec<RecordBatch>>,
) -> BoxFuture<'static, Result<Vec<RecordBatch>>> {
    async move {
        let session = origin.session().await?;
        let plans = plans(session.encodings())?;
        let mut markers = Markers::new(expectations(&session).await?);
        let mut said = Vec::new();
        let wanted: Vec<&Plan> = plans.iter().filter(|plan| plan.parts.can_render() || plan.may_mark()).collect();
        let by_runs = markers.has_expectations();
        if !wanted.is_empty() || by_runs {
            let mut rows = session.stream(&scan(&wanted, &markers)).await?;
            while let Some(rows) = rows.try_next().await? {
                judge(&session, &plans, &rows, &mut markers, &mut said)?;
            }
        }
        said.extend(markers.finish());
        Ok(vec![batch(&said)?])
    }
    .boxed()
}

/// An encoding, and what can be done with it.
struct Plan {
    id: String,
    encoding: Arc<Encoding>,
    parts: Parts,
    special_tokens: Map<String, Value>,
}

impl Plan {
    /// Whether marks can be looked for where nothing is rendered.
    fn may_mark(&self) -> bool {
        self.encoding.special_token_map.is_some() || !self.encoding.generation_prompt_ids.is_empty()
    }
}

fn plans(encodings: &LakeEncodings) -> Result<Vec<Plan>> {
    let mut plans = Vec::new();
    for (id, encoding) in encodings.all()? {
        let parts = Parts::of(encodings, &encoding)?;
        let special_tokens = if parts.can_render() { encodings.special_tokens(&encoding)? } else { Map::new() };
        plans.push(Plan { id, encoding, parts, special_tokens });
    }
    Ok(plans)
}

/// Prompts and requests are read for those calls alone that something can be said of.
fn scan(wanted: &[&Plan], markers: &Markers) -> String {
    let names: Vec<String> = wanted.iter().map(|plan| super::super::quoted(&plan.id)).collect();
    let of_encoding =
        if names.is_empty() { "false".to_owned() } else { format!("encoding_id IN ({})", names.join(", ")) };
    let by_runs = markers.has_expectations();
    let request =
        if wanted.is_empty() && !markers.needs_requests() { "CAST(NULL AS VARCHAR) AS request" } else { "request" };
    format!(
        "SELECT run_id, step, group_id, rollout_id, call_id, call_index, parent_call_id, parent_prefix_len, prompt_sent_len,
            prompt_len, kind, encoding_id, {request}, prompt_token_ids, CAST(started_at AS BIGINT) AS started_at
         FROM calls
         WHERE prompt_len > 0 AND multimodal_spans IS NULL AND ({of_encoding} OR {by_runs})"
    )
}

fn judge(
    session: &Session,
    plans: &[Plan],
    rows: &RecordBatch,
    markers: &mut Markers,
    said: &mut Vec<Said>,
) -> Result<()> {
    let (encodings, requests) = (text(rows, "encoding_id")?, text(rows, "request")?);
    let (prompts, times) = (list(rows, "prompt_token_ids")?, longs(rows, "started_at")?);
    let sent = integers(rows, "prompt_sent_len")?;
    let kinds = text(rows, "kind")?;
    let calls = calls(rows)?;
    for (row, call) in calls.into_iter().enumerate() {
        let prompt = ids(&prompts, row)?;
        let request = requests.is_valid(row).then(|| requests.value(row));
        let encoding = encodings.is_valid(row).then(|| encodings.value(row));
        let plan = encoding.and_then(|id| plans.iter().find(|plan| plan.id == id));
        // What the engine cut from the prompt that was sent is no template's doing.
        let is_cut = sent.is_valid(row) && i64::from(sent.value(row)) > i64::try_from(prompt.len()).unwrap_or(i64::MAX);
        let rendered = match (plan.filter(|plan| plan.parts.can_render() && !is_cut), request) {
            (Some(plan), Some(request)) => {
                let now = times.is_valid(row).then(|| times.value(row));
                if plan.parts.asks_for_time && now.is_none() {
                    None
                } else {
                    render(session, plan, request, &prompt, &call, now)?
                }
            }
            _ => None,
        };
        match rendered {
            Some(found) => said.extend(found),
            None => {
                let kind = kinds.is_valid(row).then(|| kinds.value(row));
                let look =
                    Look { prompt: &prompt, request, kind, encoding: plan.map(|plan| (&*plan.id, &*plan.encoding)) };
                markers.look(session, call, &look)?;
            }
        }
    }
    Ok(())
}

/// What rendering tells, none where the request asks nothing of a template.
fn render(
    session: &Session,
    plan: &Plan,
    request: &str,
    prompt: &[i32],
    call: &Call,
    now: Option<i64>,
) -> Result<Option<Option<Said>>> {
    let encodings = session.encodings();
    let (Some(tokenizer), Some(template)) = (encodings.tokenizer(&plan.encoding)?, encodings.template(&plan.encoding)?)
    else {
        return Ok(None);
    };
    let renderer = Renderer {
        tokenizer: &tokenizer,
        template: &template,
        template_kwargs: &plan.encoding.template_kwargs,
        special_tokens: &plan.special_tokens,
    };
    let inherited = call.inherited.map_or(Inherited::Unknown, Inherited::Tokens);
    let told = |kind, position, expected, observed, reason| {
        Some(Some(Said { call: call.clone(), kind, position, expected, observed, reason }))
    };
    Ok(match renderer.judge(request, prompt, inherited, now) {
        Rendered::Same => Some(None),
        Rendered::NoMessages => None,
        Rendered::Differs(found) => {
            let kind = if found.is_text { "text" } else { "tokens" };
            told(kind, Some(found.position), Some(found.expected), Some(found.observed), None)
        }
        Rendered::Refused(error) => told("refused", None, None, None, Some(error.to_string())),
        Rendered::Failed(error) => told("failed", None, None, None, Some(error.to_string())),
    })
}

/// The calls of a batch.
pub(super) fn calls(rows: &RecordBatch) -> Result<Vec<Call>> {
    let (runs, groups) = (text(rows, "run_id")?, text(rows, "group_id")?);
    let (rollouts, names) = (text(rows, "rollout_id")?, text(rows, "call_id")?);
    let (steps, indexes) = (longs(rows, "step")?, integers(rows, "call_index")?);
    let (parents, shared) = (text(rows, "parent_call_id")?, integers(rows, "parent_prefix_len")?);
    let value =
        |column: &arrow::array::StringArray, row: usize| column.is_valid(row).then(|| column.value(row).to_owned());
    Ok((0..rows.num_rows())
        .map(|row| {
            let is_first = parents.is_null(row) && (indexes.is_null(row) || indexes.value(row) == 0);
            let inherited =
                if shared.is_valid(row) { usize::try_from(shared.value(row)).ok() } else { is_first.then_some(0) };
            Call {
                run: value(&runs, row),
                step: steps.is_valid(row).then(|| steps.value(row)),
                group: value(&groups, row),
                rollout: value(&rollouts, row),
                call: value(&names, row),
                index: indexes.is_valid(row).then(|| indexes.value(row)),
                inherited,
            }
        })
        .collect())
}
