//! Finds the lock that a group waits for, from a lease of one of its locks.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{Instant, timeout_at};

use crate::{
    engine::Engine,
    lock::{CollectionMark, FencingToken, HeldLease, LockName},
    store::contract::Holder,
};

/// The lock that a group waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedLock {
    /// The name of the lock.
    pub name: LockName,
    /// For how long the group has waited for the lock: since it has the lock before.
    pub waited: Duration,
    /// The holder of the lock; `None` if the lock is free.
    pub holder: Option<Holder>,
}

/// How many locks one inspection looks at for the groups of its holders: as many as a group has.
const MAX_LOOKS: usize = 16;
/// How long all looks of one inspection may take: the inspection of a lock must not wait for the server of another lock.
const LOOKS_WITHIN: Duration = Duration::from_secs(1);

/// The holders of the locks that were looked at, at most [`MAX_LOOKS`]; `None` if the store did not say.
type Looks = BTreeMap<LockName, Option<Option<Holder>>>;

// === impl Engine ===

impl Engine {
    /// For each lease of this holder that belongs to a group which is being collected, the lock that the group waits
    /// for, with the fence of the lease. The store is asked only if there is such a lease.
    ///
    /// A lease is left out if its group is complete in a moment, or if the store does not say.
    pub async fn awaited_locks(&self, holder: &Holder) -> Vec<(FencingToken, AwaitedLock)> {
        let (mut awaited, mut looks) = (Vec::new(), Looks::new());
        let limit = Instant::now() + LOOKS_WITHIN;
        for lease in holder.leases() {
            if let Some(mark) = lease.mark()
                && let Some(lock) = self.awaited_lock(lease, mark, &mut looks, limit).await
            {
                awaited.push((lease.fence, lock));
            }
        }
        awaited
    }

    /// Follows the locks of the group, in the order in which they are acquired, to the first lock that the group does
    /// not have.
    async fn awaited_lock(
        &self,
        lease: &HeldLease,
        mark: &CollectionMark,
        looks: &mut Looks,
        limit: Instant,
    ) -> Option<AwaitedLock> {
        let (mut last, mut next) = (lease.clone(), mark.next.clone());
        for _ in 0..MAX_LOOKS {
            let name = next?;
            if !looks.contains_key(&name) {
                if looks.len() == MAX_LOOKS {
                    return None;
                }
                let inspection = timeout_at(limit, self.inspect(&name)).await;
                let inspection = inspection.ok().and_then(Result::ok);
                looks.insert(name.clone(), inspection.map(|it| it.holder));
            }
            let holder = looks[&name].as_ref()?;
            let mut leases = holder.as_ref().map_or(&[][..], Holder::leases).iter();
            let own = leases.find_map(|lease| {
                let own = lease.said.group.as_ref()?.mark.as_ref();
                own.filter(|own| own.id == mark.id).map(|own| (lease, own))
            });
            match (own, holder) {
                (Some((lease, own)), _) => (last, next) = (lease.clone(), own.next.clone()),
                // The lease of the group may be among those that the answer does not show.
                (None, Some(Holder::Shared(it))) if it.count > it.leases.len() as u64 => {
                    return None;
                }
                (None, holder) => {
                    return Some(AwaitedLock {
                        name,
                        waited: last.at(Instant::now()).held_for,
                        holder: holder.clone(),
                    });
                }
            }
        }
        // No group has so many locks: a record is damaged.
        None
    }
}
