//! Locks that are shared: of each promise a story that it takes, and one that it does not.

use super::story::{
    Story, TERMS, acquire, granted, granted_slot, renew, renewed_slot, seen, share,
};
use crate::history::{Ask, Mode, RecordedAnswer, Resource, Terms};

fn breaks(story: impl FnOnce(&mut Story)) -> Vec<String> {
    let mut told = Story::default();
    story(&mut told);
    told.breaks()
}

fn finds(invariant: &str, story: impl FnOnce(&mut Story)) {
    let mut told = Story::default();
    story(&mut told);
    told.finds(invariant);
}

#[test]
fn those_who_share_a_lock_may_hold_it_together() {
    let found = breaks(|story| {
        story.shared((0, 1), "r1", 7, None);
        story.shared((2, 3), "r2", 8, Some((3, 0)));
        story.shared((4, 5), "r3", 9, Some((3, 1)));
        story.shown_shared(
            (6, 7),
            &[(7, "r1", None), (8, "r2", Some(0)), (9, "r3", Some(1))],
            &[],
        );
    });
    assert_eq!(found, [""; 0]);
}

#[test]
fn one_who_is_alone_beside_another_is_found() {
    finds("I3", |story| {
        story.shared((0, 1), "r1", 7, None);
        story.granted((2, 3), "w", 8);
    });
    finds("I3", |story| {
        story.granted((0, 1), "w", 7);
        story.shared((2, 3), "r1", 8, None);
    });
    // It is not the last of them that counts, but the one that is relied on for longest.
    finds("I3", |story| {
        story.shared((0, 1), "r1", 7, None);
        story.shared((2, 3), "r2", 8, None);
        story.released((4, 5), "r2", 8);
        story.granted((6, 7), "w", 9);
    });
    let found = breaks(|story| {
        story.shared((0, 1), "r1", 7, None);
        story.shared((2, 3), "r2", 8, None);
        story.released((4, 5), "r2", 8);
        story.released((6, 7), "r1", 7);
        story.granted((8, 9), "w", 9);
        story.released((10, 11), "w", 9);
        story.shared((12, 13), "r3", 10, None);
    });
    assert_eq!(found, [""; 0]);
}

#[test]
fn one_too_many_for_a_limit_is_found() {
    let beside = |count: u64| {
        breaks(|story| {
            for n in 0..count {
                story.shared((n, n + 1), &n.to_string(), n + 1, None);
            }
            story.shared((20, 21), "limited", 30, Some((3, 0)));
        })
    };
    assert!(beside(3).contains(&"I3".to_owned()));
    assert_eq!(beside(2), [""; 0]);
}

#[test]
fn a_limit_binds_at_its_own_grant_only() {
    let found = breaks(|story| {
        story.shared((0, 1), "r1", 7, Some((1, 0)));
        story.shared((2, 3), "r2", 8, Some((2, 1)));
        story.shared((4, 5), "r3", 9, None);
    });
    assert_eq!(found, [""; 0]);
}

#[test]
fn of_those_who_were_granted_a_lock_at_once_nobody_knows_who_was_there_before_but_by_the_fence() {
    let granted = |first: u64, second: u64| {
        breaks(|story| {
            let one = story.asks(0, "one", share(Some(1), 0));
            story.hears(5, one, granted_slot(first, Some(0)));
            let other = story.asks(1, "other", share(Some(2), 0));
            story.hears(9, other, granted_slot(second, Some(1)));
        })
    };
    assert_eq!(granted(7, 8), [""; 0]);
    // The one with the limit of one came second, and another was there.
    assert!(granted(8, 7).contains(&"I3".to_owned()));
}

#[test]
fn a_place_that_becomes_free_may_be_had_by_one() {
    let after = |released: bool| {
        breaks(|story| {
            story.shared((0, 1), "r1", 7, Some((2, 0)));
            story.shared((2, 3), "r2", 8, Some((2, 1)));
            if released {
                story.released((4, 5), "r1", 7);
            }
            story.shared((6, 7), "r3", 9, Some((2, 0)));
        })
    };
    assert_eq!(after(true), [""; 0]);
    assert!(after(false).contains(&"I3".to_owned()));
}

