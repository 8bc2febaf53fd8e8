//! A walk: attempts that ask the nodes, with random delivery of their messages.

use super::{
    learner::Learner,
    node::{Node, Proposal},
    variant::Variant,
};
use crate::support::Random;

/// Which reservations and leases end at a node without a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// Any of them at any instant, as if time were unknown: fencing tokens must still rise.
    Anything,
    /// None of them: leases must not overlap.
    Nothing,
}

/// Attempts at some nodes, with their messages.
pub(super) struct Walk<'a> {
    nodes: &'a mut [Node],
    variant: Variant,
    ends: Ends,
    runs: Vec<Run>,
    /// The gateway that helps a node without data to catch up. The other nodes have all of their data.
    learner: Option<Learner>,
    under_way: Vec<Message>,
    /// The granted fencing tokens of each name.
    granted: Vec<Vec<u64>>,
    story: Vec<String>,
}

/// An attempt at its gateway.
#[derive(Debug)]
struct Run {
    name: usize,
    token: String,
    nonce: String,
    tries: usize,
    phase: Phase,
    /// The highest fencing token of the name that was granted before this try began.
    after: u64,
    proposed: Vec<Option<Proposal>>,
    accepted: Vec<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    NotBegun,
    First,
    Second(u64),
    Granted,
    Over,
}

#[derive(Debug, Clone)]
struct Message {
    run: usize,
    nonce: String,
    node: usize,
    asks: Asks,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Asks {
    Reserve,
    Ratify(u64, Vec<Option<String>>),
    /// Takes the lease with this granted fencing token at the nodes that do not have it.
    Take(u64),
    Withdraw,
    Release,
}

/// The names for which the attempts ask. All names share a counter.
const NAMES: [usize; 4] = [0, 0, 0, 1];
const STEPS: usize = 120;
const TRIES: usize = 3;
/// Far beyond any time, and far below the largest fencing token.
const BASE: u64 = 5_000_000_000_000_000;

// === impl Walk ===

impl<'a> Walk<'a> {
    pub(super) async fn begin(
        nodes: &'a mut [Node],
        variant: Variant,
        ends: Ends,
        random: &mut Random,
    ) -> Self {
        let count = nodes.len();
        for node in &mut *nodes {
            node.reset(BASE + random.next() % 3).await;
        }
        let runs = NAMES.into_iter().enumerate().map(|(number, name)| Run {
            name,
            token: format!("{number:064}"),
            nonce: String::new(),
            tries: 0,
            phase: Phase::NotBegun,
            after: 0,
            proposed: vec![None; count],
            accepted: vec![false; count],
        });
        Self {
            nodes,
            variant,
            ends,
            runs: runs.collect(),
            learner: None,
            under_way: Vec::new(),
            granted: vec![Vec::new(); 2],
            story: Vec::new(),
        }
    }

    /// Runs the walk to its end, or to its first violation, which is answered.
    pub(super) async fn go(mut self, random: &mut Random) -> Option<String> {
        for _ in 0..STEPS {
            if let Some(wrong) = self.step(random).await {
                return Some(format!("{wrong}: {}", self.story.join("; ")));
            }
        }
        None
    }

    async fn step(&mut self, random: &mut Random) -> Option<String> {
        match random.below(20) {
            0..9 if !self.under_way.is_empty() => self.deliver(random).await,
            9 if self.ends == Ends::Anything => {
                let (node, name) = (random.below(self.nodes.len()), random.below(2));
                self.story.push(format!("{name} ends at {node}"));
                self.nodes[node].end(name).await;
            }
            10 if self.ends == Ends::Anything && self.learner.is_none() && random.below(4) == 0 => {
                let node = random.below(self.nodes.len());
                self.nodes[node].flush().await;
                self.story.push(format!("{node} loses its data"));
                if self.variant != Variant::VotesUnlearnt {
                    self.learner = Some(Learner::new(node, self.nodes.len(), random));
                }
            }
            11..14 if let Some(learner) = &mut self.learner => {
                let (said, over) = learner.step(self.nodes, random).await;
                self.story.push(said);
                if over {
                    self.learner = None;
                }
            }
            _ => return self.act(random.below(self.runs.len()), random),
        }
        None
    }

