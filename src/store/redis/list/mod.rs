//! Lists of locks: scans of the keys, and looks at what they find.

pub(super) mod page;
pub(super) mod read_locks;
