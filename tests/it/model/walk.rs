//! Goes through the states of a model at random, where there are too many to come by all of them.

use crate::support::Random;

use super::search::{Model, SearchOutcome, Violation};

/// Walks so many times from the beginning, so many steps each or until nothing can happen any more.
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
                let wrong = Some(Violation { what, way, state });
                return SearchOutcome {
                    states: steps,
                    steps,
                    wrong,
                };
            }
            steps += 1;
        }
    }
    SearchOutcome {
        states: steps,
        steps,
        wrong: None,
    }
}
