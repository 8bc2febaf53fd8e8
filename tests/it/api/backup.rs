//! A backup over HTTP: who may have one, and of which store.

use http::Method;
use latchgate::config::Config;

use super::{key::Key, service::Service};

#[tokio::test]
async fn it_takes_every_permission_on_every_lock() {
    let all = Key::new();
    let refused = [
        "view = ['*']\nmetrics = true",
        "break = ['*']\nacquire = ['*']",
        "view = ['*']\nbreak = ['team:']",
        "view = ['team:']\nbreak = ['*']",
    ]
    .map(|permissions| (Key::new(), permissions));
    let mut file = all.entry("all", "view = ['*']\nbreak = ['*']");
    for (number, (key, permissions)) in refused.iter().enumerate() {
        file += &key.entry(&format!("some{number}"), permissions);
    }
    let (service, ..) = Service::with_gate(Config::default(), &file);
    for (key, permissions) in &refused {
        let answer = service.ask(Method::GET, "/backup", &[key.auth()], "").await;
        assert_eq!(answer.status, 403, "{permissions}: {}", answer.body);
        assert_eq!(answer.json()["code"], "forbidden");
    }
    let answer = service.get("/backup").await;
    assert_eq!(answer.status, 401, "{}", answer.body);
    // The store of this service is no embedded one.
    let answer = service.ask(Method::GET, "/backup", &[all.auth()], "").await;
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert_eq!(answer.json()["code"], "wrong-store");
}
