//! ICE credentials and candidates, and restarts: a session gets new credentials, and with them may go over to
//! another network (RFC 8445 9, RFC 9725 4.3.3). Its media, their keys and their sequence numbers go on.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;

use str0m::change::SdpOffer;
use str0m::config::CryptoProvider;
use str0m::ice::IceAgent;
use str0m::net::TcpType;
use str0m::{Candidate, IceCreds, Rtc, RtcError};

/// The first ICE user fragment and the first password in a description, if it has any.
///
/// # Errors
/// It has one without the other, or they are not as RFC 8839 5.4 says.
pub(in crate::webrtc) fn credentials(sdp: &str) -> Result<Option<IceCreds>, &'static str> {
    let find = |name| sdp.lines().find_map(|line| line.trim().strip_prefix(name));
    let (ufrag, pass) = match (find("a=ice-ufrag:"), find("a=ice-pwd:")) {
        (Some(ufrag), Some(pass)) => (ufrag, pass),
        (None, None) => return Ok(None),
        (None, Some(_)) => return Err("no a=ice-ufrag"),
        (Some(_), None) => return Err("no a=ice-pwd"),
    };
    let is_char = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    if !(4..=256).contains(&ufrag.len()) || !ufrag.bytes().all(is_char) {
        return Err("a=ice-ufrag is not of 4 to 256 letters, digits, + and /");
    }
    if !(22..=256).contains(&pass.len()) || !pass.bytes().all(is_char) {
        return Err("a=ice-pwd is not of 22 to 256 letters, digits, + and /");
    }
    Ok(Some(IceCreds { ufrag: ufrag.to_owned(), pass: pass.to_owned() }))
}

/// The candidates of a peer that may reach these addresses by UDP and, if so said, by TCP.
pub(in crate::webrtc) fn candidates(addresses: &[SocketAddr], takes_tcp: bool) -> Vec<Candidate> {
    let of_one = |&address: &SocketAddr| {
        let udp = Candidate::host(address, "udp").ok();
        // Peers connect, RFC 6544 4.5.
        let tcp =
            || Candidate::builder().tcp().host(address).tcptype(TcpType::Passive).build().ok();
        udp.into_iter().chain(takes_tcp.then(tcp).flatten())
    };
    addresses.iter().flat_map(of_one).collect()
}

/// The lines of an answer that a peer gets again with each restart: the options of ICE, the bundle, and the
/// media description that stands for all.
pub(in crate::webrtc) fn head(answer: &str) -> String {
    let lines = || answer.split_inclusive('\n');
    let of_session = lines().take_while(|line| !line.starts_with("m="));
    let of_session =
        of_session.filter(|line| line.starts_with("a=ice-lite") || line.starts_with("a=group:"));
    let of_media = ["m=", "a=mid:", "a=ice-options:"];
    let of_media = of_media.iter().filter_map(|name| lines().find(|line| line.starts_with(name)));
    of_session.chain(of_media).collect()
}

/// What a restart changes.
#[derive(Debug, Clone)]
pub(in crate::webrtc) struct Restart {
    pub(in crate::webrtc) own: IceCreds,
    pub(in crate::webrtc) peer: IceCreds,
    /// Ours. The peer may have come to a network in which we have another address.
    pub(in crate::webrtc) candidates: Vec<Candidate>,
    /// Hash of the fragment that asks for it.
    pub(in crate::webrtc) asked: u64,
}

impl Restart {
    /// A restart with new credentials of ours, for which `fragment` asks.
    pub(in crate::webrtc) fn new(
        peer: IceCreds,
        candidates: Vec<Candidate>,
        fragment: &str,
    ) -> Self {
        let mut hasher = DefaultHasher::new();
        fragment.hash(&mut hasher);
        Self { own: IceCreds::new(), peer, candidates, asked: hasher.finish() }
    }

