//! Once a period: says that this gateway is alive, and looks at every lock that is waited for here.
//!
//! As much is sent however many wait for a name, and nothing while nobody waits; the places of single
//! waiters are looked up in turns (`lost_waiters.rs`). The look finds what no message and no timer can be
//! relied on for: grants whose message or reply was lost, locks that were freed by foreign clients,
//! holders that are not the ones we knew, places that were lost. For those who watch how their place
//! moves (streams that stand in the queue) it is looked up on the way.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bb8_redis::redis::{Cmd, Pipeline, Value};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};

use crate::{
    lock::{LockName, TokenHash},
    store::{parking::News, positions::Position},
};

use super::{
    super::{
        Slot, SlotTags,
        client::{answered, dispatch::Dispatch, failure::Failure, run::RunId, shard::Shard},
        keys::Keys,
        records::{ID, SHARED, id, token_in},
    },
    extensions::{Extensions, QUEUE_LASTS},
    gateway::{ALIVE, RedisGateway},
    lost_waiters::LostWaiters,
};

/// What it takes to make the rounds of one server.
pub(crate) struct Rounds {
    pub(crate) shard: Arc<Shard>,
    pub(crate) gateway: Arc<RedisGateway>,
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) tags: Arc<SlotTags>,
    /// Whose places are looked up.
    pub(crate) lost_waiters: LostWaiters,
    /// Whose position was looked up last.
    pub(crate) last_shown: Option<TokenHash>,
    /// By which the server tells its runs apart.
    pub(crate) run_id: Option<RunId>,
    /// When the expiry of the queues was extended.
    pub(crate) extensions: Extensions,
}

/// How long a lost message or reply goes unnoticed, at most. A third of the time for which a
/// gateway counts as alive, and less than a provisional grant lasts.
const PERIOD: Duration = Duration::from_secs(2);
/// How late a round may come. Between two that are further apart a provisional grant may have come and gone.
const LATE: Duration = Duration::from_millis(500);
/// How soon a round is made again that failed.
const RETRY: Duration = Duration::from_millis(200);
/// How many commands are sent together: few enough that callers between them do not notice.
const BATCH: usize = 512;
/// How many positions are looked up in one round. Where more are watched, they take turns.
const POSITIONS: usize = BATCH / 2;

// === impl Rounds ===

