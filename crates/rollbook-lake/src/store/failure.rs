//! Turns object store errors into ours: one kind per remedy, and never a secret.

use std::error::Error as StdError;

use object_store::Error as StoreError;

use crate::error::{Error, Kind};

/// Characters of a cause that are shown.
const CAUSE_CHARS: usize = 300;

/// Maps a store's error; `doing` says what was tried, as in "read".
pub(crate) fn store_error(error: StoreError, doing: &str, path: &str) -> Error {
    let text = chain(&error);
    let failure = match &error {
        StoreError::NotFound { .. } if is_bucket_missing(&text) => bucket_missing(),
        StoreError::NotFound { .. } => Error::new(Kind::NotFound, format!("cannot {doing} an object: it is not there")),
        StoreError::AlreadyExists { .. } | StoreError::Precondition { .. } => {
            Error::new(Kind::Conflict, format!("cannot {doing} an object: it is already there"))
        }
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => denied(doing),
        StoreError::NotSupported { .. } | StoreError::NotImplemented { .. } => {
            Error::new(Kind::Unsupported, format!("the store cannot {doing} like this"))
        }
        StoreError::InvalidPath { .. } | StoreError::UnknownConfigurationKey { .. } => {
            Error::new(Kind::Invalid, format!("cannot {doing}: the path or a setting is wrong"))
        }
        _ if asked_for_role(&text) => Error::new(Kind::Denied, "there are no S3 keys, and this machine has no role")
            .with_remedy(
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SKIP_SIGNATURE=true where none are needed)",
            ),
        _ if is_denied(&text) => denied(doing),
        _ if is_bucket_missing(&text) => bucket_missing(),
        _ => Error::new(Kind::Unavailable, format!("cannot {doing}: the store is unreachable or failed"))
            .with_remedy("check the endpoint and the network, then run it again: nothing is doubled"),
    };
    let failure = if path.is_empty() { failure } else { failure.with("path", path) };
    failure.with("cause", innermost(&error)).with_source(error)
}

fn denied(doing: &str) -> Error {
    Error::new(Kind::Denied, format!("the store refuses to {doing}: access denied"))
        .with_remedy("check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, or the folder's permissions")
}

fn bucket_missing() -> Error {
    Error::new(Kind::NotFound, "the bucket does not exist").with_remedy("create the bucket first, or name another")
}

fn is_bucket_missing(text: &str) -> bool {
    text.contains("NoSuchBucket")
}

/// Whether what failed was the request for a role's keys, which the client sends to this address where none are set.
fn asked_for_role(text: &str) -> bool {
    text.contains("169.254.169.254")
}

fn is_denied(text: &str) -> bool {
    ["Permission denied", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403 Forbidden"]
        .iter()
        .any(|sign| text.contains(sign))
}

fn chain(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(cause) = below {
        text.push_str(" <- ");
        text.push_str(&cause.to_string());
        below = cause.source();
    }
    text
}

/// The lowest cause in one line: what a person needs, without the layers above it.
fn innermost(error: &StoreError) -> String {
    let mut last: &dyn StdError = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    let text = last.to_string();
    let said = match (element(&text, "Code"), element(&text, "Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        _ => text,
    };
    said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(CAUSE_CHARS).collect()
}

/// Reads one element off S3's XML.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(inside, _)| inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &str) -> StoreError {
        StoreError::Generic { store: "S3", source: body.to_owned().into() }
    }

    #[test]
    fn keys_that_are_missing_are_asked_for() {
        let error =
            store_error(answer("error sending request for url (http://169.254.169.254/latest/api/token)"), "read", "");
        assert_eq!(error.kind(), Kind::Denied);
        assert!(error.to_string().contains("there are no S3 keys"), "{error}");
    }

    #[test]
    fn s3_answers_become_kinds_with_a_short_cause() {
        let xml =
            "403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code><Message>wrong\u{1b}[31m key</Message></Error>";
        let error = store_error(answer(xml), "list", "");
        assert_eq!(error.kind(), Kind::Denied);
        assert_eq!(error.context(), [("cause", "SignatureDoesNotMatch: wrong [31m key".to_owned())]);
        let missing = store_error(answer("404 Not Found: <Error><Code>NoSuchBucket</Code></Error>"), "list", "");
        assert_eq!((missing.kind(), missing.message()), (Kind::NotFound, "the bucket does not exist"));
        assert_eq!(store_error(answer("connection refused"), "read", "x").kind(), Kind::Unavailable);
    }
}
