//! A list of held locks, a page at a time.

use crate::lock::{LockName, NamePrefix, Owner};

use super::{contract::Holder, cursor::Cursor};

/// Which locks are to be shown.
#[derive(Debug, Clone)]
pub struct ListQuery {
    /// How their names begin.
    pub prefix: NamePrefix,
    /// The owner of their leases, exactly; a foreign client has none.
    pub owner: Option<Owner>,
    /// How many on one page at most, from 1 to [`LONGEST_PAGE`].
    pub limit: usize,
    /// Where the page before ended. One that another kind of store gave, or a server that is not
    /// there any more, begins the walk anew.
    pub cursor: Option<Cursor>,
}

/// The most that may be asked for on one page.
pub const LONGEST_PAGE: usize = 1_000;

/// The answer to a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Locks that are held. One that was on an earlier page may come again.
    pub locks: Vec<HeldLock>,
    /// Where the next page begins; `None`: there is no more.
    pub next: Option<Cursor>,
}

/// A lock that somebody holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLock {
    /// The lock.
    pub name: LockName,
    /// Who holds it.
    pub holder: Holder,
    /// How many wait for it, as an inspect counts them. Not of the same instant as the rest.
    pub waiters: u64,
}
