//! What the program prints about itself.

use std::{fs, path::Path};

use crate::support::{program::latchgate, spawn};

fn committed(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn config_default_prints_the_committed_file() {
    let ran = latchgate(&["config", "default"]).read();
    assert_eq!(ran.out, committed("config/latchgate.toml"));
}

#[test]
fn config_check_says_so_if_nothing_is_set() {
    let ran = latchgate(&["config", "check"]).read();
    assert_eq!(
        ran.out,
        "the configuration is valid; every key has its default\n"
    );
}

#[test]
fn openapi_prints_the_committed_document() {
    let ran = latchgate(&["openapi"]).read();
    assert_eq!(ran.out, committed("openapi/latchgate.json"));
}

#[test]
fn every_shell_gets_completions_that_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = latchgate(&["completions", shell]).read();
        assert_eq!(ran.code, Some(0));
        for word in ["acquire", "release", "token-file"] {
            assert!(ran.out.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn the_completions_for_bash_are_a_script_of_bash() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("completions");
    fs::write(&file, latchgate(&["completions", "bash"]).read().out).unwrap();
    let checked = spawn::command("bash")
        .arg("-n")
        .arg(&file)
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
}
