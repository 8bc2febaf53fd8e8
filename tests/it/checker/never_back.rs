//! I20: promises about the orders of leases.

use super::story::check_stories;

#[test]
fn a_lock_never_goes_back() {
    check_stories(
        "
# a grant with a lower order than before is found; an equal one, and one without an order, pass
given: 0-1 a acquire order:10 -> 7; 2-3 a release 7; 4-5 b acquire -> 8; 6-7 b release 8
right: 8-9 c acquire order:10 -> 9
right: 8-9 c acquire -> 9
I20:   8-9 c acquire order:9 -> 9
right: 8-9 c acquire order:9 -> outdated 10
# the fencing tokens count, and not when their clients hear of the leases
right: 0-9 a acquire order:10 -> 7; 1-3 b acquire order:9 -> 6; 4-5 b release 6
I20+:  0-9 a acquire order:10 -> 6; 1-3 b acquire order:9 -> 7; 1-2 a release 6
# what the store may have forgotten is not compared, and what it was told since then is
given: 0-1 a acquire order:10 -> 7; 2-3 a release 7; 4-5 redis suffers flush forgets
right: 6-7 b acquire order:5 -> 8; 8-9 b release 8; 10-11 c acquire order:6 -> 9
I20:   6-7 b acquire order:5 -> 8; 8-9 b release 8; 10-11 c acquire order:4 -> 9
# an order of which no client was told need not count
given: 0 a acquire order:10; 3 a hangs-up
right: 4-5 b acquire order:9 -> 8
# an order that is set counts like that of a grant, if it was set
given: 0-1 a acquire order:10 -> 7
I20:   2-3 a raise 7 from:10 to:12; 4-5 a release 7; 6-7 b acquire order:11 -> 8
right: 2-3 a raise 7 from:10 to:12 -> unknown; 4-5 a release 7; 6-7 b acquire order:11 -> 8
right: 2-3 a raise 7 from:10 to:12 -> refused order-changed; 4-5 a release 7; 6-7 b acquire order:11 -> 8
",
    );
}

#[test]
fn a_request_is_outdated_only_by_an_order_that_counts() {
    check_stories(
        "
# the order of the refusal is higher, and somebody asked for the lock with it before
given: 0-1 a acquire order:10 -> 7
right: 2-3 b acquire order:9 -> outdated 10
I20:   2-3 b acquire order:10 -> outdated 10
I20:   2-3 b acquire -> outdated 10
I20:   2-3 b acquire order:9 -> outdated 11
I20:   2-3 b acquire order:9 -> outdated 11; 4 c acquire order:11
right: 2 c acquire order:11; 3-5 b acquire order:9 -> outdated 11; 4-5 a release 7
right: 2 a raise 7 from:10 to:12; 3-4 b acquire order:9 -> outdated 12
I20:   2-3 a raise 7 from:10 to:12 -> refused order-changed; 3-4 b acquire order:9 -> outdated 12
# an order of which no client was told does not count when another holds the lock
given: 0 a acquire order:10; 3 a hangs-up; 4-5 b acquire -> 8
I20:   6-7 c acquire order:9 -> outdated 10
I20:   5-6 c acquire order:9 wait:9000 -> outdated 10
right: 6-7 c acquire order:9 -> outdated 10; 4-5 redis suffers fail-over forgets
right: 6-7 c acquire order:9 -> outdated 10; 1-2 operator sees 7:a; 2-3 a break 7
# it may not have been taken back when nobody else is known to hold the lock
given: 0 a acquire order:10; 3 a hangs-up; 4-5 b acquire -> 8
right: 4-7 c acquire order:9 -> outdated 10; 8-9 b release 8
right: 6-9 c acquire order:9 -> outdated 10; 8-9 b release 8
# it counts for good if its lease has lasted its TTL
given: 0 a acquire order:10; 3 a hangs-up; 4-5 b acquire -> 8
right: 9000-9001 b renew 8; 10001-10002 c acquire order:9 -> outdated 10
I20:   9000-9001 b renew 8; 9998-9999 c acquire order:9 -> outdated 10
# a request that was refused, or whose gateway was killed, leaves no order without its lease
given: 0-1 b acquire -> 8
I20:   2-5 a acquire order:10 wait:3 -> refused locked; 6-7 c acquire order:9 -> outdated 10
I20:   2 a acquire order:10; 3-4 gateway suffers kill-gateway; 4 a hears unknown; 6-7 c acquire order:9 -> outdated 10
",
    );
}

#[test]
fn a_repetition_under_a_key_is_not_compared() {
    check_stories(
        "
# it gets its lease, although the lock has a higher order now, unless the lease may have ended
given: 0-1 a acquire order:10 keyed -> 7; 2-3 a raise 7 from:10 to:12
right: 4-5 a acquire order:10 keyed -> again 7
I20:   4-5 a acquire order:10 keyed -> outdated 12
right: 4-6 a acquire order:10 keyed -> outdated 12; 5-6 a release 7
right: 4-5 a acquire order:10 keyed -> outdated 12; 3-4 redis suffers flush forgets
       6-7 a release 7 -> lost
",
    );
}
