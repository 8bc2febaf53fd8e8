//! The protocol of the hand-off, and the protocol without one of its rules.

/// The protocol, or the protocol without one of its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// The protocol with all its rules.
    Kept,
    /// An attempt that finds the lock free takes it, whatever the queue is.
    Barging,
    /// The last waiter in the queue is granted the lock.
    LastComeFirstServed,
    /// A grant is confirmed although it may be over.
    ConfirmedUnseen,
    /// A lease that is handed over to another gateway lasts its TTL at once.
    NoProvisionalLimit,
    /// No gateway looks for news of which no message has come.
    NoRounds,
    /// No gateway looks at the queue when a lease has ended.
    NoTimers,
    /// A waiter whose gateway has died is granted the lock.
    DeadKept,
    /// A gateway that gets a message about a grant releases it although its attempt has heard of it meanwhile.
    GivenBackThoughHeard,
    /// The store does not remember that an attempt is over, so that a late copy of its acquire counts.
    NotRemembered,
    /// The store does not remember that an attempt is over if it leaves after it has lost its position.
    LostPlaceNotRemembered,
    /// An attempt that asks again, because its position was lost, does not say that its acquire was sent again before.
    SentAgainForgotten,
    /// No gateway releases a grant to a caller that has gone.
    NotGivenBack,
    /// A shared attempt joins the present holders, whatever the queue is.
    BargingReader,
    /// One more holder than the limit allows is granted the lock.
    OneTooMany,
    /// The slot of a lease is the number of holders, and not the first free slot.
    SlotByCount,
    /// The expiry of one lease also ends another lease.
    ExpiryEndsTwo,
    /// A script grants the lock to one waiter, and not to waiters behind it that may share it.
    OneAtATime,
    /// When the head leaves, the lock is not granted to the next waiter.
    HeadLeavesAlone,
    /// A release passes the lock on although its minimum hold is not over.
    RestsNot,
    /// The token of a lease that was released goes on to hold the lock that rests.
    RestKeepsToken,
}
