//! Tells apart those who keep one lease with one token.

use std::fmt;

use crate::{TokenHash, token};

/// Who keeps a lease: renews it, and releases it when there is no more need of it.
///
/// A token says that a lease may be renewed and released; it can be handed on, and several may have it. This
/// identifies the one that does. It is no secret, because it is of no use without the token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeeperId([u8; 32]);

// === impl KeeperId ===

impl KeeperId {
    /// A keeper that is none of the others.
    pub fn random() -> Self {
        Self(token::bytes())
    }

    /// The keeper that an attempt is, of the lease that it was granted or answered.
    pub fn of_attempt(token: &TokenHash) -> Self {
        Self(*token.as_bytes())
    }
}

impl fmt::Display for KeeperId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        TokenHash::from_bytes(self.0).fmt(f)
    }
}

impl fmt::Debug for KeeperId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeeperId({self})")
    }
}

#[cfg(test)]
mod tests {
    use crate::Token;

    use super::*;

    #[test]
    fn is_written_as_the_attempt_that_it_is() {
        let token = Token::random().hash();
        assert_eq!(KeeperId::of_attempt(&token).to_string(), token.to_string());
    }
}
