//! I3, I6, I9 and I12: what is said of leases.

use super::story::{Story, TERMS, acquire, break_of, granted, renew, renewed};
use crate::history::{Ask, Event, Mode, RecordedAnswer};

#[test]
fn two_leases_at_once_are_found() {
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    story.granted((2, 3), "b", 8);
    story.finds("I3");
}

#[test]
fn a_lease_that_begins_when_the_one_before_is_over_is_none_too_early() {
    let mut story = Story::default();
    story.granted((0, 300), "a", 7);
    // Ten seconds from when it was asked for, or from when it was heard of without what its way may have taken.
    story.granted((9_900, 10_000), "b", 8);
    assert_eq!(story.breaks(), [""; 0]);
    let mut early = Story::default();
    early.granted((0, 300), "a", 7);
    early.granted((9_900, 9_999), "b", 8);
    early.finds("I3");
}

#[test]
fn an_answer_that_tells_of_more_than_is_left_by_then_is_found() {
    let mut story = Story::default();
    story.granted((0, 2_000), "a", 7);
    story.granted((11_000, 11_001), "b", 8);
    story.finds("I3");
    // A client that was frozen has read it late, which is nobody's fault but its own.
    let mut frozen = Story::default();
    frozen.granted((0, 2_000), "a", 7);
    frozen.granted((11_000, 11_001), "b", 8);
    frozen.fault_of("client", (1, 1_999), "freeze-client");
    let found = frozen.breaks();
    assert!(!found.contains(&"I3".to_owned()), "{found:?}");
}

#[test]
fn a_renewed_lease_lasts_longer() {
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    story.op((5_000, 5_001), "a", renew(7), renewed(7));
    story.granted((14_998, 14_999), "b", 8);
    story.finds("I3");
}

#[test]
fn what_a_store_may_forget_is_counted_and_not_held_against_it() {
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    story.fault((2, 3), "flush", true);
    story.granted((4, 5), "b", 8);
    assert_eq!(story.breaks(), [""; 0]);
    let told = story.told(&TERMS);
    assert_eq!(told.overlaps, (1, 9_995 * 1_000_000));
}

#[test]
fn a_lease_that_is_lost_before_its_time_is_found() {
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    story.op((9_000, 9_001), "a", renew(7), RecordedAnswer::Lost);
    story.finds("I6");
}

#[test]
fn a_lease_whose_time_is_over_may_be_lost() {
    let mut story = Story::default();
    story.granted((0, 500), "a", 7);
    story.releases((10_000, 10_001), "a", 7, RecordedAnswer::Lost);
    assert_eq!(story.breaks(), [""; 0]);
}

#[test]
fn a_lease_that_was_broken_may_be_lost() {
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    story.op((2, 3), "operator", break_of(7), RecordedAnswer::Broken);
    story.op((4, 5), "a", renew(7), RecordedAnswer::Lost);
    assert_eq!(story.breaks(), [""; 0]);
}

#[test]
fn a_lease_may_be_forgotten_before_its_holder_hears_of_it() {
    let mut story = Story::default();
    let late = story.asks(0, "a", acquire(0));
    story.fault((2, 3), "flush", true);
    story.hears(4, late, granted(7));
    story.releases((5, 6), "a", 7, RecordedAnswer::Lost);
    story.granted((7, 8), "b", 8);
    assert_eq!(story.breaks(), [""; 0]);
}

#[test]
fn a_lease_that_nobody_sees_is_found() {
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    story.shown((2, 3), None, &[]);
    story.finds("I6");
}

#[test]
fn a_token_of_nobody_that_releases_is_found() {
    for (answer, found) in [
        (RecordedAnswer::Released, &["I9"][..]),
        (RecordedAnswer::Lost, &[]),
    ] {
        let mut story = Story::default();
        story.op((0, 1), "thief", Ask::Forge { renews: false }, answer);
        assert_eq!(story.breaks(), found);
    }
}

