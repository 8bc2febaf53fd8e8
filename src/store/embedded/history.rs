//! The file that keeps the history of locks beside the log: lines of text, bounded in size.
//!
//! A line has the name of a lock and a text of [`StoredHistory`]. Lines are appended without a sync, so the log never
//! waits for this file: after a loss of power the last seconds may be missing. A line that is torn or damaged is
//! ignored. When the file is full, it is written anew with the newest records of each lock. The file is read a line at a
//! time, without the lock of the writer: it may have 32 MB.

use std::{
    cmp::Reverse,
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    io::{self, BufRead, BufReader, BufWriter, Write},
};

use parking_lot::Mutex;
use rustix::fs::OFlags;

use crate::{
    lock::LockName,
    store::history::{HistoryBatch, HistoryBounds, HistoryCounts, StoredHistory, UNPROVEN},
};

use super::log::LogFiles;

/// The file with the history of all locks.
#[derive(Debug)]
pub(super) struct HistoryFile {
    files: LogFiles,
    /// Held while the file is written.
    writing: Mutex<()>,
}

/// The facts of a line that `shorten` keeps in memory: few bytes, because a file may have hundreds of thousands of lines.
struct Line {
    /// The fencing token; two leases of this store never have the same.
    fence: u64,
    lock: u64,
    from: u32,
    len: u32,
}

const NAME: &str = "latchgate.history";
/// Name of the file while it is written anew.
const DRAFT: &str = "latchgate.history.new";
/// The largest size of the file, in bytes: some hundred thousand leases.
const MAX_BYTES: u64 = 32 * 1024 * 1024;
/// The counts of how many locks stay when the file is made shorter.
const MAX_COUNTED: usize = 100_000;

// === impl HistoryFile ===

impl HistoryFile {
    pub(super) fn new(files: LogFiles) -> Self {
        let writing = Mutex::default();
        Self { files, writing }
    }

    /// Appends batches with one write, after the file was made shorter if it is full.
    pub(super) fn append(&self, batches: &[HistoryBatch]) -> io::Result<()> {
        // The end of an earlier write may be torn: without a line break the next line would be lost with it.
        let mut lines = String::from("\n");
        for batch in batches {
            let records = batch.records.iter().map(|record| record.text.clone());
            for text in records.chain(batch.counts.text()) {
                lines.extend([batch.name.as_str(), " ", &text, "\n"]);
            }
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
        let _writing = self.writing.lock();
        let mut file = self.files.open(NAME, flags)?;
        if let Some(batch) = batches.first()
            && file.metadata()?.len() + lines.len() as u64 > MAX_BYTES
        {
            self.shorten(batch.bounds)?;
            file = self.files.open(NAME, flags)?;
        }
        file.write_all(lines.as_bytes())
    }

    /// The texts that were kept for a lock.
    pub(super) fn read(&self, name: &LockName) -> io::Result<StoredHistory> {
        let mut history = StoredHistory::default();
        self.for_each_line(|_, line| {
            let text = line.strip_prefix(name.as_str().as_bytes());
            if let Some(text) = text.and_then(|text| text.strip_prefix(b" ")) {
                history.add_text(&String::from_utf8_lossy(text));
            }
            Ok(())
        })?;
        Ok(history)
    }

    /// Reads the file a line at a time. The lines come with their offsets and without line breaks.
    fn for_each_line(&self, mut each: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let file = match self.files.open(NAME, OFlags::RDONLY) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let (mut file, mut line, mut at) = (BufReader::new(file), Vec::new(), 0);
        loop {
            line.clear();
            let read = file.read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(());
            }
            each(at, line.strip_suffix(b"\n").unwrap_or(&line))?;
            at += read as u64;
        }
    }

