//! I11: who was first is served first.

use super::story::{Story, TERMS, acquire, break_of, granted, refused};
use crate::history::{RecordedAnswer, Terms};

fn queued_then_passed(passes: bool) -> Story {
    passed_through(0, passes)
}

/// The second asks this gateway, the first asked the one before it.
fn passed_through(gateway: usize, passes: bool) -> Story {
    let mut story = Story::default();
    story.granted((0, 1), "holder", 5);
    let first = story.asks(2, "first", acquire(60_000));
    story.shown((10, 11), Some((5, "holder")), &["first"]);
    let second = story.asks_of(gateway, 12, "second", acquire(60_000));
    story.released((20, 21), "holder", 5);
    let (now, later) = if passes {
        (second, first)
    } else {
        (first, second)
    };
    story.hears(22, now, granted(6));
    let errand = if passes { "second" } else { "first" };
    story.released((23, 24), errand, 6);
    story.hears(25, later, granted(7));
    story
}

#[test]
fn one_who_passes_another_in_the_queue_is_found() {
    assert_eq!(queued_then_passed(true).breaks(), ["I11"]);
    assert_eq!(queued_then_passed(false).breaks(), [""; 0]);
}

#[test]
fn where_only_those_at_one_gateway_are_in_order_others_may_pass() {
    let terms = Terms {
        order_within_gateways: true,
        ..TERMS
    };
    let passed = |gateway| {
        let report = passed_through(gateway, true).told(&terms);
        report.violations.len()
    };
    assert_eq!(passed(1), 0);
    assert_eq!(passed(0), 1);
    assert_eq!(passed_through(1, true).breaks(), ["I11"]);
}

#[test]
fn who_asked_at_several_gateways_may_have_been_granted_the_lock_by_any() {
    let terms = Terms {
        order_within_gateways: true,
        ..TERMS
    };
    let passed = |elsewhere: &[&str]| {
        let mut story = passed_through(0, true);
        for errand in elsewhere {
            let op = story.asks_of(1, 3, errand, acquire(60_000));
            story.hears(4, op, RecordedAnswer::Unknown);
        }
        story.told(&terms).violations.len()
    };
    assert_eq!(passed(&[]), 1);
    assert_eq!(passed(&["first"]), 0);
    assert_eq!(passed(&["second"]), 0);
}

#[test]
fn a_place_may_be_lost_in_a_fault() {
    let mut story = queued_then_passed(true);
    story.fault((15, 16), "kill-redis", false);
    assert_eq!(story.breaks(), [""; 0]);
}

#[test]
fn a_place_may_be_lost_with_a_lease_that_is_broken_before_anybody_was_told() {
    let passed = |answer: RecordedAnswer| {
        let mut story = Story::default();
        story.granted((0, 1), "holder", 5);
        let first = story.asks(2, "first", acquire(60_000));
        story.shown((10, 11), Some((5, "holder")), &["first"]);
        let second = story.asks(12, "second", acquire(60_000));
        story.released((20, 21), "holder", 5);
        story.op((22, 23), "first", break_of(6), answer);
        story.hears(24, second, granted(7));
        story.released((25, 26), "second", 7);
        story.hears(27, first, granted(8));
        story.breaks()
    };
    assert_eq!(passed(RecordedAnswer::Broken), [""; 0]);
    assert_eq!(passed(RecordedAnswer::Unknown), [""; 0]);
    assert_eq!(passed(refused("conflict")), ["I11"]);
}

#[test]
fn nobody_knows_who_was_first_of_two_that_were_not_seen_in_the_queue() {
    let mut story = Story::default();
    story.granted((0, 1), "holder", 5);
    let first = story.asks(2, "first", acquire(60_000));
    let second = story.asks(12, "second", acquire(60_000));
    story.released((20, 21), "holder", 5);
    story.hears(22, second, granted(6));
    story.released((23, 24), "second", 6);
    story.hears(25, first, granted(7));
    assert_eq!(story.breaks(), [""; 0]);
}

#[test]
fn one_who_has_left_is_passed_by_everybody() {
    let mut story = Story::default();
    story.granted((0, 1), "holder", 5);
    let first = story.asks(2, "first", acquire(15));
    story.shown((10, 11), Some((5, "holder")), &["first"]);
    let holders = Vec::new();
    story.hears(18, first, RecordedAnswer::Locked { holders });
    story.released((20, 21), "holder", 5);
    story.granted((22, 23), "second", 6);
    assert_eq!(story.breaks(), [""; 0]);
}
