//! API keys: made, listed, used, rotated and revoked while gateways run.

use std::path::PathBuf;

use crate::cli::prelude::*;

/// A keys file in a temporary directory.
pub(super) struct File {
    directory: TempDir,
    pub(super) path: PathBuf,
}

/// A key as `key new --json` prints it.
pub(super) struct Made {
    pub(super) key: String,
    pub(super) secret: String,
    pub(super) toml: String,
}

// === impl File ===

impl File {
    pub(super) fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.toml");
        let file = Self { directory, path };
        file.write(text);
        file
    }

    /// Replaces the file atomically, as a careful program does.
    pub(super) fn write(&self, text: &str) {
        let new = self.directory.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, &self.path).unwrap();
    }

    pub(super) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    pub(super) fn gateway(&self) -> Gateway {
        let setup = Setup::default().with("LATCHGATE_AUTH_KEYS_FILE", self.path());
        Gateway::start_with(setup.with("LATCHGATE_LOG_LEVEL", "trace"))
    }
}

// === impl Made ===

impl Made {
    pub(super) fn new(name: &str, flags: &[&str]) -> Self {
        let ran = latchgate(&[&["key", "new", "--json", "--name", name], flags].concat()).ends(0);
        let made = ran.json();
        let text = |field: &str| made[field].as_str().unwrap().to_owned();
        assert!(!text("toml").contains(&text("key")[15..58]));
        Self {
            key: text("key"),
            secret: text("secret"),
            toml: text("toml"),
        }
    }
}

pub(super) fn inspect(gateway: &Gateway, lock: &str, key: &str) -> Ran {
    let ran = gateway.typed(&format!("inspect {lock}"));
    ran.key(key).read()
}

#[test]
fn a_new_key_works_as_soon_as_its_table_is_in_the_file() {
    let key = Made::new(
        "ci",
        &["--acquire", "ci:", "--view", "ci:", "--expires", "90d"],
    );
    let file = File::new(&key.toml);
    let gateway = file.gateway();
    assert_eq!(inspect(&gateway, "ci:a", &key.key).code, Some(0));
    let refused = inspect(&gateway, "ci2:a", &key.key).ends(106);
    refused.says("no permission `view`");
    let cut = inspect(&gateway, "ci:a", &key.key[..60]);
    cut.says("cut off or mistyped");
    let log = gateway.logged("key=\"ci\"");
    assert!(
        !log.contains(&key.key[15..58]) && !log.contains(&key.secret[18..]),
        "{log}"
    );
}

#[test]
fn a_new_key_is_printed_with_what_to_paste() {
    let flags = [
        "--max-ttl",
        "5m",
        "--requests-per-second",
        "5",
        "--metrics",
        "--break",
        "*",
    ];
    let ran = latchgate(&[&["key", "new", "--name", "ops"][..], &flags].concat()).read();
    let key = ran
        .out
        .lines()
        .find(|line| line.starts_with("lgk_"))
        .unwrap();
    assert_eq!(key.len(), 64);
    for line in [
        "[[key]]",
        "name = \"ops\"",
        "break = [\"*\"]",
        "metrics = true",
        "max_ttl_ms = 300000",
        "requests_per_second = 5",
    ] {
        assert!(
            ran.out.contains(&format!("{line}\n")),
            "{line}: {}",
            ran.out
        );
    }
    // The output without the key itself is a valid keys file.
    let file = File::new(&ran.out.replace(key, ""));
    typed(&format!("key list --keys {}", file.path())).ends(0);
}

#[test]
fn a_new_key_is_added_to_a_file_and_works() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.toml");
    let path = path.to_str().unwrap();
    let new = |name: &str| typed(&format!("key new --name {name} --view * --append {path}")).read();
    let first = new("first");
    let made = Gateway::start_with(Setup::default().with("LATCHGATE_AUTH_KEYS_FILE", path));
    let second = new("second");
    for ran in [&first, &second] {
        assert_eq!((ran.code, ran.out.len()), (Some(0), 65), "{ran:?}");
        ran.says(format!(" to {path}; "));
        ran.says_not(&ran.out[15..58]);
    }
    assert_eq!(inspect(&made, "a", first.out.trim_end()).code, Some(0));
    until("the gateway has read it again", || {
        inspect(&made, "a", second.out.trim_end()).code == Some(0)
    });
    let again = new("second");
    again.gives(2, "");
    again.says("a name that no other key has");
}

