//! `latchgate serve`: its start, errors that prevent it, and a log that is not read.

use crate::cli::prelude::*;

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
    typed(&format!("--listen {address}")).ends(110);
}

#[test]
fn a_port_that_is_taken_is_110_and_touches_no_store() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let store = format!("embedded:{}", data.display());
    let ran = typed(&format!("serve --listen {address} --store {store}")).read();
    ran.gives(110, "");
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
    let ran = typed("serve --listen 127.0.0.1:0");
    let ran = ran.env("LATCHGATE_METRICS_LISTEN", &address).ends(110);
    let said = format!("metrics.listen: cannot listen on {address}");
    ran.says(&said);
    ran.says_not("--listen");
}

#[test]
fn a_store_that_another_gateway_has_is_111() {
    let gateway = Gateway::start();
    let store = format!("embedded:{}", gateway.data().display());
    let ran = typed(&format!("serve --listen 127.0.0.1:0 --store {store}")).read();
    ran.gives(111, "");
    ran.says("cannot open the store");
}

#[test]
fn a_store_that_is_no_directory_is_111() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "something else").unwrap();
    let store = format!("embedded:{}", file.display());
    typed(&format!("serve --listen 127.0.0.1:0 --store {store}")).ends(111);
    assert_eq!(fs::read_to_string(&file).unwrap(), "something else");
}

#[test]
fn an_open_address_without_authentication_is_refused_unless_it_is_meant() {
    let ran = typed("serve --listen 0.0.0.0:0").ends(2);
    ran.says("--insecure-no-auth");
    let gateway = Gateway::start_with(Setup {
        listen: Some("0.0.0.0:0"),
        ..Setup::default().with("LATCHGATE_INSECURE_NO_AUTH", "true")
    });
    gateway.logged("there is no authentication");
    gateway.typed("inspect deploy").ends(0);
}

#[test]
fn what_was_granted_survives_kill_9() {
    let (mut gateway, url) = Gateway::start_and_url();
    let acquired = typed(&format!("acquire deploy --url {url} --ttl 1m")).read();
    let token = acquired.out.trim_end();
    gateway.kill();
    gateway.restart();
    let url = gateway.url();
    typed(&format!("acquire deploy --url {url}")).ends(100);
    typed(&format!("renew deploy --url {url}"))
        .token(token)
        .ends(0);
}

#[test]
fn no_log_shows_a_token() {
    let gateway = Gateway::start_with(
        Setup::default()
            .with("LATCHGATE_LOG_LEVEL", "trace")
            .with("LATCHGATE_LOG_REQUESTS", "all"),
    );
    let url = gateway.url();
    let token = typed(&format!("acquire deploy --url {url}")).read().out;
    let token = token.trim_end();
    typed(&format!("release deploy --url {url}"))
        .token(token)
        .ends(0);
    let log = gateway.logged("/locks/");
    assert!(!log.contains(token), "{log}");
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
    let ran = typed(&format!("acquire deploy --url {url}")).read();
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// A gateway whose log is not read, killed if the test ends early.
struct Unread(Child);

impl Drop for Unread {
    fn drop(&mut self) {
        // The gateway may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_gateway_whose_log_nobody_reads_goes_on_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    let mut gateway = Unread(
        program()
            .env("LATCHGATE_LOG_LEVEL", "trace")
            .env("LATCHGATE_LOG_REQUESTS", "all")
            .args(["serve", "--listen", "127.0.0.1:0", "--store"])
            .arg(format!("embedded:{}", directory.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(gateway.0.stdout.take().unwrap()).lines();
    let line = lines
        .find(|line| line.as_ref().unwrap().contains("http://"))
        .unwrap()
        .unwrap();
    let (_, address) = line.split_once("http://").unwrap();
    let end = address
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':')
        .unwrap_or(address.len());
    let mut caller = TcpStream::connect(&address[..end]).unwrap();
    caller
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    // Far more lines than a pipe holds: its size is 64 KiB.
    let mut answer = [0; 4_096];
    for _ in 0..1_500 {
        let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        caller.write_all(request.as_bytes()).unwrap();
        let read = caller.read(&mut answer).unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"));
    }
    kill_process(Pid::from_child(&gateway.0), Signal::TERM).unwrap();
    until("its end", || gateway.0.try_wait().unwrap().is_some());
    assert_eq!(gateway.0.wait().unwrap().code(), Some(0));
    let mut log = Vec::new();
    let stderr = gateway.0.stderr.as_mut().unwrap();
    stderr.read_to_end(&mut log).unwrap();
    assert!(
        log.len() >= 32 * 1024,
        "the pipe was never full: {}",
        log.len()
    );
}
