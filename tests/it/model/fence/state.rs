//! State of the nodes and the attempts.

/// State of all nodes and attempts. The index of a node means nothing: the nodes are sorted, so that states which
/// differ only in the index of nodes are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct State<const NODES: usize, const RUNS: usize> {
    pub(super) nodes: [Node<RUNS>; NODES],
    pub(super) runs: [Run; RUNS],
    /// How often a node has lost its data.
    pub(super) losses: u8,
    /// How often a counter was raised by a name that is not modelled.
    pub(super) raises: u8,
    /// How often a node has written down its data.
    pub(super) saves: u8,
}

/// How many nodes may learn at once.
pub(super) const LEARNERS: usize = 3;

/// A node, and the answers that each attempt has got from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Node<const RUNS: usize> {
    pub(super) counter: u8,
    /// The largest fence that the node has confirmed, or has learnt of, since it has a vote.
    pub(super) top: u8,
    /// The number under which the node learns; 0 if it has a vote.
    pub(super) learns: u8,
    /// The fence that a late answer may teach the node in a later life, plus one. Only the variant `NoLife` sets it.
    pub(super) late: u8,
    /// The owner of each name. There are no more names than attempts.
    pub(super) seats: [NameOwner; RUNS],
    /// The owner of each name that the node has written down, and returns to when it loses its other data.
    pub(super) saved: [u8; RUNS],
    pub(super) heard: [CollectedReplies; RUNS],
    /// The last answer of this node to each learner.
    pub(super) told: [TeachReply; LEARNERS],
}

/// Answer of a node to a learner.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum TeachReply {
    #[default]
    Nothing,
    /// The node has no vote either.
    NoVote,
    Top(u8),
}

/// Owner of a name at a node.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NameOwner {
    /// Nonce of the owner; 0 if there is no owner.
    pub(super) nonce: u8,
    /// Value to which the counter was raised for the owner; 0 if the owner does not ask any more.
    pub(super) fence: u8,
}

/// Answers that an attempt has got from a node.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CollectedReplies {
    /// The counter that the node answered in round one; 0 without an answer.
    pub(super) counter: u8,
    /// Whether no node has learnt from this node since its answer in round one, and it has not lost its data.
    pub(super) fresh: bool,
    /// Whether the node has confirmed in round two.
    pub(super) confirms: bool,
}

/// An attempt at its gateway.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Run {
    pub(super) phase: Phase,
    /// The largest fence of its name that was granted before the attempt began.
    pub(super) after: u8,
    /// The fence that the attempt asks the nodes to confirm.
    pub(super) fence: u8,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    #[default]
    NotBegun,
    RoundOne,
    RoundTwo,
    Granted,
}

// === impl State ===

impl<const NODES: usize, const RUNS: usize> State<NODES, RUNS> {
    /// The state in which no attempt has begun, and every node has a vote.
    pub(super) fn beginning() -> Self {
        let node = Node {
            counter: 0,
            top: 0,
            learns: 0,
            late: 0,
            seats: [NameOwner::default(); RUNS],
            saved: [0; RUNS],
            heard: [CollectedReplies::default(); RUNS],
            told: [TeachReply::default(); LEARNERS],
        };
        Self {
            nodes: [node; NODES],
            runs: [Run::default(); RUNS],
            losses: 0,
            raises: 0,
            saves: 0,
        }
    }

    /// The same state with its nodes sorted.
    pub(super) fn in_order(mut self) -> Self {
        self.nodes.sort_unstable();
        self
    }
}
