//! Finds the locks in slots of a cluster.
//!
//! `CLUSTER GETKEYSINSLOT` tells what lies on the server that is asked, whether it has the slot or not. So
//! that server is asked about a key of the slot before and after: it says if another one has the slot, or
//! if the slot is on its way there. Then the one that gives is asked first and the one that takes second,
//! for a key is put there before it is taken away here: what is on neither at its time was on none.

use std::{ops::Range, sync::Arc};

use bb8_redis::redis::{Cmd, Pipeline, Value};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    lock::LockName,
    store::{
        StoreError, Unavailability, Uncertainty,
        redis::{Slot, SlotTags, keys::Keys},
    },
};

use super::super::{
    connection::answered,
    dispatch::Dispatch,
    failure::{Failure, Redirect, RedirectKind},
    retry::RetryPolicy,
    shard::Shard,
};

/// The locks of a slot.
#[derive(Debug)]
pub(crate) struct Visited {
    pub(crate) slot: Slot,
    /// The server that has the slot.
    pub(crate) shard: Arc<Shard>,
    /// The locks, each at least once.
    pub(crate) names: Vec<LockName>,
    /// How many keys there were.
    pub(crate) keys: usize,
}

/// What a server says of a slot.
enum SlotReply {
    /// It has the slot, and these keys.
    Here(Vec<LockName>, usize),
    /// It has the slot, and there may be more keys than were asked for.
    More,
    /// Another one has the slot.
    Moved(Redirect),
    /// The slot is on its way to another one. These are still here.
    Moving(Redirect, Vec<LockName>, usize),
    /// It became so in between.
    Unsteady,
}

/// How many keys of a slot are asked for at first: some locks, each with all that belongs to it. With a
/// million locks a slot has sixty.
const KEYS: usize = 512;
/// By how much more each time there are more.
const MORE: usize = 8;
/// From how many servers at once.
const SERVERS: usize = 8;

// === impl Dispatch ===

impl Dispatch {
    /// The locks in some slots, slot by slot in their order.
    pub(crate) async fn visit(
        &self,
        slots: Range<usize>,
        tags: &SlotTags,
    ) -> Result<Vec<Visited>, StoreError> {
        let mut of_each: Vec<(Arc<Shard>, Vec<Slot>)> = Vec::new();
        for slot in slots.filter_map(Slot::numbered) {
            let shard = self.topology.shard(slot)?;
            match of_each.iter_mut().find(|(it, _)| Arc::ptr_eq(it, &shard)) {
                Some((_, slots)) => slots.push(slot),
                None => of_each.push((shard, vec![slot])),
            }
        }
        let visited = stream::iter(of_each).map(|(shard, slots)| self.visit_on(shard, slots, tags));
        let visited = visited.buffer_unordered(SERVERS);
        let mut visited: Vec<Visited> = visited.try_concat().await?;
        visited.sort_by_key(|visited| visited.slot.index());
        Ok(visited)
    }

    async fn visit_on(
        &self,
        shard: Arc<Shard>,
        slots: Vec<Slot>,
        tags: &SlotTags,
    ) -> Result<Vec<Visited>, StoreError> {
        let mut retry = RetryPolicy::new();
        let replied = loop {
            match self.ask_for(&shard, &slots, KEYS, tags).await {
                Ok(replied) => break replied,
                Err(failure) => retry.pause_or_fail(failure).await?,
            }
        };
        let mut visited = Vec::with_capacity(slots.len());
        for (slot, replied) in slots.into_iter().zip(replied) {
            visited.push(match replied {
                SlotReply::Here(names, keys) => Visited {
                    slot,
                    shard: Arc::clone(&shard),
                    names,
                    keys,
                },
                _ => self.visit_one(slot, tags).await?,
            });
        }
        Ok(visited)
    }

    /// Looks into one slot, wherever it is, until it stands still for as long as that takes.
    async fn visit_one(&self, slot: Slot, tags: &SlotTags) -> Result<Visited, StoreError> {
        let mut retry = RetryPolicy::new();
        let mut count = KEYS;
        loop {
            let failure = match self.visit_once(slot, &mut count, tags).await {
                Ok(Some(visited)) => return Ok(visited),
                Ok(None) => {
                    let why = format!("slot {} is being moved", slot.index());
                    Failure::Moving(Unavailability::Refused(why))
                }
                Err(failure) => failure,
            };
            retry.pause_or_fail(failure).await?;
        }
    }

    async fn visit_once(
        &self,
        slot: Slot,
        count: &mut usize,
        tags: &SlotTags,
    ) -> Result<Option<Visited>, Failure> {
        let shard = self.topology.shard(slot).map_err(Failure::Transient)?;
        let replied = self.ask_for(&shard, &[slot], *count, tags).await?.pop();
        let visited = |names: Vec<_>, keys| Visited {
            slot,
            shard: Arc::clone(&shard),
            names,
            keys,
        };
        match replied {
            Some(SlotReply::Here(names, keys)) => Ok(Some(visited(names, keys))),
            Some(SlotReply::More) => {
                *count *= MORE;
                Ok(None)
            }
            Some(SlotReply::Moved(redirect)) => {
                self.topology.follow(slot, &redirect, &shard)?;
                Ok(None)
            }
            Some(SlotReply::Moving(redirect, mut names, keys)) => {
                let there = self.topology.follow(slot, &redirect, &shard)?.shard;
                let Some((more, others)) = self.keys_on(&there, slot, *count).await? else {
                    *count *= MORE;
                    return Ok(None);
                };
                // It must not have turned back meanwhile.
                let mut still = Cmd::new();
                still.arg("EXISTS").arg(Keys::absent_in(slot, tags));
                let on_its_way = match self.plain_to(&shard, &still).await {
                    Err(Failure::Elsewhere(now)) => {
                        let by = shard.node().expect("a server of a cluster has an address");
                        now.node(by) == redirect.node(by)
                    }
                    Err(failure) => return Err(failure),
                    Ok(_) => false,
                };
                names.extend(more);
                Ok(on_its_way.then(|| visited(names, keys + others)))
            }
            Some(SlotReply::Unsteady) | None => Ok(None),
        }
    }

