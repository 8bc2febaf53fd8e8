//! `POST /locks/{name}`.

use super::service::Service;

#[tokio::test]
async fn an_empty_body_takes_all_defaults() {
    let service = Service::start();
    let answer = service.acquire("").await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    assert_eq!(answer.header("location"), "/locks/a");
    insta::assert_json_snapshot!(answer.redacted(), @"");
}
