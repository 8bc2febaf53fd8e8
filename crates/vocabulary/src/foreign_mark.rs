//! The mark of a foreign lock, which distinguishes one foreign holder of a lock from another.

use std::fmt;

/// The mark of a foreign lock: the SHA-1, in hexadecimal digits, of the value that a client without a gateway wrote.
///
/// The value itself is not shown, because it may be the secret by which that client releases the lock. A client that
/// always writes the same value always has the same mark.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ForeignMark([u8; Self::DIGITS]);

/// The error for a text that is not the mark of a foreign lock.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not the mark of a foreign holder; a mark is 40 hexadecimal digits in lower case")]
pub struct ForeignMarkError;

// === impl ForeignMark ===

impl ForeignMark {
    /// The number of hexadecimal digits in a mark.
    pub const DIGITS: usize = 40;

    /// Makes a mark of its hexadecimal digits. Fails if the text is not a mark.
    pub fn new(text: &str) -> Result<Self, ForeignMarkError> {
        let digits: [u8; Self::DIGITS] =
            text.as_bytes().try_into().map_err(|_| ForeignMarkError)?;
        if digits
            .iter()
            .all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
        {
            Ok(Self(digits))
        } else {
            Err(ForeignMarkError)
        }
    }

    /// The mark as text, in hexadecimal digits.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("hexadecimal digits are ASCII")
    }
}

impl fmt::Display for ForeignMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ForeignMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForeignMark({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_forty_hexadecimal_digits() {
        let text = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(ForeignMark::new(text).unwrap().as_str(), text);
        let upper = text.to_uppercase();
        let longer = format!("{text}0");
        for wrong in ["", &text[1..], &longer, &upper, &text.replace('0', "g")] {
            assert_eq!(ForeignMark::new(wrong), Err(ForeignMarkError), "{wrong}");
        }
    }
}
