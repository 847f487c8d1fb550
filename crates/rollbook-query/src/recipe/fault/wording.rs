//! What the planner says, in the words of this program.

/// A message, and the words of SQL that it is about, the most telling first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Worded {
    pub(super) message: String,
    pub(super) words: Vec<String>,
}

/// Columns that are listed where one is not found.
const COLUMNS_SHOWN: usize = 24;

/// What stands before a message and says only where in the planner it was made.
const PREFIXES: [&str; 9] = [
    "type_coercion",
    "caused by",
    "Error during planning: ",
    "Schema error: ",
    "Execution error: ",
    "Internal error: ",
    "This feature is not implemented: ",
    "Arrow error: ",
    "SQL error: ",
];

/// Words a message anew, where it is one of the planner's.
pub(super) fn reword(text: &str) -> Worded {
    let text = stripped(text);
    let rules: [fn(&str) -> Option<Worded>; 15] = [
        no_value,
        no_column,
        no_table,
        no_function,
        own_function,
        no_signature,
        operator,
        ambiguous,
        not_grouped,
        no_condition,
        too_many_columns,
        same_name,
        no_cast,
        no_type,
        no_common_type,
    ];
    rules.iter().find_map(|rule| rule(text)).unwrap_or_else(|| {
        let first = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
        let mut words = quoted(text);
        words.push(first.to_owned());
        Worded { message: text.to_owned(), words }
    })
}

fn stripped(text: &str) -> &str {
    let mut text = text.trim();
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix)) {
        text = rest.trim_start();
    }
    text
}

fn worded(message: String, words: &[&str]) -> Worded {
    Worded { message, words: words.iter().map(|word| (*word).to_owned()).collect() }
}

/// The text between two marks.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0)
}

/// Everything a message quotes.
fn quoted(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for mark in ['\'', '`', '"'] {
        words.extend(text.split(mark).skip(1).step_by(2).map(str::to_owned));
    }
    words
}

/// The name of a column without its table.
fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name).trim_matches('"')
}

/// A parameter of the recipe that is not declared.
fn no_value(text: &str) -> Option<Worded> {
    let name = text.strip_prefix("parameter ")?.strip_suffix(" has no value")?;
    Some(worded(format!("parameter {name} has no value: declare it as `-- @param`"), &[name]))
}

fn no_column(text: &str) -> Option<Worded> {
    let rest = text.strip_prefix("No field named ")?;
    let name = rest.split(['\n', ' ']).next()?.trim_end_matches('.').replace('"', "");
    let meant = between(rest, "Did you mean '", "'").map(|meant| format!("; did you mean {}?", last(meant)));
    let known: Vec<&str> = between(rest, "Valid fields are ", ".\n")
        .or_else(|| rest.split_once("Valid fields are ").map(|(_, names)| names.trim_end_matches('.')))
        .map(|names| names.split(", ").map(last).collect())
        .unwrap_or_default();
    let mut message = format!("there is no column {name}{}", meant.unwrap_or_default());
    if !known.is_empty() {
        let more = if known.len() > COLUMNS_SHOWN { ", …" } else { "" };
        let join = if message.ends_with('?') { " there are " } else { "; there are " };
        message.push_str(&format!("{join}{}{more}", known[..known.len().min(COLUMNS_SHOWN)].join(", ")));
    }
    Some(worded(message, &[&name, last(&name)]))
}

fn no_table(text: &str) -> Option<Worded> {
    let name = last(between(text, "table '", "' not found")?);
    Some(worded(format!("there is no table {name}; `rollbook schema` lists the tables"), &[name]))
}

fn no_function(text: &str) -> Option<Worded> {
    let name = between(text, "Invalid function '", "'")?;
    let meant = between(text, "Did you mean '", "'").map(|meant| format!("; did you mean {meant}?"));
    Some(worded(format!("there is no function {name}{}", meant.unwrap_or_default()), &[name]))
}

/// A function of ours, which says itself what it wants.
fn own_function(text: &str) -> Option<Worded> {
    let name = between(text, "Function '", "' user-defined coercion failed with: ")?;
    let said = between(text, "failed with: ", ". No function matches")?;
    Some(worded(stripped(said).to_owned(), &[name]))
}

fn no_signature(text: &str) -> Option<Worded> {
    let signature = between(text, "No function matches the given name and argument types '", "'.")?;
    let (name, arguments) = signature.split_once('(')?;
    let arguments = types(arguments.trim_end_matches(')'));
    Some(worded(format!("{name} does not take ({arguments})"), &[name]))
}

/// Type names as the schema has them.
fn types(text: &str) -> String {
    let words = [
        ("LargeUtf8", "string"),
        ("Utf8View", "string"),
        ("Utf8", "string"),
        ("Float64", "double"),
        ("Float32", "float"),
        ("UInt64", "long"),
        ("Int64", "long"),
        ("Int32", "integer"),
        ("Boolean", "boolean"),
        ("List(", "array("),
        ("Null", "null"),
    ];
    words.iter().fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
}

fn operator(text: &str) -> Option<Worded> {
    let rest = text
        .split_once("Cannot coerce arithmetic expression ")
        .or_else(|| text.split_once("Cannot infer common argument type for comparison operation "))?
        .1;
    let expression = rest.split(" to valid types").next()?;
    Some(worded(format!("{} cannot be computed: the types do not fit", types(expression)), &[]))
}

