//! A simulated disk in memory, which fails as a test tells it, and loses unsynced data with the power.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, ErrorKind},
    ops::Range,
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};

use crate::store::embedded::log::{DiskFile, Volume};

/// The files of a log on a simulated disk. The disk outlives every log that is opened on it.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk(Arc<Mutex<Platter>>);

/// A way in which the disk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Fault {
    /// The disk works without a fault.
    #[default]
    None,
    /// After this many further writes, every write fails because the disk is full.
    Full(usize),
    /// The disk is full at this many bytes: a write fails if the logs, the draft and the reserve would be
    /// longer together.
    Capacity(usize),
    /// As [`Fault::Capacity`]; and after so many steps as in [`Fault::DiesAfter`] every operation fails.
    CapacityThenDies(usize, usize),
    /// Every write fails: the file system was made read-only.
    ReadOnly,
    /// The reserve belongs to another user.
    ForeignReserve,
    /// Every operation fails.
    Dead,
    /// After this many further writes, syncs, renames and removals every operation fails.
    DiesAfter(usize),
    /// This many syncs fail although the data reached the disk.
    SyncLands(usize),
    /// This many syncs fail, and their data never reach the disk, although the data can still be read: this is
    /// what Linux does.
    SyncLoses(usize),
    /// After this many further syncs, every sync fails as in [`Fault::SyncLoses`].
    SyncLosesAfter(usize),
}

#[derive(Default)]
struct Platter {
    files: Vec<FileOnDisk>,
    /// The file with each log number, as programs see the directory.
    entries: BTreeMap<u64, usize>,
    /// The file with each log number, as a loss of power would leave the directory.
    durable_entries: BTreeMap<u64, usize>,
    draft: Option<usize>,
    /// The file of the disk that is the reserve.
    reserve: Option<usize>,
    fault: Fault,
    /// The most zeros that were written at once into a log file in place or into the reserve.
    longest_fill: usize,
    /// The most bytes that one sync of a file had to make durable.
    longest_sync: usize,
    /// Called at the beginning of every sync.
    on_sync: Option<Arc<dyn Fn() + Send + Sync>>,
    /// State of the random generator that chooses which unsynced sectors survive a loss of power.
    chance: u64,
}

#[derive(Default)]
struct FileOnDisk {
    /// The content of a file that programs read.
    cached: Vec<u8>,
    /// The content of a file that a loss of power would leave.
    durable: Vec<u8>,
    dirty: Vec<Range<usize>>,
}

/// A file of the simulated disk that is open.
#[derive(Debug)]
struct OpenFile {
    disk: Disk,
    file: usize,
}

/// The number of bytes that a disk writes as a whole.
const SECTOR: usize = 512;

// === impl Disk ===

impl Disk {
    /// Sets the fault of the disk from now on.
    pub(super) fn fail(&self, fault: Fault) {
        self.platter().fault = fault;
    }

    /// The current fault of the disk.
    pub(super) fn fault(&self) -> Fault {
        self.platter().fault
    }

    /// Simulates a loss of power: some of the unsynced sectors survive, others are lost.
    pub(super) fn lose_power(&self) {
        let platter = &mut *self.platter();
        for file in &mut platter.files {
            for range in std::mem::take(&mut file.dirty) {
                let sectors = range.start / SECTOR..range.end.div_ceil(SECTOR);
                for sector in sectors {
                    if flip(&mut platter.chance) {
                        file.keep(sector * SECTOR..(sector + 1) * SECTOR);
                    }
                }
            }
            file.cached.clone_from(&file.durable);
        }
        platter.entries.clone_from(&platter.durable_entries);
        platter.draft = None;
        // The directory entry of the reserve was never synced.
        platter.reserve = None;
        platter.fault = Fault::None;
    }

    /// Sets a function that is called at the beginning of every sync.
    pub(super) fn on_sync(&self, call: impl Fn() + Send + Sync + 'static) {
        self.platter().on_sync = Some(Arc::new(call));
    }

    /// How many bytes the log files and the reserve use.
    pub(super) fn used(&self) -> usize {
        let platter = self.platter();
        let files = platter.entries.values().chain(&platter.reserve);
        files.map(|&file| platter.files[file].cached.len()).sum()
    }

    /// The length of the reserve in bytes.
    pub(super) fn kept(&self) -> usize {
        let platter = self.platter();
        let kept = platter.reserve.map(|file| &platter.files[file]);
        kept.map_or(0, |file| file.cached.len())
    }

    /// The most zeros that were written at once, and the most bytes that one sync of a file made durable.
    pub(super) fn longest_fill_and_sync(&self) -> (usize, usize) {
        let platter = self.platter();
        (platter.longest_fill, platter.longest_sync)
    }

