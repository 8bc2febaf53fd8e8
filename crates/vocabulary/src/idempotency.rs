//! Idempotency keys: with one, a caller can repeat an acquire and get the same lease.

use std::{fmt, sync::Arc};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::{
    FencingToken, ForeignMark, GroupNames, HoldLimit, Limit, LockName, Metadata, Owner, Sharing,
    Token, Ttl,
    token::{self, stored_bytes},
};

/// An `Idempotency-Key`: 16 to 128 visible ASCII characters, as secret as the token.
///
/// The token of a lease that was acquired with a key is derived from the key. So every gateway can give the same
/// answer again, although the store keeps only hashes.
#[derive(Clone)]
pub struct IdempotencyKey(Box<str>);

/// Why a text is not an idempotency key. The error does not repeat the text, which may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdempotencyKeyError {
    /// The text is shorter than 16 or longer than 128 characters.
    #[error("has {0} characters; 16 to 128 are allowed, a UUID is fine")]
    Length(usize),
    /// The text has a character that is not visible ASCII.
    #[error("has a character that is not visible ASCII")]
    Character,
}

/// Hash over the caller, the lock name and the idempotency key, which a store keeps instead of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdempotencyHash([u8; 32]);

/// Hash over the fields of a request with an idempotency key, which a store keeps. A repeated request has the same
/// fingerprint; a different request under the same key has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// Random bytes kept with a lease, without which its token cannot be derived from the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Salt([u8; 16]);

// === impl IdempotencyKey ===

impl IdempotencyKey {
    /// The minimum length of a key. A request with the key of another caller is answered with that caller's lease
    /// and token, so two jobs must not choose the same key by chance (as with `build-4711`). 16 characters can be
    /// the 64 bits of a random number in hexadecimal digits, which nobody finds by trying.
    pub const MIN_LEN: usize = 16;
    /// The length from which a key can be as hard to guess as a token: 22 characters of base64 are the 128 bits of
    /// a UUID. A gateway accepts a shorter key with a warning to the caller.
    pub const GOOD_LEN: usize = 22;
    /// The maximum length of a key.
    pub const MAX_LEN: usize = 128;

    /// Makes a key of a text, or says why it is none.
    pub fn new(text: &str) -> Result<Self, IdempotencyKeyError> {
        // Checked first, because the length in the error below counts characters, and only ASCII has one byte for
        // each.
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(IdempotencyKeyError::Character);
        }
        if !(Self::MIN_LEN..=Self::MAX_LEN).contains(&text.len()) {
            return Err(IdempotencyKeyError::Length(text.len()));
        }
        Ok(Self(text.into()))
    }

    /// A new random key, for a client whose caller gave none.
    pub fn random() -> Self {
        Self(Token::random().expose().into())
    }

    /// Whether the key is shorter than [`IdempotencyKey::GOOD_LEN`], and so may be easy to guess.
    pub fn is_short(&self) -> bool {
        self.0.len() < Self::GOOD_LEN
    }

    /// The secret key as text, for the header of the request.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The hash of this key, which the store keeps.
    pub fn hash(&self, caller: &CallerId, name: &LockName) -> IdempotencyHash {
        IdempotencyHash(self.mac(b"latchgate idempotency hash v1", caller, name, &[]))
    }

    /// Derives the token of the lease that was granted under this key with this salt.
    pub fn derive_token(&self, caller: &CallerId, name: &LockName, salt: &Salt) -> Token {
        Token::from_bytes(self.mac(b"latchgate lease token v1", caller, name, &salt.0))
    }

    fn mac(&self, purpose: &[u8], caller: &CallerId, name: &LockName, salt: &[u8]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_bytes())
            .expect("HMAC takes a key of any length");
        for part in [purpose, caller.as_bytes(), name.as_str().as_bytes(), salt] {
            mac.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdempotencyKey(..)")
    }
}

// === impl Fingerprint ===

impl Fingerprint {
    /// The fingerprint of the fields that the request itself named. Defaults for missing fields are not part of it,
    /// because they may differ between gateways and operations.
    pub fn compute(
        ttl: Option<Ttl>,
        hold_limit: Option<HoldLimit>,
        sharing: Option<Sharing>,
        owner: Option<&Owner>,
        metadata: &Metadata,
    ) -> Self {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(bytes);
        };
        part(&ttl.map_or(0, Ttl::as_millis).to_be_bytes());
        part(&hold_limit.map_or(0, HoldLimit::as_millis).to_be_bytes());
        // 0 stands for exclusive, 1 for shared without a limit.
        let limit = |sharing: Sharing| 1 + sharing.explicit_limit().map_or(0, Limit::get);
        part(&sharing.map_or(0, limit).to_be_bytes());
        part(owner.map(Owner::as_str).unwrap_or_default().as_bytes());
        for (name, value) in metadata.iter() {
            part(name.as_bytes());
            part(value.as_bytes());
        }
        Self(hash.finalize().into())
    }

    /// The fingerprint of the same request for a group of exactly these locks.
    #[must_use]
    pub fn of_group(self, names: &GroupNames) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(names.joined());
        Self(hash.finalize().into())
    }
}

