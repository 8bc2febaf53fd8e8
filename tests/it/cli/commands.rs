//! Output of the commands: exit codes, generated texts, secrets that are never printed, and paths that are not regular
//! files.

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::keys::inspect;
use crate::cli::prelude::*;

/// A token that belongs to no lease.
const NO_TOKEN: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn run(url: &str, arguments: &[&str]) -> Ran {
    latchgate(arguments)
        .env("LATCHGATE_URL", url)
        .token(NO_TOKEN)
        .read()
}

#[test]
fn a_lock_that_is_held_is_100_and_says_by_whom() {
    let (_gateway, url) = Gateway::start_and_url();
    run(&url, &["acquire", "deploy", "--owner", "me@here"]).ends(0);
    let held = run(&url, &["acquire", "deploy"]);
    held.gives(100, "");
    held.says("the lock is held by me@here for another ");
}

#[test]
fn a_lost_lease_is_102() {
    let gateway = Gateway::start();
    for command in ["renew", "release"] {
        let lost = run(&gateway.url(), &[command, "deploy"]);
        lost.gives(102, "");
    }
}

#[test]
fn no_gateway_is_103() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let unreachable = run(&url, &["acquire", "deploy"]).ends(103);
    unreachable.says(&url);
}

#[test]
fn what_a_gateway_cannot_do_has_a_code_for_each_reason() {
    for (reply, code) in [
        (Reply::problem(503, "store-unavailable", ""), 104),
        (Reply::problem(503, "draining", ""), 104),
        (Reply::problem(429, "too-many-leases", ""), 104),
        (Reply::problem(504, "outcome-unknown", ""), 105),
        (Reply::Lost, 105),
        (Reply::problem(401, "unauthorized", ""), 106),
        (Reply::problem(409, "idempotency-mismatch", ""), 106),
        (Reply::Answer(201, "<html>".to_owned()), 105),
        (Reply::Answer(302, "<html>".to_owned()), 1),
    ] {
        let gateway = FakeGateway::new([reply.clone()]);
        // The program repeats the request for as long as a lease from it could live.
        let ran = run(
            &gateway.url,
            &["acquire", "deploy", "--ttl", "1s", "--json"],
        );
        assert_eq!(ran.code, Some(code), "{reply:?}: {ran:?}");
        // With `--json` a problem is printed as the gateway sent it.
        if let Reply::Answer(400.., body) = reply {
            assert_eq!(ran.out, body + "\n");
        }
    }
}

