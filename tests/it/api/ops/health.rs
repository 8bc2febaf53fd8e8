//! Health and figures: `GET /healthz`, `GET /readyz` and `GET /stats`.

use std::cmp::Reverse;

use latchgate::store::contract::{Check, Health};

use crate::api::prelude::*;

fn checks(service: &Service, found: Vec<Health>) {
    let names = ["connection", "permissions", "clock"];
    *service.script.check.lock().unwrap() = names
        .into_iter()
        .zip(found)
        .map(|(name, health)| Check {
            name,
            health,
            note: None,
            refuses_for: None,
        })
        .collect();
}

#[tokio::test]
async fn healthz_never_asks_the_store() {
    let service = Service::start();
    service.script.paused.set();
    let answer = service.get("/healthz").await.is(200);
    assert_eq!(answer["status"], "ok");
    assert_eq!(answer["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(answer["commit"], latchgate::release::COMMIT);
}

#[tokio::test]
async fn an_outage_is_reported_and_does_not_take_the_gateway_out_of_service() {
    let service = Service::start();
    let found = vec![
        Health::Outage("no answer".to_owned()),
        Health::Warning("slow".to_owned()),
        Health::Passing,
    ];
    checks(&service, found);
    let answer = service.get("/readyz").await.is(200);
    assert_eq!(
        answer.json(),
        json!({
            "checks": [
                {"detail": "no answer", "name": "connection", "status": "outage"},
                {"detail": "slow", "name": "permissions", "status": "warning"},
                {"name": "clock", "status": "passing"}, {"name": "draining", "status": "passing"},
            ],
            "status": "ready",
        })
    );
}

#[tokio::test]
async fn a_gateway_that_cannot_keep_its_promises_is_not_ready() {
    let service = Service::start();
    checks(
        &service,
        vec![Health::Misconfigured("locks are evicted".to_owned())],
    );
    let answer = service.get("/readyz").await.is(503);
    assert_eq!(answer["status"], "not-ready");
    assert_eq!(answer["checks"][0]["detail"], "locks are evicted");
}

#[tokio::test]
async fn a_gateway_that_is_about_to_stop_is_not_ready_but_alive() {
    let service = Service::start();
    service.lifecycle.withdraw();
    let answer = service.get("/readyz").await.is(503);
    assert_eq!(answer["checks"][0]["status"], "draining");
    assert_eq!(service.get("/healthz").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_an_outage_before_a_probe_gives_up() {
    let service = Service::start();
    service.script.paused.set();
    let began = Instant::now();
    let answer = service.get("/readyz").await;
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(answer.status, 200);
    assert_eq!(answer["checks"][0]["status"], "outage");
}

async fn stats(service: &Service) -> Value {
    let answer = service.get("/stats").await.is(200);
    assert_eq!(answer.header("cache-control"), "no-store");
    answer.json()
}

#[tokio::test]
async fn a_gateway_that_has_done_nothing_says_so() {
    let service = Service::start();
    let connection = Check {
        name: "connection",
        health: Health::Warning("slow".to_owned()),
        note: None,
        refuses_for: None,
    };
    service.script.check.lock().unwrap().push(connection);
    let mut told = stats(&service).await;
    assert_eq!(told["instance"].as_str().unwrap().len(), 16);
    assert_eq!(stats(&service).await["instance"], told["instance"]);
    assert!(told["uptime_ms"].as_u64().unwrap() < 60_000);
    for field in ["instance", "uptime_ms", "version"] {
        told[field] = json!(format!("[{field}]"));
    }
    told.as_object_mut().unwrap().remove("renew_margin");
    assert_eq!(
        told,
        json!({
            "checks": [
                {"detail": "slow", "name": "connection", "status": "warning"},
                {"name": "draining", "status": "passing"},
            ],
            "contended": [], "event_streams": 0, "held_streams": 0, "incidents": [],
            "instance": "[instance]", "longest_waits": [],
            "leases": 0, "longest_hold_ms": null, "longest_wait_ms": null,
            "shared_leases": 0, "status": "ready", "store": "embedded", "store_changes": [],
            "totals": {
                "abandoned_waits": 0,
                "acquires": {
                    "again": 0, "failed": 0, "granted": 0, "held": 0, "refused": 0,
                    "unavailable": 0, "unknown": 0,
                },
                "broken": 0,
                "expired_while_held": 0, "given_back": 0, "handoffs": 0,
                "releases": {
                    "adopted": 0, "failed": 0, "lost": 0, "released": 0, "unavailable": 0,
                    "unknown": 0,
                },
                "renewals": {
                    "adopted": 0, "failed": 0, "lost": 0, "renewed": 0, "unavailable": 0,
                    "unknown": 0,
                },
                "shared_grants": 0, "stale_writes_refused": 0, "store_errors": 0,
            },
            "uptime_ms": "[uptime_ms]", "version": "[version]", "waiters": 0,
        })
    );
}

#[tokio::test]
async fn what_it_does_is_counted() {
    let service = Service::start();
    service.acquire("").await;
    service
        .script
        .acquire
        .ok(held_by(contention(0).holder.unwrap()));
    service.acquire("").await;
    service.call("PUT /locks/a/renew", WITH_TOKEN).await;
    service.call("DELETE /locks/b", WITH_TOKEN).await;
    let told = stats(&service).await;
    let totals = &told["totals"];
    assert_eq!(totals["acquires"]["granted"], 1);
    assert_eq!(totals["acquires"]["held"], 1);
    assert_eq!(totals["renewals"]["renewed"], 1);
    assert_eq!(totals["releases"]["released"], 1);
    let leases = told["leases"].as_u64().unwrap();
    assert!(leases >= 1 && told["longest_hold_ms"].is_u64(), "{told}");
}

#[tokio::test]
async fn how_much_of_the_ttl_was_left_falls_into_a_bucket() {
    let service = Service::start();
    let lease = service.acquire("").await.json();
    let token = lease["token"].as_str().unwrap();
    let headers = [("lock-token", token)];
    service.call("PUT /locks/a/renew", &headers).await.is(200);
    let margin = &stats(&service).await["renew_margin"];
    let bounds = margin["bounds_ms"].as_array().unwrap();
    let counts = margin["counts"].as_array().unwrap();
    assert_eq!(counts.len(), bounds.len() + 1);
    // The remaining time is nearly thirty seconds, so this bucket counts it.
    let bucket = bounds.iter().position(|bound| *bound == 30_000).unwrap();
    for (at, count) in counts.iter().enumerate() {
        assert_eq!(*count, u64::from(at == bucket), "{counts:?}");
    }
}

#[tokio::test]
async fn what_is_waited_for_is_shown_to_those_who_may_view_it_most_first() {
    let key = Key::new();
    let team = Key::new();
    let counts = Key::new();
    let file = [
        key.entry("all", "acquire = ['*']\nview = ['*']"),
        team.entry("team", "view = ['team:']\nmetrics = true"),
        counts.entry("counts", "metrics = true"),
    ]
    .concat();
    let (service, ..) = Service::with_gate(Config::default(), &file);
    let names = ["team:b", "a", "team:b"];
    let mut tasks = Vec::new();
    for name in names {
        service.script.acquire.ok(queued(0));
        let line = format!("POST /locks/{name}");
        let headers = [JSON[0], key.auth()];
        tasks.push(service.unread(request(&line, &headers, r#"{"wait_ms": 50000}"#)));
    }
    let waiting = join_all(tasks);
    let looks = async {
        until("all wait", || service.script.acquired() == names.len()).await;
        let ask = async |key: &Key| {
            let answer = service.call("GET /stats", &[key.auth()]).await.is(200);
            let told = answer.json();
            assert_eq!(told["waiters"], 3);
            assert!(told["longest_wait_ms"].is_u64());
            let by_wait = told["longest_waits"].as_array().unwrap();
            assert!(by_wait.is_sorted_by_key(|it| Reverse(it["longest_wait_ms"].as_u64())));
            assert_eq!(by_wait.len(), told["contended"].as_array().unwrap().len());
            let contended = told["contended"].as_array().unwrap().clone();
            let shown = |lock: &Value| {
                assert!(lock["longest_wait_ms"].is_u64());
                (lock["name"].clone(), lock["waiters"].clone())
            };
            contended.iter().map(shown).collect::<Vec<_>>()
        };
        let of = |name: &str, waiters: u64| (json!(name), json!(waiters));
        assert_eq!(ask(&key).await, [of("team:b", 2), of("a", 1)]);
        assert_eq!(ask(&team).await, [of("team:b", 2)]);
        assert_eq!(ask(&counts).await, []);
    };
    tokio::select! {
        _ = waiting => panic!("nobody is granted anything"),
        () = looks => {}
    }
}

#[tokio::test]
async fn a_break_is_an_incident_for_those_who_may_view_the_lock() {
    let [ops, team, counts] = [Key::new(), Key::new(), Key::new()];
    let file = [
        ops.entry("ops", "view = ['*']\nbreak = ['*']"),
        team.entry("team", "view = ['team:']\nmetrics = true"),
        counts.entry("counts", "metrics = true"),
    ]
    .concat();
    let service = Service::with_keys(&file);
    for name in ["team:b", "a"] {
        let holder = contention(0).holder.unwrap();
        service.script.break_lock.ok(Breaking::Broken(holder));
        let line = format!("POST /locks/{name}/break");
        let headers = [JSON[0], ops.auth()];
        let body = r#"{"reason": "it hangs"}"#;
        service.ask(&line, &headers, body).await.is(200);
    }
    let ask = async |key: &Key| {
        let answer = service.call("GET /stats", &[key.auth()]).await.is(200);
        answer.json()["incidents"].as_array().unwrap().clone()
    };
    let seen = ask(&ops).await;
    let names: Vec<_> = seen.iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["a", "team:b"], "the newest comes first");
    for incident in &seen {
        let told = ["kind", "by", "reason"].map(|field| incident[field].clone());
        assert_eq!(told, ["broken", "ops", "it hangs"]);
        assert!(incident["at"].as_str().unwrap().ends_with('Z'));
        assert!(incident.get("owner").is_some());
    }
    let seen = ask(&team).await;
    assert!(seen.len() == 1 && seen[0]["name"] == "team:b", "{seen:?}");
    assert!(ask(&counts).await.is_empty());
}

#[tokio::test]
async fn who_sees_only_a_part_does_not_learn_of_all() {
    let keys = [Key::new(), Key::new(), Key::new()];
    let file = [
        keys[0].entry("part", "acquire = ['*']\nview = ['team:']\nbreak = ['*']"),
        keys[1].entry("all", "view = ['*']\nrequests_per_second = 1"),
        keys[2].entry("metrics", "metrics = true"),
    ]
    .concat();
    let service = Service::with_keys(&file);
    let ask = async |headers: &[(&str, &str)]| service.call("GET /stats", headers).await;
    let samples = service.call("GET /samples", &[keys[0].auth()]).await;
    samples.is_problem(403, "forbidden");
    let samples = service.call("GET /samples", &[keys[2].auth()]).await;
    assert_eq!(samples.status, 200);
    ask(&[keys[0].auth()]).await.is_problem(403, "forbidden");
    assert_eq!(ask(&[keys[1].auth()]).await.status, 200);
    ask(&[keys[1].auth()]).await.is_problem(429, "rate-limited");
    assert_eq!(ask(&[keys[2].auth()]).await.status, 200);
    assert_eq!(ask(&[]).await.problem(), (401, "unauthorized"));
    assert!(service.get("/stats?x=1").await.status == 401);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_holds_nobody_up_for_long() {
    let service = Service::start();
    service.script.paused.set();
    let began = Instant::now();
    let told = stats(&service).await;
    assert!(
        began.elapsed() <= Duration::from_millis(800),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(told["status"], "ready");
}

#[tokio::test(start_paused = true)]
async fn the_figures_of_the_last_hour_are_kept_a_sample_every_ten_seconds() {
    let service = Service::start();
    service.acquire("").await;
    sleep(Duration::from_secs(25)).await;
    let told = service.get("/samples").await.is(200).json();
    let instance = stats(&service).await["instance"].clone();
    assert_eq!(
        (&told["instance"], &told["interval_ms"]),
        (&instance, &json!(10_000))
    );
    let samples = told["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 3, "{told}");
    let uptimes: Vec<_> = samples
        .iter()
        .map(|it| it["uptime_ms"].as_u64().unwrap())
        .collect();
    assert!(uptimes.is_sorted() && uptimes[2] >= 20_000, "{uptimes:?}");
    let last = samples.last().unwrap();
    assert_eq!(last["totals"]["acquires"]["granted"], 1);
    assert_eq!(last["renew_margin"], stats(&service).await["renew_margin"]);
    assert!(last["at"].as_str().unwrap().ends_with('Z'));
    for field in [
        "leases",
        "shared_leases",
        "longest_hold_ms",
        "waiters",
        "longest_wait_ms",
    ] {
        assert!(last.get(field).is_some(), "{field}");
    }
    sleep(Duration::from_hours(2)).await;
    let told = service.get("/samples").await.json();
    assert_eq!(told["samples"].as_array().unwrap().len(), 360);
}
