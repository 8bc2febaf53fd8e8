//! `DELETE /locks/{name}` and `POST /locks/{name}/release`.

use http::Method;
use latchgate::{
    lock::Token,
    store::contract::{Loss, Release},
};

use super::{
    scripted::StoreCall,
    service::{JSON, Service, TOKEN, WITH_TOKEN},
};

const BOTH: [(Method, &str); 2] = [
    (Method::DELETE, "/locks/a"),
    (Method::POST, "/locks/a/release"),
];

#[tokio::test]
async fn a_release_is_204_by_either_route_with_the_token_in_either_place() {
    let service = Service::start();
    let body = format!(r#"{{"token": "{TOKEN}"}}"#);
    for (method, path) in BOTH {
        for (headers, body) in [(WITH_TOKEN, ""), (JSON, body.as_str())] {
            let answer = service
                .ask(method.clone(), path, headers, body.to_owned())
                .await;
            assert_eq!((answer.status.as_u16(), answer.body.as_str()), (204, ""));
        }
    }
    let token = Token::parse(TOKEN).unwrap().hash();
    let asked = service.script.asked();
    assert_eq!(asked.len(), 4);
    for asked in asked {
        assert!(matches!(asked, StoreCall::Release(hash) if hash == token));
    }
}

#[tokio::test]
async fn a_token_that_does_not_hold_the_lock_is_410() {
    let service = Service::start();
    for (method, path) in BOTH {
        for (loss, held) in [(Loss::HeldByAnother, true), (Loss::Free, false)] {
            service
                .script
                .release
                .lock()
                .unwrap()
                .push_back(Ok(Release::Lost(loss)));
            let answer = service.ask(method.clone(), path, WITH_TOKEN, "").await;
            assert_eq!(answer.problem(), (410, "lease-lost".to_owned()));
            assert_eq!(answer.json()["held"], held);
        }
    }
}

#[tokio::test]
async fn a_draining_gateway_releases() {
    let service = Service::start();
    service.lifecycle.drain();
    let answer = service
        .ask(Method::DELETE, "/locks/a", WITH_TOKEN, "")
        .await;
    assert_eq!(answer.status, 204);
}

#[tokio::test]
async fn it_answers_whoever_accepts_nothing_it_could_answer() {
    let service = Service::start();
    let headers = &[("lock-token", TOKEN), ("accept", "text/html")];
    let answer = service.ask(Method::DELETE, "/locks/a", headers, "").await;
    assert_eq!(
        answer.status, 204,
        "204 has no body that could be of the wrong type"
    );
}
