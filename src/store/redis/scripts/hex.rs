//! Bytes as the scripts keep them: two hexadecimal digits for each, in lower case.

use std::fmt::Write as _;

use crate::lock::TokenHash;

/// Writes bytes down.
pub(in crate::store::redis) fn write(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
    }
    text
}

/// Reads as many bytes as are expected; `None` if it is anything else.
pub(in crate::store::redis) fn read<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Reads what a lock holds, if it is of ours, and what a ticket is called.
pub(in crate::store::redis) fn token_hash(text: &str) -> Option<TokenHash> {
    read(text).map(TokenHash::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_their_own_text() {
        let bytes: [u8; 32] = std::array::from_fn(|i| u8::try_from(i * 8 + 7).unwrap());
        assert_eq!(read(&write(&bytes)), Some(bytes));
        let hash = TokenHash::from_bytes(bytes);
        assert_eq!(token_hash(&hash.to_string()), Some(hash));
        for bad in ["", "0", "+1", "0G", "0A", "000"] {
            assert_eq!(read::<1>(bad), None, "{bad}");
        }
    }
}
