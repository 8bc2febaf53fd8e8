//! One line of a history.
//!
//! Every process that takes part writes a file of its own, as JSON lines. The stamps are of
//! `CLOCK_MONOTONIC`, in nanoseconds: on one host they compare exactly.

use serde::{Deserialize, Serialize};

/// Who saw what, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) at: u64,
    pub(crate) by: String,
    #[serde(flatten)]
    pub(crate) event: Event,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// A client is about to send a request.
    Asks {
        op: u64,
        /// What the client wants done: the `owner` of what it acquires, and the idempotency key of all
        /// requests for it if they have one.
        errand: String,
        lock: String,
        /// Which gateway is asked.
        to: usize,
        ask: Ask,
        /// The request for several locks that it is a part of, by the number of its first part. Each part is written
        /// down as a request of its own.
        #[serde(default)]
        group: Option<u64>,
    },
    /// It has read the answer.
    Hears { op: u64, answer: RecordedAnswer },
    /// A stream says that the lease lasts so much longer.
    Keeps { op: u64, left_ms: u64 },
    /// A stream has ended, whatever its last event was.
    Ends { op: u64 },
    /// A client closes a connection on purpose. `early`: it stood in the queue, and nothing was on its way.
    HangsUp { op: u64, early: bool },
    /// The resource was asked to be changed by somebody who read `base`.
    Writes(ResourceWrite),
    /// A fault.
    Fault {
        fault: u64,
        kind: String,
        /// Which process it strikes.
        target: String,
        /// Whether the store may have forgotten what it had answered.
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
    /// What it was before, as the resource knows.
    pub(crate) was: u64,
    /// Of which slot it is the resource, if not of the whole lock.
    #[serde(default)]
    pub(crate) slot: Option<u64>,
}

/// With whom a lock is wanted, or held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    #[default]
    Exclusive,
    /// Beside others that share it, as long as fewer than `limit` hold it.
    Shared { limit: Option<u64> },
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
    },
    /// The same, by a stream.
    Hold {
        ttl_ms: u64,
        wait_ms: u64,
        #[serde(default)]
        mode: Mode,
    },
    /// With the token of the lease that has this fencing token.
    Renew {
        fence: u64,
        ttl_ms: u64,
    },
    Release {
        fence: u64,
    },
    /// A renew or a release with a token that nobody was given.
    Forge {
        renews: bool,
    },
    Break {
        fence: u64,
        /// How much time the holder has to release it by itself; none: it is broken now.
        #[serde(default)]
        grace_ms: Option<u64>,
    },
    Inspect,
}

/// What a client heard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum RecordedAnswer {
    Granted {
        fence: u64,
        left_ms: u64,
        /// Whether it is a lease that lived already under the idempotency key.
        again: bool,
        #[serde(default)]
        slot: Option<u64>,
    },
    Renewed {
        fence: u64,
        left_ms: u64,
        #[serde(default)]
        slot: Option<u64>,
        /// Whether it is told that the lease is to be released.
        #[serde(default)]
        asked_for: bool,
    },
    Released,
    /// The lease that was to be broken has ended.
    Broken,
    /// The holder is asked to release it, and has some time for it.
    Requested,
    /// Others hold the lock, or it passes to one of them.
    Locked {
        holders: Vec<Seen>,
    },
    /// The token does not hold the lock.
    Lost,
    /// Nothing happened.
    Refused {
        code: String,
    },
    /// It may have happened: the gateway says so, or the connection has ended.
    Unknown,
    Shown {
        holders: Vec<Seen>,
        waiters: Vec<String>,
    },
    /// Nothing that may be answered to such a request.
    Wrong {
        what: String,
    },
}

/// A holder, as others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) fence: u64,
    pub(crate) owner: String,
    /// Whether it shares the lock.
    #[serde(default)]
    pub(crate) shares: bool,
    #[serde(default)]
    pub(crate) slot: Option<u64>,
}

/// What is changed under a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Resource {
    /// Refuses fencing tokens below the highest that it has seen.
    Fenced,
    /// Takes everything: the positive control.
    Unfenced,
}

/// How far a fault has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stage {
    Begins,
    /// It was seen to happen, so many times.
    Seen(u64),
    Heals,
}

// === impl Mode ===

impl Mode {
    /// Whether it shares the lock.
    pub(crate) fn shares(self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    /// How many may hold the lock with it, itself included.
    pub(crate) fn limit(self) -> Option<u64> {
        match self {
            Self::Exclusive => None,
            Self::Shared { limit } => limit,
        }
    }
}
