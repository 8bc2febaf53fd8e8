//! The database file: one table of rows, and the row about itself.

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition, TableError};

use crate::{clock::Clock, lock::LockName};

use super::{
    field::{Fields, RowError},
    header_last::Witness,
    lease::Lease,
    lease_row,
    meta::Meta,
    moment::Moment,
    row_key::{RowKey, Tombstone},
    rows::Rows,
};

/// One table for all kinds of rows: every table more is a tree more that each commit has to write.
const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("latchgate");

/// An open database.
#[derive(Debug)]
pub(super) struct DataFile {
    database: Database,
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

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// It is no database, is damaged, or could not be read.
    #[error(transparent)]
    Database(#[from] redb::Error),
    /// It is a database, and not one of ours.
    #[error("it has no row about itself")]
    NoMeta,
    /// A row is not as it should be.
    #[error("the row {key:?} {error}")]
    Row { key: String, error: RowError },
}

// === impl DataFile ===

impl DataFile {
    /// Opens the database.
    pub(super) fn open(opener: &Opener) -> Result<Self, redb::Error> {
        let witness = Witness::default();
        let database = opener(witness.clone())?;
        Ok(Self { database, witness })
    }

    /// Takes a new database.
    pub(super) fn new(database: Database) -> Self {
        let witness = Witness::default();
        Self { database, witness }
    }

    /// Whether the last write, which failed, certainly left the file as it was.
    pub(super) fn is_unchanged(&self) -> bool {
        !self.witness.saw_header()
    }

    /// Writes the first row into a new file.
    pub(super) fn begin(&self, clock: &dyn Clock) -> Result<(), redb::Error> {
        let meta = Meta {
            sequence: 0,
            fence: 0,
            boot: clock.boot_id(),
            written_at: Moment::now(clock),
        };
        self.write(&meta, &Rows::default())
    }

    /// What the file says of itself.
    pub(super) fn meta(&self) -> Result<Meta, ReadError> {
        let read = self.database.begin_read().map_err(redb::Error::from)?;
        let table = match read.open_table(TABLE) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Err(ReadError::NoMeta),
            Err(error) => return Err(redb::Error::from(error).into()),
        };
        let row = table.get(RowKey::META).map_err(redb::Error::from)?;
        let row = row.ok_or(ReadError::NoMeta)?;
        Meta::decode(row.value()).map_err(|error| bad(RowKey::META, error))
    }

    /// Reads everything.
    pub(super) fn read(&self) -> Result<Contents, ReadError> {
        // First: nothing else can be read in a layout that we do not know.
        let meta = self.meta()?;
        let mut contents = Contents {
            meta,
            leases: Vec::new(),
            tombstones: Vec::new(),
        };
        let read = self.database.begin_read().map_err(redb::Error::from)?;
        let table = read.open_table(TABLE).map_err(redb::Error::from)?;
        for row in table.iter().map_err(redb::Error::from)? {
            let (key, value) = row.map_err(redb::Error::from)?;
            contents
                .take(key.value(), value.value())
                .map_err(|error| bad(key.value(), error))?;
        }
        Ok(contents)
    }

    /// Writes rows in one transaction, durable when this returns.
    pub(super) fn write(&self, meta: &Meta, rows: &Rows) -> Result<(), redb::Error> {
        self.transact(meta, rows, false)
    }

    /// Writes these rows instead of all that are there, on fresh pages throughout.
    pub(super) fn rewrite(&self, meta: &Meta, rows: &Rows) -> Result<(), redb::Error> {
        self.transact(meta, rows, true)
    }

    fn transact(&self, meta: &Meta, rows: &Rows, afresh: bool) -> Result<(), redb::Error> {
        self.witness.begin();
        let write = self.database.begin_write()?;
        if afresh {
            write.delete_table(TABLE)?;
        }
        {
            let mut table = write.open_table(TABLE)?;
            for (key, value) in rows.iter() {
                match value {
                    Some(value) => drop(table.insert(key, value)?),
                    None => drop(table.remove(key)?),
                }
            }
            table.insert(RowKey::META, meta.encode().as_slice())?;
        }
        write.commit()?;
        Ok(())
    }
}

// === impl Contents ===

impl Contents {
    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        if key == RowKey::META {
            return Ok(());
        }
        if let Some((&RowKey::LEASE, name)) = key.split_first() {
            let name = std::str::from_utf8(name)
                .ok()
                .and_then(|name| LockName::new(name).ok())
                .ok_or(RowError::Invalid("lock name"))?;
            self.leases.push((name, lease_row::decode(value)?));
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

fn bad(key: &[u8], error: RowError) -> ReadError {
    let key = key.escape_ascii().to_string();
    ReadError::Row { key, error }
}
