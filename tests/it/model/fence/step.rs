//! What happens, one thing at a time, and what the protocol would be without one of its guards.

use super::super::search::Heard;

/// What happens, to which attempt and at which node. Nodes are named by their place before it.
#[derive(Debug, Clone, Copy)]
#[expect(
    dead_code,
    reason = "whoever reads the way to what is wrong reads them"
)]
pub(super) enum Step {
    Begin {
        run: usize,
    },
    /// A message of round one to an attempt's node arrives; its answer is heard or lost.
    RoundOne(usize, usize, Heard),
    /// The largest of some answers.
    Maximum {
        run: usize,
        fence: u8,
    },
    /// A message of round two to an attempt's node arrives; its answer is heard or lost.
    RoundTwo(usize, usize, Heard),
    Grant {
        run: usize,
    },
    /// What somebody has at a node ends.
    End {
        name: usize,
        node: usize,
    },
    /// All of it, or what it has not written down.
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
    /// Another name raises the counter, or what was confirmed.
    Raise {
        node: usize,
        top: bool,
    },
}

/// Which protocol is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// As it is.
    Guarded,
    /// The maximum of round one is granted at once.
    NoSecondRound,
    /// Round two raises the counter wherever it arrives.
    UnconditionalRaise,
    /// Round two asks for the owner only, and not whether the counter is at most `t`.
    OwnerAlone,
    /// Round two asks for the counter only, and not for the owner.
    CounterAlone,
    /// One confirmation is enough.
    RaiseBelowMajority,
    /// A later attempt of a caller goes by the nonce of the one before.
    NonceReused,
    /// A node that lost its data votes at once.
    VotesUnlearnt,
    /// The same, and is told with round one what the gateway had seen when the attempt began.
    FloorOfGateway,
    /// Who learns asks one node that has a vote, and not a majority.
    LearnsOfOne,
    /// Who learns counts a node that had no vote when it was asked, and has got one since, as one without.
    OldAnswers,
    /// Round two does not ask whether somebody has learnt there since round one.
    NoEpoch,
    /// Round two also asks nodes that answered round one after the first was asked.
    LateAnswers,
    /// What a node is told counts although it has lost its data again since that was asked for.
    NoLife,
    /// A node that has no vote confirms what it has a seat for.
    ConfirmsUnlearnt,
}
