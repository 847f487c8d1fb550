//! The generator's own promises, checked on small runs.

use super::*;

fn small(seed: u64) -> Options {
    Options { groups: 6, turns: 12.0, seed, compact_at: 6_000, ..Options::default() }
}

#[test]
fn prompts_are_what_their_transition_says() {
    let mut seen = BTreeMap::new();
    for rollout in (1..5).flat_map(|seed| Generator::new(small(seed))) {
        for (i, call) in rollout.calls.iter().enumerate() {
            *seen.entry(format!("{:?}", call.transition)).or_insert(0) += 1;
            let prompt = rollout.prompt(i);
            assert_eq!(prompt.len(), call.prompt_len());
            assert!(prompt.iter().chain(&call.output).all(|id| (0..VOCAB_SIZE).contains(id)));
            assert_eq!(call.output.len(), call.logprobs.len());
            let Some(parent) = call.parent else { continue };
            let context = [rollout.prompt(parent), rollout.calls[parent].output.clone()].concat();
            let extends = prompt.starts_with(&context);
            let expected = matches!(call.transition, Transition::Extension | Transition::Branch | Transition::Retry);
            assert_eq!(extends, expected, "{:?} in rollout {}", call.transition, rollout.index);
        }
    }
    assert_eq!(seen.len(), 7, "every transition occurs: {seen:?}");
}

#[test]
fn a_rollout_depends_on_the_seed_and_its_place_alone() {
    let options = small(9);
    let all: Vec<Rollout> = Generator::new(options.clone()).collect();
    assert_eq!(all.len(), 48);
    let more = Generator::new(Options { groups: 7, ..options.clone() }).nth(20).unwrap();
    assert_eq!(more.calls[2].output, all[20].calls[2].output);
    let other = Generator::new(Options { seed: 10, ..options }).next().unwrap();
    assert_ne!(other.calls[0].output, all[0].calls[0].output);
}

#[test]
fn groups_share_their_opening_and_the_run_its_system_prompt() {
    let all: Vec<Rollout> = Generator::new(small(2)).collect();
    let (one, sibling, stranger) = (&all[0], &all[7], &all[8]);
    assert_eq!(one.prompt(0), sibling.prompt(0));
    assert_ne!(one.prompt(0), stranger.prompt(0));
    assert_eq!(one.prompt(0)[..one.system_len], stranger.prompt(0)[..one.system_len]);
}

#[test]
fn the_size_s_has_the_counts_that_are_documented() {
    let mut summary = Summary::default();
    Generator::new(Options::of(Size::S)).for_each(|rollout| rollout.count(&mut summary));
    assert_eq!(summary.rollouts, 64);
    assert!((2_400..2_900).contains(&summary.calls), "{summary}");
    assert!((52_000_000..68_000_000).contains(&summary.prompt_tokens), "{summary}");
    let share = |count: u64| 100 * count / summary.sampled_tokens;
    assert!((12..=16).contains(&share(summary.exact_zero)), "{summary}");
    assert!((69..=73).contains(&share(summary.near_zero)), "{summary}");
}
