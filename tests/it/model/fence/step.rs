//! What happens, one thing at a time.

/// What happens. Nodes are named by their place before it.
#[derive(Debug, Clone, Copy)]
#[expect(
    dead_code,
    reason = "whoever reads the way to what is wrong reads them"
)]
pub(super) enum Step {
    Begin {
        run: usize,
    },
    /// A message of round one arrives; its answer is heard or lost.
    RoundOne {
        run: usize,
        node: usize,
        heard: bool,
    },
    /// The largest of some answers.
    Maximum {
        run: usize,
        fence: u8,
    },
    /// A message of round two arrives; its answer is heard or lost.
    RoundTwo {
        run: usize,
        node: usize,
        heard: bool,
    },
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
    /// Who learns asks a node; the answer is heard or lost.
    Ask {
        learner: u8,
        node: usize,
        heard: bool,
    },
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
