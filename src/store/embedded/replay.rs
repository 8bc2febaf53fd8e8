//! All that a log holds, read record by record.

use std::collections::{HashMap, HashSet};

use crate::{clock::Clock, lock::LockName};

#[cfg(any(test, feature = "fuzzing"))]
use super::layout::around;
use super::{
    layout::{LogError, ParsedLog, RECORD_HEADER},
    lease::{Lease, Moment},
    row::{self, Fields, Meta, RowError, RowKey, Tombstone},
};

/// All that a log holds.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) meta: Meta,
    pub(super) leases: Vec<(LockName, Lease)>,
    pub(super) tombstones: Vec<(Tombstone, Moment)>,
}

// === impl Contents ===

impl Contents {
    /// What the records of a log leave behind, one after the other.
    pub(super) fn replay(log: &ParsedLog<'_>) -> Result<Self, LogError> {
        let mut rows = HashMap::new();
        let mut last = None;
        for record in &log.records {
            let mut fields = Fields::of(&record[RECORD_HEADER..]);
            let meta = take_rows(&mut fields, &mut rows).map_err(LogError::of_record)?;
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

    /// Those of a store that holds nothing.
    pub(super) fn none(clock: &dyn Clock) -> Self {
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

    /// Whoever is alone shares the lock with nobody.
    fn check_modes(&self) -> Result<(), LogError> {
        let is_shared = |(_, lease): &&(LockName, Lease)| lease.mode.is_shared();
        let shared = self.leases.iter().filter(is_shared);
        let shared: HashSet<_> = shared.map(|(name, _)| name).collect();
        if shared.is_empty() {
            return Ok(());
        }
        let mut alone = self.leases.iter().filter(|it| !is_shared(it));
        match alone.find(|(name, _)| shared.contains(name)) {
            None => Ok(()),
            Some((name, _)) => Err(LogError::Row {
                key: RowKey::exclusive(name)
                    .as_bytes()
                    .escape_ascii()
                    .to_string(),
                error: RowError::Invalid("lease: its lock is shared"),
            }),
        }
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        if let Some(key) = RowKey::parse_lease(key) {
            let (name, shared) = key?;
            let lease = row::decode(value)?;
            if shared != lease.mode.is_shared().then_some(lease.fence) {
                return Err(RowError::Invalid("mode or fencing token for its key"));
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

/// Carries a record out on the rows, by their keys.
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

/// Reads any bytes as a log, and as the content of a record of one, for fuzzers: nothing panics.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn fuzzed_log(bytes: &[u8]) -> String {
    let replayed = |bytes: &[u8]| Contents::replay(&ParsedLog::parse(bytes)?);
    let record = around(bytes);
    format!("{:?} {:?}", replayed(bytes), replayed(&record))
}
