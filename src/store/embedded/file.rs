//! The database file: one table of rows, and the row about itself.

use std::{
    io,
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use redb::{
    BackendError, Database, DatabaseError, ReadableDatabase, ReadableTable, StorageBackend,
    TableDefinition, TableError,
};
use tracing::warn;

use crate::{clock::Clock, lock::LockName, telemetry::expecting_panics};

use super::{
    lease::{Lease, Moment},
    row::{self, Fields, Meta, RowError, RowKey, Rows, Tombstone, unseal},
};

/// One table for all kinds of rows: every table more is a tree more that each commit has to write.
pub(super) const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("latchgate");

const OPEN: &str = "a file is open until it is dropped";

/// An open database.
#[derive(Debug)]
pub(super) struct DataFile {
    /// Taken out only when the file is dropped, because that may panic as well.
    database: Option<Database>,
    witness: Witness,
}

/// All that a file holds.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) meta: Meta,
    pub(super) leases: Vec<(LockName, Lease)>,
    pub(super) tombstones: Vec<(Tombstone, Moment)>,
}

/// How the database is opened, again after every failure. Its file must report to the witness.
pub(super) type Opener = Box<dyn Fn(Witness) -> Result<Database, DatabaseError> + Send>;

/// Why a file could not be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// It is no database, is damaged, or could not be read or written.
    #[error(transparent)]
    Database(#[from] redb::Error),
    /// It is a database, and not one of ours.
    #[error("it has no row about itself")]
    NoMeta,
    /// A row is not as it should be.
    #[error("the row {key:?} {error}")]
    Row { key: String, error: RowError },
    /// Rows are missing, or there are too many.
    #[error("it has {found} rows instead of {expected}")]
    Count { found: u64, expected: u64 },
    /// The database did not expect what it found.
    #[error("the database stumbled over what it found")]
    Panicked,
}

// === impl DataFile ===

impl DataFile {
    /// Opens the database.
    pub(super) fn open(opener: &Opener) -> Result<Self, FileError> {
        let witness = Witness::default();
        let database = guarded(|| Ok(opener(witness.clone()).map_err(redb::Error::from)?))?;
        Ok(Self {
            database: Some(database),
            witness,
        })
    }

    /// Takes a new database.
    pub(super) fn new(database: Database) -> Self {
        let witness = Witness::default();
        Self {
            database: Some(database),
            witness,
        }
    }

    /// Writes the first row into a new file.
    pub(super) fn begin(&self, clock: &dyn Clock) -> Result<(), FileError> {
        let meta = Meta {
            sequence: 0,
            fence: 0,
            boot: clock.boot_id(),
            written_at: Moment::now(clock),
            rows: 0,
        };
        self.write(&meta, Rows::default())
    }

    /// What the file says of itself.
    pub(super) fn meta(&self) -> Result<Meta, FileError> {
        guarded(|| self.read_meta())
    }

    /// Reads everything and checks it, down to the database's own account of which pages are free.
    ///
    /// Says whether the file is as it should be throughout: if not, everything was read and is to
    /// be written anew.
    pub(super) fn read(&mut self) -> Result<(Contents, bool), FileError> {
        guarded(|| {
            let contents = self.read_all()?;
            let database = self.database.as_mut().expect(OPEN);
            let sound = database.check_integrity().map_err(redb::Error::from)?;
            if !sound {
                warn!("the data file was damaged where no lease is kept; it is written anew");
            }
            Ok((contents, sound))
        })
    }

    /// Writes rows in one transaction, durable when this returns.
    pub(super) fn write(&self, meta: &Meta, rows: Rows) -> Result<(), FileError> {
        guarded(|| self.transact(meta, rows, false))
    }

    /// Writes these rows instead of all that are there, on fresh pages throughout.
    pub(super) fn rewrite(&self, meta: &Meta, rows: Rows) -> Result<(), FileError> {
        guarded(|| self.transact(meta, rows, true))
    }

    /// Lets go of a file that could not be written. Says whether it certainly is as it was before.
    pub(super) fn abandon(self) -> bool {
        let witness = self.witness.clone();
        // Closing may still write what the failed transaction has left behind.
        drop(self);
        !witness.saw_header()
    }

