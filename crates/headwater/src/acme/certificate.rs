//! A certificate: for which names it is, and when it is renewed.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::CertificateFacts;
use instant_acme::CertificateIdentifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, Der, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_cert::TbsCertificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::AuthorityKeyIdentifier;

/// A certificate in use.
pub(super) struct Certificate {
    /// With its chain.
    pub(super) key: Arc<CertifiedKey>,
    pub(super) names: BTreeSet<String>,
    pub(super) ends: SystemTime,
    starts: SystemTime,
    /// How authorities call it (RFC 9773 4.1).
    pub(super) id: Option<CertificateIdentifier<'static>>,
    /// Where in a window it is renewed, from 0 to 1. It differs from certificate to certificate, and stays the same
    /// when the server starts again.
    place: f64,
}

impl Certificate {
    /// Parses a key and the certificates that lead from its own to an authority, in PEM (RFC 7468).
    pub(super) fn parse(pem: &str) -> Result<Self, String> {
        let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| error.to_string())?;
        let Some(own) = chain.first() else { return Err("there is no certificate".to_owned()) };
        let own = own.clone();
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| format!("the private key: {error}"))?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = CertifiedKey::from_der(chain, key, &provider);
        let key = Arc::new(key.map_err(|error| error.to_string())?);
        let parsed = x509_cert::Certificate::from_der(&own).map_err(|error| error.to_string())?;
        let facts = CertificateFacts::of(&own).map_err(|error| error.to_string())?;
        Ok(Self {
            names: facts.names.iter().map(|name| name.to_ascii_lowercase()).collect(),
            starts: UNIX_EPOCH + Duration::from_secs(facts.not_before),
            ends: UNIX_EPOCH + Duration::from_secs(facts.not_after),
            id: id(parsed.tbs_certificate()),
            place: f64::from(crc32fast::hash(&own)) / f64::from(u32::MAX),
            key,
        })
    }

    /// When it is renewed: after two thirds of its lifetime, or in the authority's window (RFC 9773 4.2), but in any
    /// case before its last tenth.
    pub(super) fn due(&self, window: Option<&Range<SystemTime>>) -> SystemTime {
        let lifetime = self.ends.duration_since(self.starts).unwrap_or_default();
        let Some(Range { start, end }) = window else { return self.starts + lifetime * 2 / 3 };
        let length = end.duration_since(*start).unwrap_or_default();
        (*start + length.mul_f64(self.place)).min(self.ends - lifetime / 10)
    }
}

fn id(certificate: &TbsCertificate) -> Option<CertificateIdentifier<'static>> {
    let (_, authority) = certificate.get_extension::<AuthorityKeyIdentifier>().ok()??;
    let key = authority.key_identifier?;
    let serial = Der::from_slice(certificate.serial_number().as_bytes());
    Some(CertificateIdentifier::new(Der::from_slice(key.as_bytes()), serial).into_owned())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};

    use super::*;

    fn made(days: Range<u64>) -> String {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let names = ["b.example.org", "A.example.org"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = day(days.start).into();
        params.not_after = day(days.end).into();
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(vec![0x87, 0x65, 0x43, 0x21].into());
        format!("{}{}", key.serialize_pem(), params.self_signed(&key).unwrap().pem())
    }

    fn day(number: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(number * 24 * 3600)
    }

    #[test]
    fn renewed_after_two_thirds_or_when_the_authority_says() {
        let certificate = Certificate::parse(&made(20_000..20_090)).unwrap();
        assert_eq!(certificate.due(None), day(20_060));
        let early = certificate.due(Some(&(day(20_010)..day(20_012))));
        assert!((day(20_010)..=day(20_012)).contains(&early));
        // A window that ends before it begins has no length.
        assert_eq!(certificate.due(Some(&(day(20_012)..day(20_010)))), day(20_012));
        // No authority can make the server miss the end.
        assert_eq!(certificate.due(Some(&(day(20_099)..day(30_000)))), day(20_081));
    }

    #[test]
    fn tells_its_names_and_how_authorities_call_it() {
        let certificate = Certificate::parse(&made(20_000..20_090)).unwrap();
        let names = ["a.example.org", "b.example.org"].map(str::to_owned);
        assert_eq!(certificate.names, BTreeSet::from(names));
        // The serial number as DER has it, with a zero before a high first bit: the example of RFC 9773 4.1.
        let id = certificate.id.unwrap().to_string();
        let (key, serial) = id.split_once('.').unwrap();
        assert!(!key.is_empty() && serial == "AIdlQyE", "{id}");
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        let pem = made(20_000..20_090);
        let (key, certificate) = pem.split_at(pem.find("-----BEGIN CERTIFICATE").unwrap());
        let other = made(20_000..20_090);
        let (other, _) = other.split_at(other.find("-----BEGIN CERTIFICATE").unwrap());
        let half = &pem[..pem.len() - 100];
        for (pem, why) in [
            (String::new(), "there is no certificate"),
            (key.to_owned(), "there is no certificate"),
            (certificate.to_owned(), "the private key: "),
            (format!("{other}{certificate}"), ""),
            (half.to_owned(), ""),
            (format!("{pem}{}", &certificate[..100]), ""),
        ] {
            let error = Certificate::parse(&pem).err().unwrap();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