#[test]
fn an_expiry_that_frees_two_places_is_found() {
    let granted = |many: u64| {
        breaks(|story| {
            // Ten seconds, and renewed once.
            story.shared((0, 1), "expires", 1, Some((2, 0)));
            story.shared((2, 3), "stays", 2, Some((2, 1)));
            let renewed = renewed_slot(2, Some(1));
            story.op((9_000, 9_001), "stays", renew(2), renewed);
            for n in 0..many {
                let at = 10_010 + 2 * n;
                story.shared((at, at + 1), &n.to_string(), 3 + n, Some((2, n)));
            }
        })
    };
    assert_eq!(granted(1), [""; 0]);
    assert!(granted(2).contains(&"I3".to_owned()));
}

#[test]
fn what_a_store_may_forget_of_those_who_share_is_counted() {
    let mut story = Story::default();
    story.shared((0, 1), "r1", 7, Some((1, 0)));
    story.fault((2, 3), "flush", true);
    story.shared((4, 5), "r2", 8, Some((1, 0)));
    assert_eq!(story.breaks(), [""; 0]);
    // Both the limit and the slot.
    assert_eq!(story.told(&TERMS).overlaps.0, 2);
}

#[test]
fn holders_that_are_seen_together_and_may_not_be_are_found_although_none_was_told() {
    let together = |limit, shares: bool| {
        breaks(|story| {
            for (n, errand) in [(1, "one"), (2, "two")] {
                let ask = if n == 2 && !shares {
                    acquire(60_000)
                } else {
                    share(limit, 60_000)
                };
                story.asks(n, errand, ask);
            }
            let holders = [seen(7, "one", true, None), seen(8, "two", shares, None)];
            story.looks((10, 11), holders.into(), &[]);
        })
    };
    assert_eq!(together(Some(2), true), [""; 0]);
    assert_eq!(together(None, true), [""; 0]);
    assert_eq!(together(Some(1), true), ["I3"]);
    assert_eq!(together(None, false), ["I3"]);
}

#[test]
fn a_slot_that_two_have_at_once_is_found() {
    let second = |slot| {
        breaks(|story| {
            story.shared((0, 1), "one", 7, Some((3, 0)));
            story.shared((2, 3), "two", 8, Some((3, slot)));
        })
    };
    assert_eq!(second(1), [""; 0]);
    assert_eq!(second(0), ["I13"]);
    let found = breaks(|story| {
        for (n, errand) in [(1, "one"), (2, "two")] {
            story.asks(n, errand, share(Some(3), 60_000));
        }
        story.shown_shared((3, 4), &[(7, "one", Some(1)), (8, "two", Some(1))], &[]);
    });
    assert_eq!(found, ["I13"]);
}

#[test]
fn a_slot_that_is_not_below_its_limit_or_of_nobody_is_found() {
    let of = |limit, slot| {
        breaks(|story| {
            story.op((0, 1), "a", share(limit, 0), granted_slot(7, slot));
        })
    };
    assert_eq!(of(Some(3), Some(2)), [""; 0]);
    assert_eq!(of(None, None), [""; 0]);
    assert_eq!(of(Some(3), Some(3)), ["I13"]);
    assert_eq!(of(Some(3), None), ["I13"]);
    assert_eq!(of(None, Some(0)), ["I13"]);
}

#[test]
fn a_lease_that_changes_its_slot_is_found() {
    let renewed = |slot| {
        breaks(|story| {
            story.shared((0, 1), "a", 7, Some((3, 1)));
            story.op((2, 3), "a", renew(7), renewed_slot(7, slot));
        })
    };
    assert_eq!(renewed(Some(1)), [""; 0]);
    assert_eq!(renewed(Some(0)), ["I13"]);
    assert_eq!(renewed(None), ["I13"]);
    let seen = |slot| {
        breaks(|story| {
            story.shared((0, 1), "a", 7, Some((3, 1)));
            story.shown_shared((2, 3), &[(7, "a", slot)], &[]);
        })
    };
    assert_eq!(seen(Some(1)), [""; 0]);
    assert_eq!(seen(Some(2)), ["I5"]);
}

#[test]
fn fences_rise_over_both_modes() {
    finds("I2", |story| {
        story.shared((0, 1), "r1", 7, None);
        story.shared((2, 3), "r2", 6, None);
    });
    finds("I2", |story| {
        story.shared((0, 1), "r1", 7, None);
        story.released((2, 3), "r1", 7);
        story.granted((4, 5), "w", 6);
    });
    // One that was only seen counts as one that was granted, be it the last of several.
    finds("I2", |story| {
        for (n, errand) in [(1, "one"), (2, "two")] {
            let lost = story.asks(n, errand, share(None, 0));
            story.hears(5, lost, RecordedAnswer::Unknown);
        }
        story.shown_shared((3, 4), &[(7, "one", None), (9, "two", None)], &[]);
        story.shared((10, 11), "late", 8, None);
    });
    finds("I1", |story| {
        story.shared((0, 2), "r1", 7, None);
        story.shared((1, 3), "r2", 7, None);
    });
}

