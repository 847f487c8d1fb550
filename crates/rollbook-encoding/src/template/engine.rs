//! The Jinja engine with the limits of a template that comes from data.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use hf_chat_template::{ChatTemplate, FixedClock};
use minijinja::{Environment, Error as JinjaError, ErrorKind as JinjaKind, State, Value, context};
use serde_json::Map;

use super::python::write_value;
use super::{FUEL, OUTPUT_LIMIT};
use crate::error::{Error, ErrorKind, Result};

/// Name under which the template is compiled.
const NAME: &str = "chat_template";

/// The whole of the template whose environment is borrowed: see [`within`].
const DOOR: &str = "{{ enter() }}";

/// Compiles a template and forgets it.
pub(super) fn verify(source: &Arc<str>) -> Result<()> {
    let source = Arc::clone(source);
    within(None, move |environment, _| {
        environment.add_template_owned(NAME, source.to_string()).map_err(|error| jinja(&error, ErrorKind::Invalid))
    })
}

/// Renders a template over a context.
pub(super) fn render(source: &Arc<str>, context: &Map<String, serde_json::Value>, now: Option<i64>) -> Result<String> {
    let source = Arc::clone(source);
    let context = Value::from_serialize(context);
    within(now, move |environment, raised| {
        environment.add_template_owned(NAME, source.to_string()).map_err(|error| jinja(&error, ErrorKind::Invalid))?;
        let template = environment.get_template(NAME).map_err(|error| jinja(&error, ErrorKind::Invalid))?;
        let mut out = Bounded::default();
        match template.render_captured_to(&context, &mut out) {
            Ok(_) => String::from_utf8(out.bytes)
                .map_err(|error| Error::new(ErrorKind::Failed, format!("the template writes no text: {error}"))),
            Err(_) if out.is_full => {
                Err(Error::new(ErrorKind::Exhausted, format!("the template writes more than {OUTPUT_LIMIT} bytes")))
            }
            Err(error) => Err(failure(&error, raised)),
        }
    })
}

/// What a template said when it raised an exception.
type Raised = Arc<Mutex<Option<String>>>;

/// Runs something in the environment that `hf-chat-template` sets up (Python's methods, its `tojson`, its whitespace), with
/// limits put on. That crate keeps its environment to itself, so a template of one call lets us in, and a copy is taken there.
fn within<T: Send + 'static>(
    now: Option<i64>,
    work: impl Fn(&mut Environment<'_>, &Raised) -> Result<T> + Send + Sync + 'static,
) -> Result<T> {
    let result: Arc<Mutex<Option<Result<T>>>> = Arc::default();
    let slot = Arc::clone(&result);
    let enter = Value::from_function(move |state: &State<'_, '_>| {
        let mut environment = state.env().clone();
        let raised = Raised::default();
        restrict(&mut environment, &raised, now.is_some());
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(work(&mut environment, &raised));
    });
    let clock = FixedClock::from_unix_secs(now.unwrap_or_default().div_euclid(1_000_000));
    let broken = |error: hf_chat_template::Error| Error::new(ErrorKind::Failed, error.to_string());
    let door = ChatTemplate::builder(DOOR).clock(clock).build().map_err(broken)?;
    door.render_context(&context! { enter }).map_err(broken)?;
    let taken = result.lock().unwrap_or_else(PoisonError::into_inner).take();
    taken.unwrap_or_else(|| Err(Error::new(ErrorKind::Failed, "the template was not run")))
}

fn restrict(environment: &mut Environment<'_>, raised: &Raised, has_time: bool) {
    environment.set_fuel(Some(FUEL));
    environment.set_formatter(|out, _, value| write_value(out, value));
    let raised = Arc::clone(raised);
    environment.add_function("raise_exception", move |message: String| -> Result<Value, JinjaError> {
        *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(message.clone());
        Err(JinjaError::new(JinjaKind::InvalidOperation, message))
    });
    if !has_time {
        environment.add_function("strftime_now", |_: String| -> Result<Value, JinjaError> {
            Err(JinjaError::new(
                JinjaKind::InvalidOperation,
                "the template asks for the time, and the record gives none",
            ))
        });
    }
}

fn failure(error: &JinjaError, raised: &Raised) -> Error {
    let line = error.line();
    if error.kind() == JinjaKind::OutOfFuel {
        let message = format!("the template runs for more than {FUEL} steps");
        return Error::new(ErrorKind::Exhausted, message).at(line);
    }
    match raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(message) => Error::new(ErrorKind::Refused, format!("the template refuses it: {message}")).at(line),
        None => jinja(error, ErrorKind::Failed),
    }
}

fn jinja(error: &JinjaError, kind: ErrorKind) -> Error {
    let message = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    Error::new(kind, message).at(error.line())
}

/// Output up to the limit.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    is_full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + part.len() > OUTPUT_LIMIT {
            self.is_full = true;
            return Err(io::Error::other("the output is full"));
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounded").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// Replaces `{% generation %}` and its end, which mark what an assistant wrote and render nothing, by an `if` that always holds.
///
/// `transformers` knows them as a Jinja extension. Marks for whitespace (`-`, `+`) stay.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let Some(length) = rest[open + 2..].find("%}") else {
            break;
        };
        let inner = &rest[open + 2..open + 2 + length];
        let is_mark = |c: char| c == '-' || c == '+';
        let replacement = match inner.trim_matches(is_mark).trim() {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        out.push_str(&rest[..open]);
        match replacement {
            Some(tag) => {
                let mark = |found: Option<char>| found.filter(|c| is_mark(*c)).map(String::from).unwrap_or_default();
                let (before, after) = (mark(inner.chars().next()), mark(inner.chars().next_back()));
                out.push_str(&format!("{{%{before} {tag} {after}%}}"));
            }
            None => out.push_str(&rest[open..open + 2 + length + 2]),
        }
        rest = &rest[open + 2 + length + 2..];
    }
    out.push_str(rest);
    out
}
