//! One connection, shared by many requests at once.
//!
//! A command is written whole into a buffer that its driver (`driver.rs`) sends, and nothing withdraws it:
//! a caller who goes leaves no half of one behind. Replies come in the order of the commands, and each goes
//! to the command it answers or, if its caller has gone, nowhere. A connection on which anything went wrong
//! is retired: no new command is sent on it, and it is closed when the last of its commands has ended.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use bb8_redis::redis::{Cmd, Pipeline, ServerError, Value};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Duration, Instant, timeout_at};

use crate::{
    lifecycle::Worker,
    store::{Unavailability, Uncertainty},
};

use super::{
    calls::ScriptCall,
    failure::Failure,
    run::{Run, RunId},
};

/// A handle to a connection. Cheap to clone; the last one closes it.
#[derive(Clone)]
pub(crate) struct Connection(Arc<ConnectionInner>);

struct ConnectionInner {
    shared: Arc<ConnectionShared>,
    run: Run,
    /// The thread that moves its bytes and looks after its time-outs.
    home: Option<Worker>,
}

/// What the handles of a connection share with its driver.
// No `Debug`: what is to be sent may hold the password.
#[derive(Default)]
pub(crate) struct ConnectionShared {
    state: Mutex<RedisConnectionState>,
    /// Whether it is retired, closed, or has ended.
    broken: AtomicBool,
    /// Whether nothing more is to be sent, although it was taken.
    closed: AtomicBool,
}

#[derive(Default)]
pub(crate) struct RedisConnectionState {
    /// Commands that nobody has begun to send.
    pub(crate) unsent: Vec<u8>,
    /// The commands whose replies have not come, in the order in which they were sent.
    order: VecDeque<PendingReply>,
    slots: Vec<ReplySlot>,
    free: Vec<usize>,
    /// Nobody waits for a reply beyond its own limit, and none of these is earlier.
    pub(crate) earliest: Option<Instant>,
    /// Woken when there is something to send; taken, so that many commands wake the driver once.
    driver: Option<Waker>,
    ended: bool,
}

#[derive(Debug)]
struct PendingReply {
    /// Where its caller waits; `None` if the caller was told that the time is over.
    slot: Option<usize>,
    limit: Instant,
}

/// Where a caller waits for a reply.
#[derive(Debug)]
enum ReplySlot {
    Free,
    Waiting(Option<Waker>),
    Answered(Result<Value, Uncertainty>),
    /// The caller has gone.
    Left,
}

/// A reply that is to come. Dropped, it withdraws nothing.
struct ReplyFuture<'a> {
    shared: &'a ConnectionShared,
    slot: usize,
    taken: bool,
}

/// A reply for which there was no command.
pub(crate) struct UnsolicitedReply;

/// How many replies a connection may owe: many times as many as callers may wait for, so that only a server
/// that is far behind is asked no more.
const MOST_PENDING: usize = 16_384;

/// How late the driver may be to end what has taken too long, before those on other threads end it themselves.
const DRIVER_IS_LATE: Duration = Duration::from_millis(50);

// === impl Connection ===

impl Connection {
    /// A connection to this run of a server, whose driver is about to start on this thread.
    pub(crate) fn new(shared: Arc<ConnectionShared>, run: Run) -> Self {
        Self(Arc::new(ConnectionInner {
            shared,
            run,
            home: Worker::current(),
        }))
    }

    /// Whether no new command may be sent.
    pub(crate) fn is_broken(&self) -> bool {
        self.0.shared.broken.load(Ordering::Acquire)
    }

    /// Keeps new commands from this connection.
    pub(crate) fn retire(&self) {
        self.0.shared.retire();
    }

