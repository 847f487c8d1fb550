//! `rollbook compare`: two rewards, credits or builds side by side.

use std::process::ExitCode;

use clap::Args;
use rollbook_query::compare::{CompareOptions, Comparison, Difference, Histogram, Measure, compare};
use serde_json::{Value, json};

use super::schema::TextFormat;
use crate::error::Result;
use crate::lake::ReadArgs;
use crate::output::{line, note, small_table, width};

/// Compare two rewards, credits or builds: where and by how much they differ
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook compare grpo rloo --lake my-lake              the newest of two credits
  rollbook compare grpo@derivation-01 grpo@derivation-02 two runs of one recipe
  rollbook compare merged short --top 20                 two builds, by trained token

A side is NAME (its newest), NAME@ID, or the id of a derivation or build. Equal means to 1e-9 of the size, stored floats to
1e-6. Spearman's rho and Kendall's tau-b are over all values that both sides have, up to 8 million; beyond that they, and the
distribution, are over the rollouts' means, which is said. A setting that is the same on both sides is not shown.")]
pub(crate) struct Arguments {
    /// One reward, credit or build
    a: String,
    /// The other
    b: String,
    #[command(flatten)]
    read: ReadArgs,
    /// What the names are, where one could be several: reward, credit or build
    #[arg(long)]
    kind: Option<String>,
    /// Run to compare; all when left out
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// How many of the largest differences are shown
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Table)]
    format: TextFormat,
}

/// Compares and prints.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let options = CompareOptions { kind: arguments.kind, run: arguments.run, top: Some(arguments.top) };
    let session = arguments.read.session().await?;
    let found = compare(&session, &arguments.a, &arguments.b, &options).await?;
    match arguments.format {
        TextFormat::Json => line(&as_json(&found).to_string())?,
        TextFormat::Table => show(&found)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(found: &Comparison) -> Result<()> {
    for text in &found.notes {
        note(&format!("note: {text}"));
    }
    line(&format!("{} by {}   A = {}   B = {}", found.kind, found.level, found.a.0, found.b.0))?;
    for measure in &found.measures {
        line("")?;
        line(&small_table(&[measure.name, ""], &figures(measure)))?;
        if let Some(histogram) = &measure.histogram {
            line("")?;
            line(&format!("distribution over {}s, A left, B right", measure.ranked))?;
            for text in bars(histogram, width()) {
                line(&text)?;
            }
        }
        let lists = [("rollouts", &measure.rollouts), (found.level, &measure.items)];
        for (name, differences) in lists.into_iter().filter(|(_, differences)| !differences.is_empty()) {
            line("")?;
            line(&format!("largest differences: {}{}", name, if name.ends_with('s') { "" } else { "s" }))?;
            line(&largest(differences))?;
        }
    }
    line("")?;
    if found.settings.is_empty() {
        return line("no recorded setting differs");
    }
    let none = || "none".to_owned();
    let rows: Vec<Vec<String>> = found
        .settings
        .iter()
        .map(|setting| {
            vec![setting.name.clone(), setting.a.clone().unwrap_or_else(none), setting.b.clone().unwrap_or_else(none)]
        })
        .collect();
    line(&small_table(&["setting that differs", "A", "B"], &rows))
}

fn figures(measure: &Measure) -> Vec<Vec<String>> {
    let finite = measure.both - measure.not_finite;
    #[expect(clippy::cast_precision_loss, reason = "a share, shown to a tenth of a percent")]
    let share = |count: u64| {
        let percent = if finite == 0 { 0.0 } else { 100.0 * count as f64 / finite as f64 };
        format!("{count} ({percent:.1} %)")
    };
    let real = |value: Option<f64>| value.map_or_else(|| "none: a side has one value only".to_owned(), number);
    let mut rows = vec![
        ("in both", measure.both.to_string()),
        ("only in A", measure.only_a.to_string()),
        ("only in B", measure.only_b.to_string()),
        ("equal", share(measure.equal)),
        ("signs flipped", share(measure.sign_flips)),
        ("zero on one side", share(measure.one_is_zero)),
    ];
    if measure.not_finite > 0 {
        rows.push(("NaN or infinite, left out", measure.not_finite.to_string()));
    }
    if let (Some((a, b)), Some(difference), Some(most)) =
        (measure.mean, measure.mean_difference, measure.max_difference)
    {
        rows.push(("mean of A, of B", format!("{}, {}", number(a), number(b))));
        rows.push(("mean, largest |A - B|", format!("{}, {}", number(difference), number(most))));
        rows.push(("Spearman's rho", real(measure.spearman)));
        rows.push(("Kendall's tau-b", real(measure.kendall)));
    }
    rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect()
}

fn largest(differences: &[Difference]) -> String {
    let several = differences.iter().any(|one| differences.iter().any(|other| one.run_id != other.run_id));
    let has_call = differences.iter().any(|difference| difference.call_id.is_some());
    let has_position = differences.iter().any(|difference| difference.position.is_some());
    let mut header = Vec::new();
    let shown = [(several, "run"), (true, "rollout"), (has_call, "call"), (has_position, "token")];
    header.extend(shown.iter().filter(|(is_shown, _)| *is_shown).map(|(_, name)| *name));
    header.extend(["A", "B", "A - B"]);
    let rows: Vec<Vec<String>> = differences
        .iter()
        .map(|difference| {
            let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "?".to_owned());
            let position = difference.position.map_or_else(String::new, |position| position.to_string());
            let ids = [text(&difference.run_id), text(&difference.rollout_id), text(&difference.call_id), position];
            let mut row: Vec<String> =
                ids.into_iter().zip(shown).filter(|(_, (is_shown, _))| *is_shown).map(|(id, _)| id).collect();
            row.extend([number(difference.a), number(difference.b), number(difference.a - difference.b)]);
            row
        })
        .collect();
    small_table(&header, &rows)
}

