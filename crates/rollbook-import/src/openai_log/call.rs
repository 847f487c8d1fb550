//! One choice of one line fills a row of `calls`.

use std::borrow::Cow;

use crate::json::{Cursor, Fault, Parse, compact, quote};
use crate::row::{RowBatch, merge_extra};

use super::kept::{list_of, stored_response};
use super::keys;
use super::map::{LogLines, Read};

/// The most unknown members that are named one by one.
const NAMED_MEMBERS: usize = 100;

impl LogLines {
    /// Fills the open row of `calls` with one choice.
    pub(super) fn call(&mut self, read: &Read<'_>, position: usize) -> Parse<()> {
        let mut extra: Vec<(Cow<'_, str>, String)> = Vec::new();
        self.metadata(read, &mut extra)?;
        if let Some(run_id) = &read.identity.run {
            self.calls.default_text("run_id", run_id)?;
        }
        self.place(read, position, &mut extra)?;
        self.tokens(read, position, &mut extra)?;
        self.answer(read, position)?;
        self.request(read)?;
        for (key, raw) in &read.exchange.other {
            self.name(key.clone().into_owned());
            extra.push((key.clone(), (*raw).to_owned()));
        }
        if !extra.is_empty() {
            let text = merge_extra(None, &extra)?;
            self.calls.column("extra")?.push_text(&text)?;
        }
        Ok(())
    }

    fn metadata<'a>(&mut self, read: &Read<'a>, extra: &mut Vec<(Cow<'a, str>, String)>) -> Parse<()> {
        for (key, raw) in &read.exchange.metadata {
            let name = key.as_ref();
            if keys::CALLS.contains(&name) {
                read_into(&mut self.calls, name, raw).map_err(|fault| fault.at_key("metadata"))?;
                continue;
            }
            let is_of_rollout = keys::ROLLOUTS.contains(&name) && read.identity.rollout.is_some();
            if !keys::OWN.contains(&name) && !is_of_rollout {
                self.name(format!("metadata.{name}"));
                extra.push((key.clone(), (*raw).to_owned()));
            }
        }
        Ok(())
    }

    /// Notes a member that no rule names, once.
    fn name(&mut self, member: String) {
        if self.named.len() < NAMED_MEMBERS && !self.named.contains(&member) {
            self.notes.push(format!("{member}: no column, kept in extra"));
            self.named.insert(member);
        }
    }

    /// The call's own id, its place among choices and its parent.
    fn place<'a>(&mut self, read: &Read<'a>, position: usize, extra: &mut Vec<(Cow<'a, str>, String)>) -> Parse<()> {
        let calls = &mut self.calls;
        let choice = &read.response.choices[position];
        let plain = &read.identity.call;
        let has_several = read.response.choices.len() > 1;
        let index = choice.index.or_else(|| i64::try_from(position).ok()).unwrap_or_default();
        if has_several {
            calls.column("call_id")?.push_text(&format!("{plain}/{index}"))?;
            calls.column("choice_index")?.push_long(index)?;
            if let Some(selected) = read.selected {
                calls.column("is_selected")?.push_boolean(selected == index)?;
            }
        } else {
            calls.column("call_id")?.push_text(plain)?;
        }
        if let (false, Some(is_selected)) = (calls.is_given("is_selected"), choice.is_selected) {
            calls.column("is_selected")?.push_boolean(is_selected)?;
        }
        let (parent, unresolved) = &read.parent;
        if let Some(parent) = parent {
            calls.column("parent_call_id")?.push_text(parent)?;
        }
        if let Some(plain) = unresolved {
            let mut text = String::new();
            quote(plain, &mut text);
            extra.push((Cow::Borrowed("parent_call_id"), text));
        }
        Ok(())
    }

    fn tokens<'a>(&mut self, read: &Read<'a>, position: usize, extra: &mut Vec<(Cow<'a, str>, String)>) -> Parse<()> {
        let calls = &mut self.calls;
        let choice = &read.response.choices[position];
        let engine_prompt = choice.prompt_ids.as_ref().or(read.response.prompt_ids.as_ref());
        let (prompt, exactness) = match (engine_prompt, &read.request.prompt_ids) {
            (Some(ids), _) => (Some(ids), "engine"),
            (None, Some(ids)) => (Some(ids), "assumed"),
            (None, None) => (None, "absent"),
        };
        if let Some(ids) = prompt {
            calls.column("prompt_token_ids")?.push_ids(ids)?;
        }
        calls.column("prompt_exactness")?.push_text(exactness)?;
        if let (false, Some(sent)) = (calls.is_given("prompt_sent_len"), &read.request.prompt_ids) {
            calls.column("prompt_sent_len")?.push_long(i64::try_from(sent.len()).unwrap_or(i64::MAX))?;
        }
        let output = choice.ids.as_ref().or(choice.logprob_ids.as_ref());
        if let Some(ids) = output {
            calls.column("output_token_ids")?.push_ids(ids)?;
        }
        calls.column("output_exactness")?.push_text(if output.is_some() { "engine" } else { "absent" })?;
        let Some(logprobs) = &choice.logprobs else {
            return calls.column("logprobs_source")?.push_text("absent");
        };
        let is_theirs = output.is_none_or(|ids| ids.len() == logprobs.len())
            && choice.logprob_ids.as_ref().is_none_or(|beside| output == Some(beside));
        if is_theirs {
            calls.column("output_logprobs")?.push_floats(logprobs)?;
            return calls.column("logprobs_source")?.push_text("engine");
        }
        self.mismatched += 1;
        extra.push((Cow::Borrowed("output_logprobs"), list_of(logprobs)));
        calls.column("logprobs_source")?.push_text("absent")
    }

    /// What the response says beside its tokens.
    fn answer(&mut self, read: &Read<'_>, position: usize) -> Parse<()> {
        let calls = &mut self.calls;
        let response = &read.response;
        let choice = &response.choices[position];
        let usage = choice.usage.unwrap_or(response.usage);
        // With several choices the server counts their tokens together.
        let output = usage.output.filter(|_| choice.usage.is_some() || response.choices.len() == 1);
        let texts = [
            ("protocol", response.protocol),
            ("response_id", choice.id.as_deref().or(response.id.as_deref())),
            ("model", response.model.as_deref().or(read.request.model.as_deref())),
            ("output_text", choice.text.as_deref()),
            ("parsed", choice.parsed.as_deref()),
            ("finish_reason", choice.finish_reason.as_deref()),
            ("stop_string", choice.stop_string.as_deref()),
        ];
        for (name, value) in texts {
            if let Some(value) = value {
                calls.column(name)?.push_text(value)?;
            }
        }
        if let Some(engine) = response.engine {
            calls.default_text("engine", engine)?;
        }
        let numbers = [
            ("stop_token", choice.stop_token),
            ("usage_prompt_tokens", usage.prompt),
            ("usage_cached_prompt_tokens", usage.cached),
            ("usage_output_tokens", output),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                calls.column(name)?.push_long(value).map_err(|fault| fault.at_key("response"))?;
            }
        }
        let versions = if choice.versions.spans.is_empty() { &response.versions } else { &choice.versions };
        if versions.has_label || choice.versions.has_label {
            self.label();
        }
        self.spans(&versions.spans)?;
        if let Some(text) = &read.exchange.response {
            let text = stored_response(text, response, position)?;
            self.calls.column("response")?.push_text(&text)?;
        }
        Ok(())
    }

