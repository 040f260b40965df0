//! Each remote store keeps objects in its server.

use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use shunt_volume_types::runtime::runtime;

use super::fake::{Protocol, Server};
use super::webdav;
use crate::ContentError;
use crate::blobs::{Blob, Blobs};

fn gcs(server: &Server) -> Blobs {
    let account = format!(
        r#"{{"gcs_base_url": "http://{}", "disable_oauth": true, "client_email": "", "private_key": "",
            "private_key_id": ""}}"#,
        server.address
    );
    let builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name("bucket")
        .with_service_account_key(account)
        .with_config("google_allow_http".parse().unwrap(), "true");
    super::gcs::over(builder, "volumes/v").unwrap()
}

fn azure(server: &Server) -> Blobs {
    let builder = MicrosoftAzureBuilder::new()
        .with_account("account")
        .with_access_key("c2VjcmV0")
        .with_container_name("container")
        .with_endpoint(format!("http://{}", server.address))
        .with_allow_http(true);
    super::azure::over(builder, "volumes/v").unwrap()
}

fn dav(server: &Server) -> Blobs {
    let login = Some(("ada".to_owned(), "secret".to_owned()));
    webdav::over(&format!("http://{}/my%20dir/v", server.address), login).unwrap()
}

/// All that a volume does with its store.
fn keeps_objects(server: &Server, blobs: &Blobs, root: &str) {
    runtime().block_on(async {
        let missing = blobs.get("packs/4f/one", 0..1).await.unwrap_err();
        assert!(matches!(missing, ContentError::Missing(_)), "{missing:?}");
        let mut none = Vec::new();
        blobs.list("packs", |blob| none.push(blob)).await.unwrap();
        assert_eq!(none, []);

        blobs.put("shunt.volume", b"first".to_vec()).await.unwrap();
        blobs.put("shunt.volume", b"second".to_vec()).await.unwrap();
        assert_eq!(blobs.get("shunt.volume", 0..5).await.unwrap(), &b"first"[..], "replaced by another one");

        let large: Vec<u8> = (0..9_u32 << 20).map(|n| (n / 251) as u8).collect();
        blobs.put("packs/4f/one", large.clone()).await.unwrap();
        blobs.put("packs/50/two", b"text".to_vec()).await.unwrap();
        let keys = ["packs/4f/one", "packs/50/two", "shunt.volume"].map(|key| format!("{root}/{key}"));
        assert_eq!(server.keys(), keys);
        assert!(blobs.get("packs/4f/one", 0..large.len() as u64).await.unwrap() == large);
        assert_eq!(blobs.get("packs/50/two", 1..3).await.unwrap(), &b"ex"[..]);
        let damaged = blobs.get("packs/50/two", 4..9).await.unwrap_err();
        assert!(matches!(damaged, ContentError::Damaged(_)), "{damaged:?}");
        assert_eq!(blobs.stat("packs/50/two").await.unwrap().size, 4);

        let mut found = Vec::new();
        blobs.list("packs", |Blob { key, size, .. }| found.push((key, size))).await.unwrap();
        found.sort();
        assert_eq!(found, [("packs/4f/one".to_owned(), 9 << 20), ("packs/50/two".to_owned(), 4)]);
        blobs.delete("packs/4f/one").await.unwrap();
        blobs.delete("packs/4f/one").await.unwrap();
        assert_eq!(server.keys(), keys[1..]);
    });
}

#[test]
fn google_cloud_storage_keeps_objects() {
    let server = Server::start(Protocol::Gcs);
    keeps_objects(&server, &gcs(&server), "/bucket/volumes/v");
}

#[test]
fn azure_blob_storage_keeps_objects() {
    let server = Server::start(Protocol::Azure);
    keeps_objects(&server, &azure(&server), "/container/volumes/v");
}

#[test]
fn a_webdav_server_keeps_objects() {
    let server = Server::start(Protocol::WebDav);
    keeps_objects(&server, &dav(&server), "/my dir/v");
}

#[test]
fn a_refused_login_is_not_an_outage() {
    let server = Server::start(Protocol::WebDav);
    let blobs = webdav::over(&format!("http://{}/my%20dir", server.address), None).unwrap();
    let refused = runtime().block_on(blobs.put("key", Vec::new())).unwrap_err();
    assert!(matches!(refused, ContentError::Denied(_)), "{refused:?}");
    assert_eq!(server.keys(), [""; 0]);
}

#[test]
fn invalid_addresses_are_named() {
    for url in ["http://", "https://h:port/", "https://host/%ff"] {
        let error = webdav::over(url, None).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot use address `{url}`: ")), "{error}");
    }
}
