//! I3, I6, I9, I12 and I15 to I19: promises about leases, about requests to release them, about checks, about rests,
//! about reservations, and about the history.

use super::story::{Story, TERMS, check_stories};

#[test]
fn no_two_hold_a_lock_together() {
    check_stories(
        "
# two leases at once are found
I3+:   0-1 a acquire -> 7; 2-3 b acquire -> 8
# a lease lasts ten seconds from when it was asked for, or from when it was heard of without its way
right: 0-300 a acquire -> 7; 9900-10000 b acquire -> 8
I3+:   0-300 a acquire -> 7; 9900-9999 b acquire -> 8
# an answer that tells of more than is left is found, unless its client was frozen and has read it late
I3+:   0-2000 a acquire -> 7; 11000-11001 b acquire -> 8
not I3: 0-2000 a acquire -> 7; 11000-11001 b acquire -> 8; 1-1999 client suffers freeze-client
# a renewed lease lasts longer
I3+:   0-1 a acquire -> 7; 5000-5001 a renew 7; 14998-14999 b acquire -> 8
# a stream counts from when its event arrived and until it is over
I3+:   0 a hold; 1 a hears 7; 5000 a keeps 10000; 14000-14001 b acquire -> 8
right: 0 a hold; 1 a hears 7; 5000 a keeps 10000; 14000-14001 b acquire -> 8; 13000 a hangs-up
",
    );
}

#[test]
fn what_a_store_may_forget_is_counted_and_not_held_against_it() {
    let story = "0-1 a acquire -> 7; 2-3 redis suffers flush forgets; 4-5 b acquire -> 8";
    check_stories(&format!("right: {story}"));
    let told = Story::parse(story).told(&TERMS);
    assert_eq!(told.overlaps, (1, 9_995 * 1_000_000));
}

#[test]
fn no_grant_is_lost() {
    check_stories(
        "
# a lease that is lost before its time is found
I6+:   0-1 a acquire -> 7; 9000-9001 a renew 7 -> lost
# a lease whose time is over may be lost
right: 0-500 a acquire -> 7; 10000-10001 a release 7 -> lost
# a lease that was broken may be lost
right: 0-1 a acquire -> 7; 2-3 operator break 7; 4-5 a renew 7 -> lost
# a lease may be forgotten before its holder hears of it
right: 0 a acquire; 2-3 redis suffers flush forgets; 4 a hears 7; 5-6 a release 7 -> lost
       7-8 b acquire -> 8
# a lease that nobody sees is found
I6+:   0-1 a acquire -> 7; 2-3 somebody sees nobody
",
    );
}

#[test]
fn only_the_holder_renews_and_releases() {
    check_stories(
        "
# a token of nobody that releases is found
I9:    0-1 thief forge -> released
right: 0-1 thief forge -> lost
# a lease that rises from the dead is found; it may be a second late
given: 0-1 a acquire -> 7
I9:    11002-11003 a renew 7
right: 10900-10901 a renew 7
# a release after another grant is found
I9+:   0-1 a acquire -> 7; 2-3 redis suffers flush forgets; 4-5 b acquire -> 8; 6-7 a release 7
# but the release whose answer was lost may be answered again
right: 0-1 a acquire -> 7; 2 a release 7; 4-5 b acquire -> 8; 6-7 a release 7
# what a store may forget of an end is not held against it
given: 0-1 a acquire -> 7; 2-3 ops break 7; 4-5 b acquire -> 8
not I9: 6-7 redis suffers fail-over forgets; 8-9 a renew 7 -> renewed left:0 asked
I9+:    6-7 redis suffers fail-over;         8-9 a renew 7 -> renewed left:0 asked
# every answer is one that may be given
Contract: 0-1 a acquire -> wrong 500 internal
",
    );
}

