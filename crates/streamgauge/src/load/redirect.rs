//! Where answers send requests on to.

use super::Plan;
use super::tally::Fault;
use super::target::Target;
use super::trouble::Trouble;
use super::url::{Scheme, Url};

/// Whether an answer of this status is to be followed (RFC 9110, 15.4).
pub(super) fn is_followed(plan: &Plan, status: u16) -> bool {
    plan.redirects > 0 && matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// What is asked for next, after `followed` redirections of the same request.
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
