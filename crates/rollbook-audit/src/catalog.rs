//! All checks, in the order of the documentation: tokens, rollouts, scores, packing.

use std::sync::LazyLock;

use crate::check::Check;

macro_rules! sources {
    ($($code:literal),* $(,)?) => {
        &[$((
            $code,
            include_str!(concat!("../../../sql/audits/", $code, "/audit.sql")),
            include_str!(concat!("../../../sql/audits/", $code, "/README.md")),
        )),*]
    };
}

/// Code, SQL and page of every check; a test compares the list with `sql/audits`.
const SOURCES: &[(&str, &str, &str)] = sources![
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

static CHECKS: LazyLock<Vec<Check>> =
    LazyLock::new(|| SOURCES.iter().map(|(code, sql, readme)| Check::parse(code, sql, readme)).collect());

/// Returns every check.
pub fn checks() -> &'static [Check] {
    &CHECKS
}

/// Finds a check by its code.
pub fn check(code: &str) -> Option<&'static Check> {
    checks().iter().find(|check| check.code == code)
}

/// Finds the checks whose code a pattern with `*` and `?` matches.
pub(crate) fn matching(pattern: &str) -> Vec<&'static Check> {
    checks().iter().filter(|check| matches(pattern.as_bytes(), check.code.as_bytes())).collect()
}

fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            matches(rest, text) || text.split_first().is_some_and(|(_, tail)| matches(pattern, tail))
        }
        (Some((b'?', rest)), Some((_, tail))) => matches(rest, tail),
        (Some((one, rest)), Some((other, tail))) => one == other && matches(rest, tail),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_list_is_what_the_folder_holds() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sql/audits");
        let folders = |path: &Path| {
            let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
            entries.filter(|path| path.is_dir()).collect::<Vec<_>>()
        };
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut found = BTreeSet::new();
        for family in folders(&root) {
            for check in folders(&family) {
                assert!(check.join("audit.slt").is_file(), "{} has no audit.slt", check.display());
                found.insert(format!("{}/{}", name(&family), name(&check)));
            }
        }
        assert_eq!(found, checks().iter().map(|check| check.code.to_owned()).collect());
    }

    #[test]
    fn every_header_and_page_is_complete() {
        const LAYERS: [&str; 6] = ["policy", "environment", "encoding", "scoring", "credit", "sample"];
        for check in checks() {
            let code = check.code;
            assert!(check.question.ends_with('?'), "{code}: question");
            assert!(LAYERS.contains(&check.layer.as_str()), "{code}: layer");
            assert!(["error", "warning", "info"].contains(&check.severity.as_str()), "{code}: severity");
            assert!(check.version > 0 && !check.needs.is_empty(), "{code}: version, needs");
            assert!(check.examined.contains("examined"), "{code}: examined");
            for heading in
                ["## What it proves", "## What it cannot", "## Needs", "## False positives", "## Fix", "## Example"]
            {
                assert!(check.readme.contains(heading), "{code}: README.md lacks {heading}");
            }
        }
    }

    #[test]
    fn patterns_match_codes() {
        let tokens = checks().iter().filter(|check| check.code.starts_with("token/")).count();
        assert_eq!(matching("token/*").len(), tokens);
        assert_eq!(matching("*").len(), checks().len());
        assert_eq!(matching("pack/onc?").len(), 1);
        assert!(matching("token").is_empty());
    }
}
