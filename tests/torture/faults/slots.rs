//! Faults of a cluster: a slot moves while clients want its locks.

use super::{Injector, plan::Blow};
use crate::client::{LOCKS, SHARED};

// === impl Injector ===

impl Injector {
    /// Moves the slot of a contended lock to another server, and then to another one again.
    pub(super) async fn move_slot(&mut self, blow: &Blow) {
        let locks = LOCKS.iter().chain(&SHARED);
        let count = LOCKS.len() + SHARED.len();
        let mut locks = locks.skip(blow.choice % count);
        let lock = locks.next().expect("it is one of them");
        let begun = self.begins(blow.fault, lock, false);
        for _ in 0..2 {
            let moved = self.rig.move_slot_of(lock, blow.lasts).await;
            moved.expect("a slot that nobody else moves goes where it is sent");
            self.seen(&begun, 1);
        }
        self.heals(&begun);
    }
}
