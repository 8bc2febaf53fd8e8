//! Shared locks: for each promise a story that keeps it, and a story that breaks it.

use super::{
    story::{Story, TERMS, check_stories},
    waiting::turns,
};

#[test]
fn no_more_hold_a_lock_together_than_may() {
    check_stories(
        "
# those who share a lock may hold it together
right: 0-1 r1 share -> 7; 2-3 r2 share/3 -> 8#0; 4-5 r3 share/3 -> 9#1
       6-7 somebody sees 7~r1 8~r2#0 9~r3#1
# one who is alone beside another is found
I3+:   0-1 r1 share -> 7; 2-3 w acquire -> 8
I3+:   0-1 w acquire -> 7; 2-3 r1 share -> 8
# it is not the last of them that counts, but the one that is relied on for longest
given: 0-1 r1 share -> 7; 2-3 r2 share -> 8; 4-5 r2 release 8
I3+:   6-7 w acquire -> 9
right: 6-7 r1 release 7; 8-9 w acquire -> 9; 10-11 w release 9; 12-13 r3 share -> 10
# one too many for a limit is found
given: 0-1 r0 share -> 1; 1-2 r1 share -> 2
right: 20-21 limited share/3 -> 30#0
I3+:   2-3 r2 share -> 3; 20-21 limited share/3 -> 30#0
# a limit binds at its own grant only
right: 0-1 r1 share/1 -> 7#0; 2-3 r2 share/2 -> 8#1; 4-5 r3 share -> 9
# of those who were granted a lock at once nobody knows who was there before but by the fence:
# the one with the limit of one came second, and another was there
right: 0-5 one share/1 -> 7#0; 1-9 other share/2 -> 8#1
I3+:   0-5 one share/1 -> 8#0; 1-9 other share/2 -> 7#1
# a place that becomes free may be had by one
given: 0-1 r1 share/2 -> 7#0; 2-3 r2 share/2 -> 8#1
right: 4-5 r1 release 7; 6-7 r3 share/2 -> 9#0
I3+:   6-7 r3 share/2 -> 9#0
# an expiry that frees two places is found
given: 0-1 expires share/2 -> 1#0; 2-3 stays share/2 -> 2#1; 9000-9001 stays renew 2 -> renewed#1
right: 10010-10011 r0 share/2 -> 3#0
I3+:   10010-10011 r0 share/2 -> 3#0; 10012-10013 r1 share/2 -> 4#1
# each lock of a group is held in its own mode
given: 0-1 r1 share of:other -> 5
right: 2-3 group acquire both:share -> 7 and 8; 4-5 r2 share of:other -> 9
I3+:   2-3 group acquire both -> 7 and 8
I3+:   2-3 group acquire both:share -> 7 and 8; 4-5 r2 share -> 9
I3+:   2-3 group acquire both:share -> 7 and 8; 4-5 w acquire of:other -> 9
# and with its own limit
given: 0-1 r1 share of:other -> 5
right: 2-3 group acquire both:share/2 -> 7 and 8#0
I3+:   2-3 group acquire both:share/1 -> 7 and 8#0
# holders that are seen together and may not be are found although none was told
right: 1 one share/2 wait:60000; 2 two share/2 wait:60000; 10-11 somebody sees 7~one 8~two
right: 1 one share wait:60000; 2 two share wait:60000; 10-11 somebody sees 7~one 8~two
I3:    1 one share/1 wait:60000; 2 two share/1 wait:60000; 10-11 somebody sees 7~one 8~two
I3:    1 one share wait:60000; 2 two acquire wait:60000; 10-11 somebody sees 7~one 8:two
",
    );
}

#[test]
fn what_a_store_may_forget_of_those_who_share_is_counted() {
    let story = "0-1 r1 share/1 -> 7#0; 2-3 redis suffers flush forgets; 4-5 r2 share/1 -> 8#0";
    check_stories(&format!("right: {story}"));
    // The limit is exceeded, and the slot is taken twice.
    assert_eq!(Story::parse(story).told(&TERMS).overlaps.0, 2);
}

