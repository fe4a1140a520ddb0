//! Checks of connectivity: requests of STUN.

use str0m::ice::StunMessage;

/// A STUN binding request (RFC 8445 7.2.2).
pub(super) fn binding_request(packet: &[u8]) -> Option<StunMessage<'_>> {
    // RFC 7983 7: the first byte tells STUN from DTLS and RTP.
    if !matches!(packet.first(), Some(0 | 1)) || packet.len() < 20 {
        return None;
    }
    StunMessage::parse(packet).ok().filter(StunMessage::is_binding_request)
}
