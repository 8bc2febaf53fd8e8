//! The cost of the gateway, as counts and as ratios within one run. `benches/README.md` explains each number.
//!
//! `cargo bench` runs everything, `cargo bench -- counts`, `-- pairs`, `-- waiting`, `-- sharing`, `-- history` or
//! `-- list` one part.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod bars;
mod counts;
mod history;
mod list;
mod pairs;
mod rig;
mod sharing;
mod waiting;

use std::process::ExitCode;

use bars::Verdicts;
use rig::Settings;

const PARTS: [&str; 6] = ["counts", "pairs", "waiting", "sharing", "history", "list"];

fn main() -> ExitCode {
    if let Some(serve) = rig::role() {
        return serve();
    }
    let asked: Vec<String> = std::env::args()
        .skip(1)
        // Cargo adds `--bench`.
        .filter(|part| !part.starts_with('-'))
        .collect();
    if let Some(unknown) = asked.iter().find(|part| !PARTS.contains(&part.as_str())) {
        println!("there is no part {unknown}; there are {}", PARTS.join(", "));
        return ExitCode::from(2);
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let (settings, mut verdicts) = (Settings::of_the_environment(), Verdicts::default());
    runtime.block_on(async {
        for part in PARTS {
            if asked.is_empty() || asked.iter().any(|asked| asked == part) {
                println!("== {part}");
                match part {
                    "counts" => counts::measure(&settings, &mut verdicts).await,
                    "pairs" => pairs::measure(&settings, &mut verdicts).await,
                    "waiting" => waiting::measure(&settings, &mut verdicts).await,
                    "sharing" => sharing::measure(&settings, &mut verdicts).await,
                    "history" => history::measure(&settings, &mut verdicts).await,
                    _ => list::measure(&settings, &mut verdicts).await,
                }
            }
        }
    });
    if verdicts.print() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
