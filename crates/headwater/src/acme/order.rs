//! An order: what the authority and the server say to each other until there is a certificate.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Identifier, NewOrder,
    Order, OrderStatus, RetryPolicy,
};
use tokio::time::sleep;

use super::Error;
use super::answers::Answers;
use super::authority::refused_nonce;

/// How the order is asked for its state again and again.
const POLLING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));
/// For how long the authority may look for the other domains after it did not reach one.
const LOOKING: Duration = Duration::from_secs(10);
/// How often it is asked whether it still does.
const LOOK: Duration = Duration::from_millis(250);

/// Domains that an authority sees by TLS-ALPN-01. It does not reach them by HTTP-01, which is tried first.
#[derive(Default)]
pub(super) struct Ways(HashMap<String, ChallengeType>);

impl Ways {
    fn of(&self, domain: &str) -> ChallengeType {
        self.0.get(domain).cloned().unwrap_or(ChallengeType::Http01)
    }

    /// Remembers that a way did not lead to the domain.
    fn not_by(&mut self, domain: &str, way: &ChallengeType) {
        self.0.insert(domain.to_owned(), other(way));
    }
}

fn other(way: &ChallengeType) -> ChallengeType {
    match way {
        ChallengeType::Http01 => ChallengeType::TlsAlpn01,
        _ => ChallengeType::Http01,
    }
}

fn name(way: &ChallengeType) -> &'static str {
    match way {
        ChallengeType::Http01 => "HTTP-01",
        ChallengeType::TlsAlpn01 => "TLS-ALPN-01",
        _ => "another way",
    }
}

/// Gets a certificate for the domains: a new key, the certificate and its chain, in PEM. Where the authority does not
/// reach a domain, the next order for it goes the other way.
pub(super) async fn get(
    account: &Account,
    domains: &BTreeSet<String>,
    replaced: Option<CertificateIdentifier<'_>>,
    ways: &mut Ways,
    answers: &Answers,
) -> Result<String, Error> {
    let names: Vec<_> = domains.iter().cloned().map(Identifier::Dns).collect();
    let mut wanted = NewOrder::new(&names);
    if let Some(replaced) = replaced {
        wanted = wanted.replaces(replaced);
    }
    let mut order = account.new_order(&wanted).await?;
    let mut failed = None;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let domain = authorization.identifier().to_string();
        let way = ways.of(&domain);
        let is_offered = authorization.challenges.iter().any(|challenge| challenge.r#type == way);
        let way = if is_offered { way } else { other(&way) };
        let Some(mut challenge) = authorization.challenge(way.clone()) else {
            let why = "the authority offers neither HTTP-01 nor TLS-ALPN-01".to_owned();
            return Err(Error::Refused { domain, way: name(&way), why });
        };
        let proof = challenge.key_authorization();
        match way {
            ChallengeType::Http01 => answers.by_http(&challenge.token, proof.as_str()),
            _ => answers.by_tls(&domain, proof.digest().as_ref())?,
        }
        match challenge.set_ready().await {
            Ok(()) => {}
            // An authority that is quick has looked before it answers. The other domains are asked for all the same.
            Err(error @ instant_acme::Error::Api(_)) if !refused_nonce(&error) => {
                failed = failed.or(Some(error));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let mut ready = Ok(OrderStatus::Pending);
    if failed.is_none() {
        ready = order.poll_ready(&POLLING).await;
    }
    if !matches!(ready, Ok(OrderStatus::Ready)) {
        let is_late = matches!(ready, Err(instant_acme::Error::Timeout(_)));
        refused(&mut order, ways, if is_late { Duration::ZERO } else { LOOKING }).await?;
        ready?;
        // The authority may have looked again.
        if order.refresh().await?.status != OrderStatus::Ready {
            let why = instant_acme::Error::Str("an order that is ready");
            return Err(failed.unwrap_or(why).into());
        }
    }
    let key = order.finalize().await?;
    Ok(key + &order.poll_certificate(&POLLING).await?)
}

/// Returns the first domain that the authority did not reach as an error. Each such domain goes the other way next time.
/// The authority may still look for others. Authorities count failed orders, so this waits a while for those too.
async fn refused(order: &mut Order, ways: &mut Ways, limit: Duration) -> Result<(), Error> {
    let mut first = Ok(());
    let end = Instant::now() + limit;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        let status = loop {
            match authorization.refresh().await {
                Ok(state)
                    if state.status == AuthorizationStatus::Pending && Instant::now() < end =>
                {
                    sleep(LOOK).await;
                }
                Ok(state) => break state.status,
                // What is known of a domain says more.
                Err(error) => return first.and(Err(error.into())),
            }
        };
        // A challenge may have failed before it succeeded (RFC 8555 8.2).
        if status == AuthorizationStatus::Valid {
            continue;
        }
        let failed = authorization
            .challenges
            .iter()
            .find_map(|challenge| Some((&challenge.r#type, challenge.error.as_ref()?)));
        if let Some((way, problem)) = failed {
            let domain = authorization.identifier().to_string();
            ways.not_by(&domain, way);
            let refused = Error::Refused { domain, way: name(way), why: problem.to_string() };
            first = first.and(Err(refused));
        }
    }
    first
}
