//! Permissions of API keys, and the lock names on which a key has them.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::lock::{LockName, NamePrefix};

/// A permission of an API key. A new permission needs a variant, an entry of [`Permission::ALL`] and a row of
/// [`Permission::row`]: keys file, command line and session read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Acquire, hold and renew locks, per name.
    Acquire,
    /// Inspect and list locks, and listen to events, per name.
    View,
    /// Break locks, per name.
    Break,
    /// Reserve locks until a time, per name, together with [`Permission::Acquire`].
    Reserve,
    /// Go back to older work, and set the order that locks remember, per name.
    Order,
    /// Check fencing tokens, per name.
    Check,
    /// Read metrics.
    Metrics,
}

/// The name of a permission, and what it allows.
#[derive(Debug, Clone, Copy)]
pub struct PermissionRow {
    /// The name of the permission in a keys file.
    pub name: &'static str,
    /// Whether the permission is granted for lock names; if not, it is granted as a whole or not.
    pub is_per_name: bool,
    /// What a key with the permission may do, to be read after "may".
    pub allows: &'static str,
}

/// The permissions of an API key: for each permission the lock names on which it is granted. A permission that is not
/// per name is granted for all names or for none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions([Prefixes; Permission::ALL.len()]);

/// A permission as a type, so that the signature of a handler shows which permission its caller needs.
pub trait Scope: Send + Sync + 'static {
    /// The permission that the caller needs; `None` if any key suffices.
    const PERMISSION: Option<Permission>;
    /// A permission that lets the caller through as well: the handler decides what the caller may do with it.
    const OR: Option<Permission> = None;
    /// Whether each request is counted against the rate of the key.
    const IS_COUNTED: bool = true;
    /// Whether the requests keep leases, which a caller may do for longer than it may acquire them.
    const RENEWS: bool = false;
}

/// The permissions as types, which handlers name in their signatures.
pub mod scope {
    use super::{Permission, Scope};

    /// The caller needs [`Permission::Acquire`].
    #[derive(Debug)]
    pub enum Acquire {}
    /// The caller needs [`Permission::Acquire`] for a lease that it may already have. These requests are not counted
    /// against the rate of the key, because a limit must never cost a holder its lock.
    #[derive(Debug)]
    pub enum Keep {}
    /// The caller needs [`Permission::View`].
    #[derive(Debug)]
    pub enum View {}
    /// The caller needs [`Permission::Break`], or [`Permission::Acquire`] to end its own reservation.
    #[derive(Debug)]
    pub enum Break {}
    /// The caller needs [`Permission::Order`].
    #[derive(Debug)]
    pub enum Order {}
    /// The caller needs [`Permission::Check`]. These requests have a limit of their own.
    #[derive(Debug)]
    pub enum Check {}
    /// The caller needs [`Permission::Metrics`].
    #[derive(Debug)]
    pub enum Metrics {}
    /// The caller needs any API key. The handler decides what the key may see.
    #[derive(Debug)]
    pub enum AnyKey {}

    impl Scope for Acquire {
        const PERMISSION: Option<Permission> = Some(Permission::Acquire);
    }
    impl Scope for Keep {
        const PERMISSION: Option<Permission> = Some(Permission::Acquire);
        const IS_COUNTED: bool = false;
        const RENEWS: bool = true;
    }
    impl Scope for View {
        const PERMISSION: Option<Permission> = Some(Permission::View);
    }
    impl Scope for Break {
        const PERMISSION: Option<Permission> = Some(Permission::Break);
        const OR: Option<Permission> = Some(Permission::Acquire);
    }
    impl Scope for Order {
        const PERMISSION: Option<Permission> = Some(Permission::Order);
    }
    impl Scope for Check {
        const PERMISSION: Option<Permission> = Some(Permission::Check);
        const IS_COUNTED: bool = false;
    }
    impl Scope for Metrics {
        const PERMISSION: Option<Permission> = Some(Permission::Metrics);
    }
    impl Scope for AnyKey {
        const PERMISSION: Option<Permission> = None;
    }
}

// === impl Permission ===

impl Permission {
    /// All permissions, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::Acquire,
        Self::View,
        Self::Break,
        Self::Reserve,
        Self::Order,
        Self::Check,
        Self::Metrics,
    ];

    /// Whether the lock names of the permission may have claims of an ID token in them. A program must not gain the right
    /// to end the leases of others by a claim.
    pub(super) fn takes_claims(self) -> bool {
        matches!(self, Self::Acquire | Self::View | Self::Reserve)
    }

    /// The name of the permission, and what it allows.
    pub fn row(self) -> PermissionRow {
        let (name, is_per_name, allows) = match self {
            Self::Acquire => ("acquire", true, "acquire, hold and renew"),
            Self::View => ("view", true, "inspect, list and read events of"),
            Self::Break => ("break", true, "break"),
            Self::Reserve => ("reserve", true, "reserve until a time"),
            Self::Order => ("order", true, "roll back, and set the order of"),
            Self::Check => ("check", true, "check fencing tokens of"),
            Self::Metrics => ("metrics", false, "read metrics"),
        };
        PermissionRow {
            name,
            is_per_name,
            allows,
        }
    }
}

