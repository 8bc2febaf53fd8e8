//! Which variants there are.

/// A variant that is wrong on purpose. Each is found by `scripts/mutants`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "mutants"),
    expect(
        dead_code,
        reason = "those that are of scripts alone are named where scripts are changed"
    )
)]
#[cfg_attr(
    feature = "mutants",
    derive(serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub(crate) enum Mutant {
    /// Grants a lock that is held.
    NoNx,
    /// Releases with any token.
    ReleaseWithoutOwnerCheck,
    /// Grants for a thousandth of the TTL; for a hundredth where a thousandth has passed before it is answered.
    TtlInSeconds,
    /// Renews what has ended.
    RenewResurrects,
    /// Counts fences and does nothing else, so that they begin anew when the counter is lost.
    PlainCounter,
    /// Writes the fence as Lua prints a number.
    TextFence,
    /// Frees a lock without passing it on, so that whoever asks next passes those who wait.
    Barging,
    /// Grants a lock to whoever has waited shortest.
    Lifo,
    /// Confirms a grant that has passed on to another.
    ConfirmWithoutCheck,
    /// Forgets that an idempotency key was used.
    NoTombstone,
    /// Answers a repetition under an idempotency key with a new fence.
    ReplayWithNewFence,
    /// Gives back what was answered again under its idempotency key.
    GiveBackOfReplayed,
    /// Takes everybody who waits through a dead gateway for alive.
    DeadWaitersKept,
    /// Gives nothing back, and leaves no queue, when a caller hangs up.
    NoCompensation,
    /// Does not look after a lock when its lease ends.
    NoTimers,
    /// Says that nothing happened when nobody knows.
    UnknownIsRefused,
    /// Does not release what a stream held that is closed.
    HoldNotReleased,
    /// Says that a lease lasts twice as long as it does.
    ToldTooLong,
    /// Hands a lock over with the fence of the holder before.
    HandOverWithOldFence,
    /// Breaks whatever lease there is.
    BreakWithoutCheck,
    /// Answers before anything is written.
    AnswerBeforeFsync,
    /// Begins to count fences anew with each start.
    FenceNotKept,
    /// Takes the highest fence that was proposed, and has no node accept it.
    NoSecondRound,
    /// Lets a request share a lock although somebody is queued.
    BargingReader,
    /// Lets one more share a lock than its limit says.
    OneTooMany,
    /// Grants a slot that is held.
    SlotReused,
    /// Takes two places of a lock for free when one lease has expired.
    ExpiryFreesTwo,
    /// Grants a lock to one who wants it alone while others share it.
    WriterBesideReaders,
    /// Looks after nobody when the head of the queue of a shared lock leaves.
    NobodyAfterTheHead,
    /// Takes half of the nodes of a quorum for enough.
    HalfIsEnough,
    /// Keeps the locks of a group that it has taken when another one cannot be had.
    PartsKept,
    /// Takes the locks of a group in the order in which they were asked for.
    GroupUnsorted,
    /// Renews a lease beyond the time in which its holder was asked to release it.
    RenewPastRequest,
    /// Breaks whatever lease there is when the time to release one is over.
    RequestWithoutCheck,
}
