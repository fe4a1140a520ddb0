//! Encryption of what we send, SRTP and SRTCP, and decryption of a peer's SRTCP: RFC 3711 and RFC 7714.
//!
//! A peer's media are decrypted by str0m.
//!
//! With AES-GCM, two packets of one source that are encrypted with the same index tell an attacker the
//! key that authenticates packets (RFC 7714 8.1). So an [`Index`] can be had only from [`Indices`], which
//! gives each out once, and [`Sender::protect`] takes it away.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{AES_128, AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::{constant_time, hmac};

#[cfg(test)]
mod tests;

/// Labels of the key derivation, RFC 3711 4.3.2. Those of SRTCP are three higher.
const ENCRYPTION: u8 = 0;
const AUTHENTICATION: u8 = 1;
const SALT: u8 = 2;
const RTCP: u8 = 3;

/// Bytes of the authentication key and of the tag, RFC 3711 8.2.
const AUTHENTICATION_KEY: usize = 20;
const SHORT_TAG: usize = 10;

/// Bytes of the fixed header of RTP, and of that of RTCP with the sender's SSRC, which stay readable.
const RTP_HEADER: usize = 12;
const RTCP_HEADER: usize = 8;

/// How many indices there are, RFC 3711 3.3.1 and 3.4. Nothing is sent after that many packets.
const MOST_PACKETS: u64 = 1 << 48;
const MOST_REPORTS: u32 = 1 << 31;

/// The bit before the index of an RTCP packet that says that it is encrypted, RFC 3711 3.4.
const ENCRYPTED: u32 = 1 << 31;

/// A protection profile, RFC 5764 4.1.2 and RFC 7714 14.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// AES-128 in counter mode, and HMAC-SHA1 with a tag of 80 bits.
    Aes128CmSha1_80,
    /// AES-128 in Galois/Counter mode.
    AeadAes128Gcm,
    /// AES-256 in Galois/Counter mode.
    AeadAes256Gcm,
}

impl Profile {
    /// Bytes of the master key, and of the master salt.
    pub fn lengths(self) -> (usize, usize) {
        match self {
            Self::Aes128CmSha1_80 => (16, 14),
            Self::AeadAes128Gcm => (16, 12),
            Self::AeadAes256Gcm => (32, 12),
        }
    }
}

/// The index of a packet: its sequence number, and how often that has wrapped, RFC 3711 3.3.1.
#[derive(Debug, PartialEq, Eq)]
pub struct Index(u64);

impl Index {
    /// The sequence number in the packet's header.
    pub fn sequence(&self) -> u16 {
        self.0 as u16
    }

    /// The index as a number.
    pub fn number(&self) -> u64 {
        self.0
    }
}

/// Gives out the indices of one source (SSRC) in order, each once.
#[derive(Debug)]
pub struct Indices(u64);

impl Indices {
    /// Begins with a sequence number. It is below 65,536, because a receiver takes the first packet that
    /// it sees for one before the first wrap.
    pub fn new(first: u16) -> Self {
        Self(first.into())
    }

    /// The number of the next index.
    pub fn next(&self) -> u64 {
        self.0
    }

    /// The next index. `None` after 2^48, when there are no more.
    pub fn take(&mut self) -> Option<Index> {
        let index = self.0;
        (index < MOST_PACKETS).then(|| {
            self.0 += 1;
            Index(index)
        })
    }
}

/// Encrypts what one side of a session sends.
#[derive(Debug)]
pub struct Sender {
    rtp: Cipher,
    rtcp: Cipher,
    /// SRTCP has one index for all sources of the session, RFC 3711 3.2.1.
    reports: u32,
}

/// Decrypts the RTCP of the other side of a session.
#[derive(Debug)]
pub struct Receiver {
    rtcp: Cipher,
    /// Which indices of each sender (SSRC) have come: some peers count the packets of each by themselves (RFC 3711
    /// 3.2.3), others those of all together.
    taken: Vec<(u32, Taken)>,
}

/// The most senders of RTCP of one peer that are known at a time. Browsers have one for each receiver.
const MOST_SENDERS: usize = 16;

