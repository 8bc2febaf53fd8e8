//! Tells the program from which commit it is built, and packs the dashboard into it.
//!
//! `LATCHGATE_COMMIT` says so, as the image's build does. Without it a release build asks git. Any
//! other build does not: every commit would compile everything anew, and a program in development
//! differs from its commit anyway.

#![expect(
    clippy::disallowed_methods,
    reason = "a build script is told by the environment"
)]

#[path = "build/dashboard.rs"]
mod dashboard;

use std::{env, path::Path, process::Command};

/// How much of a commit is told.
const DIGITS: usize = 12;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    dashboard::pack();
    println!("cargo:rerun-if-env-changed=LATCHGATE_COMMIT");
    let told = env::var("LATCHGATE_COMMIT").ok();
    let commit = told
        .as_deref()
        .and_then(short)
        .or_else(|| is_release().then(of_git).flatten());
    let commit = commit.as_deref().unwrap_or("unknown");
    // Not with the prefix of our variables: Cargo sets it for tests as well, whose gateways would
    // refuse it.
    println!("cargo:rustc-env=BUILT_FROM_COMMIT={commit}");
}

fn is_release() -> bool {
    env::var("PROFILE").is_ok_and(|profile| profile == "release")
}

/// The first digits of what is a commit.
fn short(text: &str) -> Option<String> {
    let text = text.trim();
    let is_commit = text.len() >= DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| text[..DIGITS].to_ascii_lowercase())
}

/// What git says of this directory, if the sources are its own and not part of somebody else's.
fn of_git() -> Option<String> {
    let root = git(&["rev-parse", "--show-toplevel"])?;
    let here = env::current_dir().ok()?;
    if Path::new(&root).canonicalize().ok()? != here.canonicalize().ok()? {
        return None;
    }
    // What a commit changes: HEAD itself, and the list of where it has been.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file])
            // A file that is not there would count as changed with every build.
            && Path::new(&path).exists()
        {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    short(&git(&["rev-parse", "HEAD"])?)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output
        .status
        .success()
        .then(|| text.trim().to_owned())
        .filter(|text| !text.is_empty())
}
