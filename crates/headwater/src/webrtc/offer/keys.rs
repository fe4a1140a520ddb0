//! The keys of what viewers get. str0m does the DTLS handshake, but never has the keys for our side.
//!
//! A viewer's packets are encrypted by `send::source`. If str0m encrypted packets of the same source with the
//! same key, an attacker could learn the key that authenticates packets (RFC 7714 8.1). It cannot: the
//! keying material passes through [`Instance`], which takes our side's key and salt out and puts random
//! bytes in their place before str0m sees it. What str0m still encrypts, its own RTCP, no peer could read.
//! `session` does not send it and sends reports of ours in its place, so there is one sender of SRTCP,
//! and one index. The peer's key is left as it is, so str0m decrypts and parses what the peer sends. We have
//! it, too, for feedback on our packets, which str0m does not know.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rtp::srtp::{Profile, Receiver, Sender};
use str0m::config::{CryptoProvider, DtlsCert, DtlsVersion};
use str0m::crypto::CryptoError;
use str0m::crypto::dtls::{
    DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, KeyingMaterial, ProtocolVersion,
    SrtpProfile,
};
use str0m::{Rtc, RtcConfig};

/// What encrypts for our side of a session, and what decrypts the peer's RTCP, once the handshake is done.
#[derive(Debug, Clone, Default)]
pub(in crate::webrtc) struct Keys(Arc<Mutex<Option<(Sender, Receiver)>>>);

impl Keys {
    /// Takes them. Later calls return `None`.
    pub(in crate::webrtc) fn take(&self) -> Option<(Sender, Receiver)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

thread_local! {
    /// The keys of the connection that [`connection`] makes. str0m makes its DTLS instance by a static
    /// reference, which cannot name a connection.
    static MADE: RefCell<Option<Keys>> = const { RefCell::new(None) };
}

/// The same cryptography, with handshakes that keep our side's keys to themselves. Connections with it
/// are made by [`connection`] only.
pub(in crate::webrtc) fn apart(crypto: &CryptoProvider) -> CryptoProvider {
    CryptoProvider { dtls_provider: &Apart, ..crypto.clone() }
}

/// Makes a connection whose cryptography is that of [`apart`].
pub(in crate::webrtc) fn connection(config: RtcConfig, now: Instant) -> (Rtc, Keys) {
    let keys = Keys::default();
    MADE.set(Some(keys.clone()));
    let rtc = config.build(now);
    MADE.take();
    (rtc, keys)
}

#[derive(Debug)]
struct Apart;

/// The provider of handshakes that does the work.
fn inner() -> &'static dyn DtlsProvider {
    str0m::crypto::from_feature_flags().dtls_provider
}

impl DtlsProvider for Apart {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        inner().generate_certificate()
    }

    fn new_dtls(
        &self,
        cert: &DtlsCert,
        now: Instant,
        dtls_version: DtlsVersion,
        mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        // Nobody can take the keys of a connection that was made in another way. Its session ends then.
        let keys = MADE.take().unwrap_or_default();
        let inner = inner().new_dtls(cert, now, dtls_version, mtu)?;
        Ok(Box::new(Instance { inner, keys }))
    }
}

/// A handshake.
#[derive(Debug)]
struct Instance {
    inner: Box<dyn DtlsInstance>,
    keys: Keys,
}

impl Instance {
    /// Takes our side out of the keying material.
    fn part(&self, material: &KeyingMaterial, profile: SrtpProfile) -> KeyingMaterial {
        let mut bytes = material.to_vec();
        let known = match profile {
            SrtpProfile::AES128_CM_SHA1_80 => Some(Profile::Aes128CmSha1_80),
            SrtpProfile::AEAD_AES_128_GCM => Some(Profile::AeadAes128Gcm),
            SrtpProfile::AEAD_AES_256_GCM => Some(Profile::AeadAes256Gcm),
            _ => None,
        };
        let is_client = self.inner.is_active();
        let receiver = known.and_then(|profile| Receiver::new(profile, &bytes, is_client));
        let sender = known.and_then(|profile| Sender::take(profile, &mut bytes, is_client));
        let both = sender.zip(receiver);
        if both.is_none() {
            // The session ends without keys. Until then str0m must not have them either.
            bytes.fill(0);
        }
        *self.keys.0.lock().unwrap_or_else(PoisonError::into_inner) = both;
        KeyingMaterial::new(&bytes)
    }
}

impl DtlsInstance for Instance {
    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        match self.inner.poll_output(buf) {
            DtlsOutput::KeyingMaterial(material, profile) => {
                DtlsOutput::KeyingMaterial(self.part(&material, profile), profile)
            }
            other => other,
        }
    }

    fn set_active(&mut self, active: bool) {
        self.inner.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.inner.handle_packet(packet)
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.inner.handle_timeout(now)
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<usize, DtlsImplError> {
        self.inner.send_application_data(data)
    }

    fn is_active(&self) -> bool {
        self.inner.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.inner.protocol_version()
    }

    fn is_closing(&self) -> bool {
        self.inner.is_closing()
    }

    fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.inner.close()
    }
}
