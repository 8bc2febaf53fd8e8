//! Lock names and lock name prefixes.

use std::{borrow::Cow, fmt, sync::Arc};

/// The name of a lock: 1 to 200 bytes of ASCII letters, digits and `. _ : @ ~ - /`.
///
/// A name with `/` is a path of segments. In the path of a URL it is one segment, in which `/` is written `%2F`. A proxy
/// may decode `%2F`. Therefore no name is allowed that would then be the path of another lock: no segment is empty, `.`
/// or `..`, and the last of several segments is not in [`LockName::OPERATIONS`]. A name has no braces, because Redis
/// Cluster reads them as a hash tag. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

/// Why a text is not a lock name or a name prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The lock name is empty.
    #[error("is empty; a lock name has 1 to 200 characters")]
    Empty,
    /// The lock name or the prefix is longer than [`LockName::MAX_LEN`] bytes.
    #[error("has {0} bytes; a lock name has at most 200")]
    TooLong(usize),
    /// The lock name or the prefix has a character that lock names do not allow.
    #[error("has {0:?} in it; allowed are ASCII letters, digits and . _ : @ ~ - /")]
    Character(char),
    /// A segment is `.` or `..`.
    #[error("has the segment {0:?}, which HTTP clients and proxies remove from a path")]
    Dots(&'static str),
    /// A segment is empty.
    #[error(
        "begins or ends with a slash or has two in a row; proxies remove such a slash from a path"
    )]
    EmptySegment,
    /// The last of several segments is in [`LockName::OPERATIONS`].
    #[error(
        "ends in \"/{0}\", the path of an operation on a lock: if a proxy decodes %2F, the request reaches another lock"
    )]
    Operation(&'static str),
}

// === impl LockName ===

impl LockName {
    /// The maximum length of a lock name or a prefix, in bytes.
    pub const MAX_LEN: usize = 200;
    /// The last segments of the paths of operations: `/locks/NAME/renew` and so on. A lock name without `/` may be one
    /// of these words.
    pub const OPERATIONS: [&str; 7] = [
        "break",
        "check",
        "granted-order",
        "history",
        "hold",
        "release",
        "renew",
    ];

    /// Makes a lock name of a text. Fails if the text is not a lock name.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        let last = check(text)?;
        check_segment(last)?;
        match Self::OPERATIONS.into_iter().find(|&word| word == last) {
            Some(word) if last.len() < text.len() => Err(NameError::Operation(word)),
            _ => Ok(Self(text.into())),
        }
    }

    /// The lock name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The lock name as one segment of the path of a URL. All characters except `/` stand for themselves.
    pub fn segment(&self) -> Cow<'_, str> {
        if self.0.contains('/') {
            Cow::Owned(self.0.replace('/', "%2F"))
        } else {
            Cow::Borrowed(&self.0)
        }
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for LockName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

/// Checks the length and the characters of a lock name or a prefix, and all segments except the last, which may be the
/// beginning of a segment. Returns the last segment.
fn check(text: &str) -> Result<&str, NameError> {
    if text.len() > LockName::MAX_LEN {
        return Err(NameError::TooLong(text.len()));
    }
    let allows = |c: char| c.is_ascii_alphanumeric() || "._:@~-/".contains(c);
    if let Some(c) = text.chars().find(|&c| !allows(c)) {
        return Err(NameError::Character(c));
    }
    let Some((before, last)) = text.rsplit_once('/') else {
        return Ok(text);
    };
    before.split('/').try_for_each(check_segment)?;
    Ok(last)
}

fn check_segment(segment: &str) -> Result<(), NameError> {
    match segment {
        "" => Err(NameError::EmptySegment),
        "." => Err(NameError::Dots(".")),
        ".." => Err(NameError::Dots("..")),
        _ => Ok(()),
    }
}

// === Name prefix ===

/// A prefix of lock names: 0 to 200 bytes with which a lock name may begin. The empty prefix covers every lock name.
///
/// A prefix is a text: `ci` covers `ci`, `ci/build` and `cinema`, and `ci/` covers `ci/build` only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NamePrefix(String);

// === impl NamePrefix ===

impl NamePrefix {
    /// Makes a prefix of a text. Fails if the text is not a prefix of lock names.
    pub fn new(text: &str) -> Result<Self, NameError> {
        check(text)?;
        Ok(Self(text.to_owned()))
    }

