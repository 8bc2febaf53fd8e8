//! Declared locks in the real program: the start, a reload, the options of the command line, and several gateways.

use tokio::time::sleep;

use crate::{cli::prelude::*, support::eventually};

const TOKEN: &str = "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU";

/// A locks file.
struct LocksFile {
    directory: TempDir,
}

impl LocksFile {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = Self { directory };
        file.write(text);
        file
    }

    fn path(&self) -> String {
        let path = self.directory.path().join("locks.toml");
        path.to_str().unwrap().to_owned()
    }

    fn write(&self, text: &str) {
        fs::write(self.path(), text).unwrap();
    }

    fn setup(&self, setup: Setup) -> Setup {
        setup.with("LATCHGATE_LOCKS_FILE", &self.path())
    }
}

/// A declared lock with this limit.
fn pool(limit: u16) -> String {
    format!("[[lock]]\nname = 'pool'\nlimit = {limit}\ndescription = 'see the wiki'\n")
}

/// What curl prints for a path of a gateway.
fn curl(gateway: &Gateway, path: &str, arguments: &[&str]) -> String {
    let curl = spawn::command("curl")
        .args(["--silent", "--show-error"])
        .args(arguments)
        .arg(format!("{}{path}", gateway.url()))
        .output()
        .unwrap();
    String::from_utf8(curl.stdout).unwrap()
}

/// Whether the health check of the declarations has this result.
fn shows(gateway: &Gateway, what: &str) -> bool {
    let check = format!("{{\"name\":\"declared-locks\",\"status\":\"{what}\"");
    curl(gateway, "/readyz", &[]).contains(&check)
}

#[test]
fn a_file_that_cannot_be_used_stops_the_start() {
    let file = LocksFile::new(&pool(0));
    let serve = || {
        let arguments = ["serve", "--listen", "127.0.0.1:0"];
        latchgate(&arguments)
            .env("LATCHGATE_LOCKS_FILE", &file.path())
            .ends(2)
    };
    let refused = serve();
    assert_has(
        &refused.err,
        "the [[lock]] \"pool\" in line 1: limit is 0; allowed are 1 to 1000",
    );
    let check = latchgate(&["config", "check"]);
    let check = check.env("LATCHGATE_LOCKS_FILE", &file.path()).ends(2);
    assert_has(&check.err, "limit is 0; allowed are 1 to 1000");
    fs::remove_file(file.path()).unwrap();
    assert_has(&serve().err, "the locks file /");
}

#[test]
fn a_file_that_became_invalid_keeps_the_old_declarations_and_is_a_warning() {
    let file = LocksFile::new(&pool(1));
    let gateway = Gateway::start_with(file.setup(Setup::default()));
    assert!(shows(&gateway, "passing"));
    gateway.typed("acquire pool").ends(0);
    let held = gateway.typed("acquire pool").ends(100);
    assert_has(&held.err, "(see the wiki)");
    for broken in [String::new(), pool(2) + &pool(3)] {
        file.write(&broken);
        until("there is a warning", || shows(&gateway, "warning"));
        assert_has(&curl(&gateway, "/readyz", &[]), "\"status\":\"ready\"");
        gateway.logged("the declarations of locks that were read before stay in force");
        gateway.typed("acquire pool").ends(100);
    }
    file.write(&pool(2));
    gateway.signal(Signal::HUP);
    until("the warning is gone", || shows(&gateway, "passing"));
    gateway.typed("acquire pool").ends(0);
    gateway.typed("acquire pool").ends(100);
    // What is held stays held when the limit is lowered.
    file.write(&pool(1));
    gateway.logged("the locks file was read again");
    until("the lower limit counts", || {
        let told = curl(&gateway, "/locks/pool", &[]);
        told.contains("\"limit\":1") && told.contains("\"holder_count\":2")
    });
}

#[test]
fn a_plain_command_says_that_it_shares_a_lock_and_another_holds_it_alone() {
    let file = LocksFile::new("[[lock]]\nname = 'freeze'\nmode = 'shared'");
    let gateway = Gateway::start_with(file.setup(Setup::default()));
    let note =
        "freeze is shared with other holders, as it is declared; --exclusive asks for it alone";
    let ran = gateway.typed("run freeze -- echo done").ends(0);
    assert_has(&ran.err, note);
    let ran = gateway.typed("run freeze --shared -- echo done").ends(0);
    assert!(!ran.err.contains(note), "{ran:?}");
    let shared = gateway.typed("acquire freeze").ends(0);
    assert_has(&shared.err, note);
    gateway.typed("acquire freeze --exclusive").ends(100);
    gateway
        .typed("release freeze")
        .token(shared.out.trim_end())
        .ends(0);
    let alone = gateway.typed("acquire freeze --exclusive").ends(0);
    assert!(!alone.err.contains(note), "{alone:?}");
    gateway.typed("run freeze --wait 0 -- echo no").ends(100);
}

