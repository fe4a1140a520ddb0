//! The handshake (RTMP 1.0, 5.2), simple and with digest.
//!
//! The digest form is not in the published specification. Flash Player 9 introduced it, and some
//! players require it before they play H.264. C1 and S1 contain an HMAC-SHA256 of themselves, at an
//! offset computed from four of their own bytes, in one of two layouts. C2 and S2 contain an HMAC
//! of themselves, with a key derived from the digest that they answer.

use bytes::{Buf, BytesMut};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::Error;

/// Bytes of C1, C2, S1 and S2.
pub(crate) const PACKET: usize = 1536;
const DIGEST: usize = 32;

/// Last bytes of both sides' keys.
const KEY_TAIL: [u8; 32] = [
    0xF0, 0xEE, 0xC2, 0x4A, 0x80, 0x68, 0xBE, 0xE8, 0x2E, 0x00, 0xD0, 0xD1, 0x02, 0x9E, 0x7E, 0x57,
    0x6E, 0xEC, 0x5D, 0x2D, 0x29, 0x80, 0x6F, 0xAB, 0x93, 0xB8, 0xE6, 0x36, 0xCF, 0xEB, 0x31, 0xAE,
];
const SERVER_KEY: &[u8] = b"Genuine Adobe Flash Media Server 001";
const CLIENT_KEY: &[u8] = b"Genuine Adobe Flash Player 001";

/// Server version in S1. Clients expect digests from version 3 on.
const SERVER_VERSION: [u8; 4] = [3, 5, 1, 1];
/// Player version in C1. Servers look for a digest where it is not 0.
const CLIENT_VERSION: [u8; 4] = [9, 0, 124, 2];

/// Position of the block that begins with the digest's offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    /// Key block first, digest block at 772.
    KeyFirst,
    /// Digest block first, at 8.
    DigestFirst,
}

impl Scheme {
    /// Position of the digest in `packet`. There is always room for the digest behind it.
    fn offset(self, packet: &[u8; PACKET]) -> usize {
        let block = match self {
            Self::KeyFirst => 772,
            Self::DigestFirst => 8,
        };
        let sum: usize = packet[block..block + 4].iter().map(|&byte| usize::from(byte)).sum();
        sum % 728 + block + 4
    }
}

