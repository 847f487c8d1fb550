//! What a protocol request asks a template to render.

use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};
use crate::template::as_transformers;

/// The ways in which programs hand the messages of a request to a template. A prompt made in any of them is a right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As `transformers.apply_chat_template`: members that are null are left out, reasoning stands as `reasoning_content`.
    Transformers,
    /// As the request says it, byte for byte.
    Plain,
    /// As vLLM and `SGLang`: arguments of tool calls are read as JSON, absent content is empty text, text parts are joined by
    /// line ends.
    Server,
}

impl Form {
    /// All of them, the one of `transformers` first.
    pub const ALL: [Self; 3] = [Self::Transformers, Self::Plain, Self::Server];
}

/// Everything of a request that a template sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// The messages.
    pub messages: Vec<Value>,
    /// Definitions of tools; none where the request has none.
    pub tools: Option<Value>,
    /// Documents, for templates that cite.
    pub documents: Option<Value>,
    /// Further arguments of the template, by name.
    pub arguments: Map<String, Value>,
    /// Whether the prompt ends with the start of an assistant's turn.
    pub add_generation_prompt: bool,
    /// Whether the prompt ends inside the last message.
    pub continue_final_message: bool,
    /// A template that the request brings along and that stands for the encoding's.
    pub template: Option<String>,
}

impl Conversation {
    /// Reads a request as JSON text. `defaults` are the encoding's arguments; those of the request win.
    ///
    /// # Errors
    /// `Unsuitable` where it holds no messages.
    pub fn from_request(request: &str, defaults: &Map<String, Value>) -> Result<Self> {
        let unsuitable = |why: String| Error::new(ErrorKind::Unsuitable, why);
        let request: Value =
            serde_json::from_str(request).map_err(|error| unsuitable(format!("the request is no JSON: {error}")))?;
        let Some(Value::Array(messages)) = request.get("messages") else {
            return Err(unsuitable("the request holds no messages".to_owned()));
        };
        let mut arguments = defaults.clone();
        for name in ["add_generation_prompt", "continue_final_message"] {
            if let Some(given @ Value::Bool(_)) = request.get(name) {
                arguments.insert(name.to_owned(), given.clone());
            }
        }
        if let Some(Value::Object(given)) = request.get("chat_template_kwargs") {
            arguments.extend(given.clone());
        }
        let mut flag = |name: &str| arguments.shift_remove(name).and_then(|value| value.as_bool());
        let continue_final_message = flag("continue_final_message").unwrap_or(false);
        let add_generation_prompt = flag("add_generation_prompt").unwrap_or(!continue_final_message);
        let list = |name: &str| request.get(name).filter(|value| value.as_array().is_some_and(|list| !list.is_empty()));
        Ok(Self {
            messages: messages.clone(),
            tools: list("tools").cloned(),
            documents: list("documents").cloned(),
            arguments,
            add_generation_prompt,
            continue_final_message,
            template: request.get("chat_template").and_then(Value::as_str).map(str::to_owned),
        })
    }

    /// Returns the conversation in the form of a program.
    #[must_use]
    pub fn in_form(&self, form: Form) -> Self {
        let messages = match form {
            Form::Plain => self.messages.clone(),
            Form::Transformers => self.messages.iter().map(as_transformers).collect(),
            Form::Server => self.messages.iter().map(as_server).collect(),
        };
        Self { messages, ..self.clone() }
    }
}

/// Brings a message to the form of vLLM's and `SGLang`'s chat endpoints.
fn as_server(message: &Value) -> Value {
    let mut message = as_transformers(message);
    let Some(members) = message.as_object_mut() else {
        return message;
    };
    let joined = match members.get("content") {
        None => Some(String::new()),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().map(|part| part.as_str().or_else(|| part.get("text").and_then(Value::as_str)));
            texts.collect::<Option<Vec<_>>>().map(|texts| texts.join("\n"))
        }
        Some(_) => None,
    };
    if let Some(joined) = joined {
        members.insert("content".to_owned(), Value::String(joined));
    }
    if let Some(Value::Array(calls)) = members.get_mut("tool_calls") {
        for arguments in calls.iter_mut().filter_map(|call| call.get_mut("function")?.get_mut("arguments")) {
            read_arguments(arguments);
        }
    }
    message
}

fn read_arguments(arguments: &mut Value) {
    let read = match &*arguments {
        Value::String(text) if text.is_empty() => Some(Value::Object(Map::new())),
        Value::String(text) => serde_json::from_str(text).ok(),
        _ => None,
    };
    if let Some(read) = read {
        *arguments = read;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(request: &Value) -> Conversation {
        Conversation::from_request(&request.to_string(), &Map::new()).unwrap()
    }

    #[test]
    fn arguments_of_the_request_win_over_the_encodings() {
        let defaults = json!({"enable_thinking": true, "style": "a", "add_generation_prompt": false});
        let request = json!({"messages": [], "chat_template_kwargs": {"enable_thinking": false}});
        let read = Conversation::from_request(&request.to_string(), defaults.as_object().unwrap()).unwrap();
        assert_eq!(Value::Object(read.arguments), json!({"enable_thinking": false, "style": "a"}));
        assert!(!read.add_generation_prompt && !read.continue_final_message);
    }

    #[test]
    fn a_continued_message_asks_for_no_new_turn() {
        let read = read(&json!({"messages": [], "continue_final_message": true}));
        assert!(read.continue_final_message && !read.add_generation_prompt);
    }

    #[test]
    fn servers_read_arguments_and_join_parts() {
        let calls = json!([{"function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2}"}}]);
        let read = read(&json!({"messages": [
            {"role": "assistant", "content": null, "tool_calls": calls},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
        ]}));
        let server = read.in_form(Form::Server).messages;
        assert_eq!(server[0]["content"], "");
        assert_eq!(server[0]["tool_calls"][0]["function"]["arguments"].to_string(), r#"{"b":1,"a":2}"#);
        assert_eq!(server[1]["content"], "a\nb");
        let transformers = read.in_form(Form::Transformers).messages;
        assert_eq!(transformers[0], json!({"role": "assistant", "tool_calls": calls}));
        assert_eq!(read.in_form(Form::Plain), read);
    }

    #[test]
    fn requests_without_messages_are_told() {
        for request in ["no json", "{}", r#"{"prompt": "x"}"#, r#"{"messages": "x"}"#] {
            let error = Conversation::from_request(request, &Map::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsuitable, "{request}");
        }
    }
}
