//! The steps of docs/backup.md, docs/move.md and docs/upgrade.md: copies of the embedded store, and moves to another
//! store.

use std::os::unix::{
    fs::{FileTypeExt, symlink},
    net::UnixListener,
};

use latchgate::store::embedded::check_backup;

use crate::cli::prelude::*;

/// Acquires a lock for an hour. Answers the lease.
fn acquire(gateway: &Gateway, name: &str) -> Value {
    let ran = gateway
        .typed(&format!("acquire {name} --ttl 1h --json"))
        .ends(0);
    ran.json()
}

fn fence(lease: &Value) -> u64 {
    lease["fencing_token"].as_u64().unwrap()
}

/// The exit code of a command with the token of a lease.
fn command(gateway: &Gateway, command: &str, lease: &Value) -> Option<i32> {
    let name = lease["name"].as_str().unwrap();
    gateway
        .typed(&format!("{command} {name}"))
        .token(lease["token"].as_str().unwrap())
        .read()
        .code
}

/// A directory with a copy of the log files of a gateway, and of no other file.
fn copied(gateway: &Gateway) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(gateway.data()).unwrap() {
        let entry = entry.unwrap();
        if entry.path().extension().is_some_and(|it| it == "log") {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
    }
    copy
}

/// A gateway on an existing directory.
fn on(directory: &Path) -> Gateway {
    let store = format!("embedded:{}", directory.display());
    Gateway::start_with(Setup::default().with("LATCHGATE_STORE", &store))
}

/// Backs a gateway up to a file, with further arguments.
fn back_up(gateway: &Gateway, file: &Path, arguments: &[&str]) -> Ran {
    let file = file.to_str().unwrap();
    latchgate(&[&["backup", file], arguments].concat())
        .env("LATCHGATE_URL", &gateway.url())
        .read()
}

#[test]
fn a_backup_under_load_holds_every_lease_that_was_acknowledged_before_it() {
    let mut gateway = Gateway::start();
    let leases: Vec<_> = (0..10)
        .map(|number| acquire(&gateway, &format!("held:{number}")))
        .collect();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("latchgate.00000001.log");
    let done = AtomicBool::new(false);
    let newest = thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let (mut newest, mut turn) = (0, 0);
            while !done.load(Ordering::Acquire) || turn == 0 {
                newest = fence(&acquire(&gateway, &format!("busy:{turn}")));
                turn += 1;
            }
            newest
        });
        let ran = back_up(&gateway, &file, &[]);
        done.store(true, Ordering::Release);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.out.contains("leases: "), "{ran:?}");
        busy.join().unwrap()
    });
    gateway.kill();
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The backup leaves no other file: the directory is a valid data directory.
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    let restored = on(place.path());
    assert!(fence(&acquire(&restored, "other")) > newest);
    for lease in &leases {
        assert_eq!(command(&restored, "renew", lease), Some(0));
        assert_eq!(command(&restored, "release", lease), Some(0));
    }
}

#[test]
fn a_backup_replaces_a_file_only_if_it_is_told_to() {
    let gateway = Gateway::start();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "of somebody").unwrap();
    let refused = back_up(&gateway, &file, &[]).ends(2);
    refused.says(format!("{}\" exists; --force replaces it", file.display()));
    assert_eq!(fs::read(&file).unwrap(), b"of somebody");
    back_up(&gateway, &file, &["--force"]).ends(0);
    let whole = fs::read(&file).unwrap();
    assert_eq!(check_backup(&whole).unwrap(), 0);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn a_backup_follows_a_link_and_replaces_nothing_but_a_file() {
    let gateway = Gateway::start();
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::write(at("file"), "older").unwrap();
    fs::set_permissions(at("file"), fs::Permissions::from_mode(0o644)).unwrap();
    symlink("file", at("link")).unwrap();
    back_up(&gateway, &at("link"), &["--force"]).ends(0);
    assert!(at("link").is_symlink());
    assert_eq!(check_backup(&fs::read(at("file")).unwrap()).unwrap(), 0);
    let mode = fs::metadata(at("file")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let _socket = UnixListener::bind(at("socket")).unwrap();
    symlink("socket", at("to-socket")).unwrap();
    symlink("nothing", at("to-nothing")).unwrap();
    for (name, said) in [
        ("socket", "not a regular file"),
        ("to-socket", "not a regular file"),
        ("to-nothing", "No such file"),
        // Control characters of a path are escaped, so they cannot move the cursor of the terminal.
        ("dir\u{1b}[2J/file", r"dir\u{1b}[2J/file"),
    ] {
        let refused = back_up(&gateway, &at(name), &["--force"]);
        assert_eq!(refused.code, Some(1), "{name}: {refused:?}");
        refused.says(said);
    }
    let kind = fs::symlink_metadata(at("socket")).unwrap().file_type();
    assert!(kind.is_socket());
    assert!(at("to-socket").is_symlink() && at("to-nothing").is_symlink());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 5);
}

