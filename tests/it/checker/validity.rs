//! A run that proves nothing does not pass, nor does a run whose positive control shows nothing: if clients are paused,
//! updates must get lost.

use super::story::{Story, TERMS};
use crate::history::Terms;

/// The reasons why a run of this story proves nothing.
fn invalid(story: &str, terms: &Terms) -> Vec<String> {
    Story::parse(story).told(terms).invalid
}

#[test]
fn too_little_traffic_shows_nothing() {
    let turn = |n| format!("@{}; 0-1 {n} acquire -> {n}; 2-3 {n} release {n}\n", 10 * n);
    let story: String = (1..=100).map(turn).collect();
    for (grants_per_second, reasons) in [(99.0, 0), (200.0, 1)] {
        let terms = Terms {
            grants_per_second,
            ..TERMS
        };
        assert_eq!(invalid(&story, &terms).len(), reasons);
    }
}

#[test]
fn a_fault_that_nobody_saw_shows_nothing_but_one_of_many_of_a_kind_may_miss() {
    // The first of these faults took no effect.
    let faults = |count: u64| {
        let faults = (1..count).map(|at| format!("; {at}-{at} redis suffers flush forgets"));
        let unseen = "0-1 a acquire -> 7; 0-0 redis suffers flush forgets unseen";
        Story::parse(&faults.fold(unseen.to_owned(), |story, fault| story + &fault)).told(&TERMS)
    };
    assert_eq!(faults(10).invalid, [""; 0]);
    assert_eq!(faults(9).invalid.len(), 1);
    let one = faults(1);
    assert_eq!(one.invalid, ["flush of redis was never seen to happen"]);
    assert!(one.violations.is_empty());
}

#[test]
fn paused_clients_that_lose_nothing_show_nothing() {
    let paused = "0-5 redis suffers freeze-client";
    assert_eq!(invalid(paused, &TERMS).len(), 1);
    let lost = format!("{paused}; 6 unfenced writes 8 0 0; 7 unfenced writes 7 0 1");
    assert_eq!(invalid(&lost, &TERMS), [""; 0]);
}

#[test]
fn a_run_in_which_nobody_shares_a_lock_shows_nothing_of_that() {
    let terms = Terms {
        shares: true,
        ..TERMS
    };
    let alone = "0-1 r1 share/2 -> 7#0";
    assert_eq!(invalid(alone, &terms), ["nobody shared a lock"]);
    let shared = format!("{alone}; 2-3 r2 share/2 -> 8#1; 4-5 somebody sees 7~r1#0 8~r2#1");
    let told = Story::parse(&shared).told(&terms);
    assert_eq!(told.invalid, [""; 0]);
    assert_eq!(told.shared, (2, 2, 2));
}

#[test]
fn a_run_without_a_group_or_without_a_check_or_without_one_who_was_asked_in_vain_shows_nothing() {
    let terms = Terms {
        cooperates: true,
        ..TERMS
    };
    let alone = "0-1 a acquire -> 7";
    let refused = format!("{alone}; 2-3 group acquire both -> refused locked and locked");
    let granted = format!("{refused}; 4-5 a release 7; 6-7 group acquire both -> 8 and 3");
    let asked = "0-1 a acquire -> 5; 10-11 a break 5 grace:500; 20-21 a renew 5 -> renewed asked";
    let lost = format!("{asked}; 600-601 a release 5 -> lost");
    let checked = format!("{lost}; 602-603 a check 5 -> stale");
    for (story, reasons) in [
        (alone, 3),
        (&refused, 3),
        (&granted, 2),
        (asked, 3),
        (&lost, 2),
        (&checked, 1),
    ] {
        assert_eq!(invalid(story, &terms).len(), reasons, "{story}");
    }
}
