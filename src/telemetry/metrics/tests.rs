//! Tests that the metrics in the scraped text are those of the catalogue.

use std::{collections::BTreeSet, time::Duration};

use http::{Method, StatusCode};

use super::*;

fn everything() -> Metrics {
    let metrics = Metrics::default();
    let took = Duration::from_millis(3);
    let route = metrics.route_metrics("/locks/{name}");
    route.request(&Method::POST, Some(StatusCode::CREATED), took);
    metrics.route_metrics("").request(&Method::POST, None, took);
    metrics.store_asked("acquire", Duration::from_millis(1), Some("unavailable"));
    metrics
}

fn figures() -> Figures {
    Figures {
        checks: vec![("connection", 0)],
        certificate_ends: Some(4_102_444_800),
        store: StoreFigures {
            servers: Vec::new(),
            connections: Some(2),
            hears: Some(true),
            unsent_messages: Some(3),
            clock_skew: vec![("127.0.0.1:6379".to_owned(), -0.25)],
            master: Some(("127.0.0.1:6379".to_owned(), 1.8e9)),
            master_changes: Some(1),
            sentinels: vec![("127.0.0.1:26379".to_owned(), true)],
            masters: vec![("127.0.0.1:7000".to_owned(), true)],
            replicas: Some(2),
            nodes: vec![NodeFigures {
                node: "127.0.0.1:6379".to_owned(),
                ..NodeFigures::default()
            }],
        },
        ..Figures::default()
    }
}

/// The name and the label names of each sample in a scraped text.
fn samples(text: &str) -> BTreeSet<(String, Vec<String>)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (head, _value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = head.split_once('{').unwrap_or((head, "}"));
            let labels = labels.trim_end_matches('}').split(',');
            let labels = labels.filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
            (
                name.to_owned(),
                labels.filter(|label| label != "le").collect(),
            )
        })
        .collect()
}

#[test]
fn what_is_scraped_is_what_is_listed_with_its_labels() {
    let found = samples(&everything().text(&figures()));
    let mut listed = BTreeSet::new();
    for metric in CATALOGUE {
        let labels: Vec<_> = metric.labels.iter().map(ToString::to_string).collect();
        listed.extend(
            metric
                .samples()
                .into_iter()
                .map(|name| (name, labels.clone())),
        );
    }
    assert_eq!(found, listed);
}

#[test]
fn the_older_format_has_the_same_samples_each_of_a_type() {
    let metrics = everything();
    let (open_metrics, text) = (metrics.text(&figures()), metrics.plain_text(&figures()));
    let values = |text: &str| text.lines().filter(|it| !it.starts_with('#')).count();
    assert_eq!(values(&text), values(&open_metrics));
    assert_eq!(samples(&text), samples(&open_metrics));
    let mut lines = text.lines().peekable();
    let mut described = BTreeSet::new();
    while let Some(line) = lines.next() {
        let name = line.strip_prefix("# HELP ").expect("a family has a help");
        let (name, help) = name.split_once(' ').unwrap();
        assert!(!help.is_empty() && described.insert(name), "{line}");
        let kind = lines.next().and_then(|it| it.strip_prefix("# TYPE "));
        let (typed, kind) = kind.unwrap().split_once(' ').unwrap();
        assert_eq!(typed, name);
        while let Some(sample) = lines.next_if(|line| !line.starts_with('#')) {
            let sample = sample.split(['{', ' ']).next().unwrap();
            let part = sample.strip_prefix(name);
            let parts: &[&str] = match kind {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(part.is_some_and(|it| parts.contains(&it)), "{sample}");
            assert_eq!(sample.ends_with("_total"), kind == "counter", "{sample}");
        }
    }
    assert_eq!(described.len(), CATALOGUE.len());
}

#[test]
fn what_counts_is_there_from_the_beginning_at_0() {
    let text = Metrics::default().text(&Figures::default());
    for line in [
        "latchgate_acquires_total{outcome=\"granted\"} 0",
        "latchgate_expired_while_held_total{seen_by=\"stream\"} 0",
        "latchgate_hold_seconds_count 0",
        "latchgate_draining 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
    }
}

#[test]
fn a_method_and_a_route_that_callers_invent_make_no_series() {
    let metrics = everything();
    let invented = Method::from_bytes(b"INVENTED").unwrap();
    let unmatched = metrics.route_metrics("");
    unmatched.request(&invented, Some(StatusCode::NOT_FOUND), Duration::ZERO);
    let text = metrics.text(&Figures::default());
    let line =
        "latchgate_http_requests_total{method=\"other\",route=\"unmatched\",status=\"404\"} 1";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("status=\"hung-up\"} 1"), "{text}");
}

#[test]
fn processor_time_counts_on_and_is_not_added_up() {
    let metrics = everything();
    let read = |text: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("process_cpu_seconds_total "));
        line.unwrap().parse::<f64>().unwrap()
    };
    let first = read(&metrics.text(&Figures::default()));
    let second = read(&metrics.text(&Figures::default()));
    assert!(
        first <= second && second < first + 5.0,
        "{first} and {second}"
    );
}
