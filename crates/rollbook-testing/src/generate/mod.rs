//! A seeded generator of agentic rollouts, of any size, one rollout at a time.
//!
//! ```text
//! run      system prompt of 2,600 tokens
//! group    8 rollouts of one task (about 900 tokens), which look at the same 30 chunks of one repository
//! rollout  turns drawn from a gamma distribution; a tool result of about 550 and an answer of about 270 tokens a turn
//! habit    10 % compact above 24,000 tokens, 10 % drift, 10 % strip thoughts, 5 % branch, 5 % retry
//! ```
//!
//! Calls come in delta form, so a rollout costs what is new in it; [`Rollout::prompt`] gives a whole prompt. Every group
//! and every rollout draws from a source of its own: rollout n is the same however many there are.
//!
//! ```
//! use rollbook_testing::generate::{Generator, Options};
//! let options = Options { groups: 1, ..Options::default() };
//! let rollouts: Vec<_> = Generator::new(options.clone()).collect();
//! assert_eq!(rollouts.len(), 8);
//! assert_eq!(rollouts[3].prompt(1), Generator::new(options).nth(3).unwrap().prompt(1));
//! ```

mod draw;
mod episode;
mod logprobs;
mod pool;
mod rollout;
pub mod tables;
pub mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use self::episode::{Episode, Group};
use self::pool::Pool;
use crate::{Error, ErrorKind};

pub use self::pool::VOCAB_SIZE;
pub use self::rollout::{Call, Rollout, Score, ToolResult, Transition};

/// The sizes that measurements are made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// One step of a SWE run on a laptop: 64 rollouts of 40 turns.
    S,
    /// A hundredth of M: 1,000 rollouts of 30 turns.
    MHundredth,
    /// A tenth of M.
    MTenth,
    /// A training run: 100,000 rollouts.
    M,
}

impl Size {
    /// All of them, smallest first.
    pub const ALL: &'static [Self] = &[Self::S, Self::MHundredth, Self::MTenth, Self::M];
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::S => "S",
            Self::MHundredth => "M/100",
            Self::MTenth => "M/10",
            Self::M => "M",
        })
    }
}

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL
            .iter()
            .copied()
            .find(|size| size.to_string().eq_ignore_ascii_case(text))
            .ok_or_else(|| Error::new(ErrorKind::Invalid, format!("{text:?} is no size: S, M/100, M/10 or M")))
    }
}

/// What to generate.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The run's id.
    pub run_id: String,
    /// Number of groups.
    pub groups: u64,
    /// Rollouts in a group.
    pub group_size: u32,
    /// Groups that one trainer step takes.
    pub groups_per_step: u32,
    /// Turns of a rollout, in the mean.
    pub turns: f64,
    /// Same seed, same rollouts.
    pub seed: u64,
    /// Context above which a rollout that compacts does so.
    pub compact_at: usize,
    /// Context at which a rollout is cut off.
    pub max_context_tokens: usize,
    /// Whether every prompt extends its parent's context.
    pub is_clean: bool,
}

impl Options {
    /// The options of a size, each with a seed at which it comes near its documented counts.
    pub fn of(size: Size) -> Self {
        let (groups, turns, seed) = match size {
            Size::S => (8, 40.0, 11),
            Size::MHundredth => (125, 30.0, 2),
            Size::MTenth => (1_250, 30.0, 3),
            Size::M => (12_500, 30.0, 4),
        };
        Self { groups, turns, seed, ..Self::default() }
    }

    /// Trainer steps of the run.
    pub fn steps(&self) -> u64 {
        self.groups.div_ceil(u64::from(self.groups_per_step))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            run_id: "generated".to_owned(),
            groups: 8,
            group_size: 8,
            groups_per_step: 64,
            turns: 40.0,
            seed: 1,
            compact_at: 24_000,
            max_context_tokens: 131_000,
            is_clean: false,
        }
    }
}

/// The rollouts of a run, in order of their groups.
#[derive(Debug)]
pub struct Generator {
    options: Options,
    pool: Pool,
    group: Option<Group>,
    next: u64,
}

impl Generator {
    /// Prepares the text that the rollouts are made of.
    pub fn new(options: Options) -> Self {
        let pool = Pool::new(options.seed);
        Self { options, pool, group: None, next: 0 }
    }

    /// What it generates.
    pub fn options(&self) -> &Options {
        &self.options
    }
}

impl Iterator for Generator {
    type Item = Rollout;

    fn next(&mut self) -> Option<Rollout> {
        let size = u64::from(self.options.group_size);
        let (index, member) = (self.next / size, self.next % size);
        if index >= self.options.groups {
            return None;
        }
        self.next += 1;
        let group = match self.group.take() {
            Some(group) if group.index == index => group,
            _ => Group::new(&self.options, &self.pool, index),
        };
        let rollout = Episode::new(&self.options, &self.pool, &group, member).play();
        self.group = Some(group);
        Some(rollout)
    }

    /// Skips without playing what is skipped.
    fn nth(&mut self, count: usize) -> Option<Rollout> {
        self.next += count as u64;
        self.next()
    }
}

/// Counts over generated rollouts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Rollouts.
    pub rollouts: u64,
    /// Calls.
    pub calls: u64,
    /// Prompt tokens, every prompt whole.
    pub prompt_tokens: u64,
    /// Prompt tokens that no earlier context of the same rollout holds.
    pub new_tokens: u64,
    /// The same where a base may lie in another rollout.
    pub new_tokens_in_run: u64,
    /// Output tokens.
    pub sampled_tokens: u64,
    /// Length of the longest prompt.
    pub prompt_len_max: usize,
    /// Sampled tokens with a logprob of exactly zero.
    pub exact_zero: u64,
    /// Sampled tokens with a logprob above -0.01.
    pub near_zero: u64,
    /// Calls by how their prompt came about.
    pub transitions: BTreeMap<String, u64>,
}

impl fmt::Display for Summary {
    #[expect(clippy::cast_precision_loss, reason = "shares and means are for reading")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = |count: u64, total: u64| count as f64 / total.max(1) as f64;
        writeln!(f, "rollouts            {:>15}", self.rollouts)?;
        writeln!(f, "calls               {:>15}  {:.1} a rollout", self.calls, per(self.calls, self.rollouts))?;
        writeln!(
            f,
            "prompt tokens       {:>15}  mean {:.0}, longest {}",
            self.prompt_tokens,
            per(self.prompt_tokens, self.calls),
            self.prompt_len_max
        )?;
        let blow_up = per(self.prompt_tokens, self.new_tokens);
        writeln!(f, "new prompt tokens   {:>15}  {blow_up:.1} times fewer", self.new_tokens)?;
        writeln!(f, "  new in the run    {:>15}", self.new_tokens_in_run)?;
        writeln!(f, "sampled tokens      {:>15}", self.sampled_tokens)?;
        writeln!(
            f,
            "logprobs            {:.1} % exactly 0, {:.1} % above -0.01",
            100.0 * per(self.exact_zero, self.sampled_tokens),
            100.0 * per(self.near_zero, self.sampled_tokens)
        )?;
        let kinds: Vec<String> = self.transitions.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        write!(f, "transitions         {}", kinds.join(", "))
    }
}

#[cfg(test)]
mod tests;