impl Rounds {
    /// Makes rounds for ever.
    pub(crate) async fn go(mut self) {
        // Gateways that were started together do not make their rounds together.
        let share = f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX);
        let mut next = Instant::now() + PERIOD.mul_f64(share);
        let mut missed = false;
        let gateway = Arc::clone(&self.gateway);
        let mut missed_messages = gateway.missed.subscribe();
        // Those who waited for something on this server before it was known are looked after at once.
        missed_messages.mark_changed();
        loop {
            tokio::select! {
                () = sleep_until(next) => {}
                _changed = missed_messages.changed() => missed = true,
            }
            let begun = Instant::now();
            missed |= begun > next + LATE;
            next = match self.round(missed).await {
                Ok(()) => {
                    missed = false;
                    begun + PERIOD
                }
                Err(_known_by_others) => {
                    // What was not looked at meanwhile may have ended.
                    missed = true;
                    Instant::now() + RETRY
                }
            };
        }
    }

    async fn round(&mut self, missed: bool) -> Result<(), Failure> {
        if missed {
            self.gateway.may_be_thought_dead(|slot| self.has(slot));
            if self.is_another_run().await? {
                let here = |name: &LockName| self.has(Slot::of_name(name));
                self.gateway.parking.notify_forgotten(here);
                // A server that does not say its run would be sent all of them in every round that comes late.
                if self.run_id.is_some() {
                    self.gateway.repeat_departures(here);
                }
            }
        }
        let mut names = self.gateway.parking.names();
        names.retain(|name| self.has(Slot::of_name(name)));
        self.keep_alive(&names).await?;
        self.check_locks(&names).await?;
        self.extend_queues(&names).await?;
        let (gateway, dispatch) = (&self.gateway, &self.dispatch);
        self.lost_waiters
            .check(gateway, (dispatch, &self.shard), &self.tags, missed)
            .await?;
        self.show_positions().await
    }

    /// Whether the server of these rounds has a slot.
    fn has(&self, slot: Slot) -> bool {
        self.dispatch.topology.has(&self.shard, slot)
    }

    /// Says in every slot where somebody waits that this gateway is alive. Where it no longer
    /// counts as alive its waiters may have lost their places: they ask again.
    async fn keep_alive(&self, names: &[LockName]) -> Result<(), Failure> {
        let waited_for: HashSet<Slot> = names.iter().map(Slot::of_name).collect();
        let anywhere = self.gateway.parking.names();
        let anywhere: HashSet<Slot> = anywhere.iter().map(Slot::of_name).collect();
        let mut slots = self.gateway.slots_to_keep(|slot| anywhere.contains(&slot));
        slots.retain(|&slot| self.has(slot));
        let mut lost = HashSet::new();
        for slots in slots.chunks(BATCH) {
            let mut commands = Pipeline::with_capacity(slots.len());
            for &slot in slots {
                let key = Keys::of_gateway(slot, &self.tags, &self.gateway.id);
                let ms = ALIVE.as_millis().to_string();
                commands.cmd("PEXPIRE").arg(key).arg(ms);
            }
            let replies = self.dispatch.batch(&self.shard, slots, &commands).await?;
            for (&slot, reply) in slots.iter().zip(replies) {
                match reply {
                    Value::Int(0) if waited_for.contains(&slot) => {
                        lost.insert(slot);
                    }
                    Value::ServerError(error) => return Err(answered(&error)),
                    _ => {}
                }
            }
        }
        if !lost.is_empty() {
            self.gateway
                .may_be_thought_dead(|slot| lost.contains(&slot));
            let concerned = |name: &LockName| lost.contains(&Slot::of_name(name));
            self.gateway.parking.notify_forgotten(concerned);
        }
        Ok(())
    }

    async fn check_locks(&self, names: &[LockName]) -> Result<(), Failure> {
        for names in names.chunks(BATCH / 2) {
            let mut commands = Pipeline::with_capacity(2 * names.len());
            for name in names {
                let keys = Keys::of(name, &self.tags, &self.gateway.id);
                commands.cmd("GETRANGE").arg(keys.lock());
                commands.arg(0).arg(const { ID.place("token").end - 1 });
                commands.cmd("PTTL").arg(keys.lock());
            }
            let slots = names.iter().map(Slot::of_name);
            let slots: Vec<_> = slots.flat_map(|slot| [slot; 2]).collect();
            let replies = self.dispatch.batch(&self.shard, &slots, &commands).await?;
            for (name, replies) in names.iter().zip(replies.chunks_exact(2)) {
                self.judge(name, &replies[0], &replies[1])?;
            }
        }
        Ok(())
    }

    /// Extends the expiry of each queue that somebody stands in here: that of one which never empties is set by nobody
    /// else.
    async fn extend_queues(&mut self, names: &[LockName]) -> Result<(), Failure> {
        let awaited = |name: &LockName| self.gateway.parking.has_waiters(name);
        let due = self.extensions.due(names, awaited);
        for names in due.chunks(BATCH) {
            let mut commands = Pipeline::with_capacity(names.len());
            for name in names {
                let keys = Keys::of(name, &self.tags, &self.gateway.id);
                commands.cmd("PEXPIRE").arg(keys.wait());
                commands.arg(QUEUE_LASTS.as_millis().to_string());
            }
            let slots: Vec<_> = names.iter().map(|name| Slot::of_name(name)).collect();
            let replies = self.dispatch.batch(&self.shard, &slots, &commands).await?;
            for (name, reply) in names.iter().zip(replies) {
                if let Value::ServerError(error) = reply {
                    return Err(answered(&error));
                }
                self.extensions.extended(name);
            }
        }
        Ok(())
    }

    fn judge(&self, name: &LockName, value: &Value, left: &Value) -> Result<(), Failure> {
        match (value, left) {
            (_, Value::Int(-2)) => self.gateway.watch_expiry(name, Duration::ZERO),
            // When the head is next of a lock that is shared, and who was granted it, only a script can tell.
            (Value::BulkString(value), _) if value == SHARED => {
                self.gateway.watch_expiry(name, Duration::ZERO);
            }
            (Value::BulkString(value), Value::Int(left)) => {
                if let Some(token) = token_in(value) {
                    // Held by an attempt that waits here: its message was lost. By anybody else: as expected.
                    let parking = &self.gateway.parking;
                    let _one_of_ours = parking.deliver(name, &token, News::GrantedProvisionally);
                }
                if let Ok(left) = u64::try_from(*left) {
                    self.gateway.watch_expiry(name, Duration::from_millis(left));
                }
            }
            (Value::ServerError(error), _) | (_, Value::ServerError(error)) => {
                match answered(error) {
                    // A key of another type, which those who ask are told.
                    Failure::WrongType => {}
                    failure => return Err(failure),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Looks up where those stand who watch that.
    async fn show_positions(&mut self) -> Result<(), Failure> {
        let positions = self.gateway.parking.positions();
        let mut watched = positions.next_watched(self.last_shown.as_ref(), POSITIONS);
        self.last_shown = watched.last().map(|(_, token)| *token);
        watched.retain(|(name, _)| self.has(Slot::of_name(name)));
        if watched.is_empty() {
            return Ok(());
        }
        let slots = watched.iter().map(|(name, _)| Slot::of_name(name));
        let slots: Vec<_> = slots.flat_map(|slot| [slot; 2]).collect();
        let mut commands = Pipeline::with_capacity(2 * watched.len());
        for (name, token) in &watched {
            let keys = Keys::of(name, &self.tags, &self.gateway.id);
            commands.cmd("LPOS").arg(keys.wait()).arg(id(token));
            commands.cmd("LLEN").arg(keys.wait());
        }
        let replies = self.dispatch.batch(&self.shard, &slots, &commands).await?;
        for ((name, token), replies) in watched.iter().zip(replies.chunks_exact(2)) {
            match replies {
                &[Value::Int(ahead), Value::Int(waiters)] => {
                    let [ahead, waiters] = [ahead, waiters].map(i64::unsigned_abs);
                    positions.publish(token, Position { ahead, waiters });
                }
                [Value::ServerError(error), _] => match answered(error) {
                    // A key of another type, which those who ask are told.
                    Failure::WrongType => {}
                    failure => return Err(failure),
                },
                [Value::Nil, _] => {
                    // If it has been granted the lock, it is answered so when it asks again.
                    let parking = &self.gateway.parking;
                    let _delivered = parking.deliver(name, token, News::Forgotten);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the server has been started anew, or is another one, since it was last asked. If it
    /// does not say, it may have been.
    async fn is_another_run(&mut self) -> Result<bool, Failure> {
        let mut command = Cmd::new();
        command.arg("INFO").arg("server");
        let now = match self.dispatch.plain_to(&self.shard, &command).await {
            Ok(Value::BulkString(info)) => RunId::read(&String::from_utf8_lossy(&info)),
            Ok(_) | Err(Failure::Refused(_)) => None,
            Err(failure) => return Err(failure),
        };
        let before = std::mem::replace(&mut self.run_id, now);
        let another = before.is_none() || before != self.run_id;
        // The first time it is this gateway that was started.
        if another && before.is_some() {
            info!(
                "the server was started again, or is another one: everybody who waits asks again"
            );
        } else if another {
            debug!("the server is known now by its run");
        }
        Ok(another)
    }
}
