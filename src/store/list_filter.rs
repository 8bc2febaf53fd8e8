//! The filter of a list of held locks.

use crate::lock::{LockName, Metadata, NamePrefix, Owner, Said, SearchText};

/// The conditions that a lock must meet to be listed: all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListFilter {
    /// Prefix of the name of the lock.
    pub prefix: NamePrefix,
    /// Exact owner of the lease; a foreign client has no owner.
    pub owner: Option<Owner>,
    /// Text that the lock's name, or the owner or a metadata value of its lease or of one of its first waiters, must
    /// contain.
    pub search: Option<SearchText>,
}

/// Whether a list shows a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// The list shows the lock. `Found`: where the search text is, if it is not in the name.
    Yes(Option<Found>),
    /// The list shows the lock if one of its waiters has the search text ([`ListFilter::find_waiter`]).
    ByWaiter,
    /// The list does not show the lock.
    No,
}

/// Where a list has found the search text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Whether a waiter has the text, and not a holder.
    pub is_waiter: bool,
    /// The name of the metadata entry; `None` if the owner has the text.
    pub entry: Option<String>,
    /// The owner or the value of the metadata entry, whole.
    pub value: String,
}

// === impl ListFilter ===

impl ListFilter {
    /// Whether the filter depends on more than the name of a lock.
    pub fn looks_at_leases(&self) -> bool {
        self.owner.is_some() || self.search.is_some()
    }

    /// Whether to list a lock that is held by leases whose callers have said this of themselves, or by a foreign client,
    /// which has said nothing. The caller has already compared the prefix, because stores find names by it.
    pub fn shows<'a>(
        &self,
        name: &LockName,
        leases: impl Iterator<Item = Option<&'a Said>>,
    ) -> Shown {
        let mut shown = Shown::No;
        for said in leases {
            let owner = said.and_then(|said| said.owner.as_ref());
            if self.owner.is_some() && self.owner.as_ref() != owner {
                continue;
            }
            let Some(search) = &self.search else {
                return Shown::Yes(None);
            };
            if search.is_in(name.as_str()) {
                return Shown::Yes(None);
            }
            if let Some(found) = said.and_then(|said| find(search, owner, &said.metadata, false)) {
                return Shown::Yes(Some(found));
            }
            shown = Shown::ByWaiter;
        }
        shown
    }

    /// Where the first of these waiters has the search text, by what each has said of itself.
    pub fn find_waiter<'a>(
        &self,
        mut waiters: impl Iterator<Item = (Option<&'a Owner>, &'a Metadata)>,
    ) -> Option<Found> {
        let search = self.search.as_ref()?;
        waiters.find_map(|(owner, metadata)| find(search, owner, metadata, true))
    }
}

fn find(
    search: &SearchText,
    owner: Option<&Owner>,
    metadata: &Metadata,
    is_waiter: bool,
) -> Option<Found> {
    let owner = owner.map(|owner| (None, owner.as_str()));
    let entries = metadata.iter().map(|(name, value)| (Some(name), value));
    let mut texts = owner.into_iter().chain(entries);
    let (entry, value) = texts.find(|(_, text)| search.is_in(text))?;
    Some(Found {
        is_waiter,
        entry: entry.map(str::to_owned),
        value: value.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(text: &str) -> ListFilter {
        ListFilter {
            search: SearchText::new(text).ok(),
            ..ListFilter::default()
        }
    }

    #[test]
    fn a_search_looks_into_name_owner_and_values_and_an_owner_is_exact() {
        let name = LockName::new("deploy:prod").unwrap();
        let owner = Owner::new("CI-runner 7").unwrap();
        let entries = [("job".to_owned(), "https://ci.example/4711".to_owned())];
        let said = Said {
            owner: Some(owner),
            metadata: Metadata::new(entries.into()).unwrap(),
            group: None,
            order: None,
        };
        let shows = |text: &str, of: Option<&str>| {
            let filter = ListFilter {
                owner: of.map(|owner| Owner::new(owner).unwrap()),
                ..search(text)
            };
            filter.shows(&name, [Some(&Said::default()), Some(&said)].into_iter())
        };
        let found = |entry: Option<&str>, value: &str| {
            Shown::Yes(Some(Found {
                is_waiter: false,
                entry: entry.map(str::to_owned),
                value: value.to_owned(),
            }))
        };
        assert_eq!(shows("PLOY", None), Shown::Yes(None));
        assert_eq!(shows("", None), Shown::Yes(None));
        assert_eq!(shows("runner", None), found(None, "CI-runner 7"));
        let job = found(Some("job"), "https://ci.example/4711");
        assert_eq!(shows("example/47", None), job);
        // `job` is the name of a metadata entry, which is not searched; the other texts would match only across two
        // texts.
        for missed in ["job", "prod7", "prodCI"] {
            assert_eq!(shows(missed, None), Shown::ByWaiter, "{missed}");
        }
        assert_eq!(shows("prod", Some("CI-runner 7")), Shown::Yes(None));
        assert_eq!(shows("prod", Some("ci-runner 7")), Shown::No);
        let foreign = search("prod").shows(&name, [None].into_iter());
        assert_eq!(foreign, Shown::Yes(None));
    }

    #[test]
    fn a_search_finds_the_first_waiter_that_has_the_text() {
        let waiter = |owner: &str, job: &str| {
            let entries = [("job".to_owned(), job.to_owned())];
            (
                Owner::new(owner).ok(),
                Metadata::new(entries.into()).unwrap(),
            )
        };
        let waiters = [waiter("ci-7", "4711"), waiter("ci-8", "4712")];
        let said = || {
            waiters
                .iter()
                .map(|(owner, metadata)| (owner.as_ref(), metadata))
        };
        let found = |text| search(text).find_waiter(said());
        let second = Found {
            is_waiter: true,
            entry: Some("job".to_owned()),
            value: "4712".to_owned(),
        };
        assert_eq!(found("12"), Some(second));
        assert_eq!(found("CI-").unwrap().value, "ci-7");
        assert_eq!(found("other"), None);
        assert_eq!(ListFilter::default().find_waiter(said()), None);
    }
}
