//! How a rollout comes about, turn by turn.

use super::Options;
use super::draw::Draw;
use super::logprobs::draw_logprob;
use super::pool::{ASSISTANT, Pool, TOOL, VOCAB_SIZE, WorkingSet, thoughts};
use super::rollout::{Call, Rollout, Score, ToolResult, Transition};

/// Microseconds from 1970 to 2026-01-01.
const EPOCH_US: i64 = 1_767_225_600_000_000;
/// How long after one step the next one is dispatched.
const STEP_US: i64 = 1_200_000_000;

/// What the rollouts of a group have in common.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) index: u64,
    working_set: WorkingSet,
    task: Vec<i32>,
    success: f64,
}

impl Group {
    pub(super) fn new(options: &Options, pool: &Pool, index: u64) -> Self {
        let mut draw = Draw::new(options.seed, &[1, index]);
        let working_set = pool.working_set(&mut draw);
        let length = draw.length(900.0, 0.4, 250, 3_000);
        let mut task = pool.prose(length, &mut draw).to_vec();
        task.extend(ASSISTANT);
        Self { index, working_set, task, success: draw.beta(0.7, 0.9) }
    }
}

/// What may happen to the history of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    Plain,
    Compacts,
    Drifts,
    Strips,
    Branches,
    Retries,
}

impl Habit {
    fn draw(options: &Options, draw: &mut Draw) -> Self {
        let choice = draw.fraction();
        match choice {
            _ if options.is_clean => Self::Plain,
            _ if choice < 0.10 => Self::Compacts,
            _ if choice < 0.20 => Self::Drifts,
            _ if choice < 0.30 => Self::Strips,
            _ if choice < 0.35 => Self::Branches,
            _ if choice < 0.40 => Self::Retries,
            _ => Self::Plain,
        }
    }
}

/// A rollout in the making.
pub(super) struct Episode<'a> {
    options: &'a Options,
    pool: &'a Pool,
    group: &'a Group,
    draw: Draw,
    habit: Habit,
    rollout: Rollout,
    /// The turn at which newer weights arrive, if they do.
    policy_move: Option<usize>,
    now: i64,
}

impl<'a> Episode<'a> {
    pub(super) fn new(options: &'a Options, pool: &'a Pool, group: &'a Group, member: u64) -> Self {
        let mut draw = Draw::new(options.seed, &[2, group.index, member]);
        let habit = Habit::draw(options, &mut draw);
        let step = i64::try_from(group.index / u64::from(options.groups_per_step)).unwrap_or(i64::MAX);
        let started_at = EPOCH_US + step * STEP_US + i64::try_from(draw.below(60_000_000)).unwrap_or(0);
        let rollout = Rollout {
            index: group.index * u64::from(options.group_size) + member,
            group: group.index,
            member,
            step,
            status: "completed",
            opening_len: pool.system.len() + group.task.len(),
            system_len: pool.system.len(),
            calls: Vec::new(),
            tool_results: Vec::new(),
            scores: Vec::new(),
            started_at,
            finished_at: started_at,
        };
        Self { options, pool, group, draw, habit, rollout, policy_move: None, now: started_at }
    }

    /// Plays the rollout to its end.
    pub(super) fn play(mut self) -> Rollout {
        let turns = self.draw.turns(self.options.turns);
        if self.draw.chance(0.2) {
            self.policy_move = Some(self.draw.below(turns));
        }
        for turn in 0..turns {
            if !self.turn(turn) {
                self.rollout.status = "truncated";
                break;
            }
        }
        if self.rollout.status == "completed" && self.draw.chance(0.01) {
            self.rollout.status = "failed";
        }
        self.rollout.finished_at = self.now;
        self.score();
        self.rollout
    }

    /// Makes the next call; false where its context would be too long.
    fn turn(&mut self, turn: usize) -> bool {
        let (transition, base, shared, suffix) = match turn {
            0 => (Transition::First, None, 0, [&self.pool.system[..], &self.group.task].concat()),
            _ => self.next_prompt(turn),
        };
        let mut output = self.pool.answer(&self.group.working_set, &mut self.draw);
        if shared + suffix.len() + output.len() > self.options.max_context_tokens {
            return false;
        }
        let finish_reason = if self.draw.chance(0.01) { "length" } else { "stop" };
        if finish_reason == "stop" {
            output.push(ASSISTANT[0]);
        }
        let logprobs: Vec<f32> = output.iter().map(|_| draw_logprob(&mut self.draw)).collect();
        let parent = match transition {
            Transition::Retry => base.and_then(|index: usize| self.rollout.calls[index].parent),
            _ => base,
        };
        let started_at = self.now + 20_000;
        self.now = started_at + i64::try_from(output.len()).unwrap_or(0) * 15_000;
        let (policy_version, policy_move) = self.policy(turn, output.len());
        self.rollout.calls.push(Call {
            base,
            shared,
            suffix,
            output,
            logprobs,
            parent,
            transition,
            attempt: if transition == Transition::Retry { 2 } else { 1 },
            policy_version,
            policy_move,
            finish_reason,
            seed: i64::try_from(self.draw.below(1 << 31)).unwrap_or(0),
            started_at,
            finished_at: self.now,
        });
        true
    }

