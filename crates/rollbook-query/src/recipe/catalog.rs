//! The recipes that ship with Rollbook, and how a name is looked up.

use std::path::Path;

use crate::error::{Error, Result};
use crate::recipe::Recipe;

/// Name and text of every shipped recipe: rewards, credits, builds.
const SHIPPED: &[(&str, &str)] = &[
    ("verifier_value", include_str!("../../../../sql/recipes/rewards/verifier_value.sql")),
    ("weighted_sum", include_str!("../../../../sql/recipes/rewards/weighted_sum.sql")),
    ("grpo", include_str!("../../../../sql/recipes/credits/grpo.sql")),
    ("dr_grpo", include_str!("../../../../sql/recipes/credits/dr_grpo.sql")),
    ("rloo", include_str!("../../../../sql/recipes/credits/rloo.sql")),
    ("merged", include_str!("../../../../sql/recipes/builds/merged.sql")),
];

/// Parses every shipped recipe, in the order they are documented.
pub fn catalog() -> Result<Vec<Recipe>> {
    SHIPPED.iter().map(|(name, text)| Recipe::parse(name, text)).collect()
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
    if let Some((name, text)) = SHIPPED.iter().find(|(name, _)| *name == name_or_path) {
        return Recipe::parse(name, text);
    }
    let names: Vec<_> = SHIPPED.iter().map(|(name, _)| *name).collect();
    Err(Error::not_found(format!(
        "there is no recipe {name_or_path}: it is no file, and the shipped ones are {}",
        names.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_list_holds_every_file_of_the_folder() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sql/recipes");
        let mut files = BTreeSet::new();
        for folder in ["rewards", "credits", "builds"] {
            for entry in std::fs::read_dir(root.join(folder)).unwrap() {
                let path = entry.unwrap().path();
                files.insert(path.file_stem().unwrap().to_string_lossy().into_owned());
            }
        }
        let listed: BTreeSet<_> = SHIPPED.iter().map(|(name, _)| (*name).to_owned()).collect();
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
        let message = find_recipe("gpro").unwrap_err().to_string();
        assert!(message.contains("verifier_value, weighted_sum, grpo"), "{message}");
    }
}
