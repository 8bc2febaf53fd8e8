//! The steps of the quorum fence that may happen next.

use super::{
    super::search::{Heard, Model},
    state::{CollectedReplies, NameOwner, Phase, State},
    step::{Step, Variant},
};

/// The protocol of the quorum fence, with bounds that limit its states.
#[derive(Debug, Clone, Copy)]
pub(super) struct Protocol<const NODES: usize, const RUNS: usize> {
    pub(super) variant: Variant,
    /// The name for which each attempt asks.
    pub(super) names: [usize; RUNS],
    /// The largest counter that is explored: steps that raise a counter above it are left out.
    pub(super) highest: u8,
    /// How often a node may lose its data.
    pub(super) losses: u8,
    /// How often a name that is not modelled may raise a counter.
    pub(super) raises: u8,
    /// How far the counter of one node is ahead of the others at the beginning.
    pub(super) ahead: u8,
    /// How often a node may write down its data.
    pub(super) saves: u8,
    /// Whether all nodes are empty at the beginning, and none has a vote.
    pub(super) new: bool,
    /// Whether a majority has confirmed a fence of the first name before the beginning, which was granted.
    pub(super) granted: bool,
}

pub(super) type Next<const NODES: usize, const RUNS: usize> = Vec<(Step, State<NODES, RUNS>)>;

// === impl Protocol ===

impl<const NODES: usize, const RUNS: usize> Protocol<NODES, RUNS> {
    pub(super) const MAJORITY: usize = NODES / 2 + 1;

    /// The protocol with all its guards, in which no node loses data.
    pub(super) const fn new(names: [usize; RUNS], highest: u8) -> Self {
        Self {
            variant: Variant::Guarded,
            names,
            highest,
            losses: 0,
            raises: 0,
            ahead: 0,
            saves: 0,
            new: false,
            granted: false,
        }
    }

    /// The nonce of an attempt. In the variant `NonceReused`, all attempts for one name have the same nonce.
    fn nonce(&self, run: usize) -> u8 {
        let of = match self.variant {
            Variant::NonceReused => self.names[run],
            _ => run,
        };
        u8::try_from(of + 1).expect("there are few attempts")
    }

    /// The state without details that make no difference any more, so that fewer states have to be visited.
    pub(super) fn told_apart(&self, mut state: State<NODES, RUNS>) -> State<NODES, RUNS> {
        let mut asks = [false; 8];
        for run in 0..RUNS {
            let asks_on = matches!(state.runs[run].phase, Phase::NotBegun | Phase::RoundOne);
            asks[usize::from(self.nonce(run))] |= asks_on;
        }
        let all_vote = state.nodes.iter().all(|node| node.learns == 0);
        for node in &mut state.nodes {
            for seat in &mut node.seats {
                if !asks[usize::from(seat.nonce)] {
                    seat.fence = 0;
                }
            }
            if all_vote && state.losses == self.losses {
                if node.counter >= node.top {
                    node.top = 0;
                }
                node.saved = [0; RUNS];
            }
        }
        state.in_order()
    }

    fn of_run(&self, from: &State<NODES, RUNS>, run: usize, to: &mut Next<NODES, RUNS>) {
        match from.runs[run].phase {
            // Attempts for one name do not differ, so they begin in their order.
            Phase::NotBegun if self.is_next(from, run) => return self.begin(from, run, to),
            Phase::NotBegun => return,
            Phase::RoundOne => self.maximum(from, run, to),
            Phase::RoundTwo => {
                let enough = match self.variant {
                    Variant::RaiseBelowMajority => 1,
                    _ => Self::MAJORITY,
                };
                let confirms = from.nodes.iter().filter(|node| node.heard[run].confirms);
                if confirms.count() >= enough {
                    to.push((Step::Grant { run }, self.granted(*from, run)));
                }
            }
            Phase::Granted => {}
        }
        for node in 0..NODES {
            self.round_one(from, run, node, to);
            if from.runs[run].phase != Phase::RoundOne {
                self.round_two(from, run, node, to);
            }
        }
    }

