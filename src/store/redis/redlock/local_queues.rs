//! The lines of all locks at this gateway.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::lock::LockName;

use super::local_queue::LocalQueue;

/// The lines of the locks that somebody is about here.
#[derive(Debug, Default)]
pub(super) struct LocalQueues {
    table: Mutex<QueueTable>,
}

#[derive(Debug, Default)]
struct QueueTable {
    by_name: HashMap<LockName, Weak<LocalQueue>>,
    /// How many there may be before those are cleared away that nobody is about any more.
    most: usize,
}

/// Fewer are not worth a look.
const FEW: usize = 1_024;

// === impl LocalQueues ===

impl LocalQueues {
    /// The line of a lock. It is kept as long as somebody has it.
    pub(super) fn of(&self, name: &LockName) -> Arc<LocalQueue> {
        let mut table = self.table();
        if let Some(local_queue) = table.by_name.get(name).and_then(Weak::upgrade) {
            return local_queue;
        }
        if table.by_name.len() >= table.most.max(FEW) {
            table
                .by_name
                .retain(|_, local_queue| local_queue.strong_count() > 0);
            table.most = 2 * table.by_name.len();
        }
        let local_queue = Arc::new(LocalQueue::default());
        table
            .by_name
            .insert(name.clone(), Arc::downgrade(&local_queue));
        local_queue
    }

    /// The line of a lock that somebody is about already.
    pub(super) fn existing(&self, name: &LockName) -> Option<Arc<LocalQueue>> {
        self.table().by_name.get(name).and_then(Weak::upgrade)
    }

    /// A lock may be free now.
    pub(super) fn notify(&self, name: &LockName) {
        if let Some(local_queue) = self.existing(name) {
            local_queue.woken.notify_one();
        }
    }

    fn table(&self) -> MutexGuard<'_, QueueTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_kept_as_long_as_somebody_is_about_the_lock() {
        let local_queues = LocalQueues::default();
        let name = |n: usize| LockName::new(&format!("lock:{n}")).unwrap();
        let kept = local_queues.of(&name(0));
        for n in 0..3 * FEW {
            assert!(Arc::ptr_eq(&local_queues.of(&name(0)), &kept));
            drop(local_queues.of(&name(n)));
        }
        assert!(local_queues.table().by_name.len() <= FEW);
        drop(kept);
        assert!(local_queues.existing(&name(0)).is_none());
    }
}
