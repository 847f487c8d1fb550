//! The command line itself: help, output formats, what goes to stdout and what to stderr, exit statuses, quickstart.

use std::io::Read;
use std::process::Stdio;

use rollbook_tests::Scratch;
use serde_json::{Value, json};

/// In the order of the help.
const COMMANDS: [&str; 21] = [
    "quickstart",
    "init",
    "import",
    "sql",
    "audit",
    "rules",
    "quarantine",
    "reward",
    "credit",
    "build",
    "compare",
    "weights",
    "export",
    "verify",
    "status",
    "compact",
    "history",
    "schema",
    "functions",
    "checks",
    "recipes",
];

const CALL: &str = r#"{"run_id":"r","rollout_id":"a","call_id":"c","call_index":0,"prompt_token_ids":[1,2],"output_token_ids":[3],"output_logprobs":[-0.5],"output_text":"one, \"two\"\n\u001b[31mthree"}"#;

fn small_lake() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("run/calls.jsonl", CALL);
    scratch.write("run/rollouts.jsonl", r#"{"run_id":"r","rollout_id":"a","step":1,"group_id":"g"}"#);
    scratch.ok(&["init", "lake"]);
    scratch.ok(&["import", "tables", "run", "--lake", "lake"]);
    scratch
}

#[test]
fn every_command_is_listed_and_its_help_has_examples() {
    let scratch = Scratch::new();
    let help = scratch.ok(&["--help"]).text();
    let listed: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert_eq!(listed, COMMANDS);
    // The quickstart is itself an example.
    for command in COMMANDS.into_iter().filter(|name| *name != "quickstart") {
        let help = scratch.ok(&[command, "--help"]).text();
        assert!(help.contains("Examples:\n") && help.contains(&format!("rollbook {command}")), "{command}:\n{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 125), "{command}:\n{help}");
    }
    assert!(help.contains("Exit status: 0 done, 1 findings or a failed check, 2 wrong usage or input, 3 "), "{help}");
}

#[test]
fn wrong_usage_ends_with_2_and_says_so_on_stderr_alone() {
    let scratch = small_lake();
    for arguments in [
        &["frobnicate"][..],
        &["sql", "--lake", "lake", "--format", "xml", "-c", "SELECT 1"],
        &["sql", "--lake", "lake", "-c", "SELECT 1", "-f", "x.sql"],
        &["sql", "--lake", "lake", "-f", "missing.sql"],
        &["sql", "--lake", "lake", "--at", "minus one", "-c", "SELECT 1"],
        &["sql", "--lake", "lake", "-c", "SELECT nothing FROM calls"],
        &["sql", "--lake", "lake", "-c", "SELEC 1"],
        &["import", "xml", "run", "--lake", "lake"],
        &["import", "tables", "missing", "--lake", "lake"],
        &["audit", "--lake", "lake", "--fail-on", "whim"],
        &["reward", "--lake", "lake"],
        &["build", "merged", "--credit", "grpo", "--max-tokens", "many", "--objective", "rollout", "--lake", "lake"],
        &["export", "nothing", "dest", "--lake", "lake"],
        &["schema", "no_such_table"],
        &["checks", "no/such_check"],
        &["functions", "no_such_function"],
    ] {
        let ran = scratch.run(arguments).ended(2);
        assert!(ran.stdout.is_empty() && ran.stderr.starts_with("error: "), "{arguments:?}: {ran:?}");
    }
}

#[test]
fn machine_formats_are_read_by_other_readers() {
    let scratch = small_lake();
    let sql = "SELECT call_id, prompt_len, prompt_token_ids, output_logprobs, parent_call_id, output_text FROM calls";
    let text = "one, \"two\"\n\u{1b}[31mthree";
    let columns =
        json!(["call_id", "prompt_len", "prompt_token_ids", "output_logprobs", "parent_call_id", "output_text"]);
    for format in ["csv", "ndjson", "arrow", "parquet"] {
        let ran = scratch.ok(&["sql", "--lake", "lake", "--format", format, "-c", sql]);
        assert_eq!(ran.stderr, "");
        scratch.write("rows", ran.stdout);
        let read = scratch.python("read_rows.py", &[format, "rows"]);
        let row = match format {
            "csv" => json!(["c", "2", "[1,2]", "[-0.5]", "", text]),
            _ => json!(["c", 2, [1, 2], [-0.5], null, text]),
        };
        assert_eq!(read, json!({"columns": columns, "rows": [row]}), "{format}");
    }
    // No rows: still a header, a schema.
    for format in ["csv", "arrow", "parquet"] {
        let empty = format!("{sql} WHERE call_id = 'none'");
        scratch.write("rows", scratch.ok(&["sql", "--lake", "lake", "--format", format, "-c", &empty]).stdout);
        assert_eq!(scratch.python("read_rows.py", &[format, "rows"]), json!({"columns": columns, "rows": []}));
    }
}

#[test]
fn numbers_that_json_lacks_are_words_and_no_nulls() {
    let scratch = small_lake();
    let sql =
        "SELECT CAST('NaN' AS DOUBLE) AS a, CAST('-Infinity' AS DOUBLE) AS b, CAST(NULL AS DOUBLE) AS c, 0.1 AS d";
    let rows = scratch.rows("lake", sql);
    assert_eq!(rows, [json!({"a": "NaN", "b": "-Infinity", "c": null, "d": 0.1})]);
}

#[test]
fn a_table_shows_no_raw_escapes_and_no_more_rows_than_asked() {
    let scratch = small_lake();
    let shown = scratch.ok(&["sql", "--lake", "lake", "-c", "SELECT output_text FROM calls"]).text();
    assert!(shown.contains("three") && !shown.contains('\u{1b}'), "{shown:?}");
    let many = "SELECT value FROM generate_series(1, 500)";
    let lines = |rows: &str| {
        scratch
            .ok(&["sql", "--lake", "lake", "--rows", rows, "-c", many])
            .text()
            .lines()
            .filter(|line| line.trim().parse::<u32>().is_ok())
            .count()
    };
    assert_eq!((lines("7"), lines("0")), (7, 500));
    let error = scratch.run(&["sql", "--lake", "lake", "-c", "SELECT * FROM \"\u{1b}[31mx\""]).ended(2);
    assert!(!error.stderr.contains('\u{1b}'), "{:?}", error.stderr);
}

#[test]
fn stdout_holds_the_document_alone() {
    let scratch = small_lake();
    for arguments in [
        &["status", "--lake", "lake"][..],
        &["history", "--lake", "lake"],
        &["audit", "--lake", "lake", "--fail-on", "never"],
        &["import", "tables", "run", "--lake", "lake"],
        &["schema"],
        &["schema", "calls"],
        &["functions"],
        &["checks"],
        &["recipes"],
    ] {
        let ran = scratch.ok(&[arguments, &["--format", "json"]].concat());
        assert!(ran.json().is_object() || ran.json().is_array(), "{arguments:?}");
    }
    // The audit says on stderr that it was recorded.
    let audit = scratch.ok(&["audit", "--lake", "lake", "--fail-on", "never", "--format", "json"]);
    assert!(audit.stderr.contains("recorded as audit-"), "{}", audit.stderr);
    let keys: Vec<String> = audit.json().as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["snapshot", "checks", "findings"]);
}

