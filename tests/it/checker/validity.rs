//! A run that shows nothing is not passed.

use super::story::{Story, TERMS};
use crate::history::{Event, Stage, Terms};

#[test]
fn too_little_traffic_shows_nothing() {
    let mut story = Story::default();
    for n in 0..100 {
        let at = n * 10;
        story.granted((at, at + 1), &n.to_string(), n + 1);
        story.released((at + 2, at + 3), &n.to_string(), n + 1);
    }
    let terms = |grants_per_second| Terms {
        grants_per_second,
        ..TERMS
    };
    assert_eq!(story.told(&terms(99.0)).invalid, [""; 0]);
    assert_eq!(story.told(&terms(200.0)).invalid.len(), 1);
}

/// Several faults of a kind, the first of which nobody has seen.
fn faults(count: u64) -> Story {
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    for fault in 0..count {
        for stage in [Stage::Begins, Stage::Seen(fault.min(1)), Stage::Heals] {
            let (kind, target) = ("flush".to_owned(), "redis".to_owned());
            story.line(
                2 + fault,
                Event::Fault {
                    fault,
                    kind,
                    target,
                    forgets: true,
                    stage,
                },
            );
        }
    }
    story
}

#[test]
fn one_of_many_faults_of_a_kind_may_miss() {
    assert_eq!(faults(10).told(&TERMS).invalid, [""; 0]);
    assert_eq!(faults(9).told(&TERMS).invalid.len(), 1);
}

#[test]
fn a_fault_that_nobody_saw_shows_nothing() {
    let told = faults(1).told(&TERMS);
    assert_eq!(told.invalid, ["flush of redis was never seen to happen"]);
    assert!(told.violations.is_empty());
}
