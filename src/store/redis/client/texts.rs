//! Texts in records and arguments of scripts: hexadecimal digits, numbers, what a caller says of itself, and requests to
//! release a lease.

use std::{collections::BTreeMap, time::Duration};

use crate::lock::{Owner, Reason, ReleaseRequest, Reservation, Said, Terms, TokenHash};

use super::super::fields::Layout;

// === Digits ===
//
// Each byte is written as two hexadecimal digits in lower case, and each number with as many decimal digits as its
// field has. Every command has several of them, so they are written without the machinery of `format!`.

/// Writes bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    append_hex(&mut text, bytes);
    text
}

/// Appends bytes to a text, as hexadecimal digits.
pub(crate) fn append_hex(text: &mut String, bytes: &[u8]) {
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

/// Appends a number to a text, in `DIGITS` decimal digits with leading zeros.
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

/// Reads `N` bytes from hexadecimal digits; `None` for any other text.
pub(crate) fn read_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
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

/// Reads the hash of a token from hexadecimal digits: the value of a lock that a gateway wrote, or the name of a
/// ticket.
pub(crate) fn token_hash(text: &str) -> Option<TokenHash> {
    read_hex(text).map(TokenHash::from_bytes)
}

// === Said ===
//
// The text for a [`Said`] in a record of a lease or a waiter: the owner, a line feed, and the metadata as JSON. One entry
// of the metadata, whose name is empty, has the group or the reservation of the lease. Scripts read only the time of a
// reservation.

/// Appends what the caller of these terms says of itself to a text.
pub(crate) fn append_said(text: &mut String, terms: &Terms) {
    let said = &terms.said;
    text.push_str(said.owner.as_ref().map_or("", Owner::as_str));
    text.push('\n');
    let ours = said.ours(terms.reservation());
    let mut entries = said.stored(ours.as_ref()).peekable();
    if entries.peek().is_some() {
        let entries: BTreeMap<&str, &str> = entries.collect();
        text.push_str(&serde_json::to_string(&entries).expect("texts by name are JSON"));
    }
}

/// Reads the two lines that [`append_said`] writes; `None` for any other text.
pub(crate) fn read_said(owner: &str, metadata: &str) -> Option<(Said, Option<Reservation>)> {
    let owner = (!owner.is_empty()).then(|| Owner::new(owner)).transpose();
    let entries: BTreeMap<String, String> = match metadata {
        "" => BTreeMap::new(),
        json => serde_json::from_str(json).ok()?,
    };
    Said::from_stored(owner.ok()?, entries).ok()
}

// === Requests ===

/// Layout of a release request: the time by which the lease must be released, in µs, or in ms in a quorum. The
/// requester and the reason follow this time.
pub(crate) const REQUEST: Layout = Layout {
    name: "request",
    groups: &[&[("ends", 16)]],
};

/// The requester and the reason of a release request, as a text that no script reads.
pub(crate) fn request_text(request: &ReleaseRequest) -> String {
    let by = request.by.as_deref();
    serde_json::to_string(&(by, request.reason.as_str())).expect("texts can be written")
}

/// Reads a release request; `None` for any other text. `within`: converts the number at the beginning of the text to
/// the time that is left.
pub(crate) fn read_request(
    text: &str,
    within: impl FnOnce(u64) -> Duration,
) -> Option<ReleaseRequest> {
    let (number, rest) = text.split_at_checked(const { REQUEST.place("ends").end })?;
    let (by, reason): (Option<String>, String) = serde_json::from_str(rest).ok()?;
    Some(ReleaseRequest {
        by: by.map(Into::into),
        reason: Reason::new(&reason).ok()?,
        within: within(number.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_their_own_text() {
        let bytes: [u8; 32] = std::array::from_fn(|i| u8::try_from(i * 8 + 7).unwrap());
        assert_eq!(read_hex(&hex(&bytes)), Some(bytes));
        let hash = TokenHash::from_bytes(bytes);
        assert_eq!(token_hash(&hash.to_string()), Some(hash));
        let mut number = String::new();
        append_number::<4>(&mut number, 42);
        append_number::<16>(&mut number, 9_007_199_254_740_991);
        assert_eq!(number, "00429007199254740991");
        for bad in ["", "0", "+1", "0G", "0A", "000"] {
            assert_eq!(read_hex::<1>(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_request_comes_back_from_its_text() {
        for by in [None, Some("ops \"1\"")] {
            let request = ReleaseRequest {
                by: by.map(Into::into),
                reason: Reason::new("a\"b\\").unwrap(),
                within: Duration::from_millis(7),
            };
            let text = format!("{:016}{}", 7, request_text(&request));
            assert!(!text.contains('\n'));
            assert_eq!(
                read_request(&text, Duration::from_millis),
                Some(request.clone())
            );
        }
        for odd in [
            "",
            "7",
            "0000000000000007",
            "000000000000000x[null,\"a\"]",
            "0000000000000007[null,\"\"]",
        ] {
            assert_eq!(read_request(odd, Duration::from_millis), None, "{odd}");
        }
    }
}
