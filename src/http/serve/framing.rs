//! Whether it is beyond doubt where a request ends.
//!
//! A proxy in front may read another end than we do, and take for the next request what is part of
//! this one, or the other way round. So what can be read in two ways is refused.

use http::{
    HeaderMap,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};

/// Finds header lines that say `Content-Length` in the bytes of a connection.
///
/// hyper hides this header where there is a `Transfer-Encoding` as well, so it must be seen before.
#[derive(Debug)]
pub(super) struct LengthLines {
    /// How much of [`NAME`] the current line has begun with; `None` if it is another line.
    matched: Option<usize>,
}

/// What such a line begins with. No white space is allowed before the colon.
const NAME: &[u8] = b"content-length:";

// === impl LengthLines ===

impl LengthLines {
    pub(super) fn new() -> Self {
        // A connection begins with a request line, which has no such name.
        Self { matched: None }
    }

    /// Counts the lines whose name has come whole with these bytes.
    pub(super) fn count(&mut self, mut bytes: &[u8]) -> u32 {
        let mut lines = 0;
        while let Some((&byte, rest)) = bytes.split_first() {
            match self.matched {
                Some(matched) if byte.eq_ignore_ascii_case(&NAME[matched]) => {
                    bytes = rest;
                    let whole = matched + 1 == NAME.len();
                    lines += u32::from(whole);
                    self.matched = (!whole).then_some(matched + 1);
                }
                // The byte may be a line end itself.
                Some(_) => self.matched = None,
                None => {
                    let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
                        break;
                    };
                    bytes = &bytes[end + 1..];
                    self.matched = Some(0);
                }
            }
        }
        lines
    }
}

/// Whether a request can be read in one way only. `unexplained` counts the lines that said
/// `Content-Length` and have not shown up as a header of a request so far; it is reduced by those of
/// this one.
///
/// A request that was sent ahead on the same connection may be blamed for what comes behind it: a
/// chunked one followed by one with a length. Nobody but an attacker sends these together.
pub(super) fn is_beyond_doubt(headers: &HeaderMap, unexplained: &mut u32) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => {
            if headers.contains_key(CONTENT_LENGTH) {
                *unexplained = unexplained.saturating_sub(1);
            }
            true
        }
        // Any other coding would have to be undone before the body can be read.
        (Some(coding), None) => {
            coding.as_bytes().eq_ignore_ascii_case(b"chunked") && *unexplained == 0
        }
        (Some(_), Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] =
        b"POST / HTTP/1.1\r\nHost: a\r\nCoNtent-LENGTH: 2\r\nX: content-length: 1\r\n\
                          X-Content-Length: 1\nContent-Length:3\r\n\r\n";

    #[test]
    fn lines_are_found_however_the_bytes_come() {
        assert_eq!(LengthLines::new().count(HEAD), 2);
        for piece in 1..HEAD.len() {
            let mut lines = LengthLines::new();
            let found: u32 = HEAD.chunks(piece).map(|piece| lines.count(piece)).sum();
            assert_eq!(found, 2, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_line_that_breaks_off_may_be_followed_by_one_that_does_not() {
        assert_eq!(LengthLines::new().count(b"\ncontent-\ncontent-length:"), 1);
        assert_eq!(LengthLines::new().count(b"content-length: 1"), 0);
    }
}
