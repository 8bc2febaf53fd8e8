//! Supervisors of a gateway: systemd, health checks, and parent processes that block signals.

use std::{io::ErrorKind, os::unix::net::UnixDatagram};

use crate::{cli::prelude::*, support::Authority};

/// The side of systemd of its notify socket.
struct Manager {
    socket: UnixDatagram,
    /// The name of the socket, as `NOTIFY_SOCKET` has it.
    name: String,
    _directory: TempDir,
}

// === impl Manager ===

impl Manager {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        Self {
            socket: UnixDatagram::bind(&path).unwrap(),
            name: path.to_str().unwrap().to_owned(),
            _directory: directory,
        }
    }

    fn setup(&self) -> Setup {
        Setup::default().with("NOTIFY_SOCKET", &self.name)
    }

    /// The next message; `None` if none comes within the time.
    fn next(&self, within: Duration) -> Option<String> {
        let mut message = [0; 4096];
        self.socket.set_read_timeout(Some(within)).unwrap();
        match self.socket.recv(&mut message) {
            Ok(length) => Some(String::from_utf8(message[..length].to_vec()).unwrap()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            // A signal may interrupt the call, for example the one for a stopped child.
            Err(error) if error.kind() == ErrorKind::Interrupted => self.next(within),
            Err(error) => panic!("{error}"),
        }
    }

    fn message(&self) -> String {
        self.next(Duration::from_mins(1)).expect("a message")
    }
}

/// Whether a message contains this line.
fn says(message: &str, line: &str) -> bool {
    message.lines().any(|said| said == line)
}

#[test]
fn it_says_when_it_is_ready_and_when_it_stops() {
    let manager = Manager::start();
    let setup = manager.setup().with("LATCHGATE_SHUTDOWN_GRACE_MS", "7000");
    let mut gateway = Gateway::start_with(setup);
    let ready = manager.message();
    assert!(says(&ready, "READY=1"), "{ready}");
    // The message is not sent too early: the gateway already answers.
    typed(&format!("healthcheck --listen {}", gateway.address)).ends(0);
    gateway.signal(Signal::TERM);
    let stopping = manager.message();
    assert!(says(&stopping, "STOPPING=1"), "{stopping}");
    // The grace period and five more seconds.
    assert!(
        says(&stopping, "EXTEND_TIMEOUT_USEC=12000000"),
        "{stopping}"
    );
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
    assert_eq!(manager.next(Duration::from_millis(1)), None);
}

#[test]
fn it_says_that_it_reloads_and_when_it_has() {
    let manager = Manager::start();
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

/// Neither file has changed: only the signal makes the gateway read the files again.
#[test]
fn a_reload_reads_keys_and_certificates_and_is_reported() {
    let manager = Manager::start();
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
    gateway.logged("the API keys were read again");
    gateway.logged("the certificate was read again");
}

#[test]
fn the_watchdog_is_fed_twice_as_often_as_it_must_be() {
    let manager = Manager::start();
    let setup = manager.setup().with("WATCHDOG_USEC", "1000000");
    // Taken before the first message is sent: messages stay in the socket until they are read, however late that is.
    let begin = Instant::now();
    let gateway = Gateway::start_with(setup);
    let fed =
        std::iter::repeat_with(|| manager.message()).filter(|message| says(message, "WATCHDOG=1"));
    assert_eq!(fed.take(5).count(), 5);
    // The first message comes at once, and the fifth after four halves of the limit. Ten times that is enough for a
    // machine that does other work.
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(2), "{took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    // A frozen process sends no watchdog message.
    gateway.freeze();
    while manager.next(Duration::from_millis(1)).is_some() {}
    assert_eq!(manager.next(Duration::from_millis(1_200)), None);
    gateway.signal(Signal::CONT);
}

#[test]
fn the_watchdog_of_another_process_is_not_fed() {
    let manager = Manager::start();
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
        gateway.typed("inspect deploy").ends(0);
        gateway.logged("could not report its state to the service manager");
    }
}

#[test]
fn a_manager_that_reads_nothing_does_not_hold_the_gateway_up() {
    let manager = Manager::start();
    // The buffer of the socket is full before the gateway starts.
    let filler = UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    while filler.send_to(b"x", &manager.name).is_ok() {}
    let mut gateway = Gateway::start_with(manager.setup());
    let begin = Instant::now();
    gateway.ends_by(Signal::TERM, 0);
    assert!(begin.elapsed() < Duration::from_mins(1));
}

