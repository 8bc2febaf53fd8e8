//! A text that is searched for in names, owners and metadata.

use crate::TextError;

/// A text to be found anywhere in another, whatever the case of its letters: 1 to 200 characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchText {
    given: String,
    lower: String,
}

// === impl SearchText ===

impl SearchText {
    /// The longest text, in characters: as long as the longest name.
    pub const MAX_CHARS: usize = 200;

    /// Checks a text and takes it as one to search for.
    pub fn new(text: &str) -> Result<Self, TextError> {
        match text.chars().count() {
            0 => Err(TextError::Empty),
            chars if chars > Self::MAX_CHARS => Err(TextError::TooLong(chars, Self::MAX_CHARS)),
            _ => Ok(Self {
                given: text.to_owned(),
                lower: lower(text),
            }),
        }
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.given
    }

    /// Whether it is a part of another text.
    pub fn is_in(&self, text: &str) -> bool {
        lower(text).contains(&self.lower)
    }
}

/// Letter by letter: what a letter becomes must not depend on those around it, because a part is searched for.
fn lower(text: &str) -> String {
    if text.is_ascii() {
        text.to_ascii_lowercase()
    } else {
        text.chars().flat_map(char::to_lowercase).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_found_anywhere_whatever_the_case() {
        for (part, text, found) in [
            ("prod", "deploy:PROD:eu", true),
            ("PROD", "deploy:prod", true),
            ("ZOË", "zoë +1", true),
            ("ΟΔΟΣ", "ΟΔΟΣΑΣ", true),
            ("a b", "A  b", false),
            ("*", "deploy", false),
            (".", "deploy", false),
        ] {
            let search = SearchText::new(part).unwrap();
            assert_eq!(search.is_in(text), found, "{part} in {text}");
        }
    }

    #[test]
    fn has_one_to_two_hundred_characters() {
        assert_eq!(SearchText::new(""), Err(TextError::Empty));
        assert!(SearchText::new(&"ä".repeat(200)).is_ok());
        let long = SearchText::new(&"ä".repeat(201));
        assert_eq!(long, Err(TextError::TooLong(201, 200)));
    }
}
