//! Where the objects are: the address of a root, and the client for it.

use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::list::PaginatedListStore;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use crate::{Error, Settings};

/// A client of a store.
pub(crate) trait Client: ObjectStore + PaginatedListStore {}

impl<T: ObjectStore + PaginatedListStore> Client for T {}

/// A part of a store.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) client: Box<dyn Client>,
    /// What the keys of all objects begin with: empty, or with a slash at its end.
    pub(crate) prefix: String,
}

/// The schemes of addresses of stores.
const SCHEMES: [&str; 3] = ["s3", "gs", "az"];

/// Whether a root is the address of a store, and not the path of a folder.
pub fn is_address(root: &str) -> bool {
    root.split_once("://").is_some_and(|(scheme, _)| SCHEMES.contains(&scheme))
}

/// Most times that a request is repeated where the store says that it is busy.
const RETRIES: usize = 2;

impl Bucket {
    /// Makes the client. Credentials come from the environment, as the tools of each store name
    /// them. Nothing is asked yet.
    pub(crate) fn open(settings: &Settings) -> Result<Self, Error> {
        let url = settings.url.as_str();
        let wrong = |reason: String| Error::Address { url: url.to_owned(), reason };
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if name.is_empty() {
            return Err(wrong("names no bucket".to_owned()));
        }
        let prefix = prefix.trim_end_matches('/');
        if object_store::path::Path::parse(prefix).is_err() || prefix.starts_with('/') {
            return Err(wrong("the prefix is not the beginning of a key".to_owned()));
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        // The client's TLS takes the process's cryptography, and another one may be set already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let options = ClientOptions::new()
            .with_allow_http(settings.allow_http)
            .with_connect_timeout(settings.timeout.min(Duration::from_secs(5)))
            .with_timeout(settings.timeout);
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(50),
                max_backoff: Duration::from_secs(1),
                base: 2.0,
            },
            max_retries: RETRIES,
            retry_timeout: settings.timeout,
        };
        let endpoint = settings.endpoint.trim_end_matches('/');
        let checked = |endpoint: Option<String>| match endpoint {
            Some(plain) if plain.starts_with("http://") && !settings.allow_http => {
                Err(wrong(format!("{plain} is not encrypted, and vod.store.allow_http is false")))
            }
            _ => Ok(()),
        };
        let failed = |error: object_store::Error| wrong(error.to_string());
        let client: Box<dyn Client> = match scheme {
            "s3" => {
                let mut builder = AmazonS3Builder::from_env().with_url(format!("s3://{name}"));
                if !endpoint.is_empty() {
                    builder = builder.with_endpoint(endpoint);
                }
                checked(builder.get_config_value(&AmazonS3ConfigKey::Endpoint))?;
                let builder = builder.with_client_options(options).with_retry(retry);
                Box::new(builder.build().map_err(failed)?)
            }
            "gs" => {
                let mut builder =
                    GoogleCloudStorageBuilder::from_env().with_url(format!("gs://{name}"));
                if !endpoint.is_empty() {
                    builder = builder.with_base_url(endpoint);
                }
                checked(builder.get_config_value(&GoogleConfigKey::BaseUrl))?;
                let builder = builder.with_client_options(options).with_retry(retry);
                Box::new(builder.build().map_err(failed)?)
            }
            "az" => {
                let mut builder =
                    MicrosoftAzureBuilder::from_env().with_url(format!("az://{name}"));
                if !endpoint.is_empty() {
                    builder = builder.with_endpoint(endpoint.to_owned());
                }
                checked(builder.get_config_value(&AzureConfigKey::Endpoint))?;
                let builder = builder.with_client_options(options).with_retry(retry);
                Box::new(builder.build().map_err(failed)?)
            }
            _ => return Err(wrong("is not an address of a store".to_owned())),
        };
        Ok(Self { client, prefix })
    }
}
