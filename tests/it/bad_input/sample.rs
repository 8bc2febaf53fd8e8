//! Which cases are tried: all of them with `scripts/test --full`, otherwise some, and others each time.

use crate::support::{Random, full};

/// Every so many of them, from one of the first on that changes from run to run. Says how many these
/// are, and how to have the same again.
pub(super) fn sample<T>(cases: Vec<T>, every: usize) -> Vec<T> {
    sample_and(cases, every, |_| false)
}

/// The same with those that are tried always.
#[expect(clippy::print_stdout, reason = "this is not the program but its tests")]
pub(super) fn sample_and<T>(cases: Vec<T>, every: usize, always: impl Fn(&T) -> bool) -> Vec<T> {
    let all = cases.len();
    if full() {
        println!("all {all} cases");
        return cases;
    }
    let mut random = Random::seeded();
    let from = random.below(every);
    let chosen = |&(at, ref case): &(usize, T)| at % every == from || always(case);
    let numbered = cases.into_iter().enumerate().filter(chosen);
    let chosen: Vec<_> = numbered.map(|(_, case)| case).collect();
    println!(
        "{} of {all} cases, {}",
        chosen.len(),
        random.how_to_repeat()
    );
    chosen
}
