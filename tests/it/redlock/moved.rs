//! A node whose address leads to another server while the first one lives on.

use super::rig::{Rig, attempt, eventually};
use crate::{
    redis::moved::{connections_at, kill_one},
    support::RedisServer,
};

#[tokio::test]
async fn a_node_whose_address_has_moved_votes_at_the_new_server_alone() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    rig.grant(&attempt("before")).await;
    let spare = RedisServer::start().await;
    proxies[0].lead_to(spare.port());
    kill_one(rig.server(0), false).await;
    eventually("no connection leads to the first server", async || {
        (connections_at(rig.server(0)).await == [0, 0]).then_some(())
    })
    .await;
    rig.all_vote().await;
    for number in 0..50 {
        let asked = attempt(&format!("name-{number}"));
        rig.grant(&asked).await;
        let key = format!("lg:{{{}}}:lock", asked.name);
        assert_eq!(rig.server(0).integer(&["EXISTS", &key]).await, 0);
    }
    assert_eq!(connections_at(rig.server(0)).await, [0, 0]);
}
