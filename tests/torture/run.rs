//! A run: everything is started, tested under faults, ended and judged.

use std::{path::Path, process::ExitCode};

use tempfile::TempDir;
use tokio::{
    task::JoinSet,
    time::{Duration, Instant, sleep_until},
};

use crate::{
    faults::{Injector, Plan},
    finish,
    history::{History, Report, Terms, check},
    journal::{self, Journal},
    options::Options,
    random::Random,
    resource::Registers,
    rig::{Clients, GRACE, HISTORY_ENTRIES, Kind, Rig},
    verdict,
};

/// Factor for promised times of liveness.
const SLACK: u64 = 10;
/// The pause between two checks of a run that stops at the first violation.
const LOOK: Duration = Duration::from_secs(4);

/// The time in nanoseconds after which a line with a time stamp is certainly written.
const WRITTEN: u64 = 2_000_000_000;

pub(crate) async fn run(options: &Options) -> ExitCode {
    let mut running = JoinSet::new();
    let options = options.clone();
    running.spawn(async move { torture(&options).await });
    let ended = running.join_next().await.expect("it was just started");
    let Ok(ended) = ended else {
        // If a gateway does not start again, the run counts as a violation.
        println!("VIOLATION: the run could not go on, see above");
        return ExitCode::from(verdict::VIOLATED);
    };
    match ended {
        Ok(report) => {
            print!("{report}");
            verdict::exit_code(&report)
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(verdict::INVALID)
        }
    }
}

async fn torture(options: &Options) -> Result<Report, String> {
    let kind = Kind::named(&options.store)?;
    let terms = Terms {
        grants_per_second: options.traffic.unwrap_or(kind.traffic()),
        slack: SLACK,
        grace_ms: GRACE,
        history_entries: HISTORY_ENTRIES,
        order_within_gateways: kind.keeps_order_within_gateways(),
        shares: kind.shares(),
        cooperates: true,
    };
    if let Some(directory) = &options.judges {
        return Ok(check(&History::read(journal::read(directory)), &terms));
    }
    let mut random = options.seed.map_or_else(Random::seeded, Random::with_seed);
    println!("torture of {} with {}", kind.name(), random.how_to_repeat());
    let mut faults = kind.faults();
    if !options.faults.is_empty() {
        let names = &options.faults;
        faults.retain(|fault| names.iter().any(|name| name == fault.name()));
        if faults.is_empty() && *names != ["none"] {
            return Err(format!("{} has none of these faults", kind.name()));
        }
    }
    let plan = Plan::draw(&faults, options.lasts, options.calm, &mut random);
    print!("{plan}");
    let temporary = TempDir::with_prefix("torture-").map_err(|error| error.to_string())?;
    let directory = options.keep.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(directory).map_err(|error| error.to_string())?;
    let mut tasks = JoinSet::new();
    let rig = Rig::start(&kind, options, directory, &mut tasks).await;
    let journal = Journal::create(directory, "resource");
    let (registers, resource) = Registers::serve(journal, &mut tasks).await;
    let clients = Clients::start(
        directory,
        rig.addresses(),
        resource,
        kind.shares(),
        random.fork(),
    );
    let journal = Journal::create(directory, "faults");
    let mut injector = Injector::new(rig, clients, kind, registers, journal);

    let started = Instant::now();
    let until = started + options.lasts;
    let found = {
        let go = async {
            injector.go(&plan, started, until).await;
            sleep_until(until).await;
        };
        tokio::select! {
            () = go => None,
            report = first_violation(directory, terms), if options.stops => Some(report),
        }
    };
    if let Some(report) = found {
        println!("found after {:.0} s", started.elapsed().as_secs_f64());
        return Ok(report);
    }
    let Injector {
        mut rig, clients, ..
    } = injector;
    clients.end().await;
    let mut left = finish::left(&mut rig, directory).await;
    finish::recall(&rig, directory).await;
    drop(rig);
    let mut report = check(&History::read(journal::read(directory)), &terms);
    report.violations.append(&mut left);
    if !report.violations.is_empty() && options.keep.is_none() {
        let kept = temporary.keep();
        println!("histories and logs are in {}", kept.display());
    }
    Ok(report)
}

/// Checks the history repeatedly, until it has a violation.
async fn first_violation(directory: &Path, terms: Terms) -> Report {
    loop {
        tokio::time::sleep(LOOK).await;
        let directory = directory.to_owned();
        let checked = tokio::task::spawn_blocking(move || {
            // The files are read one after the other, so lines that may not be in all files yet are left out.
            let until = journal::now().saturating_sub(WRITTEN);
            let lines = journal::read(&directory).into_iter();
            let whole = History::read(lines.filter(|line| line.at <= until));
            check(&whole, &terms)
        });
        let report = checked.await.unwrap();
        if !report.violations.is_empty() {
            return report;
        }
    }
}
