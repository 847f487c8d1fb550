//! Records of known faults, each with the findings that an audit must make on them.
//!
//! `fixtures/faults/README.md` lists the cases and says what the keys of `expect.json` mean.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Error, ErrorKind, Result};

/// The checks that the expectations speak about; findings of others are not compared.
pub const CHECKS: &[&str] = &[
    "token/source",
    "token/equal",
    "token/prefix",
    "token/parent",
    "token/mask",
    "token/coverage",
    "token/length",
    "token/logprob_value",
    "token/logprob_align",
    "token/logprob_kind",
    "token/precision",
    "token/finish",
    "token/bos",
    "token/vocab",
    "token/multimodal",
    "token/experts",
    "token/request",
    "token/template",
    "token/text",
    "token/parse",
    "token/update",
    "token/digest",
    "rollout/group",
    "rollout/orphan",
    "rollout/duplicate",
    "rollout/version",
    "rollout/adapter",
    "rollout/run",
    "rollout/evidence",
    "rollout/selection",
    "score/raw",
    "score/valid",
    "score/derive",
    "score/input",
    "score/evidence",
    "score/place",
    "score/range",
    "score/baseline_set",
    "pack/once",
    "pack/weight",
    "pack/scale",
    "pack/denominator",
    "pack/steps",
    "pack/rows",
    "pack/conserve",
    "pack/boundary",
    "pack/segments",
    "pack/position",
    "pack/pad",
    "pack/mask_consistency",
    "pack/kl_mask",
    "pack/metric",
    "pack/credit",
];

/// One fault, or one record that looks like a fault and is none.
#[derive(Debug, Clone)]
pub struct Case {
    /// The folder's name: `B…` for a public report, `own-…` for a case of ours.
    pub name: String,
    /// What happened.
    pub title: String,
    folder: PathBuf,
    has_good: bool,
    expected: Vec<Map<String, Value>>,
    may: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    title: String,
    #[serde(rename = "source")]
    _source: Option<String>,
    #[serde(rename = "note")]
    _note: Option<String>,
    bad: Vec<Map<String, Value>>,
    good: Vec<Map<String, Value>>,
    #[serde(default)]
    may: Vec<String>,
    #[serde(default, rename = "also")]
    _also: Vec<String>,
}

/// All cases, by name.
///
/// # Errors
/// `Invalid` if an `expect.json` cannot be read.
pub fn cases() -> Result<Vec<Case>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/faults");
    let mut folders = Vec::new();
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    folders.into_iter().map(Case::read).collect()
}

