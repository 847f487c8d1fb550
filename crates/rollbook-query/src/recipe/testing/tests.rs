//! Tests of recipe tests, and the tests of every shipped recipe.

use super::*;
use crate::recipe::catalog;

const CENTERED: &str = "\
-- @kind credit
-- @param bias double = 0
-- @check the bias must be below 10, not {bias}
--   SELECT $bias AS bias WHERE $bias >= 10
-- @test centered
--   reward {\"rollout_id\": \"a\", \"group_id\": \"g\", \"value\": 3} {\"rollout_id\": \"b\", \"group_id\": \"g\", \"value\": 1}
--   param bias=0.5
--   expect {\"rollout_id\": \"a\", \"value\": 1.5, \"baseline_key\": \"g\"}
--   expect {\"rollout_id\": \"b\", \"value\": -0.5}
-- @test wrong on purpose
--   reward {\"rollout_id\": \"a\", \"group_id\": \"g\", \"value\": 3} {\"rollout_id\": \"c\", \"value\": 0}
--   expect {\"rollout_id\": \"a\", \"value\": 1, \"baseline_count\": 1}
--   expect {\"rollout_id\": \"b\", \"value\": -1}
-- @test a large bias
--   reward {\"rollout_id\": \"a\", \"value\": 3}
--   param bias=11
--   error the bias must be below 10, not 11
-- @test an error that does not come
--   reward {\"rollout_id\": \"a\", \"value\": 3}
--   error too large
-- @test an unknown column
--   reward {\"rollout_id\": \"a\", \"valeu\": 3}
--   expect {\"rollout_id\": \"a\"}
SELECT run_id, rollout_id, value - avg(value) OVER (PARTITION BY run_id, group_id) + $bias AS value, group_id AS baseline_key
FROM reward
";

#[tokio::test(flavor = "multi_thread")]
async fn a_test_passes_fails_with_row_and_column_and_may_expect_an_error() {
    let recipe = Recipe::parse("mine", CENTERED).unwrap();
    let outcomes = run_tests(&recipe, &lake_options()).await.unwrap();
    let failures: Vec<&[String]> = outcomes.iter().map(|outcome| outcome.failures.as_slice()).collect();
    assert_eq!(failures[0], [] as [&str; 0]);
    assert_eq!(
        failures[1],
        [
            "line 13: there is no row for rollout b",
            "an unexpected row for rollout c, value 0.0",
            "line 12: rollout a, column value is 0.0, expected 1",
            "line 12: rollout a, column baseline_count is not returned",
        ]
    );
    assert_eq!(failures[2], [] as [&str; 0]);
    assert_eq!(failures[3], ["succeeds, expected the error `too large`"]);
    assert!(failures[4][0].contains("rewards.valeu: unknown column"), "{failures:?}");
    assert_eq!((outcomes[1].name.as_str(), outcomes[1].line), ("wrong on purpose", 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_shipped_recipe_has_tests_and_passes_them() {
    let recipes = catalog().unwrap();
    let without: Vec<&str> = recipes.iter().filter(|recipe| recipe.header.tests.is_empty()).map(Recipe::name).collect();
    assert_eq!(without, [] as [&str; 0], "these have no @test");
    let options = lake_options();
    let runs = recipes.iter().map(|recipe| async { (recipe.name(), run_tests(recipe, &options).await.unwrap()) });
    let mut failed = Vec::new();
    for (name, outcomes) in futures::future::join_all(runs).await {
        for outcome in outcomes.into_iter().filter(|outcome| !outcome.failures.is_empty()) {
            failed.push(format!(
                "{name}, line {}, {}:\n  {}",
                outcome.line,
                outcome.name,
                outcome.failures.join("\n  ")
            ));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
