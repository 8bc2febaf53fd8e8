//! I7, I8, I11 and I14: promises about time, about the order of waiters, and about groups.

use std::fmt::Write;

use super::story::{Story, TERMS, check_stories};
use crate::history::Terms;

#[test]
fn hand_offs_are_bounded() {
    check_stories(
        "
# a lock that lies free while somebody waits is found
given: 0-1 a acquire -> 7; 2 b acquire wait:60000; 10-20 a release 7
right: 2920 b hears 8
I7:    3021 b hears 8
# after a fault there are ten seconds
given: 0-1 a acquire -> 7; 2 b acquire wait:60000; 10-20 a release 7
right: 11020 b hears 8; 15-1100 gateway suffers kill-gateway
I7:    11220 b hears 8; 15-1100 gateway suffers kill-gateway
# a holder that has died costs its TTL
given: 0-1 a acquire -> 7; 2 b acquire wait:60000
right: 12000 b hears 8
I7:    13100 b hears 8
# a gateway that does not come back is found
given: 0-100 gateway suffers kill-gateway; 200-201 a acquire -> refused store-unavailable
right: 9000-9001 b acquire -> 8
I7:    10200-10201 b acquire -> 8
",
    );
}

/// A story of many turns, each twenty seconds after the one before.
pub(super) fn turns(count: u64, turn: impl Fn(u64) -> String) -> String {
    let mut story = String::new();
    for n in 0..count {
        writeln!(story, "@{}; {}", n * 20_000, turn(n)).unwrap();
    }
    story
}

#[test]
fn one_slow_hand_off_of_a_hundred_is_none_too_many_but_two_are() {
    for (expected, slow) in [("right", 1), ("I7", 2)] {
        let story = turns(101, |n| {
            let (a, b, given) = (2 * n + 1, 2 * n + 2, if n < slow { 71 } else { 70 });
            format!(
                "0-1 {a} acquire -> {a}; 2 {b} acquire wait:9000; 10-20 {a} release {a}
                 {given} {b} hears {b}; 200-210 {b} release {b}"
            )
        });
        check_stories(&format!("{expected}: {story}"));
    }
}

#[test]
fn no_orphan_stays() {
    check_stories(
        "
# a lease of one that hangs up is over with its TTL
given: 0 a acquire; 10 a hangs-up
right: 11009-11010 somebody sees 7:a
I8:    11011-11012 somebody sees 7:a
# the same where a gateway is killed
given: 0 a acquire; 10 a hangs-up; 5-500 gateway suffers kill-gateway
right: 11499-11500 somebody sees 7:a
I8:    11501-11502 somebody sees 7:a
# whoever waited at a gateway that was killed is granted nothing when that counts as dead
given: 0 a acquire wait:9000; 10 a hears unknown; 5-500 gateway suffers kill-gateway
right: 17004-17005 somebody sees 7:a
I8:    17006-17007 somebody sees 7:a
# a lease that is seen after its end is found
I8+:   0-1 a acquire -> 7; 2-3 a release 7; 4-5 somebody sees 7:a
right: 0-1 a acquire -> 7; 2-3 a release 7 -> unknown; 4-5 somebody sees 7:a
",
    );
}

#[test]
fn more_than_a_few_that_are_kept_for_nobody_are_found() {
    for (expected, kept) in [("right", 3), ("I8", 4)] {
        let story = turns(100, |n| {
            let gone = format!("0 {n} acquire wait:9000; 10 {n} hangs-up");
            if n >= kept {
                return gone;
            }
            format!("{gone}; 1100-1101 somebody sees {}:{n}", n + 1)
        });
        check_stories(&format!("{expected}: {story}"));
    }
}

