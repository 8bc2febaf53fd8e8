//! Rounds: every two seconds a gateway announces that it is alive, and looks at every lock that has a waiter here.
//!
//! The number of commands depends on the number of locks, not of waiters; a gateway without waiters sends nothing. The
//! positions of single waiters are looked up in turns. A round finds changes that messages and timers can miss: grants
//! whose message or reply was lost, locks that were freed by foreign clients, other holders than expected, and lost
//! positions. A round also looks up the positions of waiters that watch them (streams that wait in a queue).

use std::{collections::HashSet, sync::Arc, time::Duration};

use bb8_redis::redis::{ServerError, Value};
use futures_util::future::BoxFuture;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tracing::{debug, info, warn};

use crate::{
    lifecycle::Lifecycle,
    lock::{LockName, TokenHash},
    store::{
        Partition, StoreError,
        parking::{News, Position},
    },
};

use super::{
    super::{
        Slot,
        client::{
            Command, answered, dispatch::on_each, failure::Failure, identity::RunId, shard::Shard,
        },
        gateways::Subscription,
        keys::Keys,
        records::{ID, QUEUED, SHARED, id, token_in},
        scripts::{Advance, GrantKnowledge, RedisContext},
    },
    gateway::{ALIVE, RedisGateway},
    timers::{DueEvents, OrphanKind, OrphanedAttempt, TimerActions, run_timers},
};

/// The task that makes the rounds of this gateway on one server.
struct Rounds {
    context: Arc<RedisContext>,
    shard: Arc<Shard>,
    /// The waiters whose tickets are looked up in the next round. They are chosen one round before, so that their
    /// acquires have been queued by then.
    chosen: Vec<(LockName, TokenHash)>,
    /// How many lookups were made so far: with each lookup, another waiter is the first of its name, whose id is
    /// searched in the queue.
    turn: usize,
    /// The waiter whose position was looked up last, after which the next round continues.
    last_shown: Option<TokenHash>,
    /// The run of the server at the last round, if the server names its run.
    run_id: Option<RunId>,
    /// When this gateway last extended the expiry of all queues in which it has waiters.
    extended: Option<Instant>,
}

/// Time between two rounds: how long a lost message or reply goes unnoticed, at most. This is a third of the time for
/// which a gateway counts as alive, and less than a provisional grant lasts.
const PERIOD: Duration = Duration::from_secs(2);
/// How late a round may begin before messages count as missed. Between rounds that are further apart, a provisional
/// grant may have come and ended.
const LATE: Duration = Duration::from_millis(500);
/// Pause before a failed round is repeated.
const RETRY: Duration = Duration::from_millis(200);
/// How many commands a round sends together: few enough that the requests of callers are not delayed noticeably.
const BATCH: usize = 512;
/// How many watched positions are looked up in one round. If more are watched, the waiters take turns.
const POSITIONS: usize = BATCH / 2;
/// Expiry of a queue, as in `parts/lease.lua`, which is longer than any wait.
const QUEUE_LASTS: Duration = Duration::from_hours(25);
const EXTEND_EVERY: Duration = Duration::from_hours(1);

// === impl Rounds ===

impl Rounds {
    fn new(context: Arc<RedisContext>, shard: Arc<Shard>) -> Self {
        Self {
            context,
            shard,
            chosen: Vec::new(),
            turn: 0,
            last_shown: None,
            run_id: None,
            extended: None,
        }
    }

