//! Tests of the registry of leases.

use tokio::time::advance;

use super::{run_out::OPENS_WITHIN, *};
use crate::{
    engine::tests::scripted_store::{held, name},
    lock::Token,
    store::contract::FenceCheck,
};

fn listed(leases: &LeaseRegistry) -> usize {
    leases.shards.iter().map(|it| it.lock().leases.len()).sum()
}

fn lasting(seconds: u64) -> HeldLease {
    HeldLease {
        expires_in: Duration::from_secs(seconds),
        ..held()
    }
}

#[tokio::test(start_paused = true)]
async fn is_needed_until_the_last_lease_ends_that_was_not_removed() {
    let leases = LeaseRegistry::default();
    assert_eq!(leases.needed_until(), None);
    let begin = Instant::now();
    let [short, long] = [(); 2].map(|()| Token::random().hash());
    leases.insert(short, &name(), &lasting(10));
    leases.insert(long, &name(), &lasting(30));
    assert_eq!(leases.needed_until(), Some(begin + Duration::from_secs(30)));
    leases.remove(&name(), &long);
    assert_eq!(leases.needed_until(), Some(begin + Duration::from_secs(10)));
    leases.insert(short, &name(), &lasting(20));
    assert_eq!(leases.needed_until(), Some(begin + Duration::from_secs(20)));
    advance(Duration::from_secs(20)).await;
    assert_eq!(leases.needed_until(), None);
}