    /// The version at a turn, and where in its output it moves.
    fn policy(&mut self, turn: usize, output_len: usize) -> (i64, Option<(usize, i64)>) {
        let first = self.rollout.step + 1;
        match self.policy_move {
            Some(at) if turn > at => (first + 1, None),
            Some(at) if turn == at && self.draw.chance(0.5) => {
                (first, Some((self.draw.between(1, output_len), first + 1)))
            }
            _ => (first, None),
        }
    }

    fn next_prompt(&mut self, turn: usize) -> (Transition, Option<usize>, usize, Vec<i32>) {
        let previous = turn - 1;
        let event = self.draw.chance(0.04);
        if self.habit == Habit::Retries && event && self.rollout.calls[previous].parent.is_some() {
            let shared = self.rollout.calls[previous].prompt_len();
            return (Transition::Retry, Some(previous), shared, Vec::new());
        }
        let base = match self.habit {
            Habit::Branches if event && turn > 2 => turn - 2 - self.draw.below((turn - 2).min(5)),
            _ => previous,
        };
        let observation = self.tool_result(base, turn);
        let call = &self.rollout.calls[base];
        let (prompt_len, output_len) = (call.prompt_len(), call.output.len());
        let context = prompt_len + output_len;
        match self.habit {
            Habit::Branches if base != previous => (Transition::Branch, Some(base), context, observation),
            Habit::Compacts if context > self.options.compact_at => {
                let length = self.draw.length(1_000.0, 0.3, 400, 2_500);
                let mut suffix = self.pool.prose(length, &mut self.draw).to_vec();
                suffix.extend(observation);
                (Transition::Compaction, Some(base), self.rollout.opening_len, suffix)
            }
            Habit::Drifts if event => {
                let start = self.draw.below(output_len);
                let mut suffix = self.rollout.calls[base].output[start..].to_vec();
                suffix[0] = (suffix[0] + 1) % VOCAB_SIZE;
                if suffix.len() > 2 && self.draw.chance(0.5) {
                    suffix.remove(0);
                }
                suffix.extend(observation);
                (Transition::Drift, Some(base), prompt_len + start, suffix)
            }
            Habit::Strips => {
                let mut suffix = self.rollout.calls[base].output[thoughts(output_len)..].to_vec();
                suffix.extend(observation);
                (Transition::Stripped, Some(base), prompt_len, suffix)
            }
            _ => (Transition::Extension, Some(base), context, observation),
        }
    }

    /// A tool result between its markers.
    fn tool_result(&mut self, call: usize, delivered_to: usize) -> Vec<i32> {
        let result = self.pool.observation(&self.group.working_set, &mut self.draw);
        let duration_ms = u32::try_from(self.draw.length(800.0, 1.2, 5, 300_000)).unwrap_or(0);
        self.now += i64::from(duration_ms) * 1_000;
        self.rollout.tool_results.push(ToolResult {
            call,
            delivered_to,
            token_count: result.len(),
            is_error: self.draw.chance(0.08),
            duration_ms: f64::from(duration_ms),
        });
        [&TOOL[..], &result, &ASSISTANT[..]].concat()
    }

    /// The tests decide, the judge is near them, the format is nearly always right; each fails now and then.
    fn score(&mut self) {
        let hundredths = |value: f64| (value * 100.0).round() / 100.0;
        let tests = if self.draw.chance(0.9) {
            f64::from(u8::from(self.draw.chance(self.group.success)))
        } else {
            (self.draw.fraction() * 1_000.0).round() / 1_000.0
        };
        let judge = hundredths((0.7 * tests + 0.3 * self.draw.fraction()).clamp(0.0, 1.0));
        let format = f64::from(u8::from(self.draw.chance(0.95)));
        for (verifier, value) in [("tests", tests), ("judge", judge), ("format", format)] {
            let value = (!self.draw.chance(0.005)).then_some(value);
            self.rollout.scores.push(Score { verifier, value });
        }
    }
}