    /// How many log files there are.
    pub(super) fn logs(&self) -> usize {
        self.platter().entries.len()
    }

    /// The content of the newest log file.
    pub(super) fn newest(&self) -> Vec<u8> {
        let platter = self.platter();
        let (_generation, file) = platter.entries.last_key_value().expect("there is one");
        platter.files[*file].cached.clone()
    }

    /// Removes the reserve, as another program could.
    pub(super) fn remove_reserve(&self) {
        self.platter().reserve = None;
    }

    /// Replaces the content of the newest log file.
    pub(super) fn overwrite_newest(&self, bytes: &[u8]) {
        let platter = &mut *self.platter();
        let (_generation, file) = platter.entries.last_key_value().expect("there is one");
        let file = &mut platter.files[*file];
        file.cached = bytes.to_vec();
        file.durable = bytes.to_vec();
    }

    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.0.lock()
    }

    fn sync(&self, file: Option<usize>) -> io::Result<()> {
        let call = self.platter().on_sync.clone();
        if let Some(call) = call {
            call();
        }
        self.platter().sync(file)
    }

    fn open(&self, file: usize) -> Box<dyn DiskFile> {
        let disk = self.clone();
        Box::new(OpenFile { disk, file })
    }
}

impl Volume for Disk {
    fn generations(&self) -> io::Result<Vec<u64>> {
        let platter = self.platter();
        platter.works()?;
        Ok(platter.entries.keys().copied().collect())
    }

    fn read(&self, generation: u64) -> io::Result<Vec<u8>> {
        let platter = self.platter();
        let file = platter.file(generation)?;
        Ok(platter.files[file].cached.clone())
    }

    fn draft(&self, bytes: &[u8]) -> io::Result<Box<dyn DiskFile>> {
        let file = {
            let mut platter = self.platter();
            platter.writable()?;
            platter.add_file()
        };
        let opened = self.open(file);
        opened.write_at(bytes, 0)?;
        opened.sync()?;
        self.platter().draft = Some(file);
        Ok(opened)
    }

    fn put_in_place(&self, generation: u64) -> io::Result<()> {
        {
            let mut platter = self.platter();
            platter.writable()?;
            let draft = platter.draft.take().ok_or(ErrorKind::NotFound)?;
            platter.entries.insert(generation, draft);
        }
        self.sync(None)
    }

    fn discard_draft(&self) -> io::Result<()> {
        let mut platter = self.platter();
        platter.works()?;
        platter.draft = None;
        Ok(())
    }

    fn reserved(&self) -> io::Result<u64> {
        let platter = self.platter();
        platter.works()?;
        if platter.fault == Fault::ForeignReserve {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let len = platter.reserve.map(|file| platter.files[file].cached.len());
        Ok(len.unwrap_or(0) as u64)
    }

    fn keep_reserve(&self, len: u64) -> io::Result<()> {
        let mut platter = self.platter();
        platter.writable()?;
        let file = platter.reserve.unwrap_or_else(|| platter.add_file());
        platter.reserve = Some(file);
        let len = usize::try_from(len).expect("test files are small");
        platter.has_room(file, len)?;
        let longer = len.saturating_sub(platter.files[file].cached.len());
        platter.longest_fill = platter.longest_fill.max(longer);
        platter.files[file].cached.resize(len, 0);
        Ok(())
    }

    fn draft_in_reserve(&self, bytes: &[u8]) -> io::Result<(Box<dyn DiskFile>, u64)> {
        let file = self.platter().reserve.ok_or(ErrorKind::NotFound)?;
        let mut whole = bytes.to_vec();
        let len = whole.len().max(self.platter().files[file].cached.len());
        whole.resize(len, 0);
        let opened = self.open(file);
        opened.write_at(&whole, 0)?;
        opened.sync()?;
        let mut platter = self.platter();
        platter.draft = platter.reserve.take();
        Ok((opened, len as u64))
    }

    fn recycle(&self, generation: u64) -> io::Result<u64> {
        let len = {
            let mut platter = self.platter();
            platter.writable()?;
            let file = platter.entries.remove(&generation);
            let file = file.ok_or(ErrorKind::NotFound)?;
            platter.reserve = Some(file);
            platter.files[file].cached.len()
        };
        let synced = self.sync(None);
        synced.inspect_err(|_error| self.platter().reserve = None)?;
        Ok(len as u64)
    }

    fn remove(&self, generation: u64) -> io::Result<()> {
        self.sync(None)?;
        let mut platter = self.platter();
        platter.writable()?;
        let removed = platter.entries.remove(&generation);
        // The removal may be durable before all later operations, or long after: both happen on real disks.
        if platter.flip() {
            platter.durable_entries.remove(&generation);
        }
        removed.map(drop).ok_or(ErrorKind::NotFound.into())
    }

    fn growth(&self) -> usize {
        4 * 1024
    }

    /// A short limit, so that every test reaches the next log file.
    fn shortest_log(&self) -> u64 {
        16 * 1024
    }
}

impl DiskFile for OpenFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut platter = self.disk.platter();
        platter.writable()?;
        let start = usize::try_from(offset).expect("test files are small");
        platter.has_room(self.file, start + bytes.len())?;
        let has_place = platter.entries.values().any(|&it| it == self.file);
        if has_place && bytes.iter().all(|&byte| byte == 0) {
            platter.longest_fill = platter.longest_fill.max(bytes.len());
        }
        platter.files[self.file].write(bytes, start);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync(Some(self.file))
    }
}