#[test]
fn waiters_are_served_in_order() {
    check_stories(
        "
# one who passes another in the queue is found, unless a fault may have cost the other its place
given: 0-1 holder acquire -> 5; 2 first acquire wait:60000; 10-11 x sees 5:holder | first
right: 12 second acquire wait:60000; 20-21 holder release 5
       22 first hears 6; 23-24 first release 6; 25 second hears 7
I11:   12 second acquire wait:60000; 20-21 holder release 5
       22 second hears 6; 23-24 second release 6; 25 first hears 7
I11:   12 second acquire wait:60000 at:1; 20-21 holder release 5
       22 second hears 6; 23-24 second release 6; 25 first hears 7
right: 12 second acquire wait:60000; 20-21 holder release 5
       22 second hears 6; 23-24 second release 6; 25 first hears 7; 15-16 redis suffers kill-redis
# a place may be lost with a lease that is broken before anybody was told
given: 0-1 holder acquire -> 5; 2 first acquire wait:60000; 10-11 x sees 5:holder | first
right: 12 second acquire wait:60000; 20-21 holder release 5; 22-23 first break 6
       24 second hears 7; 25-26 second release 7; 27 first hears 8
right: 12 second acquire wait:60000; 20-21 holder release 5; 22-23 first break 6 -> unknown
       24 second hears 7; 25-26 second release 7; 27 first hears 8
I11:   12 second acquire wait:60000; 20-21 holder release 5; 22-23 first break 6 -> refused conflict
       24 second hears 7; 25-26 second release 7; 27 first hears 8
# nobody knows who was first of two that were not seen in the queue
right: 0-1 holder acquire -> 5; 2 first acquire wait:60000; 12 second acquire wait:60000
       20-21 holder release 5; 22 second hears 6; 23-24 second release 6; 25 first hears 7
# one who has left is passed by everybody
right: 0-1 holder acquire -> 5; 2 first acquire wait:15; 10-11 somebody sees 5:holder | first
       18 first hears locked; 20-21 holder release 5; 22-23 second acquire -> 6
",
    );
}

/// If only waiters at one gateway are in order, waiters at other gateways may pass, and so may attempts that asked at
/// several gateways.
#[test]
fn where_only_those_at_one_gateway_are_in_order_others_may_pass() {
    let terms = Terms {
        order_within_gateways: true,
        ..TERMS
    };
    for (gateway, elsewhere, found) in [
        (0, "", 1),
        (1, "", 0),
        (0, "3-4 first acquire wait:60000 at:1 -> unknown", 0),
        (0, "3-4 second acquire wait:60000 at:1 -> unknown", 0),
    ] {
        let story = format!(
            "0-1 holder acquire -> 5; 2 first acquire wait:60000; 10-11 x sees 5:holder | first
             12 second acquire wait:60000 at:{gateway}; 20-21 holder release 5; 22 second hears 6
             23-24 second release 6; 25 first hears 7; {elsewhere}"
        );
        let violations = Story::parse(&story).told(&terms).violations;
        assert_eq!(violations.len(), found, "{gateway} {elsewhere}");
    }
}

#[test]
fn groups_are_all_or_nothing_and_are_served() {
    check_stories(
        "
# a part of a group without the rest is found
right: 0-1 group acquire both -> 7 and 3
I14:   0-1 group acquire both -> 7 and locked
# a group that waits for too long is found
right: 0-10000 group acquire both wait:15000 -> 7 and 3
I14:   0-10001 group acquire both wait:15000 -> 7 and 3
right: 0-14000 group acquire both wait:15000 -> 7 and 3; 1000-5000 redis suffers freeze-redis
# what a group had that was told no is gone soon
given: 0-10 group acquire both -> refused locked and locked
right: 1009-1010 somebody sees 7:group
I5:    1011-1012 somebody sees 7:group
right: 1011-1012 somebody sees 7:group; 5-6 redis suffers freeze-redis
# a lock that a group may hold while it waits for another does not lie free
right: 0 group acquire both wait:9000; 1 single acquire wait:9000; 6000 group hears refused locked
       6500 single hears 8
# a group may lose its place with another lock
given: 0-1 holder acquire -> 5; 2 group acquire both wait:60000; 10-11 x sees 5:holder | group
I11:   12 second acquire wait:60000; 20-21 holder release 5
       22 second hears 6; 23-24 second release 6; 25 group hears 7 and 4
right: 12 second acquire wait:60000; 15-16 group break 3 of:other; 20-21 holder release 5
       22 second hears 6; 23-24 second release 6; 25 group hears 7 and 4
",
    );
}