    /// Asks a server for the locks of slots of which it should be the one that has them.
    async fn ask_for(
        &self,
        shard: &Arc<Shard>,
        slots: &[Slot],
        count: usize,
        tags: &SlotTags,
    ) -> Result<Vec<SlotReply>, Failure> {
        let mut commands = Pipeline::with_capacity(3 * slots.len());
        for &slot in slots {
            let absent = Keys::absent_in(slot, tags);
            commands.cmd("EXISTS").arg(&absent);
            commands.cmd("CLUSTER").arg("GETKEYSINSLOT");
            commands.arg(slot.index()).arg(count);
            commands.cmd("EXISTS").arg(&absent);
        }
        let replies = self.batch_to(shard, &commands).await?;
        let (replies, []) = replies.as_chunks::<3>() else {
            return Err(unexpected());
        };
        replies
            .iter()
            .map(|replies| judge(replies, count))
            .collect()
    }

    /// The locks of a slot that lie on a server, and how many keys; `None` if there may be more.
    async fn keys_on(
        &self,
        shard: &Arc<Shard>,
        slot: Slot,
        count: usize,
    ) -> Result<Option<(Vec<LockName>, usize)>, Failure> {
        let mut command = Cmd::new();
        command.arg("CLUSTER").arg("GETKEYSINSLOT");
        command.arg(slot.index()).arg(count);
        let (names, keys) = read(&self.plain_to(shard, &command).await?)?;
        Ok((keys < count).then_some((names, keys)))
    }
}

fn judge([before, keys, after]: &[Value; 3], count: usize) -> Result<SlotReply, Failure> {
    let (names, keys) = read(keys)?;
    Ok(match (pointed(before)?, pointed(after)?) {
        (None, None) | (Some(_), Some(_)) if keys >= count => SlotReply::More,
        (None, None) => SlotReply::Here(names, keys),
        (_, Some(redirect)) if redirect.kind == RedirectKind::Moved => SlotReply::Moved(redirect),
        (Some(before), Some(after)) if before == after => SlotReply::Moving(after, names, keys),
        _ => SlotReply::Unsteady,
    })
}

/// Where a server points, if it does.
fn pointed(reply: &Value) -> Result<Option<Redirect>, Failure> {
    match reply {
        Value::Int(_) => Ok(None),
        Value::ServerError(error) => match answered(error) {
            Failure::Elsewhere(redirect) => Ok(Some(redirect)),
            failure => Err(failure),
        },
        _ => Err(unexpected()),
    }
}

/// The locks among keys, and how many keys there are.
fn read(keys: &Value) -> Result<(Vec<LockName>, usize), Failure> {
    match keys {
        Value::Array(keys) => {
            let names = keys.iter().filter_map(|key| match key {
                Value::BulkString(key) => Keys::name_in(key),
                _ => None,
            });
            Ok((names.collect(), keys.len()))
        }
        Value::ServerError(error) => Err(answered(error)),
        _ => Err(unexpected()),
    }
}

fn unexpected() -> Failure {
    Failure::Unknown(Uncertainty::UnexpectedReply("no keys of a slot".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> Value {
        bb8_redis::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap()
    }

    fn keys(keys: &[&str]) -> Value {
        Value::Array(
            keys.iter()
                .map(|key| Value::BulkString((*key).into()))
                .collect(),
        )
    }

    #[test]
    fn a_slot_is_believed_in_only_if_it_was_there_before_and_after() {
        let ask = || error("ASK 7 127.0.0.1:2");
        let moved = || error("MOVED 7 127.0.0.1:2");
        let found = || keys(&["lg:{a}:lock", "lg:{a}:info", "lg:{x}:fence"]);
        let replied = |before, after| judge(&[before, found(), after], 4).unwrap();
        let SlotReply::Here(names, 3) = replied(Value::Int(0), Value::Int(0)) else {
            panic!("it stands still");
        };
        assert_eq!(names, [LockName::new("a").unwrap()]);
        assert!(matches!(replied(ask(), ask()), SlotReply::Moving(_, _, 3)));
        for (before, after) in [
            (moved(), moved()),
            (Value::Int(0), moved()),
            (ask(), moved()),
        ] {
            assert!(matches!(replied(before, after), SlotReply::Moved(_)));
        }
        for (before, after) in [
            (Value::Int(0), ask()),
            (ask(), Value::Int(0)),
            (moved(), Value::Int(0)),
            (ask(), error("ASK 7 127.0.0.1:3")),
        ] {
            assert!(matches!(replied(before, after), SlotReply::Unsteady));
        }
        let full = judge(&[Value::Int(0), found(), Value::Int(0)], 3).unwrap();
        assert!(matches!(full, SlotReply::More));
        let refused = judge(&[Value::Int(0), error("NOPERM no"), Value::Int(0)], 3);
        assert!(matches!(refused, Err(Failure::Refused(_))));
    }
}
