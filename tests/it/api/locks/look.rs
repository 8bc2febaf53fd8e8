//! Inspecting and listing locks: `GET /locks/{name}` and `GET /locks`.

use latchgate::{
    lock::SearchText,
    store::{
        contract::ListQuery,
        cursor::{Cursor, Scanned},
        list_filter::ListFilter,
    },
};

use crate::api::prelude::*;

async fn inspect(inspection: Inspection) -> Value {
    let service = Service::start();
    service.script.inspect.ok(inspection);
    let answer = service.get("/locks/a").await.is(200);
    answer.json()
}

#[tokio::test]
async fn a_free_lock_has_no_holder() {
    assert_eq!(
        inspect(free()).await,
        json!({
            "holder_count": 0, "holders": [], "name": "a", "state": "free", "waiter_count": 0,
            "waiters": [],
        })
    );
}

#[tokio::test]
async fn a_held_lock_shows_its_holder_and_never_a_token() {
    let mut lease = held();
    lease.held_for = Duration::from_secs(9);
    lease.expires_in = Duration::from_secs(21);
    lease.hold_expires_in = Some(Duration::from_secs(51));
    lease.said.owner = Some(Owner::new("ci-runner-7").unwrap());
    let body = inspect(shown(Holder::Lease(lease))).await;
    let holder = holder_view(json!({
        "acquired_at": "2026-11-20T11:59:51.000Z", "expires_at": "2026-11-20T12:00:21.000Z",
        "expires_in_ms": 21_000, "hold_expires_in_ms": 51_000, "owner": "ci-runner-7",
    }));
    let expected = json!({
        "holder_count": 1, "holders": [holder], "name": "a", "state": "held",
        "waiter_count": 0, "waiters": [],
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn a_foreign_holder_shows_as_what_it_is() {
    let with_expiry = inspect(shown(foreign())).await;
    assert_eq!(with_expiry["holders"][0], foreign_view());
    let without = inspect(shown(Holder::Foreign {
        expires_in: None,
        mark: None,
    }));
    let without = without.await;
    for field in ["foreign_mark", "expires_in_ms", "expires_at"] {
        assert_eq!(without["holders"][0][field], Value::Null);
    }
    assert_eq!(without["state"], "held");
}

const CURSOR: Cursor = Cursor::Redis {
    node: 0,
    scanned: Scanned {
        run: 7,
        scan: 4_711,
    },
};

fn lock(name: &str, holder: Holder) -> HeldLock {
    HeldLock {
        name: LockName::new(name).unwrap(),
        holder,
        waiters: 3,
        found: None,
    }
}

/// Lists a page that is not the last.
async fn list(service: &Service, target: &str) -> ApiResponse {
    let mut lease = held();
    lease.said.owner = Some(Owner::new("ci").unwrap());
    let page = Page {
        locks: vec![lock("a", Holder::Lease(lease)), lock("b", foreign())],
        next: Some(CURSOR),
    };
    service.script.list.ok(page);
    service.get(target).await
}

fn asked(service: &Service) -> ListQuery {
    match service.script.asked().pop() {
        Some(StoreCall::List(query)) => *query,
        other => panic!("not a list: {other:?}"),
    }
}

#[tokio::test]
async fn a_page_shows_its_locks_and_where_the_next_begins() {
    let service = Service::start();
    let page = list(&service, "/locks").await.is(200);
    assert_eq!(page.header("cache-control"), "no-store");
    let lock = |name: &str, holder: Value| json!({"holder_count": 1, "holders": [holder], "name": name, "waiter_count": 3});
    let ours = lock("a", holder_view(json!({"owner": "ci"})));
    assert_eq!(page["locks"], json!([ours, lock("b", foreign_view())]));
    let query = asked(&service);
    assert_eq!((query.limit, query.cursor), (100, None));
    assert_eq!(query.filter, ListFilter::default());
    let cursor = page["next_cursor"].as_str().unwrap().to_owned();
    service
        .get(&format!("/locks?cursor={cursor}&limit=7"))
        .await;
    let query = asked(&service);
    assert_eq!((query.limit, query.cursor), (7, Some(CURSOR)));
}

#[tokio::test]
async fn the_last_page_has_no_cursor() {
    let page = Service::start().get("/locks").await.json();
    assert_eq!(page["locks"], Value::Array(Vec::new()));
    assert_eq!(page["next_cursor"], Value::Null);
}

#[tokio::test]
async fn a_query_is_decoded_once() {
    let service = Service::start();
    let target = "/locks?prefix=team%3A&owner=Zo%C3%AB+%2B1&limit=1000";
    assert_eq!(list(&service, target).await.status, 200);
    let query = asked(&service);
    assert_eq!(query.filter.prefix.as_str(), "team:");
    assert_eq!(query.filter.owner, Some(Owner::new("Zoë +1").unwrap()));
    assert_eq!((query.filter.search, query.limit), (None, 1_000));
    list(&service, "/locks?search=Zo%C3%AB+7%25").await;
    let search = asked(&service).filter.search;
    assert_eq!(search, Some(SearchText::new("Zoë 7%").unwrap()));
}

#[tokio::test]
async fn a_cursor_goes_with_the_query_that_it_came_from() {
    let service = Service::start();
    let page = list(&service, "/locks?prefix=team&owner=ci").await.json();
    let cursor = page["next_cursor"].as_str().unwrap();
    let ask = async |query: &str| {
        service
            .get(&format!("/locks?{query}&cursor={cursor}"))
            .await
    };
    assert_eq!(ask("owner=ci&prefix=team").await.status, 200);
    let refusal = "query.cursor: is not the next_cursor of a page with this prefix, owner and search; \
                   leave it out to begin with the first page";
    for other in [
        "prefix=team",
        "prefix=tea&owner=ci",
        "prefix=team&owner=CI",
        "prefix=team&owner=ci&search=x",
    ] {
        assert_eq!(ask(other).await.errors(), [refusal], "{other}");
    }
    let mut tampered = cursor.to_owned();
    let first = if tampered.starts_with('B') { "C" } else { "B" };
    tampered.replace_range(..1, first);
    for odd in [tampered.as_str(), "", "0", "%00", &"A".repeat(2_000)] {
        let target = format!("/locks?prefix=team&owner=ci&cursor={odd}");
        assert_eq!(service.get(&target).await.errors(), [refusal], "{odd}");
    }
}

#[tokio::test]
async fn everything_that_is_wrong_is_named_and_nothing_is_asked() {
    let service = Service::start();
    let cases = r#"
        limit=0 => limit: is 0; allowed are 1 to 1000
        limit=1001 => limit: is 1001; allowed are 1 to 1000
        limit=-1 => limit: is not a whole number
        limit= => limit: is not a whole number
        prefix=a* => prefix: has '*' in it; allowed are ASCII letters, digits and . _ : @ ~ - /
        prefix=/a => prefix: begins or ends with a slash or has two in a row; proxies remove such a slash
        .. from a path
        prefix=a/../ => prefix: has the segment "..", which HTTP clients and proxies remove from a path
        prefix=%5B&owner= => prefix: has '[' in it; allowed are ASCII letters, digits
        .. and . _ : @ ~ - / | owner: is missing or empty
        owner=%0A => owner: has the control character '\n' in it
        owner=%ff => owner: is not UTF-8 after percent-decoding
        search= => search: is missing or empty
        search=LONG&cursor=x => search: has 201 characters; at most 200 are allowed
        search=a&search=b => search: is given more than once
        limit=1&limit=2 => limit: is given more than once
        token=s3cret&Prefix=a => token: NO_PARAMETER | Prefix: NO_PARAMETER
    "#;
    let no = "is not known; the parameters of this call are prefix, owner, search, limit, cursor";
    let cases = cases.replace("LONG", &"a".repeat(201));
    for (query, errors) in rows(&cases.replace("NO_PARAMETER", no)) {
        let answer = service.get(&format!("/locks?{query}")).await;
        let errors: Vec<_> = errors
            .split(" | ")
            .map(|it| format!("query.{it}"))
            .collect();
        assert_eq!(answer.errors(), errors, "{query}");
        assert!(!answer.body.contains("s3cret"));
    }
    assert!(service.script.asked().is_empty());
}
