//! The search for a text in lock names, owners and metadata.

use crate::TextError;

/// The text of a search: 1 to 200 characters, found anywhere in another text, ignoring case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchText {
    given: String,
    lower: String,
}

// === impl SearchText ===

impl SearchText {
    /// The maximum length of a search text, in characters: the maximum length of a lock name.
    pub const MAX_CHARS: usize = 200;

    /// Makes a search text. Fails if the text is empty, too long or has a control character.
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

    /// The search text with its case as the caller gave it.
    pub fn as_str(&self) -> &str {
        &self.given
    }

    /// Whether `text` contains the search text, ignoring case.
    pub fn is_in(&self, text: &str) -> bool {
        lower(text).contains(&self.lower)
    }
}

/// The text in lower case, converted letter by letter. A conversion of whole words may change a letter depending on its
/// neighbours (a final sigma in Greek), and a part of the word would then not be found.
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
