//! What a certificate says it is for.

use rustls::pki_types::CertificateDer;

/// What a certificate says it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Purpose {
    /// Whether it may vouch for others.
    pub(super) vouches: bool,
    /// Whether it may be that of a server.
    pub(super) serves: bool,
}

/// A part of a certificate, as DER has it: what it is, and what is in it.
type Part<'a> = (u8, &'a [u8]);

/// Kinds of parts.
const BOOLEAN: u8 = 0x01;
const EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;
const TRUE: Part<'static> = (BOOLEAN, &[0xff]);

/// The identifiers of extensions.
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
const NAMES: &[u8] = &[0x55, 0x1d, 17];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
/// And of usages: that of a server, and any.
const SERVER: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
const ANY: &[u8] = &[0x55, 0x1d, 37, 0];
/// In the usages of a key: it signs certificates.
const SIGNS: u8 = 0x04;

// === impl Purpose ===

impl Purpose {
    /// That of a certificate; `None` if it is damaged.
    ///
    /// `openssl req -x509` calls everything an authority that it makes, so that says nothing of one which
    /// has the names of a server and does not say that its key signs certificates.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = part(&mut certificate.as_ref())?;
        let (_, mut signed) = part(&mut &*certificate)?;
        let mut extensions = None;
        while let Some((kind, content)) = part(&mut signed) {
            if kind == EXTENSIONS {
                extensions = Some(content);
            }
        }
        let Some(mut extensions) = extensions else {
            // Of a time when authorities did not say what they are. It has no names.
            return Some(Self {
                vouches: true,
                serves: false,
            });
        };
        let (_, mut extensions) = part(&mut extensions)?;
        let (mut is_authority, mut signs, mut has_names, mut serves) = (false, None, false, true);
        while let Some((_, extension)) = part(&mut extensions) {
            let parts = parts(extension);
            let (&(_, name), &(_, mut value)) = (parts.first()?, parts.last()?);
            let (_, value) = part(&mut value)?;
            match name {
                BASIC_CONSTRAINTS => is_authority = parts_of(value).next() == Some(TRUE),
                // Before the bits comes how many of the last byte do not count.
                KEY_USAGE => signs = Some(value.get(1).is_some_and(|bits| bits & SIGNS != 0)),
                NAMES => {
                    has_names =
                        parts_of(value).any(|(kind, _)| matches!(kind, DNS_NAME | IP_ADDRESS));
                }
                EXTENDED_KEY_USAGE => {
                    serves = parts_of(value).any(|(_, usage)| usage == SERVER || usage == ANY);
                }
                _ => {}
            }
        }
        Some(Self {
            vouches: is_authority && signs.unwrap_or(!has_names),
            serves,
        })
    }
}

/// Takes the first part of what is left.
fn part<'a>(left: &mut &'a [u8]) -> Option<Part<'a>> {
    let (&kind, rest) = left.split_first()?;
    let (&length, rest) = rest.split_first()?;
    // A length of more than a byte says first in how many it comes.
    let (length, rest) = match length {
        0x80.. => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            let value =
                |value: usize, byte: &u8| value.checked_mul(256)?.checked_add((*byte).into());
            (bytes.iter().try_fold(0, value)?, rest)
        }
        short => (usize::from(short), rest),
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *left = rest;
    Some((kind, content))
}

fn parts_of(mut content: &[u8]) -> impl Iterator<Item = Part<'_>> {
    std::iter::from_fn(move || part(&mut content))
}

fn parts(content: &[u8]) -> Vec<Part<'_>> {
    parts_of(content).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose as Extended, IsCa, KeyPair,
        KeyUsagePurpose as Usage,
    };

    use super::*;

    fn purpose(
        names: &[&str],
        is_ca: bool,
        usages: &[Usage],
        extended: &[Extended],
    ) -> Option<Purpose> {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = if is_ca {
            IsCa::Ca(BasicConstraints::Constrained(3))
        } else {
            IsCa::ExplicitNoCa
        };
        params.key_usages = usages.to_vec();
        params.extended_key_usages = extended.to_vec();
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        Purpose::of(certificate.der())
    }

    #[test]
    fn who_vouches_says_so_and_has_no_names_of_a_server_unless_its_key_signs() {
        let vouches = |names, is_ca, usages| purpose(names, is_ca, usages, &[]).unwrap().vouches;
        assert!(vouches(&[], true, &[]));
        assert!(vouches(&[], true, &[Usage::CrlSign, Usage::KeyCertSign]));
        assert!(vouches(&["ca.example"], true, &[Usage::KeyCertSign]));
        for names in [&["a"][..], &["127.0.0.1"]] {
            assert!(!vouches(names, true, &[]));
            assert!(!vouches(names, true, &[Usage::DigitalSignature]));
            assert!(!vouches(names, false, &[Usage::KeyCertSign]));
        }
        assert!(!vouches(&[], false, &[]));
    }

    #[test]
    fn who_serves_says_so_or_says_nothing() {
        let serves = |extended| purpose(&["a"], true, &[], extended).unwrap().serves;
        assert!(serves(&[]));
        assert!(serves(&[Extended::ClientAuth, Extended::ServerAuth]));
        assert!(serves(&[Extended::Any]));
        assert!(!serves(&[Extended::ClientAuth]));
        assert!(!serves(&[Extended::CodeSigning]));
    }

    #[test]
    fn what_is_cut_anywhere_is_no_certificate_and_harms_nobody() {
        let params = CertificateParams::new(["a".to_owned()]).unwrap();
        let whole = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let whole = whole.der().to_vec();
        for length in 0..whole.len() {
            let cut = CertificateDer::from(whole[..length].to_vec());
            assert_eq!(Purpose::of(&cut), None, "{length}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let _whatever = Purpose::of(&CertificateDer::from(damaged));
        }
    }
}
