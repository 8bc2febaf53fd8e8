//! The kinds of faults.

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9`, and a restart.
    KillGateway,
    /// An orderly end, and a restart.
    StopGateway,
    FreezeGateway,
    /// Repeated stops of less than a TTL: between the decision of the store and the answer to the caller.
    StallGateway,
    KillClient,
    /// A freeze in the middle of a change, for longer than the client's leases live.
    FreezeClient,
    /// `kill -9`; after its restart the server has all data that it acknowledged. With sentinels or a cluster:
    /// `kill -9` of a master, whose replica takes over.
    KillRedis,
    /// A freeze. With sentinels or a cluster: of a master, until its replica has taken over.
    FreezeRedis,
    /// `kill -9`, and a restart without data.
    LoseRedis,
    /// FLUSHALL.
    Flush,
    /// SCRIPT FLUSH, repeatedly.
    ForgetScripts,
    /// CLIENT KILL of connections for commands, repeatedly.
    KillConnections,
    /// CLIENT KILL of subscriptions, repeatedly.
    KillSubscriptions,
    /// A script that does not end.
    Busy,
    OutOfMemory,
    /// A proxy holds all bytes.
    Hold,
    CutReplies,
    CutRequests,
    Slice,
    Reset,
    /// An orderly failover to a replica.
    FailOver,
    /// One node of a quorum has counters far ahead of the others, as if its clock was, and is frozen after some time.
    CountAhead,
    /// The clock of one node of a quorum steps forward, so that all leases end there.
    StepClock,
    /// The slot of a lock moves to another server, and back.
    MoveSlot,
}

// === impl Fault ===

impl Fault {
    pub(crate) const OF_PROCESSES: [Self; 6] = [
        Self::KillGateway,
        Self::StopGateway,
        Self::FreezeGateway,
        Self::StallGateway,
        Self::KillClient,
        Self::FreezeClient,
    ];
    pub(crate) const OF_SERVERS: [Self; 2] = [Self::KillRedis, Self::FreezeRedis];
    pub(crate) const OF_SINGLE_SERVERS: [Self; 7] = [
        Self::LoseRedis,
        Self::Flush,
        Self::ForgetScripts,
        Self::KillConnections,
        Self::KillSubscriptions,
        Self::Busy,
        Self::OutOfMemory,
    ];
    pub(crate) const OF_CONNECTIONS: [Self; 5] = [
        Self::Hold,
        Self::CutReplies,
        Self::CutRequests,
        Self::Slice,
        Self::Reset,
    ];
    pub(crate) const OF_QUORUMS: [Self; 2] = [Self::CountAhead, Self::StepClock];
    pub(crate) const OF_FAILOVERS: [Self; 1] = [Self::FailOver];
    pub(crate) const OF_CLUSTERS: [Self; 1] = [Self::MoveSlot];
    /// Faults of a master that stays the master.
    pub(crate) const OF_MASTERS: [Self; 3] =
        [Self::Flush, Self::ForgetScripts, Self::KillConnections];
    /// Faults of a master that stays the master if no other server watches it.
    pub(crate) const OF_UNWATCHED_MASTERS: [Self; 2] = [Self::KillSubscriptions, Self::OutOfMemory];

    /// The name of the fault in histories and on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KillGateway => "kill-gateway",
            Self::StopGateway => "stop-gateway",
            Self::FreezeGateway => "freeze-gateway",
            Self::StallGateway => "stall-gateway",
            Self::KillClient => "kill-client",
            Self::FreezeClient => "freeze-client",
            Self::KillRedis => "kill-redis",
            Self::FreezeRedis => "freeze-redis",
            Self::LoseRedis => "lose-redis",
            Self::Flush => "flush",
            Self::ForgetScripts => "forget-scripts",
            Self::KillConnections => "kill-connections",
            Self::KillSubscriptions => "kill-subscriptions",
            Self::Busy => "busy",
            Self::OutOfMemory => "out-of-memory",
            Self::Hold => "hold",
            Self::CutReplies => "cut-replies",
            Self::CutRequests => "cut-requests",
            Self::Slice => "slice",
            Self::Reset => "reset",
            Self::FailOver => "fail-over",
            Self::CountAhead => "count-ahead",
            Self::StepClock => "step-clock",
            Self::MoveSlot => "move-slot",
        }
    }

    /// How long the fault lasts, in ms: the least time, and how much more it may be.
    pub(super) fn lasts(self) -> (usize, usize) {
        match self {
            Self::KillGateway | Self::KillRedis | Self::LoseRedis => (0, 1_000),
            Self::StopGateway
            | Self::KillClient
            | Self::Flush
            | Self::FailOver
            | Self::StepClock => (0, 1),
            Self::FreezeGateway | Self::Hold => (300, 4_000),
            // Long enough for at least four stops.
            Self::StallGateway => (3_000, 2_000),
            // How long the slot is in two places, each time.
            Self::MoveSlot => (0, 2_500),
            // May be longer than a gateway repeats its requests.
            Self::FreezeRedis => (300, 6_700),
            // The TTL of a visit, and time for other clients.
            Self::FreezeClient => (3_500, 1_000),
            Self::ForgetScripts
            | Self::KillConnections
            | Self::KillSubscriptions
            | Self::Busy
            | Self::OutOfMemory
            | Self::CutReplies
            | Self::CutRequests
            | Self::Slice
            | Self::CountAhead
            | Self::Reset => (1_500, 1_500),
        }
    }
}
