//! What is sent to the writer, and how it is answered.

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, oneshot},
};

use crate::{
    clock::Clock,
    lock::{BreakTarget, HeldLease, KeeperId, LockName, ReleaseRequest, TokenHash},
    store::{
        StoreError, Uncertainty,
        contract::{
            Acquisition, Attempt, Breaking, Contention, GiveBack, Holder, Leaving, QueuePosition,
            Release, Renewal, RenewalTtl, Renewer, Requesting, SharedHolders,
        },
    },
};

use super::{
    lease::{Delay, Moment},
    state::State,
};

/// Where the answer goes. Nobody may be there any more to hear it; that is no error.
pub(super) type ReplySender<T> = oneshot::Sender<Result<T, StoreError>>;

/// One command to the writer.
#[derive(Debug)]
pub(super) enum Command {
    /// See [`crate::store::Store::acquire`]. With its room among the commands that wait, which is free
    /// again when the writer takes it up.
    Acquire(Box<Attempt>, ReplySender<Acquisition>, OwnedSemaphorePermit),
    /// See [`crate::store::Store::leave`].
    Leave(LockName, TokenHash, Option<Duration>, ReplySender<Leaving>),
    /// See [`crate::store::Store::renew_as`].
    Renew(
        Renewer,
        LockName,
        TokenHash,
        RenewalTtl,
        ReplySender<Renewal>,
    ),
    /// See [`crate::store::Store::release_as`].
    Release(Option<KeeperId>, LockName, TokenHash, ReplySender<Release>),
    /// See [`crate::store::Store::give_back`].
    /// With its keeper, if that knows that it was answered to nobody.
    GiveBack(LockName, TokenHash, Option<KeeperId>, ReplySender<GiveBack>),
    /// See [`crate::store::Store::break_lock`]. Answers the tokens of the leases that were broken as well.
    Break(
        LockName,
        Option<BreakTarget>,
        ReplySender<(Breaking, Vec<TokenHash>)>,
    ),
    /// See [`crate::store::Store::request_release`]. Answers the tokens of the leases that are asked for as well.
    RequestRelease(
        LockName,
        Option<BreakTarget>,
        Box<ReleaseRequest>,
        ReplySender<(Requesting, Vec<TokenHash>)>,
    ),
    /// Write down everything that lives, as the file of a log.
    Backup(ReplySender<Vec<u8>>),
    /// Finish what came before, let go of the file and end.
    Close(oneshot::Sender<()>),
}

/// A command that is not for the state, and waits for nothing to be durable.
#[derive(Debug)]
pub(super) enum WriterCommand {
    Backup(ReplySender<Vec<u8>>),
    Close(oneshot::Sender<()>),
}

/// A command that was carried out in memory. Its answer waits until that is durable.
#[derive(Debug)]
pub(super) struct ExecutedCommand {
    answer: DeferredReply,
    /// Whether it changed anything.
    changed: bool,
}

/// The commands of a batch that were carried out, by the runtime on which their answers are awaited.
#[derive(Debug, Default)]
pub(super) struct ExecutedBatch(Vec<(Handle, Vec<ExecutedCommand>)>);

#[derive(Debug)]
enum DeferredReply {
    /// With the attempt, so that it is freed by the thread that has allocated it: two threads that free each
    /// other's memory wait for each other's allocator.
    Acquire(
        ReplySender<Acquisition>,
        Result<Acquisition, StoreError>,
        Box<Attempt>,
    ),
    Leave(ReplySender<Leaving>, Leaving),
    Renew(ReplySender<Renewal>, Renewal),
    Release(ReplySender<Release>, Release),
    GiveBack(ReplySender<GiveBack>, GiveBack),
    Break(
        ReplySender<(Breaking, Vec<TokenHash>)>,
        (Breaking, Vec<TokenHash>),
    ),
    RequestRelease(
        ReplySender<(Requesting, Vec<TokenHash>)>,
        (Requesting, Vec<TokenHash>),
    ),
}

// === impl Command ===

