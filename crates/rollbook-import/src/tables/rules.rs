//! What the exchange format says of single columns.

use rollbook_schema::Table;

/// Returns the column that every row of a table must fill: the id in its key that nobody else can supply.
///
/// `run_id` is not among them, since the run may be known otherwise; nor are places such as `row_index`, since a
/// dump without them is still the record of what somebody had.
pub(crate) fn required(table: &Table) -> Option<&'static str> {
    match table.name.as_str() {
        "encodings" => Some("encoding_id"),
        "rollouts" => Some("rollout_id"),
        "calls" | "call_payloads" | "token_signals" => Some("call_id"),
        "environment_records" => Some("record_id"),
        "scores" => Some("score_id"),
        "derivations" => Some("derivation_id"),
        "builds" | "samples" => Some("build_id"),
        _ => None,
    }
}

/// Columns that say where other columns come from: (column, the column it speaks of).
///
/// Where one is not given it is `assumed` if the other is there, else `absent`.
pub(crate) const PROVENANCE: [(&str, &str); 3] = [
    ("prompt_exactness", "prompt_token_ids"),
    ("output_exactness", "output_token_ids"),
    ("logprobs_source", "output_logprobs"),
];

/// Says whether a table has provenance columns to fill.
pub(crate) fn has_provenance(table: &Table) -> bool {
    table.name == "calls"
}

/// The most unknown columns that are named one by one.
pub(crate) const NAMED_COLUMNS: usize = 100;

/// What is said of an unknown column.
pub(crate) fn unknown_column(table: &Table, column: &str, is_kept: bool) -> String {
    let fate = if is_kept { "kept in extra" } else { "not kept: the table has no extra" };
    format!("{}.{column}: unknown column, {fate}", table.name)
}

/// Says whether a table keeps unknown columns.
pub(crate) fn keeps_extra(table: &Table) -> bool {
    table.column("extra").is_some()
}
