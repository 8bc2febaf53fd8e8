//! Who is where, as the clients themselves say: without asking a gateway or Redis.

use crate::support::prelude::*;

/// What each lock protects: a room in which one may be at a time.
#[derive(Debug, Default)]
pub(super) struct Rooms(Mutex<BTreeMap<String, Room>>);

#[derive(Debug, Default)]
struct Room {
    inside: Option<String>,
    /// The largest fencing token that came in.
    fence: u64,
}

// === impl Rooms ===

impl Rooms {
    /// Somebody was granted the lock.
    pub(super) fn enter(&self, room: &str, who: &str, fence: u64) {
        let mut rooms = self.0.lock().unwrap();
        let room = rooms.entry(room.to_owned()).or_default();
        let (inside, last) = (room.inside.replace(who.to_owned()), room.fence);
        room.fence = fence.max(last);
        drop(rooms);
        assert_eq!(inside, None, "{who} came in while it was inside");
        assert!(fence > last, "{who} came in with {fence} after {last}");
    }

    /// Somebody is about to give the lock back.
    pub(super) fn leave(&self, room: &str, who: &str) {
        let mut rooms = self.0.lock().unwrap();
        let inside = rooms.get_mut(room).and_then(|room| room.inside.take());
        drop(rooms);
        assert_eq!(inside.as_deref(), Some(who));
    }
}
