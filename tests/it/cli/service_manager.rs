//! What systemd is told: the gateway stands opposite a socket as systemd's.

use std::{
    io::ErrorKind,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    thread,
    time::Duration,
};

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::support::{
    Authority,
    gateway::{Gateway, Setup},
    program::latchgate,
};

use super::key_fixture::{File, Made};

/// The end of the socket that systemd has.
struct Manager {
    socket: UnixDatagram,
    /// As it is in `NOTIFY_SOCKET`.
    name: String,
    _directory: TempDir,
}

// === impl Manager ===

impl Manager {
    fn in_a_directory() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        Self {
            socket: UnixDatagram::bind(&path).unwrap(),
            name: path.to_str().unwrap().to_owned(),
            _directory: directory,
        }
    }

    /// In no directory: the name is unique because the directory's is.
    fn abstractly() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let name = format!("{}/notify", directory.path().display());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        Self {
            socket: UnixDatagram::bind_addr(&address).unwrap(),
            name: format!("@{name}"),
            _directory: directory,
        }
    }

    fn setup(&self) -> Setup {
        Setup::default().with("NOTIFY_SOCKET", &self.name)
    }

    /// The next message; `None` if none comes in time.
    fn next(&self, within: Duration) -> Option<String> {
        let mut message = [0; 4096];
        self.socket.set_read_timeout(Some(within)).unwrap();
        match self.socket.recv(&mut message) {
            Ok(length) => Some(String::from_utf8(message[..length].to_vec()).unwrap()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            // By a signal, such as the one that a child has stopped.
            Err(error) if error.kind() == ErrorKind::Interrupted => self.next(within),
            Err(error) => panic!("{error}"),
        }
    }

    fn message(&self) -> String {
        self.next(Duration::from_mins(1)).expect("a message")
    }
}

/// Whether a message says something, one line of it.
fn says(message: &str, line: &str) -> bool {
    message.lines().any(|said| said == line)
}

#[test]
fn it_says_when_it_is_ready_and_when_it_stops() {
    for manager in [Manager::in_a_directory(), Manager::abstractly()] {
        let setup = manager.setup().with("LATCHGATE_SHUTDOWN_GRACE_MS", "7000");
        let mut gateway = Gateway::start_with(setup);
        let ready = manager.message();
        assert!(says(&ready, "READY=1"), "{ready}");
        // It is not too early.
        let checked = latchgate(&["healthcheck", "--listen", &gateway.address.to_string()]).read();
        assert_eq!(checked.code, Some(0), "{checked:?}");
        gateway.signal(Signal::TERM);
        let stopping = manager.message();
        assert!(says(&stopping, "STOPPING=1"), "{stopping}");
        // The grace period and five seconds.
        assert!(
            says(&stopping, "EXTEND_TIMEOUT_USEC=12000000"),
            "{stopping}"
        );
        assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
        assert_eq!(manager.next(Duration::from_millis(1)), None);
    }
}

#[test]
fn it_says_that_it_reloads_and_when_it_has() {
    let manager = Manager::in_a_directory();
    let before = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec;
    let gateway = Gateway::start_with(manager.setup());
    assert!(says(&manager.message(), "READY=1"));
    gateway.signal(Signal::HUP);
    let reloading = manager.message();
    assert!(says(&reloading, "RELOADING=1"), "{reloading}");
    let at = reloading
        .lines()
        .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    let at: i64 = at.unwrap().parse().unwrap();
    let after = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec;
    assert!((before..=after).contains(&(at / 1_000_000)), "{reloading}");
    assert!(says(&manager.message(), "READY=1"));
}

/// Neither file has changed: only the signal has them read again.
#[test]
fn a_reload_reads_keys_and_certificates_and_is_reported() {
    let manager = Manager::in_a_directory();
    let file = File::new(&Made::new("worker", &["--acquire", "*"]).toml);
    let authority = Authority::new();
    let certified = authority.of_this_machine();
    let setup = manager
        .setup()
        .with("LATCHGATE_AUTH_KEYS_FILE", file.path())
        .with("LATCHGATE_HTTP_TLS_CERT_FILE", &certified.certificate())
        .with("LATCHGATE_HTTP_TLS_KEY_FILE", &certified.key());
    let gateway = Gateway::start_with(setup);
    assert!(says(&manager.message(), "READY=1"));
    gateway.signal(Signal::HUP);
    assert!(says(&manager.message(), "RELOADING=1"));
    assert!(says(&manager.message(), "READY=1"));
    let deadline = Instant::now() + Duration::from_mins(1);
    for line in [
        "the API keys were read again",
        "the certificate was read again",
    ] {
        while !gateway.log().contains(line) {
            assert!(Instant::now() < deadline, "{line}: {}", gateway.log());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn the_watchdog_is_fed_twice_as_often_as_it_must_be() {
    let manager = Manager::in_a_directory();
    let setup = manager.setup().with("WATCHDOG_USEC", "1000000");
    // Before the first of them: they are kept until they are read, however late that is.
    let begin = Instant::now();
    let gateway = Gateway::start_with(setup);
    let fed =
        std::iter::repeat_with(|| manager.message()).filter(|message| says(message, "WATCHDOG=1"));
    assert_eq!(fed.take(5).count(), 5);
    // The first comes at once, and the fifth after four halves of the limit; ten times that is for a
    // machine that does other things as well.
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(2), "{took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    // A process that stands still feeds nothing.
    gateway.signal(Signal::STOP);
    gateway.stands_still();
    while manager.next(Duration::from_millis(1)).is_some() {}
    assert_eq!(manager.next(Duration::from_millis(1_200)), None);
    gateway.signal(Signal::CONT);
}

#[test]
fn the_watchdog_of_another_process_is_not_fed() {
    let manager = Manager::in_a_directory();
    let setup = manager
        .setup()
        .with("WATCHDOG_USEC", "20000")
        .with("WATCHDOG_PID", "1");
    let _gateway = Gateway::start_with(setup);
    assert!(says(&manager.message(), "READY=1"));
    assert_eq!(manager.next(Duration::from_millis(300)), None);
}

#[test]
fn a_gateway_whose_manager_is_gone_serves_all_the_same_and_says_so() {
    for name in ["/nowhere/notify", "@nobody", "vsock:2:1", "@"] {
        let gateway = Gateway::start_with(Setup::default().with("NOTIFY_SOCKET", name));
        let inspected = latchgate(&["inspect", "deploy", "--url", &gateway.url()]).read();
        assert_eq!(inspected.code, Some(0), "{inspected:?}");
        gateway.logged("the service manager cannot be told");
    }
}

#[test]
fn a_manager_that_reads_nothing_does_not_hold_the_gateway_up() {
    let manager = Manager::in_a_directory();
    // Full before the gateway starts.
    let filler = UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    while filler.send_to(b"x", &manager.name).is_ok() {}
    let mut gateway = Gateway::start_with(manager.setup());
    let begin = Instant::now();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
    assert!(begin.elapsed() < Duration::from_mins(1));
    let log = gateway.log();
    assert_eq!(
        log.matches("the service manager was not told").count(),
        2,
        "{log}"
    );
}