#[test]
fn a_secret_is_replaced_without_a_moment_in_which_none_is_valid() {
    let old = Made::new("ci", &["--view", "*"]);
    let file = File::new(&format!("# Ours.\n{}", old.toml));
    let gateway = file.gateway();
    let rotate = |flags: &[&str]| {
        let rotate = ["key", "rotate", "ci", "--keys", file.path()];
        latchgate(&[&rotate[..], flags].concat()).read()
    };
    let early = rotate(&["--finish"]).ends(2);
    early.says("the key ci has one secret");
    let begun = rotate(&[]).ends(0);
    let new = begun.out.trim_end();
    let undo = format!("--finish --keep {}` removes it", &old.key[4..14]);
    for part in ["`latchgate key rotate ci --finish`", &undo] {
        begun.says(part);
    }
    begun.says_not(&new[15..58]);
    until("the new secret is known", || {
        inspect(&gateway, "a", new).code == Some(0)
    });
    assert_eq!(inspect(&gateway, "a", &old.key).code, Some(0));
    let twice = rotate(&[]).ends(2);
    let both = format!("has two secrets: {} and {};", &old.key[4..14], &new[4..14]);
    twice.says(&both);
    let finished = rotate(&["--finish", "--json"]).ends(0);
    let answer = finished.json();
    assert_eq!(answer["removed_id"], old.key[4..14]);
    assert_eq!(answer["kept_id"], new[4..14]);
    until("the old secret is gone", || {
        inspect(&gateway, "a", &old.key).code == Some(106)
    });
    assert_eq!(inspect(&gateway, "a", new).code, Some(0));
    let text = fs::read_to_string(&file.path).unwrap();
    assert!(text.starts_with("# Ours.\n"), "{text}");
    // If the new key cannot be printed, the error names the command that removes it.
    let full = fs::File::options().write(true).open("/dev/full");
    let lost = typed(&format!("key rotate ci --keys {}", file.path()))
        .out(full.unwrap())
        .run()
        .ends(1);
    let undo = format!(
        "`latchgate key rotate ci --finish --keep {}` removes it",
        &new[4..14]
    );
    lost.says(&undo);
}

#[test]
fn what_a_gateway_would_refuse_is_not_made() {
    // The file has whole seconds, so an expiry after a millisecond is in the past.
    let cases = r#"
        --name 'a b' => name of
        --name a --view team:* => with the slash, or * alone
        --name a --expires soon => invalid value 'soon' for '--expires <WHEN>': expected 90d
        --name a --expires 0s => invalid value '0s' for '--expires <WHEN>': this time is over already
        --name a --expires 1ms => is over already
        --name a --expires 2020-01-01T00:00:00Z => is over already
        --name a --burst 5 => burst of
        --name 'a"LINE x = 1' => name of
    "#;
    for (flags, part) in rows(cases) {
        let ran = typed(&format!("key new {flags}").replace("LINE ", "\n")).read();
        ran.gives(2, "");
        ran.says(part);
        assert!(
            !ran.err.contains("lgk_") && !ran.err.contains("sha256"),
            "{ran:?}"
        );
    }
}

#[test]
fn the_list_says_who_may_do_what_and_never_a_secret() {
    let ci = Made::new(
        "ci",
        &["--acquire", "ci:", "--view", "*", "--max-leases", "3"],
    );
    let old = Made::new("old", &["--metrics", "--expires", "2120-01-01T00:00:00Z"]);
    // An expiry that was in the future when the key was made, and is now in the past.
    let over = old.toml.replace("2120-01-01", "2020-01-01");
    let file = File::new(&(ci.toml.clone() + &over));
    let list = ["key", "list", "--keys", file.path()];
    let ran = latchgate(&list).read();
    let lines: Vec<_> = ran.out.lines().collect();
    assert!(
        lines[1].starts_with("ci") && lines[1].contains("max_leases=3"),
        "{ran:?}"
    );
    assert!(lines[2].contains("2020-01-01T00:00:00Z EXPIRED"), "{ran:?}");
    let json = latchgate(&[&list[..], &["--json"]].concat()).read();
    let keys = json.json();
    assert_eq!(keys["keys"][0]["acquire"], serde_json::json!(["ci:"]));
    assert_eq!(keys["keys"][0]["ids"][0], ci.key[4..14]);
    for (at, expired) in [(0, false), (1, true)] {
        assert_eq!(keys["keys"][at]["expired"], expired);
    }
    for made in [&ci, &old] {
        for out in [&ran.out, &json.out] {
            assert!(!out.contains(&made.key[15..58]) && !out.contains(&made.secret[18..]));
        }
    }
    // The configuration may name the file.
    let configured = typed("key list").env("LATCHGATE_AUTH_KEYS_FILE", file.path());
    assert_eq!(configured.read().out, ran.out);
    let none = typed("key list").ends(2);
    none.says("no keys file");
}

