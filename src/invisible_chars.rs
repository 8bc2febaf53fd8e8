//! Escapes invisible characters, which can make a text look like another.

use std::{borrow::Cow, fmt::Write};

/// Whether a character is invisible: it controls a terminal, changes the direction of writing, ends a line for some
/// readers, or has no width. ASCII control characters do not count, because every writer of lines handles them
/// anyway.
pub fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{7f}'..='\u{9f}'
            | '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// JSON with every invisible character escaped. Such characters occur only in JSON strings.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    escape(json, is_invisible, |escaped, c| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            write!(escaped, "\\u{unit:04x}").expect("writing to a String never fails");
        }
    })
}

/// Returns a text with every invisible character replaced by its escape.
pub fn escape_text(text: &str) -> Cow<'_, str> {
    let name = |escaped: &mut String, c: char| escaped.extend(c.escape_unicode());
    escape(text, is_invisible, name)
}

/// A text for a terminal with every invisible character and every control character replaced by its escape.
pub fn escape_controls(text: &str) -> Cow<'_, str> {
    let is_hidden = |c: char| c.is_control() || is_invisible(c);
    let name = |escaped: &mut String, c: char| escaped.extend(c.escape_unicode());
    escape(text, is_hidden, name)
}

fn escape(
    text: &str,
    is_hidden: impl Fn(char) -> bool,
    name: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    if !text.contains(&is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(2 * text.len());
    for c in text.chars() {
        if is_hidden(c) {
            name(&mut escaped, c);
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_is_left_as_it_is() {
        for text in ["ci@build7\n", "Zoë 日本 مرحبا שלום 🔒", "a\u{301}"] {
            assert_eq!(escape_text(text), text);
            assert_eq!(escape_json(text), text);
            assert_eq!(escape_controls(text.trim_end()), text.trim_end());
        }
    }

    #[test]
    fn json_is_read_as_the_text_that_it_was() {
        let text = "\u{202e}gpj\u{2066}\u{2028}\u{9b}a\u{200d}\u{e0041}é";
        let json = serde_json::to_string(text).unwrap();
        let escaped = escape_json(&json);
        assert!(!escaped.contains(is_invisible), "{escaped}");
        assert!(escaped.starts_with(r#""\u202egpj\u2066"#), "{escaped}");
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
    }

    #[test]
    fn a_terminal_is_moved_by_nothing() {
        let text = "a\u{202e}b\u{1b}[2J\n";
        assert_eq!(escape_controls(text), r"a\u{202e}b\u{1b}[2J\u{a}");
        for c in [
            '\u{200d}',
            '\u{2066}',
            '\u{feff}',
            '\u{e0041}',
            '\u{9b}',
            '\u{2028}',
        ] {
            assert!(escape_controls(&c.to_string()).is_ascii(), "{c:?}");
        }
    }

    #[test]
    fn text_names_what_is_not_seen() {
        assert_eq!(escape_text("a\u{202e}b\n"), "a\\u{202e}b\n");
    }
}
