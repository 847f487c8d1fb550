//! The server starts, stores, denies, forbids a second creation, and ends.

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt, PutMode, PutOptions};

use super::*;

fn store(env: &BTreeMap<String, String>, bucket: &str) -> AmazonS3 {
    let mut builder = AmazonS3Builder::new().with_bucket_name(bucket);
    for (name, value) in env {
        builder = builder.with_config(name.to_lowercase().parse().unwrap(), value);
    }
    builder.build().unwrap()
}

async fn create(store: &AmazonS3, path: &str) -> Result<(), StoreError> {
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    object_store::ObjectStore::put_opts(store, &Path::from(path), "text".into(), options).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_takes_an_object_once_and_ends_with_its_server() {
    let server = SeaweedFs::start().unwrap();
    server.create_bucket("lake").unwrap();
    server.create_bucket("lake").unwrap();
    let lake = store(&server.env(), "lake");
    create(&lake, "a/b").await.unwrap();
    assert!(matches!(create(&lake, "a/b").await, Err(StoreError::AlreadyExists { .. })));
    let bytes = lake.get(&Path::from("a/b")).await.unwrap().bytes().await.unwrap();
    assert_eq!(&bytes[..], b"text");

    let missing = create(&store(&server.env(), "no-such-bucket"), "a").await.unwrap_err();
    assert!(missing.to_string().contains("NoSuchBucket"), "{missing}");
    let denied = create(&store(&server.env_denied(), "lake"), "c").await.unwrap_err();
    assert!(matches!(denied, StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. }), "{denied}");

    let (port, folder) = (server.ports.s3, server.dir.path().to_owned());
    drop(server);
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
    assert!(!folder.exists());
}

#[test]
fn two_servers_stand_side_by_side() {
    let one = SeaweedFs::start().unwrap();
    let two = SeaweedFs::start().unwrap();
    assert_ne!(one.endpoint(), two.endpoint());
    one.create_bucket("x").unwrap();
    two.create_bucket("x").unwrap();
}