#[test]
fn a_keys_file_that_cannot_be_used_stops_the_start() {
    let file = File::new("[[key]]\nname = 'a'\n");
    for (path, part) in [
        (file.path(), "secrets of the key \"a\" is missing"),
        ("/none", "/none"),
    ] {
        for command in [
            &["serve", "--listen", "127.0.0.1:0"][..],
            &["config", "check"],
        ] {
            let ran = latchgate(command)
                .env("LATCHGATE_AUTH_KEYS_FILE", path)
                .ends(2);
            ran.says(part);
        }
    }
}

#[test]
fn with_keys_an_open_address_is_served() {
    let key = Made::new("ci", &["--view", "*"]);
    let file = File::new(&key.toml);
    let setup = Setup::default().with("LATCHGATE_AUTH_KEYS_FILE", file.path());
    let listen = Some("[::]:0");
    let gateway = Gateway::start_with(Setup { listen, ..setup });
    assert_eq!(inspect(&gateway, "a", "").code, Some(2));
    assert_eq!(inspect(&gateway, "a", &key.key).code, Some(0));
    assert!(!gateway.log().contains("there is no authentication"));
}

#[test]
fn a_file_that_became_invalid_keeps_the_old_keys_and_is_a_warning() {
    let key = Made::new("ci", &["--view", "*"]);
    let file = File::new(&key.toml);
    let gateway = file.gateway();
    let ready = || {
        let curl = spawn::command("curl")
            .args([
                "--silent",
                "--show-error",
                &format!("{}/readyz", gateway.url()),
            ])
            .output()
            .unwrap();
        String::from_utf8(curl.stdout).unwrap()
    };
    let shows =
        |what: &str| ready().contains(&format!("{{\"name\":\"keys\",\"status\":\"{what}\""));
    assert!(shows("passing"), "{}", ready());
    for broken in ["", "[[key]]\nname = 1"] {
        file.write(broken);
        until("there is a warning", || shows("warning"));
        assert!(ready().contains("\"status\":\"ready\""), "{}", ready());
        assert!(!ready().contains("keys.toml"), "{}", ready());
        assert_eq!(inspect(&gateway, "a", &key.key).code, Some(0));
        gateway.logged("the keys file cannot be used");
        file.write(&key.toml);
        until("the warning is gone", || shows("passing"));
    }
    let everybody = fs::Permissions::from_mode(0o666);
    fs::set_permissions(&file.path, everybody).unwrap();
    until("it is said who can write the file", || {
        gateway.log().contains("can write the keys file")
    });
    fs::remove_file(&file.path).unwrap();
    gateway.signal(Signal::HUP);
    until("there is a warning", || shows("warning"));
    assert_eq!(inspect(&gateway, "a", &key.key).code, Some(0));
}

#[test]
fn a_stream_ends_when_its_key_is_taken_back_or_expires() {
    let other = Made::new("other", &["--view", "*"]);
    let brief = Made::new("soon", &["--acquire", "*", "--expires", "4s"]);
    let gone = Made::new("gone", &["--acquire", "*"]);
    let file = File::new(&(other.toml.clone() + &brief.toml + &gone.toml));
    let gateway = file.gateway();
    let hold = |lock: &str, key: &Made| {
        spawn::command("curl")
            .args(["--silent", "--no-buffer", "-X", "POST", "-H"])
            .arg(format!("Authorization: Bearer {}", key.key))
            .arg(format!("{}/locks/{lock}/hold", gateway.url()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let streams = [hold("a", &brief), hold("b", &gone)];
    let is_held = |lock: &str| inspect(&gateway, lock, &other.key).out.contains("held");
    until("both are held", || is_held("a") && is_held("b"));
    file.write(&(other.toml.clone() + &brief.toml));
    for stream in streams {
        let out = stream.wait_with_output().unwrap();
        let out = String::from_utf8(out.stdout).unwrap();
        assert_has(&out, "event: granted");
        assert_has(&out, "\"reason\":\"revoked\"");
    }
}