#[test]
fn slots_are_distinct_and_below_the_limit() {
    check_stories(
        "
# a slot that two have at once is found
given: 0-1 one share/3 -> 7#0
right: 2-3 two share/3 -> 8#1
I13:   2-3 two share/3 -> 8#0
# the same if it is only seen
I13:   1 one share/3 wait:60000; 2 two share/3 wait:60000; 3-4 somebody sees 7~one#1 8~two#1
# a slot that is not below its limit or of nobody is found
right: 0-1 a share/3 -> 7#2
right: 0-1 a share -> 7
I13:   0-1 a share/3 -> 7#3
I13:   0-1 a share/3 -> 7
I13:   0-1 a share -> 7#0
# a lease that changes its slot is found
given: 0-1 a share/3 -> 7#1
right: 2-3 a renew 7 -> renewed#1
I13:   2-3 a renew 7 -> renewed#0
I13:   2-3 a renew 7
right: 2-3 somebody sees 7~a#1
I5:    2-3 somebody sees 7~a#2
",
    );
}

#[test]
fn fences_and_resources_are_those_of_both_modes() {
    check_stories(
        "
# fences rise over both modes
I2+:   0-1 r1 share -> 7; 2-3 r2 share -> 6
I2+:   0-1 r1 share -> 7; 2-3 r1 release 7; 4-5 w acquire -> 6
I1+:   0-2 r1 share -> 7; 1-3 r2 share -> 7
# one that was only seen counts as one that was granted, be it the last of several
I2+:   1-5 one share -> unknown; 2-5 two share -> unknown; 3-4 somebody sees 7~one 9~two
       10-11 late share -> 8
# each slot has a resource of its own, and so a fellow holder may have a smaller fencing token
given: 0 fenced writes 8 0 0 slot:0
right: 1 fenced writes 7 0 0 slot:1; 2 fenced writes 5 0 0; 3 fenced writes 9 1 1 slot:0
I4:    1 fenced writes 7 1 1 slot:0
# one key has one lease that shares the lock
given: 0-1 a share/3 keyed -> 7#0
right: 2-3 a share/3 keyed -> again 7#0
I10:   2-3 a share/3 keyed -> 8#1 left:9000
",
    );
}

#[test]
fn every_lease_is_seen_in_its_mode_and_until_its_end() {
    check_stories(
        "
# one who is seen in another mode than it asked for is found
right: 0 a share wait:60000;   1-2 somebody sees 7~a
I5:    0 a acquire wait:60000; 1-2 somebody sees 7~a
# every lease that lives is seen
given: 0-1 r1 share -> 7; 2-3 r2 share -> 8
right: 4-5 somebody sees 7~r1 8~r2
I6+:   4-5 somebody sees 7~r1
I6+:   4-5 somebody sees 8~r2
I6+:   4-5 somebody sees nobody
# a release of one who shares it leaves the others theirs
given: 0-1 r1 share -> 7; 2-3 r2 share -> 8
right: 4-5 r2 release 8; 6-7 r1 release 7
I6+:   4-5 r2 release 8; 6-7 r1 release 7 -> lost
I8+:   4-5 r1 release 7; 6-7 somebody sees 7~r1 8~r2
# a lease that shares it lives beside later ones, and not beyond one that is alone
given: 0-1 r1 share -> 7; 2-3 redis suffers flush forgets
right: 4-5 r2 share -> 8;  6-7 r1 release 7
I9+:   4-5 w acquire -> 8; 6-7 r1 release 7
# an orphan that shares the lock is found
given: 0 gone share; 10 gone hangs-up
right: 10999-11000 lives share -> 8; 11009-11010 somebody sees 7~gone 8~lives
I8:    11001-11002 lives share -> 8; 11011-11012 somebody sees 7~gone 8~lives
",
    );
}