/// Checks the health of a gateway at an address.
fn check(listen: &str, arguments: &[&str]) -> Ran {
    let arguments = [&["healthcheck"], arguments].concat();
    latchgate(&arguments).env("LATCHGATE_LISTEN", listen).read()
}

/// Checks the health of a fake gateway with this reply.
fn check_fake(reply: Reply, arguments: &[&str]) -> Ran {
    let fake = FakeGateway::new([reply]);
    check(fake.url.strip_prefix("http://").unwrap(), arguments)
}

#[test]
fn a_gateway_that_answers_is_healthy_and_ready() {
    let gateway = Gateway::start();
    let listen = gateway.address.to_string();
    let healthy = check(&listen, &[]).ends(0);
    assert!(healthy.out.contains("\"status\":\"ok\""), "{healthy:?}");
    let ready = check(&listen, &["--ready"]).ends(0);
    assert!(ready.out.contains("\"status\":\"ready\""), "{ready:?}");
}

#[test]
fn it_finds_the_gateway_behind_a_prefix_and_on_an_address_that_stands_for_all() {
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let setup = Setup {
            listen: Some(listen),
            ..Setup::default()
                .with("LATCHGATE_INSECURE_NO_AUTH", "true")
                .with("LATCHGATE_HTTP_BASE_PATH", "/gate")
        };
        let gateway = Gateway::start_with(setup);
        let listen = listen.replace(":0", &format!(":{}", gateway.address.port()));
        // As in a container, the command has the environment of the gateway.
        typed(&format!("healthcheck --listen {listen}"))
            .env("LATCHGATE_INSECURE_NO_AUTH", "true")
            .env("LATCHGATE_HTTP_BASE_PATH", "/gate")
            .ends(0);
    }
}

#[test]
fn it_reads_the_configuration_file_of_the_gateway() {
    let gateway = Gateway::start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("latchgate.toml");
    fs::write(&file, format!("listen = \"{}\"", gateway.address)).unwrap();
    typed(&format!("healthcheck --config {}", file.to_str().unwrap())).ends(0);
}

#[test]
fn where_nobody_listens_it_is_1_and_says_so() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = free.local_addr().unwrap().to_string();
    drop(free);
    let checked = check(&listen, &[]);
    checked.gives(1, "");
    let said = format!("http://{listen}/healthz cannot be reached");
    checked.says(&said);
}

#[test]
fn a_gateway_that_stands_still_is_1_within_the_time_given() {
    let gateway = Gateway::start();
    gateway.signal(Signal::STOP);
    let checked = check(&gateway.address.to_string(), &["--timeout", "300ms"]);
    gateway.signal(Signal::CONT);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    checked.says("did not answer within 300ms");
}

