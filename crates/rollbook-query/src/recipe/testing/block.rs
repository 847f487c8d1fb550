//! The text of one test.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::build::BuildOptions;
use crate::error::{Error, Result};
use crate::recipe::testing::given::{Row, is_table};

/// One test as it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TestBlock {
    /// What it is about.
    pub(super) name: String,
    /// Line of the recipe where it begins.
    pub(super) line: usize,
    /// Rows by table.
    pub(super) given: BTreeMap<String, Vec<Row>>,
    /// Values of parameters, as text.
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) expectation: Expectation,
}

/// What must come out.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expectation {
    /// These rows and no others.
    Rows(Vec<Row>),
    /// An error whose message holds this text.
    Error(String),
}

/// Tokens a row of a tested build may have, where the test does not say.
const MAX_TOKENS: u32 = 1 << 20;

impl TestBlock {
    /// Reads the lines below `@test`; an error has the line it is about.
    pub(crate) fn parse<'a>(
        name: &str,
        line: usize,
        lines: impl Iterator<Item = (usize, &'a str)>,
    ) -> Result<Self, (usize, String)> {
        let mut given: BTreeMap<String, Vec<Row>> = BTreeMap::new();
        let (mut parameters, mut expected) = (BTreeMap::new(), Vec::new());
        let mut failure: Option<String> = None;
        if name.is_empty() {
            return Err((line, "a test needs a name: `-- @test what it shows`".to_owned()));
        }
        for Piece { line, word, text } in pieces(lines) {
            match word {
                "param" => {
                    let (name, value) =
                        text.split_once('=').ok_or_else(|| (line, "a parameter is given as NAME=VALUE".to_owned()))?;
                    parameters.insert(name.trim().to_owned(), value.trim().to_owned());
                }
                "error" => failure = Some(text),
                "expect" => expected.extend(rows(line, &text)?),
                table if is_table(table) => given.entry(table.to_owned()).or_default().extend(rows(line, &text)?),
                other => {
                    return Err((
                        line,
                        format!("`{other}` is no table and none of reward, credit, param, expect, error"),
                    ));
                }
            }
        }
        let expectation = match (failure, expected.is_empty()) {
            (Some(text), true) if !text.is_empty() => Expectation::Error(text),
            (None, false) => Expectation::Rows(expected),
            (Some(_), false) => return Err((line, format!("test `{name}` expects both rows and an error"))),
            _ => return Err((line, format!("test `{name}` expects nothing: add `expect {{…}}` or `error TEXT`"))),
        };
        Ok(Self { name: name.to_owned(), line, given, parameters, expectation })
    }

    /// Takes what belongs to a build itself out of the parameters.
    pub(super) fn build_options(&self) -> Result<BuildOptions> {
        let mut options = BuildOptions::new(MAX_TOKENS);
        for (name, value) in &self.parameters {
            let wrong = || Error::invalid(format!("`{value}` is no value of {name}"));
            match name.as_str() {
                "max_tokens" => options.max_tokens = value.parse().map_err(|source| wrong().caused_by(source))?,
                "accept_assumed" => {
                    options.accept_assumed = value.parse().map_err(|source| wrong().caused_by(source))?;
                }
                _ => drop(options.parameters.insert(name.clone(), value.clone())),
            }
        }
        Ok(options)
    }
}

/// A word with what follows it, as far as whole rows go.
struct Piece<'a> {
    line: usize,
    word: &'a str,
    text: String,
}

/// Cuts lines into pieces: a line that begins with `{` has the word of the one above, and one in the middle of a row
/// belongs to that row.
fn pieces<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Piece<'a>> {
    let mut pieces: Vec<Piece<'a>> = Vec::new();
    for (line, text) in lines {
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        match pieces.last_mut() {
            Some(last) if is_open(last) => {
                last.text.push(' ');
                last.text.push_str(text);
            }
            Some(last) if text.starts_with('{') => {
                let word = last.word;
                pieces.push(Piece { line, word, text: text.to_owned() });
            }
            _ => {
                let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
                pieces.push(Piece { line, word, text: rest.trim().to_owned() });
            }
        }
    }
    pieces
}

/// Whether a row has begun that has not ended.
fn is_open(piece: &Piece<'_>) -> bool {
    let mut values = serde_json::Deserializer::from_str(&piece.text).into_iter::<Value>();
    let takes_rows = !matches!(piece.word, "param" | "error");
    takes_rows && values.any(|value| value.is_err_and(|error| error.is_eof()))
}

/// Reads the objects of one line.
fn rows(line: usize, text: &str) -> Result<Vec<Row>, (usize, String)> {
    let mut rows = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Map<String, Value>>() {
        match value {
            Ok(fields) => rows.push(Row { line, fields }),
            Err(error) => return Err((line, format!("a row is a JSON object: {error}"))),
        }
    }
    if rows.is_empty() { Err((line, "there is no row".to_owned())) } else { Ok(rows) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TestBlock, (usize, String)> {
        TestBlock::parse("t", 3, text.lines().enumerate().map(|(index, line)| (index + 4, line)))
    }

    #[test]
    fn rows_parameters_and_continuations_are_read() {
        let block = parse(
            "  reward {\"rollout_id\": \"a\"} {\"rollout_id\": \"b\"}\n    {\"rollout_id\":\n  \"c\"}\n  param eps=0\n  expect {\"value\": 1}\n",
        )
        .unwrap();
        let lines: Vec<usize> = block.given["reward"].iter().map(|row| row.line).collect();
        assert_eq!(lines, [4, 4, 5]);
        assert_eq!(block.parameters["eps"], "0");
        assert!(matches!(&block.expectation, Expectation::Rows(rows) if rows.len() == 1 && rows[0].line == 8));
        let block = parse("param a=b=c\nerror it is: wrong\n").unwrap();
        assert_eq!(block.parameters["a"], "b=c");
        assert_eq!(block.expectation, Expectation::Error("it is: wrong".to_owned()));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let (line, message) = parse("expect {\"a\": 1}\nsocres {\"a\": 1}").unwrap_err();
        assert_eq!(line, 5);
        assert!(message.contains("`socres` is no table"), "{message}");
        assert_eq!(parse("expect {\"a\": }").unwrap_err().0, 4);
        assert_eq!(parse("expect").unwrap_err().1, "there is no row");
        assert!(parse("param x").unwrap_err().1.contains("NAME=VALUE"));
        assert!(parse("reward {\"a\": 1}").unwrap_err().1.contains("expects nothing"));
        assert!(parse("expect {\"a\": 1}\nerror x").unwrap_err().1.contains("both"));
    }
}