#[test]
fn a_wrong_command_line_is_2() {
    for arguments in [
        &["acquire"][..],
        &["acquire", "a//b"],
        &["acquire", "/a"],
        &["acquire", "a", "a/../b"],
        &["run", "a/renew", "--", "true"],
        &["inspect", "a\\b"],
        &["break", "a/hold", "--reason", "x"],
        &["list", "--prefix", "/a"],
        &["events", "--prefix", "a//"],
        &["acquire", "a", "--ttl", "30"],
        &["acquire", "a", "--owner", ""],
        &["acquire", "a", "--meta", "novalue"],
        &["acquire", "a", "--meta", "n=1", "--meta", "n=2"],
        &["acquire", "a", "--url", "nonsense"],
        &["acquire", "a", "--token", "x"],
        &["list", "--limit", "0"],
        &["renew", "a", "--token", "x"],
        &["renew", "a", "--token-file", "/does/not/exist"],
        &["serve", "--listen", "nowhere"],
        &["config", "check", "--config", "/does/not/exist"],
        &["--listen", "127.0.0.1:0", "acquire", "a"],
        &["nonsense"],
    ] {
        let ran = run("http://127.0.0.1:1", arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
        assert!(
            ran.out.is_empty() && !ran.err.is_empty(),
            "{arguments:?}: {ran:?}"
        );
    }
}

#[test]
fn help_and_version_are_0() {
    for argument in ["--help", "--version", "-h"] {
        assert_eq!(run("", &[argument]).code, Some(0));
    }
}

#[test]
fn the_version_says_from_which_commit_it_was_built() {
    let ran = run("", &["--version"]);
    let expected = format!(
        "latchgate {} ({})\n",
        env!("CARGO_PKG_VERSION"),
        latchgate::release::COMMIT
    );
    assert_eq!(ran.out, expected);
}

fn committed(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn config_default_prints_the_committed_file() {
    let ran = typed("config default").read();
    assert_eq!(ran.out, committed("config/latchgate.toml"));
}

#[test]
fn config_check_says_so_if_nothing_is_set() {
    let ran = typed("config check").read();
    assert_eq!(
        ran.out,
        "the configuration is valid; every key has its default\n"
    );
}

#[test]
fn openapi_prints_the_committed_document() {
    let ran = typed("openapi").read();
    assert_eq!(ran.out, committed("openapi/latchgate.json"));
}

#[test]
fn every_shell_gets_completions_that_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = typed(&format!("completions {shell}")).ends(0);
        for word in ["acquire", "release", "token-file"] {
            assert!(ran.out.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn the_completions_for_bash_are_a_script_of_bash() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("completions");
    fs::write(&file, typed("completions bash").read().out).unwrap();
    let checked = spawn::command("bash")
        .arg("-n")
        .arg(&file)
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn without_a_token_the_ways_to_give_one_are_named() {
    let ran = typed("release deploy").ends(2);
    assert_eq!(
        ran.err,
        "latchgate: no token: set LATCHGATE_TOKEN, or name a file with --token-file \
         (- reads standard input)\n"
    );
}

#[test]
fn a_secret_that_is_none_is_not_repeated() {
    for (variable, value, arguments) in [
        ("LATCHGATE_TOKEN", "s3cret s3cret", &["renew", "deploy"][..]),
        ("LATCHGATE_KEY", "s3cret s3cret", &["inspect", "deploy"]),
        (
            "LATCHGATE_IDEMPOTENCY_KEY",
            "s3cret s3cret",
            &["acquire", "deploy"],
        ),
        ("LATCHGATE_URL", "http://u:s3cret@h", &["inspect", "deploy"]),
    ] {
        let ran = latchgate(arguments).env(variable, value).ends(2);
        ran.says_not("s3cret");
    }
}

#[test]
fn no_variable_of_a_client_may_be_empty() {
    for (variable, command) in [
        ("LATCHGATE_URL", "inspect"),
        ("LATCHGATE_CA_FILE", "inspect"),
        ("LATCHGATE_CLIENT_CERT_FILE", "inspect"),
        ("LATCHGATE_CLIENT_KEY_FILE", "inspect"),
        ("LATCHGATE_KEY", "inspect"),
        ("LATCHGATE_KEY_FILE", "inspect"),
        ("LATCHGATE_TOKEN", "renew"),
        ("LATCHGATE_TOKEN_FILE", "renew"),
        ("LATCHGATE_IDEMPOTENCY_KEY", "acquire"),
        ("LATCHGATE_IDEMPOTENCY_KEY_FILE", "acquire"),
    ] {
        let ran = typed(&format!("{command} deploy")).env(variable, "").read();
        ran.gives(2, "");
        ran.says(variable);
    }
    let gateway = FakeGateway::new([Reply::problem(401, "unauthorized", "")]);
    // A flag wins over its environment variable, whatever the value of the variable.
    typed(&format!("inspect deploy --url {}", gateway.url))
        .env("LATCHGATE_URL", "")
        .ends(106);
}

#[test]
fn the_api_key_travels_as_a_bearer() {
    let gateway = FakeGateway::new([Reply::problem(401, "unauthorized", "")]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    fs::write(&file, "fr0m-file\n").unwrap();
    let inspect = ["inspect", "deploy", "--url", &gateway.url];
    let ran = latchgate(&inspect).key("fr0m-variable").read();
    ran.says_not("fr0m");
    let with_file = [&inspect[..], &["--key-file", file.to_str().unwrap()]].concat();
    latchgate(&with_file).read();
    let received = gateway.received();
    assert_eq!(
        received[0].header("authorization"),
        Some("Bearer fr0m-variable")
    );
    assert_eq!(
        received[1].header("authorization"),
        Some("Bearer fr0m-file")
    );
}

#[test]
fn what_a_gateway_lacks_is_named_as_the_command_line_has_it() {
    let key = Made::new("ci", &["--acquire", "*", "--max-ttl", "1m"]);
    let file = File::new(&key.toml);
    let gateway = file.gateway();
    let refused = |arguments: &[&str], key: Option<&str>| {
        let mut ran = latchgate(arguments).env("LATCHGATE_URL", &gateway.url());
        if let Some(key) = key {
            ran = ran.key(key);
        }
        let ran = ran.ends(106);
        ran.err
    };
    let missing = refused(&["acquire", "deploy"], None);
    let said =
        "has no API key. Name a file with it by --key-file, or set LATCHGATE_KEY (unauthorized";
    assert!(missing.contains(said), "{missing}");
    let long = refused(&["acquire", "deploy", "--ttl", "2m"], Some(&key.key));
    let said = "--ttl is 120000 ms; the API key may ask for at most 60000 ms";
    assert!(long.contains(said), "{long}");
    let arguments = ["acquire", "deploy", "--ttl", "1ms", "--max-hold", "1ms"];
    let several = refused(&arguments, Some(&key.key));
    assert!(several.contains("request: --ttl is 1 ms;"), "{several}");
    assert!(several.contains("; --max-hold "), "{several}");
}

#[test]
fn the_password_of_a_store_is_masked() {
    let ran = typed("config check")
        .env("LATCHGATE_STORE", "redis://app:s3cret@cache:6380/3")
        .ends(0);
    assert_eq!(
        ran.out,
        "the configuration is valid; it sets\n  store = \"redis://app:***@cache:6380/3\"  \
         # the environment variable LATCHGATE_STORE\n"
    );
}

/// Makes a named pipe that has no writer.
fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// Paths that are not regular files, with the error for each.
fn refusals(directory: &Path) -> [(String, &'static str); 4] {
    let path = |name: &str| directory.join(name).display().to_string();
    if !directory.join("pipe").exists() {
        pipe(&directory.join("pipe"));
        fs::write(directory.join("long"), vec![b'#'; 5 * 1024 * 1024]).unwrap();
    }
    [
        ("/dev/zero".to_owned(), "a device, not a regular file"),
        (path("pipe"), "a pipe (as /dev/stdin and <(..) may be), not"),
        (path(""), "a directory, not a regular file"),
        (path("long"), "is longer than "),
    ]
}

#[test]
fn whatever_has_no_end_is_named_and_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let certificate = [
        "LATCHGATE_HTTP_TLS_CERT_FILE",
        "LATCHGATE_HTTP_TLS_KEY_FILE",
    ];
    for (path, reason) in refusals(directory.path()) {
        for (variables, store) in [
            (&["LATCHGATE_CONFIG"][..], "embedded:data"),
            (&["LATCHGATE_AUTH_KEYS_FILE"], "embedded:data"),
            (&certificate, "embedded:data"),
            (&["LATCHGATE_REDIS_PASSWORD_FILE"], "redis://127.0.0.1:1"),
            (&["LATCHGATE_REDIS_TLS_CA_FILE"], "rediss://127.0.0.1:1"),
            (&["LATCHGATE_TRACE_HEADERS_FILE"], "embedded:data"),
        ] {
            let set = |run: Run, variable: &&str| run.env(variable, &path);
            let check = typed("config check")
                .env("LATCHGATE_STORE", store)
                .env("LATCHGATE_TRACE_ENDPOINT", "http://127.0.0.1:1");
            let ran = variables.iter().fold(check, set).ends(2);
            assert!(
                ran.err.contains(&path) && ran.err.contains(reason),
                "{variables:?} {path}: {ran:?}"
            );
        }
    }
}

#[test]
fn what_starts_and_what_calls_reads_no_such_file_either() {
    let directory = tempfile::tempdir().unwrap();
    for (path, reason) in refusals(directory.path()) {
        for arguments in [
            &["serve", "--listen", "127.0.0.1:0", "--config", &path][..],
            &["key", "list", "--keys", &path],
            &[
                "inspect",
                "a",
                "--url",
                "https://127.0.0.1:1",
                "--ca-file",
                &path,
            ],
        ] {
            let ran = latchgate(arguments).ends(2);
            assert!(
                ran.err.contains(&path) && ran.err.contains(reason),
                "{arguments:?}: {ran:?}"
            );
        }
    }
}

#[test]
fn a_pipe_at_standard_input_is_not_read() {
    let check = typed("config check --config /dev/stdin");
    let piped = check.input("log.level = \"warn\"\n").ends(2);
    piped.says("/dev/stdin");
    piped.says("a pipe (as /dev/stdin");
}

#[test]
fn keys_go_on_when_a_pipe_or_a_device_takes_the_place_of_their_file() {
    let key = Made::new("ci", &["--view", "*"]);
    let file = File::new(&key.toml);
    let gateway = file.gateway();
    let new = file.path.with_extension("new");
    for count in 1..=2 {
        if count == 1 {
            pipe(&new);
        } else {
            std::os::unix::fs::symlink("/dev/zero", &new).unwrap();
        }
        fs::rename(&new, &file.path).unwrap();
        until("the file is refused", || {
            gateway
                .log()
                .matches("the keys file cannot be used")
                .count()
                == count
        });
        assert_eq!(inspect(&gateway, "a", &key.key).code, Some(0));
    }
    let another = Made::new("ci", &["--view", "*"]);
    file.write(&another.toml);
    until("the file is read again", || {
        inspect(&gateway, "a", &another.key).code == Some(0)
    });
}