// === impl Permissions ===

impl Permissions {
    /// All permissions on every lock name.
    pub fn all() -> Self {
        Self(Permission::ALL.map(|_| Prefixes::all()))
    }

    /// The lock names on which a permission is granted.
    pub fn names(&self, permission: Permission) -> &Prefixes {
        &self.0[permission as usize]
    }

    /// Grants a permission on these lock names.
    pub fn grant(&mut self, permission: Permission, names: Prefixes) {
        self.0[permission as usize] = names;
    }

    /// Whether a permission is granted on a name; without a name, whether it is granted on any.
    pub fn permits(&self, permission: Permission, name: Option<&LockName>) -> bool {
        let names = self.names(permission);
        name.map_or(!names.is_empty(), |name| names.contains(name))
    }
}

/// Writes the permissions as a keys file has them: a list of prefixes, or `true` or `false`.
impl Serialize for Permissions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Granted<'a> {
            Names(Vec<&'a str>),
            Whole(bool),
        }
        serializer.collect_map(Permission::ALL.map(|permission| {
            let (row, names) = (permission.row(), self.names(permission));
            let granted = if row.is_per_name {
                Granted::Names(names.iter().collect())
            } else {
                Granted::Whole(!names.is_empty())
            };
            (row.name, granted)
        }))
    }
}

// === Prefixes ===
//
// The lock names on which a key has a permission.

/// A set of lock names, as prefixes: a name is in the set if it begins with one of the prefixes.
///
/// Prefixes are compared as texts, so `team` also covers `team2`: a prefix should end in `:` or `/`. `*` covers every
/// name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefixes(Vec<NamePrefix>);

/// Why a text is no prefix of lock names, to be read after that text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the beginning of a lock name, such as deploy: with the colon or acme/ with the slash, or * alone for every name"
)]
pub struct PrefixError;

/// The text that covers every lock name. An empty text is refused, because it may be a mistake.
const ALL: &str = "*";

// === impl Prefixes ===

impl Prefixes {
    /// The set of all lock names.
    pub fn all() -> Self {
        Self(vec![NamePrefix::default()])
    }

    /// Makes a set of lock names from the texts of its prefixes.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, PrefixError> {
        let prefix = |text: &'a str| match text {
            ALL => Ok(NamePrefix::default()),
            "" => Err(PrefixError),
            _ => NamePrefix::new(text).map_err(|_| PrefixError),
        };
        texts
            .into_iter()
            .map(prefix)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether a lock name is in the set.
    pub fn contains(&self, name: &LockName) -> bool {
        self.0.iter().any(|prefix| prefix.covers(name))
    }

    /// Whether every lock name that begins with `begin` is in the set.
    pub fn contains_all(&self, begin: &NamePrefix) -> bool {
        self.0.iter().any(|prefix| prefix.covers_all(begin))
    }

    /// Whether the set has no lock names.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The prefixes of the set, as they were given.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|prefix| match prefix.as_str() {
            "" => ALL,
            text => text,
        })
    }
}

impl fmt::Display for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("-");
        }
        f.write_str(&self.iter().collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_in_it_if_it_begins_with_a_prefix() {
        for (prefixes, name, expected) in [
            (&["team:"][..], "team:a", true),
            (&["team:"], "team:", true),
            (&["team:"], "team2:a", false),
            (&["team:"], "team", false),
            (&["team:"], "TEAM:a", false),
            (&["team:"], "x:team:a", false),
            // The prefix `team` covers `team2:a` too, which is why a prefix should end in a colon or a slash.
            (&["team"], "team2:a", true),
            (&["ci"], "cinema", true),
            (&["ci"], "ci/build", true),
            (&["ci/"], "ci/build/web", true),
            (&["ci/"], "ci", false),
            (&["ci/"], "cinema/a", false),
            (&["ci/"], "ci:build", false),
            (&["a:", "b:"], "b:x", true),
            (&["*"], "anything", true),
            (&[], "anything", false),
        ] {
            let set = Prefixes::new(prefixes.iter().copied()).unwrap();
            let name = LockName::new(name).unwrap();
            assert_eq!(set.contains(&name), expected, "{prefixes:?} {name}");
        }
    }

    #[test]
    fn what_begins_no_name_is_no_prefix() {
        let long = "a".repeat(201);
        for bad in [
            "", "team:*", "**", "/a", "a//", "a/../", "{a}", " a", "ä", &long,
        ] {
            assert_eq!(Prefixes::new(["a:", bad]), Err(PrefixError), "{bad}");
        }
        assert!(Prefixes::new([".", "..", "a/", "a/b", "*"]).is_ok());
    }
}
