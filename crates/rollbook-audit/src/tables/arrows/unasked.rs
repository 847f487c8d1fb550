//! Prompts whose requests are not known, and which should start an assistant's turn all the same.
//!
//! A new turn is asked for if the prompt goes on behind a sampled end of turn, and other prompts of the run and encoding hold its start.
//! A tool's result that was put into the model's own turn asks for none.

use std::collections::{BTreeMap, BTreeSet};

use super::markers::Key;
use super::rows::{Call, Said};

/// The prompts of each run and encoding: those that begin a conversation, and those that go on behind an end of turn.
#[derive(Debug, Default)]
pub(super) struct Unasked(BTreeMap<Key, [Prompts; 2]>);

#[derive(Debug, Default)]
struct Prompts {
    with_start: usize,
    without: Vec<Said>,
}

impl Unasked {
    /// Keeps what a prompt shows until all are seen.
    pub(super) fn add(&mut self, key: Key, start: &[i32], ends: &BTreeSet<i32>, prompt: &[i32], call: Call) {
        let (kind, from) = match call.inherited {
            Some(0) => (0, 0),
            Some(from) if prompt.get(from - 1).is_some_and(|id| ends.contains(id)) => (1, from),
            _ => return,
        };
        if start.is_empty() {
            return;
        }
        let [opened, resumed] = self.0.entry(key).or_default();
        let prompts = if kind == 0 { opened } else { resumed };
        // What the client wrote of the answer stands behind the start of its turn.
        if prompt.get(from..).unwrap_or_default().windows(start.len()).any(|tokens| tokens == start) {
            prompts.with_start += 1;
        } else {
            let position = prompt.len().saturating_sub(start.len()).max(from);
            prompts.without.push(without_generation_prompt(start, prompt, call, position));
        }
    }

    /// The prompts that should have the start and have not.
    pub(super) fn finish(self) -> Vec<Said> {
        let mut said = Vec::new();
        for [opened, resumed] in self.0.into_values() {
            if opened.with_start + resumed.with_start > 0 {
                said.extend(resumed.without);
            }
            // Of first prompts most must show it: a run may hold conversations that are no chat.
            if opened.with_start > opened.without.len() {
                said.extend(opened.without);
            }
        }
        said
    }
}

/// The finding at a prompt that lacks the generation prompt from `position` on.
pub(super) fn without_generation_prompt(start: &[i32], prompt: &[i32], call: Call, position: usize) -> Said {
    Said {
        call,
        kind: "generation_prompt",
        position: Some(position),
        expected: Some(format!("the generation prompt {start:?}")),
        observed: Some(format!("{:?}", prompt.get(position..).unwrap_or_default())),
        reason: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(prompts: &[(&[i32], usize)]) -> Vec<Option<usize>> {
        let mut unasked = Unasked::default();
        for (prompt, inherited) in prompts {
            let call = Call { inherited: Some(*inherited), ..Call::default() };
            unasked.add(("run".to_owned(), None), &[8, 9], &BTreeSet::from([2]), prompt, call);
        }
        unasked.finish().into_iter().map(|said| said.position).collect()
    }

    const FIRST: (&[i32], usize) = (&[1, 8, 9], 0);

    #[test]
    fn a_turn_begins_behind_the_end_of_the_last_one() {
        assert_eq!(told(&[FIRST, (&[1, 8, 9, 5, 2, 6, 8, 9], 5)]), []);
        assert_eq!(told(&[FIRST, (&[1, 8, 9, 5, 2, 6, 7, 7], 5)]), [Some(6)]);
        assert_eq!(told(&[FIRST, (&[1, 8, 9, 5, 2, 6], 5)]), [Some(5)]);
    }

    #[test]
    fn a_result_in_the_models_own_turn_and_a_begun_answer_are_no_fault() {
        assert_eq!(told(&[FIRST, (&[1, 8, 9, 5, 4, 6], 5)]), []);
        assert_eq!(told(&[FIRST, (&[1, 8, 9, 5, 2, 6, 8, 9, 3], 5)]), []);
    }

    #[test]
    fn what_no_prompt_shows_is_not_asked_for() {
        assert_eq!(told(&[(&[1, 7], 0), (&[1, 7, 5, 2, 6], 4)]), []);
        assert_eq!(told(&[FIRST, (&[1, 7], 0)]), []);
        assert_eq!(told(&[FIRST, FIRST, (&[1, 7], 0)]), [Some(0)]);
    }
}