    /// What the peer is told (RFC 8840 4.4), after the [`head`] of its session.
    pub(in crate::webrtc) fn tell(&self, head: &str, crypto: &CryptoProvider) -> String {
        let IceCreds { ufrag, pass } = &self.own;
        let mut told = format!("{head}a=ice-ufrag:{ufrag}\r\na=ice-pwd:{pass}\r\n");
        // An agent gives them their priorities.
        let mut agent = IceAgent::with_hmac(self.own.clone(), crypto.sha1_hmac_provider);
        for candidate in &self.candidates {
            if let Some(candidate) = agent.add_local_candidate(candidate.clone()) {
                told.extend(["a=", &candidate.to_sdp_string(), "\r\n"]);
            }
        }
        told.push_str("a=end-of-candidates\r\n");
        told
    }

    /// Makes a connection go on with these credentials. It sends as before until the peer nominates a pair of
    /// candidates.
    ///
    /// str0m begins ICE anew when an offer says so, and forgets all candidates of the peer then. The offer has one
    /// media description of a kind that str0m does not know, so that nothing else changes.
    pub(in crate::webrtc) fn apply(self, rtc: &mut Rtc) -> Result<(), RtcError> {
        let IceCreds { ufrag, pass } = &self.peer;
        let offer = format!(
            "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE ice\r\n\
             a=ice-ufrag:{ufrag}\r\na=ice-pwd:{pass}\r\nm=ice 9 UDP/TLS/RTP/SAVPF 0\r\n\
             c=IN IP4 0.0.0.0\r\na=setup:actpass\r\na=mid:ice\r\na=inactive\r\n"
        );
        rtc.sdp_api().accept_offer(SdpOffer::from_sdp_string(&offer)?)?;
        rtc.direct_api().set_local_ice_credentials(self.own);
        for candidate in self.candidates {
            // Those that it has are not added again.
            rtc.add_local_candidate(candidate);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_both_there_or_neither() {
        let of = |ufrag: &str, pass: &str| {
            credentials(&format!("v=0\r\na=ice-ufrag:{ufrag}\r\na=ice-pwd:{pass}\r\n"))
        };
        let pass = "0123456789+/abcdefghij";
        let known = IceCreds { ufrag: "ab+/".to_owned(), pass: pass.to_owned() };
        assert_eq!(of("ab+/", pass), Ok(Some(known)));
        assert_eq!(credentials("a=candidate:1"), Ok(None));
        assert_eq!(credentials("a=ice-ufrag:abcd"), Err("no a=ice-pwd"));
        assert_eq!(credentials("a=ice-pwd:0123456789abcdefghijkl"), Err("no a=ice-ufrag"));
        let long = "x".repeat(257);
        for wrong in ["", "abc", "abcd ", "ab-d", "äbcd", "ab\0d", &long] {
            let is_right = wrong == "abcd ";
            assert_eq!(of(wrong, pass).is_ok(), is_right, "{wrong:?}");
        }
        for wrong in ["", "012345678901234567890", "0123456789 abcdefghijk", &long] {
            assert!(of("abcd", wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_peer_is_told_what_its_answer_said() {
        let answer = "v=0\r\na=group:BUNDLE 0 1\r\na=ice-lite\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n\
                      a=mid:0\r\na=ice-ufrag:old\r\na=ice-options:trickle\r\nm=video 9 x 96\r\na=mid:1\r\n";
        let addresses = ["192.0.2.1:8189", "[2001:db8::1]:8189"].map(|it| it.parse().unwrap());
        let peer = IceCreds::new();
        let restart = Restart::new(peer, candidates(&addresses, true), "");
        let told = restart.tell(&head(answer), &str0m::crypto::from_feature_flags());
        let IceCreds { ufrag, pass } = &restart.own;
        let begin = format!(
            "a=group:BUNDLE 0 1\r\na=ice-lite\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n\
             a=ice-options:trickle\r\na=ice-ufrag:{ufrag}\r\na=ice-pwd:{pass}\r\na=candidate:"
        );
        assert!(told.starts_with(&begin), "{told}");
        assert!(told.ends_with("\r\na=end-of-candidates\r\n"), "{told}");
        for wanted in [" udp ", " tcp "] {
            assert_eq!(told.matches(wanted).count(), 2, "{told}");
        }
        for wanted in ["192.0.2.1 8189 typ host", "2001:db8::1 8189 typ host"] {
            assert_eq!(told.matches(wanted).count(), 2, "{told}");
        }
        assert_eq!(told.matches(" tcptype passive").count(), 2, "{told}");
    }
}
