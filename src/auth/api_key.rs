//! API keys: the secret by which a gateway recognises its caller, and the hash that the gateway keeps of it.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// An API key: `lgk_ID_SECRET` with a checksum behind it, 64 characters in all.
///
/// The id is public and identifies the secret. The secret is 256 random bits. The checksum distinguishes a key that
/// lost a character when it was pasted from an unknown key. `Debug` never shows the secret.
#[derive(Clone)]
pub struct ApiKey {
    id: ApiKeyId,
    text: Box<str>,
}

/// The public part of an API key: 10 characters of lower-case base32.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiKeyId([u8; ApiKeyId::LEN]);

/// The SHA-256 of an API key's text: all that a gateway keeps of the key.
///
/// A fast hash suffices: slow hashes make the guessing of passwords expensive, but 256 random bits cannot be guessed.
/// A slow hash would only be a way to overload the gateway.
#[derive(Clone, Copy)]
pub struct ApiKeyHash([u8; 32]);

/// Why a text is no API key. The error does not repeat the text, which may be most of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApiKeyError {
    /// The text does not look like an API key.
    #[error("is no API key; a key begins with lgk_ and has 64 characters")]
    NotAKey,
    /// The text looks like an API key, and has lost, gained or changed characters.
    #[error("is an API key that was cut off or mistyped; copy all 64 characters of it")]
    Damaged,
}

const SECRET_LEN: usize = 43;
const CHECKSUM_LEN: usize = 6;
/// The length of a key without its checksum.
const BODY_LEN: usize = ApiKey::PREFIX.len() + ApiKeyId::LEN + 1 + SECRET_LEN;
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

// === impl ApiKey ===

impl ApiKey {
    /// The first characters of every API key.
    pub(super) const PREFIX: &str = "lgk_";
    /// How many characters an API key has.
    pub const LEN: usize = BODY_LEN + CHECKSUM_LEN;

    /// A new API key, which cannot be guessed.
    pub fn random() -> Self {
        let id = ApiKeyId(base32(random()));
        let secret = URL_SAFE_NO_PAD.encode(random::<32>());
        let body = format!("{}{id}_{secret}", Self::PREFIX);
        let text = format!("{body}{}", checksum(&body)).into();
        Self { id, text }
    }

    /// Reads an API key from its text.
    pub fn parse(text: &str) -> Result<Self, ApiKeyError> {
        let rest = text
            .strip_prefix(Self::PREFIX)
            .ok_or(ApiKeyError::NotAKey)?;
        if !text.is_ascii() || text.len() != Self::LEN {
            return Err(ApiKeyError::Damaged);
        }
        let (body, sum) = text.split_at(BODY_LEN);
        let (id, secret) = rest[..BODY_LEN - Self::PREFIX.len()].split_at(ApiKeyId::LEN);
        let id = ApiKeyId::parse(id).ok_or(ApiKeyError::Damaged)?;
        let mut bytes = [0; 32];
        let secret = secret.strip_prefix('_').ok_or(ApiKeyError::Damaged)?;
        let whole = URL_SAFE_NO_PAD.decode_slice(secret, &mut bytes) == Ok(bytes.len());
        if !whole || sum != checksum(body) {
            return Err(ApiKeyError::Damaged);
        }
        let text = text.into();
        Ok(Self { id, text })
    }

    /// The public id of the key.
    pub fn id(&self) -> ApiKeyId {
        self.id
    }

    /// The hash that a gateway keeps of the key: `printf %s "$KEY"
    /// sha256sum` gives the same.
    pub fn hash(&self) -> ApiKeyHash {
        ApiKeyHash(Sha256::digest(self.text.as_bytes()).into())
    }

    /// The whole key as text, secret included, for its owner.
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({}, ..)", self.id)
    }
}

// === impl ApiKeyId ===

impl ApiKeyId {
    /// How many characters the id of an API key has.
    pub const LEN: usize = 10;

