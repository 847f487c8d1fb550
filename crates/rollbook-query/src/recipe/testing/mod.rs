//! Tests that a recipe carries in its leading comment: rows in, rows out, over a lake that lives as long as the test.
//!
//! ```text
//! -- @test a singleton is compared with nobody
//! --   reward {"rollout_id": "a", "group_id": "g", "value": 1}     a table and its rows; `reward` and `credit` are the upstream
//! --   param eps=0                                                a parameter; a build also takes max_tokens and accept_assumed
//! --   expect {"rollout_id": "a", "value": 0}                     a row that must come; only its columns are compared
//! -- @test a weight must be a number
//! --   param weights={"v": "x"}
//! --   error the weight of verifier v is no number                or: part of the message of the error that must come
//! ```
//!
//! A line that begins with `{` continues the one above it, and a row may go over several lines. What a row leaves out is filled in: run `run`, rollouts that only
//! other rows name (with the columns of rollouts that a `reward` or `credit` row has), `score_id`, a call's exactness and
//! logprob source `engine`; `"output_len": 3` without `output_token_ids` stands for three tokens, `"prompt_len"` likewise.
//! Every row that the recipe returns must be expected: those of a reward or credit are found by run, rollout and call, those
//! of a build's plan come in the order of their place. Numbers agree to 1e-9 of their size, stored floats to 1e-6.

mod block;
mod compare;
mod given;
mod scratch;

use rollbook_lake::LakeOptions;

pub(crate) use block::TestBlock;

use crate::build::BuildOptions;
use crate::error::Result;
use crate::recipe::{DeriveOptions, Kind, Recipe, derive};
use block::Expectation;

/// How one test of a recipe went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestOutcome {
    /// Its name.
    pub name: String,
    /// Line of the recipe where it begins.
    pub line: usize,
    /// What is wrong, a line for each row that differs; empty where it passed.
    pub failures: Vec<String>,
}

/// Runs the tests of a recipe, one after the other, each in a lake of its own below the system's temporary folder.
///
/// # Errors
///
/// The machine's: no folder can be made. What is wrong with a recipe or a test is an outcome.
pub async fn run_tests(recipe: &Recipe, lake: &LakeOptions) -> Result<Vec<TestOutcome>> {
    let mut outcomes = Vec::new();
    for block in &recipe.header.tests {
        let failures = match run(recipe, block, lake).await {
            Ok(failures) => failures,
            Err(error) => vec![error.to_string()],
        };
        outcomes.push(TestOutcome { name: block.name.clone(), line: block.line, failures });
    }
    Ok(outcomes)
}

async fn run(recipe: &Recipe, block: &TestBlock, lake: &LakeOptions) -> Result<Vec<String>> {
    let scratch = scratch::Scratch::new(block, lake).await?;
    let session = scratch.session().await?;
    let returned = match recipe.kind() {
        Kind::Reward | Kind::Credit => {
            let upstream = |word: &str| block.given.contains_key(word).then_some(given::UPSTREAM);
            let options = DeriveOptions {
                parameters: block.parameters.clone(),
                credit: upstream("credit").map(str::to_owned),
                ..DeriveOptions::default()
            };
            derive::rows_of(&session, recipe, upstream("reward"), &options).await
        }
        Kind::Build => match block.build_options() {
            Ok(options) => {
                let options = BuildOptions { run: Some(given::RUN.to_owned()), ..options };
                crate::build::plan_of(&session, recipe, given::UPSTREAM, &options).await
            }
            Err(error) => Err(error),
        },
    };
    Ok(match (&block.expectation, returned) {
        (Expectation::Error(text), Err(error)) => {
            let message = error.to_string();
            if message.contains(text) { Vec::new() } else { vec![format!("fails with `{message}`, expected `{text}`")] }
        }
        (Expectation::Error(text), Ok(_)) => vec![format!("succeeds, expected the error `{text}`")],
        (Expectation::Rows(_), Err(error)) => vec![error.to_string()],
        (Expectation::Rows(expected), Ok(batches)) => compare::differences(recipe.kind(), &batches, expected)?,
    })
}

/// Names of the shared clock that tests of this crate use.
#[cfg(test)]
fn lake_options() -> LakeOptions {
    LakeOptions {
        env: std::collections::BTreeMap::new(),
        clock: std::sync::Arc::new(|| 1_795_910_400_000_000),
        author: "test".to_owned(),
    }
}

#[cfg(test)]
mod tests;