impl Command {
    /// Carries the command out in memory. What is not for the state is handed back.
    pub(super) fn execute(
        self,
        state: &mut State,
        now: Moment,
    ) -> Result<ExecutedCommand, WriterCommand> {
        let before = state.changes();
        let answer = match self {
            Self::Acquire(attempt, answer, _room) => {
                let outcome = state.acquire(&attempt, now);
                DeferredReply::Acquire(answer, outcome, attempt)
            }
            Self::Leave(name, token, keep_for, answer) => {
                DeferredReply::Leave(answer, state.leave(&name, &token, keep_for, now))
            }
            Self::Renew(renewer, name, token, ttl, answer) => {
                DeferredReply::Renew(answer, state.renew(renewer, &name, &token, ttl, now))
            }
            Self::Release(keeper, name, token, answer) => {
                DeferredReply::Release(answer, state.release(keeper, &name, &token, now))
            }
            Self::GiveBack(name, token, unanswered, answer) => {
                let outcome = state.give_back(&name, &token, unanswered, now);
                DeferredReply::GiveBack(answer, outcome)
            }
            Self::Break(name, target, answer) => {
                DeferredReply::Break(answer, state.break_lock(&name, target, now))
            }
            Self::RequestRelease(name, target, request, answer) => {
                let outcome = state.request_release(&name, target, &request, now);
                DeferredReply::RequestRelease(answer, outcome)
            }
            Self::Backup(answer) => return Err(WriterCommand::Backup(answer)),
            Self::Close(closed) => return Err(WriterCommand::Close(closed)),
        };
        let changed = state.changes() != before;
        Ok(ExecutedCommand { answer, changed })
    }

    /// Answers without having done anything. [`Command::Close`] is handed back.
    pub(super) fn refuse(self, error: StoreError) -> Option<oneshot::Sender<()>> {
        match self {
            Self::Acquire(_attempt, answer, _room) => drop(answer.send(Err(error))),
            Self::Leave(_name, _token, _keep_for, answer) => drop(answer.send(Err(error))),
            Self::Renew(_renewer, _name, _token, _ttl, answer) => drop(answer.send(Err(error))),
            Self::Release(_keeper, _name, _token, answer) => drop(answer.send(Err(error))),
            Self::GiveBack(_name, _token, _uses_key, answer) => drop(answer.send(Err(error))),
            Self::Break(_name, _meant, answer) => drop(answer.send(Err(error))),
            Self::RequestRelease(_name, _meant, _request, answer) => {
                drop(answer.send(Err(error)));
            }
            Self::Backup(answer) => drop(answer.send(Err(error))),
            Self::Close(closed) => return Some(closed),
        }
        None
    }
}

// === impl ExecutedCommand ===

impl ExecutedCommand {
    /// Answers so much later than the command was carried out. What has ended meanwhile is not
    /// answered as if it lived: its holder would act on it.
    fn answer(self, delay: Delay) {
        match self.answer {
            DeferredReply::Acquire(answer, outcome, _attempt) => {
                drop(answer.send(outcome.and_then(|acquisition| acquired(acquisition, delay))));
            }
            DeferredReply::Leave(answer, outcome) => drop(answer.send(left(outcome, delay))),
            DeferredReply::Renew(answer, Renewal::Renewed(held, margin)) => {
                let held = living(held, delay);
                drop(answer.send(held.map(|held| Renewal::Renewed(held, margin))));
            }
            DeferredReply::Renew(answer, lost @ (Renewal::Adopted | Renewal::Lost(_))) => {
                drop(answer.send(Ok(lost)));
            }
            DeferredReply::Release(answer, outcome) => drop(answer.send(Ok(outcome))),
            DeferredReply::GiveBack(answer, outcome) => drop(answer.send(Ok(outcome))),
            // What was broken is told as it was then.
            DeferredReply::Break(answer, outcome) => drop(answer.send(Ok(outcome))),
            DeferredReply::RequestRelease(answer, (requesting, tokens)) => {
                drop(answer.send(Ok((requested(requesting, delay), tokens))));
            }
        }
    }