#[test]
fn each_slot_has_a_resource_of_its_own() {
    let found = breaks(|story| {
        story.writes_in(Some(0), 0, Resource::Fenced, 8, (0, 0));
        // A fellow holder with a smaller fencing token.
        story.writes_in(Some(1), 1, Resource::Fenced, 7, (0, 0));
        story.writes_in(None, 2, Resource::Fenced, 5, (0, 0));
        story.writes_in(Some(0), 3, Resource::Fenced, 9, (1, 1));
    });
    assert_eq!(found, [""; 0]);
    let found = breaks(|story| {
        story.writes_in(Some(0), 0, Resource::Fenced, 8, (0, 0));
        story.writes_in(Some(0), 1, Resource::Fenced, 7, (1, 1));
    });
    assert_eq!(found, ["I4"]);
}

#[test]
fn one_who_is_seen_in_another_mode_than_it_asked_for_is_found() {
    let asked = |ask| {
        breaks(|story| {
            story.asks(0, "a", ask);
            story.shown_shared((1, 2), &[(7, "a", None)], &[]);
        })
    };
    assert_eq!(asked(share(None, 60_000)), [""; 0]);
    assert_eq!(asked(acquire(60_000)), ["I5"]);
}

#[test]
fn every_lease_that_lives_is_seen() {
    let seen = |holders: &[(u64, &str, Option<u64>)]| {
        breaks(|story| {
            story.shared((0, 1), "r1", 7, None);
            story.shared((2, 3), "r2", 8, None);
            story.shown_shared((4, 5), holders, &[]);
        })
    };
    assert_eq!(seen(&[(7, "r1", None), (8, "r2", None)]), [""; 0]);
    for missing in [&[(7, "r1", None)][..], &[(8, "r2", None)], &[]] {
        assert!(seen(missing).contains(&"I6".to_owned()));
    }
}

#[test]
fn a_release_of_one_who_shares_it_leaves_the_others_theirs() {
    let found = breaks(|story| {
        story.shared((0, 1), "r1", 7, None);
        story.shared((2, 3), "r2", 8, None);
        story.released((4, 5), "r2", 8);
        story.released((6, 7), "r1", 7);
    });
    assert_eq!(found, [""; 0]);
    finds("I6", |story| {
        story.shared((0, 1), "r1", 7, None);
        story.shared((2, 3), "r2", 8, None);
        story.released((4, 5), "r2", 8);
        story.releases((6, 7), "r1", 7, RecordedAnswer::Lost);
    });
    finds("I8", |story| {
        story.shared((0, 1), "r1", 7, None);
        story.shared((2, 3), "r2", 8, None);
        story.released((4, 5), "r1", 7);
        story.shown_shared((6, 7), &[(7, "r1", None), (8, "r2", None)], &[]);
    });
}

#[test]
fn a_lease_that_shares_it_lives_beside_later_ones_and_not_beyond_one_that_is_alone() {
    let released = |alone: bool| {
        let mut story = Story::default();
        story.shared((0, 1), "r1", 7, None);
        story.fault((2, 3), "flush", true);
        if alone {
            story.granted((4, 5), "w", 8);
        } else {
            story.shared((4, 5), "r2", 8, None);
        }
        story.released((6, 7), "r1", 7);
        story.breaks()
    };
    assert!(released(true).contains(&"I9".to_owned()));
    assert_eq!(released(false), [""; 0]);
}

/// One holds it and one waits to be alone; a reader comes after that, and passes it or not.
fn reader_behind(passes: bool) -> Vec<String> {
    breaks(|story| {
        story.shared((0, 1), "holds", 5, None);
        let writer = story.asks(2, "writer", acquire(60_000));
        story.shown_shared((10, 11), &[(5, "holds", None)], &["writer"]);
        let reader = story.asks(12, "reader", share(None, 60_000));
        if passes {
            story.hears(14, reader, granted_slot(6, None));
            story.released((15, 16), "reader", 6);
        }
        story.released((20, 21), "holds", 5);
        story.hears(22, writer, granted(7));
        story.released((23, 24), "writer", 7);
        if !passes {
            story.hears(25, reader, granted_slot(8, None));
        }
    })
}

