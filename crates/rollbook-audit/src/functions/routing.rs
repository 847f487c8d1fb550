//! Rows of routing records that no router can have given.
//!
//! ```text
//! shape [tokens, layers, experts]      row t = the experts of token t, layer by layer
//! ```
//!
//! A router chooses different experts for a token in one layer, and over all layers no two tokens in a row the same: rows
//! that do were filled, whether with 0, with -1 or with what stood in the buffer before.

/// Rows in a run that are no chance.
const ALIKE: usize = 3;
/// Numbers of a row that its text repeats.
const SHOWN: usize = 8;

/// Neighboring tokens whose routing is wrong in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoutingFault {
    /// shape, negative, doubled or repeated.
    pub(crate) kind: &'static str,
    /// First token, in the payload's coordinates.
    pub(crate) position: Option<usize>,
    /// Tokens.
    pub(crate) length: Option<usize>,
    /// What should stand there.
    pub(crate) expected: String,
    /// What stands there.
    pub(crate) observed: String,
}

/// Looks at a payload's rows; numbers that were not recorded accuse nobody.
pub(crate) fn routing_faults(values: &[Option<f64>], shape: &[usize]) -> Vec<RoutingFault> {
    let Some(total) = shape.iter().try_fold(1_usize, |product, side| product.checked_mul(*side)) else {
        return Vec::new();
    };
    let (tokens, width) = (shape.first().copied().unwrap_or(0), shape.iter().skip(1).product::<usize>());
    if values.len() != total {
        return vec![RoutingFault {
            kind: "shape",
            position: None,
            length: None,
            expected: total.to_string(),
            observed: values.len().to_string(),
        }];
    }
    if tokens == 0 || width == 0 {
        return Vec::new();
    }
    // With two sides it is not known whether the second is layers or experts.
    let experts = if shape.len() > 2 { shape.last().copied().unwrap_or(1) } else { 1 };
    let rows: Vec<&[Option<f64>]> = values.chunks(width).collect();
    let kinds: Vec<Option<&'static str>> = rows.iter().map(|row| kind_of(row, experts)).collect();
    let mut found: Vec<RoutingFault> = Vec::new();
    let mut at = 0;
    while let Some(row) = rows.get(at) {
        let kind = kinds.get(at).copied().flatten();
        let alike = rows.iter().skip(at).take_while(|other| *other == row).count();
        let same_kind = kinds.iter().skip(at).take_while(|other| **other == kind).count();
        let (kind, run) = match kind {
            Some(kind) => (kind, same_kind),
            None if alike >= ALIKE && width > 1 && row.iter().all(Option::is_some) => ("repeated", alike),
            None => {
                at += 1;
                continue;
            }
        };
        let expected = match kind {
            "repeated" => "rows of their own",
            "doubled" => "different experts in a layer",
            _ => "experts from 0 on",
        };
        found.push(RoutingFault {
            kind,
            position: Some(at),
            length: Some(run),
            expected: expected.to_owned(),
            observed: shown(row),
        });
        at += run;
    }
    found
}

fn kind_of(row: &[Option<f64>], experts: usize) -> Option<&'static str> {
    if row.iter().flatten().any(|expert| *expert < 0.0) {
        return Some("negative");
    }
    let is_doubled = |layer: &[Option<f64>]| {
        let mut known: Vec<f64> = layer.iter().flatten().copied().collect();
        known.sort_by(f64::total_cmp);
        known.windows(2).any(|pair| matches!(pair, [a, b] if a.total_cmp(b).is_eq()))
    };
    (experts > 1 && row.chunks(experts).any(is_doubled)).then_some("doubled")
}

fn shown(row: &[Option<f64>]) -> String {
    let number = |value: &Option<f64>| value.map_or_else(|| "null".to_owned(), |value| value.to_string());
    let mut text: Vec<String> = row.iter().take(SHOWN).map(number).collect();
    if row.len() > SHOWN {
        text.push("…".to_owned());
    }
    format!("[{}]", text.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[&[f64]], shape: &[usize]) -> Vec<(&'static str, Option<usize>, Option<usize>)> {
        let values: Vec<Option<f64>> = rows.concat().into_iter().map(Some).collect();
        routing_faults(&values, shape).into_iter().map(|fault| (fault.kind, fault.position, fault.length)).collect()
    }

    #[test]
    fn three_equal_rows_are_a_filling_and_two_are_none() {
        let rows: [&[f64]; 6] = [&[1.0, 2.0], &[3.0, 7.0], &[3.0, 7.0], &[3.0, 7.0], &[5.0, 6.0], &[5.0, 6.0]];
        assert_eq!(of(&rows, &[6, 1, 2]), [("repeated", Some(1), Some(3))]);
    }

    #[test]
    fn zeros_and_minus_ones_are_told_and_nulls_are_not() {
        let rows: [&[f64]; 3] = [&[1.0, 2.0], &[0.0, 0.0], &[-1.0, -1.0]];
        assert_eq!(of(&rows, &[3, 1, 2]), [("doubled", Some(1), Some(1)), ("negative", Some(2), Some(1))]);
        assert_eq!(routing_faults(&[None; 6], &[3, 1, 2]), []);
    }

    #[test]
    fn one_expert_a_token_may_come_again_and_a_wrong_shape_is_told_first() {
        assert_eq!(of(&[&[3.0], &[3.0], &[3.0]], &[3, 1, 1]), []);
        assert_eq!(of(&[&[3.0, 3.0]], &[1, 2]), []);
        assert_eq!(of(&[&[1.0, 2.0]], &[2, 1, 2]), [("shape", None, None)]);
    }
}
