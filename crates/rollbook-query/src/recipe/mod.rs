//! Recipes: SQL files that make rewards, credits and builds, and the derivations that record their runs.
//!
//! ```text
//! file ─ parse ─> header (kind, parameters, checks) + one SELECT
//!      ─ bind ──> typed literals for $name, an expression for $group_key, the upstream as `reward` or `credit`
//!      ─ run ───> rows of the kind's table + one row of `derivations`, one commit
//! ```
//!
//! ```text
//! kind     reads                     must return          may return
//! reward   any table, and `reward`   rollout_id, value    run_id, call_id, exclusion_reason, components, score_ids
//! credit   any table, and `reward`   rollout_id, value    run_id, call_id, quantity, level, token_values, baseline_…
//!          or `credit`, or both
//! build    any table, and `credit`   a plan, see [`crate::build`]; it has $max_tokens and $accept_assumed
//! ```
//!
//! A reward recipe that reads `reward` transforms the reward it is given; it sees rollouts of every purpose. A credit recipe that
//! reads `credit` transforms the credit it is given.
//!
//! `reward` and `credit` hold the rows of the named upstream for the training rollouts of the run, with the columns of
//! their rollouts beside their own, so that `$group_key` can be any expression over rollouts; `group_id` is the group the
//! upstream was computed with.

mod catalog;
mod columns;
mod content;
mod derivation;
mod derive;
mod fault;
mod header;
mod parameter;
#[cfg(test)]
mod preset_tests;
mod presets;
mod rerun;
mod rows;
#[cfg(test)]
mod same_bits;
mod scope;
mod statement;
pub mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod ties;
mod upstream;
mod variants;

use datafusion::sql::sqlparser::ast::Query;

pub use catalog::{catalog, find_recipe};
pub use derive::{DeriveOptions, Derived, run_credit, run_reward};
pub use header::Kind;
pub use parameter::{Parameter, ParameterType};
pub use rerun::{Recorded, rerun};
pub use variants::{Variant, variants};

pub(crate) use columns::{OutputColumn, conform, list_of, output_of};
pub(crate) use content::{ContentDigest, hex};
pub(crate) use derivation::{Derivation, Publication, functions_used, new_id, table, table_batch, times};
pub(crate) use fault::Place;
pub(crate) use parameter::Bindings;
pub(crate) use scope::{Part, Scope, bind, make_checks, plan_query};
pub(crate) use upstream::{Purposes, Upstream, quoted, text_column};

use crate::error::Result;
use header::{Header, parse_header};
use parameter::GROUP_KEY;
use statement::parse_query;

/// One recipe, parsed.
#[derive(Debug, Clone)]
pub struct Recipe {
    name: String,
    text: String,
    header: Header,
    query: Query,
    checks: Vec<(String, Query)>,
}

impl Recipe {
    /// Parses a recipe; `name` is the name it goes by where its header gives none.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let mut header = parse_header(name, text)?;
        let name = header.name.clone().unwrap_or_else(|| name.to_owned());
        if header.parameters.iter().all(|parameter| parameter.name != GROUP_KEY) && header.kind != Kind::Build {
            header.parameters.push(Parameter {
                name: GROUP_KEY.to_owned(),
                ty: ParameterType::Expression,
                default: Some("group_id".to_owned()),
                doc: "expression over rollouts that names the group".to_owned(),
            });
        }
        let query = parse_query(&name, text)?;
        let checks = header
            .checks
            .iter()
            .map(|check| Ok((check.message.clone(), parse_query(&name, &check.sql)?)))
            .collect::<Result<_>>()?;
        Ok(Self { name, text: text.to_owned(), header, query, checks })
    }

    /// Returns the name it goes by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what it makes.
    pub fn kind(&self) -> Kind {
        self.header.kind
    }

    /// Returns what it is, in a sentence or two.
    pub fn doc(&self) -> &str {
        &self.header.doc
    }

    /// Returns its formula.
    pub fn formula(&self) -> Option<&str> {
        self.header.formula.as_deref()
    }

    /// Returns where its definition comes from.
    pub fn source(&self) -> Option<&str> {
        self.header.source.as_deref()
    }

    /// Returns how it differs from other recipes of its name.
    pub fn differs(&self) -> Option<&str> {
        self.header.differs.as_deref()
    }

    /// Returns its parameters in the order they are declared.
    pub fn parameters(&self) -> &[Parameter] {
        &self.header.parameters
    }

    /// Returns the text of its file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether its SELECT or one of its checks names a table, or a view over it that recipes alone have.
    fn reads(&self, table: &str) -> bool {
        let queries = std::iter::once(&self.query).chain(self.checks.iter().map(|check| &check.1));
        let is_over =
            |name: &String| name == table || scope::VIEWS.iter().any(|view| view.over == table && view.name == name);
        queries.into_iter().any(|query| statement::relations(&mut query.clone()).iter().any(is_over))
    }

    /// Returns the digest of its text.
    pub fn digest(&self) -> String {
        rollbook_schema::digest::bytes_digest(self.text.as_bytes())
    }
}
