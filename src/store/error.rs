//! Errors of a store: what is known about a command that got no answer.

use std::borrow::Cow;

/// Why a store gave no answer. Refusals (held, lost, ..) are values, not errors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Nothing happened, and nothing of this command will happen later: sending it again is safe.
    #[error("the store is unavailable: {0}")]
    Unavailable(#[from] Unavailability),
    /// The command may have been carried out, or may yet be.
    #[error("the outcome is unknown: {0}")]
    Indeterminate(#[from] Uncertainty),
    /// The value at a lock's key was not written by latchgate. The key is named in the error and never
    /// overwritten.
    #[error("the key {key:?} holds {found} that latchgate did not write")]
    ForeignData {
        /// The key in the store.
        key: String,
        /// What was found there, as text for a person: a Redis type, or a newer layout version.
        found: Cow<'static, str>,
    },
    /// No fencing token is left below 2^53.
    #[error("no fencing token is left below 2^53")]
    FenceExhausted,
}

// === impl StoreError ===

impl StoreError {
    /// The error of a command that only reads: an unknown outcome becomes unavailable, because a read changes
    /// nothing.
    #[must_use]
    pub fn of_read(self) -> Self {
        match self {
            Self::Indeterminate(why) => Unavailability::NotRead(why.to_string()).into(),
            known @ (Self::Unavailable(_) | Self::ForeignData { .. } | Self::FenceExhausted) => {
                known
            }
        }
    }

    /// Whether the store is unreachable, hangs or refuses. The store logs an outage itself.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Unavailable(_) => true,
            Self::Indeterminate(why) => !matches!(
                why,
                Uncertainty::Interrupted | Uncertainty::UnexpectedReply(_) | Uncertainty::Disk(_)
            ),
            Self::ForeignData { .. } | Self::FenceExhausted => false,
        }
    }

    /// The error in one word, for the label of a metric.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Indeterminate(_) => "unknown",
            Self::ForeignData { .. } => "foreign-data",
            Self::FenceExhausted => "fence-exhausted",
        }
    }
}

/// Why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailability {
    /// No connection could be made.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The address of the server leads to several servers in turn, each with its own locks.
    #[error(
        "the address leads to several servers in turn, as with round-robin DNS or a proxy that balances over \
         masters; a lock may be granted at one server only"
    )]
    SeveralServers,
    /// A command that only reads got no answer.
    #[error("nothing was read: {0}")]
    NotRead(String),
    /// The server answers, but refuses every caller for now: LOADING, BUSY, READONLY, MISCONF, ..
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server has no memory left for new locks. Renew and release still work.
    #[error("the server is out of memory")]
    OutOfMemory,
    /// The configuration of the store does not keep locks safe: credentials, permissions, an eviction policy
    /// that deletes locks.
    #[error("misconfigured: {0}")]
    Misconfigured(String),
    /// The server's clock shows an impossible time, from which no fencing token may be made.
    #[error("the server's clock shows an impossible time: {0}")]
    Clock(String),
    /// The data directory cannot be written: disk full, read-only, failing.
    #[error("cannot write: {0}")]
    Disk(String),
    /// The data directory has no space left for new locks. Renew and release still work.
    #[error("cannot acquire: {0}")]
    DiskFull(String),
    /// More commands wait for the store than its limit allows.
    #[error("too many commands are waiting")]
    Overloaded,
    /// The store is being closed.
    #[error("the store is closing")]
    Closing,
    /// Too few nodes of a quorum have answered, or are allowed to vote.
    #[error("too few nodes: {0}")]
    TooFewNodes(String),
    /// Not enough replicas acknowledged the grant in time, and the grant was ended.
    #[error("{}", too_few(*wanted, *confirmed))]
    TooFewReplicas {
        /// How many replicas must have the grant.
        wanted: u32,
        /// How many replicas had the grant in time, if that is known.
        confirmed: Option<u32>,
    },
    /// The lease ended before it was known that enough replicas have the grant.
    #[error("the lease ended before enough replicas were known to have it")]
    RanOut,
    /// The attempt was withdrawn before it was carried out; it can never be granted.
    #[error("the attempt was withdrawn")]
    Withdrawn,
}

/// Why the outcome of a command is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Uncertainty {
    /// No answer arrived in time.
    #[error("no answer in time")]
    TimedOut,
    /// The connection was lost after the command was sent.
    #[error("the connection was lost: {0}")]
    ConnectionLost(String),
    /// The gateway itself failed while it waited for the answer.
    #[error("the gateway failed while it waited for the store")]
    Interrupted,
    /// The attempt was queued earlier, and the store could not be asked for its outcome.
    #[error("the attempt was queued, and then {0}")]
    LeftQueued(Unavailability),
    /// The grant did not reach enough replicas and was not ended: a caller may know of the lease, or ending it
    /// failed.
    #[error("the lease was granted, and then {0}")]
    NotReplicated(Unavailability),
    /// The server sent a reply that is not an answer to this command.
    #[error("an unexpected answer: {0}")]
    UnexpectedReply(String),
    /// The data directory failed while the command was being written.
    #[error("the write failed half-way: {0}")]
    Disk(String),
}

fn too_few(wanted: u32, confirmed: Option<u32>) -> String {
    match confirmed {
        Some(count) => format!("{count} of {wanted} replicas had the grant in time"),
        None => format!("it is unknown whether {wanted} replicas have the grant"),
    }
}
