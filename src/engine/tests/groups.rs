//! Groups: several locks that are acquired as one.

use std::time::Duration;

use tokio::{task::JoinHandle, time::sleep};

use super::scripted_store::*;
use crate::{
    engine::{AcquireError, AcquireRequest, Engine, GrantedGroup, GroupAcquireError, GroupRequest},
    lock::{GroupNames, HeldLease, Limit, LockName, RecipientId, Salt, Sharing, TokenHash, Ttl},
    store::{
        StoreError, Unavailability,
        contract::{Acquisition, GiveBack, Leaving, Releaser},
        parking::News,
    },
};

pub(super) type Outcome = Result<GrantedGroup, GroupAcquireError>;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A group request whose parts are like `part`.
pub(super) fn group(part: &AcquireRequest) -> GroupRequest {
    group_of(["c", "a", "b"], part)
}

pub(super) fn group_of<const N: usize>(names: [&str; N], part: &AcquireRequest) -> GroupRequest {
    let names = GroupNames::parse(names).unwrap();
    let part = |name: &LockName| {
        Ok::<_, StoreError>(AcquireRequest {
            name: name.clone(),
            ..part.clone()
        })
    };
    GroupRequest::new(names, part).unwrap()
}

/// Starts an acquire of the group. The caller stays until the handle is aborted.
async fn begin(engine: &Engine, part: &AcquireRequest) -> JoinHandle<Outcome> {
    start(engine.acquire_group(group(part), || {})).await
}

fn refused() -> Acquisition {
    Acquisition::Held(contention())
}

/// Three grants, one for each lock.
fn all_granted() -> [Acquisition; 3] {
    [granted(), granted(), granted()]
}

/// Acquires the group with a request whose parts are like `part`.
async fn acquire(engine: &Engine, part: &AcquireRequest) -> Outcome {
    engine.acquire_group(group(part), || {}).await
}

/// A store that answers the acquires with these answers, one after the other.
pub(super) fn answering(
    answers: impl IntoIterator<Item = Acquisition>,
) -> std::sync::Arc<ScriptedStore> {
    let mut answers = answers.into_iter();
    let store = ScriptedStore::answering(Ok(answers.next().unwrap()));
    let rest = answers.map(Ok);
    store.acquisitions.lock().extend(rest);
    store
}

fn asked(store: &ScriptedStore) -> Vec<(String, TokenHash)> {
    let attempts = store.attempts.lock();
    let asked = attempts
        .iter()
        .map(|it| (it.name.as_str().to_owned(), it.token));
    asked.collect()
}

fn asked_names(store: &ScriptedStore) -> Vec<String> {
    asked(store).into_iter().map(|(name, _)| name).collect()
}

/// The locks that the store was asked to renew, and the TTLs.
fn renewed(store: &ScriptedStore) -> Vec<(String, Option<Ttl>)> {
    let renewed = store.renewed.lock();
    let renewed = renewed.iter().map(|(name, ttl)| (name.to_string(), *ttl));
    renewed.collect()
}

pub(super) fn given_back(store: &ScriptedStore) -> Vec<String> {
    let names = store.given_back_names.lock();
    let mut names: Vec<_> = names.iter().map(|name| name.as_str().to_owned()).collect();
    names.sort_unstable();
    names
}

pub(super) fn refusal(outcome: Outcome) -> (Option<String>, AcquireError) {
    let GroupAcquireError { name, error } = outcome.unwrap_err();
    (name.map(|name| name.as_str().to_owned()), error)
}

fn lose(store: &ScriptedStore, name: &str) {
    let name = LockName::new(name).unwrap();
    store.lost.lock().push(name);
}

/// A lease as it is granted while the group waits for other locks.
fn brief() -> HeldLease {
    HeldLease {
        expires_in: Duration::from_secs(10),
        ..held()
    }
}

