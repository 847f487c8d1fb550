//! What holds for every function: its list entry, its folder, its documentation.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::{fs, iter};

use datafusion_common::Result;

use super::*;

/// A lake that holds no encoding.
#[derive(Debug)]
struct Nothing;

impl Encodings for Nothing {
    fn encode(&self, _: &str, _: &str) -> Result<Option<Vec<i32>>> {
        Ok(None)
    }

    fn decode(&self, _: &str, _: &[i32], _: bool) -> Result<Option<String>> {
        Ok(None)
    }

    fn render(&self, _: &str, _: &str) -> Result<Option<String>> {
        Ok(None)
    }
}

/// Returns the folders below a folder, sorted.
fn folders(path: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(path).unwrap().map(std::io::Result::unwrap).filter(|entry| entry.path().is_dir());
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn every_folder_is_listed_and_every_entry_has_its_folder() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let on_disk: BTreeSet<String> = folders(&src)
        .iter()
        .flat_map(|family| folders(&src.join(family)).into_iter().map(move |name| format!("{family}/{name}")))
        .collect();
    let listed: BTreeSet<String> =
        functions().iter().map(|function| format!("{}/{}", function.family, function.name)).collect();
    assert_eq!(listed, on_disk);
    for function in functions() {
        let slt = src.join(function.family).join(function.name).join(format!("{}.slt", function.name));
        assert_eq!(fs::read_to_string(slt).unwrap(), function.slt);
    }
}

#[test]
fn every_function_is_registered_under_its_name() {
    let scalar = scalar_udfs().into_iter().map(|udf| udf.name().to_owned());
    let encoding =
        encoding_udfs(&(Arc::new(Nothing) as Arc<dyn Encodings>)).into_iter().map(|udf| udf.name().to_owned());
    let window = window_udfs().into_iter().map(|udf| udf.name().to_owned());
    let aggregate = aggregate_udfs().into_iter().map(|udf| udf.name().to_owned());
    let registered: BTreeSet<String> = scalar.chain(encoding).chain(window).chain(aggregate).collect();
    assert_eq!(registered, functions().iter().map(|function| function.name.to_owned()).collect());
}

#[test]
fn every_function_is_documented_with_an_example() {
    for function in functions() {
        let name = function.name;
        assert!(function.doc.starts_with("Returns ") && function.doc.ends_with('.'), "{name}: {}", function.doc);
        assert!(function.example_sql().contains(&format!("{name}(")), "{name}: {}", function.example_sql());
        assert!(!function.example_result().is_empty(), "{name}");
        assert!(function.slt.starts_with("query "), "{name}: the first record is the example");
        let texts = function.params.iter().map(|param| param.doc).chain(iter::once(function.doc));
        assert!(texts.clone().all(|text| text.ends_with('.')), "{name}");
    }
}

#[test]
fn defaults_are_literals_and_stand_at_the_end() {
    for function in functions() {
        let has_default: Vec<bool> = function.params.iter().map(|param| param.default.is_some()).collect();
        assert!(has_default.is_sorted(), "{}: {has_default:?}", function.name);
        for param in function.params.iter().filter(|param| param.default.is_some()) {
            param.default_value().unwrap();
        }
    }
}

#[test]
fn syntax_shows_defaults() {
    let dr_grpo = functions().iter().find(|function| function.name == "dr_grpo").unwrap();
    assert_eq!(
        dr_grpo.syntax(),
        "dr_grpo(value, rollout_id, singleton => 'zero', zero_variance => 'zero', missing => 'skip', nan => 'error', \
         group_size => NULL, incomplete => 'keep', votes => 1) OVER (…)"
    );
}
