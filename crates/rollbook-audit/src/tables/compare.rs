//! A row's trained tokens beside those that its calls gave.

use arrow::array::{Array, Float32Array};

use crate::functions::is_rounding_of;

/// Logprobs that differ by less are equal; of large ones, by less than this share.
const EQUAL: f32 = 1e-6;
/// Values of a run that its text repeats.
const SHOWN: usize = 6;

/// A trained token: its place in the row, and its offset in the call's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) in_row: usize,
    pub(super) offset: usize,
}

/// The trained tokens of a call in a row, and what the call gave.
#[derive(Debug, Clone)]
pub(super) struct Trained<'a> {
    pub(super) tokens: Vec<Token>,
    pub(super) expected: Expected<'a>,
}

/// What a call gave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) tokens: &'a [i32],
    pub(super) logprobs: Option<&'a Float32Array>,
}

/// Neighbors in a row that differ from what their call gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) kind: &'static str,
    pub(super) position: usize,
    pub(super) length: usize,
    /// Whether no token of the call agrees.
    pub(super) is_whole: bool,
    pub(super) expected: String,
    pub(super) observed: String,
}

/// A token with the logprob the row has for it and the one its call gave, and those of its neighbors in the call.
#[derive(Debug, Clone, Copy)]
struct Pair {
    token: Token,
    own: Option<f32>,
    given: Option<f32>,
    before: Option<f32>,
    after: Option<f32>,
}

/// Where the trained tokens of a row differ from the outputs they are said to be, with the index of the call.
pub(super) fn differences(
    row: &[i32],
    logprobs: Option<&Float32Array>,
    calls: &[Trained<'_>],
) -> Vec<(usize, Difference)> {
    let mut found = Vec::new();
    let mut compared: Vec<(usize, Vec<Pair>)> = Vec::new();
    for (call, Trained { tokens, expected }) in calls.iter().enumerate() {
        let agrees = |token: &Token| match (row.get(token.in_row), expected.tokens.get(token.offset)) {
            (Some(own), Some(given)) => Some(own == given),
            _ => None,
        };
        let differing: Vec<Token> = tokens.iter().filter(|token| agrees(token) == Some(false)).copied().collect();
        let is_whole = differing.len() == tokens.len();
        found.extend(runs(&differing).into_iter().map(|run| {
            let shown = |ids: &[i32], place: fn(&Token) -> usize| {
                listed(
                    run.iter()
                        .map(|token| ids.get(place(token)).map_or_else(|| "none".to_owned(), ToString::to_string)),
                )
            };
            let (given, own) = (shown(expected.tokens, |token| token.offset), shown(row, |token| token.in_row));
            (call, difference("token", run, is_whole, given, own))
        }));
        if let (Some(logprobs), Some(given)) = (logprobs, expected.logprobs)
            && given.len() == expected.tokens.len()
        {
            let same = tokens.iter().filter(|token| agrees(token) == Some(true));
            compared.push((call, same.map(|token| pair(*token, logprobs, given)).collect()));
        }
    }
    let all: Vec<Pair> = compared.iter().flat_map(|(_, pairs)| pairs.iter().copied()).collect();
    let of_row = move_of(&all);
    for (call, pairs) in compared {
        found.extend(logprob_differences(&pairs, of_row).into_iter().map(|difference| (call, difference)));
    }
    found
}

fn pair(token: Token, own: &Float32Array, given: &Float32Array) -> Pair {
    let of = |values: &Float32Array, at: Option<usize>| {
        at.filter(|at| *at < values.len() && values.is_valid(*at)).map(|at| values.value(at))
    };
    Pair {
        token,
        own: of(own, Some(token.in_row)),
        given: of(given, Some(token.offset)),
        before: of(given, token.offset.checked_sub(1)),
        after: of(given, Some(token.offset + 1)),
    }
}

/// A move by one token: where the row's value stands in the call, seen from the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    Before,
    After,
}

/// The move under which the row's values are the call's. Two tokens must show it, with different values.
fn move_of(pairs: &[Pair]) -> Option<Move> {
    let shows = |neighbor: fn(&Pair) -> Option<f32>| {
        let seen: Vec<(f32, f32)> = pairs.iter().filter_map(|pair| Some((pair.own?, neighbor(pair)?))).collect();
        let differ = seen.iter().any(|(own, _)| seen.first().is_some_and(|(first, _)| !is_equal(*own, *first)));
        seen.len() >= 2 && differ && seen.iter().all(|(own, given)| is_equal(*own, *given))
    };
    if shows(|pair| pair.before) {
        Some(Move::Before)
    } else if shows(|pair| pair.after) {
        Some(Move::After)
    } else {
        None
    }
}