/// Draws a histogram: a line a bin, both sides to one scale.
fn bars(histogram: &Histogram, width: usize) -> Vec<String> {
    let edges: Vec<String> = (0..=histogram.a.len()).map(|bin| short(histogram.edge(bin))).collect();
    let label = edges.iter().map(String::len).max().unwrap_or(0);
    let counts = histogram.a.iter().chain(&histogram.b);
    let most = counts.clone().copied().max().unwrap_or(0).max(1);
    let digits = most.to_string().len();
    // Two bars, two counts, a label, and the gaps between them.
    let bar = width.saturating_sub(label + 2 * digits + 8) / 2;
    histogram
        .a
        .iter()
        .zip(&histogram.b)
        .zip(&edges)
        .map(|((a, b), edge)| {
            let (left, right) = (blocks(*a, most, bar), blocks(*b, most, bar));
            format!("{edge:>label$}  {a:>digits$} {left:<bar$}  {b:>digits$} {right}").trim_end().to_owned()
        })
        .collect()
}

/// A bar for a count; what is not zero is seen.
fn blocks(count: u64, most: u64, bar: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = u128::from(count) * (bar as u128) * 8 / u128::from(most);
    let eighths = usize::try_from(eighths).unwrap_or(0).max(usize::from(count > 0));
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

/// A number to nine digits: what is equal to 1e-9 looks equal. `--format json` has all of them.
fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || !size.is_finite() {
        return value.to_string();
    }
    let rounded: f64 = format!("{value:.8e}").parse().unwrap_or(value);
    if (1e-4..1e9).contains(&size) { rounded.to_string() } else { format!("{rounded:e}") }
}

fn short(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-3..1e6).contains(&size) { format!("{value:.4}") } else { format!("{value:.3e}") }
}

fn as_json(found: &Comparison) -> Value {
    let side = |side: &(String, Vec<String>)| json!({ "name": side.0, "derivation_ids": side.1 });
    let settings: Vec<Value> = found
        .settings
        .iter()
        .map(|setting| json!({ "setting": setting.name, "a": setting.a, "b": setting.b }))
        .collect();
    json!({
        "kind": found.kind,
        "level": found.level,
        "a": side(&found.a),
        "b": side(&found.b),
        "measures": found.measures.iter().map(measure_json).collect::<Vec<_>>(),
        "settings": settings,
        "notes": found.notes,
    })
}

fn measure_json(measure: &Measure) -> Value {
    let differences = |list: &[Difference]| -> Vec<Value> {
        list.iter()
            .map(|difference| {
                json!({
                    "run_id": difference.run_id,
                    "rollout_id": difference.rollout_id,
                    "call_id": difference.call_id,
                    "position": difference.position,
                    "a": difference.a,
                    "b": difference.b,
                })
            })
            .collect()
    };
    let histogram =
        measure.histogram.as_ref().map(|bins| json!({ "low": bins.low, "high": bins.high, "a": bins.a, "b": bins.b }));
    json!({
        "measure": measure.name,
        "both": measure.both,
        "only_a": measure.only_a,
        "only_b": measure.only_b,
        "not_finite": measure.not_finite,
        "equal": measure.equal,
        "sign_flips": measure.sign_flips,
        "one_is_zero": measure.one_is_zero,
        "mean_a": measure.mean.map(|mean| mean.0),
        "mean_b": measure.mean.map(|mean| mean.1),
        "mean_difference": measure.mean_difference,
        "max_difference": measure.max_difference,
        "spearman": measure.spearman,
        "kendall": measure.kendall,
        "ranked": measure.ranked,
        "histogram": histogram,
        "rollouts": differences(&measure.rollouts),
        "items": differences(&measure.items),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_to_scale_and_fit_the_width() {
        let histogram = Histogram { low: 0.0, high: 2.0, a: vec![10, 1], b: vec![0, 5] };
        let lines = bars(&histogram, 60);
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.chars().count() <= 60), "{lines:?}");
        // (60 - 6 - 4 - 8) / 2 = 21 characters for the longest bar.
        assert_eq!(lines[0], format!("0.0000  10 {}   0", "█".repeat(21)));
        assert!(lines[1].starts_with("1.0000   1 ██"), "{}", lines[1]);
    }

    #[test]
    fn numbers_have_nine_digits() {
        let shown = [0.1 + 0.2, -2.0 / 3.0, 1e-17, 0.0, 123_456_789.125, 6.635_700_066_359e-5].map(number);
        assert_eq!(shown, ["0.3", "-0.666666667", "1e-17", "0", "123456789", "6.63570007e-5"]);
    }

    #[test]
    fn a_count_above_zero_is_seen() {
        assert_eq!(blocks(1, 1_000_000, 20), "▏");
        assert_eq!(blocks(0, 1_000_000, 20), "");
        assert_eq!(blocks(u64::MAX, u64::MAX, 3), "███");
    }
}
