//! What is measured, for how long, and with which requests.

use std::{path::PathBuf, time::Duration};

/// The body of an acquire that may wait, as a client sends it that does not know whether the lock is free.
pub(crate) const WAIT: &str = r#"{"ttl_ms":30000,"wait_ms":30000}"#;
/// The body of an acquire whose lease outlives the benchmark.
pub(crate) const LONG: &str = r#"{"ttl_ms":3600000}"#;

/// How long a benchmark runs, and which programs it compares.
pub(crate) struct Settings {
    pub(crate) each: Duration,
    pub(crate) rounds: u64,
    pub(crate) subjects: Vec<Subject>,
}

/// One build of `latchgate`. The bars judge the first; a second is measured in the same rounds.
#[derive(Clone)]
pub(crate) struct Subject {
    /// Empty for this build, so that its figures have plain names.
    pub(crate) mark: &'static str,
    pub(crate) program: PathBuf,
}

// === impl Settings ===

impl Settings {
    /// Settings from `LG_BENCH_SECONDS`, `LG_BENCH_ROUNDS`, `LG_BENCH_THIS` and `LG_BENCH_OTHER`.
    pub(crate) fn of_the_environment() -> Self {
        let this = text("LG_BENCH_THIS");
        let this = Subject {
            mark: "",
            program: this.map_or(env!("CARGO_BIN_EXE_latchgate").into(), PathBuf::from),
        };
        let other = text("LG_BENCH_OTHER").map(|path| Subject {
            mark: " (other)",
            program: path.into(),
        });
        Self {
            each: Duration::from_secs(number("LG_BENCH_SECONDS", 3)),
            rounds: number("LG_BENCH_ROUNDS", 5),
            subjects: [this].into_iter().chain(other).collect(),
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    text(name)
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark takes its settings from the environment"
)]
fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}
