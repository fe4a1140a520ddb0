//! The authority: requests to it, and the account that the server has there.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use bytes::Bytes;
use instant_acme::{
    Account, AccountBuilder, AccountCredentials, BodyWrapper, BytesResponse, HttpClient, NewAccount,
};
use reqwest::Client;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::storage::Storage;
use super::{Error, LONGEST_PAUSE, blocking};
use crate::client;
use crate::config;

/// The file with the account and its key.
pub(super) const ACCOUNT: &str = "account.json";
/// Longest answer, in bytes.
const LONGEST: usize = 256 << 10;
/// For how long one request may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// An authority, by its directory.
pub(super) struct Authority {
    directory: String,
    email: String,
    /// Authorities that sign the certificate of the directory's server, beside those of the system.
    roots: Vec<CertificateDer<'static>>,
    account: Option<Account>,
    /// Whether the account that is kept is of no use.
    forgotten: bool,
    /// For how many seconds the authority wants to be left alone.
    busy: Arc<AtomicU64>,
}

/// What is kept of an account.
#[derive(Serialize, Deserialize)]
struct Kept {
    email: String,
    credentials: AccountCredentials,
}

impl Authority {
    pub(super) fn new(acme: &config::Acme) -> anyhow::Result<Self> {
        Ok(Self {
            directory: acme.directory.clone(),
            email: acme.email.clone(),
            roots: acme.roots().map_err(anyhow::Error::msg)?,
            account: None,
            forgotten: false,
            busy: Arc::default(),
        })
    }

    /// The account: the one that is kept, or a new one. With it comes the new content of its file, if that changes.
    pub(super) async fn account(
        &mut self,
        storage: Arc<Storage>,
    ) -> Result<(Account, Option<String>), Error> {
        if let Some(account) = &self.account {
            return Ok((account.clone(), None));
        }
        let contact = format!("mailto:{}", self.email);
        let contact: &[&str] = if self.email.is_empty() { &[] } else { &[&contact] };
        let kept = if self.forgotten { None } else { kept(storage).await };
        let (account, file) = match kept {
            Some(Kept { email, credentials }) => {
                let file = (email != self.email).then(|| self.file(&credentials)).transpose()?;
                let account = self.requests()?.from_credentials(credentials).await?;
                if file.is_some() {
                    account.update_contacts(contact).await?;
                }
                (account, file)
            }
            None => {
                let new = NewAccount {
                    contact,
                    terms_of_service_agreed: true,
                    only_return_existing: false,
                };
                let directory = self.directory.clone();
                let (account, credentials) = self.requests()?.create(&new, directory, None).await?;
                tracing::info!(directory = self.directory, id = account.id(), "new account");
                self.forgotten = false;
                (account, Some(self.file(&credentials)?))
            }
        };
        self.account = Some(account.clone());
        Ok((account, file))
    }

    /// Makes another account when one is next needed.
    pub(super) fn forget(&mut self) {
        (self.account, self.forgotten) = (None, true);
    }

    /// How long the authority wanted to be left alone since this was last asked.
    pub(super) fn asked_pause(&self) -> Duration {
        Duration::from_secs(self.busy.swap(0, Ordering::Relaxed)).min(LONGEST_PAUSE)
    }

    fn file(&self, credentials: &AccountCredentials) -> Result<String, Error> {
        #[derive(Serialize)]
        struct Keep<'a> {
            email: &'a str,
            credentials: &'a AccountCredentials,
        }
        let keep = Keep { email: &self.email, credentials };
        Ok(serde_json::to_string_pretty(&keep).map_err(instant_acme::Error::from)?)
    }

    fn requests(&self) -> Result<AccountBuilder, Error> {
        let (client, _) = client::new(&self.directory, &self.roots)?;
        let requests = Requests { client, busy: Arc::clone(&self.busy) };
        Ok(Account::builder_with_http(Box::new(requests)))
    }
}

/// Reads the account that is kept.
async fn kept(storage: Arc<Storage>) -> Option<Kept> {
    let file = storage.path(ACCOUNT);
    let read = blocking(move || storage.read(ACCOUNT)).await;
    let kept = read.map_err(|error| error.to_string()).and_then(|text| {
        text.map(|text| serde_json::from_str(&text)).transpose().map_err(|error| error.to_string())
    });
    kept.unwrap_or_else(|why| {
        tracing::warn!(file = %file.display(), why, "the kept account cannot be used");
        None
    })
}

/// Whether the authority has lost the account, or never had it.
pub(super) fn knows_no_account(error: &instant_acme::Error) -> bool {
    is_problem(error, "accountDoesNotExist")
}

/// Whether the authority refused the nonce of a request. `instant_acme` has tried again by then.
pub(super) fn refused_nonce(error: &instant_acme::Error) -> bool {
    is_problem(error, "badNonce")
}

/// Whether an error is the authority's answer of this type, RFC 8555 6.7.
fn is_problem(error: &instant_acme::Error, name: &str) -> bool {
    let instant_acme::Error::Api(problem) = error else { return false };
    let of_acme =
        problem.r#type.as_deref().and_then(|it| it.strip_prefix("urn:ietf:params:acme:error:"));
    of_acme == Some(name)
}

struct Requests {
    client: Client,
    busy: Arc<AtomicU64>,
}

type Answer = Result<BytesResponse, instant_acme::Error>;

impl HttpClient for Requests {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        let (client, busy) = (self.client.clone(), Arc::clone(&self.busy));
        Box::pin(async move {
            let exchanged = timeout(PATIENCE, exchange(client, request)).await;
            let answer = exchanged.unwrap_or_else(|_| Err(format!("no answer in {PATIENCE:?}")));
            let answer = answer.map_err(|why| instant_acme::Error::Other(why.into()))?;
            if [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE]
                .contains(&answer.parts.status)
            {
                let seconds = answer.parts.headers.get(header::RETRY_AFTER);
                let seconds = seconds.and_then(|value| value.to_str().ok()?.parse().ok());
                busy.store(seconds.unwrap_or(0), Ordering::Relaxed);
            }
            Ok(answer)
        })
    }
}

async fn exchange(
    client: Client,
    request: Request<BodyWrapper<Bytes>>,
) -> Result<BytesResponse, String> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(Body::new(body), usize::MAX).await;
    let body = body.map_err(|error| error.to_string())?;
    let request = Request::from_parts(head, reqwest::Body::from(body));
    let request = reqwest::Request::try_from(request).map_err(client::reason)?;
    let mut response = client.execute(request).await.map_err(client::reason)?;
    let body = Bytes::from(client::body(&mut response, LONGEST).await?);
    let (parts, _) = Response::from(response).into_parts();
    // What is no problem document (RFC 7807) would be reported as bad JSON.
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_problem = kind.is_some_and(|kind| kind.starts_with("application/problem+json"));
    if !parts.status.is_success() && !is_problem {
        return Err(format!("the status of the answer is {}", parts.status));
    }
    Ok(BytesResponse { parts, body: Box::new(body) })
}
