//! Groups of locks: `POST`, `PUT` and `DELETE /locks`.

use crate::api::prelude::*;

/// A gateway over an embedded store in a temporary directory.
struct Gateway {
    service: Service,
    _directory: TempDir,
}

impl Gateway {
    fn start() -> Self {
        let (store, directory) = embedded();
        Self {
            service: Service::over(store, Config::default()),
            _directory: directory,
        }
    }

    async fn acquire(&self, body: &Value) -> ApiResponse {
        let body = body.to_string();
        self.service.ask("POST /locks", JSON, body).await
    }

    async fn bearer(&self, line: &str, token: &str) -> ApiResponse {
        self.service.call(line, &[("lock-token", token)]).await
    }

    async fn state(&self, name: &str) -> Value {
        let answer = self.service.get(&format!("/locks/{name}")).await;
        json!([answer["state"], answer["holders"][0]["group"]])
    }
}

/// The result of each lock of a group: its name and code.
fn results(answer: &ApiResponse) -> Value {
    let results = answer["results"].as_array().unwrap().iter();
    results
        .map(|it| json!([it["name"], it["code"]]))
        .collect::<Value>()
}

#[tokio::test]
async fn several_locks_are_one_lease_object_with_one_token() {
    let gateway = Gateway::start();
    let asked =
        json!({"names": ["b", "a"], "ttl_ms": 20_000, "owner": "me", "metadata": {"k": "v"}});
    let answer = gateway.acquire(&asked).await.is(201);
    assert_eq!(answer.headers.get("location"), None);
    let lease = answer.json();
    let names: Vec<_> = lease["leases"].as_array().unwrap().iter().collect();
    assert_eq!(
        (&names[0]["name"], &names[1]["name"]),
        (&json!("a"), &json!("b"))
    );
    assert!(names.iter().all(|it| it["fencing_token"].is_u64()));
    assert_eq!(
        fields(&lease, ["ttl_ms", "owner", "metadata"]),
        json!([20_000, "me", {"k": "v"}])
    );
    assert_eq!(lease["waited_ms"], 0);
    let left = lease["expires_in_ms"].as_u64().unwrap();
    assert!((15_000..=20_000).contains(&left), "{left}");
    let token = lease["token"].as_str().unwrap();
    assert!(Token::parse(token).is_ok());

    let group = json!({"first": "a", "count": 2});
    assert_eq!(gateway.state("a").await, json!(["held", group]));
    assert_eq!(gateway.state("b").await, json!(["held", group]));

    let line = "PUT /locks?names=a,b";
    let renewed = gateway.bearer(line, token).await.is(200);
    assert_eq!(results(&renewed), json!([["a", null], ["b", null]]));
    let fence = &lease["leases"][1]["fencing_token"];
    assert_eq!(renewed["results"][1]["fencing_token"], *fence);

    let line = "DELETE /locks?names=b,a";
    let released = gateway.bearer(line, token).await.is(200);
    assert_eq!(results(&released), json!([["a", null], ["b", null]]));
    assert_eq!(gateway.state("a").await, json!(["free", null]));
}

#[tokio::test]
async fn each_part_can_be_released_by_itself_and_the_rest_is_told_of_it() {
    let gateway = Gateway::start();
    let answer = gateway.acquire(&json!({"names": ["a", "b", "c"]})).await;
    let lease = answer.json();
    let token = lease["token"].as_str().unwrap();
    let released = gateway.bearer("DELETE /locks/b", token).await;
    assert_eq!(released.status, 204);
    let names = "/locks?names=a,b,c";
    let lost = json!([["a", null], ["b", "lease-lost"], ["c", null]]);
    let renewed = gateway.bearer(&format!("PUT {names}"), token).await;
    assert_eq!((renewed.status, results(&renewed)), (200, lost.clone()));
    let released = gateway.bearer(&format!("DELETE {names}"), token).await;
    assert_eq!((released.status, results(&released)), (200, lost));
    let all = json!([
        ["a", "lease-lost"],
        ["b", "lease-lost"],
        ["c", "lease-lost"]
    ]);
    for method in ["PUT", "DELETE"] {
        let gone = gateway.bearer(&format!("{method} {names}"), token).await;
        assert_eq!(gone.problem(), (410, "lease-lost"));
        assert_eq!(results(&gone), all);
    }
}

