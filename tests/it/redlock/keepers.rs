//! Who keeps a lease that is at several nodes, and what others end of it.

use latchgate::{
    lock::KeeperId,
    store::{
        Store,
        contract::{Release, Renewal, RenewalTtl, Renewer},
    },
};

use super::rig::{Rig, eventually};
use crate::{
    redis::rig::{runs, write_down_everything},
    support::Fault,
};

#[tokio::test]
async fn whoever_keeps_it_no_more_ends_nothing_at_the_nodes_that_it_has_not_heard_of() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    let (asked, _) = rig.grant_everywhere("lock").await;
    let (first, second) = (KeeperId::of_attempt(&asked.token), KeeperId::random());
    let adopted = rig.store.renew_as(
        Renewer::Adopter(second),
        &asked.name,
        &asked.token,
        RenewalTtl::default(),
    );
    let adopted = adopted.await;
    assert!(matches!(adopted, Ok(Renewal::Renewed(..))), "{adopted:?}");
    // The adoption did not get through to one node, and another answers late.
    let forget = ["HDEL", "lg:{lock}:info", "keeper"];
    rig.server(2).run(&forget).await;
    write_down_everything(rig.server(0)).await;
    proxies[1].strike(&asked.token.to_string(), Fault::HoldReply);
    let release = rig
        .store
        .release_as(Some(first), &asked.name, &asked.token)
        .await;
    assert!(release != Ok(Release::Released), "{release:?}");
    proxies[1].let_go();
    // What is left is swept: here, in two commands, and there is nothing to sweep.
    eventually("it was swept", async || {
        (runs(rig.server(0), &asked.token).await >= 3).then_some(())
    })
    .await;
    let renewal = rig.store.renew_as(
        Renewer::Keeper(second),
        &asked.name,
        &asked.token,
        RenewalTtl::default(),
    );
    let renewal = renewal.await;
    assert!(matches!(renewal, Ok(Renewal::Renewed(..))), "{renewal:?}");
    assert_eq!(rig.holds(&asked.name).await, 2);
}