// === impl Salt ===

impl Salt {
    /// A new random salt.
    pub fn random() -> Self {
        Self(token::bytes())
    }
}

stored_bytes!(IdempotencyHash: 32, Fingerprint: 32, Salt: 16);

// === Break target ===
//
// Which holder of a lock a break is to hit.

/// The holder that a break is to end. If another holder has the lock by then, that holder keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakTarget {
    /// The lease with this fencing token.
    Lease(FencingToken),
    /// All leases that hold the lock when the break is carried out.
    All,
    /// The foreign lock with this mark.
    Foreign(ForeignMark),
}

// === impl BreakTarget ===

impl From<FencingToken> for BreakTarget {
    fn from(fence: FencingToken) -> Self {
        Self::Lease(fence)
    }
}

impl From<ForeignMark> for BreakTarget {
    fn from(mark: ForeignMark) -> Self {
        Self::Foreign(mark)
    }
}

// === Caller ===
//
// The caller, as far as idempotency keys depend on it.

/// The scope of an idempotency key: the API key of its caller, or all callers of a gateway without API keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallerId(Option<Arc<str>>);

// === impl CallerId ===

impl CallerId {
    /// The caller of a gateway without API keys.
    pub const ANONYMOUS: Self = Self(None);

    /// The caller with the API key of this name.
    pub fn of_key(name: Arc<str>) -> Self {
        Self(Some(name))
    }

    /// The bytes that stand for the caller in a hash; empty for [`CallerId::ANONYMOUS`].
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> IdempotencyKey {
        IdempotencyKey::new("5f0c2f5e-9d1b-4c58-9a3b-6f5f2b1f7d11").unwrap()
    }

    #[test]
    fn does_not_print_itself() {
        assert_eq!(format!("{:?}", key()), "IdempotencyKey(..)");
    }

    #[test]
    fn is_16_to_128_visible_characters_and_short_below_22() {
        for (len, is_short) in [(16, true), (21, true), (22, false), (36, false)] {
            let key = IdempotencyKey::new(&"a".repeat(len)).unwrap();
            assert_eq!(key.is_short(), is_short, "{len}");
        }
        assert!(IdempotencyKey::new(&"~".repeat(128)).is_ok());
        for len in [0, 10, 15, 129] {
            assert_eq!(
                IdempotencyKey::new(&"a".repeat(len)).unwrap_err(),
                IdempotencyKeyError::Length(len)
            );
        }
        for c in [' ', '\t', '\u{7f}', 'ä'] {
            let text = format!("{}{c}", "a".repeat(30));
            assert_eq!(
                IdempotencyKey::new(&text).unwrap_err(),
                IdempotencyKeyError::Character
            );
        }
    }

    #[test]
    fn derives_the_same_token_from_the_same_salt_only() {
        let [a, b] = ["a", "b"].map(|name| LockName::new(name).unwrap());
        let salt = Salt::random();
        let token = |name: &LockName, salt: &Salt| {
            key().derive_token(&CallerId::ANONYMOUS, name, salt).hash()
        };
        assert_eq!(token(&a, &salt), token(&a, &salt));
        assert_ne!(token(&a, &salt), token(&a, &Salt::random()));
        assert_ne!(token(&a, &salt), token(&b, &salt));
    }

    #[test]
    fn tells_requests_apart_by_every_field() {
        let ttl = Ttl::MIN;
        let owner = Owner::new("x").unwrap();
        let metadata = Metadata::new([("a".to_owned(), "b".to_owned())].into()).unwrap();
        let limit = HoldLimit::MAX;
        let shared = |limit, has_slot| {
            let limit = Limit::new(limit).unwrap();
            Some(Sharing { limit, has_slot })
        };
        let none = Metadata::default();
        let group = |names: [&str; 2]| GroupNames::parse(names).unwrap();
        let all = [
            Fingerprint::compute(None, None, None, None, &none),
            Fingerprint::compute(Some(ttl), None, None, None, &none),
            Fingerprint::compute(Some(Ttl::MAX), None, None, None, &none),
            Fingerprint::compute(None, Some(limit), None, None, &none),
            Fingerprint::compute(None, None, shared(1, false), None, &none),
            Fingerprint::compute(None, None, shared(1, true), None, &none),
            Fingerprint::compute(None, None, shared(2, true), None, &none),
            Fingerprint::compute(None, None, None, Some(&owner), &none),
            Fingerprint::compute(None, None, None, None, &metadata),
            Fingerprint::compute(None, None, None, None, &none).of_group(&group(["a", "b"])),
            Fingerprint::compute(None, None, None, None, &none).of_group(&group(["a", "c"])),
            Fingerprint::compute(None, None, None, None, &metadata).of_group(&group(["a", "b"])),
        ];
        for (i, a) in all.iter().enumerate() {
            for (j, b) in all.iter().enumerate() {
                assert_eq!(a == b, i == j);
            }
        }
    }
}