    /// Whether both are handles to the same connection.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// For how long the server has run; `None` if it was not asked, or does not say.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.0.run.age()
    }

    /// Which run of which server it leads to; `None` if that was not asked, or is not said.
    pub(crate) fn run(&self) -> Option<&RunId> {
        self.0.run.id()
    }

    /// Waits for a reply. Time-outs are the driver's; those who run on another thread than the driver look at the time
    /// themselves as well, because a thread that is stuck looks after none.
    async fn within(&self, limit: Instant, reply: ReplyFuture<'_>) -> Result<Value, Uncertainty> {
        if Worker::current() == self.0.home {
            return reply.await;
        }
        let waited = timeout_at(limit + DRIVER_IS_LATE, reply).await;
        waited.unwrap_or(Err(Uncertainty::TimedOut))
    }

    /// Sends a command and waits for its reply, at most until `limit`.
    pub(crate) async fn send(&self, command: &Cmd, limit: Instant) -> Result<Value, Failure> {
        self.exchange(|unsent| command.write_packed_command(unsent), limit)
            .await
    }

    /// The same for a call of a script.
    pub(crate) async fn call(&self, call: &ScriptCall, limit: Instant) -> Result<Value, Failure> {
        self.exchange(|unsent| call.write_to(unsent), limit).await
    }

    async fn exchange(
        &self,
        write: impl FnOnce(&mut Vec<u8>),
        limit: Instant,
    ) -> Result<Value, Failure> {
        let shared = &*self.0.shared;
        let slot = shared.accept(1, |state| state.push(write, limit))?;
        let failure = match self.within(limit, ReplyFuture::new(shared, slot)).await {
            Ok(Value::ServerError(error)) => answered(&error),
            Ok(value) => return Ok(value),
            Err(unknown) => Failure::Unknown(unknown),
        };
        if let Failure::Unknown(_) | Failure::WrongNode(_) = failure {
            self.retire();
        }
        Err(failure)
    }

    /// Sends commands together, with none of anybody else between them, and waits for all replies. Each of
    /// them may be an error.
    pub(crate) async fn send_all(
        &self,
        commands: &Pipeline,
        limit: Instant,
    ) -> Result<Vec<Value>, Failure> {
        let (values, lost) = self.take_all(commands, limit)?.await;
        match lost {
            None => Ok(values),
            Some(unknown) => Err(Failure::Unknown(unknown)),
        }
    }

    /// The same in two steps: takes them to be sent, and answers what waits for their replies. That answers all
    /// that came before one was lost, and why that one was.
    pub(crate) fn take_all(
        &self,
        commands: &Pipeline,
        limit: Instant,
    ) -> Result<impl Future<Output = (Vec<Value>, Option<Uncertainty>)> + Send, Failure> {
        let shared = &*self.0.shared;
        let replies: Vec<_> = shared.accept(commands.len(), |state| {
            let slots = commands
                .cmd_iter()
                .map(|command| state.push(|unsent| command.write_packed_command(unsent), limit));
            slots.map(|slot| ReplyFuture::new(shared, slot)).collect()
        })?;
        Ok(async move {
            let mut values = Vec::with_capacity(replies.len());
            for reply in replies {
                match self.within(limit, reply).await {
                    Ok(value) => values.push(value),
                    Err(unknown) => {
                        self.retire();
                        return (values, Some(unknown));
                    }
                }
            }
            (values, None)
        })
    }
}

impl Drop for ConnectionInner {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// What an error of the server means.
pub(crate) fn answered(error: &ServerError) -> Failure {
    Failure::of(error.code(), error.details().unwrap_or_default())
}

// === impl ConnectionShared ===

impl ConnectionShared {
    pub(crate) fn state(&self) -> MutexGuard<'_, RedisConnectionState> {
        self.state.lock()
    }

    /// Takes commands to be sent, unless the connection has ended or too many replies are owed: then nothing
    /// of them is sent.
    fn accept<T>(
        &self,
        count: usize,
        push: impl FnOnce(&mut RedisConnectionState) -> T,
    ) -> Result<T, Failure> {
        let mut state = self.state();
        if state.ended || self.is_closed() {
            let why = "the connection was lost before anything was sent".to_owned();
            return Err(Failure::Transient(Unavailability::Connect(why)));
        }
        if state.order.len() + count > MOST_PENDING {
            return Err(Failure::Transient(Unavailability::Overloaded));
        }
        let pushed = push(&mut state);
        let driver = state.driver.take();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
        Ok(pushed)
    }

