//! A restarted node does not vote before all leases have ended that it may have lost.

use std::cell::Cell;

use latchgate::config::Persistence;

use crate::redlock::prelude::*;

pub(super) fn forgetful(max_ttl_ms: u64) -> RedlockConfig {
    RedlockConfig {
        max_ttl_ms: Millis(max_ttl_ms),
        persistence: Persistence::Unknown,
        ..quick()
    }
}

#[tokio::test]
async fn a_new_quorum_waits_says_so_and_then_votes() {
    let started = Instant::now();
    let rig = Rig::on(Nodes::start(3).await, &forgetful(2_000));
    let error = rig.store.acquire(&attempt("lock")).await.unwrap_err();
    assert_eq!(error.label(), "unavailable");
    assert!(error.to_string().contains("it votes in"), "{error}");
    assert_health(&rig.store, "votes", Health::Outage, "it votes in").await;
    let refuses_for = rig.check("votes").await.refuses_for;
    let left = refuses_for.expect("nobody knows for how long");
    assert!(
        !left.is_zero() && left <= Duration::from_secs(3),
        "{left:?}"
    );
    let asked = attempt("lock");
    eventually("the nodes vote", async || {
        rig.store.acquire(&asked).await.ok()
    })
    .await;
    assert!(started.elapsed() >= Duration::from_secs(2));
    until_passing(&rig.store, "votes").await;
    assert_eq!(rig.check("votes").await.refuses_for, None);
}

#[tokio::test]
async fn one_that_was_too_busy_to_say_how_long_it_has_run_votes_when_that_is_over() {
    let config = forgetful(1_000);
    let rig = Rig::on(Nodes::start(3).await, &config);
    rig.all_vote().await;
    for node in [0, 1] {
        let server = rig.server(node);
        server
            .run(&["CONFIG", "SET", "busy-reply-threshold", "10"])
            .await;
        let mut busy = server.connection().await;
        rig.lifecycle.spawn(async move {
            let script = cmd(&["EVAL", "while true do end", "0"]);
            drop(busy.send_packed_command(&script).await);
        });
        until("the script runs", async || {
            let ping = server.run(&["PING"]).await;
            matches!(ping, Value::ServerError(_))
        })
        .await;
    }
    // The store connects while the nodes only answer that they are busy.
    let late = nodes::open(&rig.nodes.url(), &config, &rig.lifecycle);
    assert_unavailable(late.acquire(&attempt("lock")).await);
    for node in [0, 1] {
        rig.server(node).run(&["SCRIPT", "KILL"]).await;
    }
    until("it is granted", async || {
        let asked = attempt("lock");
        matches!(late.acquire(&asked).await, Ok(Acquisition::Granted(_)))
    })
    .await;
}

#[tokio::test]
async fn a_new_quorum_votes_at_once_where_that_is_said() {
    let config = with(forgetful(60_000), |it| it.vote_at_once = true);
    let rig = Rig::on(Nodes::start(3).await, &config);
    granted(rig.store.acquire(&attempt("lock")).await);
}

/// Asserts that a lease of three seconds lives that long, whatever happens to two of the three nodes.
pub(super) async fn a_lease_outlasts(mut rig: Rig, trouble: impl AsyncFnOnce(&mut Rig)) {
    let asked = with(attempt("lock"), |it| it.terms.set_ttl(ttl(3_000)));
    let held_from = Cell::new(Instant::now());
    eventually("the nodes vote", async || {
        held_from.set(Instant::now());
        rig.store.acquire(&asked).await.ok()
    })
    .await;
    trouble(&mut rig).await;
    rig.store.until_granted(&attempt("lock")).await;
    let held_for = held_from.get().elapsed();
    assert!(
        held_for >= Duration::from_secs(3),
        "two have had it together"
    );
}

#[tokio::test]
async fn nodes_that_forget_in_a_restart_do_not_grant_what_is_held() {
    let rig = Rig::on(Nodes::forgetful(3).await, &forgetful(3_000));
    a_lease_outlasts(rig, async |rig| {
        for node in [0, 1] {
            rig.server_mut(node).kill();
            rig.server_mut(node).start_again().await;
        }
    })
    .await;
}
