//! API keys that are replaced and taken back while gateways run.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::PermissionsExt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use rustix::process::Signal;

use super::key_fixture::{File, Made, inspect, soon};
use crate::support::spawn;

/// Asks over one connection, without an end, until it is told to stop.
fn ask_on_and_on(
    url: String,
    key: String,
    stop: &Arc<AtomicBool>,
) -> (std::thread::JoinHandle<Option<u16>>, Arc<AtomicUsize>) {
    let (stop, count) = (Arc::clone(stop), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    let thread = std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(url.trim_start_matches("http://")).unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        let request =
            format!("GET /locks/a HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n");
        while !stop.load(Ordering::SeqCst) {
            stream.write_all(request.as_bytes()).unwrap();
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                assert_ne!(
                    answers.read_line(&mut line).unwrap(),
                    0,
                    "the connection was closed"
                );
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
                head += &line;
            }
            answers.read_exact(&mut vec![0; length]).unwrap();
            let status = head[9..12].parse().unwrap();
            if status != 200 {
                return Some(status);
            }
            counted.fetch_add(1, Ordering::SeqCst);
        }
        None
    });
    (thread, count)
}

#[test]
fn a_secret_is_replaced_under_load_without_a_request_or_a_connection_lost() {
    let (old, new) = (
        Made::new("ci", &["--view", "*"]),
        Made::new("ci", &["--view", "*"]),
    );
    let other = Made::new("other", &["--view", "*"]);
    let file = File::new(&(old.toml.clone() + &other.toml));
    let gateway = file.gateway();
    let stop = Arc::new(AtomicBool::new(false));
    let asks = |key: &Made| ask_on_and_on(gateway.url(), key.key.clone(), &stop);
    let (with_old, old_count) = asks(&old);
    let (with_other, other_count) = asks(&other);
    assert_eq!(inspect(&gateway, "a", &new.key).code, Some(106), "not yet");

    let secrets = format!("secrets = [\"{}\", \"{}\"]", old.secret, new.secret);
    let both = old
        .toml
        .replace(&format!("secrets = [\"{}\"]", old.secret), &secrets);
    for _ in 0..20 {
        file.write(&(both.clone() + &other.toml));
        gateway.signal(Signal::HUP);
    }
    soon("the new secret is known", || {
        inspect(&gateway, "a", &new.key).code == Some(0)
    });
    let (with_new, new_count) = asks(&new);
    let before = [&old_count, &new_count, &other_count].map(|count| count.load(Ordering::SeqCst));
    soon("all three go on", || {
        let now = [&old_count, &new_count, &other_count].map(|count| count.load(Ordering::SeqCst));
        now.iter()
            .zip(before)
            .all(|(now, before)| *now > before + 50)
    });

    // Without a signal: the change is seen.
    file.write(&(new.toml.clone() + &other.toml));
    soon("the old secret is gone", || with_old.is_finished());
    assert_eq!(with_old.join().unwrap(), Some(401));
    assert_eq!(inspect(&gateway, "a", &new.key).code, Some(0));
    stop.store(true, Ordering::SeqCst);
    assert_eq!(with_new.join().unwrap(), None);
    assert_eq!(with_other.join().unwrap(), None);
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
        soon("there is a warning", || shows("warning"));
        assert!(ready().contains("\"status\":\"ready\""), "{}", ready());
        assert!(!ready().contains("keys.toml"), "{}", ready());
        assert_eq!(inspect(&gateway, "a", &key.key).code, Some(0));
        gateway.logged("the keys file cannot be used");
        file.write(&key.toml);
        soon("the warning is gone", || shows("passing"));
    }
    let everybody = fs::Permissions::from_mode(0o666);
    fs::set_permissions(&file.path, everybody).unwrap();
    soon("it is said who can write the file", || {
        gateway.log().contains("can write the keys file")
    });
    fs::remove_file(&file.path).unwrap();
    gateway.signal(Signal::HUP);
    soon("there is a warning", || shows("warning"));
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
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let streams = [hold("a", &brief), hold("b", &gone)];
    let is_held = |lock: &str| inspect(&gateway, lock, &other.key).out.contains("held");
    soon("both are held", || is_held("a") && is_held("b"));
    file.write(&(other.toml.clone() + &brief.toml));
    for stream in streams {
        let out = stream.wait_with_output().unwrap();
        let out = String::from_utf8(out.stdout).unwrap();
        assert!(
            out.contains("event: granted") && out.contains("\"reason\":\"revoked\""),
            "{out}"
        );
    }
}
