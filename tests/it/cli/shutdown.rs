//! The shutdown of a gateway: signal, delay, drain; and requests sent while no gateway runs.

use std::net::Shutdown;

use crate::cli::prelude::*;

fn on(url: &str, arguments: &[&str], token: &str) -> Ran {
    latchgate(arguments)
        .env("LATCHGATE_URL", url)
        .token(token)
        .read()
}

/// Waits until a condition is true.
fn poll(what: &str, mut is_so: impl FnMut() -> bool, log: &dyn Fn() -> String) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < deadline, "not yet: {what}\n{}", log());
        thread::sleep(Duration::from_millis(2));
    }
}

fn until(gateway: &Gateway, what: &str, is_so: impl FnMut() -> bool) {
    poll(what, is_so, &|| gateway.log());
}

/// Waits until the gateway logs that it drains.
fn drains(gateway: &Gateway) {
    until(gateway, "it drains", || gateway.log().contains("draining"));
}

/// Sends a request without the end of its body. The gateway waits for it until three seconds after the drain began.
fn request_in_flight(gateway: &Gateway) -> TcpStream {
    let mut connection = TcpStream::connect(gateway.address).unwrap();
    let head = "POST /locks/slow HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{";
    connection.write_all(head.as_bytes()).unwrap();
    connection
}

fn patient() -> Setup {
    Setup::default().with("LATCHGATE_SHUTDOWN_GRACE_MS", "600000")
}

#[test]
fn either_signal_ends_a_gateway_at_once_that_nobody_has_a_lease_from() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut gateway = Gateway::start_with(patient());
        gateway.ends_by(signal, 0);
        assert!(!gateway.log().contains("while leases"), "{}", gateway.log());
    }
}

