//! Logs of OpenAI-compatible servers: `rollbook import openai-log FILE…`, one request and its response a line.
//!
//! ```text
//! {"metadata": {run_id, step, group_id, task_id, rollout_id, call_id, call_index, …},
//!  "request": {…}, "response": {…}, "started_at": …, "finished_at": …}
//! ```
//!
//! | response | prompt ids | output ids | logprobs |
//! |---|---|---|---|
//! | vLLM chat | `prompt_token_ids` | `choices[].token_ids` | `choices[].logprobs.content[].logprob` |
//! | vLLM completions | `choices[].prompt_token_ids` | `choices[].token_ids` | `choices[].logprobs.token_logprobs` |
//! | `LiteLLM` | either | `choices[].provider_specific_fields.token_ids` | as above |
//! | `SGLang` chat, completions | `choices[].prompt_token_ids`, `sglext.input_ids` | `choices[].response_token_ids`, `sglext.output_ids` | as above |
//! | `SGLang` /generate | `prompt_token_ids`, else `meta_info.input_token_logprobs` where whole | `output_ids`, else `meta_info.output_token_logprobs` | the latter |
//!
//! Where no array gives the output ids, tokens written `token_id:N` do. Ids from the server are `engine`; prompt ids
//! that only the request gives are `assumed`; without ids a stream is `absent`.
//!
//! What becomes of a line:
//! - one `calls` row a choice. With several choices `call_id` is `{call_id}/{index}` and `choice_index` is set; one is
//!   selected by `metadata.selected_index` or `is_selected` in the choice. A `parent_call_id` that names such a call
//!   becomes the selected choice, else null with the plain id in `extra`.
//! - one `rollouts` row for each new rollout, from its first line; one `runs` row for each new run.
//! - `request` is the request. `response` is the response without the arrays that became columns: ids, logprobs, and
//!   the other choices. Token texts and `top_logprobs` stay.
//! - a logprob list that does not belong to the ids (other length, or other ids beside it) is stored as null, the list
//!   in `extra.output_logprobs`, and counted in a note.
//! - a call without `call_id` takes the response's id, else `line-` and a digest of the line.
//!
//! Memory is that of one batch, 16 bytes a rollout and 32 bytes a call with several choices.

mod call;
mod choices;
mod kept;
mod keys;
mod map;
mod request;
mod response;
mod sglang;
mod wire;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::importer::{ImportOptions, Importer, Items};
use crate::source::{self, SourceFile};
use crate::stream::{Extent, LineItems, guarded};

/// The importer of request and response logs.
#[derive(Debug)]
pub(crate) struct OpenaiLog;

impl Importer for OpenaiLog {
    fn name(&self) -> &'static str {
        "openai-log"
    }

    fn description(&self) -> &'static str {
        "JSON lines of request, response and metadata, as vLLM, SGLang or LiteLLM return them"
    }

    fn version(&self) -> &'static str {
        "1"
    }

    fn open(&self, paths: &[PathBuf], options: &ImportOptions) -> Result<Items> {
        let files = discover(paths)?;
        let total = files.iter().map(|file| file.bytes).sum();
        let run_id = options.run_id.as_deref();
        let several = choices::scan(&files, run_id)?;
        let lines = map::LogLines::new(run_id, several)?;
        Ok(guarded(LineItems::new(lines, files, Extent { before: 0, total }), options.strict))
    }

    fn source_digest(&self, paths: &[PathBuf]) -> Result<String> {
        source::digest(self.name(), &discover(paths)?)
    }
}

/// Returns the files that the paths name; of a folder, its `.jsonl` files.
fn discover(paths: &[PathBuf]) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(SourceFile::at(path)?);
            continue;
        }
        let listing = source::list(path)?;
        let before = files.len();
        files.extend(
            listing
                .files
                .into_iter()
                .filter(|file| file.name.rsplit_once('.').is_some_and(|(_, ending)| ending == "jsonl")),
        );
        if files.len() == before {
            return Err(Error::invalid("the folder holds no .jsonl file").with("folder", path.display()));
        }
    }
    if files.is_empty() {
        return Err(Error::invalid("no path; name one or more files of JSON lines"));
    }
    if let Some(file) = files.iter().find(|file| file.compressed_stem().is_some()) {
        return Err(source::compressed(&file.name));
    }
    Ok(source::once_each(files, |file| file))
}
