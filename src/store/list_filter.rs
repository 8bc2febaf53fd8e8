//! The filter of a list of held locks.

use crate::lock::{LockName, NamePrefix, Owner, Said, SearchText};

/// The conditions that a lock must meet to be listed: all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListFilter {
    /// Prefix of the name of the lock.
    pub prefix: NamePrefix,
    /// Exact owner of the lease; a foreign client has no owner.
    pub owner: Option<Owner>,
    /// Text that the lock's name, or the owner or a metadata value of its lease, must contain.
    pub search: Option<SearchText>,
}

// === impl ListFilter ===

impl ListFilter {
    /// Whether the filter depends on more than the name of a lock.
    pub fn looks_at_leases(&self) -> bool {
        self.owner.is_some() || self.search.is_some()
    }

    /// Whether to list a lock that is held by a lease whose caller has said this of itself, or by a foreign client,
    /// which has said nothing. The caller has already compared the prefix, because stores find names by it.
    pub fn shows(&self, name: &LockName, said: Option<&Said>) -> bool {
        let owner = said.and_then(|said| said.owner.as_ref());
        if self.owner.is_some() && self.owner.as_ref() != owner {
            return false;
        }
        let Some(search) = &self.search else {
            return true;
        };
        let mut values = said.into_iter().flat_map(|said| said.metadata.iter());
        search.is_in(name.as_str())
            || owner.is_some_and(|owner| search.is_in(owner.as_str()))
            || values.any(|(_, value)| search.is_in(value))
    }
}

#[cfg(test)]
mod tests {
    use crate::lock::Metadata;

    use super::*;

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
        let shows = |search: &str, of: Option<&str>| {
            let filter = ListFilter {
                owner: of.map(|owner| Owner::new(owner).unwrap()),
                search: SearchText::new(search).ok(),
                ..ListFilter::default()
            };
            filter.shows(&name, Some(&said))
        };
        for found in ["PLOY", "runner", "example/47", ""] {
            assert!(shows(found, None), "{found}");
        }
        // `job` is the name of a metadata entry, which is not searched; the other texts would match only across two
        // texts.
        for missed in ["job", "prod7", "prodCI"] {
            assert!(!shows(missed, None), "{missed}");
        }
        assert!(shows("prod", Some("CI-runner 7")));
        assert!(!shows("prod", Some("ci-runner 7")));
        let foreign = ListFilter {
            search: SearchText::new("prod").ok(),
            ..ListFilter::default()
        };
        assert!(foreign.shows(&name, None));
    }
}
