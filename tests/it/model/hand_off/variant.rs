//! The protocol, and what it would be without one of its rules.

/// Which protocol is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// As it is.
    Kept,
    /// Who finds the lock free takes it, whoever is queued.
    Barging,
    /// The last in the queue is granted the lock.
    LastComeFirstServed,
    /// A grant is confirmed although it may be over.
    ConfirmedUnseen,
    /// What is handed over to another gateway lasts its TTL at once.
    NoProvisionalLimit,
    /// Nobody looks for what no message has told.
    NoRounds,
    /// Nobody looks when a lease has ended.
    NoTimers,
    /// Who waits through a gateway that has died is granted the lock.
    DeadKept,
    /// Word of a grant gives it back although its attempt has heard of it meanwhile.
    GivenBackThoughHeard,
    /// It is not remembered that an attempt is over, so that a late copy of its acquire counts.
    NotRemembered,
    /// The same only of one that leaves and has lost its place before.
    LostPlaceNotRemembered,
    /// Who asks again, because its place was lost, does not say that an acquire of its was sent again
    /// before.
    SentAgainForgotten,
    /// Nobody gives back what was granted to a caller who has gone.
    NotGivenBack,
    /// Who shares the lock joins those who hold it, whoever is queued.
    BargingReader,
    /// One more than its limit holds the lock.
    OneTooMany,
    /// The place of a lease is how many hold the lock, and not the first that is free.
    SlotByCount,
    /// The expiry of one lease ends another beside it.
    ExpiryEndsTwo,
    /// A script grants the lock to one, and not to those behind that may share it.
    OneAtATime,
    /// Where the head leaves, nobody looks after the next.
    HeadLeavesAlone,
}
