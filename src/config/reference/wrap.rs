//! Breaks a text into lines.

/// The words of a text in lines of at most `width` characters, longer words alone.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_lines_and_keeps_words_whole() {
        assert_eq!(
            wrap("aa bb cc ddddddd e", 5),
            ["aa bb", "cc", "ddddddd", "e"]
        );
        assert!(wrap("", 5).is_empty());
    }
}
