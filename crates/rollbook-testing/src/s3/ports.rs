//! Free ports for one server.
//!
//! Every part of the server listens on a port and, for gRPC, on the port 10,000 above it. Both lie below the range from
//! which Linux takes the ports of outgoing connections (32768 upwards), so that no connection can take one between the
//! search and the start; the process id spreads test processes that search at the same time.

use std::net::{Ipv4Addr, TcpListener};

use crate::{Error, ErrorKind, Result};

const FIRST: u16 = 10_500;
const BLOCKS: u32 = 1_900;
const BLOCK: u16 = 5;
const GRPC_OFFSET: u16 = 10_000;

/// The HTTP ports of the parts of one server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) s3: u16,
    pub(super) master: u16,
    pub(super) filer: u16,
    pub(super) volume: u16,
    pub(super) admin: u16,
}

impl Ports {
    /// The first block of ports that is free, from a place that depends on the process and the attempt.
    pub(super) fn find(attempt: u32) -> Result<Self> {
        // 37 is prime to the number of blocks: neighbouring process ids start 37 blocks apart.
        let start = std::process::id() % BLOCKS * 37 + attempt * 11;
        (0..BLOCKS)
            .filter_map(|step| u16::try_from((start + step) % BLOCKS).ok())
            .map(|block| FIRST + block * BLOCK)
            .find(|base| (0..BLOCK).all(|i| is_free(base + i) && is_free(base + i + GRPC_OFFSET)))
            .map(|base| Self { s3: base, master: base + 1, filer: base + 2, volume: base + 3, admin: base + 4 })
            .ok_or_else(|| Error::new(ErrorKind::Unavailable, "no free block of ports on 127.0.0.1"))
    }

    /// The Unix sockets that the server leaves behind when it is killed.
    pub(super) fn sockets(&self) -> Vec<String> {
        let parts = [
            ("s3", self.s3),
            ("master", self.master),
            ("filer", self.filer),
            ("volume", self.volume),
            ("admin", self.admin),
        ];
        let grpc = parts.iter().map(|(part, port)| format!("/tmp/seaweedfs-{part}-grpc-{}.sock", port + GRPC_OFFSET));
        let http = parts.iter().map(|(part, port)| format!("/tmp/seaweedfs-{part}-{port}.sock"));
        grpc.chain(http).collect()
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
