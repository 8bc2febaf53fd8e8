//! What a caller says of itself when it asks for a lock, and how a store keeps it.

use std::collections::BTreeMap;

use crate::{
    CollectionMark, Group, LockName, Metadata, MetadataError, Order, Owner, Reservation, Ttl,
};

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
        let group = self.group.as_deref().map(write_group);
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

/// `COUNT FIRST`, and with a mark `COUNT FIRST TTL ID` and the next name, if there is one. Gateways that do not know the
/// mark read no group.
fn write_group(group: &Group) -> String {
    let Group { first, count, mark } = group;
    let Some(CollectionMark { ttl, id, next }) = mark else {
        return format!("{count} {first}");
    };
    let next = next.as_ref().map(|name| format!(" {name}"));
    let next = next.unwrap_or_default();
    format!("{count} {first} {} {id:x}{next}", ttl.as_millis())
}

fn read_group(text: &str) -> Option<Group> {
    let mut words = text.split(' ');
    let (count, first) = (words.next()?, words.next()?);
    let mark = match words.next() {
        None => None,
        Some(ttl) => Some(CollectionMark {
            ttl: Ttl::from_millis(ttl.parse().ok()?).ok()?,
            id: u32::from_str_radix(words.next()?, 16).ok()?,
            next: words.next().map(LockName::new).transpose().ok()?,
        }),
    };
    Some(Group {
        first: LockName::new(first).ok()?,
        count: count.parse().ok()?,
        mark,
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
            mark: None,
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
            for (next, text) in [
                (Some("b"), "3 a:b/c 30000 ff b"),
                (None, "3 a:b/c 30000 ff"),
            ] {
                let mark = CollectionMark {
                    ttl: Ttl::from_millis(30_000).unwrap(),
                    id: 255,
                    next: next.map(|name| LockName::new(name).unwrap()),
                };
                let group = Group {
                    mark: Some(mark),
                    ..group.clone()
                };
                let marked = Said {
                    group: Some(Box::new(group)),
                    ..alone.clone()
                };
                let kept = stored(&marked);
                assert_eq!(kept[""], text);
                assert_eq!(Said::from_stored(None, kept), Ok((marked, None)));
            }
            let ordered = Said {
                order: Order::from_stored("#0000000000000007\tci\t\t").map(|it| Box::new(it.0)),
                ..grouped
            };
            let kept = stored(&ordered);
            assert_eq!(kept[""], "#0000000000000007\tci\t\t3 a:b/c");
            assert_eq!(Said::from_stored(None, kept), Ok((ordered, None)));
            for odd in [
                "",
                "3",
                "x a",
                "300 a",
                "3 a//b",
                "@1",
                "3 a ",
                "3 a 9",
                "3 a 30000 g",
                "3 a 30000 f b//c",
            ] {
                let mut kept = shown.clone();
                kept.insert(String::new(), odd.to_owned());
                let read = Said::from_stored(None, kept);
                assert_eq!(read, Ok((alone.clone(), None)), "{odd}");
            }
        }
    }
}