#[tokio::test(start_paused = true)]
async fn who_is_sent_away_is_waited_for_a_while_and_longer_when_they_renew() {
    let leases = LeaseRegistry::default();
    let begin = Instant::now();
    let token = Token::random().hash();
    let after = |seconds| Some(begin + Duration::from_secs(seconds));
    leases.insert(token, &name(), &lasting(30));
    let told = leases.shrunk();
    leases.wait_at_most(&name(), &token, Duration::from_secs(2));
    told.await;
    assert_eq!(leases.needed_until(), after(2));
    advance(Duration::from_secs(2)).await;
    assert_eq!(leases.needed_until(), None);
    assert!(leases.is_listed(&name(), &token), "its lease lives on");
    leases.wait_at_most(&name(), &token, Duration::from_secs(3));
    assert_eq!(leases.needed_until(), None, "only a renewal prolongs it");
    leases.insert(token, &name(), &lasting(30));
    assert_eq!(leases.needed_until(), after(32));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_tried_on_another_lock_says_nothing_of_its_lease() {
    let leases = LeaseRegistry::default();
    let token = Token::random().hash();
    leases.insert(token, &name(), &lasting(10));
    let other = LockName::new("other").unwrap();
    assert!(leases.remove(&other, &token).is_none());
    assert!(leases.is_listed(&name(), &token));
    assert!(leases.remove(&name(), &token).is_some());
    assert!(!leases.is_listed(&name(), &token));
}

#[tokio::test(start_paused = true)]
async fn the_leases_of_a_group_have_one_token_and_end_each_by_itself() {
    let leases = LeaseRegistry::default();
    let token = Token::random().hash();
    let names = ["a", "b", "c"].map(|name| LockName::new(name).unwrap());
    for (seconds, name) in (1..).zip(&names) {
        leases.insert_counted(token, name, &lasting(10 * seconds));
    }
    leases.insert(token, &names[1], &lasting(20));
    assert_eq!(leases.counted().all, 3);
    let lives = || names.each_ref().map(|it| leases.is_listed(it, &token));
    assert!(leases.remove(&names[0], &token).is_some());
    assert!(leases.remove(&names[0], &token).is_none());
    assert_eq!(lives(), [false, true, true]);
    leases.adopted(&names[2], &token);
    assert_eq!(leases.counted().all, 1);
    advance(Duration::from_secs(20)).await;
    assert_eq!(lives(), [false, false, true]);
    assert!(leases.remove(&names[2], &token).is_some());
    assert!(leases.remove(&names[1], &token).is_some());
    assert_eq!(listed(&leases), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_counts_where_it_was_granted_or_a_stream_keeps_it_and_nowhere_else() {
    let [granter, other] = [(); 2].map(|()| LeaseRegistry::default());
    let token = Token::random().hash();
    let sum = || granter.counted().all + other.counted().all;
    granter.insert_counted(token, &name(), &lasting(10));
    other.insert(token, &name(), &lasting(10));
    assert_eq!(sum(), 1);
    granter.insert(token, &name(), &lasting(10));
    assert_eq!((granter.counted().all, other.counted().all), (1, 0));
    // A stream of the other gateway adopts the lease, and the gateway that kept it hears of that.
    other.insert_counted(token, &name(), &lasting(10));
    granter.adopted(&name(), &token);
    assert_eq!((granter.counted().all, other.counted().all), (0, 1));
    assert!(granter.is_listed(&name(), &token), "its holder may come");
}

#[tokio::test(start_paused = true)]
async fn those_that_share_a_lock_are_counted_among_all() {
    let leases = LeaseRegistry::default();
    let shared = HeldLease {
        mode: Mode::Shared { slot: None },
        ..lasting(10)
    };
    for (held, is_counted) in [(&lasting(10), true), (&shared, true), (&shared, false)] {
        leases.insert_as(is_counted, (Token::random().hash(), &name()), held, None);
    }
    let counted = leases.counted();
    assert_eq!((counted.all, counted.shared), (2, 1));
    advance(Duration::from_secs(10)).await;
    assert_eq!(leases.counted(), CountedLeases::default());
}

fn since_start() -> Instant {
    Instant::now() - Duration::from_hours(1)
}

/// The leases that had run out at `before`, about which the store must be asked.
fn run_out(
    leases: &LeaseRegistry,
    before: Instant,
    seen_since: Option<Instant>,
) -> Vec<RunOutLease> {
    leases.look(before, seen_since)
}

/// Whether this gateway reports the end of a lease about which it asked the store.
fn ends(leases: &LeaseRegistry, asked: &RunOutLease) -> bool {
    leases
        .end_run_out(asked, STALE, true, Some(since_start()))
        .1
        .is_some()
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_has_run_out_is_asked_about_once_by_who_reports_its_end() {
    let leases = LeaseRegistry::default();
    leases.keep_run_out(true);
    let [early, late, renewed, broken, again, lost] = [(); 6].map(|()| Token::random().hash());
    leases.insert(early, &name(), &lasting(10));
    leases.insert(again, &name(), &lasting(10));
    advance(Duration::from_secs(5)).await;
    let heard_since = Some(Instant::now());
    // Adds enough leases to cause a sweep, which must not remove the leases that have run out.
    let others = [(); SHARDS * SWEEP_FROM].map(|()| Token::random().hash());
    for token in [late, renewed, broken].into_iter().chain(others) {
        leases.insert(token, &name(), &lasting(3));
    }
    leases.renewed_elsewhere(&name(), LeaseTag::from(&late));
    advance(Duration::from_secs(2)).await;
    leases.renewed_elsewhere(&name(), LeaseTag::from(&renewed));
    leases.broken(&name(), &broken);
    leases.insert(again, &name(), &lasting(1));
    leases.insert_counted(lost, &name(), &lasting(100));
    assert!(leases.lose(&name(), &lost, true).is_some());
    let lost_at = Instant::now();
    assert!(!leases.is_listed(&name(), &lost));
    advance(Duration::from_secs(10)).await;
    leases.lose(&name(), &lost, true);
    let is_asked = |asked: &[RunOutLease], token| {
        let tag = LeaseTag::from(token);
        asked.iter().any(|it| it.tag == tag)
    };
    let first = run_out(&leases, lost_at, heard_since);
    assert!(first.len() == 1 && is_asked(&first, &lost));
    leases.end_run_out(&first[0], STALE, true, heard_since);
    leases.insert(Token::random().hash(), &name(), &lasting(1));
    let asked = run_out(&leases, Instant::now(), heard_since);
    assert_eq!(
        [&late, &broken, &again].map(|it| is_asked(&asked, it)),
        [true; 3]
    );
    assert_eq!(
        [&early, &renewed, &lost].map(|it| is_asked(&asked, it)),
        [false; 3]
    );
    for asked in &asked {
        leases.end_run_out(asked, STALE, true, heard_since);
    }
    assert_eq!(run_out(&leases, Instant::now(), heard_since).len(), 0);
    assert_eq!(leases.counted().all, 0, "nobody keeps the lost one");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_asked_about_is_renewed_with_all_that_belongs_to_it() {
    let (leases, token) = (Arc::new(LeaseRegistry::default()), Token::random().hash());
    leases.keep_run_out(true);
    leases.insert_counted(token, &name(), &lasting(1));
    let mut stream = leases.keep(name(), token);
    advance(Duration::from_secs(1)).await;
    let asked = run_out(&leases, Instant::now(), Some(since_start()));
    leases.insert(token, &name(), &lasting(1));
    assert_eq!(
        (leases.counted().all, leases.counted().held_by_streams),
        (1, 1)
    );
    // The store gave these answers before the lease was renewed here, so they end nothing.
    assert!(!ends(&leases, &asked[0]));
    leases.extend_run_out(&asked[0], Instant::now() + Duration::from_mins(1));
    advance(Duration::from_secs(1)).await;
    let asked = run_out(&leases, Instant::now(), Some(since_start()));
    assert_eq!(asked.len(), 1, "the renewed lease runs out by itself");
    leases.extend_run_out(&asked[0], Instant::now() + Duration::from_secs(1));
    assert!(leases.is_listed(&name(), &token));
    assert_eq!(leases.needed_until(), None, "nobody waits for it");
    leases.remove(&name(), &token).unwrap().released();
    assert_eq!(stream.displaced().await, Displaced::Released);
    assert!(!ends(&leases, &asked[0]));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_comes_back_late_is_recognized_although_the_end_was_reported() {
    let (leases, token) = (LeaseRegistry::default(), Token::random().hash());
    leases.keep_run_out(true);
    leases.insert(token, &name(), &lasting(1));
    advance(Duration::from_secs(1)).await;
    let asked = run_out(&leases, Instant::now(), Some(since_start()));
    let end = || ends(&leases, &asked[0]);
    assert!(end() && !end(), "once");
    advance(Duration::from_mins(1)).await;
    assert!(leases.lose(&name(), &token, true).is_some());
    assert!(leases.lose(&name(), &token, true).is_none());
}

#[tokio::test(start_paused = true)]
async fn does_not_grow_with_what_is_over_or_was_reported() {
    for reports in [false, true] {
        let leases = LeaseRegistry::default();
        leases.keep_run_out(reports);
        for _ in 0..10 {
            for _ in 0..SHARDS * SWEEP_FROM {
                leases.insert(Token::random().hash(), &name(), &lasting(1));
            }
            advance(Duration::from_secs(1)).await;
            let before = if reports {
                Instant::now()
            } else {
                since_start()
            };
            for asked in run_out(&leases, before, Some(since_start())) {
                assert!(ends(&leases, &asked));
            }
        }
        let listed = listed(&leases);
        assert!(listed <= 2 * SHARDS * SWEEP_FROM, "{listed} are listed");
    }
}

/// A registry with a history, and a lease of ten seconds that the history has not recorded yet.
fn recorded_lease() -> (LeaseRegistry, TokenHash) {
    let (leases, token) = (LeaseRegistry::default(), Token::random().hash());
    leases.record(RECORDED_AFTER);
    let opening = Opening {
        by: Some(Actor::Key("ci".into())),
        waited: Some(Duration::from_secs(2)),
        said: Said::default(),
        may_rest: false,
    };
    leases.insert_as(true, (token, &name()), &lasting(10), Some(opening));
    (leases, token)
}

const RECORDED_AFTER: Duration = Duration::from_secs(1);
const STALE: FenceCheck = FenceCheck::Stale { is_outrun: false };

#[tokio::test(start_paused = true)]
async fn the_history_is_told_of_a_beginning_once_and_asks_about_the_end_until_it_is_known() {
    let (leases, token) = recorded_lease();
    let look = || leases.look(Instant::now(), None);
    advance(RECORDED_AFTER).await;
    assert!(look().is_empty(), "the lease may end soon");
    advance(OPENS_WITHIN).await;
    // The store did not answer.
    assert_eq!(look().len(), 1);
    let asked = look().pop().unwrap();
    let end = Instant::now() + Duration::from_secs(4);
    let opened = leases.extend_run_out(&asked, end).unwrap().entry;
    assert_eq!(opened.acquired_by.as_deref(), Some("ci"));
    assert_eq!(opened.waited_ms, Some(2_000));
    assert!(look().is_empty(), "once");

    advance(Duration::from_secs(5)).await;
    let run_out = look().pop().expect("the lease has run out");
    // The store did not answer: the lease stays run out, and is asked about again.
    assert!(!leases.is_listed(&name(), &token));
    assert_eq!(look().len(), 1, "the question is still open");
    // Another gateway has renewed the lease.
    let later = Instant::now() + Duration::from_secs(5);
    assert!(leases.extend_run_out(&run_out, later).is_none());
    assert!(leases.is_listed(&name(), &token));
    assert!(look().is_empty());
    advance(Duration::from_secs(5)).await;
    let run_out = look().pop().expect("the lease has run out again");
    let (recorded, reported) = leases.end_run_out(&run_out, STALE, true, None);
    assert!(recorded.is_some() && reported.is_none());
    assert!(look().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_gone_before_its_time_was_released_elsewhere_or_is_lost() {
    let ago = Some(Duration::from_millis(500));
    for found in [STALE, FenceCheck::Released(ago)] {
        let (leases, _) = recorded_lease();
        advance(OPENS_WITHIN).await;
        let released_at = Instant::now() - Duration::from_millis(500);
        let look = || leases.look(Instant::now(), None);
        let asked = look().pop().unwrap();
        let (mut recorded, reported) = leases.end_run_out(&asked, found, true, None);
        if found == STALE {
            // A release through this gateway may be about to be answered.
            assert!(recorded.is_none());
            let asked = look().pop().unwrap();
            (recorded, _) = leases.end_run_out(&asked, found, true, None);
        }
        let recorded = recorded.unwrap();
        assert_eq!(recorded.is_lost, found == STALE);
        assert_eq!(recorded.unheard.is_some(), found != STALE);
        assert_eq!(recorded.until == released_at, found != STALE);
        assert!(reported.is_none() && look().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_loses_no_lease_has_recorded_the_break_of_a_lease_that_is_gone() {
    let (leases, _) = recorded_lease();
    advance(OPENS_WITHIN).await;
    let asked = leases.look(Instant::now(), None).pop().unwrap();
    let ended = leases.end_run_out(&asked, STALE, false, None);
    assert!(ended.0.is_none() && ended.1.is_none());
    assert!(leases.look(Instant::now(), None).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_gone_stays_listed_for_the_history_and_is_known_to_be_gone() {
    for before_its_time in [true, false] {
        let (leases, token) = recorded_lease();
        if !before_its_time {
            advance(Duration::from_secs(11)).await;
        }
        assert_eq!(leases.was_gone(&name(), &token), Some(false));
        assert!(leases.lose(&name(), &token, true).is_some());
        assert_eq!(leases.was_gone(&name(), &token), Some(true));
        let lost = leases.remove(&name(), &token).unwrap().recorded();
        assert_eq!(lost.is_lost, before_its_time);
        assert_eq!(leases.was_gone(&name(), &token), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_the_reaper_stays_listed_until_its_release_is_told() {
    let (leases, token) = (LeaseRegistry::default(), Token::random().hash());
    leases.insert_counted(token, &name(), &lasting(10));
    assert!(leases.lose(&name(), &token, false).is_some());
    assert!(!leases.is_listed(&name(), &token), "it does not live");
    assert!(leases.remove(&name(), &token).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_that_another_gateway_has_released_is_left_to_that_gateway() {
    let (leases, _) = recorded_lease();
    // The gateway has paused, and asks late.
    advance(Duration::from_secs(11)).await;
    let asked = leases.look(Instant::now(), None).pop().unwrap();
    let ago = Some(Duration::from_millis(10_500));
    let found = FenceCheck::Released(ago);
    assert!(leases.end_run_out(&asked, found, true, None).0.is_none());
    assert!(leases.look(Instant::now(), None).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_not_answered_is_asked_about_at_once() {
    let (leases, token) = recorded_lease();
    let by = Some(Actor::Key("ann".into()));
    for carried_out in [false, true] {
        leases.released_unheard(&name(), &token, by.clone());
        let asked = leases.look(Instant::now(), None).pop().unwrap();
        if carried_out {
            let (recorded, _) = leases.end_run_out(&asked, STALE, true, None);
            let unheard = recorded.unwrap().unheard.unwrap();
            assert_eq!(unheard.0, by);
        } else {
            let end = Instant::now() + Duration::from_secs(9);
            assert!(leases.extend_run_out(&asked, end).is_none());
        }
        assert!(leases.look(Instant::now(), None).is_empty());
    }
}
