//! `GET /healthz` and `GET /readyz`.

use latchgate::store::contract::{Check, Health};

use super::service::Service;

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
    let answer = service.get("/healthz").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["status"], "ok");
    assert_eq!(answer.json()["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(answer.json()["commit"], latchgate::release::COMMIT);
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
    let answer = service.get("/readyz").await;
    assert_eq!(answer.status, 200);
    insta::assert_json_snapshot!(answer.json(), @r#"
    {
      "checks": [
        {
          "detail": "no answer",
          "name": "connection",
          "status": "outage"
        },
        {
          "detail": "slow",
          "name": "permissions",
          "status": "warning"
        },
        {
          "name": "clock",
          "status": "passing"
        },
        {
          "name": "draining",
          "status": "passing"
        }
      ],
      "status": "ready"
    }
    "#);
}

#[tokio::test]
async fn a_gateway_that_cannot_keep_its_promises_is_not_ready() {
    let service = Service::start();
    checks(
        &service,
        vec![Health::Misconfigured("locks are evicted".to_owned())],
    );
    let answer = service.get("/readyz").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["status"], "not-ready");
    assert_eq!(answer.json()["checks"][0]["detail"], "locks are evicted");
}

#[tokio::test]
async fn a_gateway_that_is_about_to_stop_is_not_ready_but_alive() {
    let service = Service::start();
    service.lifecycle.withdraw();
    let answer = service.get("/readyz").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["checks"][0]["status"], "draining");
    assert_eq!(service.get("/healthz").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_an_outage_before_a_probe_gives_up() {
    let service = Service::start();
    service.script.paused.set();
    let began = tokio::time::Instant::now();
    let answer = service.get("/readyz").await;
    assert!(began.elapsed() < std::time::Duration::from_secs(1));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["checks"][0]["status"], "outage");
}
