//! Metrics of a gateway that takes no more requests.

use futures_util::future::join_all;
use http::Method;
use latchgate::config::Config;

use super::{
    key::Key,
    overload::{small, while_full},
    scripted::StoreCall,
    service::{Service, until},
};

/// How many may ask at once although there is no room.
const SCRAPES: usize = 4;

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

#[tokio::test]
async fn a_few_may_ask_at_once_and_who_may_not_takes_the_room_of_nobody() {
    let [scraper, other] = [Key::new(), Key::new()];
    let mut config = Config::default();
    config.http.max_concurrent_requests = 1;
    let keys = [
        scraper.entry("scraper", "metrics = true"),
        other.entry("ci", "view = ['*']"),
    ];
    let (service, ..) = Service::with_gate(config, &keys.concat());
    service.script.paused.set();
    let with_key = [other.auth()];
    let busy = service.ask(Method::GET, "/locks/a", &with_key, "");
    let full = async {
        let asked = || matches!(service.script.asked().last(), Some(StoreCall::Inspect));
        until("there is no room", asked).await;
        // The store does not answer, so that each of them takes a while.
        let asked: [&[(&str, &str)]; 2] = [&[], &with_key];
        let strangers = (0..3 * SCRAPES).map(|n| asked[n % 2]);
        let with_key = [scraper.auth()];
        let scrapers = std::iter::repeat_n(&with_key[..], SCRAPES + 1);
        let all = strangers.chain(scrapers);
        let answers = all.map(|headers| service.ask(Method::GET, "/metrics", headers, ""));
        let answers = join_all(answers).await;
        let with = |status: u16| answers.iter().filter(|it| it.status == status).count();
        assert_eq!((with(401), with(403)), (6, 6));
        assert_eq!((with(200), with(503)), (SCRAPES, 1));
        service.script.paused.lift();
    };
    let (answer, ()) = tokio::join!(busy, full);
    assert_eq!(answer.status, 200);
}
