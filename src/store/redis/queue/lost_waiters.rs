//! Finds those who wait here and are not queued any more.
//!
//! A place can be lost while others keep the queue alive: a grant whose message was lost ends before
//! it is confirmed, or this gateway was taken for dead and the message of that was lost. Whoever is
//! neither queued nor told so asks again, and is answered the lease if it holds the lock after all.

use std::{collections::HashSet, sync::Arc};

use bb8_redis::redis::{Pipeline, ServerError, Value};

use crate::{
    lock::{LockName, TokenHash},
    store::parking::News,
};

use super::{
    super::{
        Slot, SlotTags,
        client::{answered, dispatch::Dispatch, failure::Failure, shard::Shard},
        keys::Keys,
        records::{QUEUED, id, token_in},
    },
    gateway::RedisGateway,
};

/// Where the walk through those who wait here has come to.
#[derive(Default)]
pub(crate) struct LostWaiters {
    /// Whose places are looked up next. They are chosen a round before, so that none of them is only
    /// about to be queued.
    chosen: Vec<(LockName, TokenHash)>,
    /// How often some were looked up: with each time it is another one's turn to be the first of its name.
    turn: usize,
}

/// How many places are looked up in one round, and how many of them together. Where more wait they
/// take turns: ten thousand are come by within twenty rounds.
const PLACES: usize = 512;
/// How many queues are read together in which a place was lost: none is longer than a megabyte.
const QUEUES: usize = 8;

/// What is asked about one who waits.
#[derive(Clone, Copy)]
enum TicketQuery {
    /// Of which kind its ticket is.
    Ticket,
    /// Where it stands.
    Position,
}

// === impl LostWaiters ===

impl LostWaiters {
    /// Looks up on a server the places of some who wait here; of all of them if news may have been missed.
    pub(crate) async fn check(
        &mut self,
        gateway: &RedisGateway,
        (dispatch, shard): (&Dispatch, &Arc<Shard>),
        tags: &SlotTags,
        missed: bool,
    ) -> Result<(), Failure> {
        if missed {
            let mut last = None;
            loop {
                let some = gateway.parking.next_waiters(last.as_ref(), PLACES);
                check_tickets(&some, gateway, (dispatch, shard), tags).await?;
                if some.len() < PLACES {
                    break;
                }
                last = some.last().map(|(_, token)| *token);
            }
        } else {
            let mut waiters = self.chosen.clone();
            let first = self.turn % waiters.len().max(1);
            waiters.rotate_left(first);
            self.turn = self.turn.wrapping_add(1);
            check_tickets(&waiters, gateway, (dispatch, shard), tags).await?;
        }
        let last = self.chosen.last().map(|(_, token)| *token);
        self.chosen = gateway.parking.next_waiters(last.as_ref(), PLACES);
        if self.chosen.is_empty() {
            self.chosen = gateway.parking.next_waiters(None, PLACES);
        }
        Ok(())
    }
}

/// Tells those who are not queued that they must ask again: all whose tickets do not say that they stand in the
/// queue. That a ticket says so and stands nowhere comes of no script, but the list may have been lost. A look for
/// a place takes as long as the queue is long, so that one of each name is looked for, and where it is not
/// found all of that name.
async fn check_tickets(
    waiters: &[(LockName, TokenHash)],
    gateway: &RedisGateway,
    (dispatch, shard): (&Dispatch, &Arc<Shard>),
    tags: &SlotTags,
) -> Result<(), Failure> {
    let mut names = HashSet::new();
    let (mut commands, mut slots, mut asked) = (Pipeline::new(), Vec::new(), Vec::new());
    for (name, token) in waiters {
        let slot = Slot::of_name(name);
        if !dispatch.topology.has(shard, slot) {
            continue;
        }
        let keys = Keys::of(name, tags, &gateway.id);
        commands.cmd("GETRANGE").arg(keys.of_attempt(token));
        commands.arg(0).arg(0);
        slots.push(slot);
        asked.push((TicketQuery::Ticket, name, token));
        if names.insert(name) {
            commands.cmd("LPOS").arg(keys.wait()).arg(id(token));
            slots.push(slot);
            asked.push((TicketQuery::Position, name, token));
        }
    }
    if asked.is_empty() {
        return Ok(());
    }
    let replies = dispatch.batch(shard, &slots, &commands).await?;
    let (mut stands, mut lost) = (HashSet::new(), Vec::new());
    for ((command, name, token), reply) in asked.into_iter().zip(replies) {
        match (command, reply) {
            (TicketQuery::Ticket, Value::BulkString(kind)) if kind == [QUEUED] => {
                stands.insert(token);
            }
            (TicketQuery::Ticket, Value::BulkString(_)) => notify_forgotten(gateway, name, token),
            // Of one that does not even say that it stands there nothing follows for others.
            (TicketQuery::Position, Value::Nil) if stands.contains(token) => lost.push(name),
            (_, Value::ServerError(error)) => refused(&error)?,
            _ => {}
        }
    }
    for names in lost.chunks(QUEUES) {
        read_queues(names, gateway, (dispatch, shard), tags).await?;
    }
    Ok(())
}

/// Tells those who do not stand in the queues of some names that they must ask again.
async fn read_queues(
    names: &[&LockName],
    gateway: &RedisGateway,
    (dispatch, shard): (&Dispatch, &Arc<Shard>),
    tags: &SlotTags,
) -> Result<(), Failure> {
    let waiting: Vec<_> = names
        .iter()
        .map(|name| gateway.parking.waiting_for(name))
        .collect();
    let mut commands = Pipeline::with_capacity(names.len());
    for name in names {
        let keys = Keys::of(name, tags, &gateway.id);
        commands.cmd("LRANGE").arg(keys.wait()).arg(0).arg(-1);
    }
    let slots: Vec<_> = names.iter().map(|name| Slot::of_name(name)).collect();
    let replies = dispatch.batch(shard, &slots, &commands).await?;
    for ((name, tokens), reply) in names.iter().zip(&waiting).zip(replies) {
        let stand: HashSet<TokenHash> = match reply {
            Value::Array(ids) => ids.iter().filter_map(token_of).collect(),
            Value::ServerError(error) => {
                refused(&error)?;
                continue;
            }
            _ => continue,
        };
        for token in tokens.iter().filter(|token| !stand.contains(token)) {
            notify_forgotten(gateway, name, token);
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

fn notify_forgotten(gateway: &RedisGateway, name: &LockName, token: &TokenHash) {
    // An attempt that has left meanwhile need not be told.
    let _delivered = gateway.parking.deliver(name, token, News::Forgotten);
}

/// What is of another type those who ask are told.
fn refused(error: &ServerError) -> Result<(), Failure> {
    match answered(error) {
        Failure::WrongType => Ok(()),
        failure => Err(failure),
    }
}
