//! What special tokens tell of prompts that cannot be rendered.
//!
//! ```text
//! marker             the system's or the beginning's mark stands again in the middle      [S, S, 1, 7, S, S, 4]
//! seam               behind a sampled end of turn stands what follows it in no prompt      [… END, START …], elsewhere END, NL
//! generation_prompt  the prompt does not end with the start of an assistant's turn
//! ```

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Array, AsArray};
use arrow::datatypes::Int32Type;
use futures::TryStreamExt;
use rollbook_query::{Encoding, Result, Session};
use serde_json::Value;

use super::super::tokens::{integers, list, text};
use super::rows::{Call, Said};
use super::unasked::{Unasked, without_generation_prompt};

/// Special tokens that a run declares.
#[derive(Debug, Clone, Default)]
pub(super) struct Expected {
    bos: Option<i32>,
    ends: BTreeSet<i32>,
}

/// Reads what each run declares.
pub(super) async fn expectations(session: &Session) -> Result<BTreeMap<String, Expected>> {
    let sql = "SELECT run_id, bos_token_id, eos_token_ids FROM runs \
        WHERE run_id IS NOT NULL AND (bos_token_id IS NOT NULL OR eos_token_ids IS NOT NULL)";
    let mut rows = session.stream(sql).await?;
    let mut found = BTreeMap::new();
    while let Some(rows) = rows.try_next().await? {
        let (runs, bos, ends) =
            (text(&rows, "run_id")?, integers(&rows, "bos_token_id")?, list(&rows, "eos_token_ids")?);
        for row in 0..rows.num_rows() {
            let ends = if ends.is_valid(row) {
                let ids = arrow::compute::cast(&ends.value(row), &arrow::datatypes::DataType::Int32)?;
                ids.as_primitive::<Int32Type>().iter().flatten().collect()
            } else {
                BTreeSet::new()
            };
            let bos = bos.is_valid(row).then(|| bos.value(row));
            found.insert(runs.value(row).to_owned(), Expected { bos, ends });
        }
    }
    Ok(found)
}

/// What is known of one encoding's marks.
#[derive(Debug, Clone, Default)]
struct Marks {
    /// Token sequences that begin a prompt: the beginning's mark, the system's.
    starts: BTreeMap<String, Vec<i32>>,
    ends: BTreeSet<i32>,
    generation_prompt: Vec<i32>,
}

/// One prompt to look at.
pub(super) struct Look<'a> {
    pub(super) prompt: &'a [i32],
    pub(super) request: Option<&'a str>,
    pub(super) kind: Option<&'a str>,
    pub(super) encoding: Option<(&'a str, &'a Encoding)>,
}

/// Run and encoding.
pub(super) type Key = (String, Option<String>);

/// Looks at prompts as they come. What only all of them tell, which tokens follow an end of turn and whether the beginning's mark
/// stands before every turn, is judged at the end.
pub(super) struct Markers {
    expected: BTreeMap<String, Expected>,
    marks: BTreeMap<Key, Marks>,
    followers: BTreeMap<Key, BTreeSet<i32>>,
    /// Marks that a first prompt repeats: they belong to the template.
    repeated: BTreeSet<(Key, String)>,
    seams: Vec<(Key, Call, usize, i32)>,
    unasked: Unasked,
    starts: Vec<(Key, String, Said)>,
    said: Vec<Said>,
}

impl Markers {
    pub(super) fn new(expected: BTreeMap<String, Expected>) -> Self {
        Self {
            expected,
            marks: BTreeMap::new(),
            followers: BTreeMap::new(),
            repeated: BTreeSet::new(),
            seams: Vec::new(),
            unasked: Unasked::default(),
            starts: Vec::new(),
            said: Vec::new(),
        }
    }

