//! Bytes and numbers as the scripts keep them: bytes as two hexadecimal digits each, in lower case; numbers in
//! as many decimal digits as their place has.
//!
//! Each command has several of them, so they are written without the machinery of `format!`.

use crate::lock::TokenHash;

/// Writes bytes down.
pub(crate) fn write(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    append(&mut text, bytes);
    text
}

/// Writes bytes down behind a text.
pub(crate) fn append(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for bytes in bytes.chunks(32) {
        let mut digits = [0; 64];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        text.push_str(ascii(&digits[..2 * bytes.len()]));
    }
}

/// Writes a number down behind a text, in `DIGITS` digits with zeros first.
pub(crate) fn append_number<const DIGITS: usize>(text: &mut String, number: u64) {
    let (mut digits, mut rest) = ([b'0'; DIGITS], number);
    for digit in digits.iter_mut().rev() {
        *digit += u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
    }
    debug_assert_eq!(rest, 0, "{number} has more than {DIGITS} digits");
    text.push_str(ascii(&digits));
}

fn ascii(digits: &[u8]) -> &str {
    std::str::from_utf8(digits).expect("digits are ASCII")
}

/// Reads as many bytes as are expected; `None` if it is anything else.
pub(crate) fn read<const N: usize>(text: &str) -> Option<[u8; N]> {
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
pub(crate) fn token_hash(text: &str) -> Option<TokenHash> {
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
        let mut number = String::new();
        append_number::<4>(&mut number, 42);
        append_number::<16>(&mut number, 9_007_199_254_740_991);
        assert_eq!(number, "00429007199254740991");
        for bad in ["", "0", "+1", "0G", "0A", "000"] {
            assert_eq!(read::<1>(bad), None, "{bad}");
        }
    }
}
