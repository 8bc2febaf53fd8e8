//! The token of a lease, its hash, and the id of the lease's recipient.

use std::{cell::RefCell, fmt};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

/// The secret of a lease: 256 bits, written as 43 characters of unpadded base64url.
///
/// Every caller with the token may renew and release the lease. The token is never printed: its `Debug` is
/// `Token(..)`, and it has no `Display`.
#[derive(Clone)]
pub struct Token([u8; 32]);

/// The SHA-256 of a token. The store keeps only this hash, never the token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenHash([u8; 32]);

/// The error for a text that is not a token. The error does not repeat the text, which may be most of a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not a token; a token is the 43 characters that acquire answered")]
pub struct TokenError;

// === impl Token ===

impl Token {
    /// The number of characters in the text of a token.
    pub const TEXT_LEN: usize = 43;

    /// A new token from 256 random bits, which nobody can guess.
    pub fn random() -> Self {
        Self(bytes())
    }

    /// Makes a token of its 256 bits.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Parses the text of a token (see [`Token::expose`]).
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let mut bytes = [0; 32];
        match URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
            Ok(32) => Ok(Self(bytes)),
            Ok(_) | Err(_) => Err(TokenError),
        }
    }

    /// The secret token as text, for the answer to the caller that acquired the lease.
    pub fn expose(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// The secret token as text, written into the buffer `text` to avoid an allocation.
    pub fn expose_into<'a>(&self, text: &'a mut [u8; Self::TEXT_LEN]) -> &'a str {
        URL_SAFE_NO_PAD
            .encode_slice(self.0, text)
            .expect("32 bytes are 43 characters of base64");
        str::from_utf8(text).expect("base64 is ASCII")
    }

    /// The hash of this token, which the store keeps.
    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.0).into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

// === impl TokenHash ===

// Generates for a type both directions, from and to the bytes that a store keeps, so that neither is forgotten.
macro_rules! stored_bytes {
    ($($type:ident: $len:literal),+) => {$(
        impl $type {
            /// Makes the value of the bytes that a store has kept.
            pub fn from_bytes(bytes: [u8; $len]) -> Self {
                Self(bytes)
            }

            /// The bytes of the value that a store keeps.
            pub fn as_bytes(&self) -> &[u8; $len] {
                &self.0
            }
        }
    )+};
}

pub(super) use stored_bytes;

stored_bytes!(TokenHash: 32);

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 64];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&hex).expect("hexadecimal digits are ASCII"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenHash({self})")
    }
}

// === Random ===
//
// Random bytes from the operating system.

/// A buffer of random bytes, of which the first `used` have already been handed out.
struct Pool {
    bytes: [u8; POOL],
    used: usize,
}

/// The number of bytes that one system call fetches. A call for each token would cost as much as the rest of its
/// creation.
const POOL: usize = 1024;

thread_local! {
    static UNUSED: RefCell<Pool> = const {
        RefCell::new(Pool {
            bytes: [0; POOL],
            used: POOL,
        })
    };
}

pub(super) fn bytes<const N: usize>() -> [u8; N] {
    const { assert!(N <= POOL) };
    UNUSED.with_borrow_mut(Pool::take)
}

// === impl Pool ===

impl Pool {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        if POOL - self.used < N {
            getrandom::fill(&mut self.bytes)
                .expect("a running system has a source of random bytes");
            self.used = 0;
        }
        let unused = &mut self.bytes[self.used..self.used + N];
        let mut taken = [0; N];
        // The bytes that are handed out are replaced by zeros, because a secret must not stay in the buffer.
        taken.swap_with_slice(unused);
        self.used += N;
        taken
    }
}

// === Recipient id ===

/// The id of a lease's recipient: the program that renews the lease, and releases it when it is no longer needed.
///
/// Several programs may have the token of a lease, because a token can be handed on. The recipient id says which of
/// them keeps the lease. It is not secret, because it has no effect without the token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RecipientId([u8; 32]);

// === impl RecipientId ===

impl RecipientId {
    /// A new random recipient id, different from all others.
    pub fn random() -> Self {
        Self(bytes())
    }

    /// The recipient id of an attempt, for the lease that the attempt is granted. It is derived from the hash of the
    /// token.
    pub fn of_attempt(token: &TokenHash) -> Self {
        Self(*token.as_bytes())
    }

    /// The id of the attempt with this recipient id, as an adoption is given back.
    #[must_use]
    pub fn attempt(self) -> TokenHash {
        TokenHash::from_bytes(self.0)
    }
}

impl fmt::Display for RecipientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.attempt().fmt(f)
    }
}

impl fmt::Debug for RecipientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecipientId({self})")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn does_not_print_itself() {
        assert_eq!(format!("{:?}", Token::random()), "Token(..)");
    }

    #[test]
    fn comes_back_from_its_own_text() {
        let token = Token::random();
        let text = token.expose();
        assert_eq!(text.len(), Token::TEXT_LEN);
        assert_eq!(token.expose_into(&mut [0; Token::TEXT_LEN]), text);
        assert_eq!(Token::parse(&text).unwrap().hash(), token.hash());
    }

    #[test]
    fn refuses_anything_else() {
        let text = Token::random().expose();
        for bad in [
            "",
            "x",
            &text[..42],
            &format!("{text}A"),
            &format!("{text}="),
            &text.replace(&text[..1], "!"),
        ] {
            assert_eq!(Token::parse(bad).unwrap_err(), TokenError, "{bad}");
        }
    }

    #[test]
    fn is_kept_as_its_sha_256() {
        let hash = Token::from_bytes([0; 32]).hash();
        assert_eq!(
            hash.to_string(),
            "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925"
        );
    }

    #[test]
    fn are_handed_out_once_and_forgotten() {
        let mut pool = Pool {
            bytes: [0; POOL],
            used: POOL,
        };
        let mut seen = HashSet::new();
        for _ in 0..100 {
            assert!(seen.insert(pool.take::<32>()));
            assert!(pool.bytes[..pool.used].iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn is_written_as_the_attempt_that_it_is() {
        let token = Token::random().hash();
        assert_eq!(
            RecipientId::of_attempt(&token).to_string(),
            token.to_string()
        );
    }
}
