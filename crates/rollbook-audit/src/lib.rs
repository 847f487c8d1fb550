//! Rollbook's checks: questions over a snapshot's records, each written in SQL, and the findings they make.
//!
//! ```text
//! sql/audits/<family>/<name>/audit.sql -> Check (header + query) -> Session -> Finding* -> Report -> findings, audits
//! ```
//!
//! A check's query returns one row a finding. What SQL cannot say is a scalar function here (it looks at one row's lists)
//! or a table function (it reads the lake a second time, only where a first, narrow look gave cause to).

mod account;
#[cfg(test)]
mod arrow_tests;
mod catalog;
mod check;
mod functions;
mod junit;
mod prepare;
mod quarantine;
mod record;
mod register;
mod report;
mod row_places;
mod rules;
mod run;
mod shared;
mod since;
mod tables;
#[cfg(test)]
mod tests;
mod turns;

pub use account::{BuildKey, account, find_build, rollout_account};
pub use catalog::{check, checks};
pub use check::{Check, Outcome, Scope};
pub use junit::junit;
pub use quarantine::{Quarantined, lift, quarantine, quarantined};
pub use record::{Recorded, record};
pub use register::register;
pub use report::{Count, Finding, Report};
pub use rollbook_query::{Error, ErrorKind, Result};
pub use rules::{Rule, RuleChanges, rules, set_rules};
pub use run::{AuditOptions, FINDINGS_KEPT, audit};
pub use since::Since;
