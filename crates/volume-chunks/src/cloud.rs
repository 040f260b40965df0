//! Object stores other than S3: Google Cloud Storage, Azure Blob Storage, and WebDAV servers. Each needs a feature of this crate
//! (`gcp`, `azure`, `http`). In a build without it the constructor fails and names the feature; the address itself can still be
//! parsed and shown.

use crate::ContentError;
use crate::blobs::Blobs;

#[cfg(feature = "http")]
mod webdav;

#[cfg(all(test, feature = "gcp", feature = "azure", feature = "http"))]
mod fake;

#[cfg(all(test, feature = "gcp", feature = "azure", feature = "http"))]
mod tests;

#[cfg(not(all(feature = "gcp", feature = "azure", feature = "http")))]
fn unsupported(address: &str, store: &str, feature: &str) -> ContentError {
    ContentError::Address(format!(
        "cannot use address `{address}`: this build lacks support for {store}; use one with the feature `{feature}`"
    ))
}

impl Blobs {
    /// Configures a bucket of Google Cloud Storage with a prefix. Credentials are read from the usual variables, such as
    /// `GOOGLE_APPLICATION_CREDENTIALS`, then from the user's application default credentials, then from the metadata server of
    /// a virtual machine.
    ///
    /// # Errors
    /// [`ContentError::Address`] if these are invalid, or without the feature `gcp`. No request is made yet.
    pub fn gcs(bucket: &str, prefix: &str) -> Result<Self, ContentError> {
        #[cfg(feature = "gcp")]
        return gcs::over(
            object_store::gcp::GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket),
            prefix,
        );
        #[cfg(not(feature = "gcp"))]
        Err(unsupported(&format!("gs://{bucket}/{prefix}"), "Google Cloud Storage", "gcp"))
    }

    /// Configures a container of Azure Blob Storage with a prefix. Account and credentials are read from the usual variables
    /// `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY`, `AZURE_STORAGE_SAS_TOKEN`, `AZURE_CLIENT_ID` and so on.
    ///
    /// # Errors
    /// [`ContentError::Address`] if these are invalid, or without the feature `azure`. No request is made yet.
    pub fn azure(container: &str, prefix: &str) -> Result<Self, ContentError> {
        #[cfg(feature = "azure")]
        return azure::over(
            object_store::azure::MicrosoftAzureBuilder::from_env().with_container_name(container),
            prefix,
        );
        #[cfg(not(feature = "azure"))]
        Err(unsupported(&format!("az://{container}/{prefix}"), "Azure Blob Storage", "azure"))
    }

    /// Configures a directory of a WebDAV server, by its URL. User and password are read from `SHUNT_HTTP_USER` and
    /// `SHUNT_HTTP_PASSWORD`.
    ///
    /// # Errors
    /// [`ContentError::Address`] if the URL is invalid, or without the feature `http`. No request is made yet.
    pub fn http(url: &str) -> Result<Self, ContentError> {
        #[cfg(feature = "http")]
        return webdav::over(url, webdav::login());
        #[cfg(not(feature = "http"))]
        Err(unsupported(url, "WebDAV servers", "http"))
    }
}

#[cfg(feature = "gcp")]
mod gcs {
    use object_store::ClientConfigKey::AllowHttp;
    use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};

    use crate::ContentError;
    use crate::blobs::{Blobs, client_options, retry_config};

    pub(super) fn over(builder: GoogleCloudStorageBuilder, prefix: &str) -> Result<Blobs, ContentError> {
        let allow_http = builder.get_config_value(&GoogleConfigKey::Client(AllowHttp));
        let builder = builder.with_client_options(client_options(allow_http)).with_retry(retry_config());
        Blobs::remote(|| builder.build(), prefix)
    }
}

#[cfg(feature = "azure")]
mod azure {
    use object_store::ClientConfigKey::AllowHttp;
    use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

    use crate::ContentError;
    use crate::blobs::{Blobs, client_options, retry_config};

    pub(super) fn over(builder: MicrosoftAzureBuilder, prefix: &str) -> Result<Blobs, ContentError> {
        let allow_http = builder.get_config_value(&AzureConfigKey::Client(AllowHttp));
        let builder = builder.with_client_options(client_options(allow_http)).with_retry(retry_config());
        Blobs::remote(|| builder.build(), prefix)
    }
}

#[cfg(all(test, not(any(feature = "gcp", feature = "azure", feature = "http"))))]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_a_store_names_its_feature() {
        for (opened, text) in [
            (
                Blobs::gcs("b", "p"),
                "cannot use address `gs://b/p`: this build lacks support for Google Cloud Storage; use one with the feature `gcp`",
            ),
            (
                Blobs::azure("c", ""),
                "cannot use address `az://c/`: this build lacks support for Azure Blob Storage; use one with the feature `azure`",
            ),
            (
                Blobs::http("https://h/d"),
                "cannot use address `https://h/d`: this build lacks support for WebDAV servers; use one with the feature `http`",
            ),
        ] {
            assert_eq!(opened.unwrap_err().to_string(), text);
        }
    }
}