    /// Makes rounds until the task is dropped.
    async fn go(mut self) {
        // A random first pause spreads the rounds of gateways that were started together.
        let share = f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX);
        let mut next = Instant::now() + PERIOD.mul_f64(share);
        let mut missed = false;
        let mut missed_messages = self.gateway().missed.subscribe();
        // The first round begins at once, for waiters that came before this server was known.
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
                    // Grants may have come and ended since the last complete round, so the next round looks up all
                    // waiters.
                    missed = true;
                    Instant::now() + RETRY
                }
            };
        }
    }

    async fn round(&mut self, missed: bool) -> Result<(), Failure> {
        if missed {
            self.gateway().may_be_thought_dead(|slot| self.has(slot));
            if self.is_another_run().await? {
                let here = |name: &LockName| self.has(Slot::of_name(name));
                self.gateway().parking.notify_forgotten(here);
                // Without this condition, a server that does not say its run would count as another run at every late
                // round, and all departures would be sent again.
                if self.run_id.is_some() {
                    self.gateway().repeat_departures(here);
                }
            }
        }
        let mut names = self.gateway().parking.names();
        names.retain(|name| self.has(Slot::of_name(name)));
        self.keep_alive(&names).await?;
        self.check_locks(&names).await?;
        self.extend_queues(&names).await?;
        self.find_lost_waiters(missed).await?;
        self.show_positions().await
    }

    fn gateway(&self) -> &RedisGateway {
        &self.context.gateway
    }

    fn keys(&self, name: &LockName) -> Keys {
        self.context.keys(name)
    }

    /// Whether the server of these rounds has a slot.
    fn has(&self, slot: Slot) -> bool {
        self.context.dispatch.topology.has(&self.shard, slot)
    }

    /// Sends commands of one key each to the server of these rounds.
    async fn batch(&self, commands: Vec<(Slot, Command)>) -> Result<Vec<Value>, Failure> {
        self.context.dispatch.batch(&self.shard, commands).await
    }

    /// Tells a waiter that it is no longer queued, so that the waiter asks again. A waiter that has left does not need
    /// this.
    fn notify_forgotten(&self, name: &LockName, token: &TokenHash) {
        let _delivered = self.gateway().parking.deliver(name, token, News::Forgotten);
    }

    /// Announces in every slot with a waiter that this gateway is alive. If the gateway no longer counted as alive in a
    /// slot, its waiters there may have lost their positions, and ask again.
    async fn keep_alive(&self, names: &[LockName]) -> Result<(), Failure> {
        let waited_for: HashSet<Slot> = names.iter().map(Slot::of_name).collect();
        let anywhere = self.gateway().parking.names();
        let anywhere: HashSet<Slot> = anywhere.iter().map(Slot::of_name).collect();
        let mut slots = self
            .gateway()
            .slots_to_keep(|slot| anywhere.contains(&slot));
        slots.retain(|&slot| self.has(slot));
        let mut lost = HashSet::new();
        for slots in slots.chunks(BATCH) {
            let keep = |&slot| {
                let key = Keys::of_gateway(slot, &self.context.tags, &self.gateway().id);
                (slot, expire(&key, ALIVE))
            };
            let replies = self.batch(slots.iter().map(keep).collect()).await?;
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
            self.gateway()
                .may_be_thought_dead(|slot| lost.contains(&slot));
            let concerned = |name: &LockName| lost.contains(&Slot::of_name(name));
            self.gateway().parking.notify_forgotten(concerned);
        }
        Ok(())
    }

    async fn check_locks(&self, names: &[LockName]) -> Result<(), Failure> {
        for names in names.chunks(BATCH / 2) {
            let commands = names.iter().flat_map(|name| {
                let keys = self.keys(name);
                let head = Command::new("GETRANGE").with(keys.lock()).with(0);
                let head = head.with(const { ID.place("token").end - 1 });
                [head, Command::new("PTTL").with(keys.lock())].map(|it| (keys.slot(), it))
            });
            let replies = self.batch(commands.collect()).await?;
            for (name, replies) in names.iter().zip(replies.chunks_exact(2)) {
                self.judge(name, &replies[0], &replies[1])?;
            }
        }
        Ok(())
    }

    fn judge(&self, name: &LockName, value: &Value, left: &Value) -> Result<(), Failure> {
        let gateway = self.gateway();
        match (value, left) {
            (_, Value::Int(-2)) => gateway.watch_expiry(name, Duration::ZERO),
            // Only a script can tell when the head of a shared lock's queue may be granted the lock, and whether a
            // waiter was granted it.
            (Value::BulkString(value), _) if value == SHARED => {
                gateway.watch_expiry(name, Duration::ZERO);
            }
            (Value::BulkString(value), Value::Int(left)) => {
                if let Some(token) = token_in(value) {
                    // If the holder waits at this gateway, the message of its grant was lost, and the news is delivered
                    // now. Any other holder does not wait at this gateway, and the news is dropped.
                    let news = News::GrantedProvisionally;
                    let _one_of_ours = gateway.parking.deliver(name, &token, news);
                }
                if let Ok(left) = u64::try_from(*left) {
                    gateway.watch_expiry(name, Duration::from_millis(left));
                }
            }
            (Value::ServerError(error), _) | (_, Value::ServerError(error)) => refused(error)?,
            _ => {}
        }
        Ok(())
    }

    /// Extends once an hour the expiry of each queue with a waiter here. Scripts set the expiry only when a queue
    /// begins, so a queue that never empties would expire.
    async fn extend_queues(&mut self, names: &[LockName]) -> Result<(), Failure> {
        let is_recent = (self.extended).is_some_and(|last| last.elapsed() < EXTEND_EVERY);
        if is_recent || names.is_empty() {
            return Ok(());
        }
        for names in names.chunks(BATCH) {
            let extend = |name: &LockName| {
                let keys = self.keys(name);
                (keys.slot(), expire(keys.wait(), QUEUE_LASTS))
            };
            for reply in self.batch(names.iter().map(extend).collect()).await? {
                if let Value::ServerError(error) = reply {
                    return Err(answered(&error));
                }
            }
        }
        self.extended = Some(Instant::now());
        Ok(())
    }

    /// Looks up the positions of waiters that watch their position, and sends each waiter its position.
    async fn show_positions(&mut self) -> Result<(), Failure> {
        let parking = &self.context.gateway.parking;
        let mut watched = parking.next_watched(self.last_shown.as_ref(), POSITIONS);
        self.last_shown = watched.last().map(|(_, token)| *token);
        watched.retain(|(name, _)| self.has(Slot::of_name(name)));
        if watched.is_empty() {
            return Ok(());
        }
        let commands = watched.iter().flat_map(|(name, token)| {
            let keys = self.keys(name);
            let place = Command::new("LPOS").with(keys.wait()).with(id(token));
            [place, Command::new("LLEN").with(keys.wait())].map(|it| (keys.slot(), it))
        });
        let replies = self.batch(commands.collect()).await?;
        for ((name, token), replies) in watched.iter().zip(replies.chunks_exact(2)) {
            match replies {
                &[Value::Int(ahead), Value::Int(waiters)] => {
                    let [ahead, waiters] = [ahead, waiters].map(i64::unsigned_abs);
                    parking.publish_position(token, Position { ahead, waiters });
                }
                [Value::ServerError(error), _] => refused(error)?,
                // The waiter may have been granted the lock: the waiter then receives the grant when it asks again.
                [Value::Nil, _] => self.notify_forgotten(name, token),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the server was restarted or replaced by another server since the last call. A server that does not say
    /// its run counts as restarted.
    async fn is_another_run(&mut self) -> Result<bool, Failure> {
        let now = match self.context.dispatch.info(&self.shard, "server").await {
            Ok(info) => info.and_then(|info| RunId::read(&info)),
            Err(Failure::Refused(_)) => None,
            Err(failure) => return Err(failure),
        };
        let before = std::mem::replace(&mut self.run_id, now);
        let another = before.is_none() || before != self.run_id;
        // At the first call the gateway has just started, so that nothing is logged as a restart of the server.
        if another && before.is_some() {
            info!("the server was started again, or is another server: all waiters ask again");
        } else if another {
            debug!("the gateway now knows the run of the server");
        }
        Ok(another)
    }
}

/// Creates a command that sets the expiry of a key.
fn expire(key: &str, lasts: Duration) -> Command {
    let ms = lasts.as_millis().to_string();
    Command::new("PEXPIRE").with(key).with(ms)
}

/// Turns an error reply into a failure, except for a key of another type, which does not stop the round: the waiters of
/// this key get the error when they ask again.
fn refused(error: &ServerError) -> Result<(), Failure> {
    match answered(error) {
        Failure::WrongType => Ok(()),
        failure => Err(failure),
    }
}

// === Lost waiters ===
//
// Finds waiters of this gateway that are no longer queued.
//
// A position can be lost while other waiters keep the queue alive: a grant whose message was lost ends before it is
// confirmed, or this gateway was taken for dead and the message about that was lost. Such a waiter is made to ask
// again, and is answered the lease if it holds the lock after all.

/// How many tickets are looked up in one round, in one batch. More waiters take turns: ten thousand waiters need twenty
/// rounds.
const PLACES: usize = 512;
/// How many queues with a lost position are read together: no queue is longer than a megabyte.
const QUEUES: usize = 8;

// === impl Rounds ===

impl Rounds {
    /// Looks up the tickets of some waiters on the server; of all waiters if messages may have been missed.
    async fn find_lost_waiters(&mut self, missed: bool) -> Result<(), Failure> {
        let last = |waiters: &[(LockName, TokenHash)]| waiters.last().map(|(_, token)| *token);
        if missed {
            let mut after = None;
            loop {
                let some = self.gateway().parking.next_waiters(after.as_ref(), PLACES);
                self.check_tickets(&some).await?;
                if some.len() < PLACES {
                    break;
                }
                after = last(&some);
            }
        } else {
            let mut waiters = self.chosen.clone();
            let first = self.turn % waiters.len().max(1);
            waiters.rotate_left(first);
            self.turn = self.turn.wrapping_add(1);
            self.check_tickets(&waiters).await?;
        }
        let parking = &self.context.gateway.parking;
        self.chosen = parking.next_waiters(last(&self.chosen).as_ref(), PLACES);
        if self.chosen.is_empty() {
            self.chosen = parking.next_waiters(None, PLACES);
        }
        Ok(())
    }

    /// Makes waiters ask again whose tickets do not say that they are queued. No script leaves a queued ticket without
    /// its id in the queue, but the list of ids may be lost. Searching the list takes time in proportion to its length,
    /// so only one waiter of each name is searched; if its id is not found, all waiters of that name are checked.
    async fn check_tickets(&self, waiters: &[(LockName, TokenHash)]) -> Result<(), Failure> {
        let (mut names, mut commands, mut asked) = (HashSet::new(), Vec::new(), Vec::new());
        for (name, token) in waiters {
            let keys = self.keys(name);
            if !self.has(keys.slot()) {
                continue;
            }
            let kind = Command::new("GETRANGE").with(keys.of_attempt(token));
            commands.push((keys.slot(), kind.with(0).with(0)));
            asked.push((name, token, false));
            if names.insert(name) {
                let place = Command::new("LPOS").with(keys.wait()).with(id(token));
                commands.push((keys.slot(), place));
                asked.push((name, token, true));
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        let replies = self.batch(commands).await?;
        let (mut stands, mut lost) = (HashSet::new(), Vec::new());
        for ((name, token, is_place), reply) in asked.into_iter().zip(replies) {
            match reply {
                Value::BulkString(kind) if kind == [QUEUED] => {
                    stands.insert(token);
                }
                Value::BulkString(_) => self.notify_forgotten(name, token),
                // The waiter has no queued ticket, so its missing id says nothing about other waiters.
                Value::Nil if is_place && stands.contains(token) => lost.push(name),
                Value::ServerError(error) => refused(&error)?,
                _ => {}
            }
        }
        for names in lost.chunks(QUEUES) {
            self.read_queues(names).await?;
        }
        Ok(())
    }

    /// Makes waiters ask again whose ids are not in the queues of some names.
    async fn read_queues(&self, names: &[&LockName]) -> Result<(), Failure> {
        let parking = &self.gateway().parking;
        // The waiters are listed before the queues are read, so that an attempt that is queued meanwhile does not count
        // as lost.
        let waiting: Vec<_> = names.iter().map(|name| parking.waiting_for(name)).collect();
        let commands = names.iter().map(|name| {
            let keys = self.keys(name);
            let all = Command::new("LRANGE").with(keys.wait()).with(0).with(-1);
            (keys.slot(), all)
        });
        let replies = self.batch(commands.collect()).await?;
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
                self.notify_forgotten(name, token);
            }
        }
        Ok(())
    }
}

fn token_of(value: &Value) -> Option<TokenHash> {
    match value {
        Value::BulkString(id) => token_in(id),
        _ => None,
    }
}

// Background tasks that keep queues with waiters here moving: ends of leases, grants without a caller, messages, and
// the rounds, which find what these have missed.

/// Starts the background tasks of the queues, which run until the program stops or the store is closed.
pub(crate) fn start(
    context: &Arc<RedisContext>,
    orphans: mpsc::Receiver<OrphanedAttempt>,
    lifecycle: &Lifecycle,
) {
    let here = Arc::clone(context);
    lifecycle.spawn_until(&context.closing, async move {
        let rounds = |shard| Rounds::new(Arc::clone(&here), shard).go();
        on_each(&here.dispatch, |shard| Box::pin(rounds(shard))).await;
    });
    let subscription = Subscription {
        id: context.gateway.id.clone(),
        channels: context.gateway.channels.clone(),
        news_wanted: Arc::clone(&context.gateway.news_wanted),
        dispatch: Arc::clone(&context.dispatch),
    };
    let here = Arc::clone(context);
    let listening = subscription.listen(move |heard| here.gateway.ingest_heard(heard));
    lifecycle.spawn_until(&context.closing, listening);
    let here = Arc::clone(context);
    lifecycle.spawn_until(&context.closing, async move {
        let due = DueEvents {
            ends: &here.gateway.timers,
            kept: &here.gateway.kept,
            orphans,
        };
        run_timers(due, &*here).await;
    });
}

// === impl RedisContext ===

impl TimerActions for RedisContext {
    fn partition(&self, name: &LockName) -> Partition {
        self.dispatch.topology.partition(Slot::of_name(name))
    }

    /// Passes a lock on if its lease has ended, even if no waiter is left here: gateways with other waiters may not
    /// know when the lease ends.
    fn advance(&self, name: LockName) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let awaited = self.gateway.parking.has_waiters(&name);
            match self.lock(self.keys(&name)).advance().await {
                Ok(Advance::Held(Some(left))) => self.gateway.watch_expiry(&name, left),
                // This gateway has waiters for the free lock, but the store has none: the waiters here ask again.
                Ok(Advance::Idle) if awaited => {
                    self.gateway
                        .parking
                        .notify_forgotten(|waited| *waited == name);
                }
                // The next round looks at the lock again, if there are waiters.
                Ok(Advance::Held(None) | Advance::Passed | Advance::Idle) => {}
                Err(error) => debug!(%name, %error, "the next round looks again"),
            }
        })
    }

    /// Gives up a kept position whose caller has not come back. If that fails, the position still counts as a waiter
    /// until its turn comes, but is not granted the lock.
    fn lapse(&self, name: LockName, token: TokenHash) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match self.lock(self.keys(&name)).lapse(&token).await {
                Ok(true) => self.gateway.timers.set(&name, Duration::ZERO),
                Ok(false) => {}
                Err(error) => {
                    debug!(%name, %error, "a position without an attempt stays in the queue until \
                                           its turn");
                }
            }
        })
    }

    /// Releases what an orphaned attempt holds. Answers the attempt if the store could not be reached, because the
    /// attempt may still hold the lock.
    fn give_back(&self, orphan: OrphanedAttempt) -> BoxFuture<'_, Option<OrphanedAttempt>> {
        Box::pin(async move {
            let OrphanedAttempt { name, token, kind } = &orphan;
            let known = match *kind {
                OrphanKind::Grant(fence) => GrantKnowledge::Undelivered(fence),
                OrphanKind::Departed(fence, recipient) => {
                    GrantKnowledge::Departed(fence, recipient)
                }
            };
            match self.lock(self.keys(name)).give_back(token, known).await {
                Ok(_) => None,
                Err(error @ (StoreError::Unavailable(_) | StoreError::Indeterminate(_))) => {
                    debug!(%name, %error, "a grant without a waiter could not be released yet");
                    Some(orphan)
                }
                Err(error @ (StoreError::ForeignData { .. } | StoreError::FenceExhausted)) => {
                    warn!(%name, %error, "a grant without a waiter is left to its TTL");
                    None
                }
            }
        })
    }
}