    /// Writes the file anew: with the newest records of each lock, of these the newest of all, in half of the room at
    /// most, and with the sums of the counts.
    fn shorten(&self, bounds: HistoryBounds) -> io::Result<()> {
        let hasher = RandomState::new();
        let (mut lines, mut unproven) = (Vec::new(), Vec::new());
        let mut counted = HashMap::<u64, HistoryCounts>::new();
        self.for_each_line(|from, line| {
            let Some((name, text)) = split(line) else {
                return Ok(());
            };
            let lock = hasher.hash_one(name);
            if let Some(counts) = HistoryCounts::from_text(text) {
                if counted.len() < MAX_COUNTED || counted.contains_key(&lock) {
                    counted.entry(lock).or_default().add(counts);
                }
                return Ok(());
            }
            let proven = text.strip_prefix(UNPROVEN);
            let fence = proven.unwrap_or(text).get(..16);
            let (from, len) = (u32::try_from(from), u32::try_from(line.len() + 1));
            if let (Some(Ok(fence)), Ok(from), Ok(len)) = (fence.map(str::parse), from, len) {
                let line = Line {
                    fence,
                    lock,
                    from,
                    len,
                };
                match proven {
                    Some(_) => unproven.push(line),
                    None => lines.push(line),
                }
            }
            Ok(())
        })?;
        let newest_first = |it: &Line| (Reverse(it.fence), Reverse(it.from));
        lines.sort_unstable_by_key(newest_first);
        let is_proven = |it: &Line| {
            let at = lines.partition_point(|line| line.fence > it.fence);
            lines.get(at).is_some_and(|line| line.fence == it.fence)
        };
        unproven.retain(is_proven);
        lines.append(&mut unproven);
        // All fencing tokens of this store are of one counter, so the largest are of the newest records.
        lines.sort_unstable_by_key(newest_first);
        let (mut of_lock, mut room) = (HashMap::<u64, usize>::new(), MAX_BYTES / 2);
        lines.retain(|line| {
            let count = of_lock.entry(line.lock).or_default();
            *count += 1;
            let fits = *count <= bounds.records() && u64::from(line.len) <= room;
            room -= if fits { u64::from(line.len) } else { 0 };
            fits
        });
        drop(of_lock);
        lines.sort_unstable_by_key(|line| line.from);
        let mut kept = lines.iter().map(|line| u64::from(line.from)).peekable();
        self.files.draft_by(DRAFT, |file| {
            let mut file = BufWriter::new(file);
            self.for_each_line(|from, line| {
                if kept.next_if_eq(&from).is_some() {
                    return file.write_all(line).and_then(|()| file.write_all(b"\n"));
                }
                let counts = split(line).and_then(|(name, _)| {
                    let counts = counted.remove(&hasher.hash_one(name))?;
                    Some((name, counts.text()?))
                });
                match counts {
                    Some((name, text)) => writeln!(file, "{name} {text}"),
                    None => Ok(()),
                }
            })?;
            file.flush()
        })?;
        self.files.rename(DRAFT, NAME)
    }
}

/// Splits a line into the name of its lock and its text; `None` if the line is damaged.
fn split(line: &[u8]) -> Option<(&str, &str)> {
    str::from_utf8(line).ok()?.split_once(' ')
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tempfile::TempDir;

    use super::{super::log::Directory, *};
    use crate::store::history::{HistoryCounts, HistoryRecord};

    fn batch(lock: &str, fence: u64, fact: &str) -> HistoryBatch {
        HistoryBatch {
            name: LockName::new(lock).unwrap(),
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
        let open = || HistoryFile::new(Directory::take(directory.path()).unwrap().files().unwrap());
        assert_eq!(open().read(&name).unwrap(), StoredHistory::default());
        open().append(&[batch("deploy", 1, "a")]).unwrap();
        let path = directory.path().join(NAME);
        let mut torn = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        torn.write_all(b"deploy 00000\xff").unwrap();
        open().append(&[batch("deploy", 2, "b")]).unwrap();
        open().append(&[batch("deploy:eu", 3, "c")]).unwrap();
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
        let file = HistoryFile::new(files);
        let [busy, quiet] = ["busy", "quiet"].map(|it| LockName::new(it).unwrap());
        file.append(&[batch("quiet", 1, "first")]).unwrap();
        let long = "x".repeat(1 << 20);
        for fence in 2..80 {
            file.append(&[batch("busy", fence, &long)]).unwrap();
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

    #[test]
    fn a_record_that_proves_no_lease_stays_in_a_shorter_file_only_beside_one_that_does() {
        let directory = TempDir::new().unwrap();
        let files = Directory::take(directory.path()).unwrap().files().unwrap();
        let file = HistoryFile::new(files);
        let name = LockName::new("lock").unwrap();
        let unproven = |fence| {
            let mut batch = batch("lock", fence, "refused");
            let record = batch.records.pop().unwrap();
            batch.records.push(record.unproven());
            batch
        };
        for batch in [batch("lock", 5, "a"), unproven(5), unproven(7), unproven(3)] {
            file.append(&[batch]).unwrap();
        }
        let [of_5, of_7, of_3] = [5, 7, 3].map(|fence| format!("{fence:016} refused"));
        let read = file.read(&name).unwrap();
        assert!(
            [&of_5, &of_7, &of_3]
                .iter()
                .all(|it| read.records.contains(it))
        );
        file.shorten(batch("lock", 1, "").bounds).unwrap();
        let read = file.read(&name).unwrap();
        assert_eq!(read.records, ["0000000000000005 a".to_owned(), of_5]);
        assert_eq!(read.counts.shorter, 8);
    }

    #[test]
    fn a_reader_does_not_wait_for_the_writer() {
        let directory = TempDir::new().unwrap();
        let files = Directory::take(directory.path()).unwrap().files().unwrap();
        let file = HistoryFile::new(files);
        let name = LockName::new("lock").unwrap();
        file.append(&[batch("lock", 1, "a")]).unwrap();
        let _writing = file.writing.lock();
        assert_eq!(file.read(&name).unwrap().records.len(), 1);
    }
}
