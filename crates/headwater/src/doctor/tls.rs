//! The certificate of `[http.tls]`, and its key.

use http::{CertificateFacts, Credentials};

use super::{Check, exposed};
use crate::config::Config;

const CERTIFICATE: &str = "http.tls.certificate";
const KEY: &str = "http.tls.key";

/// A certificate that ends sooner than this should have been renewed: authorities give 90 days, and their tools renew
/// 30 days before the end.
const SOON: u64 = 14 * DAY;

const DAY: u64 = 86_400;

pub(super) fn check(config: &Config, now: u64) -> Vec<Check> {
    let Some(credentials) = config.http.tls.credentials() else { return Vec::new() };
    let mut checks = vec![match credentials.facts() {
        Ok(facts) => judge(&facts, &credentials, now),
        Err(error) => {
            let why = "The server does not start";
            let remedy = "a certificate and its key in PEM (docs/tls.md says how to make a pair)";
            Check::problem(CERTIFICATE, error, why, remedy)
        }
    }];
    checks.extend(exposed(KEY, &credentials.key));
    checks
}

/// Judges a certificate to which the key belongs.
fn judge(facts: &CertificateFacts, credentials: &Credentials, now: u64) -> Check {
    let CertificateFacts { not_before, not_after, names, is_self_signed } = facts;
    let path = credentials.certificate.display();
    let renew =
        || format!("a renewed certificate in {path}, which the running server reads by itself");
    if now >= *not_after {
        let found = format!("{path} expired {} ago", days(now - not_after));
        return Check::problem(CERTIFICATE, found, "No player connects by https or rtmps", renew());
    }
    if now < *not_before {
        let found = format!("{path} is not valid before {} from now", days(not_before - now));
        let remedy = "the right time on this machine, or another certificate";
        return Check::problem(CERTIFICATE, found, "No player connects by https or rtmps", remedy);
    }
    if names.is_empty() {
        let found = format!("{path} names no host (subjectAltName)");
        return Check::warning(CERTIFICATE, found, "Browsers and players refuse it", {
            "a certificate with the names by which viewers reach this server"
        });
    }
    let left = not_after - now;
    let found = format!("{path} is for {} and valid for {}", names.join(", "), days(left));
    if left < SOON {
        let why = "When it expires, no player connects by https or rtmps";
        return Check::warning(CERTIFICATE, found, why, renew());
    }
    if *is_self_signed {
        let why = "It is signed by itself: browsers and players refuse it, unless they are told to trust it";
        let remedy = "a certificate of an authority (`certbot certonly`)";
        return Check::warning(CERTIFICATE, found, why, remedy);
    }
    Check::ok(CERTIFICATE, found)
}

fn days(seconds: u64) -> String {
    match seconds / DAY {
        0 => format!("{} h", seconds / 3600),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn a_certificate_is_judged_by_its_time_its_names_and_its_issuer() {
        let good = CertificateFacts {
            not_before: 1_000,
            not_after: 1_000 + 90 * DAY,
            names: vec!["example.org".to_owned()],
            is_self_signed: false,
        };
        let credentials = Credentials { certificate: "c.pem".into(), key: "k.pem".into() };
        let level = |facts: &CertificateFacts, now| judge(facts, &credentials, now).level;
        assert_eq!(level(&good, 1_000), Level::Ok);
        assert_eq!(level(&good, 999), Level::Problem);
        assert_eq!(level(&good, 1_000 + 76 * DAY), Level::Ok);
        assert_eq!(level(&good, 1_001 + 76 * DAY), Level::Warning);
        assert_eq!(level(&good, 1_000 + 90 * DAY), Level::Problem);
        let found = judge(&good, &credentials, 1_000 + 93 * DAY).found;
        assert_eq!(found, "c.pem expired 3 days ago");
        assert_eq!(level(&CertificateFacts { names: Vec::new(), ..good }, 1_000), Level::Warning);
        assert_eq!(
            level(&CertificateFacts { is_self_signed: true, ..good }, 1_000),
            Level::Warning
        );
    }
}
