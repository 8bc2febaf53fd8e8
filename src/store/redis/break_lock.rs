//! Breaks a lock: looks at what holds it, and ends exactly that.

use crate::{
    lock::BreakTarget,
    store::{StoreError, Unavailability, contract::Breaking},
};

use super::{
    client::{dispatch::Dispatch, failure::Failure},
    keys::Keys,
    queue::gateway::RedisGateway,
    scripts::{BreakResult, ListedHolder, Scripts},
};

/// How often it is looked again if the lock has passed on between the look and the break. Each time
/// takes a round trip in which that happens.
const LOOKS: usize = 32;

/// Breaks what holds the lock; with `target`, only if it is that.
///
/// What is broken was looked at before, so that a copy of the command breaks nothing else, and its
/// answer can be told from the look although the reply was lost.
pub(super) async fn break_lock(
    dispatch: &Dispatch,
    scripts: &Scripts,
    gateway: &RedisGateway,
    keys: &Keys,
    target: Option<BreakTarget>,
) -> Result<Breaking, StoreError> {
    for _ in 0..LOOKS {
        let seen = scripts.list(dispatch, keys).await?;
        let found = match &seen {
            ListedHolder::Nobody => None,
            ListedHolder::Lease(lease) => Some(BreakTarget::Lease(lease.fence)),
            ListedHolder::Foreign(_, mark) => Some(BreakTarget::Foreign(*mark)),
            ListedHolder::Odd(_) => {
                let limit = dispatch.limit();
                let refused = dispatch.refused(Failure::WrongType, keys, keys.lock(), limit);
                return Err(refused.await);
            }
        };
        let (Some(found), Some(holder)) = (found, seen.holder()) else {
            return Ok(Breaking::NotHeld);
        };
        gateway.floors.raise_to_holder(keys.slot(), Some(&holder));
        if target.is_some_and(|target| target != found && target != BreakTarget::All) {
            return Ok(Breaking::HolderChanged(holder));
        }
        let struck = scripts.break_lock(dispatch, gateway, keys, found);
        match struck.await? {
            BreakResult::Broken => return Ok(Breaking::Broken(holder)),
            BreakResult::Changed => {}
        }
    }
    let reason = "the lock passes on faster than it can be broken".to_owned();
    Err(Unavailability::Refused(reason).into())
}
