//! Metrics of a gateway that takes no more requests.

use super::overload::{small, while_full};

#[tokio::test]
async fn metrics_are_told_all_the_same() {
    let service = small();
    let full = async {
        let scraped = service.get("/metrics").await;
        assert_eq!(scraped.status, 200, "{}", scraped.body);
        assert!(scraped.body.contains("latchgate_waiters"));
    };
    while_full(&service, full).await;
}
