//! Shows texts of others on a terminal so that they cannot pretend to be something else.

use std::borrow::Cow;

use crate::invisible_chars::is_invisible;

/// The text with everything escaped that is not seen: what moves a terminal, turns the direction of
/// writing around, or takes no room.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(2 * text.len());
    for c in text.chars() {
        if is_hidden(c) {
            escaped.extend(c.escape_unicode());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

fn is_hidden(c: char) -> bool {
    c.is_control() || is_invisible(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_is_left_as_it_is() {
        for text in ["ci@build7", "Zoë 日本 مرحبا שלום 🔒", "a\u{301}"] {
            assert_eq!(visible(text), text);
        }
    }

    #[test]
    fn what_is_not_seen_is_named() {
        assert_eq!(
            visible("a\u{202e}b\u{1b}[2J\n"),
            r"a\u{202e}b\u{1b}[2J\u{a}"
        );
        for c in [
            '\u{200d}',
            '\u{2066}',
            '\u{feff}',
            '\u{e0041}',
            '\u{9b}',
            '\u{2028}',
        ] {
            assert!(visible(&c.to_string()).is_ascii(), "{c:?}");
        }
    }
}