    /// The prefix as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the lock name begins with this prefix.
    pub fn covers(&self, name: &LockName) -> bool {
        name.as_str().starts_with(&self.0)
    }

    /// Whether this prefix covers every lock name that `other` covers.
    pub fn covers_all(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_every_allowed_character_up_to_the_longest() {
        let longest = "a".repeat(LockName::MAX_LEN);
        for name in [
            "a",
            "deploy:prod:eu",
            "Az09._:@~-",
            "...",
            ".a",
            "acme/web",
            "state/prod/network",
            ".../.a/..b/a.",
            "renew",
            "renew/a",
            "a/renewal",
            "a/Renew",
            "a/hold:1",
            longest.as_str(),
        ] {
            assert_eq!(LockName::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn refuses_what_a_path_or_a_cluster_would_read_differently() {
        assert_eq!(LockName::new(""), Err(NameError::Empty));
        assert_eq!(LockName::new("."), Err(NameError::Dots(".")));
        assert_eq!(LockName::new(".."), Err(NameError::Dots("..")));
        assert_eq!(
            LockName::new(&"a".repeat(201)),
            Err(NameError::TooLong(201))
        );
        for name in ["/", "//", "/a", "a/", "a//b", "a/b//", "/."] {
            assert_eq!(LockName::new(name), Err(NameError::EmptySegment), "{name}");
        }
        for (name, dots) in [
            ("a/.", "."),
            ("./a", "."),
            ("a/../b", ".."),
            ("../renew", ".."),
        ] {
            assert_eq!(LockName::new(name), Err(NameError::Dots(dots)), "{name}");
        }
        for word in LockName::OPERATIONS {
            for name in [
                format!("a/{word}"),
                format!("a/b/{word}"),
                format!("{word}/{word}"),
            ] {
                assert_eq!(
                    LockName::new(&name),
                    Err(NameError::Operation(word)),
                    "{name}"
                );
            }
        }
        for (name, c) in [
            (r"a\b", '\\'),
            ("a%2Fb", '%'),
            ("{a}", '{'),
            ("a b", ' '),
            ("a\0", '\0'),
            ("ä", 'ä'),
        ] {
            assert_eq!(LockName::new(name), Err(NameError::Character(c)));
        }
    }

    #[test]
    fn is_one_segment_of_a_path() {
        for (name, segment) in [("a:b@c", "a:b@c"), ("acme/web/eu", "acme%2Fweb%2Feu")] {
            assert_eq!(LockName::new(name).unwrap().segment(), segment);
        }
    }

    #[test]
    fn covers_the_names_that_begin_so() {
        let name = |text| LockName::new(text).unwrap();
        let prefix = NamePrefix::new("team").unwrap();
        for (text, covered) in [
            ("team", true),
            ("team2:a", true),
            ("team/a", true),
            ("tea", false),
        ] {
            assert_eq!(prefix.covers(&name(text)), covered, "{text}");
        }
        assert!(NamePrefix::default().covers(&name("a")));
        for (text, covered) in [
            ("team", true),
            ("team2:", true),
            ("team/", true),
            ("tea", false),
            ("", false),
        ] {
            let other = NamePrefix::new(text).unwrap();
            assert_eq!(prefix.covers_all(&other), covered, "{text}");
        }
    }

    #[test]
    fn takes_the_beginnings_of_names_and_nothing_else() {
        let longest = "a".repeat(LockName::MAX_LEN);
        for text in [
            "",
            ".",
            "..",
            "deploy:",
            "acme/",
            "acme/w",
            "a/..",
            "a/renew",
            longest.as_str(),
        ] {
            assert_eq!(NamePrefix::new(text).unwrap().as_str(), text);
        }
        for text in ["/", "/a", "a//", "a//b"] {
            assert_eq!(
                NamePrefix::new(text),
                Err(NameError::EmptySegment),
                "{text}"
            );
        }
        for text in ["../", "a/../", "../a"] {
            assert_eq!(NamePrefix::new(text), Err(NameError::Dots("..")), "{text}");
        }
        assert_eq!(
            NamePrefix::new(&"a".repeat(LockName::MAX_LEN + 1)),
            Err(NameError::TooLong(201))
        );
        // These characters belong to glob patterns or Redis hash tags.
        for c in ['*', '?', '[', ']', '^', '\\', '{', '}', ' ', 'ä'] {
            assert_eq!(
                NamePrefix::new(&format!("a{c}")),
                Err(NameError::Character(c))
            );
        }
    }
}