#[test]
fn health_checks_and_others_that_only_look_do_not_keep_it() {
    let mut gateway = Gateway::start_with(patient());
    let (address, ended) = (gateway.address, Arc::new(AtomicBool::new(false)));
    let over = Arc::clone(&ended);
    let looking = thread::spawn(move || {
        while !over.load(Ordering::SeqCst) {
            for path in ["/readyz", "/healthz", "/metrics", "/locks/a", "/locks"] {
                // After its end the gateway accepts no connection.
                let Ok(mut connection) = TcpStream::connect(address) else {
                    continue;
                };
                let head =
                    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
                drop(connection.write_all(head.as_bytes()));
                drop(connection.read_to_end(&mut Vec::new()));
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    thread::sleep(Duration::from_millis(500));
    let begin = Instant::now();
    gateway.ends_by(Signal::TERM, 0);
    ended.store(true, Ordering::SeqCst);
    looking.join().unwrap();
    // The grace period is ten minutes long.
    assert!(
        begin.elapsed() < Duration::from_mins(1),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn it_serves_a_holder_that_comes_back_later_and_ends_when_the_last_lease_is_released() {
    let mut gateway = Gateway::start_with(patient());
    let url = gateway.url();
    let token = on(&url, &["acquire", "deploy", "--ttl", "10m"], "").out;
    gateway.signal(Signal::TERM);
    drains(&gateway);
    gateway.logged("while leases");
    // No caller is connected for longer than a gateway without leases waits for further requests.
    thread::sleep(Duration::from_millis(1_500));
    on(&url, &["renew", "deploy"], token.trim_end()).ends(0);
    on(&url, &["release", "deploy"], token.trim_end()).ends(0);
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
}

#[test]
fn it_waits_no_longer_than_they_may_need_for_those_whose_streams_it_has_ended() {
    let mut gateway = Gateway::start_with(patient());
    let mut held = TcpStream::connect(gateway.address).unwrap();
    let body = r#"{"ttl_ms":600000}"#;
    let request = format!(
        "POST /locks/held/hold HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    held.write_all(request.as_bytes()).unwrap();
    let mut stream = BufReader::new(held).lines().map(Result::unwrap);
    assert!(stream.any(|line| line == "event: granted"));
    // The last request ended longer ago than a gateway waits for further requests.
    thread::sleep(Duration::from_millis(1_500));
    let begin = Instant::now();
    gateway.signal(Signal::TERM);
    assert!(stream.any(|line| line == "event: draining"));
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
    let took = begin.elapsed();
    // The grace period and the lease are ten minutes long.
    assert!(took < Duration::from_mins(1), "{took:?}");
}

#[test]
fn who_held_by_a_stream_can_release_with_the_token_when_it_has_ended() {
    let mut gateway = Gateway::start_with(patient());
    let mut held = TcpStream::connect(gateway.address).unwrap();
    held.write_all(
        b"POST /locks/held/hold HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n",
    )
    .unwrap();
    let mut stream = BufReader::new(held).lines().map(Result::unwrap);
    assert!(stream.any(|line| line == "event: granted"));
    let granted = stream.find(|line| line.starts_with("data: ")).unwrap();
    let (_, token) = granted.split_once("\"token\":\"").unwrap();
    let token = token[..43].to_owned();
    // The last request ended longer ago than a gateway waits for further requests.
    thread::sleep(Duration::from_millis(1_500));
    gateway.signal(Signal::TERM);
    gateway.logged("waiters=0 held_streams=1 event_streams=0");
    assert!(stream.any(|line| line == "event: draining"));
    // Once the caller has renewed during the drain, the gateway waits for its lease.
    let url = gateway.url();
    on(&url, &["renew", "held", "--ttl", "10m"], &token).ends(0);
    // Longer than the gateway waits for a holder that sends no request.
    thread::sleep(Duration::from_secs(3));
    on(&url, &["release", "held"], &token).ends(0);
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
}

#[test]
fn it_ends_when_the_last_lease_is_over() {
    let mut gateway = Gateway::start_with(patient());
    on(&gateway.url(), &["acquire", "deploy", "--ttl", "2s"], "");
    let begin = Instant::now();
    gateway.ends_by(Signal::TERM, 0);
    assert!(begin.elapsed() > Duration::from_secs(1));
}

#[test]
fn hup_is_ignored_and_said_so() {
    let mut gateway = Gateway::start();
    gateway.signal(Signal::HUP);
    until(&gateway, "it says so", || {
        gateway.log().contains("HUP is ignored")
    });
    on(&gateway.url(), &["inspect", "deploy"], "").ends(0);
    assert!(!gateway.log().contains("draining"), "{}", gateway.log());
    gateway.ends_by(Signal::TERM, 0);
}

/// `script` runs its command on a terminal, which disappears when `script` is killed.
#[test]
fn hup_from_a_terminal_that_is_closed_ends_it_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (log, pid) = (at("log"), at("pid"));
    let serve = format!(
        "echo $$ >{pid}; exec {} serve --listen 127.0.0.1:0 --store embedded:{} >{log} 2>&1",
        env!("CARGO_BIN_EXE_latchgate"),
        at("data"),
    );
    let mut terminal = spawn::command("script");
    with_path_alone(&mut terminal);
    let mut terminal = terminal
        .args(["-q", "-c", &serve, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("`script` comes with every Debian");
    let logged = || fs::read_to_string(&log).unwrap_or_default();
    poll("it starts", || logged().contains("curl"), &logged);
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    poll("it drains", || logged().contains("signal=\"HUP\""), &logged);
    let pid = fs::read_to_string(pid).unwrap();
    let process = format!("/proc/{}", pid.trim());
    poll("it ends", || !Path::new(&process).exists(), &logged);
}

#[test]
fn while_it_drains_nothing_is_acquired_and_what_is_held_can_be_kept_and_given_back() {
    let (mut gateway, url) = Gateway::start_and_url();
    let token = on(&url, &["acquire", "deploy"], "").out;
    let token = token.trim_end();
    gateway.signal(Signal::TERM);
    drains(&gateway);
    on(&url, &["renew", "deploy"], token).ends(0);
    let refused = on(&url, &["acquire", "other", "--json"], "").ends(104);
    assert!(refused.out.contains("\"code\":\"draining\""), "{refused:?}");
    on(&url, &["release", "deploy"], token).ends(0);
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
}

#[test]
fn the_grace_ends_it_although_somebody_goes_on_renewing() {
    let setup = Setup::default().with("LATCHGATE_SHUTDOWN_GRACE_MS", "1500");
    let mut gateway = Gateway::start_with(setup);
    let url = gateway.url();
    let token = on(&url, &["acquire", "deploy"], "").out;
    let begin = Instant::now();
    gateway.signal(Signal::TERM);
    let renewing =
        thread::spawn(
            move || {
                while on(&url, &["renew", "deploy"], token.trim_end()).code == Some(0) {}
            },
        );
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
    let took = begin.elapsed();
    // The whole grace period, except for the quarter that is kept for the last steps, which take no time here.
    assert!(took >= Duration::from_millis(1_125), "{took:?}");
    // Without a bound, the lease would be renewed for ever.
    assert!(took < Duration::from_secs(15), "{took:?}");
    renewing.join().unwrap();
}

#[test]
fn a_request_that_outlasts_the_grace_is_cut_short() {
    let setup = Setup::default().with("LATCHGATE_SHUTDOWN_GRACE_MS", "100");
    let mut gateway = Gateway::start_with(setup);
    let _under_way = request_in_flight(&gateway);
    // When a later connection has been answered, the gateway has read this one too.
    on(&gateway.url(), &["inspect", "deploy"], "");
    gateway.ends_by(Signal::TERM, 112);
}

/// The client does not read, and the answers are longer than the socket buffers.
#[test]
fn a_client_that_does_not_read_its_answer_is_cut_off_within_the_grace() {
    let setup = Setup::default()
        .with("LATCHGATE_SHUTDOWN_GRACE_MS", "2000")
        .with("LATCHGATE_LOG_REQUESTS", "all");
    let mut gateway = Gateway::start_with(setup);
    let mut deaf = TcpStream::connect(gateway.address).unwrap();
    let request = "GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(20);
    deaf.write_all(request.as_bytes()).unwrap();
    // All answers together do not fit into the buffers, so the gateway stops in the middle of an answer.
    let (mut answers, mut since) = (0, Instant::now());
    until(&gateway, "it can send no more", || {
        let now = gateway.log().matches("/docs/").count();
        if now > answers {
            (answers, since) = (now, Instant::now());
        }
        answers > 0 && since.elapsed() > Duration::from_millis(500)
    });
    let begin = Instant::now();
    gateway.signal(Signal::TERM);
    let status = gateway.wait();
    let took = begin.elapsed();
    assert_eq!(status.code(), Some(112), "{}", gateway.log());
    // Without the shutdown, the gateway gives up a client that does not read only after 75 seconds.
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn it_does_not_wait_for_the_whole_grace_for_requests_that_have_not_arrived() {
    let setup = patient()
        .with("LATCHGATE_HTTP_BODY_TIMEOUT_MS", "60000")
        .with("LATCHGATE_HTTP_HEADER_TIMEOUT_MS", "60000");
    let mut gateway = Gateway::start_with(setup);
    let mut half_body = request_in_flight(&gateway);
    let mut half_head = TcpStream::connect(gateway.address).unwrap();
    half_head.write_all(b"GET /healthz HTTP/1.1\r\nho").unwrap();
    // When a later connection has been answered, the gateway has read both of these too.
    on(&gateway.url(), &["inspect", "deploy"], "");
    let begin = Instant::now();
    gateway.ends_by(Signal::TERM, 0);
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
    let mut answer = String::new();
    half_body.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"code\":\"request-timeout\""), "{answer}");
    assert_eq!(half_head.read(&mut [0; 100]).unwrap(), 0);
}

#[test]
fn a_second_signal_ends_it_at_once_with_a_code_of_its_own() {
    let mut gateway = Gateway::start_with(patient());
    on(&gateway.url(), &["acquire", "deploy", "--ttl", "10m"], "");
    gateway.signal(Signal::TERM);
    drains(&gateway);
    gateway.ends_by(Signal::INT, 112);
}

/// More time than any machine needs for what a test does meanwhile.
const LONG: Duration = Duration::from_mins(5);
const SHORT: Duration = Duration::from_millis(1_500);

fn delaying(delay: Duration) -> Gateway {
    let ms = |time: Duration| time.as_millis().to_string();
    let setup = Setup::default().with("LATCHGATE_SHUTDOWN_DELAY_MS", &ms(delay));
    Gateway::start_with(setup.with("LATCHGATE_SHUTDOWN_GRACE_MS", &ms(2 * delay)))
}

fn is_ready(gateway: &Gateway) -> bool {
    let listen = gateway.address.to_string();
    let asked = typed(&format!("healthcheck --ready --listen {listen}")).read();
    asked.code == Some(0)
}

fn until_not_ready(gateway: &Gateway) {
    until(gateway, "it is not ready", || !is_ready(gateway));
}

#[test]
fn it_is_not_ready_at_once_and_serves_everything_during_the_delay() {
    let gateway = delaying(LONG);
    gateway.typed("acquire held --ttl 1500ms").read();
    gateway.signal(Signal::TERM);
    until_not_ready(&gateway);
    let listen = gateway.address.to_string();
    // The liveness check still passes, so a supervisor does not restart the gateway.
    typed(&format!("healthcheck --listen {listen}")).ends(0);
    // Each command uses a new connection, and one of them waits for the lock.
    gateway.typed("acquire held --wait 50s --ttl 100ms").ends(0);
    assert!(!gateway.log().contains("draining"), "{}", gateway.log());
}

#[test]
fn it_drains_when_the_delay_is_over() {
    let mut gateway = delaying(SHORT);
    let begin = Instant::now();
    gateway.ends_by(Signal::TERM, 0);
    let took = begin.elapsed();
    assert!(took >= SHORT, "{took:?}");
    let log = gateway.log();
    let (about, drains) = (
        log.find("about to stop").unwrap(),
        log.find("draining").unwrap(),
    );
    assert!(about < drains, "{log}");
}

#[test]
fn a_second_signal_ends_the_delay_too() {
    let mut gateway = delaying(LONG);
    let begin = Instant::now();
    gateway.signal(Signal::TERM);
    until_not_ready(&gateway);
    gateway.ends_by(Signal::TERM, 112);
    assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
}

fn token(acquired: &Ran) -> String {
    let lease = acquired.json();
    lease["token"].as_str().unwrap().to_owned()
}

#[test]
fn a_release_that_came_while_it_was_frozen_is_carried_out_although_its_caller_has_gone() {
    let (gateway, url) = Gateway::start_and_url();
    let by_delete = |token: &str| {
        format!("DELETE /locks/deploy HTTP/1.1\r\nhost: localhost\r\nlock-token: {token}\r\n\r\n")
    };
    let by_post = |token: &str| {
        let body = format!(r#"{{"token":"{token}"}}"#);
        format!(
            "POST /locks/deploy/release HTTP/1.1\r\nhost: localhost\r\ncontent-type: \
             application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let requests: [&dyn Fn(&str) -> String; 2] = [&by_delete, &by_post];
    for request in requests {
        for connected_before in [false, true] {
            let request = request(&token(
                &typed(&format!("acquire deploy --ttl 1h --json --url {url}")).read(),
            ));
            let connect = || TcpStream::connect(gateway.address).unwrap();
            let mut caller = connected_before.then(|| {
                let mut caller = connect();
                let look = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
                caller.write_all(look).unwrap();
                assert!(caller.read(&mut [0; 4096]).unwrap() > 0);
                caller
            });
            gateway.freeze();
            let caller = caller.get_or_insert_with(connect);
            caller.write_all(request.as_bytes()).unwrap();
            caller.shutdown(Shutdown::Both).unwrap();
            gateway.signal(Signal::CONT);
            until_free(&url);
        }
    }
}