fn ambiguous(text: &str) -> Option<Worded> {
    let name = text.strip_prefix("Ambiguous reference to unqualified field ")?.trim().trim_matches('"');
    Some(worded(format!("column {name} stands in several tables: say which, as TABLE.{name}"), &[name]))
}

fn not_grouped(text: &str) -> Option<Worded> {
    let name = last(between(text, "column \"", "\" must appear in the GROUP BY")?);
    Some(worded(format!("column {name} stands neither in GROUP BY nor inside an aggregate function"), &[name]))
}

fn no_condition(text: &str) -> Option<Worded> {
    let condition = between(text, "Cannot create filter with non-boolean predicate '", "' returning")?;
    let kind = types(text.rsplit("returning ").next()?.trim());
    Some(worded(format!("the condition {condition} is of type {kind}, not true or false"), &["WHERE"]))
}

fn too_many_columns(text: &str) -> Option<Worded> {
    let names = text.split_once("The subquery should only return one column: ")?.1;
    let names: Vec<&str> = names.lines().next()?.split(", ").map(last).collect();
    Some(worded(format!("a subquery in the place of a value returns one column, not {}", names.join(", ")), &[]))
}

fn same_name(text: &str) -> Option<Worded> {
    let rest = text.strip_prefix("Projections require unique expression names")?;
    let name = between(rest, " AS ", "\"").unwrap_or_else(|| between(rest, "\"", "\"").map_or("", last));
    Some(worded(format!("two columns are named {name}: give one another name with AS"), &[name]))
}

fn no_cast(text: &str) -> Option<Worded> {
    let value = between(text, "Cannot cast string '", "' to value of ")?;
    let kind = types(between(text, "to value of ", " type")?);
    Some(worded(format!("the text '{value}' cannot be read as {kind}"), &[]))
}

fn no_type(text: &str) -> Option<Worded> {
    let name = text.strip_prefix("Unsupported SQL type ")?.trim();
    Some(worded(format!("there is no type {name}"), &[name]))
}

fn no_common_type(text: &str) -> Option<Worded> {
    let rest = text.strip_prefix("Failed to coerce ")?;
    let pair = rest.split_once(" to common types in CASE WHEN")?.0;
    Some(worded(format!("CASE has {}: the types do not fit", types(pair)), &["CASE"]))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Left: what version 55 of the planner says.
    #[rstest]
    #[case(
        "Schema error: No field named r.valeu. Did you mean 'r.value'?\nValid fields are r.run_id, r.value.",
        "there is no column r.valeu; did you mean value? there are run_id, value",
        "r.valeu"
    )]
    #[case("Schema error: No field named foo. Valid fields are t.a.", "there is no column foo; there are a", "foo")]
    #[case(
        "Error during planning: table 'rollbook.lake.rewrads' not found",
        "there is no table rewrads; `rollbook schema` lists the tables",
        "rewrads"
    )]
    #[case(
        "Error during planning: Invalid function 'absolute'.\nDid you mean 'abs'?",
        "there is no function absolute; did you mean abs?",
        "absolute"
    )]
    #[case(
        "Error during planning: Execution error: Function 'grpo' user-defined coercion failed with: Error during planning: \
         grpo: value must be a number, not Utf8. No function matches the given name and argument types 'grpo(Utf8)'. You",
        "grpo: value must be a number, not Utf8",
        "grpo"
    )]
    #[case(
        "Error during planning: Internal error: Function 'sum' failed to match any signature, errors: x.\nThis issue. \
         No function matches the given name and argument types 'sum(Utf8)'. You might",
        "sum does not take (string)",
        "sum"
    )]
    #[case(
        "Schema error: Ambiguous reference to unqualified field step",
        "column step stands in several tables: say which, as TABLE.step",
        "step"
    )]
    #[case(
        "Error during planning: Column in SELECT must be in GROUP BY or an aggregate function: While expanding wildcard, \
         column \"rewards.value\" must appear in the GROUP BY clause or must be part of an aggregate function, currently",
        "column value stands neither in GROUP BY nor inside an aggregate function",
        "value"
    )]
    #[case("This feature is not implemented: Unsupported SQL type FOO", "there is no type FOO", "FOO")]
    #[case(
        "Error during planning: Failed to coerce then (Utf8) and else (Int64) to common types in CASE WHEN expression",
        "CASE has then (string) and else (long): the types do not fit",
        "CASE"
    )]
    #[case("parameter $nope has no value", "parameter $nope has no value: declare it as `-- @param`", "$nope")]
    fn the_planners_words_become_ours(#[case] theirs: &str, #[case] ours: &str, #[case] word: &str) {
        let worded = reword(theirs);
        assert_eq!(worded.message, ours);
        assert_eq!(worded.words[0], word);
    }

    #[test]
    fn what_names_no_word_has_a_message_all_the_same() {
        let message = |text: &str| reword(text).message;
        assert_eq!(
            message(
                "type_coercion\ncaused by\nError during planning: Cannot coerce arithmetic expression Utf8 + Int64 to valid types"
            ),
            "string + long cannot be computed: the types do not fit"
        );
        assert_eq!(
            message("Error during planning: Cannot create filter with non-boolean predicate 't.a' returning Float64"),
            "the condition t.a is of type double, not true or false"
        );
        assert_eq!(
            message("Arrow error: Cast error: Cannot cast string 'x' to value of Float64 type"),
            "the text 'x' cannot be read as double"
        );
    }
}
