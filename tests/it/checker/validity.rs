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

#[test]
fn a_fault_that_nobody_saw_shows_nothing() {
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    for (at, stage) in [(2, Stage::Begins), (3, Stage::Heals)] {
        let (kind, target) = ("flush".to_owned(), "redis".to_owned());
        story.line(
            at,
            Event::Fault {
                fault: 1,
                kind,
                target,
                forgets: true,
                stage,
            },
        );
    }
    let told = story.told(&TERMS);
    assert_eq!(told.invalid, ["flush of redis was never seen to happen"]);
    assert!(told.violations.is_empty());
}
