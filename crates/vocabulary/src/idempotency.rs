//! What lets a caller ask again and get the same lease.

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
/// The token of a lease acquired with a key is derived from it, so that every gateway can give the
/// same answer again while the store still holds nothing but hashes.
#[derive(Clone)]
pub struct IdempotencyKey(Box<str>);

/// Why a text is not an idempotency key. The text itself is not repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdempotencyKeyError {
    /// It is shorter than 16 or longer than 128 characters.
    #[error("has {0} characters; 16 to 128 are allowed, a UUID is fine")]
    Length(usize),
    /// It has a character that is not visible ASCII.
    #[error("has a character that is not visible ASCII")]
    Character,
}

/// What a store keeps of an idempotency key: a hash over the caller, the name and the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdempotencyHash([u8; 32]);

/// What a store keeps of a request made with an idempotency key, to tell a repetition from a
/// different request under the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// Random bytes kept with a lease, without which its token cannot be derived from the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Salt([u8; 16]);

// === impl IdempotencyKey ===

impl IdempotencyKey {
    /// The shortest key. Whoever asks with the key of somebody else is answered with their lease, token
    /// included, and holds a lock that is held: what two jobs come to by chance (`build-4711`) must not be one.
    /// 16 characters are the 64 bits of a random number in hexadecimal digits, which nobody finds by asking.
    pub const MIN_LEN: usize = 16;
    /// From here on a key can be as hard to guess as a token: 22 characters of base64 are the 128 bits of a
    /// UUID. A shorter one is taken, and its sender is warned.
    pub const GOOD_LEN: usize = 22;
    /// The longest key.
    pub const MAX_LEN: usize = 128;

    /// Checks a text and takes it as a key.
    pub fn new(text: &str) -> Result<Self, IdempotencyKeyError> {
        // First: of other characters there may be fewer than there are bytes.
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(IdempotencyKeyError::Character);
        }
        if !(Self::MIN_LEN..=Self::MAX_LEN).contains(&text.len()) {
            return Err(IdempotencyKeyError::Length(text.len()));
        }
        Ok(Self(text.into()))
    }

    /// A key that nobody can guess, for a client whose caller gave none.
    pub fn random() -> Self {
        Self(Token::random().expose().into())
    }

    /// Whether it has fewer characters than one that is hard to guess.
    pub fn is_short(&self) -> bool {
        self.0.len() < Self::GOOD_LEN
    }

    /// The secret as text, for the request that carries it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What a store keeps of this key.
    pub fn hash(&self, caller: &CallerId, name: &LockName) -> IdempotencyHash {
        IdempotencyHash(self.mac(b"latchgate idempotency hash v1", caller, name, &[]))
    }

    /// The token of the lease that was granted under this key with this salt.
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
    /// The fingerprint of what a request asks for, in its own words: what stands in for something
    /// that it left out may change between two gateways, and from one operation to another.
    pub fn of(
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
        // 0: alone; 1: shared, without a limit.
        let limit = |sharing: Sharing| 1 + sharing.explicit_limit().map_or(0, Limit::get);
        part(&sharing.map_or(0, limit).to_be_bytes());
        part(owner.map(Owner::as_str).unwrap_or_default().as_bytes());
        for (name, value) in metadata.iter() {
            part(name.as_bytes());
            part(value.as_bytes());
        }
        Self(hash.finalize().into())
    }

    /// The same of a request for a group: for these locks and no others.
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
    /// A fresh salt.
    pub fn random() -> Self {
        Self(token::bytes())
    }
}

stored_bytes!(IdempotencyHash: 32, Fingerprint: 32, Salt: 16);

// === Break target ===
//
// What is to be broken, and nothing else.

/// Who holds a lock that is to be broken: somebody else by then keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakTarget {
    /// The lease with this fencing token.
    Lease(FencingToken),
    /// Whatever leases hold it when it is looked at, however many share it.
    All,
    /// A client that uses no gateway, by the mark of what it has written.
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
// Who is calling, as far as idempotency keys go.

/// The scope of an idempotency key: the API key that sent it, or everybody where there are none.
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
            Fingerprint::of(None, None, None, None, &none),
            Fingerprint::of(Some(ttl), None, None, None, &none),
            Fingerprint::of(Some(Ttl::MAX), None, None, None, &none),
            Fingerprint::of(None, Some(limit), None, None, &none),
            Fingerprint::of(None, None, shared(1, false), None, &none),
            Fingerprint::of(None, None, shared(1, true), None, &none),
            Fingerprint::of(None, None, shared(2, true), None, &none),
            Fingerprint::of(None, None, None, Some(&owner), &none),
            Fingerprint::of(None, None, None, None, &metadata),
            Fingerprint::of(None, None, None, None, &none).of_group(&group(["a", "b"])),
            Fingerprint::of(None, None, None, None, &none).of_group(&group(["a", "c"])),
            Fingerprint::of(None, None, None, None, &metadata).of_group(&group(["a", "b"])),
        ];
        for (i, a) in all.iter().enumerate() {
            for (j, b) in all.iter().enumerate() {
                assert_eq!(a == b, i == j);
            }
        }
    }
}
