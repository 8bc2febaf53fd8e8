//! I1, I2, I4, I5 and I10: promises about fences, and about the resource that they guard.

use super::story::{Story, TERMS, check_stories};

#[test]
fn fences_are_unique_and_rise() {
    check_stories(
        "
# two grants with one fence are found
I1+:   0-1 a acquire -> 7; 2-3 a release 7; 2-9 b acquire -> 7
# a grant that is told again under its key is no second one
right: 0-1 a acquire keyed -> 7; 2-3 a acquire keyed -> again 7
# a fence that goes back is found
I2:    0-1 a acquire -> 7; 2-3 a release 7; 4-5 b acquire -> 6
# a fence that is not above one that was seen is found
I2:    0 a acquire; 1-2 somebody sees 7:a; 3 a hears unknown; 3-4 redis suffers kill-redis forgets
       20-21 b acquire -> 6
# of two that ask at once either may have the larger fence: the one was granted the lock and released
# it while the other was under way, and hears of it last
not I2: 0-9 a acquire -> 6; 1-3 b acquire -> 7; 1-2 a release 6
",
    );
}

#[test]
fn there_is_no_fence_that_nobody_asked_for() {
    check_stories(
        "
# a holder that never asked is found
I5:    0-1 somebody sees 7:nobody-knows
# a holder that was told no is found
I5+:   0-1 a acquire -> refused store-unavailable; 2-3 somebody sees 7:a
# one that has waited is no phantom where the store has forgotten that it left
not I5: 0-2 a acquire wait:15000 -> 7; 3-4 a release 7; 5-6 redis suffers fail-over forgets
        7-8 somebody sees 8:a
I5+:    0-2 a acquire wait:15000 -> 7; 3-4 a release 7; 5-6 redis suffers fail-over
        7-8 somebody sees 8:a
I5+:    0-2 a acquire -> 7; 3-4 a release 7; 5-6 redis suffers fail-over forgets
        7-8 somebody sees 8:a
# a holder whose answer was lost is no phantom
right: 0-1 a acquire -> unknown; 2-3 somebody sees 7:a
# a fence that is seen with another owner is found
I5:    0-1 a acquire -> 7; 0-1 b acquire -> unknown; 2-3 somebody sees 7:b
",
    );
}

#[test]
fn there_is_one_fence_for_a_key() {
    check_stories(
        "
given: 0-1 a acquire keyed -> 7; 2-3 a release 7
I10:   4-5 a acquire keyed -> 8
# a key that is used may be refused for ever
given: 0-1 a acquire keyed -> 7; 2-3 a release 7
right: 4-5 a acquire keyed -> refused idempotency-expired; 6-7 b acquire -> 8; 8-9 b release 8
",
    );
}

#[test]
fn the_resource_never_goes_back_and_loses_nothing() {
    check_stories(
        "
# a change that overwrites another is found
given: 0 fenced writes 7 0 0; 1 fenced writes 8 1 1
right:
I4:    2 fenced writes 9 1 2
# a resource that goes back is found; the same holder may write as often as it likes
given: 0 fenced writes 7 0 0; 1 fenced writes 7 1 1
right:
I4:    2 fenced writes 6 2 2
",
    );
}

#[test]
fn what_the_unfenced_resource_loses_is_counted() {
    let story = Story::parse("0 unfenced writes 8 0 0; 1 unfenced writes 7 0 1");
    let told = story.told(&TERMS);
    assert_eq!(told.lost_updates, 1);
    assert!(told.violations.is_empty());
}
