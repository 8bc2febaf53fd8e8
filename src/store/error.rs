//! What a store knows when it cannot answer.

use std::borrow::Cow;

/// Why a store gave no answer. Refusals (held, lost, ..) are not errors but values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Nothing happened, and nothing of this command will happen later: asking again is safe.
    #[error("the store is unavailable: {0}")]
    Unavailable(#[from] Unavailability),
    /// The command may have been carried out, or may yet be.
    #[error("the outcome is unknown: {0}")]
    Indeterminate(#[from] Uncertainty),
    /// What lies under a key of ours was not written by us. It is named and never overwritten.
    #[error("the key {key:?} holds {found} that latchgate did not write")]
    ForeignData {
        /// The key in the store.
        key: String,
        /// What was found there, for a person: a Redis type, or a newer layout version.
        found: Cow<'static, str>,
    },
    /// There is no fencing token left below 2^53.
    #[error("no fencing token is left below 2^53")]
    FenceExhausted,
}

// === impl StoreError ===

impl StoreError {
    /// The same of a command that only reads: whether or not it was carried out, nothing has happened.
    #[must_use]
    pub fn of_read(self) -> Self {
        match self {
            Self::Indeterminate(why) => Unavailability::NotRead(why.to_string()).into(),
            known @ (Self::Unavailable(_) | Self::ForeignData { .. } | Self::FenceExhausted) => {
                known
            }
        }
    }

    /// Whether the store is away, hangs or refuses, which it logs itself.
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

    /// The error in one word, for those who count.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Indeterminate(_) => "unknown",
            Self::ForeignData { .. } => "foreign-data",
            Self::FenceExhausted => "fence-exhausted",
        }
    }
}

/// Why nothing happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailability {
    /// No connection could be made.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The address of the server leads to several servers in turn, each with locks of its own.
    #[error(
        "the address leads to several servers in turn, as with round-robin DNS or a proxy that balances over \
         masters; a lock may be granted at one server only"
    )]
    SeveralServers,
    /// What was to be read was not answered.
    #[error("nothing was read: {0}")]
    NotRead(String),
    /// The server is there and refuses every caller for now: LOADING, BUSY, READONLY, MISCONF, ..
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server has no memory left for new locks. Renew and release still work.
    #[error("the server is out of memory")]
    OutOfMemory,
    /// The store is not configured so that locks are safe in it: credentials, permissions, an
    /// eviction policy that deletes locks.
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
    /// More commands are waiting for the store than it takes.
    #[error("too many commands are waiting")]
    Overloaded,
    /// The store is being closed.
    #[error("the store is closing")]
    Closing,
    /// Too few nodes of a quorum have answered, or may vote.
    #[error("too few nodes: {0}")]
    TooFewNodes(String),
    /// Not enough replicas had the grant in time, and it was taken back.
    #[error("{}", too_few(*wanted, *confirmed))]
    TooFewReplicas {
        /// How many must have it.
        wanted: u32,
        /// How many had it in time, if that is known.
        confirmed: Option<u32>,
    },
    /// The grant was over when enough replicas were known to have it.
    #[error("the time of the grant was over before it was known that enough replicas have it")]
    RanOut,
    /// The attempt was given back before it was carried out; it can never be granted.
    #[error("the attempt was withdrawn")]
    Withdrawn,
}

/// Why the outcome is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Uncertainty {
    /// No answer came in time.
    #[error("no answer in time")]
    TimedOut,
    /// The connection was lost after the command was sent.
    #[error("the connection was lost: {0}")]
    ConnectionLost(String),
    /// The gateway itself failed while it was asking.
    #[error("the gateway failed while it was asking")]
    Interrupted,
    /// The attempt was queued before, and the store could not be asked what has become of it.
    #[error("it was queued, and then {0}")]
    LeftQueued(Unavailability),
    /// The lease is not on enough replicas, and was not taken back: somebody may have heard of it, or it
    /// could not be.
    #[error("it was granted, and then {0}")]
    NotReplicated(Unavailability),
    /// Something answered that is not an answer to this command.
    #[error("an unexpected answer: {0}")]
    UnexpectedReply(String),
    /// The data directory failed while the command was being written.
    #[error("the write failed half-way: {0}")]
    Disk(String),
}

fn too_few(wanted: u32, confirmed: Option<u32>) -> String {
    match confirmed {
        Some(count) => format!("{count} of {wanted} replicas had the grant in time"),
        None => format!("whether {wanted} replicas have the grant was not to be found out"),
    }
}
