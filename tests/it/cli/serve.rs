//! `latchgate serve`: starting, and what stops it from starting.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    process::Stdio,
};

use crate::support::{
    gateway::{Gateway, Setup},
    program::{latchgate, program},
    spawn,
};

#[test]
fn the_line_to_paste_takes_a_lock() {
    let gateway = Gateway::start_with(Setup::default().with("LATCHGATE_HTTP_BASE_PATH", "/gate"));
    let (_, line) = gateway.greeting.split_once("try:").unwrap();
    let line = format!("{} --silent --show-error", line.trim());
    let pasted = spawn::command("sh").args(["-c", &line]).output().unwrap();
    let answer = String::from_utf8(pasted.stdout).unwrap();
    assert!(
        answer.contains("\"fencing_token\""),
        "is curl installed (apt-get install curl)? {answer} {}",
        String::from_utf8_lossy(&pasted.stderr)
    );
}

#[test]
fn without_a_command_it_serves() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = latchgate(&["--listen", &address]).read();
    assert_eq!(ran.code, Some(110), "{ran:?}");
}

#[test]
fn a_port_that_is_taken_is_110_and_touches_no_store() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let store = format!("embedded:{}", data.display());
    let ran = latchgate(&["serve", "--listen", &address, "--store", &store]).read();
    assert_eq!((ran.code, ran.out.as_str()), (Some(110), ""), "{ran:?}");
    assert!(
        ran.err.contains(&address)
            && ran.err.contains("listen: cannot listen on")
            && ran.err.contains("Name another address with --listen"),
        "{ran:?}"
    );
    assert!(!data.exists());
}

#[test]
fn an_address_for_metrics_that_is_taken_is_blamed_on_its_own_key() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = latchgate(&["serve", "--listen", "127.0.0.1:0"]);
    let ran = ran.env("LATCHGATE_METRICS_LISTEN", &address).read();
    assert_eq!(ran.code, Some(110), "{ran:?}");
    let said = format!("metrics.listen: cannot listen on {address}");
    assert!(ran.err.contains(&said), "{ran:?}");
    assert!(!ran.err.contains("--listen"), "{ran:?}");
}

#[test]
fn a_store_that_another_gateway_has_is_111() {
    let gateway = Gateway::start();
    let store = format!("embedded:{}", gateway.data().display());
    let ran = latchgate(&["serve", "--listen", "127.0.0.1:0", "--store", &store]).read();
    assert_eq!((ran.code, ran.out.as_str()), (Some(111), ""), "{ran:?}");
    assert!(ran.err.contains("cannot open the store"), "{ran:?}");
}

#[test]
fn a_store_that_is_no_directory_is_111() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "something else").unwrap();
    let store = format!("embedded:{}", file.display());
    let ran = latchgate(&["serve", "--listen", "127.0.0.1:0", "--store", &store]).read();
    assert_eq!(ran.code, Some(111), "{ran:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "something else");
}

#[test]
fn an_open_address_without_authentication_is_refused_unless_it_is_meant() {
    let ran = latchgate(&["serve", "--listen", "0.0.0.0:0"]).read();
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("--insecure-no-auth"), "{ran:?}");
    let gateway = Gateway::start_with(Setup {
        listen: Some("0.0.0.0:0"),
        ..Setup::default().with("LATCHGATE_INSECURE_NO_AUTH", "true")
    });
    gateway.logged("there is no authentication");
    let inspected = latchgate(&["inspect", "deploy", "--url", &gateway.url()]).read();
    assert_eq!(inspected.code, Some(0), "{inspected:?}");
}

#[test]
fn what_was_granted_survives_kill_9() {
    let mut gateway = Gateway::start();
    let url = gateway.url();
    let acquired = latchgate(&["acquire", "deploy", "--url", &url, "--ttl", "1m"]).read();
    let token = acquired.out.trim_end();
    gateway.kill();
    gateway.restart();
    let url = gateway.url();
    let again = latchgate(&["acquire", "deploy", "--url", &url]).read();
    assert_eq!(again.code, Some(100), "{again:?}");
    let renew = ["renew", "deploy", "--url", &url];
    let renewed = latchgate(&renew).env("LATCHGATE_TOKEN", token).read();
    assert_eq!(renewed.code, Some(0), "{renewed:?}");
}

#[test]
fn no_log_shows_a_token() {
    let gateway = Gateway::start_with(
        Setup::default()
            .with("LATCHGATE_LOG_LEVEL", "trace")
            .with("LATCHGATE_LOG_REQUESTS", "all"),
    );
    let url = gateway.url();
    let token = latchgate(&["acquire", "deploy", "--url", &url]).read().out;
    let token = token.trim_end();
    let release = ["release", "deploy", "--url", &url];
    assert_eq!(
        latchgate(&release)
            .env("LATCHGATE_TOKEN", token)
            .read()
            .code,
        Some(0)
    );
    let log = gateway.logged("/locks/");
    assert!(!log.contains(token), "{log}");
}

#[test]
fn a_log_in_json_is_one_object_per_line() {
    let gateway = Gateway::start_with(
        Setup::default()
            .with("LATCHGATE_LOG_FORMAT", "json")
            .with("LATCHGATE_LOG_REQUESTS", "all"),
    );
    latchgate(&["inspect", "deploy", "--url", &gateway.url()]).read();
    let log = gateway.logged("}\n");
    for line in log.lines() {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(entry["level"].is_string(), "{line}");
    }
}

#[test]
fn a_gateway_whose_log_nobody_reads_any_more_serves_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", directory.path().display());
    let mut gateway = program()
        .args(["serve", "--listen", "127.0.0.1:0", "--store", &store])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(gateway.stderr.take());
    let mut greeting = String::new();
    BufReader::new(gateway.stdout.take().unwrap())
        .read_line(&mut greeting)
        .unwrap();
    let (_, url) = greeting.trim_end().split_once(" listens on ").unwrap();
    let ran = latchgate(&["acquire", "deploy", "--url", url]).read();
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
}
