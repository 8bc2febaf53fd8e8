//! Finds those who wait here and are not queued any more.
//!
//! A place can be lost while others keep the queue alive: a grant whose message was lost ends before
//! it is confirmed, or this gateway was taken for dead and the word of that was lost. Whoever is
//! neither queued nor told so asks again, and is answered the lease if it holds the lock after all.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bb8_redis::redis::{Pipeline, ServerError, Value};

use crate::{
    lock::{LockName, TokenHash},
    store::parking::News,
};

use super::{
    Slot, SlotTags,
    client::answered,
    dispatch::Dispatch,
    failure::Failure,
    gateway::Gateway,
    keys::Keys,
    layout::{id, token_in},
    shard::Shard,
};

/// Where the walk through those who wait here has come to.
#[derive(Default)]
pub(super) struct Places {
    /// Whose places are looked up next. They are chosen a round before, so that none of them is only
    /// about to be queued.
    chosen: Vec<(LockName, TokenHash)>,
    /// How often some were looked up: with each time it is another one's turn to be the first of its name.
    turn: usize,
}

/// How many places are looked up in one round, and how many of them together. Where more wait they
/// take turns: ten thousand are come by within twenty rounds.
const PLACES: usize = 512;
/// How many queues are read together when all are.
const QUEUES: usize = 64;

/// What is asked about one who waits.
#[derive(Clone, Copy)]
enum Asked {
    /// Whether there is a ticket.
    Ticket,
    /// Where it stands.
    Place,
}

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
            let mut all = Vec::new();
            loop {
                let some = gateway.parking.next(last.as_ref(), PLACES);
                let enough = some.len() < PLACES;
                last = some.last().map(|(_, token)| *token);
                all.extend(some);
                if enough {
                    break;
                }
            }
            read_queues(all, gateway, (dispatch, shard), tags).await?;
        } else {
            let mut places = self.chosen.clone();
            let first = self.turn % places.len().max(1);
            places.rotate_left(first);
            self.turn = self.turn.wrapping_add(1);
            look_up(&places, gateway, (dispatch, shard), tags).await?;
        }
        let last = self.chosen.last().map(|(_, token)| *token);
        self.chosen = gateway.parking.next(last.as_ref(), PLACES);
        if self.chosen.is_empty() {
            self.chosen = gateway.parking.next(None, PLACES);
        }
        Ok(())
    }
}

/// Tells those who are not queued that they must ask again: all whose tickets are gone, and of each name the
/// first whose ticket stands nowhere. A look for a place takes as long as the queue is long, so that the others
/// take turns.
async fn look_up(
    places: &[(LockName, TokenHash)],
    gateway: &Gateway,
    (dispatch, shard): (&Dispatch, &Arc<Shard>),
    tags: &SlotTags,
) -> Result<(), Failure> {
    let mut names = HashSet::new();
    let (mut commands, mut slots, mut asked) = (Pipeline::new(), Vec::new(), Vec::new());
    for (name, token) in places {
        let slot = Slot::of_name(name);
        if !dispatch.topology.has(shard, slot) {
            continue;
        }
        let keys = Keys::of(name, tags, &gateway.id);
        commands.cmd("EXISTS").arg(keys.of_attempt(token));
        slots.push(slot);
        asked.push((Asked::Ticket, token));
        if names.insert(name) {
            commands.cmd("LPOS").arg(keys.wait()).arg(id(token));
            slots.push(slot);
            asked.push((Asked::Place, token));
        }
    }
    if asked.is_empty() {
        return Ok(());
    }
    let replies = dispatch.batch(shard, &slots, &commands).await?;
    for ((command, token), reply) in asked.into_iter().zip(replies) {
        match (command, reply) {
            (Asked::Ticket, Value::Int(0)) | (Asked::Place, Value::Nil) => forget(gateway, token),
            (_, Value::ServerError(error)) => refused(&error)?,
            _ => {}
        }
    }
    Ok(())
}

/// The same for many at once, by what stands in the queue of each name.
async fn read_queues(
    places: Vec<(LockName, TokenHash)>,
    gateway: &Gateway,
    (dispatch, shard): (&Dispatch, &Arc<Shard>),
    tags: &SlotTags,
) -> Result<(), Failure> {
    let mut by_name: HashMap<LockName, Vec<TokenHash>> = HashMap::new();
    for (name, token) in places {
        if dispatch.topology.has(shard, Slot::of_name(&name)) {
            by_name.entry(name).or_default().push(token);
        }
    }
    let by_name: Vec<_> = by_name.into_iter().collect();
    for some in by_name.chunks(QUEUES) {
        let mut commands = Pipeline::with_capacity(some.len());
        for (name, _) in some {
            let keys = Keys::of(name, tags, &gateway.id);
            commands.cmd("LRANGE").arg(keys.wait()).arg(0).arg(-1);
        }
        let slots: Vec<_> = some.iter().map(|(name, _)| Slot::of_name(name)).collect();
        let replies = dispatch.batch(shard, &slots, &commands).await?;
        for ((_, tokens), reply) in some.iter().zip(replies) {
            let stand: HashSet<TokenHash> = match reply {
                Value::Array(ids) => ids.iter().filter_map(token_of).collect(),
                Value::ServerError(error) => {
                    refused(&error)?;
                    continue;
                }
                _ => continue,
            };
            for token in tokens.iter().filter(|token| !stand.contains(token)) {
                forget(gateway, token);
            }
        }
    }
    Ok(())
}

fn token_of(value: &Value) -> Option<TokenHash> {
    match value {
        Value::BulkString(id) => token_in(id),
        _ => None,
    }
}

fn forget(gateway: &Gateway, token: &TokenHash) {
    // Whoever has left meanwhile need not hear it.
    let _heard = gateway.parking.tell(token, News::Forgotten);
}

/// What is of another type those who ask are told.
fn refused(error: &ServerError) -> Result<(), Failure> {
    match answered(error) {
        Failure::WrongType => Ok(()),
        failure => Err(failure),
    }
}
