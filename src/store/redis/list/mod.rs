//! Lists of locks: scans of the keys, and looks at what they find.
//!
//! A list is a walk over all locks, and the gateway keeps nothing between pages. A page is a few `SCAN` steps over
//! `lg:{PREFIX*}:lock`, at most 512 keys each, one master after the other. Pipelines of plain reads show what was found; foreign
//! values and queues need a script. The cursor contains the position of `SCAN` and the node. It contains no name, and a checksum
//! ties it to `prefix` and `owner`.

pub(super) mod page;
pub(super) mod read_locks;
