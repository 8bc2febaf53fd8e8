//! The steps of the quorum fence, and variants of the protocol without one of its guards.

use super::super::search::Heard;

/// One step: what happens, to which attempt and at which node. A node is named by its index before the step.
#[derive(Debug, Clone, Copy)]
#[expect(
    dead_code,
    reason = "whoever reads the way to what is wrong reads them"
)]
pub(super) enum Step {
    Begin {
        run: usize,
    },
    /// A message of round one from an attempt arrives at a node; the answer is heard or lost.
    RoundOne(usize, usize, Heard),
    /// The attempt takes the largest answer of a majority.
    Maximum {
        run: usize,
        fence: u8,
    },
    /// A message of round two from an attempt arrives at a node; the answer is heard or lost.
    RoundTwo(usize, usize, Heard),
    Grant {
        run: usize,
    },
    /// The ownership of a name at a node ends.
    End {
        name: usize,
        node: usize,
    },
    /// The node loses all its data, or all that it has not written down.
    LoseData {
        node: usize,
    },
    WriteDown {
        node: usize,
    },
    /// A learner asks a node; the answer is heard or lost.
    Ask(u8, usize, Heard),
    /// A node gets its vote.
    Admit {
        node: usize,
        top: u8,
    },
    /// Another name raises the counter of the node, or the largest fence that the node has confirmed.
    Raise {
        node: usize,
        top: bool,
    },
}

/// The protocol, or the protocol without one of its guards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// The protocol with all its guards.
    Guarded,
    /// The maximum of round one is granted at once.
    NoSecondRound,
    /// Round two raises the counter wherever it arrives.
    UnconditionalRaise,
    /// Round two checks only the owner, and not whether the counter is at most `t`.
    OwnerAlone,
    /// Round two checks only the counter, and not the owner.
    CounterAlone,
    /// One confirmation is enough for a grant.
    RaiseBelowMajority,
    /// A later attempt of a caller has the nonce of its attempt before.
    NonceReused,
    /// A node that lost its data votes at once.
    VotesUnlearnt,
    /// A node that lost its data votes at once, and is told with round one the fence that the gateway knew when the
    /// attempt began.
    FloorOfGateway,
    /// A learner asks one node that has a vote, and not a majority.
    LearnsOfOne,
    /// A learner counts a node as without a vote that had none when it was asked, and has got one since.
    OldAnswers,
    /// Round two does not check whether a node has learnt from this node since round one.
    NoEpoch,
    /// Round two also asks nodes that answered round one after the first node was asked in round two.
    LateAnswers,
    /// An answer to a learner counts although the learning node has lost its data again since it was asked for.
    NoLife,
    /// A node without a vote confirms a fence of an attempt that owns the name there.
    ConfirmsUnlearnt,
}