#[test]
fn a_backup_leaves_the_files_beside_it_alone() {
    let gateway = Gateway::start();
    let place = tempfile::tempdir().unwrap();
    let (file, beside) = (place.path().join("file"), place.path().join("file.new"));
    fs::write(&beside, "of somebody").unwrap();
    for arguments in [&[][..], &["--force"]] {
        back_up(&gateway, &file, arguments).ends(0);
        assert_eq!(fs::read(&beside).unwrap(), b"of somebody");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }
}

#[test]
fn a_backup_is_logged_before_it_is_sent_and_head_makes_none() {
    let key = Made::new("ops", &["--view", "*", "--break", "*"]);
    let keys = File::new(&key.toml);
    let place = tempfile::tempdir().unwrap();
    let (file, audit) = (place.path().join("file"), place.path().join("audit"));
    let gateway = Gateway::start_with(
        Setup::default()
            .with("LATCHGATE_AUTH_KEYS_FILE", keys.path())
            .with("LATCHGATE_AUDIT_PATH", audit.to_str().unwrap()),
    );
    let head = format!(
        "HEAD /backup HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
        gateway.address, key.key
    );
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("latchgate.00000001.log"), "{answer}");
    // No file was made, so the length is not known.
    assert!(!answer.contains("content-length"), "{answer}");

    gateway
        .typed(&format!("backup {}", file.to_str().unwrap()))
        .key(&key.key)
        .ends(0);
    let audited = fs::read_to_string(&audit).unwrap();
    let backups: Vec<Value> = audited
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| line["event"] == "backup")
        .collect();
    let [line] = &backups[..] else {
        panic!("{audited}");
    };
    assert_eq!(line["key"], "ops");
    assert_eq!(line["bytes"], fs::metadata(&file).unwrap().len());
    assert_eq!(line["remote"], "127.0.0.1");
    let log = gateway.log();
    assert_has(&log, "backup");
    assert_has(&log, "key=\"ops\"");
}

#[tokio::test]
async fn a_gateway_on_redis_has_no_backup() {
    let redis = RedisServer::start().await;
    let gateway = Gateway::start_with(Setup::on(&redis));
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    let refused = back_up(&gateway, &file, &[]).ends(106);
    refused.says("backups of its own");
    assert!(!file.exists());
}

#[test]
fn an_old_file_beside_the_newest_is_not_read() {
    let mut gateway = Gateway::start();
    let copy = copied(&gateway);
    for name in ["a", "b", "c"] {
        acquire(&gateway, name);
    }
    gateway.kill();
    gateway.restart();
    gateway.kill();
    let old = fs::read_dir(copy.path()).unwrap().next().unwrap().unwrap();
    let beside = gateway.data().join(old.file_name());
    assert!(!beside.exists(), "it is still in use");
    fs::copy(old.path(), &beside).unwrap();
    gateway.restart();
    assert!(!beside.exists(), "it would be read if the newest were lost");
    for name in ["a", "b", "c"] {
        let ran = gateway.typed(&format!("acquire {name}")).read();
        assert_ne!(ran.code, Some(0), "{name} was forgotten: {ran:?}");
    }
}

