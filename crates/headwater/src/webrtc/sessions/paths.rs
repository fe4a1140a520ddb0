//! On which paths a peer checks connectivity, and which one it wants.
//!
//! str0m goes on with a nominated path as long as none of a higher priority is nominated, and forgets a path only 15 s
//! after its last check. A path that is new because the peer's address was translated otherwise (NAT) has no higher
//! priority, and TCP has a lower one than UDP. So media would be lost for these 15 s.

use std::time::Duration;

use tokio::time::Instant;

use crate::webrtc::send::path::Path;

/// A path is given up if it was not checked for so long when the peer checks another one that it has nominated.
/// Chromium checks the path that it uses each 2.5 s. Other peers may do so each 5 s (RFC 7675 5.1); they lose nothing,
/// because they have nominated the other path themselves.
const GIVEN_UP: Duration = Duration::from_secs(3);

/// How many paths are known. A peer seldom has more than one for each of its networks and protocols.
const MOST: usize = 8;

/// The paths of a peer's checks.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Each path and when the last check came on it. The newest check is the last.
    checks: Vec<(Path, Instant)>,
    /// The path that the peer has nominated last, and when it was checked.
    nominated: Option<(Path, Instant)>,
}

impl Paths {
    /// Notes a check of connectivity. It may nominate its path (USE-CANDIDATE, RFC 8445 8.1.1).
    pub(super) fn take(&mut self, path: Path, nominates: bool, now: Instant) {
        self.checks.retain(|(known, _)| !known.leads_to_that_of(&path));
        if self.checks.len() >= MOST {
            self.checks.remove(0);
        }
        self.checks.push((path, now));
        if nominates {
            self.nominated = Some((path, now));
        }
    }

    /// The path of the last check.
    pub(super) fn newest(&self) -> Option<Path> {
        self.checks.last().map(|(path, _)| *path)
    }

    /// The path that the peer has nominated in place of this one, which it has given up.
    pub(super) fn in_place_of(&self, path: Path) -> Option<Path> {
        let (nominated, at) = self.nominated.filter(|(other, _)| !other.leads_to_that_of(&path))?;
        let checked = self.checks.iter().find(|(known, _)| known.leads_to_that_of(&path));
        let is_checked = checked.is_some_and(|(_, last)| at < *last + GIVEN_UP);
        (!is_checked).then_some(nominated)
    }
}

#[cfg(test)]
mod tests {
    use str0m::net::Protocol;

    use super::*;

    fn path(protocol: Protocol, port: u16) -> Path {
        let (source, destination) = (([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], port).into());
        Path { protocol, source, destination }
    }

    #[test]
    fn a_path_that_is_checked_no_more_gives_way_to_one_that_is_nominated() {
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        for other in [path(Protocol::Udp, 3), path(Protocol::Tcp, 2)] {
            let first = path(Protocol::Udp, 2);
            let mut paths = Paths::default();
            assert_eq!((paths.newest(), paths.in_place_of(first)), (None, None));
            paths.take(first, true, at(0));
            paths.take(other, true, at(2_900));
            assert_eq!((paths.newest(), paths.in_place_of(first)), (Some(other), None));
            // A check that nominates nothing changes nothing.
            paths.take(other, false, at(4_000));
            assert_eq!(paths.in_place_of(first), None);
            paths.take(other, true, at(4_100));
            assert_eq!((paths.in_place_of(first), paths.in_place_of(other)), (Some(other), None));
            // The peer comes back.
            paths.take(first, false, at(5_000));
            assert_eq!(paths.in_place_of(first), None);
            paths.take(other, true, at(7_900));
            assert_eq!(paths.in_place_of(first), None, "both are checked");
        }
    }

    #[test]
    fn a_peer_has_few_paths() {
        let mut paths = Paths::default();
        let begun = Instant::now();
        for port in 1..100 {
            paths.take(path(Protocol::Udp, port), true, begun);
        }
        assert_eq!(paths.checks.len(), MOST);
        assert_eq!(paths.newest(), Some(path(Protocol::Udp, 99)));
    }
}
