//! I15: who is asked to release a lease hears of it, and loses it in time; answers that may not be given.

use super::story::{Story, TERMS, acquire, granted, renew};
use crate::history::{Ask, RecordedAnswer, Terms};

/// A holder that is asked for its lease at 10 ms, and has 500 ms.
fn asked() -> Story {
    let mut story = Story::default();
    story.granted((0, 1), "holder", 5);
    let ask = Ask::Break {
        fence: 5,
        grace_ms: Some(500),
    };
    story.op((10, 11), "holder", ask, RecordedAnswer::Requested);
    story
}

fn renewed(story: &mut Story, at: u64, asked_for: bool) {
    let ask = renew(5);
    let answer = RecordedAnswer::Renewed {
        fence: 5,
        left_ms: 100,
        slot: None,
        asked_for,
    };
    story.op((at, at + 1), "holder", ask, answer);
}

#[test]
fn a_renewal_that_does_not_tell_of_it_is_found() {
    let renews = |at, asked_for| {
        let mut story = asked();
        renewed(&mut story, at, asked_for);
        story.breaks()
    };
    assert_eq!(renews(20, true), [""; 0]);
    assert_eq!(renews(20, false), ["I15"]);
    // It was sent before that was answered.
    assert_eq!(renews(10, false), [""; 0]);
}

#[test]
fn a_renewal_after_the_time_is_found() {
    let renews = |at| {
        let mut story = asked();
        renewed(&mut story, at, true);
        story
    };
    // The store has a second more, and whoever looks another one.
    assert_eq!(renews(2_511).breaks(), [""; 0]);
    assert_eq!(renews(2_512).breaks(), ["I15"]);
    let mut forgotten = renews(2_512);
    forgotten.fault((100, 101), "flush", true);
    assert_eq!(forgotten.breaks(), [""; 0]);
}

#[test]
fn a_holder_that_is_seen_after_the_time_is_found() {
    let seen = |at| {
        let mut story = asked();
        story.shown((at, at + 1), Some((5, "holder")), &[]);
        story.breaks()
    };
    assert_eq!(seen(2_511), [""; 0]);
    assert_eq!(seen(2_512), ["I15"]);
}

#[test]
fn the_next_is_granted_the_lock_soon_after_the_time() {
    let granted_at = |at| {
        let mut story = asked();
        let waits = story.asks(20, "next", acquire(9_000));
        story.hears(at, waits, granted(6));
        story.breaks()
    };
    assert_eq!(granted_at(4_511), [""; 0]);
    assert_eq!(granted_at(4_512), ["I7"]);
}

#[test]
fn a_lease_is_not_lost_before_the_time_nor_by_a_request_for_another() {
    let lost = |story: &mut Story, at, errand, fence| {
        story.releases((at, at + 1), errand, fence, RecordedAnswer::Lost);
        story.breaks()
    };
    assert_eq!(lost(&mut asked(), 400, "holder", 5), ["I6", "I12"]);
    assert_eq!(lost(&mut asked(), 511, "holder", 5), [""; 0]);
    let mut story = asked();
    story.released((20, 21), "holder", 5);
    story.granted((22, 23), "next", 6);
    assert!(lost(&mut story, 600, "next", 6).contains(&"I6".to_owned()));
}

#[test]
fn a_run_in_which_nobody_was_asked_in_vain_shows_nothing() {
    let terms = Terms {
        cooperates: true,
        ..TERMS
    };
    let mut story = asked();
    renewed(&mut story, 20, true);
    let reasons = story.told(&terms).invalid.len();
    story.releases((600, 601), "holder", 5, RecordedAnswer::Lost);
    assert_eq!(story.told(&terms).invalid.len(), reasons - 1);
}

#[test]
fn an_answer_that_is_none_is_found() {
    let mut story = Story::default();
    let what = "500 internal".into();
    story.op((0, 1), "a", acquire(0), RecordedAnswer::Wrong { what });
    assert_eq!(story.breaks(), ["Contract"]);
}
