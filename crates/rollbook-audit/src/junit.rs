//! A report as `JUnit` XML: a check is a test case, a finding a failure.
//!
//! ```text
//! <testsuites>
//!   <testsuite name="token" tests=… failures=… skipped=…>      a family of checks
//!     <testcase classname="token" name="prefix">               a check
//!       <failure type="violation" message="…">place</failure>  a finding that fails the audit
//!       <skipped message="…"/>                                 it could not be judged, and nothing failed
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::check::Outcome;
use crate::report::{Count, Finding, Report};

/// Writes a report; `fails` says which outcomes are failures. What cannot be judged and is none is a skipped case.
pub fn junit(report: &Report, fails: impl Fn(Outcome) -> bool) -> String {
    let mut families: BTreeMap<&str, Vec<&Count>> = BTreeMap::new();
    for count in &report.checks {
        families.entry(family(count.check).0).or_default().push(count);
    }
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a String cannot fail, here and below.
    writeln!(xml, "<testsuites name=\"rollbook audit of snapshot {}\">", report.snapshot).ok();
    for (family, counts) in families {
        let failed = counts.iter().filter(|count| failures(count, &fails) > 0).count();
        let skipped = counts.iter().filter(|count| failures(count, &fails) == 0 && count.undeclared > 0).count();
        writeln!(
            xml,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"{skipped}\">",
            escaped(family),
            counts.len()
        )
        .ok();
        for count in counts {
            case(&mut xml, report, count, &fails);
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn family(check: &str) -> (&str, &str) {
    check.split_once('/').unwrap_or(("", check))
}

fn failures(count: &Count, fails: &impl Fn(Outcome) -> bool) -> u64 {
    [(Outcome::Violation, count.violation), (Outcome::Rule, count.rule), (Outcome::Undeclared, count.undeclared)]
        .into_iter()
        .filter(|(outcome, _)| fails(*outcome))
        .map(|(_, number)| number)
        .sum()
}

fn case(xml: &mut String, report: &Report, count: &Count, fails: &impl Fn(Outcome) -> bool) {
    let (family, name) = family(count.check);
    write!(xml, "    <testcase classname=\"{}\" name=\"{}\"", escaped(family), escaped(name)).ok();
    if count.found() == 0 {
        xml.push_str("/>\n");
        return;
    }
    xml.push_str(">\n");
    let failed: Vec<&Finding> = report.of(count.check).filter(|finding| fails(finding.outcome)).collect();
    for finding in &failed {
        writeln!(
            xml,
            "      <failure type=\"{}\" message=\"{}\">{}</failure>",
            finding.outcome.as_str(),
            escaped(&finding.message),
            escaped(&place(finding))
        )
        .ok();
    }
    let left = failures(count, fails).saturating_sub(failed.len() as u64);
    if left > 0 {
        writeln!(xml, "      <failure type=\"more\" message=\"{left} more findings were counted and not kept\"/>").ok();
    }
    let milder: Vec<&Finding> = report.of(count.check).filter(|finding| !fails(finding.outcome)).collect();
    let texts = milder.iter().map(|finding| finding.message.as_str()).collect::<Vec<_>>().join("\n");
    if failures(count, fails) == 0 && count.undeclared > 0 {
        writeln!(xml, "      <skipped message=\"{}\"/>", escaped(&texts)).ok();
    } else if !texts.is_empty() {
        writeln!(xml, "      <system-out>{}</system-out>", escaped(&texts)).ok();
    }
    xml.push_str("    </testcase>\n");
}

/// Where a finding is, as name=value.
fn place(finding: &Finding) -> String {
    let text = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name}={value}"));
    let number = |name: &str, value: Option<i64>| value.map(|value| format!("{name}={value}"));
    let parts = [
        text("run_id", &finding.run_id),
        number("step", finding.step),
        text("group_id", &finding.group_id),
        text("rollout_id", &finding.rollout_id),
        text("call_id", &finding.call_id),
        text("build_id", &finding.build_id),
        text("derivation_id", &finding.derivation_id),
        number("epoch", finding.epoch.map(i64::from)),
        number("micro_batch", finding.micro_batch.map(i64::from)),
        number("rank", finding.rank.map(i64::from)),
        number("row_index", finding.row_index.map(i64::from)),
        number("position", finding.position.map(i64::from)),
        text("position_in", &finding.position_in),
        number("length", finding.length.map(i64::from)),
        text("expected", &finding.expected),
        text("observed", &finding.observed),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// A text as XML holds it, in attributes too; characters that XML cannot hold are shown as U+FFFD.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            '\r' => out.push_str("&#13;"),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(outcome: Outcome, message: &str) -> Finding {
        Finding {
            audit_id: None,
            check: "token/prefix".to_owned(),
            outcome,
            severity: "error".to_owned(),
            layer: "encoding".to_owned(),
            run_id: Some("a<b>&\"'".to_owned()),
            step: Some(3),
            group_id: None,
            rollout_id: None,
            call_id: None,
            build_id: None,
            derivation_id: None,
            epoch: None,
            micro_batch: None,
            rank: None,
            row_index: None,
            position: Some(7),
            position_in: None,
            length: None,
            expected: None,
            observed: None,
            message: message.to_owned(),
        }
    }

    fn report(findings: Vec<Finding>, violation: u64, rule: u64, undeclared: u64) -> Report {
        let count = Count { check: "token/prefix", version: 1, violation, rule, undeclared, examined: 1 };
        let clean = Count { check: "pack/once", version: 1, violation: 0, rule: 0, undeclared: 0, examined: 0 };
        Report { snapshot: 4, checks: vec![count, clean], findings, since: None, run: None }
    }

    #[test]
    fn texts_are_escaped_and_places_named() {
        let xml = junit(&report(vec![finding(Outcome::Violation, "x < \u{1b}[31m\u{0} & \"y\"\n")], 1, 0, 0), |_| true);
        assert!(xml.contains("message=\"x &lt; \u{fffd}[31m\u{fffd} &amp; &quot;y&quot;&#10;\""), "{xml}");
        assert!(xml.contains("run_id=a&lt;b&gt;&amp;&quot;&apos;&#10;step=3&#10;position=7"), "{xml}");
        assert!(xml.contains("<testcase classname=\"pack\" name=\"once\"/>"), "{xml}");
        assert!(
            xml.contains("<testsuite name=\"token\" tests=\"1\" failures=\"1\" errors=\"0\" skipped=\"0\">"),
            "{xml}"
        );
    }

    #[test]
    fn what_does_not_fail_is_skipped_or_told() {
        let fails = |outcome| outcome == Outcome::Violation;
        let gap = finding(Outcome::Undeclared, "no ids");
        let xml = junit(&report(vec![gap.clone()], 0, 0, 1), fails);
        assert!(xml.contains("<skipped message=\"no ids\"/>") && xml.contains("skipped=\"1\""), "{xml}");
        let xml = junit(&report(vec![finding(Outcome::Violation, "broken"), gap], 3, 0, 1), fails);
        assert!(xml.contains("<system-out>no ids</system-out>"), "{xml}");
        assert!(xml.contains("2 more findings were counted"), "{xml}");
        let rule = junit(&report(vec![finding(Outcome::Rule, "rule")], 0, 1, 0), fails);
        assert!(!rule.contains("<failure") && rule.contains("<system-out>rule</system-out>"), "{rule}");
    }
}
