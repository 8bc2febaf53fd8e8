//! Which faults there are.

/// Something that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9`, and started again.
    KillGateway,
    /// Ended in the orderly way, and started again.
    StopGateway,
    FreezeGateway,
    /// Stopped for less than a TTL, again and again: between what the store decides and what is answered.
    StallGateway,
    KillClient,
    /// For longer than its leases last, in the middle of a change.
    FreezeClient,
    /// `kill -9`; started again it knows all that it has answered. With sentinels or a cluster: a
    /// master, and another takes over.
    KillRedis,
    /// With sentinels or a cluster a master, until another has taken over.
    FreezeRedis,
    /// `kill -9`, and started again with nothing.
    LoseRedis,
    /// FLUSHALL.
    Flush,
    /// SCRIPT FLUSH, again and again.
    ForgetScripts,
    /// CLIENT KILL of what carries commands, again and again.
    KillConnections,
    /// CLIENT KILL of what carries messages, again and again.
    KillSubscriptions,
    /// A script that does not end.
    Busy,
    OutOfMemory,
    /// A proxy lets nothing pass.
    Hold,
    CutReplies,
    CutRequests,
    Slice,
    Reset,
    /// A replica takes over in the orderly way.
    FailOver,
    /// One node of a quorum counts far ahead of the others, as if its clock did, and is frozen after a while.
    CountAhead,
    /// The clock of one node of a quorum steps forward: all leases end there.
    StepClock,
    /// The slot of a lock goes to another server, and back.
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
    /// Of a master that goes on.
    pub(crate) const OF_MASTERS: [Self; 3] =
        [Self::Flush, Self::ForgetScripts, Self::KillConnections];
    /// The same where nobody takes that for a reason to replace it.
    pub(crate) const OF_UNWATCHED_MASTERS: [Self; 2] = [Self::KillSubscriptions, Self::OutOfMemory];

    /// As it is named in histories and on the command line.
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

    /// For how long it lasts, in ms: at least, and how much longer at most.
    pub(super) fn lasts(self) -> (usize, usize) {
        match self {
            Self::KillGateway | Self::KillRedis | Self::LoseRedis => (0, 1_000),
            Self::StopGateway
            | Self::KillClient
            | Self::Flush
            | Self::FailOver
            | Self::StepClock => (0, 1),
            Self::FreezeGateway | Self::Hold => (300, 4_000),
            // Four stops at least.
            Self::StallGateway => (3_000, 2_000),
            // So long it is in two places, each time.
            Self::MoveSlot => (0, 2_500),
            // Also longer than a gateway asks again for.
            Self::FreezeRedis => (300, 6_700),
            // The TTL of a visit, and time for others.
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