// === impl Platter ===

/// A random decision, true half of the time.
fn flip(chance: &mut u64) -> bool {
    *chance = chance
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *chance >> 63 == 0
}

impl Platter {
    fn flip(&mut self) -> bool {
        flip(&mut self.chance)
    }

    fn add_file(&mut self) -> usize {
        self.files.push(FileOnDisk::default());
        self.files.len() - 1
    }

    fn works(&self) -> io::Result<()> {
        match self.fault {
            Fault::Dead => Err(io::Error::other("the disk is dead")),
            _ => Ok(()),
        }
    }

    fn writable(&mut self) -> io::Result<()> {
        self.works()?;
        match &mut self.fault {
            Fault::DiesAfter(left) | Fault::CapacityThenDies(_, left) => {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    self.fault = Fault::Dead;
                }
                Ok(())
            }
            Fault::ReadOnly => Err(ErrorKind::ReadOnlyFilesystem.into()),
            Fault::Full(0) => Err(ErrorKind::StorageFull.into()),
            Fault::Full(left) => {
                *left -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Fails if the disk has no room for a file of this length.
    fn has_room(&self, file: usize, len: usize) -> io::Result<()> {
        let others = self
            .entries
            .values()
            .chain(&self.reserve)
            .chain(&self.draft);
        let others = others.filter(|&&other| other != file);
        let others: usize = others.map(|&other| self.files[other].cached.len()).sum();
        let grows = len > self.files[file].cached.len();
        match self.fault {
            Fault::Capacity(capacity) | Fault::CapacityThenDies(capacity, _)
                if grows && others + len > capacity =>
            {
                Err(ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }

    fn file(&self, generation: u64) -> io::Result<usize> {
        self.works()?;
        let file = self.entries.get(&generation).copied();
        file.ok_or(ErrorKind::NotFound.into())
    }

    /// Makes a file durable; without a file, the entries of the directory.
    fn sync(&mut self, file: Option<usize>) -> io::Result<()> {
        self.works()?;
        let (lands, fails) = match &mut self.fault {
            Fault::DiesAfter(left) | Fault::CapacityThenDies(_, left) => {
                *left = left.saturating_sub(1);
                let dies = *left == 0;
                if dies {
                    self.fault = Fault::Dead;
                }
                // Either the sync or only its answer may be lost.
                (!dies || self.flip(), dies)
            }
            Fault::SyncLosesAfter(0) => (false, true),
            Fault::SyncLosesAfter(left) => {
                *left -= 1;
                (true, false)
            }
            Fault::SyncLands(times @ 1..) => {
                *times -= 1;
                (true, true)
            }
            Fault::SyncLoses(times @ 1..) => {
                *times -= 1;
                (false, true)
            }
            _ => (true, false),
        };
        match file {
            Some(file) => {
                let file = &mut self.files[file];
                let dirty: usize = file.dirty.iter().map(Range::len).sum();
                self.longest_sync = self.longest_sync.max(dirty);
                for range in std::mem::take(&mut file.dirty) {
                    if lands {
                        file.keep(range);
                    }
                }
            }
            None if lands => self.durable_entries.clone_from(&self.entries),
            None => {}
        }
        if fails {
            Err(io::Error::other("the sync failed"))
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for Platter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Platter")
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

// === impl FileOnDisk ===

impl FileOnDisk {
    fn write(&mut self, bytes: &[u8], start: usize) {
        let range = start..start + bytes.len();
        if self.cached.len() < range.end {
            self.cached.resize(range.end, 0);
        }
        self.cached[range.clone()].copy_from_slice(bytes);
        self.dirty.push(range);
    }

    /// Makes this range of the file's cached content durable.
    fn keep(&mut self, range: Range<usize>) {
        let end = range.end.min(self.cached.len());
        if self.durable.len() < end {
            self.durable.resize(end, 0);
        }
        self.durable[range.start..end].copy_from_slice(&self.cached[range.start..end]);
    }
}
