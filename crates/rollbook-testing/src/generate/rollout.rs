//! One rollout: its calls in delta form, its tool results and its scores.

use super::Summary;

/// How a call's prompt came from what was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// The first call of a rollout.
    First,
    /// The whole context of the parent and a tool result.
    Extension,
    /// A summary in place of the history; declared.
    Compaction,
    /// Part of the parent's output was tokenized anew; declared by nobody.
    Drift,
    /// The parent's thoughts were left out; declared.
    Stripped,
    /// An earlier call was taken up again.
    Branch,
    /// The prompt of the call before, once more.
    Retry,
}

impl Transition {
    /// The `break_reason` that the harness declares, if any.
    pub fn break_reason(self) -> Option<&'static str> {
        match self {
            Self::Compaction => Some("compaction"),
            Self::Stripped => Some("reasoning_stripped"),
            Self::First | Self::Extension | Self::Drift | Self::Branch | Self::Retry => None,
        }
    }
}

/// One model call; its prompt is `(prompt ‖ output of base)[..shared] ‖ suffix`.
#[derive(Debug, Clone)]
pub struct Call {
    /// Index of an earlier call of the rollout.
    pub base: Option<usize>,
    /// How many tokens of the base's context the prompt starts with.
    pub shared: usize,
    /// What follows them.
    pub suffix: Vec<i32>,
    /// The sampled ids.
    pub output: Vec<i32>,
    /// One logprob for each of them.
    pub logprobs: Vec<f32>,
    /// Index of the parent.
    pub parent: Option<usize>,
    /// How the prompt came about.
    pub transition: Transition,
    /// Counts from 1; 2 for a retry.
    pub attempt: i32,
    /// Weights that sampled the first token.
    pub policy_version: i64,
    /// Output position at which newer weights took over, and their version.
    pub policy_move: Option<(usize, i64)>,
    /// `stop` or `length`.
    pub finish_reason: &'static str,
    /// Seed of the sampler.
    pub seed: i64,
    /// UTC microseconds.
    pub started_at: i64,
    /// UTC microseconds.
    pub finished_at: i64,
}

impl Call {
    /// Length of the prompt.
    pub fn prompt_len(&self) -> usize {
        self.shared + self.suffix.len()
    }
}

/// What a tool returned; its text became part of the next prompt.
#[derive(Debug, Clone)]
pub struct ToolResult {
    /// The call that used the tool.
    pub call: usize,
    /// The call whose prompt first holds the result.
    pub delivered_to: usize,
    /// Tokens the result became.
    pub token_count: usize,
    /// Whether the tool failed.
    pub is_error: bool,
    /// How long it took.
    pub duration_ms: f64,
}

/// What one verifier gave.
#[derive(Debug, Clone)]
pub struct Score {
    /// The verifier.
    pub verifier: &'static str,
    /// Its value; none where it failed.
    pub value: Option<f64>,
}

/// One rollout.
#[derive(Debug, Clone)]
pub struct Rollout {
    /// Counts from 0 over the run.
    pub index: u64,
    /// The group it belongs to, from 0.
    pub group: u64,
    /// Its place in the group, from 0.
    pub member: u64,
    /// Trainer step at dispatch.
    pub step: i64,
    /// `completed`, `truncated` or `failed`.
    pub status: &'static str,
    /// Length of system prompt and task, which its group shares.
    pub opening_len: usize,
    /// Length of the system prompt, which the run shares.
    pub system_len: usize,
    /// Calls in order.
    pub calls: Vec<Call>,
    /// Tool results in order.
    pub tool_results: Vec<ToolResult>,
    /// One score for each verifier.
    pub scores: Vec<Score>,
    /// UTC microseconds.
    pub started_at: i64,
    /// UTC microseconds.
    pub finished_at: i64,
}

impl Rollout {
    /// The whole prompt of a call.
    pub fn prompt(&self, call: usize) -> Vec<i32> {
        let mut tokens = vec![0; self.calls[call].prompt_len()];
        self.fill(call, &mut tokens);
        tokens
    }

    /// Fills the prompt from its end: each call on the way to the root gives what lies above its shared part.
    pub(super) fn fill(&self, call: usize, tokens: &mut [i32]) {
        let (mut at, mut limit) = (call, tokens.len());
        loop {
            let current = &self.calls[at];
            if limit > current.shared {
                tokens[current.shared..limit].copy_from_slice(&current.suffix[..limit - current.shared]);
                limit = current.shared;
            }
            let Some(base) = current.base else { return };
            let length = self.calls[base].prompt_len();
            if limit > length {
                tokens[length..limit].copy_from_slice(&self.calls[base].output[..limit - length]);
                limit = length;
            }
            at = base;
        }
    }

    /// How many tokens of the suffix no earlier context of the run holds, as far as its opening goes.
    fn new_in_run(&self, call: &Call) -> usize {
        match (call.transition, self.index, self.member) {
            (Transition::First, 0, _) => call.suffix.len(),
            (Transition::First, _, 0) => call.suffix.len() - self.system_len,
            (Transition::First, _, _) => 0,
            _ => call.suffix.len(),
        }
    }

    /// Adds this rollout to a summary.
    pub fn count(&self, summary: &mut Summary) {
        summary.rollouts += 1;
        for call in &self.calls {
            summary.calls += 1;
            summary.prompt_tokens += call.prompt_len() as u64;
            summary.prompt_len_max = summary.prompt_len_max.max(call.prompt_len());
            summary.new_tokens += call.suffix.len() as u64;
            summary.new_tokens_in_run += self.new_in_run(call) as u64;
            summary.sampled_tokens += call.output.len() as u64;
            summary.exact_zero += call.logprobs.iter().filter(|value| **value == 0.0).count() as u64;
            summary.near_zero += call.logprobs.iter().filter(|value| **value > -0.01).count() as u64;
            *summary.transitions.entry(format!("{:?}", call.transition)).or_default() += 1;
        }
    }
}
