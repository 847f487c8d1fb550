//! The build that an export is of: what the lake knows of it, and of what it was made from.

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int32Type};

use crate::error::{Error, Result};
use crate::export::manifest::{Objective, Upstream};
use crate::export::part::sha256_hex;
use crate::recipe::{quoted, text_column};
use crate::session::Session;

/// What the lake knows of the build.
pub(super) struct Build {
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) run_id: String,
    pub(super) derivation_id: Option<String>,
    pub(super) upstream: Vec<Upstream>,
    pub(super) objective: Objective,
    pub(super) accept_assumed: bool,
    pub(super) max_tokens: Option<i32>,
}

impl Build {
    /// What its files are told by: the id, or its digest where an importer's id is no name for a file.
    pub(super) fn file_tag(&self) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.id.chars().all(is_plain) && self.id.len() <= 100 {
            self.id.clone()
        } else {
            sha256_hex(self.id.as_bytes())
        }
    }
}

/// Finds a build by its id, else the newest of that name.
pub(super) async fn find_build(session: &Session, wanted: &str) -> Result<Build> {
    let name = quoted(wanted);
    let found = session
        .collect(&format!(
            "SELECT b.build_id, d.name, b.run_id, b.derivation_id, b.objective_unit, b.objective_scope, \
             b.objective_constant, b.advantage_scale, b.max_tokens, b.metadata \
             FROM builds AS b LEFT JOIN derivations AS d ON d.derivation_id = b.derivation_id \
             WHERE b.build_id = {name} OR d.name = {name} \
             ORDER BY b.build_id = {name} DESC, b.created_at DESC, b.build_id DESC LIMIT 1"
        ))
        .await?;
    let Some(row) = found.iter().find(|batch| batch.num_rows() > 0) else {
        return Err(no_build(session, wanted).await?);
    };
    let text = |column: usize| text_column(std::slice::from_ref(row), column).map(|mut values| values.pop());
    let double = |column: usize| -> Result<Option<f64>> {
        let array = cast(row.column(column), &DataType::Float64)?;
        let array = array.as_primitive::<Float64Type>();
        Ok(array.is_valid(0).then(|| array.value(0)))
    };
    let max_tokens = cast(row.column(8), &DataType::Int32)?;
    let max_tokens = max_tokens.as_primitive::<Int32Type>();
    let derivation_id = text(3)?;
    let metadata: serde_json::Value = text(9)?.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    Ok(Build {
        id: text(0)?.ok_or_else(|| Error::corrupt(format!("build {wanted} has no id")))?,
        name: text(1)?,
        run_id: text(2)?.unwrap_or_default(),
        upstream: upstream_of(session, derivation_id.as_deref()).await?,
        derivation_id,
        objective: Objective { unit: text(4)?, scope: text(5)?, constant: double(6)?, advantage_scale: double(7)? },
        accept_assumed: metadata.get("accept_assumed").and_then(serde_json::Value::as_bool).unwrap_or(false),
        max_tokens: max_tokens.is_valid(0).then(|| max_tokens.value(0)),
    })
}

async fn no_build(session: &Session, wanted: &str) -> Result<Error> {
    let known = session
        .collect(
            "SELECT DISTINCT coalesce(d.name, b.build_id) FROM builds AS b \
             LEFT JOIN derivations AS d ON d.derivation_id = b.derivation_id ORDER BY 1 LIMIT 20",
        )
        .await?;
    let known = text_column(&known, 0)?;
    let hint = if known.is_empty() { "it has none yet".to_owned() } else { format!("it has {}", known.join(", ")) };
    Ok(Error::not_found(format!("the lake has no build {wanted} at snapshot {}; {hint}", session.snapshot().n)))
}

/// The derivations behind a build, the nearest first.
async fn upstream_of(session: &Session, derivation_id: Option<&str>) -> Result<Vec<Upstream>> {
    let mut upstream: Vec<Upstream> = Vec::new();
    let mut open: Vec<String> = derivation_id.map(str::to_owned).into_iter().collect();
    while !open.is_empty() {
        let ids: Vec<_> = open.iter().map(|id| quoted(id)).collect();
        let found = session
            .collect(&format!(
                "SELECT DISTINCT coalesce(u.kind, ''), coalesce(u.name, ''), u.derivation_id, \
                 coalesce(u.content_digest, '') FROM derivations AS u JOIN (SELECT unnest(upstream_derivation_ids) AS id \
                 FROM derivations WHERE derivation_id IN ({})) AS d ON u.derivation_id = d.id ORDER BY 1, 2, 3",
                ids.join(", ")
            ))
            .await?;
        let kinds = text_column(&found, 0)?.into_iter();
        let names = text_column(&found, 1)?;
        let rest = text_column(&found, 2)?.into_iter().zip(text_column(&found, 3)?);
        open.clear();
        for ((kind, name), (derivation_id, digest)) in kinds.zip(names).zip(rest) {
            if upstream.iter().all(|known| known.derivation_id != derivation_id) {
                open.push(derivation_id.clone());
                let content_digest = (!digest.is_empty()).then_some(digest);
                upstream.push(Upstream { kind, name, derivation_id, content_digest });
            }
        }
    }
    Ok(upstream)
}
