//! The rules of storing, written naively over whole prompts: O(n²) comparisons, no tree, no chain.

use sha2::{Digest, Sha256};

use super::rows::Case;

/// The digest of a token list, from its definition.
pub(super) fn digest(tokens: &[i32]) -> String {
    let mut state = [0_u8; 32];
    for block in tokens.chunks(256) {
        let mut bytes = state.to_vec();
        for token in block {
            bytes.extend(token.to_le_bytes());
        }
        state = Sha256::digest(&bytes).into();
    }
    let hex: Vec<String> = state.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{}", hex.concat())
}

pub(super) fn shared(a: &[i32], b: &[i32]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Prompt ‖ output; an unknown output adds nothing, an unknown prompt has no context.
fn context(case: &Case) -> Option<Vec<i32>> {
    let prompt = case.prompt.as_ref()?;
    Some([prompt.as_slice(), case.output.as_deref().unwrap_or(&[])].concat())
}

fn first_with_id(cases: &[Case], id: &str) -> Option<usize> {
    cases.iter().position(|case| case.id.as_deref() == Some(id))
}

/// The base of row `at` among the rows before it: its place and the tokens shared.
pub(super) fn base(cases: &[Case], at: usize) -> Option<(usize, usize)> {
    let prompt = cases[at].prompt.as_ref()?;
    let lengths: Vec<usize> =
        cases[..at].iter().map(|case| context(case).map_or(0, |context| shared(prompt, &context))).collect();
    let best = *lengths.iter().max()?;
    if best == 0 {
        return None;
    }
    let parent = cases[at].parent.as_ref().and_then(|parent| first_with_id(&cases[..at], parent));
    let place =
        parent.filter(|parent| lengths[*parent] == best).or_else(|| lengths.iter().position(|len| *len == best));
    place.map(|place| (place, best))
}

/// `parent_prefix_len` of row `at`, where the rows `known` may be referred to.
pub(super) fn parent_prefix_len(cases: &[Case], at: usize, known: usize) -> Option<i32> {
    let case = &cases[at];
    let other = match (&case.parent, case.index) {
        (Some(parent), _) => first_with_id(&cases[..known], parent).filter(|parent| *parent != at),
        (None, Some(index)) => {
            let below = cases[..known].iter().filter_map(|case| case.index).filter(|other| *other < index).max();
            below.and_then(|below| cases[..known].iter().rposition(|case| case.index == Some(below)))
        }
        (None, None) => at.checked_sub(1),
    };
    let other = other.map(|other| &cases[other])?;
    other.output.as_ref()?;
    let len = shared(case.prompt.as_ref()?, &context(other)?);
    Some(i32::try_from(len).unwrap())
}

/// Canonical order: by call index, nulls last, else as given.
pub(super) fn canonical(cases: &[Case]) -> Vec<Case> {
    let mut sorted = cases.to_vec();
    sorted.sort_by_key(|case| case.index.map_or(i64::MAX, i64::from));
    sorted
}
