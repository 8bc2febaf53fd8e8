//! Writes events to a file as they happen.

use std::{
    fs::File,
    io::Write,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

use crate::history::{Event, Line};

/// A file of events. Each line is written at once, so that a killed process loses none.
#[derive(Clone)]
pub(crate) struct Journal {
    by: Arc<str>,
    file: Arc<Mutex<File>>,
}

/// The time of all histories, in nanoseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let time = Duration::try_from(time).expect("the clock counts from the start of the machine");
    u64::try_from(time.as_nanos()).expect("a machine is younger than 584 years")
}

/// The lines of all journals in a directory. The last line of a killed process may be incomplete, and is left out.
pub(crate) fn read(directory: &Path) -> Vec<Line> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "jsonl")
        {
            let bytes = std::fs::read(path).unwrap();
            let whole = bytes.split_inclusive(|byte| *byte == b'\n');
            let whole = whole.filter(|line| line.ends_with(b"\n"));
            lines.extend(whole.map(|line| serde_json::from_slice::<Line>(line).unwrap()));
        }
    }
    lines
}

// === impl Journal ===

impl Journal {
    pub(crate) fn create(directory: &Path, by: &str) -> Self {
        let path = directory.join(format!("{by}.jsonl"));
        let file = File::options().create(true).append(true).open(path);
        Self {
            by: by.into(),
            file: Arc::new(Mutex::new(file.unwrap())),
        }
    }

    /// Writes an event with the current time. Events of one journal have their times in the order of the lines.
    pub(crate) fn write(&self, event: Event) -> u64 {
        self.write_at(now(), event)
    }

    /// Writes an event of an earlier time.
    pub(crate) fn write_at(&self, at: u64, event: Event) -> u64 {
        let by = self.by.as_ref().to_owned();
        let mut line = serde_json::to_vec(&Line { at, by, event }).unwrap();
        line.push(b'\n');
        self.file.lock().unwrap().write_all(&line).unwrap();
        at
    }
}