    fn database(&self) -> &Database {
        self.database.as_ref().expect(OPEN)
    }

    fn read_meta(&self) -> Result<Meta, FileError> {
        let read = self.database().begin_read().map_err(redb::Error::from)?;
        let table = match read.open_table(TABLE) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Err(FileError::NoMeta),
            Err(error) => return Err(redb::Error::from(error).into()),
        };
        let row = table.get(RowKey::META).map_err(redb::Error::from)?;
        let row = row.ok_or(FileError::NoMeta)?;
        let row = row.value();
        // Whatever comes behind another layout is not ours to judge.
        let meta = Meta::check_layout(row)
            .and_then(|()| unseal(RowKey::META, row))
            .and_then(Meta::decode);
        meta.map_err(|error| bad(RowKey::META, error))
    }

    fn read_all(&self) -> Result<Contents, FileError> {
        // First: nothing else can be read in a layout that we do not know.
        let meta = self.read_meta()?;
        let mut contents = Contents {
            meta,
            leases: Vec::new(),
            tombstones: Vec::new(),
        };
        let read = self.database().begin_read().map_err(redb::Error::from)?;
        let table = read.open_table(TABLE).map_err(redb::Error::from)?;
        let mut found = 0;
        for row in table.iter().map_err(redb::Error::from)? {
            let (key, value) = row.map_err(redb::Error::from)?;
            if key.value() != RowKey::META {
                found += 1;
                contents
                    .take(key.value(), value.value())
                    .map_err(|error| bad(key.value(), error))?;
            }
        }
        let expected = contents.meta.rows;
        if found == expected {
            Ok(contents)
        } else {
            Err(FileError::Count { found, expected })
        }
    }

    fn transact(&self, meta: &Meta, mut rows: Rows, afresh: bool) -> Result<(), FileError> {
        rows.meta(meta);
        self.witness.begin();
        let write = self.database().begin_write().map_err(redb::Error::from)?;
        if afresh {
            write.delete_table(TABLE).map_err(redb::Error::from)?;
        }
        let mut table = write.open_table(TABLE).map_err(redb::Error::from)?;
        for (key, value) in rows.iter() {
            match value {
                Some(value) => table.insert(key, value).map(drop),
                None => table.remove(key).map(drop),
            }
            .map_err(redb::Error::from)?;
        }
        drop(table);
        write.commit().map_err(redb::Error::from)?;
        Ok(())
    }
}

impl Drop for DataFile {
    fn drop(&mut self) {
        let database = self.database.take();
        // What cannot be closed in good order is repaired when it is opened again.
        guarded(|| {
            drop(database);
            Ok(())
        })
        .ok();
    }
}

/// The database panics over some kinds of damage. That ends what was tried, not the gateway.
fn guarded<T>(work: impl FnOnce() -> Result<T, FileError>) -> Result<T, FileError> {
    expecting_panics(work).unwrap_or(Err(FileError::Panicked))
}

// === impl Contents ===

impl Contents {
    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        let value = unseal(key, value)?;
        if let Some(key) = RowKey::parse_lease(key) {
            let (name, fence) = key?;
            let lease = row::decode(value)?;
            if lease.fence != fence {
                return Err(RowError::Invalid("fence"));
            }
            self.leases.push((name, lease));
            return Ok(());
        }
        let tombstone = Tombstone::parse(key).ok_or(RowError::Invalid("kind"))?;
        let mut fields = Fields::of(value);
        let until = Moment::from_micros(fields.i64()?);
        fields.end()?;
        self.tombstones.push((tombstone, until));
        Ok(())
    }
}

fn bad(key: &[u8], error: RowError) -> FileError {
    let key = key.escape_ascii().to_string();
    FileError::Row { key, error }
}

// === Header last ===
//
// A database file whose header is written after everything else.
//
// The header says which of two transactions is the last one. The database writes it among the
// other pages, in no order; if one of those cannot be written, nobody knows any more which
// transaction a reader would find. Written last, it is untouched as long as a page fails: the
// common failures (disk full, read-only) then certainly changed nothing.

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