    /// Reads the id of an API key; `None` if the text is no id.
    pub fn parse(text: &str) -> Option<Self> {
        let id: [u8; Self::LEN] = text.as_bytes().try_into().ok()?;
        id.iter().all(|c| BASE32.contains(c)).then_some(Self(id))
    }

    /// The id of an API key as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("base32 is ASCII")
    }
}

impl fmt::Display for ApiKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ApiKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeyId({self})")
    }
}

// === impl ApiKeyHash ===

impl ApiKeyHash {
    /// A hash that no API key has. A key with an unknown id is compared with this hash, so that its refusal takes as
    /// long as that of a known id.
    pub(super) const OF_NOBODY: Self = Self([0; 32]);

    /// Reads a hash from 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digit = |c: u8| char::from(c).to_digit(16);
        if text.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
        }
        Some(Self(bytes))
    }

    /// Whether both hashes are of the same key. The comparison takes the same time however much of the hashes is
    /// equal.
    pub fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Display for ApiKeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ApiKeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKeyHash(..)")
    }
}

/// Random bytes, for a secret.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("a running system has a source of random bytes");
    bytes
}

/// Turns each byte into one base32 character, using five bits of it.
fn base32<const N: usize>(bytes: [u8; N]) -> [u8; N] {
    bytes.map(|byte| BASE32[usize::from(byte & 31)])
}

/// The checksum of a key: six characters (30 bits) of a hash of everything before it.
fn checksum(body: &str) -> String {
    let hash = Sha256::new()
        .chain_update("latchgate api key checksum v1")
        .chain_update(body)
        .finalize();
    let first: [u8; CHECKSUM_LEN] = std::array::from_fn(|at| hash[at]);
    base32(first).map(char::from).iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_from_its_own_text() {
        let key = ApiKey::random();
        let text = key.expose();
        assert_eq!(text.len(), ApiKey::LEN);
        assert_eq!(ApiKey::LEN, 64);
        let read = ApiKey::parse(text).unwrap();
        assert_eq!(read.id(), key.id());
        assert!(read.hash().is(&key.hash()));
        let displayed = key.hash().to_string();
        assert!(ApiKeyHash::parse(&displayed).unwrap().is(&key.hash()));
    }

    #[test]
    fn does_not_print_itself() {
        let key = ApiKey::random();
        let secret = &key.expose()[15..];
        let displayed = format!("{key:?} {:?}", key.hash());
        assert!(!displayed.contains(secret) && !displayed.contains(&key.hash().to_string()));
        assert!(displayed.contains(key.id().as_str()));
    }

    #[test]
    fn a_paste_that_lost_gained_or_changed_a_character_is_told_apart() {
        let key = ApiKey::random();
        let text = key.expose();
        for at in 0..text.len() {
            let cut = format!("{}{}", &text[..at], &text[at + 1..]);
            assert!(ApiKey::parse(&cut).is_err(), "without {at}");
            let twice = format!("{}{}", &text[..=at], &text[at..]);
            assert!(ApiKey::parse(&twice).is_err(), "{at} twice");
            for other in ['a', 'B', '-', 'ä'] {
                let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
                if changed != text {
                    assert!(ApiKey::parse(&changed).is_err(), "{other} at {at}");
                }
            }
        }
        assert_eq!(
            ApiKey::parse(&text[..63]).unwrap_err(),
            ApiKeyError::Damaged
        );
        for other in ["", "lgk", "s3cret", "ghp_0123456789", "LGK_a"] {
            assert_eq!(ApiKey::parse(other).unwrap_err(), ApiKeyError::NotAKey);
        }
    }

    #[test]
    fn a_hash_is_64_hexadecimal_digits() {
        let key = ApiKey::random().hash();
        let text = key.to_string();
        assert!(ApiKeyHash::parse(&text.to_uppercase()).unwrap().is(&key));
        for bad in [
            "",
            &text[..63],
            &text.replace(&text[..1], "g"),
            &"ä".repeat(32),
        ] {
            assert!(ApiKeyHash::parse(bad).is_none(), "{bad}");
        }
        assert!(!ApiKey::random().hash().is(&key));
    }
}