impl Case {
    fn read(folder: PathBuf) -> Result<Self> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let invalid = |why: String| Error::new(ErrorKind::Invalid, format!("{name}/expect.json: {why}"));
        let text = fs::read_to_string(folder.join("expect.json"))?;
        let read: Expectation = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        let code = |item: &Map<String, Value>| item.get("check").and_then(Value::as_str).map(str::to_owned);
        let mut codes = read.bad.iter().map(|item| code(item).unwrap_or_default());
        if let Some(unknown) = codes.find(|code| !CHECKS.contains(&code.as_str())) {
            return Err(invalid(format!("{unknown:?} is no check of the list")));
        }
        if !read.good.is_empty() {
            return Err(invalid("nothing may be found on the good side".to_owned()));
        }
        let has_good = folder.join("good").is_dir();
        Ok(Self { name, title: read.title, folder, has_good, expected: read.bad, may: read.may })
    }

    /// The folder with the fault, in the exchange format.
    pub fn bad(&self) -> PathBuf {
        self.folder.join("bad")
    }

    /// The same records put right; none where the case is a trap.
    pub fn good(&self) -> Option<PathBuf> {
        self.has_good.then(|| self.folder.join("good"))
    }

    /// The checks that must fire on the bad side.
    pub fn checks(&self) -> impl Iterator<Item = &str> {
        self.expected.iter().filter_map(|item| item.get("check").and_then(Value::as_str))
    }

    /// Where they must fire, the first few.
    pub fn places(&self) -> String {
        const KEYS: [&str; 7] =
            ["group_id", "rollout_id", "call_id", "build_id", "row_index", "position", "derivation_id"];
        let place = |item: &Map<String, Value>| {
            let part = |key: &&str| {
                let value = item.get(*key)?;
                let name = key.trim_end_matches("_id").trim_end_matches("_index");
                Some(format!("{name} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
            };
            KEYS.iter().filter_map(part).collect::<Vec<_>>().join(" ")
        };
        let mut places: Vec<String> = self.expected.iter().map(place).filter(|place| !place.is_empty()).collect();
        places.dedup();
        let more = places.len().saturating_sub(3);
        places.truncate(3);
        if more > 0 {
            places.push(format!("{more} more"));
        }
        places.join("; ")
    }

    /// Whether anything must be found on the bad side.
    pub fn fires(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Says how the findings on the bad side, as objects with the columns of `findings`, differ from what must be found.
    pub fn differences_on_bad(&self, findings: &[Value]) -> Vec<String> {
        let judged = judged(findings);
        // What is missing is told beside the findings: only where a case is about a gap is it demanded.
        let missing = self
            .expected
            .iter()
            .filter(|item| !findings.iter().any(|finding| matches(item, finding)))
            .map(|item| format!("{}: not found: {}", self.name, Value::Object((*item).clone())));
        let is_allowed = |finding: &Value| {
            self.expected.iter().any(|item| matches(item, finding))
                || self.may.iter().any(|check| finding.get("check").and_then(Value::as_str) == Some(check))
        };
        let surplus = judged
            .iter()
            .filter(|finding| !is_allowed(finding))
            .map(|finding| format!("{}: must not be found: {finding}", self.name));
        missing.chain(surplus).collect()
    }

    /// Says what was found on the good side, where nothing may be.
    pub fn differences_on_good(&self, findings: &[Value]) -> Vec<String> {
        judged(findings)
            .iter()
            .map(|finding| format!("{} put right: must not be found: {finding}", self.name))
            .collect()
    }
}

/// Keys that name something of the whole lake; the cases all use the same names.
const LAKE_KEYS: [&str; 5] = ["run_id", "build_id", "derivation_id", "encoding_id", "upstream_derivation_ids"];

/// A side of a case: as reported, or put right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// With the fault.
    Bad,
    /// Put right.
    Good,
}

/// Writes sides of the cases into one folder in the exchange format, each as runs of its own. Both sides of a case are
/// near copies, which checks that look across runs say.
///
/// # Errors
/// A folder that cannot be read or written.
pub fn gather(cases: &[Case], sides: &[Side], into: &Path) -> Result<()> {
    let mut tables: BTreeMap<String, String> = BTreeMap::new();
    for case in cases {
        for (side, folder) in [(Side::Bad, Some(case.bad())), (Side::Good, case.good())] {
            let Some(folder) = folder.filter(|_| sides.contains(&side)) else {
                continue;
            };
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if path.is_dir() {
                    copy_files(&path, &into.join(name), &case.prefix(side))?;
                    continue;
                }
                let text = fs::read_to_string(&path)?;
                let lines = text.lines().filter(|line| !line.trim().is_empty());
                let rows = lines.map(|line| prefixed(line, &case.prefix(side)) + "\n").collect::<String>();
                tables.entry(name).or_default().push_str(&rows);
            }
        }
    }
    for (name, rows) in tables {
        fs::write(into.join(name), rows)?;
    }
    Ok(())
}

/// Copies a folder's files, such as tokenizers and templates, which digests name: those of several cases may lie together.
fn copy_files(from: &Path, into: &Path, prefix: &str) -> Result<()> {
    fs::create_dir_all(into)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), into.join(format!("{prefix}{}", entry.file_name().to_string_lossy())))?;
    }
    Ok(())
}

/// A row whose lake-wide names begin with the prefix. The row stays the text it is, since JSON has no NaN.
fn prefixed(row: &str, prefix: &str) -> String {
    let mut out = String::with_capacity(row.len() + prefix.len());
    let mut rest = row;
    while let Some(end) = next_key(rest) {
        let (key, after) = rest.split_at(end);
        out.push_str(key);
        let blank = after.len() - after.trim_start().len();
        let (space, value) = after.split_at(blank);
        out.push_str(space);
        // One name, or a list of them; a null is neither.
        let names = match value.chars().next() {
            Some('"') => value[1..].find('"').map_or(value.len(), |at| at + 2),
            Some('[') => value.find(']').map_or(value.len(), |at| at + 1),
            _ => 0,
        };
        let (names, after) = value.split_at(names);
        for (index, part) in names.split('"').enumerate() {
            if index > 0 {
                out.push('"');
            }
            if index % 2 == 1 {
                out.push_str(prefix);
            }
            out.push_str(part);
        }
        rest = after;
    }
    out + rest
}

