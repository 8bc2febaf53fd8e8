//! One line of a history.
//!
//! Every process of a run writes a file of its own, as JSON lines. The time stamps are nanoseconds of
//! `CLOCK_MONOTONIC`: stamps of one host compare exactly.

use serde::{Deserialize, Serialize};

/// The process that asks for the histories of all locks after the run.
pub(crate) const AFTERWARDS: &str = "afterwards";

/// An event of a history: when it happened and which process recorded it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) at: u64,
    pub(crate) by: String,
    #[serde(flatten)]
    pub(crate) event: Event,
}

/// What a process recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// A client is about to send a request.
    Asks {
        op: u64,
        /// The errand that the request belongs to: what the client wants to get done, with all requests for it. The
        /// `owner` of the acquires has this text, and their idempotency key contains it, if they carry one.
        errand: String,
        lock: String,
        /// The number of the gateway that gets the request.
        to: usize,
        ask: Ask,
        /// The group request that this request is a part of, by the number of the group's first part. Each part is
        /// recorded as a request of its own.
        #[serde(default)]
        group: Option<u64>,
    },
    /// A client has read the answer to its request.
    Hears { op: u64, answer: RecordedAnswer },
    /// An event of a stream says that the lease lives for `left_ms` from now.
    Keeps { op: u64, left_ms: u64 },
    /// A stream has ended, whatever its last event was.
    Ends { op: u64 },
    /// A client closes a connection on purpose. `early`: its request was waiting in the queue, and no answer had been
    /// sent.
    HangsUp { op: u64, early: bool },
    /// A client that had read `base` asked the resource for a write.
    Writes(ResourceWrite),
    /// An injected fault began, was observed, or was healed.
    Fault {
        fault: u64,
        kind: String,
        /// The process that the fault is for.
        target: String,
        /// Whether the fault may make the store forget what it had acknowledged.
        forgets: bool,
        stage: Stage,
    },
}

/// A write to a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResourceWrite {
    pub(crate) resource: Resource,
    pub(crate) lock: String,
    pub(crate) fence: u64,
    pub(crate) base: u64,
    pub(crate) taken: bool,
    /// The value of the resource before the write.
    pub(crate) was: u64,
    /// The slot that the resource belongs to; none if the resource belongs to the whole lock.
    #[serde(default)]
    pub(crate) slot: Option<u64>,
}

/// Whether a lock is wanted or held exclusively or shared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    #[default]
    Exclusive,
    /// Shared with other leases. With a limit, the lock has fewer than `limit` holders before the grant.
    Shared { limit: Option<u64> },
}

/// The end of a reservation, by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reserve {
    /// By the clock of the history.
    pub(crate) until: u64,
    /// By the wall clock, in milliseconds since 1970.
    pub(crate) wall_ms: u64,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub(crate) enum Ask {
    Acquire {
        ttl_ms: u64,
        wait_ms: u64,
        /// Whether it carries an idempotency key.
        keyed: bool,
        #[serde(default)]
        mode: Mode,
        /// For how long after its grant the lock rests if the lease is released earlier.
        #[serde(default)]
        min_hold_ms: u64,
        /// With it, the request is for a reservation, which has neither a TTL nor a minimum hold.
        #[serde(default)]
        reserve: Option<Reserve>,
        #[serde(default)]
        order: Option<u64>,
    },
    /// The same as `Acquire`, but a stream keeps the lease.
    Hold {
        ttl_ms: u64,
        wait_ms: u64,
        #[serde(default)]
        mode: Mode,
    },
    /// A renewal with the token of the lease that has this fencing token.
    Renew {
        fence: u64,
        ttl_ms: u64,
    },
    Release {
        fence: u64,
    },
    /// A renewal or a release with a token that no lease has.
    Forge {
        renews: bool,
    },
    Break {
        fence: u64,
        /// Time that the holder has to release the lease; without it the lease is broken at once.
        #[serde(default)]
        grace_ms: Option<u64>,
    },
    /// The holder of this lease sets the order that the lock remembers from its own to a higher one.
    RaiseOrder {
        fence: u64,
        from: u64,
        to: u64,
    },
    Inspect,
    /// A check of this fencing token.
    Check {
        fence: u64,
    },
    /// A look at the history of the lock.
    History,
}

/// The answer of a gateway, as the client recorded it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum RecordedAnswer {
    Granted {
        fence: u64,
        left_ms: u64,
        /// Whether the answer repeats an earlier grant of the same idempotency key.
        again: bool,
        #[serde(default)]
        slot: Option<u64>,
    },
    Renewed {
        fence: u64,
        left_ms: u64,
        #[serde(default)]
        slot: Option<u64>,
        /// Whether the answer says that somebody requested the release of the lease.
        #[serde(default)]
        asked_for: bool,
    },
    Released,
    /// The lease to break has ended.
    Broken,
    /// The holder was asked to release the lease within the given time.
    Requested,
    /// Other callers hold the lock, or the lock is being handed to a waiter.
    Locked {
        holders: Vec<Seen>,
    },
    /// The token does not hold the lock.
    Lost,
    /// The request was refused and changed nothing.
    Refused {
        code: String,
    },
    /// The request was refused because the lock was granted for a higher order.
    Outdated {
        granted_order: u64,
    },
    /// The lock remembers the new order.
    OrderRaised,
    /// The outcome is not known: the gateway said so, or the connection ended.
    Unknown,
    /// A lease with the checked fencing token holds the lock.
    Passed,
    /// No lease with the checked fencing token holds the lock.
    Stale,
    Shown {
        holders: Vec<Seen>,
        waiters: Vec<String>,
    },
    /// The history of the lock.
    History {
        entries: Vec<Past>,
        /// How many records the gateways have dropped.
        dropped: u64,
    },
    /// An answer that is not allowed for such a request.
    Wrong {
        what: String,
    },
}

/// A holder, as other callers see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) fence: u64,
    pub(crate) owner: String,
    /// Whether the holder shares the lock.
    #[serde(default)]
    pub(crate) shares: bool,
    #[serde(default)]
    pub(crate) slot: Option<u64>,
}

/// A lease in the history of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Past {
    pub(crate) fence: u64,
    pub(crate) owner: Option<String>,
    /// How the lease ended; none if it is shown as held, or if its end was not recorded.
    pub(crate) ended: Option<String>,
    /// Whether the lease is shown as the holder of the lock.
    pub(crate) held: bool,
    /// Whether a break of the rest after the lease is shown.
    pub(crate) rest_ended: bool,
}

/// A resource that clients write while they hold a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Resource {
    /// Refuses writes with fencing tokens below the highest that it has seen.
    Fenced,
    /// Takes every write. It is the positive control: it must lose updates.
    Unfenced,
}

/// The stage of an injected fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stage {
    Begins,
    /// The injector observed this many effects of the fault.
    Seen(u64),
    Heals,
}

// === impl Mode ===

impl Mode {
    /// Whether this mode shares the lock.
    pub(crate) fn shares(self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    /// How many leases may hold the lock together, this one included; none if there is no limit.
    pub(crate) fn limit(self) -> Option<u64> {
        match self {
            Self::Exclusive => None,
            Self::Shared { limit } => limit,
        }
    }
}