#[test]
fn the_file_of_a_gateway_that_has_ended_is_a_backup() {
    let mut gateway = Gateway::start_with(
        // The gateway does not wait for the end of the lease.
        Setup::default().with("LATCHGATE_SHUTDOWN_GRACE_MS", "0"),
    );
    let lease = acquire(&gateway, "deploy");
    gateway.signal(Signal::TERM);
    gateway.wait();
    let copy = copied(&gateway);
    let restored = on(copy.path());
    assert!(fence(&acquire(&restored, "other")) > fence(&lease));
    assert_eq!(command(&restored, "renew", &lease), Some(0));
    assert_eq!(command(&restored, "release", &lease), Some(0));
}

#[test]
fn so_is_a_copy_that_is_made_while_it_stands_still() {
    let gateway = Gateway::start();
    let leases: Vec<_> = (0..20)
        .map(|number| acquire(&gateway, &format!("held:{number}")))
        .collect();
    thread::scope(|scope| {
        // The gateway is stopped in the middle of a write or between two writes. Both must leave a valid log.
        let busy = scope.spawn(|| {
            let url = gateway.url();
            for number in 0.. {
                let acquire = ["acquire", &format!("busy:{number}"), "--url", &url];
                if latchgate(&acquire).read().code != Some(0) {
                    return;
                }
            }
        });
        for _ in 0..5 {
            gateway.signal(Signal::STOP);
            let copy = copied(&gateway);
            gateway.signal(Signal::CONT);
            let restored = on(copy.path());
            let newest = leases.iter().map(fence).max().unwrap();
            assert!(fence(&acquire(&restored, "other")) > newest);
            for lease in &leases {
                assert_eq!(command(&restored, "renew", lease), Some(0));
            }
        }
        gateway.signal(Signal::TERM);
        busy.join().unwrap();
    });
}

#[test]
fn what_was_granted_after_the_backup_is_free_in_it_and_its_fencing_token_is_passed() {
    let mut gateway = Gateway::start();
    gateway.signal(Signal::STOP);
    let copy = copied(&gateway);
    gateway.signal(Signal::CONT);
    let later = acquire(&gateway, "deploy");
    gateway.kill();
    let restored = on(copy.path());
    let again = acquire(&restored, "deploy");
    assert!(fence(&again) > fence(&later));
    assert_eq!(command(&restored, "renew", &later), Some(102));
}

#[test]
fn fencing_tokens_go_on_in_an_empty_directory() {
    let mut gateway = Gateway::start();
    let before = acquire(&gateway, "deploy");
    gateway.kill();
    let empty = tempfile::tempdir().unwrap();
    let after = acquire(&on(empty.path()), "deploy");
    assert!(fence(&after) > fence(&before));
}

#[tokio::test]
async fn fencing_tokens_go_on_when_locks_move_to_redis_and_back() {
    let redis = RedisServer::start().await;
    let mut embedded = Gateway::start();
    let before = acquire(&embedded, "deploy");
    assert_eq!(command(&embedded, "release", &before), Some(0));
    embedded.ends_by(Signal::TERM, 0);
    let moved = Gateway::start_with(Setup::on(&redis));
    let on_redis = acquire(&moved, "deploy");
    assert!(fence(&on_redis) > fence(&before));
    embedded.restart();
    assert!(fence(&acquire(&embedded, "deploy")) > fence(&on_redis));
}

#[tokio::test]
async fn a_gateway_that_is_replaced_loses_no_lease_that_is_in_redis() {
    let redis = RedisServer::start().await;
    let setup = Setup::on(&redis);
    let mut old = Gateway::start_with(setup.clone());
    let new = Gateway::start_with(setup);
    let lease = acquire(&old, "deploy");
    old.signal(Signal::TERM);
    // The lease is valid at the new gateway while the old gateway drains, and after its end.
    assert_eq!(command(&new, "renew", &lease), Some(0));
    old.kill();
    assert_eq!(command(&new, "renew", &lease), Some(0));
    assert_eq!(command(&new, "release", &lease), Some(0));
}
