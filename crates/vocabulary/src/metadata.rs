//! Metadata: texts that a holder attaches to its lease.

use std::{collections::BTreeMap, sync::Arc};

use crate::{Group, LockName, Reservation};

/// The metadata of a lease: texts by name, at most 16 entries and 2 KiB, without control characters.
///
/// Metadata is shown to people, and never used for a decision. Cheap to clone.
///
/// The group or the reservation of a lease is stored together with its metadata, as an entry with an empty name, which a
/// caller cannot use. Only gateways read a group, so a store need not know groups.
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

/// The name of the metadata entry that stores the group or the reservation of a lease.
const OURS: &str = "";

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

    /// The metadata entries by name, without the entry that stores the group or the reservation.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stored().filter(|(name, _)| *name != OURS)
    }

    /// The group to which the lease belongs, if any.
    pub fn group(&self) -> Option<Group> {
        let (count, first) = self.0.as_ref()?.get(OURS)?.split_once(' ')?;
        Some(Group {
            first: LockName::new(first).ok()?,
            count: count.parse().ok()?,
        })
    }

    /// The same metadata for a lease that belongs to this group.
    #[must_use]
    pub fn of_group(&self, group: &Group) -> Self {
        let Group { first, count } = group;
        self.with_ours(format!("{count} {first}"))
    }

    /// The reservation that the lease is, if it is one.
    pub fn reservation(&self) -> Option<Reservation> {
        Reservation::from_stored(self.0.as_ref()?.get(OURS)?)
    }

    /// The same metadata for a lease that is this reservation.
    #[must_use]
    pub fn of_reservation(&self, reservation: &Reservation) -> Self {
        self.with_ours(reservation.stored())
    }

    fn with_ours(&self, text: String) -> Self {
        let mut entries = self.0.as_deref().cloned().unwrap_or_default();
        entries.insert(OURS.to_owned(), text);
        Self(Some(Arc::new(entries)))
    }

    /// All metadata entries that a store keeps, including the entry of the group or the reservation.
    pub fn stored(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .flat_map(|map| map.iter())
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Makes metadata of the entries that a store has kept. If the entry with the empty name is damaged, it is ignored.
    pub fn from_stored(mut entries: BTreeMap<String, String>) -> Result<Self, MetadataError> {
        let ours = entries.remove(OURS);
        let metadata = Self::new(entries)?;
        let with_ours = ours.map(|text| metadata.with_ours(text));
        let with_ours = with_ours.filter(|it| it.group().is_some() || it.reservation().is_some());
        Ok(with_ours.unwrap_or(metadata))
    }

    /// Whether a store has no metadata entries to keep, not even the entry of a group or a reservation.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
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
    fn keeps_the_group_beside_its_entries_and_shows_it_as_none_of_them() {
        let group = Group {
            first: LockName::new("a:b/c").unwrap(),
            count: 3,
        };
        for shown in [entries([]), entries([("k", "v")])] {
            let metadata = Metadata::new(shown.clone()).unwrap();
            assert_eq!(metadata.group(), None);
            let grouped = metadata.of_group(&group);
            assert_eq!(grouped.group().as_ref(), Some(&group));
            assert!(grouped.iter().eq(metadata.iter()) && !grouped.is_empty());
            let stored: BTreeMap<_, _> = grouped
                .stored()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            assert_eq!(Metadata::from_stored(stored), Ok(grouped));
            assert_eq!(Metadata::from_stored(shown.clone()), Ok(metadata.clone()));
            for odd in ["", "3", "x a", "300 a", "3 a//b"] {
                let mut stored = shown.clone();
                stored.insert(String::new(), odd.to_owned());
                assert_eq!(Metadata::from_stored(stored), Ok(metadata.clone()), "{odd}");
            }
        }
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
