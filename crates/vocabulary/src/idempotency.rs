//! Idempotency keys: with one, a caller can repeat an acquire and get the same lease. Keys of `supersedes`, by which a
//! newer waiter takes an older one out of the queue.

use std::{
    fmt::{self, Write},
    sync::Arc,
};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::{
    FencingToken, ForeignMark, LockName, Text, Token,
    token::{self, stored_bytes},
};

/// An `Idempotency-Key`: 16 to 128 visible ASCII characters, as secret as the token of a lease.
///
/// The token of a lease that was acquired with a key is derived from the key. So every gateway can answer a repeated
/// request with the same token, although the store keeps only hashes.
#[derive(Clone)]
pub struct IdempotencyKey(Box<str>);

/// Why a text is not an idempotency key. The error does not repeat the text, which may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdempotencyKeyError {
    /// The idempotency key is shorter than 16 or longer than 128 characters.
    #[error("has {0} characters; 16 to 128 are allowed, a UUID is fine")]
    Length(usize),
    /// The idempotency key has a character that is not visible ASCII.
    #[error("has a character that is not visible ASCII")]
    Character,
}

/// The hash of the caller, the lock name and the idempotency key. A store keeps this hash instead of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdempotencyHash([u8; 32]);

/// The hash of the fields of a request with an idempotency key, which a store keeps. A repeated request has the same
/// fingerprint; a different request under the same key has another fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// Random bytes that a store keeps with a lease. The token of the lease is derived from them and the idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Salt([u8; 16]);

/// The key of `supersedes`: a waiter that is queued takes the waiters of the same lock, caller and key out of the queue.
pub type SupersedeKey = Text<64>;

/// The hash of the caller, the lock name and the key of `supersedes`. A store keeps this hash instead of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SupersedeHash([u8; 16]);

// === impl IdempotencyKey ===

impl IdempotencyKey {
    /// The minimum length of an idempotency key. A request with the key of another caller would get that caller's lease
    /// and token, so two jobs must not choose the same key by chance (as with `build-4711`). 16 characters can be the
    /// 64 bits of a random number in hexadecimal digits, which nobody can guess by trying.
    pub const MIN_LEN: usize = 16;
    /// The length from which an idempotency key can be as hard to guess as a token: 22 characters of base64 are the 128
    /// bits of a UUID. A gateway accepts a shorter key with a warning to the caller.
    pub const GOOD_LEN: usize = 22;
    /// The maximum length of an idempotency key.
    pub const MAX_LEN: usize = 128;

    /// Makes an idempotency key of a text. Fails if the text is not one.
    pub fn new(text: &str) -> Result<Self, IdempotencyKeyError> {
        // The characters are checked before the length: the length counts bytes, and the error reports characters,
        // which are the same only for ASCII.
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(IdempotencyKeyError::Character);
        }
        if !(Self::MIN_LEN..=Self::MAX_LEN).contains(&text.len()) {
            return Err(IdempotencyKeyError::Length(text.len()));
        }
        Ok(Self(text.into()))
    }

    /// Makes a random idempotency key, for a request whose caller gave none.
    pub fn random() -> Self {
        Self(Token::random().expose().into())
    }

    /// Whether the key is shorter than [`IdempotencyKey::GOOD_LEN`], and so may be easy to guess.
    pub fn is_short(&self) -> bool {
        self.0.len() < Self::GOOD_LEN
    }

    /// The secret idempotency key as text, for the header of the request.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The hash of this idempotency key, which the store keeps.
    pub fn hash(&self, caller: &CallerId, name: &LockName) -> IdempotencyHash {
        IdempotencyHash(self.mac(b"latchgate idempotency hash v1", caller, name, &[]))
    }

    /// Derives the token of the lease that was granted under this idempotency key with this salt.
    pub fn derive_token(&self, caller: &CallerId, name: &LockName, salt: &Salt) -> Token {
        Token::from_bytes(self.mac(b"latchgate lease token v1", caller, name, &salt.0))
    }

    fn mac(&self, purpose: &[u8], caller: &CallerId, name: &LockName, salt: &[u8]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_bytes())
            .expect("HMAC takes a key of any length");
        for part in [purpose, caller.as_bytes(), name.as_str().as_bytes(), salt] {
            update(&mut mac, part);
        }
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdempotencyKey(..)")
    }
}

/// Adds a part to a hash, with its length, so that parts of other lengths make another hash.
pub(crate) fn update(hash: &mut impl hmac::digest::Update, part: &[u8]) {
    hash.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
    hash.update(part);
}

// === impl SupersedeHash ===

impl SupersedeHash {
    /// The hash of a key of `supersedes` of this caller for this lock.
    pub fn compute(key: &SupersedeKey, caller: &CallerId, name: &LockName) -> Self {
        let mut hash = Sha256::new();
        for part in [
            caller.as_bytes(),
            name.as_str().as_bytes(),
            key.as_str().as_bytes(),
        ] {
            update(&mut hash, part);
        }
        let whole: [u8; 32] = hash.finalize().into();
        let half = whole.first_chunk().expect("16 of 32 bytes");
        Self(*half)
    }
}

// === impl Salt ===

impl Salt {
    /// A new random salt.
    pub fn random() -> Self {
        Self(token::bytes())
    }
}

stored_bytes!(IdempotencyHash: 32, Fingerprint: 32, Salt: 16, SupersedeHash: 16);

// === Break target ===
//
// The holder of a lock that a break must end.

/// The holder that a break must end. If another holder has the lock when the break is carried out, the break ends
/// nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakTarget {
    /// The break ends the lease with this fencing token.
    Lease(FencingToken),
    /// The break ends all leases that hold the lock when it is carried out.
    All,
    /// The break ends the foreign lock with this mark.
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
// The caller, as far as the meaning of its idempotency keys depends on it.

