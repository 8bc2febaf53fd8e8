//! What a key may not list, break or learn.

use http::Method;
use latchgate::{
    lock::{Metadata, Owner},
    store::contract::{Breaking, Holder, Loss, Release},
};

use super::{
    key::Key,
    scripted::held,
    service::{JSON, Service, TOKEN},
};

const REASON: &str = r#"{"reason":"hangs"}"#;

#[tokio::test]
async fn who_may_not_break_or_list_is_refused_before_the_store_is_asked() {
    let key = Key::new();
    let lines = "acquire = ['*']\nview = ['team:']\nbreak = ['team:']";
    let service = Service::with_keys(&key.entry("ci", lines));
    let (post, header) = (Method::POST, ("authorization", key.header.as_str()));
    let json = JSON[0];
    let nobody = service
        .ask(post.clone(), "/locks/team:a/break", JSON, REASON)
        .await;
    assert_eq!(nobody.problem(), (401, "unauthorized".to_owned()));
    assert_eq!(
        service.get("/locks").await.problem(),
        (401, "unauthorized".to_owned())
    );
    for name in ["team2:a", "team", "tea"] {
        let target = format!("/locks/{name}/break");
        let refused = service
            .ask(post.clone(), &target, &[header, json], REASON)
            .await;
        assert_eq!(refused.problem(), (403, "forbidden".to_owned()), "{name}");
    }
    // All that begins so must be in view: neither pages nor cursors may tell of the rest.
    for query in [
        "",
        "?prefix=tea",
        "?prefix=team",
        "?prefix=team2:",
        "?owner=alice",
    ] {
        let target = format!("/locks{query}");
        let refused = service.ask(Method::GET, &target, &[header], "").await;
        assert_eq!(refused.problem(), (403, "forbidden".to_owned()), "{query}");
    }
    assert!(service.script.asked().is_empty());
    for query in ["?prefix=team:", "?prefix=team:a"] {
        let target = format!("/locks{query}");
        let listed = service.ask(Method::GET, &target, &[header], "").await;
        assert_eq!(listed.status, 200, "{query}: {}", listed.body);
    }
}

#[tokio::test]
async fn a_break_tells_the_holder_only_to_those_who_may_view_it() {
    for (view, owner, jobs) in [("", None, 0), ("view = ['a']", Some("somebody"), 1)] {
        let key = Key::new();
        let service = Service::with_keys(&key.entry("ci", &format!("break = ['*']\n{view}")));
        let mut lease = held();
        lease.owner = Some(Owner::new("somebody").unwrap());
        lease.metadata = Metadata::new([("job".to_owned(), "1".to_owned())].into()).unwrap();
        let broken = Ok(Breaking::Broken(Holder::Lease(lease)));
        service.script.break_lock.lock().unwrap().push_back(broken);
        let headers = [("authorization", key.header.as_str()), JSON[0]];
        let answer = service
            .ask(Method::POST, "/locks/a/break", &headers, REASON)
            .await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let holder = &answer.json()["holders"][0];
        assert_eq!(holder["owner"].as_str(), owner);
        assert_eq!(holder["metadata"].as_object().unwrap().len(), jobs);
        assert_eq!(holder["fencing_token"], 42);
    }
}

#[tokio::test]
async fn a_token_that_holds_nothing_does_not_tell_a_stranger_whether_the_lock_is_held() {
    let service = Service::with_keys(&Key::new().entry("ci", ""));
    let mut told = Vec::new();
    for loss in [Loss::HeldByAnother, Loss::Free] {
        service
            .script
            .release
            .lock()
            .unwrap()
            .push_back(Ok(Release::Lost(loss)));
        let token = [("lock-token", TOKEN)];
        let mut answer = service
            .ask(Method::DELETE, "/locks/a", &token, "")
            .await
            .json();
        assert_eq!(answer["code"], "lease-lost");
        answer.as_object_mut().unwrap().remove("request_id");
        told.push(answer);
    }
    assert_eq!(told[0], told[1]);
    assert!(told[0].get("held").is_none(), "{}", told[0]);
}