fn hmac(key: &[&[u8]], data: &[&[u8]]) -> [u8; DIGEST] {
    let key = key.concat();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("HMAC takes keys of any length");
    for part in data {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn packet_digest(packet: &[u8; PACKET], offset: usize, key: &[u8]) -> [u8; DIGEST] {
    hmac(&[key], &[&packet[..offset], &packet[offset + DIGEST..]])
}

fn find_digest(packet: &[u8; PACKET], key: &[u8]) -> Option<(Scheme, [u8; DIGEST])> {
    [Scheme::KeyFirst, Scheme::DigestFirst].into_iter().find_map(|scheme| {
        let offset = scheme.offset(packet);
        let digest = packet_digest(packet, offset, key);
        (packet[offset..offset + DIGEST] == digest).then_some((scheme, digest))
    })
}

/// C1 or S1 with a digest.
fn signed_packet(version: [u8; 4], scheme: Scheme, key: &[u8], nonce: u64) -> [u8; PACKET] {
    let mut packet = random_packet(nonce);
    packet[4..8].copy_from_slice(&version);
    let offset = scheme.offset(&packet);
    let digest = packet_digest(&packet, offset, key);
    packet[offset..offset + DIGEST].copy_from_slice(&digest);
    packet
}

/// C2 or S2 that answers a packet with that digest.
fn signed_answer(key: &[u8], digest: &[u8; DIGEST], nonce: u64) -> [u8; PACKET] {
    let mut packet = random_packet(nonce);
    let derived = hmac(&[key, &KEY_TAIL], &[digest]);
    let signature = hmac(&[&derived], &[&packet[..PACKET - DIGEST]]);
    packet[PACKET - DIGEST..].copy_from_slice(&signature);
    packet
}

/// Time 0, zeros, and then filler. The filler protects nothing: 5.2.3 only needs it to distinguish
/// a side's own packet from the peer's. So it need not be unpredictable.
fn random_packet(nonce: u64) -> [u8; PACKET] {
    let mut packet = [0; PACKET];
    let mut state = nonce;
    for word in packet[8..].chunks_exact_mut(8) {
        // SplitMix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word.copy_from_slice(&(z ^ (z >> 31)).to_be_bytes());
    }
    packet
}

#[derive(Debug)]
enum Stage {
    /// Version byte and C1 or S1 have not arrived yet.
    First,
    /// C2 or S2 has not arrived yet. Its content is not needed.
    Second { left: usize },
}

/// One side of a handshake.
#[derive(Debug)]
pub(crate) struct Handshake {
    server: bool,
    nonce: u64,
    stage: Stage,
    buffer: BytesMut,
}

impl Handshake {
    /// The server's side, which sends nothing until C1 has arrived.
    pub(crate) fn server(nonce: u64) -> Self {
        Self { server: true, nonce, stage: Stage::First, buffer: BytesMut::new() }
    }

    /// The client's side. It writes C0 and C1 to `out` at once.
    pub(crate) fn client(nonce: u64, out: &mut Vec<u8>) -> Self {
        out.push(3);
        out.extend_from_slice(&signed_packet(
            CLIENT_VERSION,
            Scheme::DigestFirst,
            CLIENT_KEY,
            nonce,
        ));
        Self { server: false, nonce, stage: Stage::First, buffer: BytesMut::new() }
    }

    /// Takes bytes from the front of `input`, whose first byte has position `at` in the session's
    /// input. Writes answers to `out`. Returns true when the handshake is complete.
    pub(crate) fn handle_input(
        &mut self,
        input: &mut &[u8],
        at: u64,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        if let Stage::First = self.stage {
            if self.buffer.is_empty()
                && let Some(&version) = input.first()
            {
                self.check_version(version, at)?;
            }
            let taken = input.len().min(1 + PACKET - self.buffer.len());
            self.buffer.extend_from_slice(&input[..taken]);
            input.advance(taken);
            let Some(packet) = self.buffer.get(1..).and_then(|first| first.try_into().ok()) else {
                return Ok(false);
            };
            self.answer(packet, out);
            self.buffer = BytesMut::new();
            self.stage = Stage::Second { left: PACKET };
        }
        if let Stage::Second { left } = &mut self.stage {
            let taken = input.len().min(*left);
            input.advance(taken);
            *left -= taken;
            return Ok(*left == 0);
        }
        Ok(false)
    }

    fn check_version(&self, version: u8, at: u64) -> Result<(), Error> {
        match version {
            6 | 8 | 9 => Err(Error::unsupported(format!("RTMPE (version {version})"), at)),
            // 5.2.2: values of 32 and above are not used by RTMP, because text protocols begin with
            // them.
            32.. => Err(Error::misbehaved(format!("version byte {version} is not RTMP"), at)),
            // A server answers unknown versions with 3. A client cannot go on with a server that
            // answers with another version.
            _ if !self.server && version != 3 => {
                Err(Error::unsupported(format!("RTMP version {version}"), at))
            }
            _ => Ok(()),
        }
    }

    fn answer(&self, first: &[u8; PACKET], out: &mut Vec<u8>) {
        let echo = |out: &mut Vec<u8>| {
            // The peer's time, the time at which it was read (0, because there is no clock here),
            // the peer's filler.
            out.extend_from_slice(&first[..4]);
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&first[8..]);
        };
        if self.server {
            out.push(3);
            if let Some((scheme, digest)) = find_digest(first, CLIENT_KEY) {
                let s1 = signed_packet(SERVER_VERSION, scheme, SERVER_KEY, self.nonce);
                out.extend_from_slice(&s1);
                out.extend_from_slice(&signed_answer(SERVER_KEY, &digest, !self.nonce));
            } else {
                out.extend_from_slice(&random_packet(self.nonce));
                echo(out);
            }
        } else if let Some((_, digest)) = find_digest(first, SERVER_KEY) {
            out.extend_from_slice(&signed_answer(CLIENT_KEY, &digest, !self.nonce));
        } else {
            echo(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(bytes: &[u8]) -> &[u8; PACKET] {
        bytes.try_into().unwrap()
    }

    fn valid_answer(answer: &[u8; PACKET], key: &[u8], digest: &[u8; DIGEST]) -> bool {
        let derived = hmac(&[key, &KEY_TAIL], &[digest]);
        let signature = hmac(&[&derived], &[&answer[..PACKET - DIGEST]]);
        answer[PACKET - DIGEST..] == signature
    }

    /// A recorded handshake between Flash Player and Adobe's own server.
    #[test]
    #[ignore = "corpus"]
    fn corpus_agrees_with_adobe() {
        let dir = testkit::corpus_dir().join("rtmp");
        let client = std::fs::read(dir.join("fq_client_stream")).unwrap();
        let server = std::fs::read(dir.join("fq_server_stream")).unwrap();
        let (_, c1_digest) = find_digest(packet(&client[1..1537]), CLIENT_KEY).unwrap();
        let (_, s1_digest) = find_digest(packet(&server[1..1537]), SERVER_KEY).unwrap();
        assert!(valid_answer(packet(&server[1537..3073]), SERVER_KEY, &c1_digest));
        assert!(valid_answer(packet(&client[1537..3073]), CLIENT_KEY, &s1_digest));
    }

    #[test]
    fn both_schemes_are_answered_in_kind() {
        for scheme in [Scheme::KeyFirst, Scheme::DigestFirst] {
            let c1 = signed_packet(CLIENT_VERSION, scheme, CLIENT_KEY, 7);
            let (found, digest) = find_digest(&c1, CLIENT_KEY).unwrap();
            assert_eq!(found, scheme);
            let mut out = Vec::new();
            Handshake::server(1).answer(&c1, &mut out);
            assert_eq!(out.len(), 1 + 2 * PACKET);
            let (found, _) = find_digest(packet(&out[1..1537]), SERVER_KEY).unwrap();
            assert_eq!(found, scheme);
            assert!(valid_answer(packet(&out[1537..]), SERVER_KEY, &digest));
        }
    }

    #[test]
    fn simple_is_echoed() {
        let c1 = random_packet(3);
        let mut out = Vec::new();
        Handshake::server(4).answer(&c1, &mut out);
        assert_eq!(out[0], 3);
        assert_eq!(out[5..9], [0; 4], "S1 of the simple handshake has no version");
        assert_eq!(out[1537 + 8..], c1[8..]);
        assert_eq!(find_digest(packet(&out[1..1537]), SERVER_KEY), None);
    }

    #[test]
    fn client_and_server_meet_at_any_split() {
        for split in [1, 2, 1000, 1536, 1537, 1538, 3072] {
            let mut from_client = Vec::new();
            let mut client = Handshake::client(5, &mut from_client);
            let mut server = Handshake::server(6);
            let mut from_server = Vec::new();
            let (mut client_done, mut server_done) = (false, false);
            for _ in 0..2 {
                for piece in std::mem::take(&mut from_client).chunks(split) {
                    let mut input = piece;
                    server_done = server.handle_input(&mut input, 0, &mut from_server).unwrap();
                    assert!(input.is_empty());
                }
                for piece in std::mem::take(&mut from_server).chunks(split) {
                    let mut input = piece;
                    client_done = client.handle_input(&mut input, 0, &mut from_client).unwrap();
                    assert!(input.is_empty());
                }
            }
            assert!(client_done && server_done);
        }
    }

    #[test]
    fn other_protocols_are_refused_at_their_first_byte() {
        let mut out = Vec::new();
        for (first, text) in [(b'G', "not RTMP"), (0x16, ""), (6, "RTMPE"), (8, "RTMPE")] {
            let mut server = Handshake::server(0);
            let result = server.handle_input(&mut &[first][..], 0, &mut out);
            match result {
                Err(error) => assert!(!text.is_empty() && error.to_string().contains(text)),
                Ok(done) => assert!(!done && text.is_empty()),
            }
        }
        assert!(out.is_empty());
    }
}
