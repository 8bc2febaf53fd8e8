//! Redirects to other servers, and scripts that a server does not know.

use crate::redis::prelude::*;
use crate::redis::server::examination::COMMANDS;

#[tokio::test]
async fn locks_of_all_servers_are_taken_and_left() {
    let (cluster, store) = Pooled::open().await;
    for server in 0..3 {
        for name in cluster.names_on(server, 3) {
            let asked = store.must_hold(attempt(&name)).await;
            let key = format!("lg:{{{name}}}:lock");
            assert_eq!(cluster.servers[server].integer(&["EXISTS", &key]).await, 1);
            store.must_release(&asked).await;
        }
    }
    let figures = store.figures();
    assert_eq!(figures.masters.len(), 3);
    assert!(figures.masters.iter().all(|(_, reached)| *reached));
    assert_eq!(figures.clock_skew.len(), 3);
    assert_eq!(health(&store, "cluster").await, Some(Health::Passing));
}

#[tokio::test]
async fn a_server_that_was_not_named_is_found_and_one_that_does_not_answer_is_no_matter() {
    let cluster = Pooled::take().await;
    let one = cluster.servers[1].port();
    let url = cluster_url(&format!("redis+cluster://127.0.0.1:1,127.0.0.1:{one}"));
    let store = open(&url);
    for server in 0..3 {
        let lock = &cluster.names_on(server, 1)[0];
        store.must_grant(&attempt(lock)).await;
    }
}

#[tokio::test]
async fn a_slot_that_has_moved_is_followed_at_once() {
    let (cluster, store) = Pooled::open().await;
    let name = &cluster.names_on(0, 1)[0];
    let first = attempt(name);
    let before = granted(store.acquire(&first).await);
    let slot = slot_of(name);
    cluster.move_slot(slot, 0, 2).await;
    // The gateway still believes that the slot is at the first server.
    store.must_release(&first).await;
    let second = attempt(name);
    let after = granted(store.acquire(&second).await);
    assert!(after.fence > before.fence, "the counter came along");
    let key = format!("lg:{{{name}}}:lock");
    assert_eq!(cluster.servers[2].integer(&["EXISTS", &key]).await, 1);
    store.must_release(&second).await;
    cluster.move_slot(slot, 2, 0).await;
    granted(store.acquire(&attempt(name)).await);
}

#[tokio::test]
async fn a_key_of_another_type_is_named_and_leads_nobody_to_another_server() {
    let (cluster, store) = Pooled::open().await;
    for server in 0..3 {
        let asked = attempt(&cluster.names_on(server, 1)[0]);
        let ticket = format!("lg:{{{}}}:of:2{}", asked.name, asked.token);
        let there = &cluster.servers[server];
        there.run(&["RPUSH", &ticket, "mine"]).await;
        there.run(&["CONFIG", "RESETSTAT"]).await;
        assert_foreign(store.release(&asked.name, &asked.token).await, &ticket);
        let stats = there.text(&["INFO", "errorstats"]).await;
        assert!(!stats.contains("errorstat_MOVED"), "{stats}");
        there.run(&["DEL", &ticket]).await;
        granted(store.acquire(&asked).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_lost_behind_a_redirect_is_recognised_when_it_is_sent_again() {
    let cluster = Pooled::take().await;
    let config = with(quick(), |it| it.deadline_ms = Millis(30_000));
    let store = open_with(&cluster.url(), &config);
    let names = cluster.names_on(0, 2);
    let (first, second) = (keyed(&names[0], "key"), attempt(&names[1]));
    granted(store.acquire(&first).await);
    granted(store.acquire(&attempt(&cluster.names_on(2, 1)[0])).await);
    let there = format!("127.0.0.1:{}", cluster.servers[2].port());
    for name in &names {
        cluster.move_slot(slot_of(name), 0, 2).await;
    }
    // The frozen server has received the command, and answers only after the gateway has found it to be away.
    cluster.servers[2].freeze();
    let heard_no_more = async {
        until_away(&store, &there).await;
        cluster.servers[2].thaw();
    };
    let (released, acquired, ()) = tokio::join!(
        store.release(&first.name, &first.token),
        store.acquire(&second),
        heard_no_more
    );
    assert!(matches!(released, Ok(Release::Released(_))), "{released:?}");
    let lease = granted(acquired);
    store.must_release(&second).await;
    let after = granted(store.acquire(&attempt(&names[1])).await);
    assert!(after.fence > lease.fence);
    store.must_expire(&keyed(&names[0], "key")).await;
    for name in &names {
        cluster.move_slot(slot_of(name), 2, 0).await;
    }
}

#[tokio::test]
async fn a_server_that_has_forgotten_the_scripts_is_sent_them_again() {
    let (cluster, store) = Pooled::open().await;
    for turn in 0..2 {
        for server in 0..3 {
            let asked = store
                .must_hold(attempt(&cluster.names_on(server, 1)[0]))
                .await;
            store.must_release(&asked).await;
        }
        if turn == 0 {
            cluster.servers[1].run(&["SCRIPT", "FLUSH"]).await;
        }
    }
}

#[tokio::test]
async fn a_user_with_the_permissions_of_the_documentation_may_do_everything_and_one_without_is_told()
 {
    let cluster = Pooled::take().await;
    for (user, lacks) in [("all", ""), ("some", "-asking"), ("none", "-cluster")] {
        let rules = format!(
            "{user} reset on >s3cret ~lg:* &lg:* -@all {COMMANDS} +scan +getrange +asking \
             +cluster|info +cluster|slots {lacks}"
        );
        for server in cluster.masters() {
            server.set_user(&rules).await;
        }
        let port = cluster.servers[0].port();
        let url = cluster_url(&format!("redis+cluster://{user}:s3cret@127.0.0.1:{port}"));
        let store = open(&url);
        let (check, missing) = match user {
            "all" => ("permissions", None),
            "some" => ("permissions", Some("ASKING")),
            _ => ("cluster", Some("ACL SETUSER")),
        };
        eventually("it is found out", async || {
            match (health(&store, check).await, missing) {
                (Some(Health::Passing), None) => Some(()),
                (Some(Health::Misconfigured(why)), Some(it)) => why.contains(it).then_some(()),
                _ => None,
            }
        })
        .await;
        if user == "all" {
            store.must_grant(&attempt("allowed")).await;
            let page = store.list(&list_query(10, None)).await.unwrap();
            assert_eq!(page.locks.len(), 1);
        }
    }
}

#[tokio::test]
async fn a_closed_store_comes_to_rest() {
    let pooled = Pooled::take().await;
    let store = open(&pooled.url());
    granted(store.acquire(&attempt("closed")).await);
    store.close().await;
    // One thread runs everything here: a loop without an end would leave no time for other tasks.
    timeout(TIMEOUT, async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("nothing goes on");
}

#[tokio::test]
async fn a_server_of_a_cluster_and_one_that_is_of_none_are_told_from_each_other() {
    let cluster = Pooled::take().await;
    let other = cluster.names_on(1, 1);
    let alone = open(&cluster.servers[0].url());
    let refused = alone.inspect(&attempt(&other[0]).name).await;
    let Err(StoreError::Unavailable(Unavailability::Refused(why))) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains("redis+cluster://"), "{why}");

    let rig = Rig::start().await;
    let url = cluster_url(&format!("redis+cluster://127.0.0.1:{}", rig.server.port()));
    let store = open(&url);
    eventually(
        "the server says that it is part of no cluster",
        async || {
            let found = health(&store, "cluster").await;
            matches!(found, Some(Health::Misconfigured(why)) if why.contains("redis://"))
                .then_some(())
        },
    )
    .await;
}
