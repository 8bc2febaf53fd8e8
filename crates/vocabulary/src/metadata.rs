//! Metadata: texts that a holder attaches to its lease.

use std::{collections::BTreeMap, sync::Arc};

/// The metadata of a lease: texts by name, at most 16 entries and 2 KiB, without control characters.
///
/// Metadata is shown to people, and never used for a decision. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata(Option<Arc<BTreeMap<String, String>>>);

/// Why a map of entries is not metadata.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// There are more than [`Metadata::MAX_ENTRIES`] entries.
    #[error("has {0} entries; at most 16 are allowed")]
    TooMany(usize),
    /// Names and values together have more than [`Metadata::MAX_BYTES`] bytes.
    #[error("has {0} bytes of names and values; at most 2048 are allowed")]
    TooLarge(usize),
    /// An entry has an empty name.
    #[error("has an entry with an empty name")]
    EmptyName,
    /// A name or a value holds a control character.
    #[error("has the control character {1:?} in its entry {0:?}")]
    Control(String, char),
}

// === impl Metadata ===

impl Metadata {
    /// The largest number of metadata entries of a lease.
    pub const MAX_ENTRIES: usize = 16;
    /// The largest size of all names and values together, in bytes.
    pub const MAX_BYTES: usize = 2048;

    /// Makes metadata of a map of entries. Fails if the entries are not metadata.
    pub fn new(entries: BTreeMap<String, String>) -> Result<Self, MetadataError> {
        if entries.len() > Self::MAX_ENTRIES {
            return Err(MetadataError::TooMany(entries.len()));
        }
        let bytes = entries
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if bytes > Self::MAX_BYTES {
            return Err(MetadataError::TooLarge(bytes));
        }
        for (name, value) in &entries {
            if name.is_empty() {
                return Err(MetadataError::EmptyName);
            }
            if let Some(c) = name.chars().chain(value.chars()).find(|c| c.is_control()) {
                return Err(MetadataError::Control(name.clone(), c));
            }
        }
        Ok(if entries.is_empty() {
            Self(None)
        } else {
            Self(Some(Arc::new(entries)))
        })
    }

    /// The metadata entries by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .flat_map(|map| map.iter())
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, String> {
        entries
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    #[test]
    fn is_bounded_in_entries_and_in_bytes() {
        let many = |n: usize| (0..n).map(|i| (i.to_string(), String::new())).collect();
        assert!(Metadata::new(many(16)).is_ok());
        assert_eq!(Metadata::new(many(17)), Err(MetadataError::TooMany(17)));
        assert!(Metadata::new(entries([("k", &"v".repeat(2047))])).is_ok());
        assert_eq!(
            Metadata::new(entries([("k", &"v".repeat(2048))])),
            Err(MetadataError::TooLarge(2049))
        );
    }

    #[test]
    fn refuses_empty_names_and_control_characters() {
        assert_eq!(
            Metadata::new(entries([("", "v")])),
            Err(MetadataError::EmptyName)
        );
        for (name, value) in [("a\u{1b}", "v"), ("a", "\r")] {
            assert!(matches!(
                Metadata::new(entries([(name, value)])),
                Err(MetadataError::Control(..))
            ));
        }
    }
}
