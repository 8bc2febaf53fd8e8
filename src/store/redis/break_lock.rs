//! Breaks a lock: looks at what holds it, and ends exactly that.

use crate::{
    lock::Meant,
    store::{StoreError, Unavailability, breaks::Breaking},
};

use super::{
    dispatch::Dispatch,
    failure::Failure,
    gateway::Gateway,
    keys::Keys,
    scripts::{Scripts, Seen, Struck},
};

/// How often it is looked again if the lock has passed on between the look and the break. Each time
/// takes a round trip in which that happens.
const LOOKS: usize = 32;

/// Breaks what holds the lock; with `meant`, only if it is that.
///
/// What is broken was looked at before, so that a copy of the command breaks nothing else, and its
/// answer can be told from the look although the reply was lost.
pub(super) async fn break_lock(
    dispatch: &Dispatch,
    scripts: &Scripts,
    gateway: &Gateway,
    keys: &Keys,
    meant: Option<Meant>,
) -> Result<Breaking, StoreError> {
    for _ in 0..LOOKS {
        let seen = scripts.list(dispatch, keys).await?;
        let found = match &seen {
            Seen::Nobody => None,
            Seen::Lease(lease) => Some(Meant::Lease(lease.fence)),
            Seen::Foreign(_, mark) => Some(Meant::Foreign(*mark)),
            Seen::Odd(_) => {
                let limit = dispatch.limit();
                return Err(dispatch.refused(Failure::WrongType, keys, limit).await);
            }
        };
        let (Some(found), Some(holder)) = (found, seen.holder()) else {
            return Ok(Breaking::NotHeld);
        };
        gateway.floors.saw(keys.slot(), Some(&holder));
        if meant.is_some_and(|meant| meant != found) {
            return Ok(Breaking::HolderChanged(holder));
        }
        let struck = scripts.break_lock(dispatch, gateway, keys, found);
        match struck.await? {
            Struck::Broken => return Ok(Breaking::Broken(holder)),
            Struck::Changed => {}
        }
    }
    let reason = "the lock passes on faster than it can be broken".to_owned();
    Err(Unavailability::Refused(reason).into())
}