    fn label(&mut self) {
        let member = "weight_version".to_owned();
        if self.named.insert(member) {
            self.notes.push("weight_version: a label that is no integer, kept in response alone".to_owned());
        }
    }

    fn spans(&mut self, spans: &[(i64, i64)]) -> Parse<()> {
        if spans.is_empty() {
            return Ok(());
        }
        if !self.calls.is_given("policy_spans") {
            let items: Vec<_> = spans
                .iter()
                .map(|(start, version)| format!("{{\"start\":{start},\"policy_version\":{version}}}"))
                .collect();
            self.calls.clear("policy_spans");
            read_into(&mut self.calls, "policy_spans", &format!("[{}]", items.join(",")))?;
        }
        let first = spans.iter().find(|(start, _)| *start == 0);
        if let (false, Some((_, version))) = (self.calls.is_given("policy_version"), first) {
            self.calls.column("policy_version")?.push_long(*version)?;
        }
        Ok(())
    }

    fn request(&mut self, read: &Read<'_>) -> Parse<()> {
        let calls = &mut self.calls;
        let request = &read.request;
        if let Some(raw) = &read.exchange.request {
            let mut text = String::with_capacity(raw.len());
            compact(raw.trim(), &mut text);
            calls.column("request")?.push_text(&text)?;
        }
        if let Some(sampling) = &request.sampling {
            calls.column("sampling")?.push_text(sampling)?;
        }
        for (name, value) in [("temperature", &request.temperature), ("top_p", &request.top_p)] {
            if let Some(value) = value {
                read_into(calls, name, value)?;
            }
        }
        for (name, value) in [("top_k", request.top_k), ("max_tokens", request.max_tokens), ("seed", request.seed)] {
            if let Some(value) = value {
                calls.column(name)?.push_long(value)?;
            }
        }
        for (name, value) in [("started_at", read.exchange.started_at), ("finished_at", read.exchange.finished_at)] {
            if let Some(value) = value {
                read_into(calls, name, value)?;
            }
        }
        Ok(())
    }
}

/// Reads a JSON text into a column of the open row.
pub(super) fn read_into(rows: &mut RowBatch, name: &str, raw: &str) -> Parse<()> {
    let Some(at) = rows.find(name) else {
        return Err(Fault::new("no such column").at_key(name));
    };
    rows.read(at, &mut Cursor::new(raw)).map_err(|fault| fault.at_key(name))
}
