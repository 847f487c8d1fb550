//! The leading comment of a recipe: what it is, its parameters, and the checks to make before it runs.
//!
//! ```text
//! -- @kind credit                                  reward | credit | build
//! -- @doc Group-relative advantage.                one line each; a line without `@` continues the one above
//! -- @formula (r - mean) / (std + eps)
//! -- @source arXiv 2402.03300
//! -- @differs from trl/grpo: eps 1e-6              what other recipes of the name do otherwise
//! -- @param eps double = 1e-6 : added to the std   name, type, default (none = required), doc
//! -- @check rollout {rollout_id} was scored twice  message; {column} is filled from the first row found
//! --   SELECT rollout_id FROM scores ...           the query, over as many lines as it needs: it must find no row
//! -- @test the winner stands out                   rows in, rows out, see [`crate::recipe::testing`]
//! --   reward {"rollout_id": "a", "value": 1}
//! --   expect {"rollout_id": "a", "value": 0}
//! ```

use crate::error::{Error, Result};
use crate::recipe::parameter::{Parameter, ParameterType};
use crate::recipe::testing::TestBlock;

/// Which table a recipe's rows go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Rows of `rewards`.
    Reward,
    /// Rows of `credits`.
    Credit,
    /// A plan, from which the engine makes `samples`.
    Build,
}

impl Kind {
    /// Returns the word used in headers, SQL and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reward => "reward",
            Self::Credit => "credit",
            Self::Build => "build",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Reward, Self::Credit, Self::Build].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A query that must find no row before the recipe may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    /// What to say about the first row found.
    pub(crate) message: String,
    /// The query, at the lines and columns where it stands in the recipe.
    pub(crate) sql: String,
}

/// Everything the leading comment says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) name: Option<String>,
    pub(crate) doc: String,
    pub(crate) formula: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) differs: Option<String>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) checks: Vec<Check>,
    pub(crate) tests: Vec<TestBlock>,
}

/// One `@tag` with its own line's text and the lines below it.
struct Entry<'a> {
    line: usize,
    tag: &'a str,
    text: String,
    below: Vec<(usize, &'a str)>,
}

/// Reads the leading comment of a recipe; `name` stands in its errors.
pub(crate) fn parse_header(name: &str, text: &str) -> Result<Header> {
    let mut kind = None;
    let mut header = Header {
        kind: Kind::Reward,
        name: None,
        doc: String::new(),
        formula: None,
        source: None,
        differs: None,
        parameters: Vec::new(),
        checks: Vec::new(),
        tests: Vec::new(),
    };
    for entry in entries(name, text)? {
        let at = |message: String| wrong(name, text, entry.line, &message);
        match entry.tag {
            "kind" => {
                let word = entry.text.trim();
                let known = || at(format!("unknown kind `{word}`: it is reward, credit or build"));
                kind = Some(Kind::parse(word).ok_or_else(known)?);
            }
            "name" => header.name = Some(entry.text.trim().to_owned()),
            "doc" => header.doc = entry.prose(),
            "formula" => header.formula = Some(entry.prose()),
            "source" => header.source = Some(entry.prose()),
            "param" => {
                let parameter = parse_parameter(&entry.prose()).map_err(at)?;
                if header.parameters.iter().any(|known| known.name == parameter.name) {
                    return Err(at(format!("parameter `{}` is declared twice", parameter.name)));
                }
                header.parameters.push(parameter);
            }
            "differs" => header.differs = Some(entry.prose()),
            "check" => header.checks.push(entry.check(text).map_err(at)?),
            "test" => {
                let lines = entry.below.iter().map(|(line, text)| (line + 1, *text));
                let block = TestBlock::parse(&entry.text, entry.line, lines)
                    .map_err(|(line, message)| wrong(name, text, line, &message))?;
                header.tests.push(block);
            }
            other => {
                return Err(at(format!(
                    "unknown tag `@{other}`: a header knows kind, name, doc, formula, source, differs, param, check and test"
                )));
            }
        }
    }
    header.kind = kind.ok_or_else(|| {
        Error::invalid(format!(
            "recipe {name} does not say what it makes: put `-- @kind reward`, `credit` or `build` on its first line"
        ))
    })?;
    Ok(header)
}

/// The error for a line of the leading comment, at its first word.
fn wrong(name: &str, text: &str, line: usize, message: &str) -> Error {
    let content = text.lines().nth(line - 1).unwrap_or_default();
    let column = content.chars().take_while(|c| c.is_whitespace() || *c == '-').count() + 1;
    Error::invalid(format!("recipe {name}, line {line}, column {column}: {message}"))
}

