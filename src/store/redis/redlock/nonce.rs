//! Tells the tries of one attempt apart.

use std::fmt;

use crate::lock::Token;

/// The identity of one try to acquire. An attempt that tries again does so under another: else what is
/// still on its way of one try would count for the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nonce(Box<str>);

/// How many hexadecimal digits it has: 128 bits.
const LENGTH: usize = 32;

// === impl Nonce ===

impl Nonce {
    pub(super) fn random() -> Self {
        let digits = Token::random().hash().to_string();
        Self(digits[..LENGTH].into())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
