//! Turns object store errors into ours: one kind per remedy, and never a secret.

use std::error::Error as StdError;

use object_store::Error as StoreError;

use crate::error::{Error, Kind};

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
        _ if is_denied(&text) => denied(doing),
        _ if is_bucket_missing(&text) => bucket_missing(),
        _ => Error::new(Kind::Unavailable, format!("cannot {doing}: the store is unreachable or failed"))
            .with_remedy("check the endpoint and the network, then run it again: nothing is doubled"),
    };
    failure.with("path", path).with("cause", innermost(&error)).with_source(error)
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
    let line: String = last.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    line
}
