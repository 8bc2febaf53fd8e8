//! Once a period: says that this gateway is alive, and looks at every lock that is waited for here.
//!
//! As much is sent however many wait for a name, and nothing while nobody waits; the places of single
//! waiters are looked up in turns. The look finds what no message and no timer can be
//! relied on for: grants whose message or reply was lost, locks that were freed by foreign clients,
//! holders that are not the ones we knew, places that were lost. For those who watch how their place
//! moves (streams that stand in the queue) it is looked up on the way.

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

/// The rounds of one server.
struct Rounds {
    context: Arc<RedisContext>,
    shard: Arc<Shard>,
    /// Whose places are looked up next. They are chosen a round before, so that none of them is only
    /// about to be queued.
    chosen: Vec<(LockName, TokenHash)>,
    /// How often places were looked up: with each time it is another waiter's turn to be the first of its name.
    turn: usize,
    /// Whose position was looked up last.
    last_shown: Option<TokenHash>,
    /// By which the server tells its runs apart.
    run_id: Option<RunId>,
    /// When the expiry of all queues was last extended in which somebody stands here.
    extended: Option<Instant>,
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
/// How long a queue lasts, as in `parts/lease.lua`, and how often it is given that again: longer than anybody
/// waits and is not asked after.
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

    /// Makes rounds for ever.
    async fn go(mut self) {
        // Gateways that were started together do not make their rounds together.
        let share = f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX);
        let mut next = Instant::now() + PERIOD.mul_f64(share);
        let mut missed = false;
        let mut missed_messages = self.gateway().missed.subscribe();
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
            self.gateway().may_be_thought_dead(|slot| self.has(slot));
            if self.is_another_run().await? {
                let here = |name: &LockName| self.has(Slot::of_name(name));
                self.gateway().parking.notify_forgotten(here);
                // A server that does not say its run would be sent all of them in every round that comes late.
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

    /// The waiter is not queued any more, and asks again. One that has left meanwhile need not be told.
    fn notify_forgotten(&self, name: &LockName, token: &TokenHash) {
        let _delivered = self.gateway().parking.deliver(name, token, News::Forgotten);
    }

    /// Says in every slot where somebody waits that this gateway is alive. Where it no longer
    /// counts as alive its waiters may have lost their places: they ask again.
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
            // When the head is next of a lock that is shared, and who was granted it, only a script can tell.
            (Value::BulkString(value), _) if value == SHARED => {
                gateway.watch_expiry(name, Duration::ZERO);
            }
            (Value::BulkString(value), Value::Int(left)) => {
                if let Some(token) = token_in(value) {
                    // Held by an attempt that waits here: its message was lost. By anybody else: as expected.
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

    /// Extends the expiry of each queue that somebody stands in here, once an hour: that of a queue which never empties is
    /// set by nobody else.
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

    /// Looks up where those stand who watch that.
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
                // If it has been granted the lock, it is answered so when it asks again.
                [Value::Nil, _] => self.notify_forgotten(name, token),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the server has been started anew, or is another one, since it was last asked. If it
    /// does not say, it may have been.
    async fn is_another_run(&mut self) -> Result<bool, Failure> {
        let now = match self.context.dispatch.info(&self.shard, "server").await {
            Ok(info) => info.and_then(|info| RunId::read(&info)),
            Err(Failure::Refused(_)) => None,
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

/// A command that lets a key last for so long.
fn expire(key: &str, lasts: Duration) -> Command {
    let ms = lasts.as_millis().to_string();
    Command::new("PEXPIRE").with(key).with(ms)
}

/// A key of another type is no failure: those who ask are told.
fn refused(error: &ServerError) -> Result<(), Failure> {
    match answered(error) {
        Failure::WrongType => Ok(()),
        failure => Err(failure),
    }
}

// === Lost waiters ===
//
// Finds those who wait here and are not queued any more.
//
// A place can be lost while others keep the queue alive: a grant whose message was lost ends before
// it is confirmed, or this gateway was taken for dead and the message of that was lost. Whoever is
// neither queued nor told so asks again, and is answered the lease if it holds the lock after all.

/// How many places are looked up in one round, and how many of them together. Where more wait they
/// take turns: ten thousand are come by within twenty rounds.
const PLACES: usize = 512;
/// How many queues are read together in which a place was lost: none is longer than a megabyte.
const QUEUES: usize = 8;

// === impl Rounds ===

impl Rounds {
    /// Looks up on the server the places of some who wait here; of all of them if news may have been missed.
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

    /// Tells those who are not queued that they must ask again: all whose tickets do not say that they stand in the
    /// queue. That a ticket says so and stands nowhere comes of no script, but the list may have been lost. A look for
    /// a place takes as long as the queue is long, so that one of each name is looked for, and where it is not
    /// found all of that name.
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
                // Of one that does not even say that it stands there nothing follows for others.
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

    /// Tells those who do not stand in the queues of some names that they must ask again.
    async fn read_queues(&self, names: &[&LockName]) -> Result<(), Failure> {
        let parking = &self.gateway().parking;
        // Before the queues are read: whoever is queued meanwhile is not looked for.
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

// === Maintenance ===
//
// Keeps the queues moving that somebody stands in here: ends of leases, grants that nobody waits for any more, messages,
// and the rounds that find what all of these have missed.

/// Starts all that goes on by itself, until the program stops or the store is closed.
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

    /// Passes a lock on if its lease has ended. Nobody may wait here any more: those who wait elsewhere
    /// may not know when it ends.
    fn advance(&self, name: LockName) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let awaited = self.gateway.parking.has_waiters(&name);
            match self.lock(self.keys(&name)).advance().await {
                Ok(Advance::Held(Some(left))) => self.gateway.watch_expiry(&name, left),
                // Somebody waits here, and the store knows of nobody.
                Ok(Advance::Idle) if awaited => {
                    self.gateway
                        .parking
                        .notify_forgotten(|waited| *waited == name);
                }
                // The next round looks again, if anybody waits.
                Ok(Advance::Held(None) | Advance::Passed | Advance::Idle) => {}
                Err(error) => debug!(%name, %error, "the next round looks again"),
            }
        })
    }

    /// Gives up a place that was kept for a request which has not come. If that fails it counts for
    /// nothing either, but among those who wait until its turn comes.
    fn lapse(&self, name: LockName, token: TokenHash) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match self.lock(self.keys(&name)).lapse(&token).await {
                Ok(true) => self.gateway.timers.set(&name, Duration::ZERO),
                Ok(false) => {}
                Err(error) => {
                    debug!(%name, %error, "a place that is kept for nobody stands until its turn comes");
                }
            }
        })
    }

    /// Gives back what nobody waits for. Until the store has answered it may be held.
    fn give_back(&self, orphan: OrphanedAttempt) -> BoxFuture<'_, Option<OrphanedAttempt>> {
        Box::pin(async move {
            let OrphanedAttempt { name, token, kind } = &orphan;
            let known = match *kind {
                OrphanKind::Grant(fence) => GrantKnowledge::Undelivered(fence),
                OrphanKind::Departed(fence, keeper) => GrantKnowledge::Departed(fence, keeper),
            };
            match self.lock(self.keys(name)).give_back(token, known).await {
                Ok(_) => None,
                Err(error @ (StoreError::Unavailable(_) | StoreError::Indeterminate(_))) => {
                    debug!(%name, %error, "a grant that nobody waits for could not be given back yet");
                    Some(orphan)
                }
                Err(error @ (StoreError::ForeignData { .. } | StoreError::FenceExhausted)) => {
                    warn!(%name, %error, "a grant that nobody waits for is left to its TTL");
                    None
                }
            }
        })
    }
}