    fn is_next(&self, from: &State<NODES, RUNS>, run: usize) -> bool {
        let mut before = (0..run).filter(|&other| self.names[other] == self.names[run]);
        before.all(|other| from.runs[other].phase != Phase::NotBegun)
    }

    fn begin(&self, from: &State<NODES, RUNS>, run: usize, to: &mut Next<NODES, RUNS>) {
        let mut state = *from;
        let runs = from.runs.iter().zip(self.names);
        let of_name =
            runs.filter(|(other, name)| other.phase == Phase::Granted && *name == self.names[run]);
        let before = u8::from(self.granted && self.names[run] == 0);
        state.runs[run].after = of_name
            .map(|(other, _)| other.fence)
            .max()
            .unwrap_or(before);
        state.runs[run].phase = Phase::RoundOne;
        to.push((Step::Begin { run }, state));
    }

    /// Round one: a node makes the attempt the owner of the name if there is no owner, and answers again if the attempt
    /// is the owner already.
    fn round_one(
        &self,
        from: &State<NODES, RUNS>,
        run: usize,
        node: usize,
        to: &mut Next<NODES, RUNS>,
    ) {
        let (mut state, nonce) = (*from, self.nonce(run));
        let there = &mut state.nodes[node];
        if !self.votes(there) {
            return;
        }
        let seat = &mut there.seats[self.names[run]];
        if seat.nonce == 0 {
            let floor = match self.variant {
                Variant::FloorOfGateway => from.runs[run].after,
                _ => there.top,
            };
            there.counter = there.counter.max(floor) + 1;
            if there.counter > self.highest {
                return;
            }
            *seat = NameOwner {
                nonce,
                fence: there.counter,
            };
            to.push((
                Step::RoundOne(run, node, Heard(false)),
                self.told_apart(state),
            ));
        } else if seat.nonce != nonce {
            return;
        }
        let answer = state.nodes[node].seats[self.names[run]].fence;
        let heard = &mut state.nodes[node].heard[run];
        let (phase, before) = (from.runs[run].phase, *heard);
        if answer == 0 {
            return;
        }
        if phase == Phase::RoundOne {
            (heard.counter, heard.fresh) = (answer, true);
        } else if self.variant == Variant::LateAnswers {
            heard.fresh = true;
        }
        if *heard != before {
            to.push((
                Step::RoundOne(run, node, Heard(true)),
                self.told_apart(state),
            ));
        }
    }

    /// Takes the largest answer of any majority. An answer that comes later makes no more difference than one that is
    /// left out.
    fn maximum(&self, from: &State<NODES, RUNS>, run: usize, to: &mut Next<NODES, RUNS>) {
        let mut answers = from.nodes.map(|node| node.heard[run].counter);
        answers.sort_unstable();
        // The largest answer of a majority can be any answer except the smallest ones.
        let answers = answers.into_iter().filter(|&answer| answer > 0);
        let mut largest: Vec<_> = answers.skip(Self::MAJORITY - 1).collect();
        largest.dedup();
        for fence in largest {
            let mut state = *from;
            state.runs[run].fence = fence;
            state.runs[run].phase = Phase::RoundTwo;
            // Round two asks the nodes that have answered, and needs to know only whether their answers are still
            // fresh.
            for node in &mut state.nodes {
                let fresh = node.heard[run].fresh;
                node.heard[run] = CollectedReplies {
                    fresh,
                    ..CollectedReplies::default()
                };
            }
            if self.variant == Variant::NoSecondRound {
                state = self.granted(state, run);
            }
            to.push((Step::Maximum { run, fence }, self.told_apart(state)));
        }
    }

    /// The state after a grant: answers of the nodes to this attempt are not needed any more.
    fn granted(&self, mut state: State<NODES, RUNS>, run: usize) -> State<NODES, RUNS> {
        state.runs[run].phase = Phase::Granted;
        for node in &mut state.nodes {
            node.heard[run].counter = 0;
            node.heard[run].confirms = false;
        }
        self.told_apart(state)
    }

