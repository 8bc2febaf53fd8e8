//! Finds those who wait here and are not queued any more.
//!
//! A place can be lost while others keep the queue alive: a grant whose message was lost ends before
//! it is confirmed, or this gateway was taken for dead and the word of that was lost. Whoever is
//! neither queued nor told so asks again, and is answered the lease if it holds the lock after all.

use std::sync::Arc;

use bb8_redis::redis::{Pipeline, Value};

use crate::{
    lock::{LockName, TokenHash},
    store::parking::News,
};

use super::{
    Slot, SlotTags, client::answered, dispatch::Dispatch, failure::Failure, gateway::Gateway,
    keys::Keys, shard::Shard,
};

/// Where the walk through those who wait here has come to.
#[derive(Default)]
pub(super) struct Places {
    /// Whose places are looked up next. They are chosen a round before, so that none of them is only
    /// about to be queued.
    chosen: Vec<(LockName, TokenHash)>,
}

/// How many places are looked up in one round, and how many of them together. Where more wait they
/// take turns: ten thousand are come by within twenty rounds.
const PLACES: usize = 512;

// === impl Places ===

impl Places {
    /// Looks up on a server the places of some who wait here; of all of them if news may have been missed.
    pub(super) async fn look(
        &mut self,
        gateway: &Gateway,
        (dispatch, shard): (&Dispatch, &Arc<Shard>),
        tags: &SlotTags,
        missed: bool,
    ) -> Result<(), Failure> {
        if missed {
            let mut last = None;
            loop {
                let some = gateway.parking.next(last.as_ref(), PLACES);
                look_up(&some, gateway, (dispatch, shard), tags).await?;
                if some.len() < PLACES {
                    break;
                }
                last = some.last().map(|(_, token)| *token);
            }
        } else {
            look_up(&self.chosen, gateway, (dispatch, shard), tags).await?;
        }
        let last = self.chosen.last().map(|(_, token)| *token);
        self.chosen = gateway.parking.next(last.as_ref(), PLACES);
        if self.chosen.is_empty() {
            self.chosen = gateway.parking.next(None, PLACES);
        }
        Ok(())
    }
}

/// Tells those who are not queued that they must ask again.
async fn look_up(
    places: &[(LockName, TokenHash)],
    gateway: &Gateway,
    (dispatch, shard): (&Dispatch, &Arc<Shard>),
    tags: &SlotTags,
) -> Result<(), Failure> {
    let slots = places.iter().map(|(name, _)| Slot::of_name(name));
    let places = places.iter().zip(slots);
    let here: Vec<_> = places
        .filter(|(_, slot)| dispatch.topology.has(shard, *slot))
        .collect();
    if here.is_empty() {
        return Ok(());
    }
    let mut commands = Pipeline::with_capacity(here.len());
    for ((name, token), _) in &here {
        let keys = Keys::of(name, tags, &gateway.id);
        commands.cmd("ZSCORE").arg(keys.queue());
        commands.arg(token.to_string());
    }
    let slots: Vec<_> = here.iter().map(|(_, slot)| *slot).collect();
    let replies = dispatch.batch(shard, &slots, &commands).await?;
    for (((_, token), _), reply) in here.iter().zip(replies) {
        match reply {
            Value::Nil => {
                // Whoever has left meanwhile need not hear it.
                let _heard = gateway.parking.tell(token, News::Forgotten);
            }
            Value::ServerError(error) => match answered(&error) {
                // A key of another type, which those who ask are told.
                Failure::WrongType => {}
                failure => return Err(failure),
            },
            _ => {}
        }
    }
    Ok(())
}