#[test]
fn the_mode_exclusive_is_sent_only_if_it_was_typed() {
    let one = ["acquire", "gpu"];
    for (arguments, sent) in [
        (&one[..], json!([null, null])),
        (
            &["acquire", "gpu", "--exclusive"],
            json!(["exclusive", null]),
        ),
        (&["acquire", "gpu=exclusive"], json!(["exclusive", null])),
        (
            &["acquire", "a=exclusive", "b"],
            json!([null, [{"name": "a", "mode": "exclusive"}, "b"]]),
        ),
        (
            &["acquire", "a", "b", "--exclusive"],
            json!(["exclusive", ["a", "b"]]),
        ),
    ] {
        let gateway = FakeGateway::new([Reply::problem(423, "locked", "")]);
        gateway.latchgate(arguments).ends(100);
        let body: Value = serde_json::from_str(&gateway.received()[0].body).unwrap();
        assert_eq!(json!([body["mode"], body["names"]]), sent, "{arguments:?}");
    }
    let gateway = FakeGateway::new([]);
    for wrong in [
        "acquire a --exclusive --shared",
        "acquire a --exclusive --limit 2",
        "acquire a=2 b --exclusive",
    ] {
        gateway.typed(wrong).ends(2);
    }
    assert!(gateway.received().is_empty());
}

#[test]
fn no_client_repeats_a_request_that_contradicts_a_declaration() {
    for (status, code) in [(409, "declared-differently"), (403, "undeclared-lock")] {
        let gateway = FakeGateway::new([Reply::problem(status, code, r#","detail":"Say less.""#)]);
        let ran = gateway
            .typed("acquire gpu --wait 10s")
            .token(TOKEN)
            .ends(106);
        assert_has(&ran.err, "Say less");
        assert_eq!(gateway.received().len(), 1);
    }
}

/// A waiter that was queued under a lower limit is granted the lock by a repetition after the limit was raised.
fn a_repetition_takes_the_terms_of_today(setup: Setup) {
    let file = LocksFile::new(&pool(1));
    let gateway = Gateway::start_with(file.setup(setup));
    gateway.typed("acquire pool").ends(0);
    let ask = |wait: &str| {
        let body = format!("{{\"wait_ms\":{wait},\"ttl_ms\":60000}}");
        let key = "Idempotency-Key: a-key-of-this-test-alone";
        let arguments = ["--json", &body, "-H", key];
        curl(&gateway, "/locks/pool", &arguments)
    };
    assert_has(&ask("100"), "\"code\":\"locked\"");
    file.write(&pool(2));
    gateway.signal(Signal::HUP);
    gateway.logged("the locks file was read again");
    // The file is not part of the request: its repetition is the same request, and its queue entry has the new limit.
    assert_has(&ask("20000"), "\"slot\":1");
}

#[test]
fn a_repetition_takes_the_terms_of_today_in_the_embedded_store() {
    a_repetition_takes_the_terms_of_today(Setup::default());
}

#[tokio::test]
async fn a_repetition_takes_the_terms_of_today_in_redis() {
    let server = RedisServer::start().await;
    a_repetition_takes_the_terms_of_today(Setup::on(&server));
}

#[tokio::test]
async fn gateways_with_different_declarations_warn_after_a_minute() {
    let server = RedisServer::start().await;
    let files =
        [pool(1), format!("# other words\n{}", pool(1)), pool(2)].map(|text| LocksFile::new(&text));
    let on = || Setup::on(&server);
    let gateways = [&files[0], &files[1]].map(|file| Gateway::start_with(file.setup(on())));
    // These two mean the same; a gateway with another limit and one without a file join them.
    let [other, none] = [files[2].setup(on()), on()].map(Gateway::start_with);
    let all = [&gateways[0], &gateways[1], &other, &none];
    assert!(
        !all.iter().any(|gateway| shows(gateway, "warning")),
        "at first nobody warns"
    );
    // A difference of less than a minute is no warning: a changed file reaches one gateway after the other.
    sleep(Duration::from_secs(55)).await;
    assert!(
        !all.iter().any(|gateway| shows(gateway, "warning")),
        "within the minute nobody warns"
    );
    for gateway in all {
        eventually("it warns", async || shows(gateway, "warning").then_some(())).await;
        gateway.logged("another gateway on the store has other declarations of locks");
    }
    drop((other, none));
    for gateway in &gateways {
        eventually("the warning ends", async || {
            shows(gateway, "passing").then_some(())
        })
        .await;
    }
}