#[test]
fn a_lease_that_rises_from_the_dead_is_found() {
    let renews = |at: u64| {
        let mut story = Story::default();
        story.granted((0, 1), "a", 7);
        story.op((at, at + 1), "a", renew(7), renewed(7));
        story.breaks()
    };
    assert_eq!(renews(11_002), ["I9"]);
    // It may be a second late.
    assert_eq!(renews(10_900), [""; 0]);
}

#[test]
fn a_release_after_another_grant_is_found() {
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    story.fault((2, 3), "flush", true);
    story.granted((4, 5), "b", 8);
    story.released((6, 7), "a", 7);
    story.finds("I9");
}

#[test]
fn what_a_store_may_forget_of_an_end_is_not_held_against_it() {
    for forgets in [true, false] {
        let mut story = Story::default();
        let renewed = RecordedAnswer::Renewed {
            fence: 7,
            left_ms: 0,
            slot: None,
            asked_for: true,
        };
        story.granted((0, 1), "a", 7);
        let ask = break_of(7);
        story.op((2, 3), "ops", ask, RecordedAnswer::Broken);
        story.granted((4, 5), "b", 8);
        story.fault((6, 7), "fail-over", forgets);
        let ask = renew(7);
        story.op((8, 9), "a", ask, renewed);
        let found = story.breaks().contains(&"I9".to_owned());
        assert_eq!(found, !forgets, "{:?}", story.breaks());
    }
}

#[test]
fn answers_that_no_order_explains_are_found() {
    let mut story = Story::default();
    // It was free, is granted, and yet somebody who looked afterwards saw the one before.
    story.granted((0, 10), "a", 7);
    story.released((20, 30), "a", 7);
    story.granted((40, 50), "b", 8);
    story.shown((60, 70), Some((7, "a")), &[]);
    story.finds("I12");
}

#[test]
fn a_grant_that_is_broken_before_anybody_hears_of_it_has_its_place_in_the_order() {
    let mut story = Story::default();
    let waits = story.asks(0, "a", acquire(60_000));
    story.shown((10, 20), Some((7, "a")), &[]);
    story.op((30, 40), "operator", break_of(7), RecordedAnswer::Broken);
    story.granted((45, 50), "b", 8);
    story.released((60, 70), "b", 8);
    story.hears(80, waits, granted(9));
    assert_eq!(story.breaks(), [""; 0]);
    assert_eq!(story.told(&TERMS).windows, (1, 5));
}

#[test]
fn answers_in_whatever_order_that_there_is_are_right() {
    let mut story = Story::default();
    story.granted((0, 10), "a", 7);
    // All at once: the release, a grant after it, and one who sees either.
    let release = story.asks(20, "a", Ask::Release { fence: 7 });
    let next = story.asks(21, "b", acquire(0));
    story.shown((22, 60), Some((7, "a")), &[]);
    story.shown((23, 61), Some((8, "b")), &[]);
    story.hears(50, next, granted(8));
    story.hears(70, release, RecordedAnswer::Released);
    assert_eq!(story.breaks(), [""; 0]);
    let told = story.told(&TERMS);
    assert_eq!(told.windows, (1, 5));
}

#[test]
fn a_stream_counts_from_when_its_event_arrived_and_until_it_is_over() {
    let mut story = Story::default();
    let hold = Ask::Hold {
        ttl_ms: 10_000,
        wait_ms: 0,
        mode: Mode::Exclusive,
    };
    let stream = story.asks(0, "a", hold);
    story.hears(1, stream, granted(7));
    let kept = Event::Keeps {
        op: stream,
        left_ms: 10_000,
    };
    story.line(5_000, kept);
    story.granted((14_000, 14_001), "b", 8);
    story.finds("I3");
    story.hangs_up(13_000, stream);
    assert_eq!(story.breaks(), [""; 0]);
}
