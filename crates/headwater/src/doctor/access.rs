//! The keys of `[access]`, and the servers that it, `[events]`, `[http.tls.acme]` and `[traces]` speak with.

use std::path::Path;

use super::{Check, exposed};
use crate::access::fetch_keys;
use crate::client;
use crate::config::{Access, Config, is_url, jwt_keys, signing_key};

pub(super) async fn check(config: &Config) -> Vec<Check> {
    let access = &config.access;
    let on_failure = "It cannot decide, so access.webhook.on_failure does";
    let tls = &config.http.tls;
    let directory = if tls.domains.is_empty() { "" } else { &tls.acme.directory };
    let (keys, webhook, events, authority, traces) = tokio::join!(
        tokens(access),
        reach("access.webhook.url", &access.webhook.url, on_failure),
        reach("events.webhook", &config.events.webhook, "It is told of no events"),
        reach("http.tls.acme.directory", directory, "No certificate is got or renewed"),
        reach("traces.endpoint", &config.traces.endpoint, "It gets no traces")
    );
    signed_paths(access)
        .into_iter()
        .chain(keys)
        .chain(webhook)
        .chain(events)
        .chain(authority)
        .chain(traces)
        .collect()
}

fn signed_paths(access: &Access) -> Vec<Check> {
    const NAME: &str = "access.signing_key";
    let path = &access.signing_key;
    if path.as_os_str().is_empty() {
        return Vec::new();
    }
    let remedy = format!("head -c 48 /dev/urandom | base64 > {}", path.display());
    let read = signing_key(path).map(drop);
    judge(NAME, Some(path), read, "The server does not start", &remedy)
}

async fn tokens(access: &Access) -> Vec<Check> {
    const NAME: &str = "access.jwt.keys";
    let keys = access.jwt.keys.as_str();
    if keys.is_empty() {
        return Vec::new();
    }
    if is_url(keys) {
        let fetched = fetch_keys(&access.jwt).await;
        let remedy = "the URL of a JSON Web Key Set that this machine reaches (`curl` tells more)";
        return judge(NAME, None, fetched, "Nobody is let in by a token", remedy);
    }
    let read = jwt_keys(keys).map(drop);
    let remedy =
        "a file with a PEM public key, a secret of at least 32 bytes or a JSON Web Key Set";
    // A secret of HS256 must not be known. Public keys may be read by everybody.
    let text = std::fs::read(keys).unwrap_or_default();
    let is_public =
        [&b"-----BEGIN"[..], b"{"].iter().any(|begin| text.trim_ascii_start().starts_with(begin));
    let secret = Some(Path::new(keys)).filter(|_| !is_public);
    judge(NAME, secret, read, "The server does not start", remedy)
}

/// Looks whether a server takes connections, if one is configured.
async fn reach(name: &str, url: &str, why: &str) -> Vec<Check> {
    if url.is_empty() {
        return Vec::new();
    }
    let reached = client::reach(url).await;
    judge(name, None, reached, why, "a server that this machine reaches (`curl` tells more)")
}

fn judge(
    name: &str,
    secret: Option<&Path>,
    result: Result<(), String>,
    why: &str,
    remedy: &str,
) -> Vec<Check> {
    match result {
        Err(error) => vec![Check::problem(name, error, why, remedy)],
        Ok(()) => match secret.and_then(|path| exposed(name, path)) {
            Some(exposed) => vec![exposed],
            None => vec![Check::ok(name, "can be used")],
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::doctor::Level;

    #[tokio::test]
    async fn keys_must_be_usable_and_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let mut config = Config::default();
        assert_eq!(check(&config).await, []);
        config.access.signing_key = path.clone();
        config.access.jwt.keys = path.to_str().unwrap().to_owned();
        let levels = async |config: &Config| {
            check(config).await.iter().map(|check| check.level).collect::<Vec<_>>()
        };
        assert_eq!(levels(&config).await, [Level::Problem; 2], "there is none");
        std::fs::write(&path, "too short").unwrap();
        assert_eq!(levels(&config).await, [Level::Problem; 2]);
        std::fs::write(&path, "a secret that has at least 32 bytes").unwrap();
        for (mode, level) in [(0o644, Level::Warning), (0o640, Level::Ok)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(levels(&config).await, [level; 2], "{mode:o}");
        }
    }

    #[tokio::test]
    async fn servers_that_cannot_be_reached_are_told_of_without_passwords() {
        // A socket that does not listen: connections to it are refused as long as it is there.
        let held = tokio::net::TcpSocket::new_v4().unwrap();
        held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let closed = format!("http://ann:secret@{}/keys?token=x", held.local_addr().unwrap());
        let mut config = Config::default();
        config.access.jwt.keys.clone_from(&closed);
        config.access.webhook.url.clone_from(&closed);
        config.events.webhook.clone_from(&closed);
        config.traces.endpoint = closed;
        let checks = check(&config).await;
        assert_eq!(checks.len(), 4);
        for check in checks {
            assert_eq!(check.level, Level::Problem, "{check}");
            assert!(
                !check.to_string().contains("secret") && !check.to_string().contains("token=x")
            );
        }
        // A server that takes connections: nothing is sent to it.
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        config.access.jwt.keys = String::new();
        config.access.webhook.url = format!("http://{}/", server.local_addr().unwrap());
        config.events.webhook.clone_from(&config.access.webhook.url);
        config.traces.endpoint = String::new();
        let checks = check(&config).await;
        assert!(checks.len() == 2 && checks.iter().all(|check| check.level == Level::Ok));
    }
}
