//! A disk in memory that fails as it is told to, and forgets what was not synced when power is lost.

use std::{
    fmt,
    io::{self, ErrorKind},
    sync::{Arc, Mutex, MutexGuard},
};

use redb::{Builder, Database, DatabaseError, StorageBackend};

use crate::store::embedded::file::{HeaderLast, Witness};

/// One file on such a disk. It outlives every database that is opened on it.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk(Arc<Mutex<Platter>>);

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Fault {
    /// Nothing.
    #[default]
    None,
    /// After so many more writes every write fails for want of space.
    Full(usize),
    /// Every write fails: the file system was made read-only.
    ReadOnly,
    /// Nothing works at all.
    Dead,
    /// So many syncs fail although everything reached the disk.
    SyncLands(usize),
    /// So many syncs fail, and what was to be synced never reaches the disk, although it can still be
    /// read: this is what Linux does.
    SyncLoses(usize),
}

#[derive(Default)]
struct Platter {
    /// What programs read.
    cached: Vec<u8>,
    /// What is left after a loss of power.
    durable: Vec<u8>,
    dirty: Vec<std::ops::Range<usize>>,
    fault: Fault,
    /// Called in every sync, before anything else.
    on_sync: Option<Arc<dyn Fn() + Send + Sync>>,
}

// === impl Disk ===

impl Disk {
    /// Opens the file, as after any failure.
    pub(super) fn open(&self, witness: Witness) -> Result<Database, DatabaseError> {
        self.platter().works()?;
        Builder::new()
            .set_cache_size(1 << 20)
            .create_with_backend(HeaderLast::new(self.clone(), witness))
    }

    /// From now on this goes wrong.
    pub(super) fn fail(&self, fault: Fault) {
        self.platter().fault = fault;
    }

    /// What goes wrong now.
    pub(super) fn fault(&self) -> Fault {
        self.platter().fault
    }

    /// Power was lost: what was not synced is gone.
    pub(super) fn lose_power(&self) {
        let mut platter = self.platter();
        platter.cached = platter.durable.clone();
        platter.dirty.clear();
        platter.fault = Fault::None;
    }

    /// Calls this in every sync.
    pub(super) fn on_sync(&self, call: impl Fn() + Send + Sync + 'static) {
        self.platter().on_sync = Some(Arc::new(call));
    }

    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.0.lock().expect("no test panics while it holds a disk")
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        let platter = self.platter();
        platter.works()?;
        Ok(platter.cached.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let platter = self.platter();
        platter.works()?;
        let start = usize::try_from(offset).expect("test files are small");
        let part = platter.cached.get(start..start + out.len());
        out.copy_from_slice(part.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let mut platter = self.platter();
        platter.writable()?;
        let len = usize::try_from(len).expect("test files are small");
        platter.cached.resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let call = self.platter().on_sync.clone();
        if let Some(call) = call {
            call();
        }
        self.platter().sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let mut platter = self.platter();
        platter.writable()?;
        let start = usize::try_from(offset).expect("test files are small");
        let range = start..start + data.len();
        platter.cached[range.clone()].copy_from_slice(data);
        platter.dirty.push(range);
        Ok(())
    }
}

// === impl Platter ===

impl Platter {
    fn works(&self) -> io::Result<()> {
        match self.fault {
            Fault::Dead => Err(io::Error::other("the disk is dead")),
            _ => Ok(()),
        }
    }

    fn writable(&mut self) -> io::Result<()> {
        self.works()?;
        match &mut self.fault {
            Fault::ReadOnly => Err(ErrorKind::ReadOnlyFilesystem.into()),
            Fault::Full(0) => Err(ErrorKind::StorageFull.into()),
            Fault::Full(left) => {
                *left -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.works()?;
        let (lands, fails) = match &mut self.fault {
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
        let dirty = std::mem::take(&mut self.dirty);
        if lands {
            self.durable.resize(self.cached.len(), 0);
            for range in dirty {
                let end = range.end.min(self.cached.len());
                if let Some(part) = self.cached.get(range.start..end) {
                    self.durable[range.start..end].copy_from_slice(part);
                }
            }
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
