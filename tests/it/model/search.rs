//! Explores the states of a model: all of them, with the shortest way to a wrong state, or some at random.

use std::{
    collections::HashMap,
    fmt::{Debug, Display, Formatter, Result},
    hash::{BuildHasherDefault, Hash, Hasher},
};

use crate::support::Random;

/// A state machine whose states can be explored.
pub(super) trait Model {
    /// State of everything in the model.
    type State: Copy + Eq + Hash + Debug;
    /// One thing that may happen.
    type Step: Copy + Debug;

    /// The first state.
    fn beginning(&self) -> Self::State;

    /// Adds every step that may happen next, with the state after the step.
    fn next(&self, from: &Self::State, to: &mut Vec<(Self::Step, Self::State)>);

    /// Why a state must never be reached; `None` if the state is right.
    fn wrong(&self, state: &Self::State) -> Option<&'static str>;

    /// Whether a step happens by itself when no fault happens and no new caller comes any more.
    fn is_calm(&self, _step: Self::Step) -> bool {
        false
    }

    /// Why no model may end in this state; `None` if it may. Called for states from which no step happens by itself.
    fn left_over(&self, _state: &Self::State) -> Option<&'static str> {
        None
    }
}

/// Whether the answer to a message or a script arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heard(pub(super) bool);

/// Result of a search or a walk.
pub(super) struct SearchOutcome<Step> {
    /// How many states there are, or were visited until a wrong one was found.
    pub(super) states: usize,
    /// How many steps lead from one state to another.
    pub(super) steps: usize,
    /// The first wrong state that was found.
    pub(super) wrong: Option<Violation<Step>>,
}

/// A wrong state, and the steps that lead to it.
pub(super) struct Violation<Step> {
    pub(super) what: &'static str,
    pub(super) way: Vec<Step>,
    /// The wrong state.
    pub(super) state: String,
}

/// A hash function that is good enough for states of a few dozen bytes, and fast without optimization.
#[derive(Default)]
struct Mixer(u64);

/// The states that were visited, each with the state before it.
struct VisitedStates<M: Model> {
    states: Vec<M::State>,
    before: Vec<Option<(usize, M::Step)>>,
    places: HashMap<M::State, usize, BuildHasherDefault<Mixer>>,
}

const NEVER_ENDS: &str = "what happens by itself goes round in a circle";

/// Visits all states. If there are not fewer than `most`, the bounds of the model are too wide.
pub(super) fn search<M: Model>(model: &M, most: usize) -> SearchOutcome<M::Step> {
    let mut known = VisitedStates::<M>::new();
    known.add(model.beginning(), None);
    let (mut at, mut steps) = (0, 0);
    let (mut next, mut calm) = (Vec::new(), Vec::new());
    while let Some(&state) = known.states.get(at) {
        if let Some(what) = model.wrong(&state) {
            return known.found(steps, at, what);
        }
        model.next(&state, &mut next);
        let before = calm.len();
        for (step, to) in next.drain(..) {
            steps += 1;
            let place = known.add(to, Some((at, step)));
            if model.is_calm(step) {
                calm.push((at, place));
            }
        }
        if calm.len() == before
            && let Some(what) = model.left_over(&state)
        {
            return known.found(steps, at, what);
        }
        at += 1;
        assert!(at < most, "there are more than {most} states");
    }
    match circle(known.states.len(), &calm) {
        Some(at) => known.found(steps, at, NEVER_ENDS),
        None => SearchOutcome::new(known.states.len(), steps, None),
    }
}

/// Takes so many random walks from the first state, each of at most `longest` steps.
pub(super) fn walk<M: Model>(
    model: &M,
    random: &mut Random,
    walks: usize,
    longest: usize,
) -> SearchOutcome<M::Step> {
    let (mut next, mut steps) = (Vec::new(), 0);
    for _ in 0..walks {
        let mut state = model.beginning();
        let mut way = Vec::new();
        while way.len() < longest {
            next.clear();
            model.next(&state, &mut next);
            if next.is_empty() {
                break;
            }
            let (step, to) = next[random.below(next.len())];
            way.push(step);
            state = to;
            if let Some(what) = model.wrong(&state) {
                let state = format!("{state:?}, {}", random.how_to_repeat());
                return SearchOutcome::new(steps, steps, Some(Violation { what, way, state }));
            }
            steps += 1;
        }
    }
    SearchOutcome::new(steps, steps, None)
}

/// A state from which steps lead back to it, if there is one: such states remain when states to which no step leads are
/// removed again and again.
fn circle(states: usize, steps: &[(usize, usize)]) -> Option<usize> {
    let mut leading_to = vec![0_u32; states];
    let mut first = vec![0; states + 1];
    for &(from, to) in steps {
        leading_to[to] += 1;
        first[from + 1] += 1;
    }
    for at in 0..states {
        first[at + 1] += first[at];
    }
    // The steps were found in the order of the states from which they lead.
    let mut free: Vec<_> = (0..states).filter(|&at| leading_to[at] == 0).collect();
    while let Some(from) = free.pop() {
        for &(_, to) in &steps[first[from]..first[from + 1]] {
            leading_to[to] -= 1;
            if leading_to[to] == 0 {
                free.push(to);
            }
        }
    }
    leading_to.iter().position(|&leading| leading > 0)
}