#[test]
fn nobody_passes_another_and_a_place_that_is_free_is_given_to_who_may_have_it() {
    check_stories(
        "
# a reader that passes a writer is found
given: 0-1 holds share -> 5; 2 writer acquire wait:60000; 10-11 x sees 5~holds | writer
right: 12 reader share wait:60000; 20-21 holds release 5
       22 writer hears 7; 23-24 writer release 7; 25 reader hears 8
I11:   12 reader share wait:60000; 14 reader hears 6; 15-16 reader release 6; 20-21 holds release 5
       22 writer hears 7; 23-24 writer release 7
# a place that is given to nobody while somebody waits is found, be it after a release
given: 0-1 r1 share -> 5; 2-3 r2 share -> 6; 6 waits share/2 wait:60000; 10-20 r1 release 5
right: 2920 waits hears 7#0
I7:    3120 waits hears 7#0
# or behind one who has left
given: 0-1 r1 share -> 5; 2-3 r2 share -> 6; 4 writer acquire wait:15; 6 waits share wait:60000
right: 20 writer hears locked 5~r1 6~r2; 2920 waits hears 7
I7:    20 writer hears locked 5~r1 6~r2; 3120 waits hears 7
# one who waits behind a head that may not share it waits as long as that: behind a writer, and behind
# one with a limit that is reached
given: 0-1 r1 share -> 5; 4 waits share wait:60000
right: 2 head acquire wait:60000; 9000-9001 r1 release 5; 9010 head hears 6
       9011-9012 head release 6; 9020 waits hears 7
right: 2 head share/1 wait:60000; 9000-9001 r1 release 5; 9010 head hears 6#0
       9011-9012 head release 6; 9020 waits hears 7
",
    );
}

#[test]
fn one_of_a_hundred_places_may_be_given_late_and_not_two() {
    for (expected, slow) in [("right", 1), ("I7", 2)] {
        let story = turns(101, |n| {
            let [a, b, c] = [1, 2, 3].map(|it| 3 * n + it);
            let given = if n < slow { 71 } else { 70 };
            format!(
                "0-1 {a} share/2 -> {a}#0; 2-3 {b} share/2 -> {b}#1; 4 {c} share/2 wait:9000
                 10-20 {a} release {a}; {given} {c} hears {c}#0
                 200-210 {b} release {b}; 220-230 {c} release {c}"
            )
        });
        check_stories(&format!("{expected}: {story}"));
    }
}

/// With fewer than fifty positions, the checker does not decide.
#[test]
fn one_of_fifty_places_behind_one_who_has_left_may_be_given_late_and_not_two() {
    for (expected, slow, of) in [("right", 1, 50), ("I7", 2, 50), ("right", 2, 49)] {
        let story = turns(of, |n| {
            let [a, b, c] = [1, 2, 3].map(|it| 3 * n + it);
            let given = if n < slow { 71 } else { 70 };
            format!(
                "0-1 {a} share -> {a}; 2 {b} acquire wait:10; 4 {c} share wait:9000
                 20 {b} hears locked {a}~{a}; {given} {c} hears {c}
                 200-210 {a} release {a}; 220-230 {c} release {c}"
            )
        });
        check_stories(&format!("{expected}: {story}"));
    }
}

#[test]
fn those_who_share_a_lock_have_one_order_too() {
    for seen in ["7~r1", "nobody", "8~r2#0", "7~r1 8~r2#0"] {
        // At the same time: a second holder comes, the first goes, and a client looks.
        let story = format!(
            "0-10 r1 share -> 7; 20 r2 share/2; 21 r1 release 7; 22-60 somebody sees {seen}
             61 r2 hears 8#0; 62 r1 hears released; 70-71 somebody sees 8~r2#0"
        );
        check_stories(&format!("right: {story}"));
        assert_eq!(Story::parse(&story).told(&TERMS).windows, (1, 5), "{seen}");
    }
    check_stories(
        "
# there is no order in which somebody else holds it, too
I12+:  0-10 r1 share -> 7; 20-30 r1 release 7; 40-50 r2 share -> 8; 60-70 x sees 7~r1 8~r2
# nor one of a grant beside one too many, or of somebody who is alone
given: 0-10 r1 share -> 7; 20-30 r2 share -> 8
right: 40-50 r3 share/3 -> 9#0
I12+:  40-50 r3 share/2 -> 9#0
I12+:  40-50 w acquire -> 9
",
    );
}
