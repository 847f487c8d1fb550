//! One check: what its leading comment declares, and its query.
//!
//! ```text
//! -- @question Does …?                            one sentence; a line without `@` continues the one above
//! -- @layer sample                                policy | environment | encoding | scoring | credit | sample
//! -- @severity error                              error | warning | info
//! -- @version 1                                   a new version examines everything again
//! -- @outcome violation                           what a row without a column `outcome` means
//! -- @scope rollout                               rollout | build | run (default): what must be seen to judge; see `since`
//! -- @needs calls.output_len, runs.vocab_size     columns, and expectations of the run
//! -- @examined                                    a query: run_id, examined (how many things were judged)
//! --   SELECT run_id, count(*) AS examined FROM calls GROUP BY run_id
//! -- @undeclared                                  queries: run_id, [build_id,] missing, remedy; one row a missing field
//! --   SELECT …
//! SELECT …                                        the findings
//! ```

use serde::Serialize;

/// What a finding means, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It cannot be judged: a field or an expectation is missing.
    Undeclared,
    /// A declared expectation is broken.
    Rule,
    /// The record contradicts itself.
    Violation,
}

impl Outcome {
    /// Returns the word that findings have for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Undeclared => "undeclared",
            Self::Rule => "rule",
            Self::Violation => "violation",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Undeclared, Self::Rule, Self::Violation].into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// What a check must see to judge one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One rollout's rows, or one build's, each by itself.
    Rollout,
    /// A build's rows, and anything of its run.
    Build,
    /// Anything in a run.
    #[default]
    Run,
    /// Runs beside each other.
    Lake,
}

impl Scope {
    /// Reads the word.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "rollout" => Some(Self::Rollout),
            "build" => Some(Self::Build),
            "run" => Some(Self::Run),
            "lake" => Some(Self::Lake),
            _ => None,
        }
    }
}

/// One check of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// `family/name`.
    pub code: &'static str,
    /// What it asks.
    pub question: String,
    /// Where to look when it fires.
    pub layer: String,
    /// error, warning or info.
    pub severity: String,
    /// Version of its definition.
    pub version: u32,
    /// What a row of its query means that does not say so itself.
    pub outcome: Outcome,
    /// What it must see to judge one thing.
    pub scope: Scope,
    /// Columns and expectations it reads.
    pub needs: Vec<String>,
    /// Its page: what it proves and what it cannot, false positives, the fix, an example.
    pub readme: &'static str,
    /// Its whole SQL text.
    pub sql: &'static str,
    /// Query that counts what it judged.
    pub(crate) examined: String,
    /// Queries that say what is missing.
    pub(crate) undeclared: Vec<String>,
}

impl Check {
    /// Reads a check from its folder's files; what the header leaves out is empty.
    pub(crate) fn parse(code: &'static str, sql: &'static str, readme: &'static str) -> Self {
        let entries = entries(sql);
        let prose = |tag: &str| entries.iter().find(|entry| entry.tag == tag).map(Entry::prose).unwrap_or_default();
        let queries = |tag: &str| entries.iter().filter(|entry| entry.tag == tag).map(Entry::query).collect::<Vec<_>>();
        Self {
            code,
            question: prose("question"),
            layer: prose("layer"),
            severity: prose("severity"),
            version: prose("version").parse().unwrap_or_default(),
            outcome: Outcome::parse(&prose("outcome")).unwrap_or(Outcome::Violation),
            scope: Scope::parse(&prose("scope")).unwrap_or_default(),
            needs: prose("needs")
                .split(',')
                .map(|need| need.trim().to_owned())
                .filter(|need| !need.is_empty())
                .collect(),
            readme,
            sql,
            examined: queries("examined").into_iter().next().unwrap_or_default(),
            undeclared: queries("undeclared"),
        }
    }
}

struct Entry {
    tag: String,
    lines: Vec<String>,
}

impl Entry {
    fn prose(&self) -> String {
        self.lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    }

    fn query(&self) -> String {
        self.lines.join("\n")
    }
}

fn entries(sql: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in sql.lines() {
        let Some(comment) = line.strip_prefix("--") else {
            break;
        };
        if let Some(tagged) = comment.trim_start().strip_prefix('@') {
            let (tag, rest) = tagged.split_once(char::is_whitespace).unwrap_or((tagged, ""));
            entries.push(Entry { tag: tag.to_owned(), lines: vec![rest.to_owned()] });
        } else if let Some(entry) = entries.last_mut() {
            entry.lines.push(comment.to_owned());
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_tag_by_tag() {
        let check = Check::parse(
            "a/b",
            "-- @question Is it\n--   so?\n-- @layer sample\n-- @severity error\n-- @version 2\n-- @outcome rule\n\
             -- @needs x.y, z\n-- @examined\n--   SELECT 1\n--   FROM t\n-- @undeclared\n--   SELECT 2\n\
             -- @undeclared\n--   SELECT 3\nSELECT 4 -- @no tag\n",
            "",
        );
        assert_eq!(check.question, "Is it so?");
        assert_eq!((check.version, check.outcome), (2, Outcome::Rule));
        assert_eq!(check.needs, ["x.y", "z"]);
        assert_eq!(check.examined.split_whitespace().collect::<Vec<_>>(), ["SELECT", "1", "FROM", "t"]);
        assert_eq!(check.undeclared.len(), 2);
    }

    #[test]
    fn a_violation_is_worse_than_a_broken_rule_and_that_than_a_gap() {
        assert!(Outcome::Violation > Outcome::Rule && Outcome::Rule > Outcome::Undeclared);
    }
}
