//! What the gateway costs, as ratios within one run. `benches/README.md` says what each number means.
//!
//! `cargo bench` runs everything, `cargo bench -- pairs`, `-- waiting` or `-- list` one part.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints its figures"
)]

mod list;
mod pairs;
mod rig;
mod waiting;

use std::process::ExitCode;

use rig::null_gateway;

fn main() -> ExitCode {
    if null_gateway::asked_for() {
        return null_gateway::run();
    }
    let parts: Vec<String> = std::env::args()
        .skip(1)
        .filter(|part| !part.starts_with('-'))
        .collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let mut met = true;
    if wanted("pairs") {
        met &= runtime.block_on(pairs::measure());
    }
    if wanted("waiting") {
        met &= runtime.block_on(waiting::measure());
    }
    if wanted("list") {
        met &= runtime.block_on(list::measure());
    }
    if met {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
