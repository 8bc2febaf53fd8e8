//! I1, I2, I4, I5 and I10: what is said of fences, and of the resource that they guard.

use super::story::{Story, TERMS, acquire, granted, keyed, refused};
use crate::history::{
    RecordedAnswer,
    Resource::{Fenced, Unfenced},
};

#[test]
fn two_grants_with_one_fence_are_found() {
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    story.released((2, 3), "a", 7);
    story.granted((2, 9), "b", 7);
    story.finds("I1");
}

#[test]
fn a_grant_that_is_told_again_under_its_key_is_no_second_one() {
    let mut story = Story::default();
    story.op((0, 1), "a", keyed(), granted(7));
    let again = RecordedAnswer::Granted {
        fence: 7,
        left_ms: 9_000,
        again: true,
        slot: None,
    };
    story.op((2, 3), "a", keyed(), again);
    assert_eq!(story.breaks(), [""; 0]);
}

#[test]
fn a_fence_that_goes_back_is_found() {
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    story.released((2, 3), "a", 7);
    story.granted((4, 5), "b", 6);
    assert_eq!(story.breaks(), ["I2"]);
}

#[test]
fn a_fence_that_is_not_above_one_that_was_seen_is_found() {
    let mut story = Story::default();
    let lost = story.asks(0, "a", acquire(0));
    story.shown((1, 2), Some((7, "a")), &[]);
    story.hears(3, lost, RecordedAnswer::Unknown);
    story.fault((3, 4), "kill-redis", true);
    story.granted((20, 21), "b", 6);
    assert_eq!(story.breaks(), ["I2"]);
}

#[test]
fn of_two_that_ask_at_once_either_may_have_the_larger_fence() {
    let mut story = Story::default();
    // It was granted and released while the other was under way, and hears of it last.
    story.op((0, 9), "a", acquire(0), granted(6));
    story.granted((1, 3), "b", 7);
    story.released((1, 2), "a", 6);
    let found = story.breaks();
    assert!(!found.contains(&"I2".to_owned()), "{found:?}");
}

#[test]
fn a_holder_that_never_asked_is_found() {
    let mut story = Story::default();
    story.shown((0, 1), Some((7, "nobody")), &[]);
    assert_eq!(story.breaks(), ["I5"]);
}

#[test]
fn a_holder_that_was_told_no_is_found() {
    let mut story = Story::default();
    story.op((0, 1), "a", acquire(0), refused("store-unavailable"));
    story.shown((2, 3), Some((7, "a")), &[]);
    story.finds("I5");
}

#[test]
fn one_that_has_waited_is_no_phantom_where_the_store_has_forgotten_that_it_left() {
    for (wait, forgets) in [(15_000, true), (15_000, false), (0, true)] {
        let mut story = Story::default();
        story.op((0, 2), "a", acquire(wait), granted(7));
        story.released((3, 4), "a", 7);
        story.fault((5, 6), "fail-over", forgets);
        story.shown((7, 8), Some((8, "a")), &[]);
        let found = story.breaks().contains(&"I5".to_owned());
        assert_eq!(found, wait == 0 || !forgets, "{:?}", story.breaks());
    }
}

#[test]
fn a_holder_whose_answer_was_lost_is_no_phantom() {
    let mut story = Story::default();
    story.op((0, 1), "a", acquire(0), RecordedAnswer::Unknown);
    story.shown((2, 3), Some((7, "a")), &[]);
    assert_eq!(story.breaks(), [""; 0]);
}

#[test]
fn a_fence_that_is_seen_with_another_owner_is_found() {
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    story.op((0, 1), "b", acquire(0), RecordedAnswer::Unknown);
    story.shown((2, 3), Some((7, "b")), &[]);
    assert_eq!(story.breaks(), ["I5"]);
}

#[test]
fn two_fences_for_one_key_are_found() {
    let mut story = Story::default();
    story.op((0, 1), "a", keyed(), granted(7));
    story.released((2, 3), "a", 7);
    story.op((4, 5), "a", keyed(), granted(8));
    assert_eq!(story.breaks(), ["I10"]);
}

#[test]
fn a_key_that_is_used_may_be_refused_for_ever() {
    let mut story = Story::default();
    story.op((0, 1), "a", keyed(), granted(7));
    story.released((2, 3), "a", 7);
    story.op((4, 5), "a", keyed(), refused("idempotency-expired"));
    story.granted((6, 7), "b", 8);
    story.released((8, 9), "b", 8);
    assert_eq!(story.breaks(), [""; 0]);
}

#[test]
fn a_change_that_overwrites_another_is_found() {
    let mut story = Story::default();
    story.writes(0, Fenced, 7, 0, 0);
    story.writes(1, Fenced, 8, 1, 1);
    assert_eq!(story.breaks(), [""; 0]);
    story.writes(2, Fenced, 9, 1, 2);
    assert_eq!(story.breaks(), ["I4"]);
}

#[test]
fn a_resource_that_goes_back_is_found() {
    let mut story = Story::default();
    story.writes(0, Fenced, 7, 0, 0);
    // The same holder may write as often as it likes.
    story.writes(1, Fenced, 7, 1, 1);
    assert_eq!(story.breaks(), [""; 0]);
    story.writes(2, Fenced, 6, 2, 2);
    assert_eq!(story.breaks(), ["I4"]);
}

#[test]
fn what_the_unfenced_resource_loses_is_counted() {
    let mut story = Story::default();
    story.writes(0, Unfenced, 8, 0, 0);
    story.writes(1, Unfenced, 7, 0, 1);
    let told = story.told(&TERMS);
    assert_eq!(told.lost_updates, 1);
    assert!(told.violations.is_empty());
}
