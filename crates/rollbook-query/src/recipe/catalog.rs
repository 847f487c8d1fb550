//! The recipes that ship with Rollbook, and how a name is looked up.

use std::path::Path;

use crate::error::{Error, Result};
use crate::recipe::presets::PRESETS;
use crate::recipe::{Kind, Recipe};

/// Name and text of every shipped recipe: rewards, credits, builds.
const SHIPPED: &[(&str, &str)] = &[
    ("verifier_value", include_str!("../../../../sql/recipes/rewards/verifier_value.sql")),
    ("weighted_sum", include_str!("../../../../sql/recipes/rewards/weighted_sum.sql")),
    ("affine", include_str!("../../../../sql/recipes/rewards/affine.sql")),
    ("clip", include_str!("../../../../sql/recipes/rewards/clip.sql")),
    ("range_map", include_str!("../../../../sql/recipes/rewards/range_map.sql")),
    ("format_gate", include_str!("../../../../sql/recipes/rewards/format_gate.sql")),
    ("soft_overlong", include_str!("../../../../sql/recipes/rewards/soft_overlong.sql")),
    ("stop_properly", include_str!("../../../../sql/recipes/rewards/stop_properly.sql")),
    ("mask_truncated", include_str!("../../../../sql/recipes/rewards/mask_truncated.sql")),
    ("length_penalty", include_str!("../../../../sql/recipes/rewards/length_penalty.sql")),
    ("kimi_length", include_str!("../../../../sql/recipes/rewards/kimi_length.sql")),
    ("repetition_penalty", include_str!("../../../../sql/recipes/rewards/repetition_penalty.sql")),
    ("kl_penalty", include_str!("../../../../sql/recipes/rewards/kl_penalty.sql")),
    ("group_filter", include_str!("../../../../sql/recipes/rewards/group_filter.sql")),
    ("rank", include_str!("../../../../sql/recipes/rewards/rank.sql")),
    ("normalize", include_str!("../../../../sql/recipes/rewards/normalize.sql")),
    ("grpo", include_str!("../../../../sql/recipes/credits/grpo.sql")),
    ("dr_grpo", include_str!("../../../../sql/recipes/credits/dr_grpo.sql")),
    ("rloo", include_str!("../../../../sql/recipes/credits/rloo.sql")),
    ("gae", include_str!("../../../../sql/recipes/credits/gae.sql")),
    ("optimal_token_baseline", include_str!("../../../../sql/recipes/credits/optimal_token_baseline.sql")),
    ("reinforce_plus_plus", include_str!("../../../../sql/recipes/credits/reinforce_plus_plus.sql")),
    ("returns", include_str!("../../../../sql/recipes/credits/returns.sql")),
    ("areal/gae", include_str!("../../../../sql/recipes/credits/areal/gae.sql")),
    ("nemo-rl/gae", include_str!("../../../../sql/recipes/credits/nemo-rl/gae.sql")),
    ("openrlhf/gae", include_str!("../../../../sql/recipes/credits/openrlhf/gae.sql")),
    ("openrlhf/reinforce", include_str!("../../../../sql/recipes/credits/openrlhf/reinforce.sql")),
    ("ragen/bi_level_gae", include_str!("../../../../sql/recipes/credits/ragen/bi_level_gae.sql")),
    ("slime/reinforce_plus_plus", include_str!("../../../../sql/recipes/credits/slime/reinforce_plus_plus.sql")),
    ("verl/gae", include_str!("../../../../sql/recipes/credits/verl/gae.sql")),
    ("verl/optimal_token_baseline", include_str!("../../../../sql/recipes/credits/verl/optimal_token_baseline.sql")),
    ("verl/reinforce_plus_plus", include_str!("../../../../sql/recipes/credits/verl/reinforce_plus_plus.sql")),
    (
        "verl/tir_optimal_token_baseline",
        include_str!("../../../../sql/recipes/credits/verl/tir_optimal_token_baseline.sql"),
    ),
    ("gigpo", include_str!("../../../../sql/recipes/credits/gigpo.sql")),
    ("importance_weights", include_str!("../../../../sql/recipes/credits/importance_weights.sql")),
    ("mt_grpo", include_str!("../../../../sql/recipes/credits/mt_grpo.sql")),
    ("process_rewards", include_str!("../../../../sql/recipes/credits/process_rewards.sql")),
    ("turn_gae", include_str!("../../../../sql/recipes/credits/turn_gae.sql")),
    ("turn_returns", include_str!("../../../../sql/recipes/credits/turn_returns.sql")),
    ("vineppo", include_str!("../../../../sql/recipes/credits/vineppo.sql")),
    ("areal/turn_discount", include_str!("../../../../sql/recipes/credits/areal/turn_discount.sql")),
    ("roll/agentic_reinforce", include_str!("../../../../sql/recipes/credits/roll/agentic_reinforce.sql")),
    ("roll/gigpo", include_str!("../../../../sql/recipes/credits/roll/gigpo.sql")),
    ("roll/step_reinforce", include_str!("../../../../sql/recipes/credits/roll/step_reinforce.sql")),
    ("verl-agent/gigpo", include_str!("../../../../sql/recipes/credits/verl-agent/gigpo.sql")),
    ("verl/rollout_is", include_str!("../../../../sql/recipes/credits/verl/rollout_is.sql")),
    ("verl/rollout_rs", include_str!("../../../../sql/recipes/credits/verl/rollout_rs.sql")),
    ("on_policy_distillation", include_str!("../../../../sql/recipes/credits/on_policy_distillation.sql")),
    ("reinforce_plus_plus_baseline", include_str!("../../../../sql/recipes/credits/reinforce_plus_plus_baseline.sql")),
    ("advantage_clip", include_str!("../../../../sql/recipes/credits/advantage_clip.sql")),
    ("advantage_balance", include_str!("../../../../sql/recipes/credits/advantage_balance.sql")),
    ("off_policy_mask", include_str!("../../../../sql/recipes/credits/off_policy_mask.sql")),
    ("merged", include_str!("../../../../sql/recipes/builds/merged.sql")),
];

