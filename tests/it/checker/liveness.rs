//! I7 and I8: what is said of time.

use super::story::{Story, acquire, granted, refused};
use crate::history::RecordedAnswer;

fn handed_over_after(ms: u64) -> Story {
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    let waits = story.asks(2, "b", acquire(60_000));
    story.released((10, 20), "a", 7);
    story.hears(20 + ms, waits, granted(8));
    story
}

#[test]
fn a_lock_that_lies_free_while_somebody_waits_is_found() {
    assert_eq!(handed_over_after(3_001).breaks(), ["I7"]);
}

#[test]
fn one_slow_hand_off_of_a_hundred_is_none_too_many_but_two_are() {
    let slow = |slow: u64| {
        let mut story = Story::default();
        for n in 0..101 {
            let (at, errand, next) = (n * 20_000, (2 * n).to_string(), (2 * n + 1).to_string());
            let took = if n < slow { 51 } else { 50 };
            story.granted((at, at + 1), &errand, 2 * n + 1);
            let waits = story.asks(at + 2, &next, acquire(9_000));
            story.released((at + 10, at + 20), &errand, 2 * n + 1);
            story.hears(at + 20 + took, waits, granted(2 * n + 2));
            story.released((at + 200, at + 210), &next, 2 * n + 2);
        }
        story.breaks()
    };
    assert_eq!(slow(2), ["I7"]);
    assert_eq!(slow(1), [""; 0]);
    assert_eq!(handed_over_after(2_900).breaks(), [""; 0]);
}

#[test]
fn after_a_fault_there_are_ten_seconds() {
    let mut story = handed_over_after(11_000);
    story.fault((15, 1_100), "kill-gateway", false);
    assert_eq!(story.breaks(), [""; 0]);
    let mut late = handed_over_after(11_200);
    late.fault((15, 1_100), "kill-gateway", false);
    assert_eq!(late.breaks(), ["I7"]);
}

#[test]
fn a_holder_that_has_died_costs_its_ttl() {
    for (at, found) in [(12_000, &[][..]), (13_100, &["I7"])] {
        let mut story = Story::default();
        story.granted((0, 1), "a", 7);
        let waits = story.asks(2, "b", acquire(60_000));
        story.hears(at, waits, granted(8));
        assert_eq!(story.breaks(), found, "{at}");
    }
}

#[test]
fn a_gateway_that_does_not_come_back_is_found() {
    let back_at = |at: u64| {
        let mut story = Story::default();
        story.fault((0, 100), "kill-gateway", false);
        let no = refused("store-unavailable");
        story.op((200, 201), "a", acquire(0), no);
        story.granted((at, at + 1), "b", 8);
        story.breaks()
    };
    assert_eq!(back_at(10_200), ["I7"]);
    assert_eq!(back_at(9_000), [""; 0]);
}

#[test]
fn an_orphan_is_found() {
    // An orphan of a fault ends with its time to live; whoever waited at a gateway that was killed is granted
    // nothing when that counts as dead.
    for (case, wait, hears, fault, last) in [
        ("hangs up", 0, false, false, 11_010),
        ("hangs up, and a gateway is killed", 0, false, true, 11_500),
        (
            "waits at a gateway that is killed",
            9_000,
            true,
            true,
            17_005,
        ),
    ] {
        for (at, found) in [(last - 1, &[][..]), (last + 1, &["I8"])] {
            let mut story = Story::default();
            let gone = story.asks(0, "a", acquire(wait));
            if hears {
                story.hears(10, gone, RecordedAnswer::Unknown);
            } else {
                story.hangs_up(10, gone);
            }
            if fault {
                story.fault((5, 500), "kill-gateway", false);
            }
            story.shown((at, at + 1), Some((7, "a")), &[]);
            assert_eq!(story.breaks(), found, "{case}: {at}");
        }
    }
}

#[test]
fn more_than_a_few_that_are_kept_for_nobody_are_found() {
    let kept = |of: u64| {
        let mut story = Story::default();
        for n in 0..100 {
            let (at, errand) = (n * 20_000, n.to_string());
            let gone = story.asks(at, &errand, acquire(9_000));
            story.hangs_up(at + 10, gone);
            if n < of {
                story.shown((at + 1_100, at + 1_101), Some((n + 1, &errand)), &[]);
            }
        }
        story.breaks()
    };
    assert_eq!(kept(4), ["I8"]);
    assert_eq!(kept(3), [""; 0]);
}

#[test]
fn a_lease_that_is_seen_after_its_end_is_found() {
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    story.released((2, 3), "a", 7);
    story.shown((4, 5), Some((7, "a")), &[]);
    story.finds("I8");
    let mut forgotten = Story::default();
    forgotten.granted((0, 1), "a", 7);
    forgotten.releases((2, 3), "a", 7, RecordedAnswer::Unknown);
    forgotten.shown((4, 5), Some((7, "a")), &[]);
    assert_eq!(forgotten.breaks(), [""; 0]);
}
