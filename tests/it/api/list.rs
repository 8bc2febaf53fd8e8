//! `GET /locks`.

use std::time::Duration;

use latchgate::{
    lock::{ForeignMark, LockName, Owner, SearchText},
    store::{
        contract::{HeldLock, Holder, ListQuery, Page},
        cursor::{Cursor, Scanned},
        list_filter::ListFilter,
    },
};
use serde_json::Value;

use super::{
    scripted::{StoreCall, held},
    service::{ApiResponse, Service},
};

const CURSOR: Cursor = Cursor::Redis {
    node: 0,
    scanned: Scanned {
        run: 7,
        scan: 4_711,
        split: None,
    },
};

fn lock(name: &str, holder: Holder) -> HeldLock {
    HeldLock {
        name: LockName::new(name).unwrap(),
        holder,
        waiters: 3,
    }
}

/// Asks for a page, which is not the last.
async fn list(service: &Service, target: &str) -> ApiResponse {
    let mut lease = held();
    lease.owner = Some(Owner::new("ci").unwrap());
    let foreign = Holder::Foreign {
        expires_in: Some(Duration::from_millis(1_500)),
        mark: ForeignMark::new("0123456789abcdef0123456789abcdef01234567").ok(),
    };
    let page = Page {
        locks: vec![lock("a", Holder::Lease(lease)), lock("b", foreign)],
        next: Some(CURSOR),
    };
    service.script.list.lock().unwrap().push_back(Ok(page));
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
    let page = list(&service, "/locks").await;
    assert_eq!(page.status, 200, "{}", page.body);
    assert_eq!(page.header("cache-control"), "no-store");
    insta::assert_json_snapshot!(page.json()["locks"], @r#"
    [
      {
        "holder_count": 1,
        "holders": [
          {
            "acquired_at": "2026-11-20T12:00:00.000Z",
            "expires_at": "2026-11-20T12:00:30.000Z",
            "expires_in_ms": 30000,
            "fencing_token": 42,
            "foreign": false,
            "foreign_mark": null,
            "group": null,
            "hold_expires_in_ms": null,
            "metadata": {},
            "mode": "exclusive",
            "owner": "ci",
            "slot": null,
            "ttl_ms": 30000
          }
        ],
        "name": "a",
        "waiter_count": 3
      },
      {
        "holder_count": 1,
        "holders": [
          {
            "acquired_at": null,
            "expires_at": "2026-11-20T12:00:01.500Z",
            "expires_in_ms": 1500,
            "fencing_token": null,
            "foreign": true,
            "foreign_mark": "0123456789abcdef0123456789abcdef01234567",
            "group": null,
            "hold_expires_in_ms": null,
            "metadata": {},
            "mode": null,
            "owner": null,
            "slot": null,
            "ttl_ms": null
          }
        ],
        "name": "b",
        "waiter_count": 3
      }
    ]
    "#);
    let query = asked(&service);
    assert_eq!((query.limit, query.cursor), (100, None));
    assert_eq!(query.filter, ListFilter::default());
    let cursor = page.json()["next_cursor"].as_str().unwrap().to_owned();
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
    for (query, errors) in [
        ("limit=0", &["query.limit: is 0; allowed are 1 to 1000"][..]),
        (
            "limit=1001",
            &["query.limit: is 1001; allowed are 1 to 1000"],
        ),
        ("limit=-1", &["query.limit: is not a whole number"]),
        ("limit=", &["query.limit: is not a whole number"]),
        (
            "prefix=a*",
            &["query.prefix: has '*' in it; allowed are ASCII letters, digits and . _ : @ ~ -"],
        ),
        (
            "prefix=%5B&owner=",
            &[
                "query.prefix: has '[' in it; allowed are ASCII letters, digits and . _ : @ ~ -",
                "query.owner: is missing or empty",
            ],
        ),
        (
            "owner=%0A",
            &["query.owner: has the control character '\\n' in it"],
        ),
        (
            "owner=%ff",
            &["query.owner: is not UTF-8 after percent-decoding"],
        ),
        ("search=", &["query.search: is missing or empty"]),
        (
            &format!("search={}&cursor=x", "a".repeat(201)),
            &["query.search: has 201 characters; at most 200 are allowed"],
        ),
        (
            "search=a&search=b",
            &["query.search: is given more than once"],
        ),
        ("limit=1&limit=2", &["query.limit: is given more than once"]),
        (
            "token=s3cret&Prefix=a",
            &[
                "query.token: is not known; the parameters of this call are prefix, owner, search, \
                 limit, cursor",
                "query.Prefix: is not known; the parameters of this call are prefix, owner, search, \
                 limit, cursor",
            ],
        ),
    ] {
        let answer = service.get(&format!("/locks?{query}")).await;
        assert_eq!(answer.errors(), errors, "{query}");
        assert!(!answer.body.contains("s3cret"));
    }
    assert!(service.script.asked().is_empty());
}
