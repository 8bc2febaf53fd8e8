//! The public keys of an issuer, and which of them verifies a token.

use std::fmt;

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse},
};
use serde::Deserialize;
use serde_json::Value;

/// The keys of an issuer that can verify ID tokens.
#[derive(Debug)]
pub struct KeySet(Vec<IssuerKey>);

/// One public key. Its type decides the algorithm.
pub(super) struct IssuerKey {
    kid: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// Why a document has no keys of an issuer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// The document is no JSON object with a list `keys`.
    #[error("it is no JSON Web Key Set, an object with the list keys")]
    NotASet,
    /// The document has too many keys.
    #[error("it has {0} keys; at most {max} are read", max = KeySet::MAX_KEYS)]
    TooMany(usize),
    /// None of the keys can verify an ID token.
    #[error(
        "it has no key for signatures with RS256 (RSA of 2048 to 4096 bits) or ES256 (P-256), or two of the same kid"
    )]
    NoKey,
}

/// The result of the search for the key of a token.
pub(super) enum Selection<'a> {
    /// This key alone fits.
    Key(&'a IssuerKey),
    /// No key has the `kid` of the token. The issuer may have a new key.
    UnknownKid,
    /// Keys fit, but the token or the issuer does not say which one counts.
    Ambiguous,
}

const MIN_RSA_BITS: usize = 2_048;
const MAX_RSA_BITS: usize = 4_096;
/// The length of an uncompressed point of P-256.
const P256_POINT: usize = 65;

// === impl KeySet ===

impl KeySet {
    /// The longest document that is read, in bytes.
    pub const MAX_LEN: usize = 256 * 1024;
    /// The largest number of keys that is read.
    pub const MAX_KEYS: usize = 100;

    /// Reads a JSON Web Key Set. Keys that cannot verify an ID token are left out.
    pub fn parse(json: &[u8]) -> Result<Self, KeySetError> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<Value>,
        }
        let Document { keys } = serde_json::from_slice(json).map_err(|_| KeySetError::NotASet)?;
        if keys.len() > Self::MAX_KEYS {
            return Err(KeySetError::TooMany(keys.len()));
        }
        // A key of a kind that is not known here says nothing against the others.
        let mut keys: Vec<_> = keys.into_iter().filter_map(IssuerKey::read).collect();
        let kids: Vec<_> = keys.iter().map(|key| key.kid.clone()).collect();
        // Of two keys with one kid, an attacker may have caused one: neither counts.
        keys.retain(|key| {
            key.kid.is_none() || kids.iter().filter(|kid| **kid == key.kid).count() == 1
        });
        if keys.is_empty() {
            return Err(KeySetError::NoKey);
        }
        Ok(Self(keys))
    }

    /// The key that verifies tokens with this `kid`, or without one.
    pub(super) fn select(&self, kid: Option<&str>, algorithm: Algorithm) -> Selection<'_> {
        let mut fitting = self.0.iter().filter(|key| match kid {
            Some(_) => key.kid.as_deref() == kid,
            None => key.algorithm == algorithm,
        });
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Selection::Key(key),
            (None, _) if kid.is_some() => Selection::UnknownKid,
            _ => Selection::Ambiguous,
        }
    }
}

// === impl IssuerKey ===

impl IssuerKey {
    /// Reads a key; `None` if it cannot verify an ID token.
    fn read(json: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(json).ok()?;
        let common = &jwk.common;
        let is_for_signatures = common
            .public_key_use
            .as_ref()
            .is_none_or(|it| *it == PublicKeyUse::Signature);
        let verifies = common
            .key_operations
            .as_ref()
            .is_none_or(|it| it.contains(&KeyOperations::Verify));
        if !is_for_signatures || !verifies {
            return None;
        }
        let (algorithm, named) = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
            AlgorithmParameters::EllipticCurve(it) if it.curve == EllipticCurve::P256 => {
                (Algorithm::ES256, KeyAlgorithm::ES256)
            }
            _ => return None,
        };
        if common.key_algorithm.is_some_and(|it| it != named) {
            return None;
        }
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        let fits = match key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, .. } => {
                let zeros = n.first().map_or(0, |byte| byte.leading_zeros() as usize);
                (MIN_RSA_BITS..=MAX_RSA_BITS).contains(&(8 * n.len() - zeros))
            }
            DecodingKeyKind::SecretOrDer(point) => point.len() == P256_POINT,
        };
        let kid = jwk.common.key_id;
        fits.then_some(Self {
            kid,
            algorithm,
            key,
        })
    }
}

impl fmt::Debug for IssuerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IssuerKey({:?}, {:?})", self.kid, self.algorithm)
    }
}

#[cfg(test)]
pub(super) mod tests;