    /// Answers that it could not be made durable: `changed` to whom something was to change,
    /// `unchanged` to everybody else.
    fn fail(self, changed: &StoreError, unchanged: &StoreError) {
        let error = if self.changed { changed } else { unchanged }.clone();
        match self.answer {
            DeferredReply::Acquire(answer, _outcome, _attempt) => drop(answer.send(Err(error))),
            DeferredReply::Leave(answer, _outcome) => drop(answer.send(Err(error))),
            DeferredReply::Renew(answer, _outcome) => drop(answer.send(Err(error))),
            DeferredReply::Release(answer, _outcome) => drop(answer.send(Err(error))),
            DeferredReply::GiveBack(answer, _outcome) => drop(answer.send(Err(error))),
            DeferredReply::Break(answer, _outcome) => drop(answer.send(Err(error))),
            DeferredReply::RequestRelease(answer, _outcome) => drop(answer.send(Err(error))),
        }
    }
}

// === impl ExecutedBatch ===

impl ExecutedBatch {
    pub(super) fn push(&mut self, runtime: Handle, command: ExecutedCommand) {
        let id = runtime.id();
        match self.0.iter_mut().find(|(known, _)| known.id() == id) {
            Some((_, commands)) => commands.push(command),
            None => self.0.push((runtime, vec![command])),
        }
    }

    /// Answers what was carried out at that moment. To wake a task on another thread costs a system call, so each
    /// runtime is woken once and answers all of its own there.
    pub(super) fn answer(self, carried_out: Moment, clock: &Arc<dyn Clock>) {
        for (runtime, commands) in self.0 {
            let clock = Arc::clone(clock);
            runtime.spawn(async move {
                let delay = Delay::since(carried_out, &*clock);
                for command in commands {
                    command.answer(delay);
                }
            });
        }
    }

    /// Answers that it could not be made durable, as [`ExecutedCommand::fail`].
    pub(super) fn fail(self, changed: &StoreError, unchanged: &StoreError) {
        for command in self.0.into_iter().flat_map(|(_, commands)| commands) {
            command.fail(changed, unchanged);
        }
    }
}

fn acquired(acquisition: Acquisition, delay: Delay) -> Result<Acquisition, StoreError> {
    Ok(match acquisition {
        Acquisition::Granted(held) => Acquisition::Granted(living(held, delay)?),
        Acquisition::Replayed(held, salt, before) => {
            Acquisition::Replayed(living(held, delay)?, salt, before)
        }
        Acquisition::Collected(held, salt, waited) => {
            Acquisition::Collected(living(held, delay)?, salt, waited)
        }
        Acquisition::Held(contention) => Acquisition::Held(contended(contention, delay)),
        Acquisition::Queued(place) => Acquisition::Queued(QueuePosition {
            contention: contended(place.contention, delay),
            ..place
        }),
        other @ (Acquisition::QueueFull
        | Acquisition::Superseded
        | Acquisition::IdempotencyMismatch
        | Acquisition::IdempotencyExpired) => other,
    })
}

fn left(leaving: Leaving, delay: Delay) -> Result<Leaving, StoreError> {
    Ok(match leaving {
        Leaving::Granted(held) => Leaving::Granted(living(held, delay)?),
        Leaving::Left(contention) => Leaving::Left(contended(contention, delay)),
        Leaving::Superseded => Leaving::Superseded,
    })
}

fn living(held: HeldLease, delay: Delay) -> Result<HeldLease, StoreError> {
    let held = delay.age(held);
    if held.expires_in.is_zero() {
        Err(Uncertainty::TimedOut.into())
    } else {
        Ok(held)
    }
}

fn requested(requesting: Requesting, delay: Delay) -> Requesting {
    match requesting {
        Requesting::Requested(holder) => Requesting::Requested(aged(holder, delay)),
        Requesting::HolderChanged(holder) => Requesting::HolderChanged(aged(holder, delay)),
        other @ (Requesting::Ambiguous(_) | Requesting::Foreign(_) | Requesting::NotHeld) => other,
    }
}

fn contended(contention: Contention, delay: Delay) -> Contention {
    Contention {
        holder: contention.holder.map(|holder| aged(holder, delay)),
        ..contention
    }
}

fn aged(holder: Holder, delay: Delay) -> Holder {
    match holder {
        Holder::Lease(held) => Holder::Lease(delay.age(held)),
        Holder::Shared(SharedHolders { leases, count }) => {
            let leases = leases.into_iter().map(|held| delay.age(held)).collect();
            Holder::Shared(SharedHolders { leases, count })
        }
        foreign @ Holder::Foreign { .. } => foreign,
    }
}
