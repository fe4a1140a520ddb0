//! Redirections of requests.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::tally::Fault;
use super::target::Target;
use super::trouble::Trouble;
use super::url::{Origin, Scheme, Url};
use super::{Plan, probe};

/// How many servers an event loop may be redirected to, besides those of its targets.
const MOST_ORIGINS: usize = 64;

/// Whether an answer of this status is to be followed (RFC 9110, 15.4).
pub(super) fn is_followed(plan: &Plan, status: u16) -> bool {
    plan.redirects > 0 && matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// The URL of the next request, after `followed` redirections.
pub(super) fn next(
    plan: &Plan,
    from: &Target,
    location: Option<&str>,
    followed: u32,
) -> Result<Url, Trouble> {
    if followed >= plan.redirects {
        let detail = format!("more than {} redirections", plan.redirects);
        return Err(Trouble::new(Fault::TooManyRedirects, detail));
    }
    let bad = |detail: String| Trouble::new(Fault::BadRedirect, detail);
    let location = location.ok_or_else(|| bad("a redirection without Location".to_owned()))?;
    let url = from.url.join(location).map_err(|error| bad(error.to_string()))?;
    if url.origin.scheme == Scheme::Limit {
        return Err(bad(format!("a redirection to {url}, which is no HTTP")));
    }
    Ok(url)
}

/// Addresses of servers: those of the targets, found before the run, and those of redirections.
#[derive(Debug)]
pub(super) struct Servers {
    known: HashMap<Origin, SocketAddr>,
    /// How many servers may still be added.
    room: usize,
}

impl Servers {
    pub(super) fn new(known: HashMap<Origin, SocketAddr>) -> Self {
        Self { known, room: MOST_ORIGINS }
    }

    /// Finds the address of a server. A server that is still unknown here comes from a redirection.
    /// No name is looked up for it, because a lookup may take long, and all other requests of the
    /// loop would wait.
    ///
    /// # Errors
    /// [`Fault::BadRedirect`]: the address is unknown, or there are too many servers.
    pub(super) fn find(&mut self, origin: &Origin) -> Result<SocketAddr, Trouble> {
        if let Some(address) = self.known.get(origin) {
            return Ok(*address);
        }
        let bad = |detail: String| Trouble::new(Fault::BadRedirect, detail);
        let host = &origin.host;
        let address = probe::literal(origin).or_else(|| self.same_host(origin)).ok_or_else(|| {
            bad(format!("a redirection to {host}, which was not looked up before the run: ask for that host itself"))
        })?;
        self.room = self.room.checked_sub(1).ok_or_else(|| {
            bad(format!("redirections to more than {MOST_ORIGINS} servers, the last at {host}"))
        })?;
        self.known.insert(origin.clone(), address);
        Ok(address)
    }

    /// Finds a known host with another port.
    fn same_host(&self, origin: &Origin) -> Option<SocketAddr> {
        let is_same = |other: &Origin| other.host.eq_ignore_ascii_case(&origin.host);
        let (_, address) = self.known.iter().find(|(known, _)| is_same(known))?;
        Some((address.ip(), origin.port).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(url: &str) -> Origin {
        Url::parse(url).unwrap().origin
    }

    #[test]
    fn no_name_is_looked_up_for_a_redirection() {
        let known = HashMap::from([(origin("http://a.test/"), "192.0.2.1:80".parse().unwrap())]);
        let mut servers = Servers::new(known);
        for (url, address) in [
            ("http://a.test/x", "192.0.2.1:80"),
            ("http://A.test:8080/", "192.0.2.1:8080"),
            ("https://a.test/", "192.0.2.1:443"),
            ("http://192.0.2.7:81/", "192.0.2.7:81"),
            ("http://[2001:db8::1]/", "[2001:db8::1]:80"),
        ] {
            assert_eq!(servers.find(&origin(url)).unwrap(), address.parse().unwrap(), "{url}");
        }
        // Neither the name that every machine knows nor one that none does: a lookup would tell the
        // two apart.
        for host in ["localhost", "no-such-host.invalid"] {
            let trouble = servers.find(&origin(&format!("http://{host}:8080/"))).unwrap_err();
            assert_eq!(trouble.fault, Fault::BadRedirect);
            let why = format!("a redirection to {host}, which was not looked up before the run");
            assert!(trouble.detail.starts_with(&why), "{}", trouble.detail);
        }
    }

    #[test]
    fn servers_that_send_on_to_ever_new_ones_are_given_up() {
        let mut servers = Servers::new(HashMap::new());
        let of = |port: usize| origin(&format!("http://192.0.2.1:{port}/"));
        for port in 0..MOST_ORIGINS {
            servers.find(&of(1000 + port)).unwrap();
        }
        let trouble = servers.find(&of(5000)).unwrap_err();
        assert!(trouble.detail.contains("more than 64 servers"), "{}", trouble.detail);
        // Known servers stay known.
        servers.find(&of(1000)).unwrap();
        assert_eq!(servers.known.len(), MOST_ORIGINS);
    }
}
