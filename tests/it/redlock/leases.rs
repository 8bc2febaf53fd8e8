//! How long a lease of a quorum lasts, and what a client is told that was paused.

use std::time::{Duration, UNIX_EPOCH};

use latchgate::{
    clock::{Clock, SystemClock},
    store::{
        Store,
        contract::{Acquisition, Attempt, Loss, Release, Renewal},
    },
};
use tokio::time::Instant;

use super::rig::{Rig, attempt, eventually, ttl};
use crate::support::{Fault, Proxy};

#[tokio::test]
async fn what_is_left_of_a_lease_is_less_than_its_ttl_by_the_drift_and_what_it_took() {
    let rig = Rig::start(3).await;
    rig.turn("lock").await;
    let asked = attempt("lock");
    let start = Instant::now();
    let lease = rig.grant(&asked).await;
    let took = start.elapsed();
    // 1 % of half a minute, and 2 ms.
    let most = Duration::from_millis(30_000 - 302);
    assert!(lease.expires_in <= most, "{:?}", lease.expires_in);
    assert!(lease.expires_in + took >= most, "{:?}", lease.expires_in);
}

#[tokio::test]
async fn what_the_answers_of_the_second_round_took_is_no_part_of_a_lease() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    let asked = attempt("lock");
    for proxy in &proxies {
        // The first that has the token is the reservation.
        proxy.strike_later(&asked.token.to_string(), Fault::HoldReply, 1);
    }
    let late = Duration::from_millis(300);
    let (lease, ()) = tokio::join!(rig.grant(&asked), async {
        // Of the second round, which asks no node that was late in the first.
        eventually("a majority is held", async || {
            let struck = proxies.iter().map(Proxy::strikes).sum::<usize>();
            (struck >= 2).then_some(())
        })
        .await;
        tokio::time::sleep(late).await;
        proxies.iter().for_each(Proxy::let_go);
    });
    let most = Duration::from_millis(30_000 - 302);
    assert!(lease.expires_in + late <= most, "{:?}", lease.expires_in);
}

#[tokio::test]
async fn a_client_that_was_paused_finds_its_lease_lost_and_its_fence_passed() {
    let rig = Rig::start(3).await;
    let paused = Attempt {
        ttl: ttl(200),
        ..attempt("lock")
    };
    let lease = rig.grant(&paused).await;
    let next = attempt("lock");
    let fence = eventually("the lease is over", async || {
        match rig.store.acquire(&next).await {
            Ok(Acquisition::Granted(lease)) => Some(lease.fence),
            _ => None,
        }
    })
    .await;
    assert!(fence > lease.fence);
    let renewal = rig.store.renew(&paused.name, &paused.token, None).await;
    assert_eq!(renewal, Ok(Renewal::Lost(Loss::HeldByAnother)));
    let release = rig.store.release(&paused.name, &paused.token).await;
    assert_eq!(release, Ok(Release::Lost(Loss::HeldByAnother)));
    rig.release(&next).await;
}

#[tokio::test]
async fn a_renewal_when_nothing_is_left_finds_the_lease_over_and_tells_who_was_asked_to_release_it()
{
    let rig = Rig::start(3).await;
    for (was_asked, loss) in [(false, Loss::Free), (true, Loss::Broken { held: false })] {
        let (asked, _) = rig.grant_everywhere("lock").await;
        for server in &rig.nodes.servers {
            // Its limit is over, and the node has it yet: it keeps a key for as long as its last millisecond lasts.
            let over = ["HSET", "lg:{lock}:info", "hold", "1735689601000"];
            server.run(&over).await;
            if was_asked {
                // For a minute from when the time was over that its holder had, and half of that is left.
                let now = SystemClock.wall().duration_since(UNIX_EPOCH).unwrap();
                let counts_until = (now.as_millis() + 30_000).to_string();
                let request = format!("q:{}", asked.token);
                let remembered = ["ZADD", "lg:{lock}:ended", &counts_until, &request];
                server.run(&remembered).await;
            }
        }
        let lost = rig.store.renew(&asked.name, &asked.token, None).await;
        assert_eq!(lost, Ok(Renewal::Lost(loss)));
        rig.nothing_left(&asked.name).await;
    }
}

#[tokio::test]
async fn a_lease_that_the_nodes_take_longer_to_grant_than_it_would_last_is_not_granted() {
    let rig = Rig::start(3).await;
    rig.turn("lock").await;
    let asked = Attempt {
        ttl: ttl(100),
        ..attempt("lock")
    };
    // They are busy for longer than that, and answer.
    let busy = ["DEBUG", "SLEEP", "0.3"];
    let (outcome, ..) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            rig.store.acquire(&asked).await
        },
        rig.server(0).run(&busy),
        rig.server(1).run(&busy),
        rig.server(2).run(&busy),
    );
    // By another try, after they were busy, or not at all.
    if let Ok(Acquisition::Granted(lease)) = outcome {
        assert!(lease.expires_in > Duration::ZERO);
    }
    rig.nothing_left(&asked.name).await;
}
