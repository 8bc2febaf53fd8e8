//! What a caller says of itself when it asks for a lock, and how a store keeps it.

use std::collections::BTreeMap;

use crate::{Group, LockName, Metadata, MetadataError, Owner, Reservation};

/// What a caller says of itself: shown with its lease, and never used for a decision. Cheap to clone.
///
/// Requests, leases and stores carry it whole, so a new field touches none of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// The owner text, if the caller gave one.
    pub owner: Option<Owner>,
    /// The metadata that the caller attached to the lease.
    pub metadata: Metadata,
    /// The group of locks that the caller asked for, if the lease is a part of one.
    pub group: Option<Box<Group>>,
}

/// The name of the metadata entry in which a store keeps the group or the reservation of a lease. No entry of a caller
/// has this name.
const OURS: &str = "";

// === impl Said ===

impl Said {
    /// The entries that a store keeps for the metadata, in the order of their names: `ours`, which is made by
    /// [`Said::ours`], and the metadata entries of the caller.
    pub fn stored<'a>(
        &'a self,
        ours: Option<&'a String>,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let ours = ours.map(|text| (OURS, text.as_str()));
        ours.into_iter().chain(self.metadata.iter())
    }

    /// The text in which a store keeps the group or the reservation of a lease; `None` if the lease has neither.
    pub fn ours(&self, reservation: Option<&Reservation>) -> Option<String> {
        let group = || self.group.as_ref();
        let reservation = reservation.map(Reservation::stored);
        reservation.or_else(|| group().map(|it| format!("{} {}", it.count, it.first)))
    }

    /// Reads what [`Said::stored`] has returned. If the entry of the group or the reservation is damaged, it is ignored.
    pub fn from_stored(
        owner: Option<Owner>,
        mut entries: BTreeMap<String, String>,
    ) -> Result<(Self, Option<Reservation>), MetadataError> {
        let ours = entries.remove(OURS).unwrap_or_default();
        let said = Self {
            owner,
            metadata: Metadata::new(entries)?,
            group: read_group(&ours).map(Box::new),
        };
        Ok((said, Reservation::from_stored(&ours)))
    }
}

fn read_group(text: &str) -> Option<Group> {
    let (count, first) = text.split_once(' ')?;
    Some(Group {
        first: LockName::new(first).ok()?,
        count: count.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(said: &Said) -> BTreeMap<String, String> {
        let ours = said.ours(None);
        let entries = said.stored(ours.as_ref());
        entries
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn keeps_the_group_beside_the_metadata_and_shows_it_as_no_entry() {
        let group = Group {
            first: LockName::new("a:b/c").unwrap(),
            count: 3,
        };
        for shown in [
            BTreeMap::new(),
            BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        ] {
            let alone = Said {
                metadata: Metadata::new(shown.clone()).unwrap(),
                ..Said::default()
            };
            assert_eq!(stored(&alone), shown);
            let grouped = Said {
                group: Some(Box::new(group.clone())),
                ..alone.clone()
            };
            let kept = stored(&grouped);
            assert_eq!(kept[""], "3 a:b/c");
            assert_eq!(Said::from_stored(None, kept), Ok((grouped, None)));
            for odd in ["", "3", "x a", "300 a", "3 a//b", "@1"] {
                let mut kept = shown.clone();
                kept.insert(String::new(), odd.to_owned());
                let read = Said::from_stored(None, kept);
                assert_eq!(read, Ok((alone.clone(), None)), "{odd}");
            }
        }
    }
}
