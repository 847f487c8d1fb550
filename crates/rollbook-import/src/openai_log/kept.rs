//! What is kept of a response as JSON.

use crate::json::{Cursor, Parse, without};

use super::wire::Response;

/// Writes logprobs as a JSON list.
pub(super) fn list_of(logprobs: &[Option<f64>]) -> String {
    let items: Vec<_> = logprobs
        .iter()
        .map(|value| match value {
            None => "null".to_owned(),
            Some(value) if value.is_nan() => "\"NaN\"".to_owned(),
            Some(value) if value.is_infinite() => {
                if *value > 0.0 { "\"Infinity\"" } else { "\"-Infinity\"" }.to_owned()
            }
            Some(value) => value.to_string(),
        })
        .collect();
    format!("[{}]", items.join(","))
}

/// The response without the arrays that became columns and without the other choices.
pub(super) fn stored_response(text: &str, response: &Response, position: usize) -> Parse<String> {
    let choice = &response.choices[position];
    let at = position.to_string();
    let mut cuts: Vec<Vec<&str>> = vec![
        vec!["prompt_token_ids"],
        vec!["output_ids"],
        vec!["sglext", "input_ids"],
        vec!["sglext", "output_ids"],
        vec!["choices", "*", "prompt_token_ids"],
        vec!["choices", "*", "token_ids"],
        vec!["choices", "*", "response_token_ids"],
        vec!["choices", "*", "provider_specific_fields", "token_ids"],
        vec!["choices", "*", "provider_specific_fields", "prompt_token_ids"],
    ];
    if choice.logprobs.is_some() {
        let places: &[&[&str]] = if choice.is_plain {
            &[&["content"], &["token_logprobs"], &["tokens"]]
        } else {
            &[&["content", "*", "logprob"], &["token_logprobs"]]
        };
        cuts.extend(places.iter().map(|place| [&["choices", &at, "logprobs"], *place].concat()));
        let native: &[&[&str]] = if choice.is_plain { &[&[]] } else { &[&["*", "0"], &["*", "1"]] };
        cuts.extend(native.iter().map(|place| [&["meta_info", "output_token_logprobs"], *place].concat()));
    }
    let others: Vec<_> =
        (0..response.choices.len()).filter(|&other| other != position).map(|at| at.to_string()).collect();
    cuts.extend(others.iter().map(|other| vec!["choices", other.as_str()]));
    let cuts: Vec<&[&str]> = cuts.iter().map(Vec::as_slice).collect();
    let mut out = String::with_capacity(text.len() / 4);
    if response.is_list {
        let mut index = 0;
        Cursor::new(text).array(|cursor, _| {
            let item = cursor.skip()?;
            index += 1;
            if index == position + 1 { without(item, &cuts, &mut out) } else { Ok(()) }
        })?;
    } else {
        without(text.trim(), &cuts, &mut out)?;
    }
    Ok(out)
}
