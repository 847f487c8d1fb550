//! A chat template: Jinja text that turns a conversation into a prompt.
//!
//! It runs with a limit on its steps and on its output, and sees nothing but the conversation: there is no loader, so `include`,
//! `import` and `extends` find nothing, and the only clock is the time that the record gives.

mod engine;
mod python;

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::conversation::Conversation;
use crate::error::{Error, ErrorKind, Result};

/// Steps that one rendering may take. A conversation of a thousand messages takes about a hundredth of it.
pub const FUEL: u64 = 50_000_000;

/// Bytes that one rendering may write.
pub const OUTPUT_LIMIT: usize = 64 << 20;

/// What stands after the text to be continued while it is rendered; the prompt ends before it.
const CONTINUE: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Fields that hold a message's reasoning, the one that templates read first.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// A chat template.
#[derive(Debug, Clone)]
pub struct Template {
    source: Arc<str>,
}

impl Template {
    /// Reads a template, as `chat_template.jinja` or `tokenizer_config.json` has it.
    ///
    /// # Errors
    /// `Invalid` with the line where it is no Jinja.
    pub fn new(source: &str) -> Result<Self> {
        let source: Arc<str> = engine::without_generation_tags(source).into();
        engine::verify(&source)?;
        Ok(Self { source })
    }

    /// Tells whether the template mentions a name, such as `bos_token`.
    pub fn mentions(&self, name: &str) -> bool {
        self.source.contains(name)
    }

    /// Renders a conversation into the text of its prompt. `special_tokens` are visible by their names, such as `bos_token`;
    /// `now` is the time in microseconds, UTC, that `strftime_now` tells, and without one it fails.
    ///
    /// # Errors
    /// `Refused` where the template raises an exception, `Failed` where it cannot work with the conversation, `Exhausted` beyond
    /// [`FUEL`] or [`OUTPUT_LIMIT`], `Unsuitable` where the final message cannot be continued.
    pub fn render(
        &self,
        conversation: &Conversation,
        special_tokens: &Map<String, Value>,
        now: Option<i64>,
    ) -> Result<String> {
        let mut messages = conversation.messages.clone();
        let continued = if conversation.continue_final_message { Some(tag_final(&mut messages)?) } else { None };
        let mut context = special_tokens.clone();
        // As in transformers, these stand whether they are given or not, so that a template may test them.
        context.insert("tools".to_owned(), conversation.tools.clone().unwrap_or(Value::Null));
        context.insert("documents".to_owned(), conversation.documents.clone().unwrap_or(Value::Null));
        context.insert("messages".to_owned(), Value::Array(messages));
        context.insert("add_generation_prompt".to_owned(), Value::Bool(conversation.add_generation_prompt));
        context.extend(conversation.arguments.clone());
        let text = engine::render(&self.source, &context, now)?;
        match continued {
            Some(continued) => cut(&text, &continued),
            None => Ok(text),
        }
    }
}

/// Marks the end of the final message's last text, and returns that text.
fn tag_final(messages: &mut [Value]) -> Result<String> {
    let unsuitable =
        || Error::new(ErrorKind::Unsuitable, "the request asks to continue a final message that has no text");
    let last = messages.last_mut().and_then(Value::as_object_mut).ok_or_else(unsuitable)?;
    let text = match last.get_mut("content") {
        Some(Value::Array(parts)) => parts.iter_mut().rev().find_map(|part| part.get_mut("text")),
        other => other,
    };
    let Some(Value::String(text)) = text else {
        return Err(unsuitable());
    };
    let continued = text.clone();
    text.push_str(CONTINUE);
    Ok(continued)
}

/// The rendering up to the mark. Where the template trimmed what follows the text, what it left before is trimmed, too.
fn cut(text: &str, continued: &str) -> Result<String> {
    let found = text.rfind(CONTINUE.trim()).filter(|_| text.contains(continued.trim()));
    let Some(found) = found else {
        let message = "the request asks to continue the final message, and the template does not render it";
        return Err(Error::new(ErrorKind::Unsuitable, message));
    };
    let before = &text[..found];
    Ok(if text[found..].starts_with(CONTINUE) { before.to_owned() } else { before.trim_end().to_owned() })
}

/// Brings a message to the form in which `transformers` hands it to a template: members that are null are left out, and reasoning
/// stands under the name that templates read.
pub(crate) fn as_transformers(message: &Value) -> Value {
    let Value::Object(members) = message else {
        return message.clone();
    };
    let mut members: Map<String, Value> = members
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if let Some(reasoning) = REASONING.iter().find_map(|name| members.get(*name)).cloned() {
        members.entry("thinking").or_insert_with(|| reasoning.clone());
        members.insert("reasoning_content".to_owned(), reasoning);
    }
    Value::Object(members)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod verl_tests;
