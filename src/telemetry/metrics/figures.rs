//! What is not counted as it happens but looked up when somebody asks.

/// What the gateway is like now.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Whether it is about to stop.
    pub is_withdrawn: bool,
    /// What readiness finds: the name of each check, and how bad it is (0 to 3).
    pub checks: Vec<(&'static str, u8)>,
    /// Requests that stand in a queue.
    pub waiters: usize,
    /// Streams that hold a lock.
    pub held_streams: usize,
    /// Who listens to events.
    pub event_streams: usize,
    /// Leases that live, as far as is known here, and count at no other gateway.
    pub leases: usize,
    /// How many of those share their lock.
    pub shared_leases: usize,
    /// When the certificate of the gateway ends, in seconds since 1970; `None` without TLS.
    pub certificate_ends: Option<u64>,
    /// What the store is like.
    pub store: StoreFigures,
}

/// What a store is like now. A store leaves out what it does not have.
#[derive(Debug, Clone, Default)]
pub struct StoreFigures {
    /// How many connections are open.
    pub connections: Option<u32>,
    /// Whether messages of other gateways arrive.
    pub hears: Option<bool>,
    /// How many messages to other gateways could not be sent.
    pub unsent_messages: Option<u64>,
    /// By how many seconds the clock of each node is ahead of ours.
    pub clock_skew: Vec<(String, f64)>,
    /// The node that is the master, and since when it is followed, in seconds since 1970.
    pub master: Option<(String, f64)>,
    /// How often another node became the master.
    pub master_changes: Option<u64>,
    /// Whether each sentinel answers.
    pub sentinels: Vec<(String, bool)>,
    /// Whether each master of a cluster can be reached.
    pub masters: Vec<(String, bool)>,
    /// How many replicas had what was last waited for.
    pub replicas: Option<u32>,
    /// The nodes of a quorum.
    pub nodes: Vec<NodeFigures>,
}

/// What a node of a quorum is like now.
#[derive(Debug, Clone, Default)]
pub struct NodeFigures {
    /// Where it is.
    pub node: String,
    /// Whether it answers.
    pub is_up: bool,
    /// How often it has given its vote.
    pub given: u64,
    /// How often it has refused it, because the lock was held.
    pub refused: u64,
    /// How often it had none: it did not answer in time, or may not vote yet.
    pub missing: u64,
}