/// Which of the newest 64 indices have come (RFC 3711 3.3.2).
#[derive(Debug, Default)]
struct Taken {
    newest: u32,
    /// A bit for each index: the lowest is that of the newest.
    bits: u64,
}

impl Taken {
    /// Notes that an index has come. Returns false if it has come before, or is older than what is known.
    fn take(&mut self, index: u32) -> bool {
        if index > self.newest {
            self.bits = self.bits.checked_shl(index - self.newest).unwrap_or(0);
            self.newest = index;
        }
        let bit = 1u64.checked_shl(self.newest - index).unwrap_or(0);
        let is_new = bit & !self.bits != 0;
        self.bits |= bit;
        is_new
    }
}

/// The session keys of SRTP, or those of SRTCP.
enum Cipher {
    Gcm { key: LessSafeKey, salt: [u8; 12] },
    Cm { key: Box<EncryptingKey>, salt: [u8; 14], authentication: Box<hmac::Key> },
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Gcm { .. } => "Gcm",
            Self::Cm { .. } => "Cm",
        })
    }
}

impl Sender {
    /// Derives the session keys from a master key and a master salt, RFC 3711 4.3. `None` if their
    /// lengths are not those of the profile.
    pub fn new(profile: Profile, key: &[u8], salt: &[u8]) -> Option<Self> {
        if profile.lengths() != (key.len(), salt.len()) {
            return None;
        }
        let cipher = |first| Cipher::derived(profile, key, salt, first);
        Some(Self { rtp: cipher(0)?, rtcp: cipher(RTCP)?, reports: 1 })
    }

    /// Takes our side out of the keying material of a DTLS handshake (RFC 5764 4.2), and leaves random
    /// bytes in its place. So nobody else who has the material can send in our name. `None` if the
    /// material has another length than the profile wants.
    pub fn take(profile: Profile, material: &mut [u8], is_client: bool) -> Option<Self> {
        let (key, salt) = profile.lengths();
        if material.len() != 2 * (key + salt) {
            return None;
        }
        // Both keys, then both salts, and the client's first.
        let (keys, salts) = material.split_at_mut(2 * key);
        let place = usize::from(!is_client);
        let key = keys.get_mut(place * key..)?.get_mut(..key)?;
        let salt = salts.get_mut(place * salt..)?.get_mut(..salt)?;
        let sender = Self::new(profile, key, salt);
        for own in [key, salt] {
            own.fill(0);
            aws_lc_rs::rand::fill(own).ok()?;
        }
        sender
    }

    /// Encrypts the RTP packet that begins at `start` and is the end of `bytes`, and appends the tag.
    /// `header` is the length of its header with the extension. The packet must have the sequence number
    /// of the index, which must be of its source. `None` if there is no such packet.
    #[allow(clippy::needless_pass_by_value, reason = "no index may be used twice")]
    pub fn protect(
        &self,
        index: Index,
        bytes: &mut Vec<u8>,
        start: usize,
        header: usize,
    ) -> Option<()> {
        let packet = bytes.get_mut(start..)?;
        if header < RTP_HEADER || packet.get(2..4)? != index.sequence().to_be_bytes() {
            return None;
        }
        let (header, body) = packet.split_at_mut_checked(header)?;
        let (source, number) = (header.get(8..12)?, index.0.to_be_bytes());
        match &self.rtp {
            Cipher::Gcm { key, salt } => {
                let mut iv = *salt;
                mix(&mut iv[2..6], source);
                mix(&mut iv[6..12], &number[2..]);
                let nonce = Nonce::assume_unique_for_key(iv);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(&*header), body).ok()?;
                bytes.extend_from_slice(tag.as_ref());
            }
            Cipher::Cm { key, salt, authentication } => {
                let mut iv = counter(salt);
                mix(&mut iv[4..8], source);
                mix(&mut iv[8..14], &number[2..]);
                key.less_safe_encrypt(body, EncryptionContext::Iv128(iv.into())).ok()?;
                let mut tag = hmac::Context::with_key(authentication);
                tag.update(bytes.get(start..)?);
                // How often the sequence number has wrapped.
                tag.update(&number[2..6]);
                bytes.extend_from_slice(tag.sign().as_ref().get(..SHORT_TAG)?);
            }
        }
        Some(())
    }

    /// Encrypts `bytes`, a compound RTCP packet, and appends the index and the tag. `None` if it is none,
    /// or after 2^31 of them.
    pub fn protect_rtcp(&mut self, bytes: &mut Vec<u8>) -> Option<()> {
        let index = self.reports;
        if index >= MOST_REPORTS {
            return None;
        }
        self.reports += 1;
        self.rtcp.protect_rtcp(index, bytes)
    }
}