// === impl VisitedStates ===

impl<M: Model> VisitedStates<M> {
    fn new() -> Self {
        Self {
            states: Vec::new(),
            before: Vec::new(),
            places: HashMap::default(),
        }
    }

    /// Index of the state, whether the state is new or not.
    fn add(&mut self, state: M::State, before: Option<(usize, M::Step)>) -> usize {
        let new = self.states.len();
        let place = *self.places.entry(state).or_insert(new);
        if place == new {
            self.states.push(state);
            self.before.push(before);
        }
        place
    }

    fn found(&self, steps: usize, mut at: usize, what: &'static str) -> SearchOutcome<M::Step> {
        let state = format!("{:?}", self.states[at]);
        let mut way = Vec::new();
        while let Some((before, step)) = self.before[at] {
            way.push(step);
            at = before;
        }
        way.reverse();
        SearchOutcome::new(
            self.states.len(),
            steps,
            Some(Violation { what, way, state }),
        )
    }
}

// === impl SearchOutcome ===

impl<Step: Debug> SearchOutcome<Step> {
    fn new(states: usize, steps: usize, wrong: Option<Violation<Step>>) -> Self {
        Self {
            states,
            steps,
            wrong,
        }
    }

    /// Checks that no wrong state was found; otherwise fails and shows the way there.
    pub(super) fn nothing_wrong(self) -> Self {
        if let Some(wrong) = &self.wrong {
            panic!("{wrong}");
        }
        self
    }

    /// The wrong state that was found; fails if there is none.
    pub(super) fn wrong(&self) -> &Violation<Step> {
        let wrong = self.wrong.as_ref();
        wrong.unwrap_or_else(|| panic!("nothing wrong was found among {self}"))
    }
}

impl<Step> Display for SearchOutcome<Step> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} states, {} steps", self.states, self.steps)
    }
}

// === impl Violation ===

impl<Step: Debug> Display for Violation<Step> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "{}, after {} steps:", self.what, self.way.len())?;
        for step in &self.way {
            writeln!(f, "    {step:?}")?;
        }
        write!(f, "    {}", self.state)
    }
}

// === impl Mixer ===

impl Mixer {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.mix(byte.into());
    }

    fn write_u16(&mut self, word: u16) {
        self.mix(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn finish(&self) -> u64 {
        // The hash table uses the upper bits and the lower bits.
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::with;

    /// Counts up to a bound. Steps by two do not happen by themselves.
    struct Counter {
        bound: u32,
        wrong: Option<u32>,
        circle: bool,
    }

    impl Model for Counter {
        type State = u32;
        type Step = &'static str;

        fn beginning(&self) -> u32 {
            0
        }

        fn next(&self, &from: &u32, to: &mut Vec<(&'static str, u32)>) {
            if from < self.bound {
                to.push(("one", from + 1));
                to.push(("two", self.bound.min(from + 2)));
            } else if self.circle {
                to.push(("back", from - 3));
            }
        }

        fn wrong(&self, state: &u32) -> Option<&'static str> {
            (Some(*state) == self.wrong).then_some("it is that number")
        }

        fn is_calm(&self, step: &'static str) -> bool {
            step != "two"
        }

        fn left_over(&self, state: &u32) -> Option<&'static str> {
            (state % 2 == 1).then_some("it ends with an odd number")
        }
    }

    const TEN: Counter = Counter {
        bound: 10,
        wrong: None,
        circle: false,
    };

    #[test]
    fn every_state_is_come_by_once() {
        let found = search(&TEN, 100).nothing_wrong();
        assert_eq!((found.states, found.steps), (11, 20));
    }

    #[test]
    fn what_is_wrong_is_found_by_the_shortest_way() {
        let found = search(&with(TEN, |it| it.wrong = Some(7)), 100);
        let wrong = found.wrong();
        assert_eq!(wrong.what, "it is that number");
        assert_eq!((wrong.way.len(), wrong.state.as_str()), (4, "7"));
    }

    #[test]
    fn where_it_comes_to_rest_is_looked_at_and_what_never_does_is_found() {
        let odd = search(&with(TEN, |it| it.bound = 9), 100);
        assert_eq!(odd.wrong().what, "it ends with an odd number");
        let circle = search(&with(TEN, |it| it.circle = true), 100);
        assert_eq!(circle.wrong().what, NEVER_ENDS);
    }

    #[test]
    #[should_panic(expected = "there are more than 5 states")]
    fn more_states_than_were_thought_of_are_no_success() {
        search(&TEN, 5);
    }
}