fn entries<'a>(name: &str, text: &'a str) -> Result<Vec<Entry<'a>>> {
    let mut entries: Vec<Entry<'a>> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("--") else {
            if line.trim().is_empty() {
                continue;
            }
            break;
        };
        if let Some(tagged) = comment.trim_start().strip_prefix('@') {
            let (tag, rest) = tagged.split_once(char::is_whitespace).unwrap_or((tagged, ""));
            entries.push(Entry { line: index + 1, tag, text: rest.trim().to_owned(), below: Vec::new() });
        } else if let Some(entry) = entries.last_mut() {
            entry.below.push((index, comment));
        }
    }
    if entries.is_empty() {
        return Err(Error::invalid(format!(
            "recipe {name} has no header: it begins with a comment such as `-- @kind reward`"
        )));
    }
    Ok(entries)
}

impl Entry<'_> {
    fn prose(&self) -> String {
        let mut words = vec![self.text.as_str()];
        words.extend(self.below.iter().map(|(_, line)| line.trim()).filter(|line| !line.is_empty()));
        words.join(" ")
    }

    /// Cuts the check's query out of the recipe: all else becomes blank, so that positions stay those of the file.
    fn check(&self, text: &str) -> Result<Check, String> {
        if self.below.iter().all(|(_, line)| line.trim().is_empty()) {
            return Err("a check needs a query on the comment lines below it".to_owned());
        }
        let mut sql = String::new();
        for (index, line) in text.lines().enumerate() {
            if self.below.iter().any(|(below, _)| *below == index) {
                sql.push_str(&line.replacen("--", "  ", 1));
            }
            sql.push('\n');
        }
        Ok(Check { message: self.text.clone(), sql })
    }
}

/// Reads `NAME TYPE [= DEFAULT] [: DOC]`.
fn parse_parameter(text: &str) -> Result<Parameter, String> {
    let (declaration, doc) = text.split_once(" : ").unwrap_or((text, ""));
    let (head, default) = match declaration.split_once('=') {
        Some((head, default)) => (head, Some(default.trim().to_owned())),
        None => (declaration, None),
    };
    let mut words = head.split_whitespace();
    let (Some(name), Some(type_name), None) = (words.next(), words.next(), words.next()) else {
        return Err("a parameter is declared as `NAME TYPE [= DEFAULT] [: DOC]`".to_owned());
    };
    let ty = ParameterType::parse(type_name)
        .ok_or_else(|| format!("unknown type `{type_name}` of parameter `{name}`: {}", ParameterType::LIST))?;
    let parameter = Parameter { name: name.to_owned(), ty, default, doc: doc.trim().to_owned() };
    if let Some(default) = &parameter.default {
        parameter.value(default).map_err(|message| format!("default of parameter `{name}`: {message}"))?;
    }
    Ok(parameter)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "-- @kind credit\n-- @doc First line\n--   second line.\n-- @formula r - mean\n\
        -- @param eps double = 1e-6 : added to the std: always\n-- @param weights json\n\
        -- @check rollout {rollout_id} is scored twice\n--   SELECT rollout_id\n--   FROM scores\nSELECT 1 -- tail\n";

    #[test]
    fn a_full_header_is_read() {
        let header = parse_header("x", TEXT).unwrap();
        assert_eq!(header.kind, Kind::Credit);
        assert_eq!(header.doc, "First line second line.");
        assert_eq!(header.formula.as_deref(), Some("r - mean"));
        let names: Vec<_> = header.parameters.iter().map(|p| (p.name.as_str(), p.default.as_deref())).collect();
        assert_eq!(names, [("eps", Some("1e-6")), ("weights", None)]);
        assert_eq!(header.parameters[0].doc, "added to the std: always");
    }

    #[test]
    fn a_check_keeps_the_lines_of_the_file() {
        let header = parse_header("x", TEXT).unwrap();
        assert_eq!(header.checks[0].message, "rollout {rollout_id} is scored twice");
        let lines: Vec<_> = header.checks[0].sql.lines().collect();
        assert_eq!(lines[7], "     SELECT rollout_id");
        assert!(lines[9].is_empty());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let message = |text: &str| parse_header("x", text).unwrap_err().to_string();
        assert!(message("SELECT 1").contains("has no header"));
        assert!(message("-- @doc d\nSELECT 1").contains("does not say what it makes"));
        assert!(message("-- @kind reward\n-- @param a float64\n").contains("line 2, column 4: unknown type `float64`"));
        assert!(message("-- @kind reward\n-- @param a long = x\n").contains("default of parameter `a`"));
        assert!(message("-- @kind sample\n").contains("unknown kind `sample`"));
    }
}