#[test]
fn statements_come_from_a_file_or_from_standard_input() {
    let scratch = small_lake();
    scratch.write("query.sql", "-- how many\nSELECT count(*) AS calls\nFROM calls;\n");
    let from_file = scratch.ok(&["sql", "--lake", "lake", "-f", "query.sql", "--format", "csv"]).text();
    assert_eq!(from_file, "calls\n1\n");
    let mut command = scratch.command(&["sql", "--lake", "lake", "--format", "csv"]);
    let piped = command.stdin(std::fs::File::open(scratch.path("query.sql")).unwrap()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&piped.stdout), "calls\n1\n");
    let by_variable =
        scratch.command(&["sql", "-f", "query.sql", "--format", "csv"]).env("ROLLBOOK_LAKE", "lake").output();
    assert_eq!(String::from_utf8_lossy(&by_variable.unwrap().stdout), "calls\n1\n");
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let scratch = small_lake();
    let many = "SELECT value, repeat('x', 1000) AS filling FROM generate_series(1, 20000)";
    for format in ["csv", "ndjson", "table", "arrow"] {
        let arguments = ["sql", "--lake", "lake", "--rows", "0", "--format", format, "-c", many];
        let mut child = scratch.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{format}: {output:?}");
    }
}

#[test]
fn the_catalogs_are_whole() {
    let scratch = Scratch::new();
    let names = |arguments: &[&str], key: &str| -> Vec<String> {
        let listed = scratch.ok(&[arguments, &["--format", "json"]].concat()).json();
        let listed = match listed {
            Value::Array(items) => items,
            Value::Object(object) => object.into_values().find_map(|value| value.as_array().cloned()).unwrap(),
            _ => Vec::new(),
        };
        listed.iter().map(|item| item[key].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(names(&["schema"], "name").len(), 21);
    let functions = names(&["functions"], "name");
    for name in ["is_extension", "common_prefix_len", "token_digest", "slice", "grpo", "dr_grpo", "rloo", "pack"] {
        assert!(functions.iter().any(|listed| listed == name), "{name} of {functions:?}");
    }
    let mut checks = names(&["checks"], "check");
    checks.sort();
    let mut expected: Vec<&str> = rollbook_testing::faults::CHECKS.to_vec();
    expected.sort_unstable();
    assert_eq!(checks, expected);
    // That every file of sql/recipes is listed is a test of the catalog itself.
    let recipes = names(&["recipes"], "name");
    for name in ["dr_grpo", "grpo", "merged", "rloo", "verifier_value", "weighted_sum", "gae", "verl/gae"] {
        assert!(recipes.iter().any(|listed| listed == name), "{name} of {recipes:?}");
    }
}

/// By hand: three tokens were sampled, two of them train in both rows; r1 is the only rollout and has the whole weight.
#[test]
fn weights_account_for_every_sampled_token() {
    let scratch = Scratch::new();
    let case = rollbook_testing::faults::cases().unwrap().into_iter().find(|case| case.name == "B023").unwrap();
    scratch.ok(&["init", "lake"]);
    scratch.ok(&["import", "tables", case.bad().to_str().unwrap(), "--lake", "lake"]);
    let lines = scratch.ok(&["weights", "build", "--lake", "lake", "--format", "json"]).json();
    let told = |name: &str| {
        let mut lines = lines.as_array().unwrap().iter();
        lines.find(|line| line["name"] == json!(name)).unwrap_or_else(|| panic!("no line {name}")).clone()
    };
    let counts: Vec<i64> = ["sampled", "trained", "unaccounted", "duplicated", "untraced"]
        .map(|name| told(name)["tokens"].as_i64().unwrap())
        .to_vec();
    assert_eq!(counts, [3, 3, 0, 2, 0]);
    let step = told("optimizer step 0");
    assert_eq!((&step["tokens"], &step["rows"]), (&json!(5), &json!(2)));
    assert!((step["observed"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{step}");
    assert_eq!(told("r1")["expected"], json!(1.0));
    // Each line opens to what it counts.
    for name in ["trained", "duplicated", "r1", "optimizer step 0"] {
        let rows =
            scratch.ok(&["sql", "--lake", "lake", "--format", "json", "-c", told(name)["opens"].as_str().unwrap()]);
        assert!(!rows.json().as_array().unwrap().is_empty(), "{name}");
    }
    let spans = scratch.ok(&["weights", "build", "--lake", "lake", "--rollout", "r1", "--format", "csv"]).text();
    assert_eq!(spans.lines().filter(|line| line.starts_with("trained,")).count(), 3, "{spans}");
    let table = scratch.ok(&["weights", "build", "--lake", "lake"]).text();
    assert!(table.contains("1 of 1 shares are those of the objective"), "{table}");
    scratch.run(&["weights", "none", "--lake", "lake"]).ended(2).saying(&["no build none", "it has build"]);
}

#[test]
fn quickstart_walks_the_whole_way_from_any_folder() {
    let scratch = Scratch::new();
    let told = scratch.ok(&["quickstart"]).text();
    let commands: Vec<&str> = told
        .lines()
        .filter_map(|line| line.strip_prefix("$ rollbook "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let walk = ["init", "import", "sql", "audit", "reward", "credit", "build", "audit", "export", "sql"];
    assert_eq!(commands, walk);
    assert!(told.contains("What to try next:"), "{told}");
    scratch.ok(&["verify", "quickstart-export"]);
    assert_eq!(scratch.number("quickstart-lake", "SELECT count(*) FROM calls"), 1335);
    // Elsewhere, by a folder's name, and a second time.
    scratch.ok(&["quickstart", "--dir", "deep/down"]);
    scratch.ok(&["quickstart", "--dir", "deep/down"]);
    scratch.ok(&["verify", "deep/down/quickstart-export"]);
    scratch.ok(&["verify", "deep/down/quickstart-export-2"]);
    assert_eq!(scratch.number("deep/down/quickstart-lake", "SELECT count(*) FROM calls"), 1335);
}
