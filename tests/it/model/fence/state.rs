//! What nodes and attempts know.

/// Everybody. The place of a node says nothing: they are kept in order, so that states which differ by
/// it alone are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct State<const NODES: usize, const RUNS: usize> {
    pub(super) nodes: [Node<RUNS>; NODES],
    pub(super) runs: [Run; RUNS],
    /// How often a node has lost its data.
    pub(super) losses: u8,
    /// How often a counter was raised by a name that is not modelled.
    pub(super) raises: u8,
    /// How often a node has written down what it has.
    pub(super) saves: u8,
}

/// How many nodes may learn at once.
pub(super) const LEARNERS: usize = 3;

/// A node, and what each attempt has heard of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Node<const RUNS: usize> {
    pub(super) counter: u8,
    /// The largest fence that it has confirmed, or has learnt of, since it has a vote.
    pub(super) top: u8,
    /// By which number it learns; 0 when it has a vote.
    pub(super) learns: u8,
    /// Only where a learner's message counts in a later life: what one was to teach it, and one more.
    pub(super) late: u8,
    /// By name. There are no more names than attempts.
    pub(super) seats: [NameOwner; RUNS],
    /// Who has a seat again when it loses what it did not write down.
    pub(super) saved: [u8; RUNS],
    pub(super) heard: [CollectedReplies; RUNS],
    /// What those who learn were told here last.
    pub(super) told: [TeachReply; LEARNERS],
}

/// What a learner was told at a node.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum TeachReply {
    #[default]
    Nothing,
    /// That it has no vote either.
    NoVote,
    Top(u8),
}

/// Who owns a name at a node.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NameOwner {
    /// 0: nobody.
    pub(super) nonce: u8,
    /// What the counter was raised to for it. 0 when it asks no more.
    pub(super) fence: u8,
}

/// What an attempt has heard of a node.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CollectedReplies {
    /// In round one: the counter. 0: nothing.
    pub(super) counter: u8,
    /// Whether nobody has learnt there since round one was answered, and it has not lost its data.
    pub(super) fresh: bool,
    /// In round two: that it confirms.
    pub(super) confirms: bool,
}

/// An attempt at its gateway.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Run {
    pub(super) phase: Phase,
    /// The largest fence of its name that was granted before it began.
    pub(super) after: u8,
    /// What it asks to be confirmed.
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
    /// Nobody has asked for anything, and every node has a vote.
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

    /// The same with its nodes in order.
    pub(super) fn in_order(mut self) -> Self {
        self.nodes.sort_unstable();
        self
    }
}