/// The end of the next lake-wide key with its colon.
fn next_key(text: &str) -> Option<usize> {
    let ends = LAKE_KEYS.iter().filter_map(|key| {
        let quoted = format!("\"{key}\"");
        let end = text.find(&quoted)? + quoted.len();
        let colon = text[end..].find(':')?;
        text[end..end + colon].trim().is_empty().then_some(end + colon + 1)
    });
    ends.min()
}

impl Case {
    fn prefix(&self, side: Side) -> String {
        let side = if side == Side::Bad { "bad" } else { "good" };
        format!("{}-{side}~", self.name)
    }

    /// The findings on one side of the case among those on a gathered folder, as they would be on its own folder.
    pub fn own(&self, side: Side, findings: &[Value]) -> Vec<Value> {
        let prefix = self.prefix(side);
        let is_own = |finding: &&Value| {
            ["run_id", "build_id", "derivation_id"]
                .iter()
                .any(|key| finding.get(key).and_then(Value::as_str).is_some_and(|name| name.starts_with(&prefix)))
        };
        findings.iter().filter(is_own).map(|finding| without(finding, &prefix)).collect()
    }
}

fn without(value: &Value, prefix: &str) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace(prefix, "")),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, value)| (key.clone(), without(value, prefix))).collect())
        }
        other => other.clone(),
    }
}

/// The findings that the expectations speak about.
fn judged(findings: &[Value]) -> Vec<&Value> {
    let is_judged = |finding: &&Value| {
        let text = |key: &str| finding.get(key).and_then(Value::as_str);
        text("check").is_some_and(|check| CHECKS.contains(&check)) && text("outcome") != Some("undeclared")
    };
    findings.iter().filter(is_judged).collect()
}

/// Whether a finding has every key of the item, with an equal value.
fn matches(item: &Map<String, Value>, finding: &Value) -> bool {
    item.iter().all(|(key, value)| finding.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn case(name: &str) -> Case {
        cases().unwrap().into_iter().find(|case| case.name == name).unwrap()
    }

    #[test]
    fn every_case_has_its_records() {
        let cases = cases().unwrap();
        assert!(cases.len() >= 40, "{}", cases.len());
        for case in &cases {
            assert!(case.bad().join("runs.jsonl").is_file(), "{}", case.name);
            assert!(case.fires() || !case.title.is_empty(), "{}", case.name);
        }
        for check in CHECKS {
            let fires = |case: &&Case| case.expected.iter().any(|item| item["check"] == json!(check));
            assert!(cases.iter().any(|case| fires(&case)), "no case for {check}");
        }
    }

    #[test]
    fn gathered_names_begin_with_their_case_and_nothing_else_changes() {
        let row =
            r#"{"run_id": "run", "x": NaN, "build_id":null, "upstream_derivation_ids": ["a", "b"], "note": "run_id"}"#;
        let gathered = r#"{"run_id": "C-bad~run", "x": NaN, "build_id":null, "upstream_derivation_ids": ["C-bad~a", "C-bad~b"], "note": "run_id"}"#;
        assert_eq!(prefixed(row, "C-bad~"), gathered);
        let case = case("B009");
        let finding = json!({"run_id": "B009-bad~run", "message": "build B009-bad~build", "position": 2});
        let own = json!({"run_id": "run", "message": "build build", "position": 2});
        assert_eq!(case.own(Side::Bad, std::slice::from_ref(&finding)), [own]);
        assert!(case.own(Side::Good, &[finding]).is_empty());
    }

    #[test]
    fn a_missing_and_a_surplus_finding_are_told() {
        let case = case("B009");
        let right = json!({"check": "token/prefix", "outcome": "violation", "run_id": "run", "rollout_id": "r1",
            "call_id": "c2", "position": 2, "position_in": "prompt", "message": "not compared"});
        assert_eq!(case.differences_on_bad(std::slice::from_ref(&right)), Vec::<String>::new());
        assert_eq!(case.differences_on_bad(&[]).len(), 1);
        let mut elsewhere = right.clone();
        elsewhere["position"] = json!(3);
        assert_eq!(case.differences_on_bad(&[right.clone(), elsewhere]).len(), 1);
        let undeclared = json!({"check": "token/digest", "outcome": "undeclared"});
        assert_eq!(case.differences_on_bad(&[right.clone(), undeclared]), Vec::<String>::new());
        assert_eq!(case.differences_on_good(&[right]).len(), 1);
    }
}
