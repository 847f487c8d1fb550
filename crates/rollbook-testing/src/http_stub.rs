//! S3 servers that misbehave in one known way, for the negative tests of opening and creating a lake.
//!
//! They speak just enough HTTP for `object_store`: one request a connection, no chunked bodies, no signatures.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{Result, s3};

/// How a stub answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behavior {
    /// Stores and returns objects, and ignores `If-None-Match`: every PUT is answered 200 and overwrites, as Garage and
    /// the `JuiceFS` gateway do.
    IgnoresConditions,
    /// Answers 403 `AccessDenied` to everything.
    Denies,
    /// Answers 404 `NoSuchBucket` to everything.
    NoBucket,
}

/// A running stub; dropping it ends it.
#[derive(Debug)]
pub struct HttpStub {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    behavior: Behavior,
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    requests: AtomicU64,
    is_stopped: AtomicBool,
}

struct Request {
    method: String,
    path: String,
    query: String,
    range: Option<(usize, usize)>,
    body: Vec<u8>,
}

struct Response {
    status: &'static str,
    headers: String,
    body: Vec<u8>,
}

impl HttpStub {
    /// Starts a stub on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// `Unavailable` if no port can be had.
    pub fn start(behavior: Behavior) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            behavior,
            objects: Mutex::default(),
            requests: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
        });
        let server = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if server.is_stopped.load(Ordering::SeqCst) {
                    break;
                }
                let server = Arc::clone(&server);
                // A connection that breaks is the client's to report.
                std::thread::spawn(move || drop(server.serve(&stream)));
            }
        });
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// The URL of the stub.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The `AWS_*` variables that point at it.
    pub fn env(&self) -> BTreeMap<String, String> {
        s3::environment(&self.endpoint(), "stub", "stub")
    }

    /// How many requests it has answered.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// The keys it holds, each with its bucket.
    pub fn keys(&self) -> Vec<String> {
        self.shared.objects.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}

impl Drop for HttpStub {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        // The listener waits for a connection: give it one.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Shared {
    fn serve(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let Some(request) = read_request(stream)? else {
            return Ok(());
        };
        let response = match self.behavior {
            Behavior::Denies => error("403 Forbidden", "AccessDenied", "Access Denied."),
            Behavior::NoBucket => error("404 Not Found", "NoSuchBucket", "The specified bucket does not exist"),
            Behavior::IgnoresConditions => self.answer(&request),
        };
        self.requests.fetch_add(1, Ordering::SeqCst);
        write!(
            stream,
            "HTTP/1.1 {}\r\nConnection: close\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n{}Content-Length: {}\r\n\r\n",
            response.status,
            response.headers,
            response.body.len()
        )?;
        if request.method != "HEAD" {
            stream.write_all(&response.body)?;
        }
        stream.flush()?;
        stream.shutdown(Shutdown::Write)
    }

    fn answer(&self, request: &Request) -> Response {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        match request.method.as_str() {
            "PUT" => {
                objects.insert(request.path.clone(), request.body.clone());
                ok("ETag: \"stub\"\r\n".to_owned(), Vec::new())
            }
            "DELETE" => {
                objects.remove(&request.path);
                Response { status: "204 No Content", headers: String::new(), body: Vec::new() }
            }
            "POST" if request.query == "delete" => ok(String::new(), delete(&mut objects, request)),
            "POST" => error("501 Not Implemented", "NotImplemented", "The stub has no multipart uploads."),
            _ if request.query.contains("list-type=2") => ok(String::new(), listing(&objects, request)),
            _ => match objects.get(&request.path) {
                Some(bytes) => object(bytes, request.range),
                None => error("404 Not Found", "NoSuchKey", "The specified key does not exist."),
            },
        }
    }
}

fn object(bytes: &[u8], range: Option<(usize, usize)>) -> Response {
    let etag = "ETag: \"stub\"\r\n";
    let Some((first, last)) = range else {
        return ok(etag.to_owned(), bytes.to_vec());
    };
    let end = bytes.len().min(last.saturating_add(1));
    if first >= end {
        return error("416 Range Not Satisfiable", "InvalidRange", "The requested range is not satisfiable");
    }
    let headers = format!("{etag}Content-Range: bytes {first}-{}/{}\r\n", end - 1, bytes.len());
    Response { status: "206 Partial Content", headers, body: bytes[first..end].to_vec() }
}