impl Receiver {
    /// Derives the keys of the other side from the keying material of a DTLS handshake (RFC 5764 4.2).
    /// `is_client` says which side we are. `None` if the material has another length than the profile wants.
    pub fn new(profile: Profile, material: &[u8], is_client: bool) -> Option<Self> {
        let (key, salt) = profile.lengths();
        if material.len() != 2 * (key + salt) {
            return None;
        }
        let (keys, salts) = material.split_at(2 * key);
        let place = usize::from(is_client);
        let key = keys.get(place * key..)?.get(..key)?;
        let salt = salts.get(place * salt..)?.get(..salt)?;
        let rtcp = Cipher::derived(profile, key, salt, RTCP)?;
        Some(Self { rtcp, taken: Vec::new() })
    }

    /// Decrypts `bytes`, a compound RTCP packet, and takes the index and the tag off. `None` if it is not of
    /// the peer, is not encrypted, has come before, or is older than 64 others of its sender: somebody may send
    /// one again (RFC 3711 3.3.2).
    pub fn unprotect_rtcp(&mut self, bytes: &mut Vec<u8>) -> Option<()> {
        let index = self.rtcp.unprotect_rtcp(bytes)?;
        let sender = u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?);
        let known = self.taken.iter().position(|(known, _)| *known == sender);
        let place = known.unwrap_or_else(|| {
            if self.taken.len() == MOST_SENDERS {
                self.taken.remove(0);
            }
            self.taken.push((sender, Taken::default()));
            self.taken.len() - 1
        });
        self.taken[place].1.take(index).then_some(())
    }
}

/// The nonce of a compound RTCP packet, and the additional data: RFC 7714 9.1 and 9.2.
fn sealed(salt: &[u8; 12], header: &[u8], word: u32) -> Option<(Nonce, [u8; RTCP_HEADER + 4])> {
    let mut iv = *salt;
    mix(&mut iv[2..6], header.get(4..8)?);
    mix(&mut iv[8..12], &(word & !ENCRYPTED).to_be_bytes());
    let mut clear = [0; RTCP_HEADER + 4];
    clear[..RTCP_HEADER].copy_from_slice(header.get(..RTCP_HEADER)?);
    clear[RTCP_HEADER..].copy_from_slice(&word.to_be_bytes());
    Some((Nonce::assume_unique_for_key(iv), clear))
}

/// The first counter block of a compound RTCP packet, RFC 3711 4.1.1.
fn counted(salt: &[u8; 14], header: &[u8], word: u32) -> Option<[u8; 16]> {
    let mut iv = counter(salt);
    mix(&mut iv[4..8], header.get(4..8)?);
    mix(&mut iv[10..14], &(word & !ENCRYPTED).to_be_bytes());
    Some(iv)
}