#[test]
fn a_reader_that_passes_a_writer_is_found() {
    assert_eq!(reader_behind(true), ["I11"]);
    assert_eq!(reader_behind(false), [""; 0]);
}

/// Several hold it and one waits behind them who may share it, from when one has gone or left.
fn room_after(ms: u64, leaves: bool) -> Vec<String> {
    breaks(|story| {
        story.shared((0, 1), "r1", 5, None);
        story.shared((2, 3), "r2", 6, None);
        let writer = leaves.then(|| story.asks(4, "writer", acquire(15)));
        let limit = if leaves { None } else { Some(2) };
        let waits = story.asks(6, "waits", share(limit, 60_000));
        if let Some(writer) = writer {
            let holders = [(5, "r1"), (6, "r2")];
            let holders = holders.map(|(fence, owner)| seen(fence, owner, true, None));
            let holders = holders.into();
            story.hears(20, writer, RecordedAnswer::Locked { holders });
        } else {
            story.released((10, 20), "r1", 5);
        }
        let slot = limit.map(|_| 0);
        story.hears(20 + ms, waits, granted_slot(7, slot));
    })
}

#[test]
fn a_place_that_is_given_to_nobody_while_somebody_waits_is_found() {
    for leaves in [false, true] {
        assert_eq!(room_after(3_100, leaves), ["I7"], "{leaves}");
        assert_eq!(room_after(2_900, leaves), [""; 0], "{leaves}");
    }
}

#[test]
fn one_who_waits_behind_one_that_may_not_share_it_waits_as_long_as_that() {
    // The writer is the head, and so is one with a limit that is reached.
    for ask in [acquire(60_000), share(Some(1), 60_000)] {
        let found = breaks(|story| {
            story.shared((0, 1), "r1", 5, None);
            let head = story.asks(2, "head", ask.clone());
            let waits = story.asks(4, "waits", share(None, 60_000));
            story.released((9_000, 9_001), "r1", 5);
            let slot = matches!(
                ask,
                Ask::Acquire {
                    mode: Mode::Shared { .. },
                    ..
                }
            );
            story.hears(9_010, head, granted_slot(6, slot.then_some(0)));
            story.released((9_011, 9_012), "head", 6);
            story.hears(9_020, waits, granted_slot(7, None));
        });
        assert_eq!(found, [""; 0]);
    }
}

#[test]
fn one_of_a_hundred_places_may_be_given_late_and_not_two() {
    let slow = |slow: u64| {
        breaks(|story| {
            for n in 0..101 {
                let (at, names) = (n * 20_000, [0, 1, 2].map(|it| (3 * n + it).to_string()));
                let took = if n < slow { 51 } else { 50 };
                story.shared((at, at + 1), &names[0], 3 * n + 1, Some((2, 0)));
                story.shared((at + 2, at + 3), &names[1], 3 * n + 2, Some((2, 1)));
                let waits = story.asks(at + 4, &names[2], share(Some(2), 9_000));
                story.released((at + 10, at + 20), &names[0], 3 * n + 1);
                story.hears(at + 20 + took, waits, granted_slot(3 * n + 3, Some(0)));
                story.released((at + 200, at + 210), &names[1], 3 * n + 2);
                story.released((at + 220, at + 230), &names[2], 3 * n + 3);
            }
        })
    };
    assert_eq!(slow(2), ["I7"]);
    assert_eq!(slow(1), [""; 0]);
}

#[test]
fn one_of_fifty_places_behind_one_who_has_left_may_be_given_late_and_not_two() {
    let slow = |slow: u64, of: u64| {
        breaks(|story| {
            for n in 0..of {
                let (at, names) = (n * 20_000, [0, 1, 2].map(|it| (3 * n + it).to_string()));
                let took = if n < slow { 51 } else { 50 };
                story.shared((at, at + 1), &names[0], 3 * n + 1, None);
                let leaves = story.asks(at + 2, &names[1], acquire(10));
                let waits = story.asks(at + 4, &names[2], share(None, 9_000));
                let holders = vec![seen(3 * n + 1, &names[0], true, None)];
                story.hears(at + 20, leaves, RecordedAnswer::Locked { holders });
                story.hears(at + 20 + took, waits, granted_slot(3 * n + 3, None));
                story.released((at + 200, at + 210), &names[0], 3 * n + 1);
                story.released((at + 220, at + 230), &names[2], 3 * n + 3);
            }
        })
    };
    assert_eq!(slow(2, 50), ["I7"]);
    assert_eq!(slow(1, 50), [""; 0]);
    assert_eq!(slow(2, 49), [""; 0], "of fewer nobody can say");
}