fn logprob_differences(pairs: &[Pair], of_row: Option<Move>) -> Vec<Difference> {
    let differing: Vec<Pair> = pairs.iter().filter(|pair| !agree(pair.own, pair.given)).copied().collect();
    let (Some(first), Some(last)) = (differing.first(), differing.last()) else {
        return Vec::new();
    };
    let is_whole = differing.len() == pairs.len();
    let spanned = |kind: &'static str, expected: String| Difference {
        kind,
        position: first.token.in_row,
        length: last.token.in_row - first.token.in_row + 1,
        is_whole,
        expected,
        observed: values(&differing, |pair| pair.own),
    };
    if let Some(to) = move_of(pairs).or(of_row) {
        let neighbor = match to {
            Move::Before => "before",
            Move::After => "after",
        };
        let mut moved = spanned("moved", values(&differing, |pair| pair.given));
        moved.observed = format!("{}: those of the token {neighbor}", moved.observed);
        return vec![moved];
    }
    let rounded =
        |pair: &Pair| matches!((pair.own, pair.given), (Some(own), Some(given)) if is_rounding_of(own, given));
    if differing.iter().all(rounded) {
        return vec![spanned("rounded", values(&differing, |pair| pair.given))];
    }
    let tokens: Vec<Token> = differing.iter().map(|pair| pair.token).collect();
    let mut rest = differing.as_slice();
    let mut found = Vec::new();
    for run in runs(&tokens) {
        let (these, others) = rest.split_at(run.len().min(rest.len()));
        rest = others;
        let (expected, observed) = (values(these, |pair| pair.given), values(these, |pair| pair.own));
        found.push(difference("logprob", run, is_whole, expected, observed));
    }
    found
}

fn agree(own: Option<f32>, given: Option<f32>) -> bool {
    match (own, given) {
        (Some(own), Some(given)) => is_equal(own, given),
        (own, given) => own.is_none() && given.is_none(),
    }
}

fn is_equal(a: f32, b: f32) -> bool {
    (a.is_nan() && b.is_nan()) || a.total_cmp(&b).is_eq() || (a - b).abs() <= EQUAL * b.abs().max(1.0)
}

/// Runs of tokens that are neighbors in the row.
fn runs(tokens: &[Token]) -> Vec<&[Token]> {
    tokens.chunk_by(|a, b| a.in_row + 1 == b.in_row).collect()
}

fn difference(kind: &'static str, run: &[Token], is_whole: bool, expected: String, observed: String) -> Difference {
    let position = run.first().map_or(0, |token| token.in_row);
    Difference { kind, position, length: run.len(), is_whole, expected, observed }
}

fn values(pairs: &[Pair], value: fn(&Pair) -> Option<f32>) -> String {
    listed(pairs.iter().map(|pair| value(pair).map_or_else(|| "none".to_owned(), |value| value.to_string())))
}

fn listed(texts: impl Iterator<Item = String>) -> String {
    let mut texts: Vec<String> = texts.take(SHOWN + 1).collect();
    if let Some(last) = texts.get_mut(SHOWN) {
        "…".clone_into(last);
    }
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of one call whose output stands from row token 1 on and trains as a whole.
    fn of(own: (&[i32], &[f32]), given: (&[i32], &[f32])) -> Vec<(&'static str, usize, usize, bool)> {
        let (own_logprobs, given_logprobs) = (Float32Array::from(own.1.to_vec()), Float32Array::from(given.1.to_vec()));
        let tokens = (0..given.0.len()).map(|offset| Token { in_row: 1 + offset, offset }).collect();
        let expected = Expected { tokens: given.0, logprobs: Some(&given_logprobs) };
        differences(own.0, Some(&own_logprobs), &[Trained { tokens, expected }])
            .into_iter()
            .map(|(_, found)| (found.kind, found.position, found.length, found.is_whole))
            .collect()
    }

    #[test]
    fn swapped_ids_differ_where_they_stand() {
        let logprobs: &[f32] = &[-0.1, -0.2, -0.3];
        let found = of((&[1, 6, 5, 7], &[0.0, -0.1, -0.2, -0.3]), (&[5, 6, 7], logprobs));
        assert_eq!(found, [("token", 1, 2, false)]);
    }

    #[test]
    fn a_move_is_one_finding_and_named() {
        let given: &[f32] = &[-0.1, -0.2, -0.3, -0.4];
        let found = of((&[1, 5, 6, 7, 8], &[0.0, 0.0, -0.1, -0.2, -0.3]), (&[5, 6, 7, 8], given));
        assert_eq!(found, [("moved", 1, 4, true)]);
    }

    #[test]
    fn one_value_of_many_differs_alone() {
        let given: &[f32] = &[-0.1, -0.2, -0.3, -0.4];
        let found = of((&[1, 5, 6, 7, 8], &[0.0, -0.1, -0.7, -0.3, -0.4]), (&[5, 6, 7, 8], given));
        assert_eq!(found, [("logprob", 2, 1, false)]);
    }

    #[test]
    fn rounding_is_told_from_other_values_and_equal_values_from_both() {
        // 157/1024 and 145/512 are -0.1529 and -0.283 in bfloat16.
        let found = of((&[1, 5, 6], &[0.0, -0.153_320_31, -0.283_203_13]), (&[5, 6], &[-0.1529, -0.283]));
        assert_eq!(found, [("rounded", 1, 2, true)]);
        assert_eq!(of((&[1, 5], &[0.0, -12.000_001]), (&[5], &[-12.0])), []);
    }
}
