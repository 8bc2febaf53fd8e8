//! What callers are told about the end of a lease while the nodes do not agree on it yet.

use crate::redlock::prelude::*;

/// Longer than the gateway waits for a node that cannot change the outcome.
const A_WHILE: Duration = Duration::from_millis(300);

/// More faults than inspections can come meanwhile.
const LOOKS: usize = 64;

async fn forget(rig: &Rig, node: usize) {
    let forgotten = ["DEL", "lg:{lock}:lock", "lg:{lock}:info"];
    rig.server(node).run(&forgotten).await;
}

#[tokio::test]
async fn what_one_node_shows_and_another_does_not_the_late_one_decides() {
    for has_ended in [true, false] {
        let (rig, proxies) = Rig::behind_proxies(3, &patient()).await;
        let (asked, lease) = rig.grant_everywhere("lock").await;
        forget(&rig, 1).await;
        if has_ended {
            forget(&rig, 2).await;
        }
        for _ in 0..LOOKS {
            proxies[2].strike("lg:{lock}:lock", Fault::HoldReply);
        }
        let mut shown = Box::pin(rig.store.inspect(&asked.name));
        let early = timeout(A_WHILE, &mut shown).await;
        assert!(early.is_err(), "nobody can know yet: {early:?}");
        proxies[2].let_go();
        let shown = shown.await.unwrap().holder;
        let fence = shown.map(|holder| match holder {
            Holder::Lease(lease) => lease.fence,
            Holder::Shared(_) | Holder::Foreign { .. } => panic!("{holder:?}"),
        });
        assert_eq!(fence, (!has_ended).then_some(lease.fence));
    }
}

#[tokio::test]
async fn a_release_that_was_asked_for_and_whose_replies_were_lost_is_unknown() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    let (holder, _) = rig.grant_everywhere("lock").await;
    let request = ReleaseRequest {
        by: None,
        reason: Reason::new("a test").unwrap(),
        within: Duration::from_mins(5),
    };
    let asked = rig
        .store
        .request_release(&holder.name, None, &request)
        .await;
    assert!(matches!(asked, Ok(Requesting::Requested(_))), "{asked:?}");
    for proxy in &proxies {
        proxy.strike("lg:{lock}:wanted", Fault::CutReply);
    }
    assert_unknown(rig.store.release(&holder.name, &holder.token).await);
}

/// A lease that one node has, a second node does not have, and the third does not reply.
async fn undecided() -> (Rig, Attempt, HeldLease) {
    let rig = Rig::start(3).await;
    let (asked, lease) = rig.grant_everywhere("lock").await;
    forget(&rig, 1).await;
    rig.server(2).freeze();
    (rig, asked, lease)
}

#[tokio::test]
async fn who_inspects_what_a_silent_node_decides_is_told_that_it_is_not_known() {
    let (rig, asked, _) = undecided().await;
    assert_unavailable(rig.store.inspect(&asked.name).await);
    rig.server(2).thaw();
}

#[tokio::test]
async fn who_does_not_get_what_a_silent_node_decides_is_shown_no_holder() {
    let (rig, ..) = undecided().await;
    let refused = rig.store.acquire(&attempt("lock")).await;
    let Ok(Acquisition::Held(contention)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(contention.holder, None);
    rig.server(2).thaw();
}

#[tokio::test]
async fn who_breaks_what_a_silent_node_decides_is_not_told_that_he_has() {
    let (rig, asked, lease) = undecided().await;
    let breaking = rig.store.break_lock(&asked.name, Some(lease.fence.into()));
    assert_unknown(breaking.await);
    rig.server(2).thaw();
    // The lease has ended all the same.
    rig.nothing_left(&asked.name).await;
}

/// A gateway whose break has ended a lease at the second node and is on its way to the others; and another gateway,
/// which asks the first two nodes directly and the third through a proxy.
struct Race {
    rig: Rig,
    breaks: Vec<Proxy>,
    other: RedlockStore,
    third: Proxy,
    asked: Attempt,
    _lifecycle: Lifecycle,
}

// === impl Race ===

impl Race {
    async fn prepare() -> Self {
        let (rig, breaks) = Rig::behind_proxies(3, &patient()).await;
        let lifecycle = Lifecycle::new();
        let third = Proxy::start(rig.server(2).port(), &lifecycle).await;
        let ports = [
            rig.server(0).port(),
            rig.server(1).port(),
            third.url().node().port(),
        ];
        let other = nodes::open(&nodes::url(&ports), &patient(), &lifecycle);
        let warm = attempt("warm");
        let lease = other.acquire(&warm).await;
        assert!(matches!(lease, Ok(Acquisition::Granted(_))), "{lease:?}");
        other.must_release(&warm).await;
        let (asked, _) = rig.grant_everywhere("lock").await;
        for node in [0, 2] {
            breaks[node].strike(&asked.token.to_string(), Fault::HoldRequest);
        }
        Self {
            rig,
            breaks,
            other,
            third,
            asked,
            _lifecycle: lifecycle,
        }
    }

    /// Lets the break reach the second node, runs `meanwhile`, and then lets the break reach the other nodes.
    async fn run<T>(
        &self,
        meanwhile: impl Future<Output = T>,
    ) -> (Result<Breaking, StoreError>, T) {
        let meanwhile = async {
            for node in [0, 2] {
                self.breaks[node].struck(1).await;
            }
            until_integer(self.rig.server(1), &["EXISTS", "lg:{lock}:lock"], 0).await;
            let done = meanwhile.await;
            self.breaks.iter().for_each(Proxy::let_go);
            done
        };
        tokio::join!(self.rig.store.break_lock(&self.asked.name, None), meanwhile)
    }
}

#[tokio::test]
async fn of_a_break_and_a_release_at_once_the_release_has_ended_what_it_ended_at_a_majority() {
    let race = Race::prepare().await;
    let (name, token) = (&race.asked.name, &race.asked.token);
    let (breaking, release) = race.run(race.other.release(name, token)).await;
    assert!(matches!(release, Ok(Release::Released(_))), "{release:?}");
    assert_eq!(breaking, Ok(Breaking::NotHeld));
}

#[tokio::test]
async fn of_a_break_and_a_release_at_once_the_break_has_ended_what_it_ended_at_a_majority() {
    let race = Race::prepare().await;
    let (name, token) = (&race.asked.name, &race.asked.token);
    race.third.strike(&token.to_string(), Fault::HoldRequest);
    let mut release = Box::pin(race.other.release(name, token));
    let early = async { timeout(A_WHILE, &mut release).await.is_err() };
    let (breaking, too_early_to_know) = race.run(early).await;
    assert!(too_early_to_know, "one node decides it");
    assert!(matches!(breaking, Ok(Breaking::Broken(_))), "{breaking:?}");
    race.third.let_go();
    let lost = Loss::Broken { held: false };
    assert_eq!(release.await, Ok(Release::Lost(lost)));
}

#[tokio::test]
async fn of_two_breaks_at_once_one_is_told_that_it_has_ended_the_lease() {
    let race = Race::prepare().await;
    let (breaking, other) = race
        .run(race.other.break_lock(&race.asked.name, None))
        .await;
    assert!(matches!(other, Ok(Breaking::Broken(_))), "{other:?}");
    assert_unknown(breaking);
}
