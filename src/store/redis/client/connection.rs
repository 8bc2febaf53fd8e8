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
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use bb8_redis::redis::{Cmd, Pipeline, ServerError, Value};
use tokio::time::{Duration, Instant};

use crate::store::{Unavailability, Uncertainty};

use super::{
    failure::Failure,
    run::{Run, RunId},
};

/// A handle to a connection. Cheap to clone; the last one closes it.
#[derive(Clone)]
pub(crate) struct Link(Arc<Connection>);

struct Connection {
    lane: Arc<Lane>,
    run: Run,
}

/// What the handles of a connection share with its driver.
// No `Debug`: what is to be sent may hold the password.
#[derive(Default)]
pub(crate) struct Lane {
    state: Mutex<State>,
    /// Whether it is retired, closed, or has ended.
    broken: AtomicBool,
    /// Whether nothing more is to be sent, although it was taken.
    closed: AtomicBool,
}

#[derive(Default)]
pub(crate) struct State {
    /// Commands that nobody has begun to send.
    pub(crate) unsent: Vec<u8>,
    /// The commands whose replies have not come, in the order in which they were sent.
    order: VecDeque<Pending>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Nobody waits for a reply beyond its own limit, and none of these is earlier.
    pub(crate) earliest: Option<Instant>,
    /// Woken when there is something to send; taken, so that many commands wake the driver once.
    driver: Option<Waker>,
    ended: bool,
}

#[derive(Debug)]
struct Pending {
    /// Where its caller waits; `None` if the caller was told that the time is over.
    slot: Option<usize>,
    limit: Instant,
}

/// Where a caller waits for a reply.
#[derive(Debug)]
enum Slot {
    Free,
    Waiting(Option<Waker>),
    Answered(Result<Value, Uncertainty>),
    /// The caller has gone.
    Left,
}

/// A reply that is to come. Dropped, it withdraws nothing.
struct Awaited<'a> {
    lane: &'a Lane,
    slot: usize,
    taken: bool,
}

/// A reply for which there was no command.
pub(crate) struct Unasked;

/// How many replies a connection may owe: many times as many as callers may wait for, so that only a server
/// that is far behind is asked no more.
const MOST_PENDING: usize = 16_384;

// === impl Link ===

impl Link {
    /// A connection whose driver is about to start.
    pub(crate) fn new(lane: Arc<Lane>) -> Self {
        let run = Run::default();
        Self(Arc::new(Connection { lane, run }))
    }

    /// Whether no new command may be sent.
    pub(crate) fn is_broken(&self) -> bool {
        self.0.lane.broken.load(Ordering::Acquire)
    }