#[tokio::test(start_paused = true)]
async fn all_are_taken_in_order_for_a_short_time_and_then_last_as_long_as_was_asked_for() {
    let (store, engine) = engine_on(answering(all_granted()));
    let wanted = request(None);
    let group = engine.acquire_group(group(&wanted), || {}).await.unwrap();
    let asked = asked(&store);
    for ((name, token), expected) in asked.iter().zip(NAMES) {
        assert_eq!(name, expected);
        assert_eq!(*token, group.hash, "one token for all");
    }
    let attempts = store.attempts.lock().clone();
    assert!(
        attempts
            .iter()
            .all(|it| it.terms.ttl().as_millis() == 9_999)
    );
    let ttl = Some(wanted.terms.ttl());
    assert_eq!(renewed(&store), NAMES.map(|name| (name.to_owned(), ttl)));
    let names: Vec<_> = group.leases.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, NAMES);
    group.delivery.delivered();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(given_back(&store), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_held_is_named_and_what_was_taken_is_given_back() {
    let (store, engine) = engine_on(answering([granted(), refused()]));
    let (name, error) = refusal(acquire(&engine, &request(None)).await);
    assert_eq!(name.as_deref(), Some("b"));
    assert!(matches!(error, AcquireError::Held { .. }));
    assert_eq!(asked_names(&store), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_renewed_while_another_one_is_waited_for() {
    let (store, engine) = engine_on(answering([granted(), queued(), granted()]));
    let caller = begin(&engine, &waiting_request(None)).await;
    assert_eq!(asked_names(&store), ["a", "b"]);
    let before = store.renewals_asked.lock().to_owned();
    // The scripted lease of `a` has 30 s, and is renewed after a third of them.
    sleep(Duration::from_millis(9_990)).await;
    assert_eq!(*store.renewals_asked.lock(), before);
    store.tell(News::Granted(held()));
    let group = caller.await.unwrap().unwrap();
    assert_eq!(group.waited, Duration::from_millis(9_990));
    assert_eq!(asked_names(&store), NAMES);
    group.delivery.delivered();
}

#[tokio::test(start_paused = true)]
async fn a_part_that_lasts_briefly_is_renewed_in_time() {
    let (store, engine) = engine_on(answering([
        Acquisition::Granted(brief()),
        queued(),
        granted(),
    ]));
    let _caller = begin(&engine, &waiting_request(None)).await;
    sleep(Duration::from_millis(3_400)).await;
    assert_eq!(renewed(&store), [("a".to_owned(), None)]);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_lost_meanwhile_means_to_begin_again_with_another_token() {
    let (store, engine) = engine_on(answering([
        Acquisition::Granted(brief()),
        Acquisition::Granted(brief()),
        queued(),
        granted(),
        granted(),
        granted(),
    ]));
    let caller = begin(&engine, &waiting_request(None)).await;
    let first = asked(&store)[0].1;
    lose(&store, "b");
    sleep(Duration::from_millis(3_400)).await;
    // The attempt has left the queue of `c`, and the group has released all leases, in whatever state they are.
    assert_eq!(*store.left.lock(), [(first, None)]);
    assert_eq!(given_back(&store)[..2], ["a", "b"]);
    let asked = asked(&store);
    assert_eq!(asked[3..].iter().map(|it| &it.0).collect::<Vec<_>>(), NAMES);
    assert!(asked[3..].iter().all(|(_, token)| *token != first));
    let group = caller.await.unwrap().unwrap();
    assert_eq!(group.hash, asked[3].1);
    group.delivery.delivered();
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_lost_before_the_answer_is_not_answered() {
    let (store, engine) = engine_on(answering(all_granted()));
    lose(&store, "b");
    let (_, error) = refusal(acquire(&engine, &request(None)).await);
    assert!(matches!(
        error,
        AcquireError::Store(StoreError::Indeterminate(_))
    ));
    settle().await;
    assert_eq!(given_back(&store), NAMES);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_up_leaves_nothing_whatever_was_asked_last() {
    // The number of locks that the caller has when it hangs up, and whether it is granted the next lock in that
    // instant.
    for (taken, is_granted) in [(0, false), (1, false), (2, false), (1, true)] {
        let answers = std::iter::repeat_n(granted(), taken).chain([queued()]);
        let leave = if is_granted {
            Leaving::Granted(held())
        } else {
            Leaving::Left(contention())
        };
        let (store, engine) = engine_on(answering(answers).answering_leave(Ok(leave)));
        begin(&engine, &waiting_request(None)).await.abort();
        settle().await;
        assert_eq!(store.left.lock().len(), 1);
        assert_eq!(given_back(&store), NAMES[..taken + usize::from(is_granted)]);
        assert_eq!(asked(&store).len(), taken + 1);
        assert!(store.parking.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_up_while_a_lock_is_granted_leaves_nothing() {
    for taken in 0..NAMES.len() {
        let answers = std::iter::repeat_n(granted(), NAMES.len());
        let (store, engine) = engine_on(answering(answers).with_closed_gate());
        store.gate.add_permits(taken);
        let caller = begin(&engine, &request(None)).await;
        assert_eq!(asked(&store).len(), taken + 1);
        caller.abort();
        store.open_gate();
        settle().await;
        assert_eq!(given_back(&store), NAMES[..=taken]);
        assert_eq!(asked(&store).len(), taken + 1, "nothing more is asked for");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_drains_takes_no_more_and_gives_back_what_it_has_taken() {
    for waits in [true, false] {
        let store = if waits {
            answering([granted(), queued()])
        } else {
            answering([granted(), granted()]).with_closed_gate()
        };
        let (engine, lifecycle) = engine(&store);
        let part = if waits {
            waiting_request(None)
        } else {
            request(None)
        };
        let caller = begin(&engine, &part).await;
        lifecycle.drain();
        if !waits {
            store.open_gate();
        }
        let (name, error) = refusal(caller.await.unwrap());
        assert!(matches!(error, AcquireError::Draining));
        assert_eq!(name.as_deref(), Some("b"));
        settle().await;
        assert_eq!(given_back(&store), ["a"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_runs_out_is_for_all_locks_together() {
    let (store, engine) = engine_on(answering([queued(), queued()]));
    let caller = begin(&engine, &waiting_request(None)).await;
    sleep(WAIT / 2).await;
    store.tell(News::Granted(held()));
    settle().await;
    sleep(WAIT / 2).await;
    let (name, error) = refusal(caller.await.unwrap());
    let AcquireError::Held { waited, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((name.as_deref(), waited), (Some("b"), WAIT));
    settle().await;
    assert_eq!(given_back(&store), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_half_way_leaves_nothing() {
    for error in [away(), unknown()] {
        let store = ScriptedStore::answering(Ok(granted()));
        let next = Err(error.clone());
        store.acquisitions.lock().push_back(next);
        let (engine, _lifecycle) = engine(&store);
        let (name, why) = refusal(acquire(&engine, &request(None)).await);
        assert_eq!(name.as_deref(), Some("b"));
        assert!(matches!(why, AcquireError::Store(why) if why == error));
        settle().await;
        // A lost reply may have been a grant.
        let given_back = given_back(&store);
        match error {
            StoreError::Indeterminate(_) => assert_eq!(given_back, ["a", "b"]),
            _ => assert_eq!(given_back, ["a"]),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_delivered_gives_all_back_at_once_and_with_a_key_after_the_grace() {
    for key in [None, KEY] {
        let (store, engine) = engine_on(answering(all_granted()));
        drop(acquire(&engine, &request(key)).await);
        if key.is_some() {
            sleep(GRACE.saturating_sub(Duration::from_millis(2))).await;
            assert_eq!(given_back(&store), [""; 0]);
            sleep(Duration::from_millis(4)).await;
        }
        settle().await;
        assert_eq!(given_back(&store), NAMES);
    }
}

// === With an idempotency key ===

#[tokio::test(start_paused = true)]
async fn with_a_key_the_last_lock_has_it_and_is_asked_for_first() {
    let (store, engine) = engine_on(answering(all_granted()));
    let group = acquire(&engine, &waiting_request(KEY)).await;
    assert_eq!(asked_names(&store), ["c", "b", "a"]);
    let attempts = store.attempts.lock().clone();
    let keyed = attempts.iter().map(|it| it.idempotency.is_some());
    assert_eq!(keyed.collect::<Vec<_>>(), [true, false, false]);
    assert!(attempts.iter().all(|it| it.wait.is_none()));
    group.unwrap().delivery.delivered();
}

#[tokio::test(start_paused = true)]
async fn with_a_key_it_begins_anew_in_order_if_not_all_are_free_and_burns_no_key() {
    let (store, engine) = engine_on(answering([
        granted(),
        refused(),
        granted(),
        granted(),
        queued(),
    ]));
    let caller = begin(&engine, &waiting_request(KEY)).await;
    assert_eq!(asked_names(&store), ["c", "b", "a", "b", "c"]);
    let asked = asked(&store);
    assert_ne!(asked[0].1, asked[2].1, "what was given back is not granted");
    assert_eq!(asked[2].1, asked[4].1);
    // The lease is released at once, and not after the grace, because it was not answered.
    assert_eq!(given_back(&store), ["c"]);
    assert!(store.released.lock().is_empty());
    store.tell(News::Granted(held()));
    caller.await.unwrap().unwrap().delivery.delivered();
}

#[tokio::test(start_paused = true)]
async fn with_a_key_a_caller_that_hangs_up_before_all_are_taken_keeps_no_place() {
    let (store, engine) = engine_on(answering([refused(), granted(), granted(), queued()]));
    let caller = begin(&engine, &waiting_request(KEY)).await;
    caller.abort();
    settle().await;
    let token = asked(&store)[3].1;
    assert_eq!(*store.left.lock(), [(token, None)]);
    assert_eq!(given_back(&store), ["a", "b"]);
}

/// Makes the store answer a repeated request for the lock with the key: the lease lives already.
fn replayed(store: &ScriptedStore, salt: Option<Salt>) {
    let first = store.attempts.lock()[0].clone();
    let salt = salt.unwrap_or(first.idempotency.unwrap().salt);
    let again = Acquisition::Replayed(held(), salt);
    store.acquisitions.lock().push_back(Ok(again));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_is_answered_the_same_leases_and_takes_none() {
    let (store, engine) = engine_on(answering(all_granted()));
    let first = acquire(&engine, &request(KEY)).await.unwrap();
    replayed(&store, None);
    sleep(Duration::from_millis(1)).await;
    let again = acquire(&engine, &request(KEY)).await.unwrap();
    assert!(again.delivery.is_replay());
    assert_eq!(again.hash, first.hash);
    assert_eq!(again.leases.len(), 3);
    for lease in &again.leases {
        assert_eq!(lease.token.hash(), first.hash);
    }
    assert_eq!(asked(&store).len(), 4);
    // If either of the two answers arrives, all leases are kept.
    drop(first);
    again.delivery.delivered();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(given_back(&store), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_tried_again_ends_no_part_of_a_group_that_was_answered_again_meanwhile() {
    let (store, engine) = engine_on(answering(all_granted()));
    store
        .release_errors
        .lock()
        .extend([unknown(), unknown(), unknown()]);
    let first = acquire(&engine, &request(KEY)).await.unwrap();
    let token = first.hash;
    first.delivery.delivered();
    for name in GroupNames::parse(NAMES).unwrap().iter() {
        engine.release_later(engine.begin_release(Releaser::Bearer, name.clone(), token));
    }
    settle().await;
    sleep(Duration::from_millis(1)).await;
    replayed(&store, None);
    let again = acquire(&engine, &request(KEY)).await.unwrap();
    again.delivery.delivered();
    sleep(Duration::from_secs(10)).await;
    assert!(store.released.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_for_a_group_that_has_lost_a_part_is_told_that_it_has_ended() {
    let (store, engine) = engine_on(answering(all_granted()));
    let first = acquire(&engine, &request(KEY)).await;
    first.unwrap().delivery.delivered();
    replayed(&store, None);
    lose(&store, "a");
    let again = acquire(&engine, &request(KEY)).await;
    let (name, error) = refusal(again);
    assert_eq!(name.as_deref(), Some("a"));
    assert!(matches!(error, AcquireError::IdempotencyExpired));
    sleep(Duration::from_mins(1)).await;
    assert_eq!(given_back(&store), [""; 0], "somebody has heard of it");
}

#[tokio::test(start_paused = true)]
async fn a_group_that_was_granted_under_the_key_meanwhile_is_answered_in_place_of_what_was_taken() {
    let store = answering([refused(), granted(), granted()]);
    let salt = Salt::random();
    store
        .acquisitions
        .lock()
        .push_back(Ok(Acquisition::Replayed(held(), salt)));
    let (engine, _lifecycle) = engine(&store);
    let outcome = acquire(&engine, &waiting_request(KEY)).await;
    let group = outcome.unwrap();
    let taken = asked(&store)[1].1;
    assert_ne!(group.hash, taken, "it has the token of the other salt");
    settle().await;
    assert_eq!(given_back(&store), ["a", "b"]);
    assert!(store.given_back.lock().iter().all(|it| *it == taken));
    group.delivery.delivered();
}

#[tokio::test(start_paused = true)]
async fn what_a_newer_request_goes_on_with_is_left_to_it_and_the_rest_is_given_back_at_once() {
    // A newer request has replaced this one: it has taken over the lease, or only the position, with another
    // token.
    for (answer, expected) in [
        (GiveBack::Kept, &["c"][..]),
        (GiveBack::NothingHeld, &NAMES[..]),
    ] {
        let (store, engine) = engine_on(answering([refused(), granted(), granted(), queued()]));
        store.give_backs.lock().push_back(answer);
        let caller = begin(&engine, &waiting_request(KEY)).await;
        store.tell(News::Replaced);
        let (name, error) = refusal(caller.await.unwrap());
        assert_eq!(name.as_deref(), Some("c"));
        assert!(matches!(error, AcquireError::Replaced));
        settle().await;
        assert_eq!(given_back(&store), expected);
        assert_eq!(unanswered(&store), ["c"]);
        sleep(Duration::from_mins(1)).await;
        assert_eq!(given_back(&store), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn another_request_under_the_key_is_refused() {
    let (_, engine) = engine_on(answering([Acquisition::IdempotencyMismatch]));
    let (name, error) = refusal(acquire(&engine, &waiting_request(KEY)).await);
    assert_eq!(name.as_deref(), Some("c"));
    assert!(matches!(error, AcquireError::IdempotencyMismatch));
}

#[tokio::test(start_paused = true)]
async fn the_fingerprint_covers_the_names_of_the_group() {
    let fingerprint = |names: [&'static str; 2]| async move {
        let (store, engine) = engine_on(answering([refused()]));
        let request = group_of(names, &request(KEY));
        drop(engine.acquire_group(request, || {}).await);
        let attempts = store.attempts.lock();
        attempts[0].idempotency.as_ref().unwrap().fingerprint
    };
    let [ac, ac_again, bc] = [
        fingerprint(["a", "c"]).await,
        fingerprint(["c", "a"]).await,
        fingerprint(["b", "c"]).await,
    ];
    assert_eq!(ac, ac_again);
    assert_ne!(ac, bc);
}

/// A group request for two locks, each with this limit if it is to be shared.
fn group_with<const N: usize>(
    locks: [(&str, Option<u64>); N],
    part: &AcquireRequest,
) -> GroupRequest {
    let names = GroupNames::parse(locks.map(|(name, _)| name)).unwrap();
    let part = |name: &LockName| {
        let own = locks.iter().find(|(lock, _)| *lock == name.as_str());
        let sharing = own.unwrap().1.map(|limit| Sharing {
            limit: Limit::new(limit).unwrap(),
            has_slot: true,
        });
        let mut part = AcquireRequest {
            name: name.clone(),
            ..part.clone()
        };
        part.terms.sharing = sharing;
        Ok::<_, StoreError>(part)
    };
    GroupRequest::new(names, part).unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_lock_is_asked_for_in_its_own_mode_whatever_is_repeated() {
    let locks = [("a", None), ("b", Some(2)), ("c", Some(20))];
    // With a key, the locks are first tried backwards; `b` is held then, so the round begins again in order.
    let answers = [granted(), refused(), granted(), granted(), granted()];
    let (store, engine) = engine_on(answering(answers));
    let request = group_with(locks, &waiting_request(KEY));
    let group = engine.acquire_group(request, || {}).await.unwrap();
    group.delivery.delivered();
    let attempts = store.attempts.lock();
    let asked = attempts.iter().map(|it| {
        let limit = it
            .terms
            .sharing
            .map(|sharing| u64::from(sharing.limit.get()));
        (it.name.as_str(), limit)
    });
    let [a, b, c] = locks;
    assert_eq!(asked.collect::<Vec<_>>(), [c, b, a, b, c]);
}

#[tokio::test(start_paused = true)]
async fn the_fingerprint_covers_the_mode_and_the_limit_of_each_lock() {
    let fingerprint = |limits: [Option<u64>; 2]| async move {
        let (store, engine) = engine_on(answering([refused()]));
        let locks = [("a", limits[0]), ("c", limits[1])];
        let request = group_with(locks, &request(KEY));
        drop(engine.acquire_group(request, || {}).await);
        let attempts = store.attempts.lock();
        attempts[0].idempotency.as_ref().unwrap().fingerprint
    };
    let first = fingerprint([Some(2), None]).await;
    assert_eq!(first, fingerprint([Some(2), None]).await);
    for others in [
        [None, None],
        [Some(3), None],
        [None, Some(2)],
        [Some(2), Some(2)],
    ] {
        assert_ne!(first, fingerprint(others).await, "{others:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_key_the_lock_that_has_it_is_the_last_that_gets_the_full_ttl() {
    let (store, engine) = engine_on(answering([granted(), granted(), granted(), refused()]));
    lose(&store, "b");
    let outcome = acquire(&engine, &request(KEY)).await;
    assert!(matches!(refusal(outcome).1, AcquireError::Held { .. }));
    // The deciding lease is not renewed before all others, because that would complete the group.
    let renewed: Vec<_> = renewed(&store).into_iter().map(|(name, _)| name).collect();
    assert_eq!(renewed, ["b", "a"]);
    settle().await;
    assert_eq!(given_back(&store), NAMES);
    assert_eq!(unanswered(&store), ["c"]);
}

fn unanswered(store: &ScriptedStore) -> Vec<String> {
    let unanswered = store.unanswered.lock();
    let names = unanswered.iter().map(|(name, ..)| name.as_str().to_owned());
    names.collect()
}

/// The answer with the deciding lease of an incomplete group, under the key of this request.
fn unfinished(salt: Salt) -> Acquisition {
    let held = HeldLease {
        ttl: Ttl::from_millis(9_999).unwrap(),
        ..held()
    };
    Acquisition::Replayed(held, salt)
}

fn token_of(salt: &Salt) -> TokenHash {
    let request = request(KEY);
    let (key, name) = (
        request.idempotency_key.unwrap(),
        LockName::new("c").unwrap(),
    );
    key.derive_token(&request.caller, &name, salt).hash()
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_goes_on_with_a_group_that_was_not_finished() {
    let salt = Salt::random();
    let (store, engine) = engine_on(answering([unfinished(salt), granted(), granted()]));
    let wanted = request(KEY);
    let group = engine.acquire_group(group(&wanted), || {}).await.unwrap();
    assert_eq!(group.hash, token_of(&salt));
    assert_eq!(asked_names(&store), ["c", "b", "a"]);
    assert!(asked(&store)[1..].iter().all(|it| it.1 == group.hash));
    // The parts have the mark of the collection that the request continues.
    let [first, second, third, fourth, ..] = *group.hash.as_bytes();
    let id = u32::from_be_bytes([first, second, third, fourth]);
    for attempt in &store.attempts.lock()[1..] {
        let group = attempt.terms.said.group.as_ref();
        assert_eq!(group.and_then(|it| it.mark.as_ref()).unwrap().id, id);
    }
    // All leases have their whole TTL before the group is answered.
    let expected = ["b", "a", "c"].map(|name| (name.to_owned(), Some(wanted.terms.ttl())));
    assert_eq!(renewed(&store), expected);
    // This is the first answer under the key, so dropping it releases the leases.
    assert!(!group.delivery.is_replay());
    drop(group);
    sleep(GRACE + Duration::from_secs(1)).await;
    assert_eq!(*store.released.lock(), [token_of(&salt)]);
    assert_eq!(given_back(&store), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_was_not_finished_and_cannot_be_burns_no_key() {
    let salt = Salt::random();
    let answers = [unfinished(salt), refused()].into_iter();
    let (store, engine) = engine_on(answering(answers.chain(all_granted())));
    let outcome = acquire(&engine, &waiting_request(KEY)).await;
    let group = outcome.unwrap();
    assert_eq!(asked_names(&store), ["c", "b", "a", "b", "c"]);
    assert_ne!(group.hash, token_of(&salt));
    settle().await;
    let recipient = RecipientId::of_attempt(&asked(&store)[0].1);
    let c = LockName::new("c").unwrap();
    let unanswered = store.unanswered.lock().clone();
    assert_eq!(unanswered, [(c, token_of(&salt), recipient)]);
    assert_eq!(given_back(&store), NAMES, "whoever has taken the others");
    assert!(
        store
            .given_back
            .lock()
            .iter()
            .all(|it| *it == token_of(&salt))
    );
    group.delivery.delivered();
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_group_that_was_not_finished_and_was_given_back_means_to_begin_anew() {
    let salt = Salt::random();
    let (store, engine) = engine_on(answering([unfinished(salt)]));
    let withdrawn = Err(Unavailability::Withdrawn.into());
    let ours = [granted(), granted(), granted()].map(Ok);
    let rest = [withdrawn].into_iter().chain(ours);
    store.acquisitions.lock().extend(rest);
    let outcome = acquire(&engine, &request(KEY)).await;
    assert_eq!(asked_names(&store), ["c", "b", "a", "b", "c"]);
    outcome.unwrap().delivery.delivered();
}

#[tokio::test(start_paused = true)]
async fn what_another_round_has_left_is_ended_before_its_lock_is_asked_for_again() {
    let salt = Salt::random();
    let answers = [refused(), granted(), granted(), unfinished(salt), granted()];
    let (store, engine) = engine_on(answering(answers));
    let outcome = acquire(&engine, &waiting_request(KEY)).await;
    let group = outcome.unwrap();
    assert_eq!(asked_names(&store), ["c", "a", "b", "c", "c"]);
    assert_eq!(group.hash, asked(&store)[4].1);
    assert_eq!(*store.given_back.lock(), [token_of(&salt)]);
    assert_eq!(unanswered(&store), ["c"]);
    group.delivery.delivered();
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_keep_the_lock_with_the_key_any_more_does_not_finish_the_group() {
    let (store, engine) = engine_on(answering(all_granted()));
    *store.adopted_by.lock() = Some(RecipientId::random());
    store.give_backs.lock().push_back(GiveBack::Kept);
    let (name, error) = refusal(acquire(&engine, &request(KEY)).await);
    assert_eq!(name.as_deref(), Some("c"));
    assert!(matches!(error, AcquireError::Replaced));
    sleep(Duration::from_mins(1)).await;
    assert_eq!(given_back(&store), ["c"], "another request has the rest");
}

#[tokio::test(start_paused = true)]
async fn what_is_granted_at_a_hang_up_stays_if_a_repeated_request_goes_on_with_it() {
    for unknown_outcome in [false, true] {
        let store = answering([granted()]).with_closed_gate();
        let next = if unknown_outcome {
            Err(unknown())
        } else {
            Ok(granted())
        };
        store.acquisitions.lock().push_back(next);
        store.give_backs.lock().push_back(GiveBack::Kept);
        let (engine, _lifecycle) = engine(&store);
        store.gate.add_permits(1);
        let caller = begin(&engine, &request(KEY)).await;
        assert_eq!(asked_names(&store), ["c", "b"]);
        caller.abort();
        store.open_gate();
        sleep(Duration::from_mins(1)).await;
        assert_eq!(given_back(&store), ["c"]);
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_key_a_lock_that_may_have_been_granted_decides_about_those_before_it() {
    for leave in [Ok(Leaving::Granted(held())), Err(unknown())] {
        let store = answering([refused(), granted(), granted(), queued()]).answering_leave(leave);
        store.give_backs.lock().push_back(GiveBack::Kept);
        let (engine, _lifecycle) = engine(&store);
        let caller = begin(&engine, &waiting_request(KEY)).await;
        caller.abort();
        sleep(Duration::from_mins(1)).await;
        assert_eq!(given_back(&store), ["c"]);
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_key_what_may_have_been_granted_is_given_back_at_once_and_burns_no_key() {
    let (store, engine) = engine_on(answering([refused(), granted(), granted()]));
    let last = Err(unknown());
    store.acquisitions.lock().push_back(last);
    let outcome = acquire(&engine, &waiting_request(KEY)).await;
    assert!(matches!(refusal(outcome).1, AcquireError::Store(_)));
    settle().await;
    assert_eq!(given_back(&store), NAMES);
    assert_eq!(unanswered(&store), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn the_rest_stays_only_if_somebody_else_has_ended_the_lock_that_has_the_key() {
    // The deciding lease has ended already: either another gateway answered the group again and then the lock
    // was broken, or an earlier copy of the release ended the lease and its reply was lost.
    for (lost_reply, expected) in [(None, &["c"][..]), (Some(unknown()), &NAMES[..])] {
        let (store, engine) = engine_on(answering(all_granted()));
        store.give_back_errors.lock().extend(lost_reply);
        let nothing = GiveBack::NothingHeld;
        store.give_backs.lock().push_back(nothing);
        drop(acquire(&engine, &request(KEY)).await);
        sleep(GRACE + Duration::from_secs(1)).await;
        assert_eq!(given_back(&store), expected);
    }
}
