//! Leases that are taken away in random histories.

use latchgate::store::{Store, contract::Renewal};

use super::{Held, History, LOCKS};

// === impl History ===

impl History {
    /// An operator breaks a lease.
    pub(super) async fn break_lock(&mut self) {
        let Some(held) = self.give_up_one() else {
            return;
        };
        let (fence, token) = (held.lease.held.fence, held.lease.token.hash());
        self.tell(format!("{fence} of {} is broken", LOCKS[held.lock]));
        let store = &self.gates[self.random.below(self.gates.len())].store;
        let name = &held.lease.name;
        store.break_lock(name, Some(fence.into())).await.unwrap();
        let renewed = store.renew(name, &token, None).await.unwrap();
        assert!(matches!(renewed, Renewal::Lost(_)), "{}", self.so_far());
    }

    /// Somebody deletes the lock with a Redis client, if it is still held by this lease.
    pub(super) async fn delete(&mut self) {
        let Some(held) = self.give_up_one() else {
            return;
        };
        let fence = held.lease.held.fence;
        self.tell(format!("{fence} of {} is deleted", LOCKS[held.lock]));
        let script = "return redis.call('GETRANGE', KEYS[1], '1', '64') == ARGV[1] \
                      and redis.call('DEL', KEYS[1])";
        let key = format!("lg:{{{}}}:lock", LOCKS[held.lock]);
        let hash = held.lease.token.hash().to_string();
        self.server.run(&["EVAL", script, "1", &key, &hash]).await;
    }

    /// One of those who hold a lock, who counts on it no longer.
    fn give_up_one(&mut self) -> Option<Held> {
        let held = self.held.len();
        (held > 0).then(|| self.held.swap_remove(self.random.below(held)))
    }
}
