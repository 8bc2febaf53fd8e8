//! Commands to the writer thread, and their answers.

use std::sync::Arc;

use tokio::{runtime::Handle, sync::oneshot};

use crate::{
    clock::Clock,
    lock::{HeldLease, TokenHash},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{
            Acquisition, Breaking, GiveBack, Holder, Leaving, OrderSetting, QueuePosition, Release,
            Renewal, Requesting,
        },
    },
};

use super::state::{Delay, Moment, State};

/// The channel to which the writer sends the answer to a command. A caller that has gone is not an error.
pub(super) type ReplySender<T> = oneshot::Sender<Result<T, StoreError>>;

/// One command to the writer thread.
pub(super) enum Command {
    /// Change the state of the store.
    Change(Box<dyn Change>),
    /// Make a backup of all leases and tombstones that live, in the format of a log file.
    Backup(ReplySender<Vec<u8>>),
    /// Finish the earlier commands, close the files and end the writer thread.
    Close(oneshot::Sender<()>),
}

/// A change of the store's state, which is answered when the change is durable.
pub(super) trait Change: Send {
    /// Carries the change out on the state in memory.
    fn execute(&mut self, state: &mut State, now: Moment);
    /// Sends the answer to the caller, `delay` after the change was carried out, or the error if the change was not
    /// carried out.
    fn answer(self: Box<Self>, delay: Result<Delay, StoreError>);
}

/// A change with its outcome and its answer channel. The thread that has allocated an operation also frees it:
/// two threads that free each other's memory wait for each other's allocator.
struct Operation<T, F> {
    run: F,
    outcome: Result<T, StoreError>,
    answer: ReplySender<T>,
}

/// The outcome of a change. The answer with the outcome is sent later than the outcome was decided.
pub(super) trait Outcome: Send + 'static {
    /// Corrects the remaining times in the outcome by the delay of the answer. Fails if the lease of the
    /// outcome has ended meanwhile, because its holder would act on it.
    fn age(&mut self, _delay: Delay) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The changes of a batch that were carried out, grouped by the runtime on which their callers wait.
#[derive(Default)]
pub(super) struct ExecutedBatch(Vec<(Handle, Vec<Box<dyn Change>>)>);

// === impl Command ===

impl Command {
    /// A command to change the state with `run` and to answer the outcome.
    pub(super) fn change<T: Outcome>(
        answer: ReplySender<T>,
        run: impl FnMut(&mut State, Moment) -> Result<T, StoreError> + Send + 'static,
    ) -> Self {
        Self::Change(Box::new(Operation {
            run,
            outcome: Err(Unavailability::Closing.into()),
            answer,
        }))
    }

    /// Answers the command with an error, without carrying it out. Returns the answer channel of
    /// [`Command::Close`].
    pub(super) fn refuse(self, error: StoreError) -> Option<oneshot::Sender<()>> {
        match self {
            Self::Change(change) => change.answer(Err(error)),
            Self::Backup(answer) => drop(answer.send(Err(error))),
            Self::Close(closed) => return Some(closed),
        }
        None
    }
}

// === impl Operation ===

impl<T, F> Change for Operation<T, F>
where
    T: Outcome,
    F: FnMut(&mut State, Moment) -> Result<T, StoreError> + Send,
{
    fn execute(&mut self, state: &mut State, now: Moment) {
        self.outcome = (self.run)(state, now);
    }

    fn answer(self: Box<Self>, delay: Result<Delay, StoreError>) {
        let mut outcome = self.outcome;
        let aged = delay.and_then(|delay| outcome.as_mut().map_or(Ok(()), |it| it.age(delay)));
        self.answer.send(aged.and(outcome)).ok();
    }
}

// === impl ExecutedBatch ===

impl ExecutedBatch {
    pub(super) fn push(&mut self, runtime: Handle, change: Box<dyn Change>) {
        let id = runtime.id();
        match self.0.iter_mut().find(|(known, _)| known.id() == id) {
            Some((_, changes)) => changes.push(change),
            None => self.0.push((runtime, vec![change])),
        }
    }

    /// Answers all changes of the batch, which was carried out at this moment. To wake a task on another thread
    /// costs a system call, so each runtime is woken once and sends all of its answers there.
    pub(super) fn answer(self, carried_out: Moment, clock: &Arc<dyn Clock>) {
        for (runtime, changes) in self.0 {
            let clock = Arc::clone(clock);
            runtime.spawn(async move {
                let delay = Delay::since(carried_out, &*clock);
                for change in changes {
                    change.answer(Ok(delay));
                }
            });
        }
    }

    /// Answers all changes of the batch with an error, because the batch could not be made durable.
    pub(super) fn fail(self, error: &StoreError) {
        for change in self.0.into_iter().flat_map(|(_, changes)| changes) {
            change.answer(Err(error.clone()));
        }
    }
}

// === impl Outcome ===

impl Outcome for Release {}

impl Outcome for GiveBack {}

impl Outcome for OrderSetting {}

/// The outcome of a break, with the tokens of the broken leases. The leases are shown as of the break, so no time in
/// them is corrected.
impl Outcome for (Breaking, Vec<TokenHash>) {}

impl Outcome for Acquisition {
    fn age(&mut self, delay: Delay) -> Result<(), StoreError> {
        match self {
            Self::Granted(held) | Self::Replayed(held, ..) | Self::Collected(held, ..) => {
                return age_living(held, delay);
            }
            Self::Held(contention) | Self::Queued(QueuePosition { contention, .. }) => {
                age(contention.holder.as_mut(), delay);
            }
            Self::QueueFull
            | Self::Replaced
            | Self::IdempotencyMismatch
            | Self::IdempotencyExpired
            | Self::NewerWaiter
            | Self::ReservationOver
            | Self::OutdatedOrder(_)
            | Self::TooManyOrders => {}
        }
        Ok(())
    }
}

impl Outcome for Leaving {
    fn age(&mut self, delay: Delay) -> Result<(), StoreError> {
        match self {
            Self::Granted(held) => return age_living(held, delay),
            Self::Left(contention) => age(contention.holder.as_mut(), delay),
            Self::Replaced | Self::NewerWaiter => {}
        }
        Ok(())
    }
}

impl Outcome for Renewal {
    fn age(&mut self, delay: Delay) -> Result<(), StoreError> {
        match self {
            Self::Renewed(held, _margin) => age_living(held, delay),
            Self::Adopted | Self::Lost(_) => Ok(()),
        }
    }
}

/// The outcome of a request to release, with the tokens of the leases whose holders were asked to release them.
impl Outcome for (Requesting, Vec<TokenHash>) {
    fn age(&mut self, delay: Delay) -> Result<(), StoreError> {
        if let Requesting::Requested(holder) | Requesting::HolderChanged(holder) = &mut self.0 {
            age(Some(holder), delay);
        }
        Ok(())
    }
}

fn age_living(held: &mut HeldLease, delay: Delay) -> Result<(), StoreError> {
    delay.age(held);
    if held.expires_in.is_zero() {
        return Err(Uncertainty::TimedOut.into());
    }
    Ok(())
}

fn age(holder: Option<&mut Holder>, delay: Delay) {
    for held in holder.map_or(&mut [][..], Holder::leases_mut) {
        delay.age(held);
    }
}
