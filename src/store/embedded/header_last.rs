//! A database file whose header is written after everything else.
//!
//! The header says which of two transactions is the last one. The database writes it among the
//! other pages, in no order; if one of those cannot be written, nobody knows any more which
//! transaction a reader would find. Written last, it is untouched as long as a page fails: the
//! common failures (disk full, read-only) then certainly changed nothing.

use std::{
    io,
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use redb::{BackendError, StorageBackend};

/// A database file whose header is written after everything else.
#[derive(Debug)]
pub(super) struct HeaderLast<B> {
    file: B,
    /// The header that is to be written in the next sync.
    header: Mutex<Option<Vec<u8>>>,
    witness: Witness,
}

/// Knows whether the header was touched.
#[derive(Debug, Clone, Default)]
pub(super) struct Witness(Arc<AtomicBool>);

// === impl Witness ===

impl Witness {
    /// A transaction begins.
    pub(super) fn begin(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    /// Whether the header may have been written since the transaction began.
    pub(super) fn saw_header(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

// === impl HeaderLast ===

impl<B: StorageBackend> HeaderLast<B> {
    pub(super) fn new(file: B, witness: Witness) -> Self {
        Self {
            file,
            header: Mutex::new(None),
            witness,
        }
    }

    fn write_header(&self) -> io::Result<()> {
        match self.header().take() {
            Some(header) => {
                self.witness.0.store(true, Ordering::SeqCst);
                self.file.write(0, &header)
            }
            None => Ok(()),
        }
    }

    fn header(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.header
            .lock()
            .expect("nothing panics while it holds the header")
    }
}

impl<B: StorageBackend> StorageBackend for HeaderLast<B> {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)?;
        if let Some(header) = &*self.header()
            && let Ok(offset) = usize::try_from(offset)
            && let Some(waiting) = header.get(offset..)
        {
            let len = waiting.len().min(out.len());
            out[..len].copy_from_slice(&waiting[..len]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.write_header()?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset > 0 {
            return self.file.write(offset, data);
        }
        let mut header = self.header();
        match &mut *header {
            // The rest of a longer one still waits.
            Some(waiting) if waiting.len() > data.len() => {
                waiting[..data.len()].copy_from_slice(data);
            }
            waiting => *waiting = Some(data.to_vec()),
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        // A header that still waits belongs to a transaction that failed.
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}