#[test]
fn answers_that_no_order_explains_are_found() {
    // The lock was free and is granted, and yet a client that looked afterwards saw the holder before.
    check_stories(
        "
# a release that the store may have forgotten is not held against it
given: 0-1 a acquire -> 7; 2-3 a release 7
not I12: 2-9 redis suffers fail-over forgets; 10-11 o sees 7:a; 12-13 o sees 7:a; 14-15 o sees 7:a
I12+:    2-9 redis suffers fail-over;         10-11 o sees 7:a; 12-13 o sees 7:a; 14-15 o sees 7:a
# an answer after all that it contradicts
I12+: 0-10 a acquire -> 7; 20-30 a release 7; 40-50 b acquire -> 8; 60-70 somebody sees 7:a
",
    );
}

#[test]
fn answers_in_whatever_order_that_there_is_are_right() {
    for story in [
        // At the same time: the release, a grant after it, and two clients that see either holder.
        "0-10 a acquire -> 7; 20 a release 7; 21 b acquire; 22-60 x sees 7:a; 23-61 y sees 8:b
         50 b hears 8; 70 a hears released",
        // A grant that is broken before its caller hears of it has a position in the order.
        "0 a acquire wait:60000; 10-20 x sees 7:a; 30-40 ops break 7; 45-50 b acquire -> 8
         60-70 b release 8; 80 a hears 9",
    ] {
        check_stories(&format!("right: {story}"));
        assert_eq!(Story::parse(story).told(&TERMS).windows, (1, 5));
    }
}

#[test]
fn who_is_asked_to_release_a_lease_hears_of_it_and_loses_it_in_time() {
    check_stories(
        "
# a renewal that does not tell of it is found, unless it was sent before the request was answered
given: 0-1 holder acquire -> 5; 10-11 holder break 5 grace:500
right: 20-21 holder renew 5 -> renewed left:100 asked
I15:   20-21 holder renew 5 -> renewed left:100
right: 10-11 holder renew 5 -> renewed left:100
# a renewal after the time is found: the store has a second more, and whoever looks another one
given: 0-1 holder acquire -> 5; 10-11 holder break 5 grace:500
right: 2511-2512 holder renew 5 -> renewed left:100 asked
I15:   2512-2513 holder renew 5 -> renewed left:100 asked
right: 2512-2513 holder renew 5 -> renewed left:100 asked; 100-101 redis suffers flush forgets
# a holder that is seen after the time is found
given: 0-1 holder acquire -> 5; 10-11 holder break 5 grace:500
right: 2511-2512 somebody sees 5:holder
I15:   2512-2513 somebody sees 5:holder
# the next is granted the lock soon after the time
given: 0-1 holder acquire -> 5; 10-11 holder break 5 grace:500
right: 20 next acquire wait:9000; 4511 next hears 6
I7:    20 next acquire wait:9000; 4512 next hears 6
# a lease is not lost before the time, nor by a request for another
given:  0-1 holder acquire -> 5; 10-11 holder break 5 grace:500
I6 I12: 400-401 holder release 5 -> lost
right:  511-512 holder release 5 -> lost
I6+:    20-21 holder release 5; 22-23 next acquire -> 6; 600-601 next release 6 -> lost
",
    );
}

#[test]
fn a_lock_that_rests_is_granted_to_nobody() {
    check_stories(
        "
# a grant before the rest is over is found, unless the store may have forgotten the rest
given: 0-1 a acquire rest:500 -> 5; 10-11 a release 5; 20 b acquire wait:9000
right: 501 b hears 6
I17:   499 b hears 6
right: 499 b hears 6; 100-101 redis suffers flush forgets
# a grant that was waited for came after the rest before it
given: 0-1 a acquire rest:500 -> 5; 10-11 a release 5; 20 b acquire rest:500 wait:9000; 510 b hears 6; 520-521 b release 6; 530 c acquire wait:9000
right: 1001 c hears 7
I17:   995 c hears 7
# the waiter is granted the lock when the rest is over
given: 0-1 a acquire rest:500 -> 5; 10-11 a release 5; 20 b acquire wait:9000
I7:    4000 b hears 6
# a slot rests as well, beside other slots, and an exclusive lease comes after all rests
given: 0-1 a share/2 rest:500 -> 5#0; 2-3 b share/2 rest:500 -> 6#1; 10-11 a release 5; 12-13 b release 6
right: 20 c share/2 wait:9000; 501 c hears 7#0
I17:   20 c share/2 wait:9000; 501 c hears 7#1
I17:   20 c share/2 wait:9000; 499 c hears 7#0
I17:   20 c acquire wait:9000; 501 c hears 7
right: 20 c acquire wait:9000; 503 c hears 7
# nobody is seen during the rest, and nothing rests if the lease is released later
right: 0-1 a acquire rest:500 -> 5; 10-11 a release 5; 20-21 somebody sees nobody
right: 0-1 a acquire rest:500 -> 5; 600-601 a release 5; 602-603 b acquire -> 6
",
    );
}

