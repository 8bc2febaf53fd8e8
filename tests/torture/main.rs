//! Tests real gateways on a real store under random faults, and checks every invariant on the recorded history.
//!
//! `scripts/torture` builds and starts it. It starts itself again for every process of clients.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails where it unwraps, and prints what it found"
)]

mod client;
#[expect(dead_code, reason = "only tests of tests/it stop a clock")]
#[path = "../it/support/clock.rs"]
mod clock;
mod faults;
mod finish;
#[path = "../it/history/mod.rs"]
mod history;
mod journal;
mod options;
#[path = "../it/support/random.rs"]
mod random;
mod resource;
mod rig;
mod run;
#[path = "../it/support/spawn.rs"]
mod spawn;
mod verdict;
mod wire;

use std::process::ExitCode;

use options::Options;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    if arguments
        .next_if(|first| first == client::COMMAND)
        .is_some()
    {
        runtime.block_on(client::run(&arguments.collect::<Vec<_>>()));
        return ExitCode::SUCCESS;
    }
    match Options::parse(arguments) {
        Ok(options) => runtime.block_on(run::run(&options)),
        Err(why) => {
            eprintln!("{why}\n{}", options::USAGE);
            ExitCode::from(verdict::INVALID)
        }
    }
}