    /// Delivers one message, which may be delivered again later, and whose reply may be lost.
    async fn deliver(&mut self, random: &mut Random) {
        let at = random.below(self.under_way.len());
        let message = if random.below(8) == 0 {
            self.under_way[at].clone()
        } else {
            self.under_way.swap_remove(at)
        };
        let (node, run) = (&mut self.nodes[message.node], &mut self.runs[message.run]);
        let heard = random.below(8) > 0 && run.nonce == message.nonce;
        let (name, token, nonce) = (run.name, &run.token, &message.nonce);
        let mut said = String::new();
        match &message.asks {
            Asks::Reserve => {
                let proposed = node.reserve(name, token, nonce).await;
                said = format!("{proposed:?}");
                if heard && run.phase == Phase::First && proposed.is_some() {
                    run.proposed[message.node] = proposed;
                }
            }
            Asks::Ratify(fence, votes) => {
                let Some(vote) = &votes[message.node] else {
                    return;
                };
                let accepts = node.ratify(name, token, nonce, *fence, vote).await;
                said = format!("{accepts}");
                if heard && matches!(run.phase, Phase::Second(_)) && accepts {
                    run.accepted[message.node] = true;
                }
            }
            Asks::Take(fence) => {
                let answer = node.take(name, token, nonce, *fence).await;
                said = format!("{answer:?}");
            }
            Asks::Withdraw => node.withdraw(name, token, nonce).await,
            Asks::Release => node.release(name, token).await,
        }
        let (run, at, asks) = (message.run, message.node, &message.asks);
        self.story
            .push(format!("{run} {asks:?} at {at}: {said}, heard {heard}"));
    }

    /// Lets an attempt do its next step.
    fn act(&mut self, run: usize, random: &mut Random) -> Option<String> {
        let (majority, second) = (self.majority(), self.variant != Variant::NoSecondRound);
        let it = &self.runs[run];
        let proposed: Vec<u64> = it.proposed.iter().flatten().map(|it| it.fence).collect();
        let accepted = it.accepted.iter().filter(|it| **it).count();
        match it.phase {
            Phase::NotBegun => self.try_anew(run),
            Phase::First if proposed.len() >= majority => {
                let fence = proposed.into_iter().max()?;
                self.runs[run].phase = Phase::Second(fence);
                if !second {
                    return self.grant(run, fence);
                }
                // Only nodes that have voted are asked, with their vote.
                let votes = self.runs[run].proposed.iter().cloned();
                let votes = votes.map(|it| it.map(|it| it.vote)).collect();
                self.send(run, &Asks::Ratify(fence, votes));
            }
            Phase::Second(fence) if accepted >= majority => return self.grant(run, fence),
            Phase::First | Phase::Second(_) if random.below(4) == 0 => {
                self.send(run, &Asks::Withdraw);
                self.try_anew(run);
            }
            Phase::Granted if random.below(4) == 0 => {
                self.runs[run].phase = Phase::Over;
                self.send(run, &Asks::Release);
            }
            Phase::First | Phase::Second(_) | Phase::Granted | Phase::Over => {}
        }
        None
    }

    fn majority(&self) -> usize {
        self.nodes.len() / 2 + usize::from(self.variant != Variant::Half)
    }

    fn try_anew(&mut self, run: usize) {
        let it = &mut self.runs[run];
        it.tries += 1;
        if it.tries > TRIES {
            it.phase = Phase::Over;
            return;
        }
        it.nonce = format!("{run}-{}", it.tries);
        it.phase = Phase::First;
        it.after = self.granted[it.name].iter().copied().max().unwrap_or(0);
        it.proposed.fill(None);
        it.accepted.fill(false);
        self.send(run, &Asks::Reserve);
    }

    fn send(&mut self, run: usize, asks: &Asks) {
        self.story.push(format!("{run} sends {asks:?}"));
        let nonce = &self.runs[run].nonce;
        let to = (0..self.nodes.len()).map(|node| Message {
            run,
            nonce: nonce.clone(),
            node,
            asks: asks.clone(),
        });
        self.under_way.extend(to);
    }

    fn grant(&mut self, run: usize, fence: u64) -> Option<String> {
        self.story.push(format!("{run} is granted {fence}"));
        let name = self.runs[run].name;
        let held = self.runs.iter();
        let held = held.filter(|it| it.name == name && it.phase == Phase::Granted);
        let overlaps = self.ends == Ends::Nothing && held.count() > 0;
        // In the other variants, these messages would only hide the violation.
        if self.variant == Variant::Guarded {
            self.send(run, &Asks::Take(fence));
        }
        self.runs[run].phase = Phase::Granted;
        let before = &mut self.granted[name];
        let is_new = !before.contains(&fence);
        before.push(fence);
        match fence {
            _ if overlaps => Some("two leases overlap".to_owned()),
            _ if !is_new => Some(format!("{fence} was granted twice")),
            _ if fence <= self.runs[run].after => Some(format!("{fence} after a higher one")),
            _ => None,
        }
    }
}