#[test]
fn a_reservation_lasts_until_its_time() {
    check_stories(
        "
# a grant before its time is found, unless somebody has ended the reservation or the store may have forgotten it
given:    0-1 a acquire until:5000 -> 5 left:4999; 20 b acquire wait:9000
right:    5001 b hears 6
I3 I18:   4900 b hears 6
right:    4949 b hears 6; 4940 a release 5
right:    4000 b hears 6; 100-101 redis suffers flush forgets
# no answer says more or less than is left, whatever the request has waited
given: 0 a acquire until:5000 wait:4000
right: 3000 a hears 5 left:2000
I18:   3000 a hears 5 left:2000; 4800-4801 c acquire -> 7
I18:   3000 a hears 5 left:5051
right: 3000 a hears 5 left:2000; 4000-4001 a renew 5 -> renewed left:1000
I18:   3000 a hears 5 left:2000; 4000-4001 a renew 5 -> renewed left:2000
I18:   3000 a hears 5 left:2000; 4000-4001 a renew 5 -> renewed left:100
right: 3000 a hears 5 left:2000; 3500-3501 ops break 5 grace:200; 4000-4001 a renew 5 -> renewed left:100 asked
I18:   0-1 b acquire until:5000 -> 5 left:4940
# the time of a reservation is not over before it is
right: 0-1000 a acquire until:1000 wait:4000 -> refused reservation-over
I18:   0-949 a acquire until:1000 wait:4000 -> refused reservation-over
# nobody is seen with a reservation later than a second after its time, and the waiters are granted the lock
given: 0-1 a acquire until:5000 -> 5 left:4999
right: 6040-6041 somebody sees 5:a
I8:    6051-6052 somebody sees 5:a
I7:    20 b acquire wait:12000; 8100 b hears 6
I9 I18: 6051-6052 a renew 5 -> renewed left:0
",
    );
}

