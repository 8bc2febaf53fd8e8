//! What ends when: one request, or the connection.

use super::*;

const IDLE: Duration = Duration::from_secs(75);

#[tokio::test(start_paused = true)]
async fn a_connection_on_which_nothing_is_asked_is_over_and_one_that_waits_is_not() {
    let streams = Streams::new();
    let began = Instant::now();
    let waiting = streams.begin(None);
    waiting.arrived();
    let over = tokio::time::timeout(10 * IDLE, streams.over(IDLE, IDLE)).await;
    assert!(over.is_err());
    waiting.is_for_the_client();
    drop(waiting);
    assert_eq!(streams.over(IDLE, IDLE).await, Over::Idle);
    let elapsed = began.elapsed();
    assert!(elapsed >= 11 * IDLE && elapsed < 11 * IDLE + 2 * LOOK);
}

/// Whether a request is told to end within some time in which its connection does not.
async fn ends(end: &Notify, streams: &Streams, within: Duration) -> bool {
    tokio::select! {
        over = streams.over(Duration::MAX / 4, IDLE) => panic!("{over:?}"),
        ended = tokio::time::timeout(within, end.notified()) => ended.is_ok(),
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_taken_ends_alone_and_one_that_is_does_not() {
    let streams = Streams::new();
    let answered = streams.begin(None);
    let end = streams.take_begun();
    let other = streams.begin(None);
    let other_end = streams.take_begun();
    other.arrived();
    for _ in 0..10 {
        answered.is_for_the_client();
        assert!(!ends(&end, &streams, IDLE / 2).await);
    }
    answered.is_for_us();
    assert!(!ends(&end, &streams, 10 * IDLE).await);
    answered.is_for_the_client();
    assert!(ends(&end, &streams, IDLE + 2 * LOOK).await);
    assert!(!ends(&other_end, &streams, 10 * IDLE).await);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_taken_for_longer_ends_before_what_it_may_keep_back() {
    let streams = Streams::new();
    let begin = || {
        let request = streams.begin(None);
        (request, streams.take_begun())
    };
    let (page, short, other) = (begin(), begin(), begin());
    let second = Duration::from_secs(1);
    for held in [&short, &other] {
        streams.limit_silence(held.0.number, 2 * second);
    }
    page.0.is_for_the_client();
    assert!(!ends(&page.1, &streams, second).await);
    short.0.is_for_the_client();
    other.0.is_for_the_client();
    assert!(ends(&page.1, &streams, 3 * second).await);
    // The one is taken now, and the other is not and ends for itself.
    short.0.is_for_us();
    assert!(!ends(&other.1, &streams, second).await);
    assert!(ends(&other.1, &streams, 2 * second).await);
    assert!(!ends(&short.1, &streams, IDLE).await);
}

#[tokio::test(start_paused = true)]
async fn who_is_silent_loses_what_bears_no_more_of_it_and_keeps_the_rest() {
    let streams = Streams::new();
    let requests = [2, 30, 0].map(|seconds| {
        let request = streams.begin(None);
        match seconds {
            0 => {}
            seconds => streams.limit_silence(request.number, Duration::from_secs(seconds)),
        }
        (request, streams.take_begun())
    });
    let [short, long, unlimited] = &requests;
    let second = Duration::from_secs(1);
    // Nobody was asked for anything.
    assert!(!ends(&short.1, &streams, IDLE).await);
    for _ in 0..5 {
        assert!(streams.asks());
        assert!(!streams.asks(), "it is asked once");
        assert!(!ends(&short.1, &streams, second).await);
        streams.heard();
    }
    assert!(streams.asks());
    let asked = Instant::now();
    assert!(ends(&short.1, &streams, IDLE).await);
    assert_eq!(
        asked.elapsed(),
        2 * second,
        "it is not looked for only now and then"
    );
    assert!(!ends(&long.1, &streams, 27 * second).await);
    assert!(ends(&long.1, &streams, 2 * second).await);
    assert!(!ends(&unlimited.1, &streams, IDLE).await);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_lifted_or_whose_request_has_ended_asks_for_nothing() {
    let streams = Streams::new();
    let (lifted, ended) = (streams.begin(None), streams.begin(None));
    for request in [&lifted, &ended] {
        streams.limit_silence(request.number, Duration::from_millis(100));
    }
    streams.lift_limit(lifted.number);
    drop(ended);
    assert!(!streams.asks());
    // A line with a delay is not a silent one.
    streams.limit_silence(lifted.number, Duration::from_millis(100));
    assert!(streams.asks());
    let end = streams.take_begun();
    assert!(!ends(&end, &streams, Duration::from_millis(900)).await);
}

#[tokio::test(start_paused = true)]
async fn whoever_gives_up_one_request_after_the_other_is_not_heard_any_more() {
    let streams = Streams::new();
    for _ in 0..MOST_ABANDONED {
        drop(streams.begin(None));
        streams.begin(None).is_for_the_client();
    }
    let soon = Duration::from_secs(1);
    assert!(
        tokio::time::timeout(soon, streams.over(IDLE, IDLE))
            .await
            .is_err()
    );
    drop(streams.begin(None));
    let began = Instant::now();
    assert_eq!(streams.over(IDLE, IDLE).await, Over::Abandoned);
    assert_eq!(began.elapsed(), Duration::ZERO, "it is found out at once");
    // It is said once.
    assert!(
        tokio::time::timeout(soon, streams.over(IDLE, IDLE))
            .await
            .is_err()
    );

    let patient = Streams::new();
    for _ in 0..=MOST_ABANDONED {
        drop(patient.begin(None));
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    assert!(
        tokio::time::timeout(soon, patient.over(IDLE, IDLE))
            .await
            .is_err()
    );
}

#[test]
fn the_burden_is_that_of_the_request_that_would_be_missed_most() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let streams = Streams::new();
    assert_eq!(streams.burden(), Burden::Never);
    let slow = streams.begin(None);
    assert_eq!(streams.burden(), Burden::Silent);
    let unread = streams.begin(None);
    unread.arrived();
    unread.is_for_the_client();
    assert_eq!(streams.burden(), Burden::Unread);
    slow.arrived();
    assert_eq!(streams.burden(), Burden::Needed);
    drop((slow, unread));
    assert_eq!(streams.burden(), Burden::Silent);
}
