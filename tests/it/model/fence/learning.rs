//! A node that loses its data, and how it gets its vote again.
//!
//! A gateway that learns for a node asks other nodes for the largest fence that they have confirmed. From then on each
//! of them refuses to confirm a fence that it was asked to propose for before. When a majority of nodes with a vote has
//! answered, or all other nodes have answered, the node gets its vote, and proposes only larger fences.

use super::{
    super::search::Heard,
    protocol::{Next, Protocol},
    state::{NameOwner, Node, State, TeachReply},
    step::{Step, Variant},
};

// === impl Protocol ===

impl<const NODES: usize, const RUNS: usize> Protocol<NODES, RUNS> {
    /// Whether a node takes part in round one.
    pub(super) fn votes(&self, node: &Node<RUNS>) -> bool {
        node.learns == 0 || self.votes_unlearnt()
    }

    pub(super) fn votes_unlearnt(&self) -> bool {
        matches!(
            self.variant,
            Variant::VotesUnlearnt | Variant::FloorOfGateway
        )
    }

    pub(super) fn learning(
        &self,
        from: &State<NODES, RUNS>,
        node: usize,
        to: &mut Next<NODES, RUNS>,
    ) {
        if self.may_lose(from, node) {
            let state = self.without_data(*from, node);
            to.push((Step::LoseData { node }, self.told_apart(state)));
        }
        let there = from.nodes[node];
        let seats = there.seats.map(|seat| seat.nonce);
        if from.saves < self.saves && there.saved != seats {
            let mut state = *from;
            state.nodes[node].saved = seats;
            state.saves += 1;
            to.push((Step::WriteDown { node }, self.told_apart(state)));
        }
        if self.votes_unlearnt() {
            return;
        }
        for learner in from.nodes.iter().map(|node| node.learns) {
            if learner > 0 && learner != there.learns {
                self.ask(from, learner, node, to);
            }
        }
        if there.learns > 0 {
            if let Some(top) = self.learnt(from, there.learns) {
                to.push(self.admitted(*from, node, top));
            }
            if there.late > 0 {
                to.push(self.admitted(*from, node, there.late - 1));
            }
        }
    }

    /// Whether a node may lose its data now: fewer than a majority of the nodes may be without a vote because of lost
    /// data.
    fn may_lose(&self, from: &State<NODES, RUNS>, node: usize) -> bool {
        let others = from.nodes.iter().enumerate();
        let others = others.filter(|(other, there)| *other != node && there.learns > 0);
        let few = usize::from(self.losses) <= NODES - Self::MAJORITY;
        from.losses < self.losses && (few || others.count() < NODES - Self::MAJORITY)
    }

    fn without_data(&self, mut state: State<NODES, RUNS>, node: usize) -> State<NODES, RUNS> {
        let taken = |number: &u8| state.nodes.iter().any(|other| other.learns == *number);
        let learns = match state.nodes[node].learns {
            0 => (1..=u8::MAX).find(|number| !taken(number)),
            number => Some(number),
        };
        let learns = learns.expect("there are more numbers than nodes");
        // The node begins to learn again: the answers so far belong to another life.
        forget(&mut state, learns);
        state.losses += 1;
        let there = &mut state.nodes[node];
        self.said_before(there);
        *there = Node {
            counter: 0,
            top: 0,
            learns,
            seats: there.saved.map(|nonce| NameOwner { nonce, fence: 0 }),
            ..*there
        };
        // In the variant `ConfirmsUnlearnt`, the data that the node has written down also say that no node has learnt
        // from it since.
        for heard in &mut there.heard {
            heard.fresh &= self.variant == Variant::ConfirmsUnlearnt;
        }
        state
    }

    fn ask(&self, from: &State<NODES, RUNS>, learner: u8, node: usize, to: &mut Next<NODES, RUNS>) {
        let mut state = *from;
        let there = &mut state.nodes[node];
        for heard in &mut there.heard {
            heard.fresh = false;
        }
        if state != *from {
            to.push((
                Step::Ask(learner, node, Heard(false)),
                self.told_apart(state),
            ));
        }
        let there = &mut state.nodes[node];
        let answer = match there.learns {
            0 => TeachReply::Top(there.top),
            _ => TeachReply::NoVote,
        };
        let told = &mut there.told[usize::from(learner - 1)];
        if *told != answer {
            *told = answer;
            to.push((
                Step::Ask(learner, node, Heard(true)),
                self.told_apart(state),
            ));
        }
    }

    /// The largest fence by the answers so far; `None` if the answers are not enough.
    fn learnt(&self, from: &State<NODES, RUNS>, learner: u8) -> Option<u8> {
        let told = from.nodes.map(|node| node.told[usize::from(learner - 1)]);
        let answers = told
            .iter()
            .filter(|told| **told != TeachReply::Nothing)
            .count();
        let tops = told.iter().filter_map(|told| match told {
            TeachReply::Top(top) => Some(*top),
            _ => None,
        });
        let enough = match self.variant {
            Variant::LearnsOfOne => 1,
            _ => Self::MAJORITY,
        };
        let is_enough = tops.clone().count() >= enough || answers == NODES - 1;
        is_enough.then(|| tops.max().unwrap_or(0))
    }

    fn admitted(
        &self,
        mut state: State<NODES, RUNS>,
        node: usize,
        top: u8,
    ) -> (Step, State<NODES, RUNS>) {
        let learner = state.nodes[node].learns;
        forget(&mut state, learner);
        let there = &mut state.nodes[node];
        there.learns = 0;
        there.top = top;
        self.said_before(there);
        if self.variant == Variant::NoLife {
            there.late = top + 1;
        }
        (Step::Admit { node, top }, self.told_apart(state))
    }

    /// Drops answers of this node that it has no vote. The program asks such a node again when all nodes have answered,
    /// and the node must still be in the same life.
    fn said_before(&self, node: &mut Node<RUNS>) {
        for told in &mut node.told {
            if *told == TeachReply::NoVote && self.variant != Variant::OldAnswers {
                *told = TeachReply::Nothing;
            }
        }
    }
}

fn forget<const NODES: usize, const RUNS: usize>(state: &mut State<NODES, RUNS>, learner: u8) {
    for other in &mut state.nodes {
        other.told[usize::from(learner - 1)] = TeachReply::Nothing;
    }
}