    /// Keeps new commands from this connection.
    pub(crate) fn retire(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// Gives the connection up: what its driver has not sent yet is not sent any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.broken.store(true, Ordering::Release);
        let driver = self.state().driver.take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends the connection: nothing more is sent, and whoever waits is told that no reply will come.
    pub(crate) fn end(&self, why: &str) {
        self.broken.store(true, Ordering::Release);
        let mut state = self.state();
        state.ended = true;
        state.unsent = Vec::new();
        state.earliest = None;
        let mut woken = Vec::new();
        while let Some(pending) = state.order.pop_front() {
            let lost = Uncertainty::ConnectionLost(why.to_owned());
            woken.extend(state.resolve(pending.slot, Err(lost)));
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

// === impl RedisConnectionState ===

impl RedisConnectionState {
    fn push(&mut self, write: impl FnOnce(&mut Vec<u8>), limit: Instant) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(ReplySlot::Free);
            self.slots.len() - 1
        });
        self.slots[slot] = ReplySlot::Waiting(None);
        write(&mut self.unsent);
        self.order.push_back(PendingReply {
            slot: Some(slot),
            limit,
        });
        if self.earliest.is_none_or(|earliest| limit < earliest) {
            self.earliest = Some(limit);
        }
        slot
    }

    /// Says which task sends what comes from now on.
    pub(crate) fn wake_with(&mut self, waker: &Waker) {
        match &mut self.driver {
            Some(driver) => driver.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// Hands the next reply to whoever waits for it, who is to be woken.
    pub(crate) fn answer(&mut self, value: Value) -> Result<Option<Waker>, UnsolicitedReply> {
        let pending = self.order.pop_front().ok_or(UnsolicitedReply)?;
        Ok(self.resolve(pending.slot, Ok(value)))
    }

    /// Tells those whose time is over.
    ///
    /// Answers whether a reply is overdue, be its caller there or not: the connection may be dead then.
    pub(crate) fn expire(&mut self, now: Instant, woken: &mut Vec<Waker>) -> bool {
        self.earliest = None;
        let mut is_overdue = false;
        for at in 0..self.order.len() {
            let PendingReply { slot, limit } = self.order[at];
            let unanswered =
                |&slot: &usize| matches!(self.slots[slot], ReplySlot::Waiting(_) | ReplySlot::Left);
            let Some(waiting) = slot.filter(unanswered) else {
                continue;
            };
            if limit <= now {
                // Its reply may still come, and is for nobody then.
                self.order[at].slot = None;
                is_overdue = true;
                woken.extend(self.resolve(Some(waiting), Err(Uncertainty::TimedOut)));
            } else if self.earliest.is_none_or(|earliest| limit < earliest) {
                self.earliest = Some(limit);
            }
        }
        is_overdue
    }

    fn resolve(&mut self, slot: Option<usize>, reply: Result<Value, Uncertainty>) -> Option<Waker> {
        let slot = slot?;
        match std::mem::replace(&mut self.slots[slot], ReplySlot::Answered(reply)) {
            ReplySlot::Waiting(waker) => waker,
            ReplySlot::Left => {
                self.slots[slot] = ReplySlot::Free;
                self.free.push(slot);
                None
            }
            ReplySlot::Free | ReplySlot::Answered(_) => unreachable!("a command is settled once"),
        }
    }
}

// === impl ReplyFuture ===

impl<'a> ReplyFuture<'a> {
    fn new(shared: &'a ConnectionShared, slot: usize) -> Self {
        Self {
            shared,
            slot,
            taken: false,
        }
    }
}

impl Future for ReplyFuture<'_> {
    type Output = Result<Value, Uncertainty>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.shared.state();
        match std::mem::replace(&mut state.slots[self.slot], ReplySlot::Free) {
            ReplySlot::Answered(reply) => {
                state.free.push(self.slot);
                drop(state);
                self.taken = true;
                Poll::Ready(reply)
            }
            ReplySlot::Waiting(Some(waker)) if waker.will_wake(context.waker()) => {
                state.slots[self.slot] = ReplySlot::Waiting(Some(waker));
                Poll::Pending
            }
            ReplySlot::Waiting(_) | ReplySlot::Left | ReplySlot::Free => {
                state.slots[self.slot] = ReplySlot::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for ReplyFuture<'_> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut state = self.shared.state();
        let left = std::mem::replace(&mut state.slots[self.slot], ReplySlot::Left);
        if let ReplySlot::Answered(_) = left {
            state.slots[self.slot] = ReplySlot::Free;
            state.free.push(self.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use bb8_redis::redis::cmd;

    use super::*;
    use crate::lifecycle::Workers;

    #[test]
    fn an_overdue_reply_shows_a_dead_connection_although_its_caller_has_gone() {
        let (shared, limit) = (ConnectionShared::default(), Instant::now());
        let pushed = shared.accept(1, |state| {
            state.push(|unsent| cmd("PING").write_packed_command(unsent), limit)
        });
        let slot = pushed.unwrap_or_else(|_| panic!("it is taken"));
        drop(ReplyFuture::new(&shared, slot));
        let mut woken = Vec::new();
        assert!(shared.state().expire(limit, &mut woken));
        // It was told, and its slot is free again.
        assert!(!shared.state().expire(limit, &mut woken));
        assert_eq!(shared.state().free, [slot]);
    }

    #[tokio::test]
    async fn nobody_on_another_thread_waits_for_one_that_is_stuck() {
        let (workers, _running) = Workers::start(1).unwrap();
        let home = workers.all().next().unwrap();
        // Its driver does not run, as on a thread that is stuck.
        let connection = workers
            .carry_out(home, async {
                Connection::new(Arc::default(), Run::default())
            })
            .await
            .unwrap();
        let (ping, limit) = (cmd("PING"), Instant::now() + Duration::from_millis(50));
        let sent = timeout_at(
            limit + Duration::from_secs(5),
            connection.send(&ping, limit),
        );
        let timed_out = Failure::Unknown(Uncertainty::TimedOut);
        assert_eq!(sent.await.unwrap().unwrap_err(), timed_out);
        assert!(connection.is_broken());
    }

    #[test]
    fn a_connection_that_was_given_up_takes_nothing_more() {
        let shared = ConnectionShared::default();
        shared.close();
        let limit = Instant::now();
        let refused = shared.accept(1, |state| {
            state.push(|unsent| cmd("PING").write_packed_command(unsent), limit)
        });
        assert!(matches!(refused, Err(Failure::Transient(_))));
        assert!(shared.state().unsent.is_empty());
    }
}