fn listing(objects: &BTreeMap<String, Vec<u8>>, request: &Request) -> Vec<u8> {
    let bucket = format!("{}/", request.path.trim_end_matches('/'));
    let prefix = parameter(&request.query, "prefix");
    let after = parameter(&request.query, "start-after");
    let mut contents = String::new();
    for (path, bytes) in objects {
        let Some(key) = path.strip_prefix(&bucket) else {
            continue;
        };
        if key.starts_with(&prefix) && key > after.as_str() {
            contents.extend([format!(
                "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                 <ETag>\"stub\"</ETag><Size>{}</Size></Contents>",
                bytes.len()
            )]);
        }
    }
    format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>").into_bytes()
}

/// Deletes the keys that the body names.
fn delete(objects: &mut BTreeMap<String, Vec<u8>>, request: &Request) -> Vec<u8> {
    let mut deleted = String::new();
    for rest in String::from_utf8_lossy(&request.body).split("<Key>").skip(1) {
        let key = rest.split('<').next().unwrap_or_default();
        objects.remove(&format!("{}/{key}", request.path.trim_end_matches('/')));
        deleted.extend(["<Deleted><Key>", key, "</Key></Deleted>"]);
    }
    format!("<DeleteResult>{deleted}</DeleteResult>").into_bytes()
}

/// A query parameter with `%2F` decoded, which is all that keys of a lake need.
fn parameter(query: &str, name: &str) -> String {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.replace("%2F", "/").replace("%2f", "/"))
        .unwrap_or_default()
}

fn ok(headers: String, body: Vec<u8>) -> Response {
    Response { status: "200 OK", headers, body }
}

fn error(status: &'static str, code: &str, message: &str) -> Response {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    );
    Response { status, headers: "Content-Type: application/xml\r\n".to_owned(), body: body.into_bytes() }
}

fn read_request(stream: &TcpStream) -> std::io::Result<Option<Request>> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Ok(None);
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        range: None,
        body: Vec::new(),
    };
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim_end().split_once(':') else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "range" => request.range = byte_range(value.trim()),
            _ => {}
        }
    }
    reader.take(length).read_to_end(&mut request.body)?;
    Ok(Some(request))
}

fn byte_range(value: &str) -> Option<(usize, usize)> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, if last.is_empty() { usize::MAX } else { last.parse().ok()? }))
}

#[cfg(test)]
mod tests {
    use object_store::aws::{AmazonS3, AmazonS3Builder};
    use object_store::path::Path;
    use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions};

    use super::*;

    fn store(stub: &HttpStub) -> AmazonS3 {
        let mut builder = AmazonS3Builder::new().with_bucket_name("lake");
        for (name, value) in stub.env() {
            builder = builder.with_config(name.to_lowercase().parse().unwrap(), value);
        }
        builder.build().unwrap()
    }

    async fn create(store: &AmazonS3, text: &'static str) -> Result<(), StoreError> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        store.put_opts(&Path::from("a/b.json"), text.into(), options).await.map(drop)
    }

    #[tokio::test]
    async fn ignoring_conditions_overwrites_and_says_all_is_well() {
        let stub = HttpStub::start(Behavior::IgnoresConditions).unwrap();
        let lake = store(&stub);
        assert!(matches!(lake.get(&Path::from("a/b.json")).await, Err(StoreError::NotFound { .. })));
        create(&lake, "first").await.unwrap();
        create(&lake, "second").await.unwrap();
        let text = lake.get(&Path::from("a/b.json")).await.unwrap().bytes().await.unwrap();
        assert_eq!(&text[..], b"second");
        assert_eq!(&lake.get_range(&Path::from("a/b.json"), 1..3).await.unwrap()[..], b"ec");
        let listed = lake.list_with_delimiter(Some(&Path::from("a"))).await.unwrap();
        assert_eq!(listed.objects.len(), 1);
        lake.delete(&Path::from("a/b.json")).await.unwrap();
        assert_eq!((stub.keys(), stub.requests() > 5), (vec![], true));
    }

    #[tokio::test]
    async fn denying_and_missing_buckets_are_told_apart() {
        let denied = create(&store(&HttpStub::start(Behavior::Denies).unwrap()), "x").await.unwrap_err();
        assert!(matches!(denied, StoreError::PermissionDenied { .. }), "{denied}");
        let missing = create(&store(&HttpStub::start(Behavior::NoBucket).unwrap()), "x").await.unwrap_err();
        assert!(missing.to_string().contains("NoSuchBucket"), "{missing}");
    }
}