/// Other names of shipped recipes: those of the system's own registry where ours was written otherwise first.
const ALIASES: &[(&str, &str)] =
    &[("prime-rl/hierarchical_grpo", "prime-rl/hierarchical"), ("prime-rl/max_rl", "prime-rl/maxrl")];

/// Returns name and text of every shipped recipe.
fn shipped() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    SHIPPED.iter().chain(PRESETS)
}

/// Parses every shipped recipe, in the order they are documented: rewards, credits, builds.
pub fn catalog() -> Result<Vec<Recipe>> {
    let mut recipes = shipped().map(|(name, text)| Recipe::parse(name, text)).collect::<Result<Vec<_>>>()?;
    recipes.sort_by_key(|recipe| match recipe.kind() {
        Kind::Reward => 0,
        Kind::Credit => 1,
        Kind::Build => 2,
    });
    Ok(recipes)
}

/// Finds a recipe: a path of a file first, then the name of a shipped one.
pub fn find_recipe(name_or_path: &str) -> Result<Recipe> {
    let path = Path::new(name_or_path);
    if path.is_file() {
        let text = std::fs::read_to_string(path).map_err(|source| {
            Error::invalid(format!("recipe {name_or_path} cannot be read: {source}")).caused_by(source)
        })?;
        let stem = path.file_stem().map_or_else(|| name_or_path.into(), |stem| stem.to_string_lossy());
        return Recipe::parse(&stem, &text).map_err(|error| error.with("file", name_or_path));
    }
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name_or_path);
    let wanted = alias.map_or(name_or_path, |(_, name)| name);
    if let Some((name, text)) = shipped().find(|(name, _)| *name == wanted) {
        return Recipe::parse(name, text);
    }
    let names: Vec<_> = shipped().map(|(name, _)| *name).collect();
    Err(Error::not_found(format!(
        "there is no recipe {name_or_path}: it is no file, and the shipped ones are {}",
        names.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Collects the names of recipes below a folder: `gae`, `verl/gae`.
    fn collect(root: &Path, folder: &Path, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(root, &path, names);
            } else {
                let name = path.strip_prefix(root).unwrap().with_extension("");
                names.insert(name.to_string_lossy().into_owned());
            }
        }
    }

    #[test]
    fn the_list_holds_every_file_of_the_folder() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sql/recipes");
        let mut files = BTreeSet::new();
        for folder in ["rewards", "credits", "builds"] {
            let folder = root.join(folder);
            collect(&folder, &folder, &mut files);
        }
        let listed: BTreeSet<_> = shipped().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(listed, files);
        assert_eq!(catalog().unwrap().len(), files.len());
    }

    #[test]
    fn a_file_comes_before_the_catalog_and_an_unknown_name_lists_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.sql");
        std::fs::write(&file, "-- @kind reward\nSELECT 1").unwrap();
        assert_eq!(find_recipe(&file.to_string_lossy()).unwrap().name(), "mine");
        assert_eq!(find_recipe("grpo").unwrap().name(), "grpo");
        for (alias, name) in ALIASES {
            assert_eq!(find_recipe(alias).unwrap().name(), *name);
        }
        let message = find_recipe("gpro").unwrap_err().to_string();
        assert!(message.contains("verifier_value, weighted_sum, affine"), "{message}");
    }
}
