//! I1, I2, I5 and I10: what is said of fences.

use super::story::{Story, acquire, granted, keyed};
use crate::history::{Ask, RecordedAnswer};

#[test]
fn two_grants_with_one_fence_are_found() {
    let mut story = Story::default();
    story.granted((0, 1), "a", 7);
    story.released((2, 3), "a", 7);
    story.granted((2, 9), "b", 7);
    assert!(
        story.breaks().contains(&"I1".to_owned()),
        "{:?}",
        story.breaks()
    );
}

#[test]
fn a_grant_that_is_told_again_under_its_key_is_no_second_one() {
    let mut story = Story::default();
    story.op((0, 1), "a", keyed(), granted(7));
    story.op(
        (2, 3),
        "a",
        keyed(),
        RecordedAnswer::Granted {
            fence: 7,
            left_ms: 9_000,
            again: true,
            slot: None,
        },
    );
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
    assert!(
        !story.breaks().contains(&"I2".to_owned()),
        "{:?}",
        story.breaks()
    );
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
    story.op(
        (0, 1),
        "a",
        acquire(0),
        RecordedAnswer::Refused {
            code: "store-unavailable".into(),
        },
    );
    story.shown((2, 3), Some((7, "a")), &[]);
    assert!(
        story.breaks().contains(&"I5".to_owned()),
        "{:?}",
        story.breaks()
    );
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
    let refused = RecordedAnswer::Refused {
        code: "idempotency-expired".into(),
    };
    story.op((4, 5), "a", keyed(), refused);
    story.granted((6, 7), "b", 8);
    story.op(
        (8, 9),
        "b",
        Ask::Release { fence: 8 },
        RecordedAnswer::Released,
    );
    assert_eq!(story.breaks(), [""; 0]);
}