#[test]
fn a_history_says_how_leases_have_ended() {
    check_stories(
        "
# a long lease that was released is in the history, soon after its end
given: 0-1 a acquire -> 7; 1001-1010 a release 7
right: 4020-4021 r history -> shows 7:a=released
I19:   4020-4021 r history -> shows
I19:   4020-4021 r history -> shows 7:a=unseen
right: 4000-4001 r history -> shows
right: 4020-4021 r history -> shows dropped:1
right: 4020-4021 r history -> shows; 3000-3001 redis suffers flush forgets
right: 4020-4021 r history -> shows 9:b=broken 8:b=broken; 2000 b acquire -> unknown; 2001 o break 9; 2002 o break 8
# a failover forgets only what was written shortly before it
given: 0-1 a acquire -> 7; 1001-1010 a release 7; 20000-20001 r history -> shows
right: 3000-3001 redis suffers fail-over forgets
I19:   4010-4011 redis suffers fail-over forgets
right: 4010-4011 redis suffers flush forgets
# a short lease need not be there, unless its lock may rest
right: 0-1 a acquire -> 7; 1000-1010 a release 7; 4020-4021 r history -> shows
I19:   0-1 a acquire rest:500 -> 7; 10-11 a release 7; 4020-4021 r history -> shows
# nothing that has ended is shown as held
given: 0-1 a acquire -> 7
right: 4-5 r history -> shows 7:a=held
right: 2-8 a release 7; 4-5 r history -> shows 7:a=held
I19:   2-3 a release 7; 4-5 r history -> shows 7:a=held
I19:   11002-11003 r history -> shows 7:a=held
I19:   4-5 afterwards history -> shows 7:a=held
# a released lease has neither expired, nor was it lost or broken
given: 0-1 a acquire -> 7; 2-8 a release 7
I19:   9-10 r history -> shows 7:a=expired
right: 7-8 r history -> shows 7:a=expired
I19:   9-10 r history -> shows 7:a=lost
right: 9-10 r history -> shows 7:a=lost; 3-4 redis suffers flush forgets
I19:   9-10 r history -> shows 7:a=broken
right: 9-10 r history -> shows 7:a=broken; 3 o break 7
# a lease that was broken is there, however short it was
given: 0-1 a acquire -> 7; 2-3 o break 7
right: 3010-3011 r history -> shows 7:a=broken
right: 3010-3011 r history -> shows 7:a=rest-ended
I19:   3010-3011 r history -> shows 7:a=released
# what a gateway that was killed had not written, only another gateway that had granted the lease may know
given: 0 a acquire at:1; 1 a hears 7; 1001-1002 a release 7 at:0
right: 1003-1004 gateway-0 suffers kill-gateway; 20000-20001 r history -> shows 7:a=released
I19:   1003-1004 gateway-0 suffers kill-gateway; 20000-20001 r history -> shows
I19:   1003-1004 gateway-0 suffers kill-gateway; 20000-20001 r history -> shows 7:a=expired
right: 1003-1004 gateway-0 suffers kill-gateway; 1500-1501 gateway-1 suffers kill-gateway; 20000-20001 r history -> shows
I19:   4003-4004 gateway-0 suffers kill-gateway; 20000-20001 r history -> shows
given: 0-1 a acquire -> 7; 1001-1002 a release 7
right: 1003-1004 gateway-0 suffers kill-gateway; 20000-20001 r history -> shows 7:a=expired
I19:   1003-1004 gateway-1 suffers kill-gateway; 20000-20001 r history -> shows 7:a=expired
# an entry is of who was granted the lease, and each lease has one, in order
given: 0-1 a acquire -> 7; 2-3 a release 7; 4-5 b acquire -> 8; 6-7 b release 8
right: 8-9 r history -> shows 8:b=released 7:a=released
I19:   8-9 r history -> shows 7:a=released 8:b=released
I19:   8-9 r history -> shows 8:b=released 8:b=released
I19:   8-9 r history -> shows 8:a=released
I19:   8-9 r history -> shows 6:nobody=released
",
    );
}

#[test]
fn a_check_passes_while_the_lease_lasts_and_no_longer() {
    check_stories(
        "
# a lease that lasts passes
given: 0-1 a acquire -> 7
right: 9998-9999 a check 7
I16:   9998-9999 a check 7 -> stale
right: 9998-10001 a check 7 -> stale
I16:   11002-11003 a check 7
right: 10900-10901 a check 7
right: 9-10 a check 7 -> unknown
# whatever may have ended the lease meanwhile explains a refusal
given: 0-1 a acquire -> 7
right: 2 a release 7; 3-4 a check 7 -> stale
right: 2-3 redis suffers flush forgets; 4-5 a check 7 -> stale
# after its end it does not pass
given: 0-1 a acquire -> 7; 2-3 a release 7
right: 4-5 a check 7 -> stale
I16:   4-5 a check 7
right: 2-5 a check 7
right: 3-4 redis suffers flush forgets; 5-6 a check 7
# after another grant it does not pass, if that one excludes it
given: 0 a share; 1 a hears 7; 20 ops break 7
I16:   30-31 b acquire -> 8; 40-41 a check 7
right: 30-31 b share -> 8; 40-41 a check 7
",
    );
}
