//! A run that shows nothing is not passed, nor is one whose positive control shows nothing: where clients are
//! paused, updates must get lost.

use super::story::{Story, TERMS};
use crate::history::{Event, Resource, Stage, Terms};

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
            let event = Event::Fault {
                fault,
                kind,
                target,
                forgets: true,
                stage,
            };
            story.line(2 + fault, event);
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

#[test]
fn paused_clients_that_lose_nothing_show_nothing() {
    let mut story = Story::default();
    story.fault((0, 5), "freeze-client", false);
    assert_eq!(story.told(&TERMS).invalid.len(), 1);
    story.writes(6, Resource::Unfenced, 8, 0, 0);
    story.writes(7, Resource::Unfenced, 7, 0, 1);
    assert_eq!(story.told(&TERMS).invalid, [""; 0]);
}