    /// Round two: a node confirms the fence if the guards allow it.
    fn round_two(
        &self,
        from: &State<NODES, RUNS>,
        run: usize,
        node: usize,
        to: &mut Next<NODES, RUNS>,
    ) {
        let (mut state, fence) = (*from, from.runs[run].fence);
        let there = &mut state.nodes[node];
        let seat = &mut there.seats[self.names[run]];
        let owns = seat.nonce == self.nonce(run);
        let fresh = there.heard[run].fresh || self.variant == Variant::NoEpoch;
        let has_vote = there.learns == 0 || self.variant == Variant::ConfirmsUnlearnt;
        if !(fresh && has_vote || self.votes_unlearnt()) {
            return;
        }
        let lets = match self.variant {
            Variant::UnconditionalRaise => true,
            Variant::OwnerAlone => owns,
            Variant::CounterAlone => there.counter <= fence,
            _ => owns && there.counter <= fence,
        };
        if !lets {
            return;
        }
        there.counter = there.counter.max(fence);
        there.top = there.top.max(fence);
        if owns {
            seat.fence = fence;
        }
        if state != *from {
            to.push((
                Step::RoundTwo(run, node, Heard(false)),
                self.told_apart(state),
            ));
        }
        let heard = &mut state.nodes[node].heard[run].confirms;
        if from.runs[run].phase == Phase::RoundTwo && !*heard {
            *heard = true;
            to.push((
                Step::RoundTwo(run, node, Heard(true)),
                self.told_apart(state),
            ));
        }
    }

    fn of_node(&self, from: &State<NODES, RUNS>, node: usize, to: &mut Next<NODES, RUNS>) {
        for name in 0..RUNS {
            if from.nodes[node].seats[name] != NameOwner::default() {
                let mut state = *from;
                state.nodes[node].seats[name] = NameOwner::default();
                to.push((Step::End { name, node }, self.told_apart(state)));
            }
        }
        self.learning(from, node, to);
        if from.raises < self.raises {
            for top in [false, true] {
                let mut state = *from;
                let there = &mut state.nodes[node];
                let raised = if top {
                    &mut there.top
                } else {
                    &mut there.counter
                };
                *raised += 1;
                if *raised <= self.highest && self.votes(there) {
                    state.raises += 1;
                    to.push((Step::Raise { node, top }, self.told_apart(state)));
                }
            }
        }
    }
}

impl<const NODES: usize, const RUNS: usize> Model for Protocol<NODES, RUNS> {
    type State = State<NODES, RUNS>;
    type Step = Step;

    fn beginning(&self) -> Self::State {
        let mut state = State::beginning();
        state.nodes[NODES - 1].counter = self.ahead;
        if self.new {
            for (number, node) in state.nodes.iter_mut().enumerate() {
                node.learns = u8::try_from(number + 1).expect("there are few nodes");
            }
        }
        if self.granted {
            for node in &mut state.nodes[..Self::MAJORITY] {
                (node.counter, node.top) = (1, 1);
            }
        }
        state
    }

    fn next(&self, from: &Self::State, to: &mut Vec<(Step, Self::State)>) {
        if from.runs.iter().all(|run| run.phase == Phase::Granted) {
            return;
        }
        for run in 0..RUNS {
            self.of_run(from, run, to);
        }
        for node in 0..NODES {
            self.of_node(from, node, to);
        }
    }

    fn wrong(&self, state: &Self::State) -> Option<&'static str> {
        for (run, granted) in state.runs.iter().enumerate() {
            if granted.phase != Phase::Granted {
                continue;
            }
            if granted.fence <= granted.after {
                return Some("a fence does not rise");
            }
            let mut others = state.runs[..run].iter().zip(self.names);
            if others.any(|(other, name)| {
                other.phase == Phase::Granted
                    && name == self.names[run]
                    && other.fence == granted.fence
            }) {
                return Some("a fence was granted twice");
            }
        }
        None
    }
}