#[test]
fn an_orphan_that_shares_the_lock_is_found() {
    let seen_at = |at: u64| {
        breaks(|story| {
            let gone = story.asks(0, "gone", share(None, 0));
            story.hangs_up(10, gone);
            story.shared((at - 10, at - 9), "lives", 8, None);
            story.shown_shared((at, at + 1), &[(7, "gone", None), (8, "lives", None)], &[]);
        })
    };
    assert_eq!(seen_at(11_011), ["I8"]);
    assert_eq!(seen_at(11_009), [""; 0]);
}

#[test]
fn one_key_has_one_lease_that_shares_the_lock() {
    let keyed = || Ask::Acquire {
        ttl_ms: 10_000,
        wait_ms: 0,
        keyed: true,
        mode: Mode::Shared { limit: Some(3) },
    };
    let again = |fence, slot, again| {
        breaks(|story| {
            story.op((0, 1), "a", keyed(), granted_slot(7, Some(0)));
            let told = RecordedAnswer::Granted {
                fence,
                left_ms: 9_000,
                again,
                slot: Some(slot),
            };
            story.op((2, 3), "a", keyed(), told);
        })
    };
    assert_eq!(again(7, 0, true), [""; 0]);
    assert_eq!(again(8, 1, false), ["I10"]);
}

#[test]
fn those_who_share_a_lock_have_one_order_too() {
    let seen = |holders: &[(u64, &str, Option<u64>)], found: &[&str]| {
        let mut story = Story::default();
        story.shared((0, 10), "r1", 7, None);
        // All at once: a second comes, the first goes, and somebody looks.
        let second = story.asks(20, "r2", share(Some(2), 0));
        let release = story.asks(21, "r1", Ask::Release { fence: 7 });
        story.shown_shared((22, 60), holders, &[]);
        story.hears(61, second, granted_slot(8, Some(0)));
        story.hears(62, release, RecordedAnswer::Released);
        story.shown_shared((70, 71), &[(8, "r2", Some(0))], &[]);
        assert_eq!(story.breaks(), *found, "{holders:?}");
        if found.is_empty() {
            assert_eq!(story.told(&TERMS).windows, (1, 5));
        }
    };
    for right in [
        &[(7, "r1", None)][..],
        &[],
        &[(8, "r2", Some(0))],
        &[(7, "r1", None), (8, "r2", Some(0))],
    ] {
        seen(right, &[]);
    }
    // There is no order in which somebody else holds it, too.
    let mut story = Story::default();
    story.shared((0, 10), "r1", 7, None);
    story.released((20, 30), "r1", 7);
    story.shared((40, 50), "r2", 8, None);
    story.shown_shared((60, 70), &[(7, "r1", None), (8, "r2", None)], &[]);
    let found = story.breaks();
    assert!(found.contains(&"I12".to_owned()), "{found:?}");
}

#[test]
fn no_order_explains_a_grant_beside_one_too_many() {
    let story = |limit| {
        breaks(|story| {
            story.shared((0, 10), "r1", 7, None);
            story.shared((20, 30), "r2", 8, None);
            story.shared((40, 50), "r3", 9, Some((limit, 0)));
        })
    };
    assert_eq!(story(3), [""; 0]);
    assert!(story(2).contains(&"I12".to_owned()));
    // Nor one of somebody who is alone.
    let found = breaks(|story| {
        story.shared((0, 10), "r1", 7, None);
        story.shared((20, 30), "r2", 8, None);
        story.granted((40, 50), "w", 9);
    });
    assert!(found.contains(&"I12".to_owned()), "{found:?}");
}

#[test]
fn a_run_in_which_nobody_shares_a_lock_shows_nothing_of_that() {
    let terms = Terms {
        shares: true,
        ..TERMS
    };
    let mut story = Story::default();
    story.shared((0, 1), "r1", 7, Some((2, 0)));
    assert_eq!(story.told(&terms).invalid, ["nobody shared a lock"]);
    story.shared((2, 3), "r2", 8, Some((2, 1)));
    story.shown_shared((4, 5), &[(7, "r1", Some(0)), (8, "r2", Some(1))], &[]);
    assert_eq!(story.told(&terms).invalid, [""; 0]);
    assert_eq!(story.told(&terms).shared, (2, 2, 2));
}
