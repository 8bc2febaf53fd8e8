//! Replay of a log when the store starts: the records are applied one after the other.

use std::collections::{HashMap, HashSet};

use crate::{
    clock::Clock,
    lock::LockName,
    store::embedded::{
        records::{self, Fields, Meta, RowError, RowKey, Tombstone},
        state::{Lease, Memory, Moment},
    },
};

use super::layout::{LogError, ParsedLog, RECORD_HEADER};

/// The leases and tombstones that a log holds, and the log's data about the whole store.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) meta: Meta,
    pub(crate) leases: Vec<(LockName, Lease)>,
    pub(crate) tombstones: Vec<(Tombstone, Memory)>,
}

// === impl Contents ===

impl Contents {
    /// Applies the records of a log one after the other, and decodes the rows that remain.
    pub(crate) fn replay(log: &ParsedLog<'_>) -> Result<Self, LogError> {
        let mut rows = HashMap::new();
        let mut last = None;
        for record in &log.records {
            let mut fields = Fields::new(&record[RECORD_HEADER..]);
            // The checksum of the record is valid, so a record that cannot be decoded was not written by this
            // program.
            let meta = take_rows(&mut fields, &mut rows).map_err(|error| LogError::Row {
                key: "about the log".to_owned(),
                error,
            })?;
            last = Some(meta);
        }
        let meta = last.ok_or(LogError::Gap(0))?;
        let (found, expected) = (rows.len() as u64, meta.rows);
        if found != expected {
            return Err(LogError::Count { found, expected });
        }
        let mut contents = Self {
            meta,
            leases: Vec::new(),
            tombstones: Vec::new(),
        };
        for (key, value) in rows {
            contents.take(key, value).map_err(|error| LogError::Row {
                key: key.escape_ascii().to_string(),
                error,
            })?;
        }
        contents.check_modes()?;
        Ok(contents)
    }

    /// Refuses a log in which a lock has an exclusive lease and shared leases at once. Without this, the start would
    /// panic when the state is built from the leases.
    fn check_modes(&self) -> Result<(), LogError> {
        let is_shared = |(_, lease): &&(LockName, Lease)| lease.mode.is_shared();
        let shared = self.leases.iter().filter(is_shared);
        let shared: HashSet<_> = shared.map(|(name, _)| name).collect();
        let mut exclusive = self.leases.iter().filter(|it| !is_shared(it));
        match exclusive.find(|(name, _)| shared.contains(name)) {
            None => Ok(()),
            Some((name, _)) => Err(LogError::Row {
                key: RowKey::lease(name, None)
                    .as_bytes()
                    .escape_ascii()
                    .to_string(),
                error: RowError::Invalid("lease: its lock is shared"),
            }),
        }
    }

    /// The contents of a log that has no leases and no tombstones, for an empty store.
    pub(crate) fn none(clock: &dyn Clock) -> Self {
        Self {
            meta: Meta {
                fence: 0,
                boot: clock.boot_id(),
                written_at: Moment::now(clock),
                rows: 0,
            },
            leases: Vec::new(),
            tombstones: Vec::new(),
        }
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        if let Some(key) = RowKey::parse_lease(key) {
            let (name, shared) = key?;
            let lease = records::decode(value)?;
            if shared != lease.row() {
                return Err(RowError::Invalid("mode or fencing token for its key"));
            }
            self.leases.push((name, lease));
            return Ok(());
        }
        let tombstone = Tombstone::parse(key).ok_or(RowError::Invalid("kind"))?;
        let memory = records::decode_memory(&tombstone, value)?;
        self.tombstones.push((tombstone, memory));
        Ok(())
    }
}

/// Applies a record of the log to the rows that were read so far: inserts and removes rows by their keys.
fn take_rows<'bytes>(
    fields: &mut Fields<'bytes>,
    rows: &mut HashMap<&'bytes [u8], &'bytes [u8]>,
) -> Result<Meta, RowError> {
    let meta = Meta::read(fields)?;
    for _ in 0..fields.u64()? {
        match fields.row()? {
            (key, Some(value)) => rows.insert(key, value),
            (key, None) => rows.remove(key),
        };
    }
    Ok(meta)
}

/// Decodes any bytes as each kind of row, as a key, as a log and as a record of a log, for fuzzers. Panics if
/// accepted bytes would be encoded differently.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzzed_row(bytes: &[u8]) -> String {
    let lease = records::decode(bytes).map(|lease| {
        let mut again = Vec::new();
        records::encode(&lease, &mut again);
        assert_eq!(records::decode(&again), Ok(lease), "another lease");
    });
    let meta = Meta::read(&mut Fields::new(bytes)).map(|meta| {
        let mut again = Vec::new();
        meta.encode(&mut again);
        assert!(bytes.starts_with(&again), "another start");
    });
    let tombstone = Tombstone::parse(bytes).map(|tombstone| {
        assert_eq!(tombstone.as_bytes(), bytes, "another tombstone");
    });
    let of_order = Tombstone::from(&RowKey::order(&LockName::new("lock").expect("it is one")));
    let order = records::decode_memory(&of_order, bytes).map(|memory| {
        let mut again = records::Rows::default();
        again.tombstone(&of_order, Some(&memory));
        assert!(again.as_bytes().ends_with(bytes), "another order");
    });
    let key = RowKey::parse_lease(bytes).map(|key| {
        key.map(|(name, shared)| {
            let again = RowKey::lease(&name, shared);
            assert_eq!(again.as_bytes(), bytes, "another key");
        })
    });
    let replayed = |bytes: &[u8]| Contents::replay(&ParsedLog::parse(bytes)?);
    let record = super::layout::around(bytes);
    let log = (replayed(bytes), replayed(&record));
    format!("{lease:?} {meta:?} {tombstone:?} {order:?} {key:?} {log:?}")
}
