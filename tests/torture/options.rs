//! The options of a run.

use std::{path::PathBuf, time::Duration};

/// The options of a run.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) lasts: Duration,
    /// The kind of a store that the run starts, or the URL of a store that already runs.
    pub(crate) store: String,
    /// The seed of the schedule of faults and of all turns of clients.
    pub(crate) seed: Option<u64>,
    /// The program under test.
    pub(crate) program: PathBuf,
    /// The directory that keeps histories and logs. Without it, they are in a temporary directory, which stays only if
    /// something was found.
    pub(crate) keep: Option<PathBuf>,
    /// The only kinds of faults, if any are named.
    pub(crate) faults: Vec<String>,
    /// The pause after each fault, if not the usual one.
    pub(crate) calm: Option<Duration>,
    /// The fewest grants a second, if not the number for a machine without other work.
    pub(crate) traffic: Option<f64>,
    /// The mutant of the program to start, which needs a program that was built by `scripts/mutants`.
    pub(crate) mutant: Option<String>,
    /// A directory with the histories of an earlier run, to be judged again instead of a new one.
    pub(crate) judges: Option<PathBuf>,
    /// Whether to check the history during the run, and to stop at the first violation.
    pub(crate) stops: bool,
}

pub(crate) const USAGE: &str = "usage: torture [--minutes N] [--store embedded|redis|sentinel|cluster|redlock|URL] \
    [--seed S] [--program PATH] [--keep DIR] [--faults A,B,..] \
    [--calm SECONDS] [--traffic GRANTS_PER_SECOND] [--mutant NAME] [--stop] [--check DIR]";

// === impl Options ===

impl Options {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            lasts: Duration::from_mins(1),
            store: "redis".to_owned(),
            seed: None,
            program: PathBuf::from(env!("CARGO_BIN_EXE_latchgate")),
            keep: None,
            faults: Vec::new(),
            calm: None,
            traffic: None,
            mutant: None,
            judges: None,
            stops: false,
        };
        while let Some(name) = arguments.next() {
            if name == "--stop" {
                options.stops = true;
                continue;
            }
            let value = arguments
                .next()
                .ok_or_else(|| format!("{name} needs a value"))?;
            let wrong = || format!("{value} is no value for {name}");
            match name.as_str() {
                "--minutes" => {
                    let minutes: f64 = value.parse().map_err(|_| wrong())?;
                    options.lasts =
                        Duration::try_from_secs_f64(minutes * 60.0).map_err(|_| wrong())?;
                }
                "--store" => options.store = value,
                "--seed" => options.seed = Some(value.parse().map_err(|_| wrong())?),
                "--program" => options.program = value.into(),
                "--keep" => options.keep = Some(value.into()),
                "--check" => options.judges = Some(value.into()),
                "--faults" => options.faults = value.split(',').map(str::to_owned).collect(),
                "--calm" => {
                    let seconds = value.parse().map_err(|_| wrong())?;
                    options.calm = Some(Duration::from_secs(seconds));
                }
                "--traffic" => options.traffic = Some(value.parse().map_err(|_| wrong())?),
                "--mutant" => options.mutant = Some(value),
                _ => return Err(format!("{name} is unknown")),
            }
        }
        Ok(options)
    }
}