impl Cipher {
    /// The session keys whose labels begin with `first`.
    fn derived(profile: Profile, key: &[u8], salt: &[u8], first: u8) -> Option<Self> {
        let mut session = [0; 32];
        let session = session.get_mut(..key.len())?;
        derive(key, salt, first + ENCRYPTION, session)?;
        let mut session_salt = [0; 14];
        derive(key, salt, first + SALT, session_salt.get_mut(..salt.len())?)?;
        if profile != Profile::Aes128CmSha1_80 {
            return Self::gcm(session, session_salt[..12].try_into().ok()?);
        }
        let mut authentication = [0; AUTHENTICATION_KEY];
        derive(key, salt, first + AUTHENTICATION, &mut authentication)?;
        let key = EncryptingKey::ctr(UnboundCipherKey::new(&AES_128, session).ok()?).ok()?;
        let authentication = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &authentication);
        Some(Self::Cm {
            key: Box::new(key),
            salt: session_salt,
            authentication: Box::new(authentication),
        })
    }

    fn gcm(key: &[u8], salt: [u8; 12]) -> Option<Self> {
        let algorithm = if key.len() == 32 { &AES_256_GCM } else { &AES_128_GCM };
        Some(Self::Gcm { key: LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?), salt })
    }

    fn protect_rtcp(&self, index: u32, bytes: &mut Vec<u8>) -> Option<()> {
        let word = ENCRYPTED | index;
        let (header, body) = bytes.split_at_mut_checked(RTCP_HEADER)?;
        match self {
            Self::Gcm { key, salt } => {
                let (nonce, clear) = sealed(salt, header, word)?;
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(clear), body).ok()?;
                bytes.extend_from_slice(tag.as_ref());
                bytes.extend_from_slice(&word.to_be_bytes());
            }
            Self::Cm { key, salt, authentication } => {
                let iv = counted(salt, header, word)?;
                key.less_safe_encrypt(body, EncryptionContext::Iv128(iv.into())).ok()?;
                bytes.extend_from_slice(&word.to_be_bytes());
                let tag = hmac::sign(authentication, bytes);
                bytes.extend_from_slice(tag.as_ref().get(..SHORT_TAG)?);
            }
        }
        Some(())
    }

    /// Returns the index of a packet that it decrypts.
    fn unprotect_rtcp(&self, bytes: &mut Vec<u8>) -> Option<u32> {
        let (length, word) = match self {
            Self::Gcm { key, salt } => {
                let (end, word) = word(bytes)?;
                let (header, body) = bytes.get_mut(..end)?.split_at_mut_checked(RTCP_HEADER)?;
                let (nonce, clear) = sealed(salt, header, word)?;
                let plain = key.open_in_place(nonce, Aad::from(clear), body).ok()?;
                (RTCP_HEADER + plain.len(), word)
            }
            Self::Cm { key, salt, authentication } => {
                let signed = bytes.len().checked_sub(SHORT_TAG)?;
                let (bytes, told) = bytes.split_at_mut_checked(signed)?;
                let tag = hmac::sign(authentication, bytes);
                let tag = tag.as_ref().get(..SHORT_TAG)?;
                constant_time::verify_slices_are_equal(tag, told).ok()?;
                let (end, word) = word(bytes)?;
                let (header, body) = bytes.get_mut(..end)?.split_at_mut_checked(RTCP_HEADER)?;
                let iv = counted(salt, header, word)?;
                // In counter mode both are the same.
                key.less_safe_encrypt(body, EncryptionContext::Iv128(iv.into())).ok()?;
                (end, word)
            }
        };
        bytes.truncate(length);
        Some(word & !ENCRYPTED)
    }
}

/// Reads the index of a compound RTCP packet and the bit that says that it is encrypted, at the end of `bytes`.
/// Returns how many bytes are before it, too.
fn word(bytes: &[u8]) -> Option<(usize, u32)> {
    let (before, word) = bytes.split_last_chunk()?;
    let word = u32::from_be_bytes(*word);
    (word & ENCRYPTED != 0).then_some((before.len(), word))
}

/// Derives a session key or salt, RFC 3711 4.3.1 with a key derivation rate of 0. AES in counter mode,
/// with the length of the master key (RFC 6188), makes its bytes.
fn derive(key: &[u8], salt: &[u8], label: u8, out: &mut [u8]) -> Option<()> {
    let algorithm = if key.len() == 32 { &AES_256 } else { &AES_128 };
    let key = EncryptingKey::ctr(UnboundCipherKey::new(algorithm, key).ok()?).ok()?;
    // A salt of 12 bytes counts as one of 14 that ends with zeros (RFC 7714 11).
    let mut iv = counter(salt);
    iv[7] ^= label;
    out.fill(0);
    key.less_safe_encrypt(out, EncryptionContext::Iv128(iv.into())).ok()?;
    Some(())
}

/// A counter block that has a salt, and no block counted yet.
fn counter(salt: &[u8]) -> [u8; 16] {
    let mut block = [0; 16];
    mix(&mut block, salt);
    block
}

fn mix(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to ^= from;
    }
}
