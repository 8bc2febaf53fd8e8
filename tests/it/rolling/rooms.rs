//! Which client holds each lock, as the clients themselves report it, without questions to a gateway or Redis.

use crate::support::prelude::*;

/// The rooms that the locks protect: only one client may be in a room at a time.
#[derive(Debug, Default)]
pub(super) struct Rooms(Mutex<BTreeMap<String, Room>>);

#[derive(Debug, Default)]
struct Room {
    inside: Option<String>,
    /// The largest fencing token that has entered.
    fence: u64,
}

// === impl Rooms ===

impl Rooms {
    /// A client was granted the lock, and enters its room.
    pub(super) fn enter(&self, room: &str, who: &str, fence: u64) {
        let mut rooms = self.0.lock().unwrap();
        let room = rooms.entry(room.to_owned()).or_default();
        let (inside, last) = (room.inside.replace(who.to_owned()), room.fence);
        room.fence = fence.max(last);
        drop(rooms);
        assert_eq!(inside, None, "{who} came in while it was inside");
        assert!(fence > last, "{who} came in with {fence} after {last}");
    }

    /// A client is about to release the lock, and leaves its room.
    pub(super) fn leave(&self, room: &str, who: &str) {
        let mut rooms = self.0.lock().unwrap();
        let inside = rooms.get_mut(room).and_then(|room| room.inside.take());
        drop(rooms);
        assert_eq!(inside.as_deref(), Some(who));
    }
}
