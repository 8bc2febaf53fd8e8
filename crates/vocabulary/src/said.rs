//! What a caller says of itself when it asks for a lock, and how a store keeps it.

use std::collections::BTreeMap;

use crate::{Group, LockName, Metadata, MetadataError, Order, Owner, Reservation};

/// What a caller says of itself and its work: shown with its lease. Only the order is used for a decision. Cheap to
/// clone.
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
    /// The order of the work for which the caller asks for the lock, if it gave one.
    pub order: Option<Box<Order>>,
}

/// The name of the metadata entry in which a store keeps the group, the order or the reservation of a lease. No entry of
/// a caller has this name.
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

    /// The text in which a store keeps the reservation of a lease, or its group and its order; `None` if the lease has
    /// none of them.
    pub fn ours(&self, reservation: Option<&Reservation>) -> Option<String> {
        if let Some(reservation) = reservation {
            return Some(reservation.stored());
        }
        let group = self.group.as_ref();
        let group = group.map(|it| format!("{} {}", it.count, it.first));
        match &self.order {
            Some(order) => Some(order.stored(group.as_deref().unwrap_or_default())),
            None => group,
        }
    }

    /// Reads what [`Said::stored`] has returned. If the entry of the group, the order or the reservation is damaged, it
    /// is ignored.
    pub fn from_stored(
        owner: Option<Owner>,
        mut entries: BTreeMap<String, String>,
    ) -> Result<(Self, Option<Reservation>), MetadataError> {
        let ours = entries.remove(OURS).unwrap_or_default();
        let (order, group) =
            Order::from_stored(&ours).map_or((None, &*ours), |(order, group)| (Some(order), group));
        let said = Self {
            owner,
            metadata: Metadata::new(entries)?,
            group: read_group(group).map(Box::new),
            order: order.map(Box::new),
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
            assert_eq!(Said::from_stored(None, kept), Ok((grouped.clone(), None)));
            let ordered = Said {
                order: Order::from_stored("#0000000000000007\tci\t\t").map(|it| Box::new(it.0)),
                ..grouped
            };
            let kept = stored(&ordered);
            assert_eq!(kept[""], "#0000000000000007\tci\t\t3 a:b/c");
            assert_eq!(Said::from_stored(None, kept), Ok((ordered, None)));
            for odd in ["", "3", "x a", "300 a", "3 a//b", "@1"] {
                let mut kept = shown.clone();
                kept.insert(String::new(), odd.to_owned());
                let read = Said::from_stored(None, kept);
                assert_eq!(read, Ok((alone.clone(), None)), "{odd}");
            }
        }
    }
}
