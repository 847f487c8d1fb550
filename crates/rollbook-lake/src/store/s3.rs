//! S3 settings from `AWS_*`, with retries and timeouts that end.

use std::collections::BTreeMap;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use url::Url;

use crate::error::{Error, Kind, Result};

/// One request, its body included. Files go up in parts of 8 MiB and come down in ranges, so this is generous.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(28);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// No retry starts later than this, so that a store that is away is reported within about half a minute.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);
const RETRIES: usize = 6;

/// Builds the store of a bucket.
pub(super) fn build(bucket: &str, env: &BTreeMap<String, String>) -> Result<AmazonS3> {
    let set = |name: &str| env.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let mut builder = AmazonS3Builder::new();
    for (name, value) in env {
        let key = name.to_ascii_lowercase();
        // Client settings have plain names; only what carries AWS's prefix is meant for us.
        if !key.starts_with("aws_") || value.is_empty() || is_ours(&key) {
            continue;
        }
        if let Ok(key) = key.parse::<AmazonS3ConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    let region = set("AWS_REGION").or_else(|| set("AWS_DEFAULT_REGION")).unwrap_or("us-east-1");
    let endpoint = set("AWS_ENDPOINT_URL_S3").or_else(|| set("AWS_ENDPOINT_URL")).or_else(|| set("AWS_ENDPOINT"));
    let virtual_hosted = flag(set("AWS_VIRTUAL_HOSTED_STYLE_REQUEST"), "AWS_VIRTUAL_HOSTED_STYLE_REQUEST")?;
    let allow_http = flag(set("AWS_ALLOW_HTTP"), "AWS_ALLOW_HTTP")?
        || endpoint.is_some_and(|endpoint| endpoint.to_ascii_lowercase().starts_with("http://"));
    if let Some(endpoint) = endpoint {
        check_endpoint(endpoint)?;
        builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
    }
    builder
        .with_bucket_name(bucket)
        .with_region(region)
        .with_virtual_hosted_style_request(virtual_hosted)
        .with_client_options(
            ClientOptions::new()
                .with_allow_http(allow_http)
                .with_timeout(REQUEST_TIMEOUT)
                .with_connect_timeout(CONNECT_TIMEOUT),
        )
        .with_retry(RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(3),
                base: 2.0,
            },
            max_retries: RETRIES,
            retry_timeout: RETRY_TIMEOUT,
        })
        .build()
        .map_err(|source| {
            Error::new(Kind::Invalid, "the S3 settings cannot be used")
                .with("bucket", bucket)
                .with("cause", &source)
                .with_source(source)
        })
}

/// An endpoint that is no URL makes the client panic at its first request.
fn check_endpoint(endpoint: &str) -> Result<()> {
    let is_usable = Url::parse(endpoint).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https") && url.host_str().is_some_and(|host| !host.is_empty())
    });
    if is_usable {
        return Ok(());
    }
    Err(Error::new(Kind::Unavailable, "the S3 endpoint is no URL")
        .with("endpoint", endpoint)
        .with_remedy("write it with its scheme, such as http://127.0.0.1:8333"))
}

/// Settings handled by hand, since several names mean one thing.
fn is_ours(key: &str) -> bool {
    key.starts_with("aws_endpoint")
        || matches!(
            key,
            "aws_region"
                | "aws_default_region"
                | "aws_allow_http"
                | "aws_virtual_hosted_style_request"
                | "aws_bucket"
                | "aws_bucket_name"
        )
}

fn flag(value: Option<&str>, name: &'static str) -> Result<bool> {
    match value.map(str::to_ascii_lowercase).as_deref() {
        None | Some("false" | "0" | "no" | "off") => Ok(false),
        Some("true" | "1" | "yes" | "on") => Ok(true),
        Some(other) => Err(Error::new(Kind::Invalid, format!("{name} must be true or false")).with("value", other)),
    }
}
