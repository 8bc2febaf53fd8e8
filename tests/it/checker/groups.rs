//! I14, and what else is to be kept in mind of a lock that is wanted together with another one.

use super::story::{Story, TERMS, acquire, break_of, granted, refused};
use crate::history::{RecordedAnswer, Terms};

/// The other lock.
const OTHER: &str = "other";

/// A request for both locks, and what is answered for each of them.
fn both(story: &mut Story, (from, to): (u64, u64), wait_ms: u64, answers: [RecordedAnswer; 2]) {
    let parts = story.asks_for_both(from, "group", OTHER, &acquire(wait_ms));
    for (part, answer) in parts.into_iter().zip(answers) {
        story.hears(to, part, answer);
    }
}

fn locked() -> RecordedAnswer {
    RecordedAnswer::Locked {
        holders: Vec::new(),
    }
}

#[test]
fn a_part_of_a_group_without_the_rest_is_found() {
    let mut story = Story::default();
    both(&mut story, (0, 1), 0, [granted(7), granted(3)]);
    assert_eq!(story.breaks(), [""; 0]);
    let mut story = Story::default();
    both(&mut story, (0, 1), 0, [granted(7), locked()]);
    assert_eq!(story.breaks(), ["I14"]);
}

#[test]
fn a_group_that_waits_for_too_long_is_found() {
    let waits = |until| {
        let mut story = Story::default();
        both(&mut story, (0, until), 15_000, [granted(7), granted(3)]);
        story
    };
    assert_eq!(waits(10_000).breaks(), [""; 0]);
    assert_eq!(waits(10_001).breaks(), ["I14"]);
    let mut faulty = waits(14_000);
    faulty.fault((1_000, 5_000), "freeze-redis", false);
    assert_eq!(faulty.breaks(), [""; 0]);
}

#[test]
fn what_a_group_had_that_was_told_no_is_gone_soon() {
    let seen = |at| {
        let mut story = Story::default();
        both(&mut story, (0, 10), 0, [refused("locked"), locked()]);
        story.shown((at, at + 1), Some((7, "group")), &[]);
        story
    };
    assert_eq!(seen(1_009).breaks(), [""; 0]);
    assert_eq!(seen(1_011).breaks(), ["I5"]);
    let mut faulty = seen(1_011);
    faulty.fault((5, 6), "freeze-redis", false);
    assert_eq!(faulty.breaks(), [""; 0]);
}

#[test]
fn a_lock_that_a_group_may_hold_while_it_waits_for_another_does_not_lie_free() {
    let mut story = Story::default();
    let parts = story.asks_for_both(0, "group", OTHER, &acquire(9_000));
    let waits = story.asks(1, "single", acquire(9_000));
    for part in parts {
        story.hears(6_000, part, refused("locked"));
    }
    story.hears(6_500, waits, granted(8));
    assert_eq!(story.breaks(), [""; 0]);
}

#[test]
fn a_group_may_lose_its_place_with_another_lock() {
    let passed = |lost: bool| {
        let mut story = Story::default();
        story.granted((0, 1), "holder", 5);
        let group = story.asks_for_both(2, "group", OTHER, &acquire(60_000));
        story.shown((10, 11), Some((5, "holder")), &["group"]);
        let second = story.asks(12, "second", acquire(60_000));
        if lost {
            let ask = break_of(3);
            story.op_about(OTHER, (15, 16), "group", ask, RecordedAnswer::Broken);
        }
        story.released((20, 21), "holder", 5);
        story.hears(22, second, granted(6));
        story.released((23, 24), "second", 6);
        story.hears(25, group[0], granted(7));
        story.hears(25, group[1], granted(4));
        story.breaks()
    };
    assert_eq!(passed(false), ["I11"]);
    assert_eq!(passed(true), [""; 0]);
}

#[test]
fn a_run_without_a_group_shows_nothing() {
    let terms = Terms {
        cooperates: true,
        ..TERMS
    };
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    assert_eq!(story.told(&terms).invalid.len(), 2);
    both(&mut story, (2, 3), 0, [refused("locked"), locked()]);
    assert_eq!(story.told(&terms).invalid.len(), 2);
    story.released((4, 5), "a", 7);
    both(&mut story, (6, 7), 0, [granted(8), granted(3)]);
    assert_eq!(story.told(&terms).invalid.len(), 1);
}