#[tokio::test]
async fn a_lock_that_is_held_is_named() {
    let gateway = Gateway::start();
    let other = gateway
        .service
        .ask("POST /locks/b", JSON, r#"{"owner": "other"}"#)
        .await;
    assert_eq!(other.status, 201);
    let answer = gateway.acquire(&json!({"names": ["a", "b", "c"]})).await;
    assert_eq!(answer.problem(), (423, "locked"));
    let problem = answer.json();
    assert_eq!(problem["name"], "b");
    assert_eq!(problem["holders"][0]["owner"], "other");
    // The group was granted `a` before it was refused, so it must release `a`.
    let is_free = async || gateway.state("a").await == json!(["free", null]);
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_free().await {
        assert!(Instant::now() < deadline, "`a` is held still");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_repeated_request_is_answered_200_with_the_same_token() {
    let gateway = Gateway::start();
    let headers = [
        ("content-type", "application/json"),
        ("idempotency-key", "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11"),
    ];
    let ask = |body: &'static str| gateway.service.ask("POST /locks", &headers, body);
    let first = ask(r#"{"names": ["a", "b"]}"#).await;
    let again = ask(r#"{"names": ["b", "a"]}"#).await;
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(first["token"], again["token"]);
    for other in [
        r#"{"names": ["0", "b"]}"#,
        r#"{"names": ["a", "b"], "owner": "x"}"#,
    ] {
        let mismatch = ask(other).await;
        assert_eq!(mismatch.problem(), (409, "idempotency-mismatch"), "{other}");
    }
}

#[tokio::test]
async fn what_names_no_group_is_refused_and_says_why() {
    let service = Service::start();
    let cases = r#"
        {} => names: is missing; it has 2 to 16 names of locks
        {"names": null} => names: is missing; it has 2 to 16 names of locks
        {"names": "a,b"} => names: is a text; a list is expected
        {"names": {"a": "b"}} => names: is an object; a list is expected
        {"names": []} => names: has 0 names; a group has 2 to 16
        {"names": ["a"]} => names: has 1 names; a group has 2 to 16
        {"names": MANY} => names: has 17 names; a group has 2 to 16
        {"names": ["a", "b", "a"]} => names: has a more than once
        {"names": ["a", 7]} => names[1]: is 7; a text or an object is expected
        {"names": ["a", null]} => names[1]: is null; a text or an object is expected
        {"names": ["a", ["b"]]} => names[1]: is a list; a text or an object is expected
        {"names": ["a", "b\\c"]}
            => names[1]: has '\\' in it; allowed are ASCII letters, digits and . _ : @ ~ - /
        {"names": ["..", "a"]}
            => names[0]: has the segment "..", which HTTP clients and proxies remove from a path
        {"names": ["a/b", "a/hold"]} => names[1]: ends in "/hold", the path of an operation on a lock:
        .. if a proxy decodes %2F, the request reaches another lock
        {"names": ["a/b", "a/b/"]} => names[1]: begins or ends with a slash or has two in a row;
        .. proxies remove such a slash from a path
        {"names": [{"name": "a"}]} => names: has 1 names; a group has 2 to 16
        {"names": ["a", {"name": "a"}]} => names: has a more than once
        {"names": [{"name": "a", "limit": 2}, {"name": "a"}]} => names: has a more than once
        {"names": ["a", {}]} => names[1].name: is missing
        {"names": ["a", {"name": null, "mode": "shared"}]} => names[1].name: is missing
        {"names": ["a", {"name": 7}]} => names[1].name: is 7; a text is expected
        {"names": ["a", {"name": ""}]}
            => names[1].name: is empty; a lock name has 1 to 200 characters
        {"names": ["a", {"name": "b", "mode": "alone"}]}
            => names[1].mode: is not known; the modes are exclusive and shared
        {"names": ["a", {"name": "b", "limit": 0}]} => names[1].limit: is 0; allowed are 1 to 1000
        {"names": ["a", {"name": "b", "limit": 1001}]}
            => names[1].limit: is 1001; allowed are 1 to 1000
        {"names": ["a", {"name": "b", "limit": "2"}]}
            => names[1].limit: is a text; a number is expected, without quotes
        {"names": ["a", {"name": "b", "mode": "exclusive", "limit": 2}]}
            => names[1].limit: is of a shared lock; leave it out, or ask for the mode shared
        {"names": ["a", {"name": "b", "ttl_ms": 1000}]}
            => names[1].ttl_ms: is not known; the fields of this object are name, mode, limit, order
        {"names": ["a", {"name": "b"}], "mode": "shared"}
            => mode: stands beside an object in names; give each of the locks its own
        {"names": ["a", {"name": "b"}], "mode": "exclusive"}
            => mode: stands beside an object in names; give each of the locks its own
        {"names": ["a", {"name": "b", "limit": 2}], "limit": 2}
            => limit: stands beside an object in names; give each of the locks its own
    "#;
    let many: Vec<_> = (0..17).map(|n| format!("n{n}")).collect();
    for (body, error) in rows(&cases.replace("MANY", &format!("{many:?}"))) {
        let answer = service.ask("POST /locks", JSON, body.clone()).await;
        assert_eq!(answer.errors(), [error], "{body}");
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn a_query_that_names_no_group_is_refused() {
    let service = Service::start();
    let token = [("lock-token", TOKEN)];
    let queries = "?names= ?names=a ?names=a,a ?names=a,b, ?names=a,b/ ?names=a/b%2frenew,b ?names=a,../b ?names=a,b%5Cc ?names=a,b&x=1
        ?names=a,b&names=c,d ?names=a;b";
    for query in words(queries).chain([""]) {
        for method in [Method::PUT, Method::DELETE] {
            let line = format!("{method} /locks{query}");
            let answer = service.call(&line, &token).await;
            assert_eq!(answer.problem(), (400, "invalid-request"), "{line}");
        }
    }
    assert!(
        service.script.asked().is_empty(),
        "nothing was asked of the store"
    );
}

#[tokio::test]
async fn every_name_needs_the_permission() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("team", "acquire = ['team:']"));
    let headers = [JSON[0], key.auth(), WITH_TOKEN[0]];
    let acquire = r#"{"names": ["team:a", "other:b"]}"#;
    let answer = service.ask("POST /locks", &headers, acquire).await;
    assert_eq!(answer.problem(), (403, "forbidden"));
    assert!(answer.body.contains("`other:b`"), "{}", answer.body);
    let path = "/locks?names=team:a,other:b";
    let answer = service.call(&format!("PUT {path}"), &headers).await;
    assert_eq!(answer.problem(), (403, "forbidden"));
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn the_options_count_for_every_lock() {
    let service = Service::start();
    service.script.acquire.ok(held_by(Holder::Lease(held())));
    let body = r#"{"names": ["b", "a"], "ttl_ms": 60000, "max_hold_ms": 90000, "limit": 3}"#;
    service.ask("POST /locks", JSON, body).await;
    assert_eq!(service.script.acquired(), 1);
    let attempt = service.script.attempt();
    assert_eq!(attempt.name, LockName::new("a").unwrap());
    assert_eq!(
        attempt.terms.ttl().as_millis(),
        9_999,
        "until all are taken"
    );
    assert_eq!(attempt.terms.hold_limit().unwrap().as_millis(), 90_000);
    assert_eq!(attempt.terms.sharing.unwrap().limit.get(), 3);
}

#[tokio::test]
async fn each_lock_has_the_mode_and_the_limit_that_stand_with_its_name() {
    let gateway = Gateway::start();
    let names =
        json!(["c", {"name": "b", "limit": 2}, {"name": "a", "mode": "shared", "limit": null}]);
    let first = gateway.acquire(&json!({"names": names})).await.is(201);
    let shown = |list: &Value| {
        let list = list.as_array().unwrap().iter();
        list.map(|it| json!([it["name"], it["mode"], it["slot"]]))
            .collect::<Value>()
    };
    let modes = json!([
        ["a", "shared", null],
        ["b", "shared", 0],
        ["c", "exclusive", null]
    ]);
    assert_eq!(shown(&first["leases"]), modes);
    let token = first["token"].as_str().unwrap().to_owned();
    let renewed = gateway
        .bearer("PUT /locks?names=a,b,c", &token)
        .await
        .is(200);
    assert_eq!(
        shown(&renewed["results"]),
        modes,
        "a renewal shows them, too"
    );
    for lease in modes.as_array().unwrap() {
        let lock = format!("/locks/{}", lease[0].as_str().unwrap());
        let holder = &gateway.service.get(&lock).await["holders"][0];
        assert_eq!([&holder["mode"], &holder["slot"]], [&lease[1], &lease[2]]);
        assert_eq!(holder["group"], json!({"first": "a", "count": 3}));
    }
    // `c` is held alone, and `b` has one more place.
    let again = gateway.acquire(&json!({"names": names})).await;
    assert_eq!(again.problem(), (423, "locked"));
    assert_eq!(again["name"], "c");
    let beside = json!(["d", {"name": "b", "limit": 2}, {"name": "a", "mode": "shared"}]);
    let second = gateway.acquire(&json!({"names": beside})).await.is(201);
    assert_eq!(second["leases"][1]["slot"], 1);
    let full = json!(["e", {"name": "b", "limit": 2}]);
    let full = gateway.acquire(&json!({"names": full})).await;
    assert_eq!((full.status, &full["name"]), (423, &json!("b")));
    // Without a mode of its own, a name beside an object is exclusive.
    let alone = gateway
        .acquire(&json!({"names": ["a", {"name": "e"}]}))
        .await;
    assert_eq!((alone.status, &alone["name"]), (423, &json!("a")));
    gateway
        .bearer("DELETE /locks?names=a,b,c", &token)
        .await
        .is(200);
    let names = json!(["c", {"name": "b", "limit": 2}]);
    let next = gateway.acquire(&json!({"names": names})).await.is(201);
    assert_eq!(next["leases"][0]["slot"], 0);
}

#[tokio::test]
async fn a_stream_adopts_a_lease_of_a_group_in_its_mode() {
    let gateway = Gateway::start();
    let names = json!([{"name": "a", "limit": 3}, "b"]);
    let lease = gateway.acquire(&json!({"names": names})).await.is(201);
    let token = format!("Lock-Token: {}\r\n", lease["token"].as_str().unwrap());
    let connection = gateway.service.connect().await;
    let mut listener = Listener::hold(connection, &token, "").await;
    let granted = listener.expect("granted").await;
    assert_eq!(fields(&granted, ["mode", "slot"]), json!(["shared", 0]));
    assert_eq!(
        granted["fencing_token"],
        lease["leases"][0]["fencing_token"]
    );
}

#[tokio::test]
async fn a_key_covers_the_mode_and_the_limit_of_each_lock() {
    let gateway = Gateway::start();
    let headers = [
        ("content-type", "application/json"),
        ("idempotency-key", "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a12"),
    ];
    let ask = |body: &'static str| gateway.service.ask("POST /locks", &headers, body);
    let first = ask(r#"{"names": [{"name": "a", "limit": 2}, "b"]}"#).await;
    let again = ask(r#"{"names": ["b", {"name": "a", "mode": "shared", "limit": 2}]}"#).await;
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(first["token"], again["token"]);
    for other in [
        r#"{"names": ["a", "b"]}"#,
        r#"{"names": [{"name": "a", "limit": 3}, "b"]}"#,
        r#"{"names": [{"name": "a", "mode": "shared"}, "b"]}"#,
        r#"{"names": ["a", {"name": "b", "limit": 2}]}"#,
        r#"{"names": ["a", "b"], "limit": 2}"#,
    ] {
        let mismatch = ask(other).await;
        assert_eq!(mismatch.problem(), (409, "idempotency-mismatch"), "{other}");
    }
}

#[tokio::test]
async fn a_release_without_the_token_is_told_of_the_header_alone() {
    let service = Service::start();
    let body = json!({"token": TOKEN}).to_string();
    let answer = service.ask("DELETE /locks?names=a,b", JSON, body);
    let answer = answer.await.is_problem(400, "invalid-request");
    let reason = "is missing; send the token in this header";
    let error = json!({"field": "Lock-Token", "reason": reason});
    assert_eq!(answer["errors"], json!([error]));
}

#[tokio::test]
async fn the_first_name_is_hidden_from_those_who_may_not_view_that_lock() {
    let (all, team) = (Key::new(), Key::new());
    let keys = all.entry("all", "acquire = ['*']\nview = ['*']")
        + &team.entry("team", "view = ['team:']\nbreak = ['team:']");
    let (store, _directory) = embedded();
    let service = Service::over_with_keys(store, &keys);
    let names = json!({"names": ["secret:a", "team:x"]}).to_string();
    let headers = [all.auth(), JSON[0]];
    service.ask("POST /locks", &headers, names).await.is(201);
    let look = async |key: &Key, path| {
        let answer = service.call(&format!("GET {path}"), &[key.auth()]).await;
        answer.json()
    };
    let shown = json!({"first": "secret:a", "count": 2});
    let hidden = json!({"first": null, "count": 2});
    for (key, group) in [(&all, &shown), (&team, &hidden)] {
        let inspected = look(key, "/locks/team:x").await;
        assert_eq!(&inspected["holders"][0]["group"], group);
        let page = look(key, "/locks?prefix=team:").await;
        assert_eq!(&page["locks"][0]["holders"][0]["group"], group);
    }
    let headers = [team.auth(), JSON[0]];
    let body = r#"{"reason": "test", "all": true}"#;
    let broken = service.ask("POST /locks/team:x/break", &headers, body);
    assert_eq!(broken.await["holders"][0]["group"], hidden);
}

#[tokio::test]
async fn a_group_that_waits_shows_the_lock_that_it_waits_for_to_keys_that_may_view_it() {
    let (all, team, blind) = (Key::new(), Key::new(), Key::new());
    let keys = all.entry("all", "acquire = ['*']\nview = ['*']")
        + &team.entry("team", "view = ['team:']")
        + &blind.entry("blind", "acquire = ['team:']");
    let (store, _directory) = embedded();
    let service = Service::over_with_keys(store, &keys);
    let headers = [all.auth(), JSON[0]];
    let frozen = service.ask("POST /locks/z:freeze", &headers, r#"{"owner": "ann"}"#);
    let frozen = frozen.await.is(201).json();
    let look = async |key: &Key, path: &str| {
        let answer = service.call(&format!("GET {path}"), &[key.auth()]).await;
        answer.is(200).json()
    };
    let holder = async |key: &Key, name: &str| {
        look(key, &format!("/locks/{name}")).await["holders"][0].clone()
    };
    let names = json!({"names": ["z:freeze", "team:a", "team:b"], "wait_ms": 20_000}).to_string();
    let group = service.ask("POST /locks", &headers, names);
    let while_it_waits = async {
        while look(&all, "/locks/z:freeze").await["waiter_count"] != 1 {
            sleep(Duration::from_millis(5)).await;
        }
        for name in ["team:a", "team:b"] {
            let shown = holder(&all, name).await;
            let waits_for = &shown["waits_for"];
            assert_eq!(shown["waiting"], true, "{name}");
            assert_eq!(waits_for["name"], "z:freeze", "{name}");
            assert!(waits_for["since_ms"].as_u64().unwrap() < 20_000, "{name}");
            assert_eq!(waits_for["holders"][0]["owner"], "ann", "{name}");
            let hidden = holder(&team, name).await;
            assert_eq!(hidden["waiting"], true, "{name}");
            assert_eq!(
                fields(&hidden["waits_for"], ["name", "holders"]),
                json!([null, []]),
                "{name}"
            );
        }
        let page = look(&all, "/locks").await;
        for lock in page["locks"].as_array().unwrap() {
            let (shown, is_awaited) = (&lock["holders"][0], lock["name"] == "z:freeze");
            assert_eq!(shown.get("waiting").is_none(), is_awaited, "{lock}");
            assert_eq!(shown.get("waits_for"), None, "{lock}");
        }
        for (key, waiting) in [(&all, Some(&json!(true))), (&blind, None)] {
            let headers = [key.auth(), JSON[0]];
            let refused = service.ask("POST /locks/team:a", &headers, "{}").await;
            let refused = refused.is_problem(423, "locked");
            assert_eq!(refused["holders"][0].get("waiting"), waiting);
        }
        let token = [
            all.auth(),
            ("lock-token", frozen["token"].as_str().unwrap()),
        ];
        service.call("DELETE /locks/z:freeze", &token).await.is(204);
    };
    let (granted, ()) = tokio::join!(group, while_it_waits);
    granted.is(201);
    for name in ["team:a", "team:b", "z:freeze"] {
        let shown = holder(&all, name).await;
        assert_eq!(
            fields(&shown, ["waiting", "waits_for"]),
            json!([null, null]),
            "{name}"
        );
    }
}