/// Who a caller is, for every question whether two requests have the same caller: its API key, and if the caller has
/// proved its identity to an issuer, that issuer and the subject too. All callers of a gateway without API keys are one.
///
/// The text is the name of the key, or `NAME NUL ISSUER NUL SUBJECT NUL WORKLOAD`. No name of a key and no subject has a
/// NUL, so different callers have different texts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallerId(Option<Arc<str>>);

/// How many characters of a subject people are shown.
const MAX_SHOWN_SUBJECT: usize = 120;
/// What stands between the label of a caller and the hash of its identity. No name of a key has a blank.
const BEFORE_HASH: &str = " #";

// === impl CallerId ===

impl CallerId {
    /// The scope of all callers of a gateway without API keys.
    pub const ANONYMOUS: Self = Self(None);

    /// The caller with the API key of this name.
    pub fn of_key(name: Arc<str>) -> Self {
        Self(Some(name))
    }

    /// The caller that this issuer names by this subject, and that the API key of this name admits. `workload` tells
    /// callers apart that have chosen the same subject.
    pub fn of_subject(name: &str, issuer: &str, subject: &str, workload: &str) -> Self {
        Self(Some(
            format!("{name}\0{issuer}\0{subject}\0{workload}").into(),
        ))
    }

    /// The caller as people are shown it: the name of its API key, and the subject behind it if there is one. The label
    /// is harmless in a log. Two callers may have the same label. `None` at a gateway without API keys.
    pub fn label(&self) -> Option<Arc<str>> {
        let text = self.0.as_ref()?;
        let Some((name, subject)) = self.parts() else {
            return Some(Arc::clone(text));
        };
        let harmless = |c: char| if matches!(c, ' '..='~') { c } else { '?' };
        let mut shown: String = subject
            .chars()
            .map(harmless)
            .take(MAX_SHOWN_SUBJECT)
            .collect();
        if subject.chars().nth(MAX_SHOWN_SUBJECT).is_some() {
            shown.push_str("..");
        }
        Some(format!("{name} ({shown})").into())
    }

    /// The text by which a store and a web page remember the caller: no other caller has the same. It is the name of the
    /// API key, or the label with a hash of the identity. `None` at a gateway without API keys.
    pub fn mark(&self) -> Option<Arc<str>> {
        let text = self.0.as_ref()?;
        if self.parts().is_none() {
            return Some(Arc::clone(text));
        }
        let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let (label, mut mark) = (self.label().unwrap_or_default(), String::with_capacity(256));
        write!(mark, "{label}{BEFORE_HASH}").expect("a String takes all");
        for byte in &hash[..16] {
            write!(mark, "{byte:02x}").expect("a String takes all");
        }
        Some(mark.into())
    }

    /// The label in a mark.
    pub fn label_of_mark(mark: &str) -> &str {
        mark.rsplit_once(BEFORE_HASH)
            .map_or(mark, |(label, _)| label)
    }

    /// The name of the API key, and the subject, of a caller that an issuer names.
    fn parts(&self) -> Option<(&str, &str)> {
        let (name, rest) = self.0.as_ref()?.split_once('\0')?;
        let (_, subject) = rest.split_once('\0')?;
        Some((name, subject.split_once('\0')?.0))
    }

    /// The bytes that stand for this scope in a hash; empty for [`CallerId::ANONYMOUS`].
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
    fn callers_of_one_key_are_told_apart_by_issuer_and_subject() {
        let name = LockName::new("a").unwrap();
        let callers = [
            CallerId::ANONYMOUS,
            CallerId::of_key("ci".into()),
            CallerId::of_subject("ci", "https://a", "repo:b", ""),
            CallerId::of_subject("ci", "https://a", "repo:b", "1"),
            CallerId::of_subject("ci", "https://a", "repo:c", ""),
            CallerId::of_subject("ci", "https://b", "repo:b", ""),
            CallerId::of_subject("cd", "https://a", "repo:b", ""),
        ];
        let supersedes = SupersedeKey::new("key").unwrap();
        for (at, one) in callers.iter().enumerate() {
            for other in &callers[..at] {
                assert_ne!(key().hash(one, &name), key().hash(other, &name));
                let hash = |caller| SupersedeHash::compute(&supersedes, caller, &name);
                assert_ne!(hash(one), hash(other));
                assert_ne!(one.mark(), other.mark());
            }
        }
    }

    #[test]
    fn a_caller_is_shown_by_its_key_and_a_harmless_subject() {
        let plain = CallerId::of_key("ci".into());
        assert_eq!(plain.label().as_deref(), Some("ci"));
        assert_eq!(plain.mark().as_deref(), Some("ci"));
        assert_eq!(CallerId::ANONYMOUS.label(), None);
        let shown = |subject: &str| {
            let caller = CallerId::of_subject("ci", "https://a", subject, "7");
            let (label, mark) = (caller.label().unwrap(), caller.mark().unwrap());
            assert_eq!(CallerId::label_of_mark(&mark), &*label);
            assert_eq!(mark.len(), label.len() + 34);
            label.to_string()
        };
        assert_eq!(shown("repo:acme/web"), "ci (repo:acme/web)");
        assert_eq!(shown("a\u{202e}b\n\t\u{1b}\u{e4}"), "ci (a?b????)");
        assert_eq!(shown("a #b"), "ci (a #b)");
        assert_eq!(
            shown(&"x".repeat(121)),
            format!("ci ({}..)", "x".repeat(120))
        );
        assert_eq!(CallerId::label_of_mark("ci"), "ci");
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
}