    pub(super) fn has_expectations(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Whether the requests' messages matter to what the runs declare.
    pub(super) fn needs_requests(&self) -> bool {
        self.expected.values().any(|expected| expected.bos.is_some())
    }

    pub(super) fn look(&mut self, session: &Session, call: Call, look: &Look<'_>) -> Result<()> {
        let run = call.run.clone().unwrap_or_default();
        let key = (run.clone(), look.encoding.map(|(id, _)| id.to_owned()));
        if !self.marks.contains_key(&key) {
            let marks = marks(session, self.expected.get(&run), look.encoding.map(|(_, encoding)| encoding))?;
            self.marks.insert(key.clone(), marks);
        }
        let Some(marks) = self.marks.get(&key) else {
            return Ok(());
        };
        let asks = !marks.starts.is_empty() || !marks.generation_prompt.is_empty();
        let messages = look.request.filter(|_| asks).and_then(messages);
        let is_first = call.inherited == Some(0);
        for (name, mark) in &marks.starts {
            let wanted = messages.as_deref().map_or(1, |messages| system_messages(messages).max(1));
            let places = runs_of(look.prompt, mark);
            let from = call.inherited.unwrap_or(0);
            if is_first && places.len() > wanted {
                self.repeated.insert((key.clone(), name.clone()));
            }
            if let Some(place) = places.iter().skip(wanted).find(|place| **place >= from) {
                let said = Said {
                    call: call.clone(),
                    kind: "marker",
                    position: Some(*place),
                    expected: Some(format!("{name} at the beginning alone")),
                    observed: Some(format!("{name} again")),
                    reason: None,
                };
                self.starts.push((key.clone(), name.clone(), said));
            }
        }
        let pairs = || look.prompt.windows(2).filter(|pair| marks.ends.contains(&pair[0]));
        if is_first && !marks.ends.is_empty() {
            self.followers.entry(key.clone()).or_default().extend(pairs().map(|pair| pair[1]));
        }
        if let Some(from) = call.inherited.filter(|from| *from > 0)
            && let Some([end, next]) = look.prompt.get(from - 1..=from)
            && marks.ends.contains(end)
        {
            self.seams.push((key.clone(), call.clone(), from, *next));
        }
        if let Some(position) = generation_prompt_missing(marks, look, messages.as_deref()) {
            self.said.push(without_generation_prompt(&marks.generation_prompt, look.prompt, call, position));
        } else if look.request.is_none() && look.kind.is_none_or(|kind| kind == "act") {
            self.unasked.add(key, &marks.generation_prompt, &marks.ends, look.prompt, call);
        }
        Ok(())
    }

    /// Everything found.
    pub(super) fn finish(self) -> Vec<Said> {
        let mut said = self.said;
        said.extend(self.unasked.finish());
        let is_own = |key: &Key, name: &String| self.repeated.contains(&(key.clone(), name.clone()));
        said.extend(self.starts.into_iter().filter(|(key, name, _)| !is_own(key, name)).map(|(_, _, said)| said));
        for (key, call, position, next) in self.seams {
            // Without one prompt that shows what follows an end of turn there is nothing to compare with.
            let Some(followers) = self.followers.get(&key).filter(|followers| !followers.is_empty()) else {
                continue;
            };
            if !followers.contains(&next) {
                said.push(Said {
                    call,
                    kind: "seam",
                    position: Some(position),
                    expected: Some(format!(
                        "one of {:?} behind an end of turn, as in first prompts",
                        Vec::from_iter(followers)
                    )),
                    observed: Some(next.to_string()),
                    reason: None,
                });
            }
        }
        said
    }
}

fn marks(session: &Session, expected: Option<&Expected>, encoding: Option<&Encoding>) -> Result<Marks> {
    let mut marks = Marks::default();
    if let Some(expected) = expected {
        marks.starts.extend(expected.bos.map(|bos| ("bos_token".to_owned(), vec![bos])));
        marks.ends.extend(&expected.ends);
    }
    if let Some(encoding) = encoding {
        add_encoding(&mut marks, session, encoding)?;
    }
    // A token that also ends texts marks no beginning.
    let Marks { starts, ends, .. } = &mut marks;
    starts.retain(|_, ids| !ids.iter().any(|id| ends.contains(id)));
    Ok(marks)
}

fn add_encoding(marks: &mut Marks, session: &Session, encoding: &Encoding) -> Result<()> {
    marks.generation_prompt.clone_from(&encoding.generation_prompt_ids);
    for (name, token) in encoding.special_token_map.iter().flatten() {
        let ids = token_ids(session, encoding, token)?;
        let name = name.to_lowercase();
        let is_end = ["eos", "eot", "end"].iter().any(|word| name.contains(word));
        if is_end && !ids.is_empty() {
            marks.ends.extend(ids);
        } else if (name.contains("bos") || name.contains("system")) && !ids.is_empty() {
            marks.starts.insert(name, ids);
        }
    }
    Ok(())
}

/// The ids of a token that a map gives as an id, a list of ids, a text, or an object with either.
fn token_ids(session: &Session, encoding: &Encoding, token: &Value) -> Result<Vec<i32>> {
    let id = |value: &Value| value.as_i64().and_then(|id| i32::try_from(id).ok());
    Ok(match token {
        Value::Number(_) => id(token).into_iter().collect(),
        Value::Array(items) => items.iter().map(id).collect::<Option<_>>().unwrap_or_default(),
        Value::String(text) => {
            let tokenizer = session.encodings().tokenizer(encoding)?;
            tokenizer.and_then(|tokenizer| tokenizer.id_of(text)).into_iter().collect()
        }
        Value::Object(members) => match (members.get("id"), members.get("content")) {
            (Some(inner), _) | (None, Some(inner)) if !inner.is_object() => token_ids(session, encoding, inner)?,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    })
}

fn messages(request: &str) -> Option<Vec<Value>> {
    match serde_json::from_str::<Value>(request).ok()?.get_mut("messages")?.take() {
        Value::Array(messages) => Some(messages),
        _ => None,
    }
}

fn system_messages(messages: &[Value]) -> usize {
    messages.iter().filter(|message| matches!(message["role"].as_str(), Some("system" | "developer"))).count()
}

/// Where a mark begins; marks that touch count once.
fn runs_of(prompt: &[i32], mark: &[i32]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut at = 0;
    let mut touches = None;
    while at + mark.len() <= prompt.len() {
        if prompt[at..].starts_with(mark) {
            if touches != Some(at) {
                places.push(at);
            }
            at += mark.len();
            touches = Some(at);
        } else {
            at += 1;
        }
    }
    places
}

/// Where the generation prompt should begin, if a request for a new turn ends otherwise.
fn generation_prompt_missing(marks: &Marks, look: &Look<'_>, messages: Option<&[Value]>) -> Option<usize> {
    let wanted = &marks.generation_prompt;
    if wanted.is_empty() || look.kind.is_some_and(|kind| kind != "act") || look.prompt.ends_with(wanted) {
        return None;
    }
    // An assistant's last message may be one to be continued.
    if messages?.last()?["role"].as_str() == Some("assistant") {
        return None;
    }
    let request: Value = serde_json::from_str(look.request?).ok()?;
    let asks = |name: &str| request[name].as_bool().or_else(|| request["chat_template_kwargs"][name].as_bool());
    if asks("add_generation_prompt") == Some(false) || asks("continue_final_message") == Some(true) {
        return None;
    }
    Some(look.prompt.len().saturating_sub(wanted.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_that_touch_are_one() {
        assert_eq!(runs_of(&[5, 5, 1, 7, 5, 5, 4], &[5]), [0, 4]);
        assert_eq!(runs_of(&[5, 6, 1, 5, 6, 5], &[5, 6]), [0, 3]);
        assert!(runs_of(&[1, 2], &[1, 2, 3]).is_empty());
    }

    #[test]
    fn the_start_of_a_turn_is_asked_for_where_one_begins() {
        let marks = Marks { generation_prompt: vec![8, 9], ..Marks::default() };
        let judge = |prompt: &[i32], request: &str, kind| {
            let look = Look { prompt, request: Some(request), kind, encoding: None };
            generation_prompt_missing(&marks, &look, messages(request).as_deref())
        };
        let asked = r#"{"messages": [{"role": "user", "content": "a"}]}"#;
        assert_eq!(judge(&[1, 8, 9], asked, None), None);
        assert_eq!(judge(&[1, 8, 9, 3], asked, Some("act")), Some(2));
        assert_eq!(judge(&[1, 8, 9, 3], asked, Some("judge")), None);
        assert_eq!(judge(&[1, 3], r#"{"messages": [{"role": "assistant", "content": "a"}]}"#, None), None);
        assert_eq!(judge(&[1, 3], r#"{"prompt": "a"}"#, None), None);
    }
}
