//! docs/faults.md: each known fault, the checks that find it, and what cannot be decided.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::faults::Case;
use crate::{Error, ErrorKind, Result};

/// The public reports by kind, and those that no fixture holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// What a kind is.
    pub kinds: BTreeMap<String, String>,
    /// The reports.
    pub cases: Vec<Report>,
    /// Reports that the records cannot decide.
    pub undecided: Vec<Undecided>,
    /// Reports that more must be on record for than most sources keep.
    pub conditions: Vec<Undecided>,
}

/// A public report.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Its id.
    pub case: String,
    /// Its kind.
    pub kind: String,
}

/// A report that the records cannot decide.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Undecided {
    /// Its id.
    pub case: String,
    /// What happened.
    pub title: String,
    /// Why not.
    pub why: String,
}

impl Known {
    /// Reads `fixtures/faults/cases.json`.
    ///
    /// # Errors
    /// `Invalid` if it cannot be read.
    pub fn read() -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/faults/cases.json");
        serde_json::from_str(&fs::read_to_string(path)?)
            .map_err(|error| Error::new(ErrorKind::Invalid, format!("cases.json: {error}")))
    }

    /// Reports that have neither a fixture nor a reason.
    pub fn missing(&self, cases: &[Case]) -> Vec<&str> {
        let have: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        let reasons: BTreeSet<&str> = self.undecided.iter().map(|report| report.case.as_str()).collect();
        let names = self.cases.iter().map(|report| report.case.as_str());
        names.filter(|name| !have.contains(name) && !reasons.contains(name)).collect()
    }
}

/// The page.
///
/// # Errors
/// `Invalid` if the fixtures cannot be read.
pub fn page() -> Result<String> {
    let (known, cases) = (Known::read()?, crate::faults::cases()?);
    let mut text = String::from(
        "<!-- Generated: a test of rollbook-testing compares this page with the fixtures and says how to write it. -->\n\n\
         # Known faults\n\n\
         Public reports of faults in training data, each reduced to records in `crates/rollbook-testing/fixtures/faults`. A\n\
         test audits the records with the fault and the same records put right: the first must give the findings of this\n\
         table and no others, the second none. \"silent\" marks records that look wrong and are right.\n\n",
    );
    // Writing to a String cannot fail, here and below.
    let silent = cases.iter().filter(|case| !case.fires()).count();
    writeln!(
        text,
        "{} cases: {} in which a check fires, {silent} in which none may. {} reports cannot be decided.\n",
        cases.len(),
        cases.len() - silent,
        known.undecided.len()
    )
    .ok();
    let kind_of: BTreeMap<&str, &str> =
        known.cases.iter().map(|report| (report.case.as_str(), report.kind.as_str())).collect();
    for (kind, title) in &known.kinds {
        let own: Vec<&Case> =
            cases.iter().filter(|case| kind_of.get(case.name.as_str()) == Some(&kind.as_str())).collect();
        if !own.is_empty() {
            write!(text, "## {kind} {title}\n\n").ok();
            table(&mut text, &own);
        }
    }
    let own: Vec<&Case> = cases.iter().filter(|case| !kind_of.contains_key(case.name.as_str())).collect();
    text.push_str("## Made for a check\n\n");
    table(&mut text, &own);
    reasons(&mut text, "Decided on conditions", "what the records must hold", &known.conditions);
    reasons(&mut text, "Not decided", "why the records do not decide it", &known.undecided);
    Ok(text.trim_end().to_owned() + "\n")
}

fn reasons(text: &mut String, heading: &str, why: &str, reports: &[Undecided]) {
    if reports.is_empty() {
        return;
    }
    write!(text, "## {heading}\n\n| case | what happened | {why} |\n|---|---|---|\n").ok();
    for report in reports {
        writeln!(text, "| {} | {} | {} |", report.case, cell(&report.title), cell(&report.why)).ok();
    }
    text.push('\n');
}

fn table(text: &mut String, cases: &[&Case]) {
    text.push_str("| case | what happened | found by | at |\n|---|---|---|---|\n");
    for case in cases {
        let found: BTreeSet<&str> = case.checks().collect();
        let found =
            if found.is_empty() { "silent".to_owned() } else { found.into_iter().collect::<Vec<_>>().join(", ") };
        writeln!(text, "| {} | {} | {found} | {} |", case.name, cell(&case.title), cell(&case.places())).ok();
    }
    text.push('\n');
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_report_has_a_fixture_or_a_reason() {
        let (known, cases) = (Known::read().unwrap(), crate::faults::cases().unwrap());
        assert_eq!(known.missing(&cases), Vec::<&str>::new());
        let have: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert!(known.undecided.iter().all(|report| !have.contains(report.case.as_str())), "decided after all");
        assert!(known.cases.iter().all(|report| known.kinds.contains_key(&report.kind)));
    }

    /// `ROLLBOOK_WRITE_PAGES=1 cargo nextest run -E 'test(the_page_is_that_of_the_fixtures)'` writes it.
    #[test]
    fn the_page_is_that_of_the_fixtures() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/faults.md");
        let page = page().unwrap();
        if std::env::var_os("ROLLBOOK_WRITE_PAGES").is_some() {
            fs::write(&path, &page).unwrap();
        }
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert!(stored == page, "docs/faults.md differs from the fixtures: run this test with ROLLBOOK_WRITE_PAGES=1");
    }
}