    /// Keeps new commands from this connection.
    pub(crate) fn retire(&self) {
        self.0.lane.broken.store(true, Ordering::Release);
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

    /// Takes note of what `INFO server` says, which was asked then.
    pub(crate) fn note_run(&self, info: &[u8], asked: Instant) {
        self.0.run.note(&String::from_utf8_lossy(info), asked);
    }

    /// Sends a command and waits for its reply, at most until `limit`.
    pub(crate) async fn send(&self, command: &Cmd, limit: Instant) -> Result<Value, Failure> {
        let lane = &*self.0.lane;
        let slot = lane.accept(1, |state| state.push(command, limit))?;
        let failure = match Awaited::new(lane, slot).await {
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
        self.take_all(commands, limit)?.await
    }

    /// The same in two steps: takes them to be sent, and answers what waits for their replies.
    pub(crate) fn take_all(
        &self,
        commands: &Pipeline,
        limit: Instant,
    ) -> Result<impl Future<Output = Result<Vec<Value>, Failure>> + Send, Failure> {
        let lane = &*self.0.lane;
        let awaited: Vec<_> = lane.accept(commands.len(), |state| {
            let slots = commands
                .cmd_iter()
                .map(|command| state.push(command, limit));
            slots.map(|slot| Awaited::new(lane, slot)).collect()
        })?;
        Ok(async move {
            let mut values = Vec::with_capacity(awaited.len());
            for reply in awaited {
                match reply.await {
                    Ok(value) => values.push(value),
                    Err(unknown) => {
                        self.retire();
                        return Err(Failure::Unknown(unknown));
                    }
                }
            }
            Ok(values)
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.lane.close();
    }
}

/// What an error of the server means.
pub(crate) fn answered(error: &ServerError) -> Failure {
    Failure::of(error.code(), error.details().unwrap_or_default())
}

// === impl Lane ===

impl Lane {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes commands to be sent, unless the connection has ended or too many replies are owed: then nothing
    /// of them is sent.
    fn accept<T>(&self, count: usize, push: impl FnOnce(&mut State) -> T) -> Result<T, Failure> {
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
            woken.extend(state.settle(pending.slot, Err(lost)));
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

// === impl State ===

impl State {
    fn push(&mut self, command: &Cmd, limit: Instant) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            self.slots.len() - 1
        });
        self.slots[slot] = Slot::Waiting(None);
        command.write_packed_command(&mut self.unsent);
        self.order.push_back(Pending {
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
    pub(crate) fn answer(&mut self, value: Value) -> Result<Option<Waker>, Unasked> {
        let pending = self.order.pop_front().ok_or(Unasked)?;
        Ok(self.settle(pending.slot, Ok(value)))
    }

    /// Tells those whose time is over.
    ///
    /// Answers whether a reply is overdue, be its caller there or not: the connection may be dead then.
    pub(crate) fn expire(&mut self, now: Instant, woken: &mut Vec<Waker>) -> bool {
        self.earliest = None;
        let mut is_overdue = false;
        for at in 0..self.order.len() {
            let Pending { slot, limit } = self.order[at];
            let unanswered =
                |&slot: &usize| matches!(self.slots[slot], Slot::Waiting(_) | Slot::Left);
            let Some(waiting) = slot.filter(unanswered) else {
                continue;
            };
            if limit <= now {
                // Its reply may still come, and is for nobody then.
                self.order[at].slot = None;
                is_overdue = true;
                woken.extend(self.settle(Some(waiting), Err(Uncertainty::TimedOut)));
            } else if self.earliest.is_none_or(|earliest| limit < earliest) {
                self.earliest = Some(limit);
            }
        }
        is_overdue
    }

    fn settle(&mut self, slot: Option<usize>, reply: Result<Value, Uncertainty>) -> Option<Waker> {
        let slot = slot?;
        match std::mem::replace(&mut self.slots[slot], Slot::Answered(reply)) {
            Slot::Waiting(waker) => waker,
            Slot::Left => {
                self.slots[slot] = Slot::Free;
                self.free.push(slot);
                None
            }
            Slot::Free | Slot::Answered(_) => unreachable!("a command is settled once"),
        }
    }
}

// === impl Awaited ===

impl<'a> Awaited<'a> {
    fn new(lane: &'a Lane, slot: usize) -> Self {
        Self {
            lane,
            slot,
            taken: false,
        }
    }
}

impl Future for Awaited<'_> {
    type Output = Result<Value, Uncertainty>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.lane.state();
        match std::mem::replace(&mut state.slots[self.slot], Slot::Free) {
            Slot::Answered(reply) => {
                state.free.push(self.slot);
                drop(state);
                self.taken = true;
                Poll::Ready(reply)
            }
            Slot::Waiting(Some(waker)) if waker.will_wake(context.waker()) => {
                state.slots[self.slot] = Slot::Waiting(Some(waker));
                Poll::Pending
            }
            Slot::Waiting(_) | Slot::Left | Slot::Free => {
                state.slots[self.slot] = Slot::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut state = self.lane.state();
        let left = std::mem::replace(&mut state.slots[self.slot], Slot::Left);
        if let Slot::Answered(_) = left {
            state.slots[self.slot] = Slot::Free;
            state.free.push(self.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use bb8_redis::redis::cmd;

    use super::*;

    #[test]
    fn an_overdue_reply_shows_a_dead_connection_although_its_caller_has_gone() {
        let (lane, limit) = (Lane::default(), Instant::now());
        let pushed = lane.accept(1, |state| state.push(&cmd("PING"), limit));
        let slot = pushed.unwrap_or_else(|_| panic!("it is taken"));
        drop(Awaited::new(&lane, slot));
        let mut woken = Vec::new();
        assert!(lane.state().expire(limit, &mut woken));
        // It was told, and its slot is free again.
        assert!(!lane.state().expire(limit, &mut woken));
        assert_eq!(lane.state().free, [slot]);
    }

    #[test]
    fn a_connection_that_was_given_up_takes_nothing_more() {
        let lane = Lane::default();
        lane.close();
        let limit = Instant::now();
        let refused = lane.accept(1, |state| state.push(&cmd("PING"), limit));
        assert!(matches!(refused, Err(Failure::Transient(_))));
        assert!(lane.state().unsent.is_empty());
    }
}