#[test]
fn a_gateway_that_drains_is_healthy_and_not_ready() {
    let mut gateway =
        Gateway::start_with(Setup::default().with("LATCHGATE_SHUTDOWN_GRACE_MS", "600000"));
    let listen = gateway.address.to_string();
    // The gateway drains for as long as its lease lives.
    let acquired = gateway.typed("acquire deploy").read();
    gateway.signal(Signal::TERM);
    let not_ready = loop {
        let ready = check(&listen, &["--ready"]);
        if ready.code != Some(0) {
            break ready;
        }
    };
    assert_eq!(not_ready.code, Some(1), "{not_ready:?}");
    not_ready.says("answered with 503");
    assert!(not_ready.err.trim_end().ends_with('}'), "{not_ready:?}");
    not_ready.says_not("\\u{");
    not_ready.says("draining");
    assert_eq!(check(&listen, &[]).code, Some(0));
    let release = gateway.typed("release deploy");
    release.token(acquired.out.trim_end()).read();
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn what_is_no_gateway_is_not_healthy() {
    let not_found = check_fake(Reply::Answer(404, "what?\u{1b}[2J".to_owned()), &[]);
    assert_eq!(not_found.code, Some(1), "{not_found:?}");
    not_found.says("answered with 404");
    not_found.says_not("\u{1b}");
    check_fake(Reply::Lost, &[]).ends(1);
    check_fake(Reply::Silence, &["--timeout", "100ms"]).ends(1);
}

#[test]
fn it_asks_what_it_is_told_to() {
    for (arguments, line) in [
        (&[][..], "GET /healthz HTTP/1.1"),
        (&["--ready"], "GET /readyz HTTP/1.1"),
    ] {
        let fake = FakeGateway::new([Reply::Answer(200, "{}".to_owned())]);
        let listen = fake.url.strip_prefix("http://").unwrap();
        assert_eq!(check(listen, arguments).code, Some(0));
        let received = fake.received();
        assert_eq!(received[0].line, line);
        assert_eq!(received[0].header("host"), Some(listen));
    }
}

#[test]
fn a_port_that_only_the_gateway_knows_and_a_wrong_configuration_are_2() {
    let free = check("127.0.0.1:0", &[]).ends(2);
    free.says("listen is port 0");
    assert_eq!(check("localhost", &[]).code, Some(2));
}

/// Starts a program with ignored signals, as `nohup` and background jobs of a shell do, and with a blocked signal too.
const DEAF: &str = r#"trap "" HUP INT QUIT TERM USR1; exec env --block-signal=USR2 "$@""#;
const SHOW: [&str; 3] = ["grep", "-E", "^Sig(Blk|Ign)"];

/// The sets of blocked and of ignored signals of a command.
fn shown(mut command: Command) -> [u64; 2] {
    let output = command
        .arg("/proc/self/status")
        .stdin(Stdio::null())
        .output();
    let output = output.unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let sets = text.lines().map(|line| {
        let set = u64::from_str_radix(line.split_once('\t').unwrap().1, 16).unwrap();
        // Signals 32 and 33 belong to glibc, whose `posix_spawn` makes children ignore them.
        set & !(0b11 << 31)
    });
    let sets: Vec<_> = sets.collect();
    sets.try_into().unwrap_or_else(|_| panic!("{output:?}"))
}

fn deaf(arguments: &[&str]) -> Command {
    let mut command = spawn::command("sh");
    command.args(["-c", DEAF, "sh"]).args(arguments);
    command
}

#[test]
fn a_command_under_run_begins_with_the_signals_that_it_would_have_without() {
    let gateway = Gateway::start();
    let program = env!("CARGO_BIN_EXE_latchgate");
    let run = [program, "run", "--url", &gateway.url(), "deploy", "--"];
    let mut plain = spawn::command(SHOW[0]);
    plain.args(&SHOW[1..]);
    let mut under_run = spawn::command(run[0]);
    under_run.args(&run[1..]).args(SHOW);
    assert_eq!(shown(under_run), shown(plain));
    let run: Vec<_> = run.into_iter().chain(SHOW).collect();
    let [_, ignored] = shown(deaf(&SHOW));
    // `run` must notice the end of its command, and still passes no blocked signal to the command.
    assert_eq!(shown(deaf(&run)), [0, ignored]);
}

#[test]
fn a_command_under_run_and_a_gateway_end_although_the_caller_has_blocked_the_signals_for_that() {
    let block = ["env", "--block-signal=CHLD", "--block-signal=TERM"];
    let blocking = |arguments: &[&str]| {
        let mut command = spawn::command(block[0]);
        let program = env!("CARGO_BIN_EXE_latchgate");
        command.args(&block[1..]).arg(program).args(arguments);
        with_path_alone(&mut command);
        command
    };
    let gateway = Gateway::start();
    let mut run = blocking(&["run", "--url", &gateway.url(), "deploy", "--", "true"]);
    let mut run = run.spawn().unwrap();
    ends_with(&mut run, Some(0));

    let directory = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", directory.path().display());
    let mut serve = blocking(&["serve", "--listen", "127.0.0.1:0", "--store", &store]);
    let mut serve = serve.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut says = BufReader::new(serve.stdout.take().unwrap());
    while !said.contains("curl") {
        assert_ne!(says.read_line(&mut said).unwrap(), 0, "{said}");
    }
    kill_process(Pid::from_child(&serve), Signal::TERM).unwrap();
    ends_with(&mut serve, Some(0));
}

/// Waits for the end of a process with this exit code, and kills it if the end does not come.
fn ends_with(process: &mut Child, code: Option<i32>) {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            assert_eq!(status.code(), code);
            return;
        }
        if Instant::now() > deadline {
            process.kill().unwrap();
            process.wait().unwrap();
            panic!("it does not end");
        }
        thread::sleep(Duration::from_millis(10));
    }
}
