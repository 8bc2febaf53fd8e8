//! Lists on servers with other keys beside ours, and on servers that are replaced.

use std::cell::Cell;

use latchgate::store::cursor::Cursor;

use crate::redis::prelude::*;

async fn walk(rig: &Rig, cursor: Option<Cursor>) -> BTreeMap<String, Holder> {
    let pages = rig.pages(100, cursor).await;
    let locks = pages.into_iter().flat_map(|page| page.locks);
    locks
        .map(|lock| (lock.name.to_string(), lock.holder))
        .collect()
}

#[tokio::test]
async fn what_is_not_ours_shows_as_foreign_and_what_is_no_lock_not_at_all() {
    let rig = Rig::start().await;
    let server = &rig.server;
    rig.grant(&attempt("ours")).await;
    for held in ["expires", "2newer"] {
        let key = format!("lg:{{{held}}}:lock");
        server.run(&["SET", &key, held, "PX", "60000"]).await;
    }
    server.run(&["SET", "lg:{for-ever}:lock", "x"]).await;
    server.run(&["RPUSH", "lg:{odd-lock}:lock", "x"]).await;
    for (key, value) in [
        ("lg:{a}:x}:lock", "no name"),
        ("lg:{}:lock", "no name"),
        ("lg:{ä}:lock", "no name"),
        ("xlg:{b}:lock", "no lock"),
        ("lg:{b}:of:2", "no lock"),
    ] {
        server.run(&["SET", key, value]).await;
    }
    let walked = walk(&rig, None).await;
    let names: Vec<&str> = walked.keys().map(String::as_str).collect();
    let expected = ["2newer", "expires", "for-ever", "odd-lock", "ours"];
    assert_eq!(names, expected);
    for (name, holder) in walked {
        let Holder::Foreign { expires_in, mark } = holder else {
            let expected = matches!(holder, Holder::Lease(_)) && name == "ours";
            assert!(expected, "{holder:?}");
            continue;
        };
        assert_eq!(mark.is_some(), name != "odd-lock", "{name}");
        match expires_in {
            Some(left) => assert!(left > Duration::from_secs(50), "{name}: {left:?}"),
            None => assert!(["for-ever", "odd-lock"].contains(&name.as_str()), "{name}"),
        }
    }
}

#[tokio::test]
async fn a_server_that_was_started_anew_is_walked_through_anew() {
    // With `appendfsync always`, all grants are in the log when the server is killed.
    let mut rig = Rig::on(RedisServer::start_logged().await);
    for number in 0..200 {
        rig.grant(&attempt(&format!("lock:{number}"))).await;
    }
    let first = rig.list(&list_query(20, None)).await.unwrap();
    assert!(first.next.is_some());
    rig.server.kill();
    rig.server.start_again().await;
    // A cursor of another run of the server would point to an arbitrary position.
    let walked = eventually("the server is back", async || {
        rig.list(&list_query(1, None)).await.ok()?;
        Some(walk(&rig, first.next).await)
    })
    .await;
    assert_eq!(walked.len(), 200);
}

#[tokio::test]
async fn a_replica_shows_nothing() {
    let rig = Rig::start().await;
    rig.run(&["REPLICAOF", "127.0.0.1", "1"]).await;
    assert_unavailable(rig.list(&list_query(100, None)).await);
    rig.run(&["REPLICAOF", "NO", "ONE"]).await;
    assert!(rig.list(&list_query(100, None)).await.is_ok());
}

#[tokio::test]
async fn a_lost_reply_costs_another_question() {
    let (rig, proxy) = Rig::with_proxy().await;
    rig.grant(&attempt("lost")).await;
    for part in ["SCAN", "{lost}"] {
        proxy.strike(part, Fault::CutReply);
        let page = rig.list(&list_query(100, None)).await.unwrap();
        assert_eq!(page.locks.len(), 1);
    }
    assert_eq!(proxy.strikes(), 2);
}

#[tokio::test]
async fn the_work_for_a_page_is_bounded_whatever_is_found() {
    let rig = Rig::start().await;
    rig.run(&["DEBUG", "POPULATE", "200000"]).await;
    rig.grant(&attempt("needle")).await;
    rig.run(&["CONFIG", "RESETSTAT"]).await;
    let pages = rig.pages(100, None).await;
    assert_eq!(pages.iter().flat_map(|page| &page.locks).count(), 1);
    let pages = pages.len();
    assert!(pages > 10, "{pages} pages, most of them empty");
    let stats = rig.text(&["INFO", "commandstats"]).await;
    assert!(!stats.contains("cmdstat_keys"), "{stats}");
    let of = |field: &str| {
        let line = stats.lines().find(|line| line.starts_with("cmdstat_scan:"));
        let rest = line.unwrap().split_once(field).unwrap().1;
        let number = rest.split(',').next().unwrap();
        number.parse::<f64>().unwrap()
    };
    assert!(of("calls=") <= 32.0 * pages as f64, "{stats}");
    let expected = of("usec_per_call=") < 2_000.0;
    assert!(expected, "one step blocks the server: {stats}");
}

#[tokio::test]
async fn a_user_who_may_not_list_is_told_so_at_once_and_takes_locks_all_the_same() {
    let rig = Rig::start().await;
    rig.grant(&attempt("held")).await;
    rig.server.set_user("noscan on >pw ~* &* +@all -scan").await;
    let url = rig.server.url_as("noscan", "pw");
    let store = open(&url);
    let refused = store
        .list(&list_query(1, None))
        .await
        .unwrap_err()
        .to_string();
    let expected = refused.contains("scan") && refused.contains("ACL SETUSER");
    assert!(expected, "{refused}");
    let Some(Health::Misconfigured(what)) = health(&store, "permissions").await else {
        panic!("ready without SCAN");
    };
    assert!(what.starts_with("the user may not run SCAN;"), "{what}");
    let taken = store.must_hold(attempt("no-list")).await;
    store.must_release(&taken).await;
}

#[tokio::test]
async fn leases_are_shown_without_a_script_for_each() {
    let rig = Rig::start().await;
    for number in 0..300 {
        rig.grant(&attempt(&format!("lock:{number}"))).await;
    }
    rig.run(&["SET", "lg:{foreign}:lock", "x"]).await;
    rig.run(&["CONFIG", "RESETSTAT"]).await;
    assert_eq!(walk(&rig, None).await.len(), 301);
    assert!(rig.server.calls("getrange").await >= 301);
    // Scripts run only for the foreign lock and for the probe.
    let scripts = rig.server.calls("evalsha").await + rig.server.calls("eval").await;
    assert!(scripts < 20, "{scripts}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_passes_on_while_it_is_looked_at_is_never_taken_for_a_foreign_one() {
    let rig = Rig::start().await;
    let looks = Cell::new(0);
    let passing = async {
        let mut passed = 0;
        while passed < 400 || looks.get() <= 20 {
            passed += 1;
            let (one, two) = (attempt("passes"), attempt("still"));
            rig.grant(&one).await;
            rig.grant(&two).await;
            rig.must_release(&one).await;
            rig.must_release(&two).await;
        }
    };
    let mut passing = std::pin::pin!(passing);
    loop {
        let page = tokio::select! {
            () = &mut passing => break,
            page = async { rig.list(&list_query(100, None)).await } => page.unwrap(),
        };
        looks.set(looks.get() + 1);
        for lock in page.locks {
            assert!(matches!(lock.holder, Holder::Lease(_)), "{lock:?}");
        }
    }
}
