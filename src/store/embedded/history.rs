//! The file that keeps the history of locks beside the log: lines of text, bounded in size.
//!
//! A line has the name of a lock and a text of [`StoredHistory`]. Lines are appended without a sync, so the log never
//! waits for this file: after a loss of power the last seconds may be missing. A line that is torn or damaged is
//! ignored. When the file is full, it is written anew with the newest records of each lock.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Read, Write},
};

use rustix::fs::OFlags;

use crate::{
    lock::LockName,
    store::history::{HistoryBatch, HistoryBounds, StoredHistory},
};

use super::log::LogFiles;

/// The file with the history of all locks.
#[derive(Debug)]
pub(super) struct HistoryFile(pub(super) LogFiles);

const NAME: &str = "latchgate.history";
/// Name of the file while it is written anew.
const DRAFT: &str = "latchgate.history.new";
/// The largest size of the file, in bytes: some hundred thousand leases.
const MAX_BYTES: u64 = 32 * 1024 * 1024;

// === impl HistoryFile ===

impl HistoryFile {
    /// Appends a batch, after the file was made shorter if it is full.
    pub(super) fn append(&mut self, name: &LockName, batch: &HistoryBatch) -> io::Result<()> {
        // The end of an earlier write may be torn: without a line break the next line would be lost with it.
        let mut lines = String::from("\n");
        let records = batch.records.iter().map(|record| record.text.clone());
        for text in records.chain(batch.counts.text()) {
            lines.extend([name.as_str(), " ", &text, "\n"]);
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
        let mut file = self.0.open(NAME, flags)?;
        if file.metadata()?.len() + lines.len() as u64 > MAX_BYTES {
            self.shorten(batch.bounds)?;
            file = self.0.open(NAME, flags)?;
        }
        file.write_all(lines.as_bytes())
    }

    /// The texts that were kept for a lock.
    pub(super) fn read(&self, name: &LockName) -> io::Result<StoredHistory> {
        let mut history = StoredHistory::default();
        let file = match self.0.open(NAME, OFlags::RDONLY) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(history),
            Err(error) => return Err(error),
        };
        // The file is read line by line, because several callers may read 32 MB each.
        for line in BufReader::new(file).split(b'\n') {
            let line = line?;
            let text = line.strip_prefix(name.as_str().as_bytes());
            if let Some(text) = text.and_then(|text| text.strip_prefix(b" ")) {
                history.add_text(&String::from_utf8_lossy(text));
            }
        }
        Ok(history)
    }

    fn content(&self) -> io::Result<String> {
        let mut bytes = Vec::new();
        match self.0.open(NAME, OFlags::RDONLY) {
            Ok(mut file) => file.read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Writes the file anew, at most half as long as it may be: with the newest records of each lock, of these the
    /// newest of all, and the sums of the counts.
    fn shorten(&self, bounds: HistoryBounds) -> io::Result<()> {
        let (content, mut locks) = (self.content()?, HashMap::<&str, StoredHistory>::new());
        for (name, text) in content.lines().filter_map(|line| line.split_once(' ')) {
            locks.entry(name).or_default().add_text(text);
        }
        let mut kept = Vec::new();
        for (name, mut lock) in locks {
            lock.records.sort_unstable_by(|a, b| b.cmp(a));
            lock.records.truncate(bounds.records());
            let texts = lock.records.into_iter().chain(lock.counts.text());
            kept.extend(texts.map(|text| (text, name)));
        }
        // All fencing tokens of this store are of one counter, so the largest texts are the newest records.
        kept.sort_unstable_by(|a, b| b.cmp(a));
        let mut lines = String::new();
        for (text, name) in kept {
            let line = format!("{name} {text}\n");
            if (lines.len() + line.len()) as u64 > MAX_BYTES / 2 {
                break;
            }
            lines += &line;
        }
        self.0.draft_of(DRAFT, lines.as_bytes())?;
        self.0.rename(DRAFT, NAME)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tempfile::TempDir;

    use super::{super::log::Directory, *};
    use crate::store::history::{HistoryCounts, HistoryRecord};

    fn batch(fence: u64, fact: &str) -> HistoryBatch {
        HistoryBatch {
            bounds: HistoryBounds {
                entries: 1,
                keep: Duration::from_hours(1),
            },
            records: vec![HistoryRecord::new(fence, fact, false)],
            counts: HistoryCounts {
                shorter: 2,
                since: 7,
                dropped: 1,
            },
        }
    }

    #[test]
    fn what_is_written_is_read_after_a_restart_and_a_torn_line_costs_only_itself() {
        let directory = TempDir::new().unwrap();
        let name = LockName::new("deploy").unwrap();
        let open = || HistoryFile(Directory::take(directory.path()).unwrap().files().unwrap());
        assert_eq!(open().read(&name).unwrap(), StoredHistory::default());
        open().append(&name, &batch(1, "a")).unwrap();
        let path = directory.path().join(NAME);
        let mut torn = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        torn.write_all(b"deploy 00000\xff").unwrap();
        open().append(&name, &batch(2, "b")).unwrap();
        open()
            .append(&LockName::new("deploy:eu").unwrap(), &batch(3, "c"))
            .unwrap();
        let read = open().read(&name).unwrap();
        let [a, b] = ["0000000000000001 a", "0000000000000002 b"];
        assert_eq!(read.records, [a, "00000\u{fffd}", b]);
        let counts = read.counts;
        assert_eq!((counts.shorter, counts.since, counts.dropped), (4, 7, 2));
    }

    #[test]
    fn a_full_file_keeps_the_newest_records_of_each_lock() {
        let directory = TempDir::new().unwrap();
        let files = Directory::take(directory.path()).unwrap().files().unwrap();
        let mut file = HistoryFile(files);
        let [busy, quiet] = ["busy", "quiet"].map(|it| LockName::new(it).unwrap());
        file.append(&quiet, &batch(1, "first")).unwrap();
        let long = "x".repeat(1 << 20);
        for fence in 2..80 {
            file.append(&busy, &batch(fence, &long)).unwrap();
            let len = std::fs::metadata(directory.path().join(NAME))
                .unwrap()
                .len();
            assert!(len <= MAX_BYTES + 1, "{len}");
        }
        assert_eq!(file.read(&quiet).unwrap().records.len(), 1);
        let read = file.read(&busy).unwrap();
        assert!(
            read.records
                .iter()
                .any(|text| text.starts_with("0000000000000079 x"))
        );
        assert_eq!(read.counts.shorter, 2 * 78, "counts are summed up");
    }
}
