//! Build script: sets the commit of the build, and packs the dashboard into the program.
//!
//! The commit comes from `LATCHGATE_COMMIT`, which the build of the image sets. Without it, a release build asks
//! git. Other builds do not: every commit would compile the program again, and during development the program
//! differs from its commit anyway.

#![expect(
    clippy::disallowed_methods,
    reason = "a build script is told by the environment"
)]

#[path = "build/dashboard.rs"]
mod dashboard;

use std::{env, path::Path, process::Command};

/// How many digits of the commit are shown.
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
    // The variable does not have the prefix `LATCHGATE_`: Cargo also sets it for tests, whose gateways would refuse
    // an unknown setting.
    println!("cargo:rustc-env=BUILT_FROM_COMMIT={commit}");
}

fn is_release() -> bool {
    env::var("PROFILE").is_ok_and(|profile| profile == "release")
}

/// The first digits of the commit, if the text is one.
fn short(text: &str) -> Option<String> {
    let text = text.trim();
    let is_commit = text.len() >= DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| text[..DIGITS].to_ascii_lowercase())
}

/// The commit of the git repository, if this directory is its root. The sources may be inside another project's
/// repository.
fn of_git() -> Option<String> {
    let root = git(&["rev-parse", "--show-toplevel"])?;
    let here = env::current_dir().ok()?;
    if Path::new(&root).canonicalize().ok()? != here.canonicalize().ok()? {
        return None;
    }
    // The files that change with every commit: HEAD, and the log of its values.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file])
            // Cargo considers a missing file as changed in every build.
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
