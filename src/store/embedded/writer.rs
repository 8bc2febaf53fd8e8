//! The writer of the embedded store: the one thread that changes the state and writes the log, with one sync for a
//! batch of commands.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use parking_lot::RwLock;
use tokio::{runtime::Handle, sync::oneshot, time::Instant};
use tracing::{error, info, warn};

use crate::{
    clock::{BootId, Clock},
    store::{StoreError, Unavailability, Uncertainty, parking::Parking},
};

use super::{
    command::{Command, ExecutedBatch},
    health::DiskHealth,
    log::{Backup, Directory, Log, OpenFiles, WriteFailure},
    records::{Meta, Rows},
    state::{Delay, Moment, Shortage, State, UndeliveredGrant},
};

/// How many commands are carried out in one transaction, at most. This bounds how long the first command of a batch
/// waits.
const BATCH: usize = 1024;
/// How long the writer waits for more commands when much fewer have arrived than in the batches before: the shortest
/// possible sleep, about 50 us. The command of a single caller never waits.
const LINGER: Duration = Duration::from_micros(1);
/// How many leases and tombstones are cleared away in one transaction, at most.
const SWEEP: usize = 1024;
/// How often the writer clears away ended leases while no command arrives.
const TICK: Duration = Duration::from_secs(1);
/// The shortest pause before the writer checks again for an expired lease with waiters: the clock of the pause
/// and the clock of leases differ by microseconds, so a shorter pause would make the writer spin.
const PROMPT: Duration = Duration::from_millis(1);
/// How often the writer tries a failed disk again, and how often it checks on a sound disk whether the files of the
/// store are still in place.
const RETRY: Duration = Duration::from_millis(250);
/// The longest time between two log records while a lease lives. After a reboot, the time of the last record is the
/// latest moment that is known of the boot before.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The same while only orders are remembered, which last for days.
const HEARTBEAT_OF_ORDERS: Duration = Duration::from_hours(1);

/// The state of the writer thread.
pub(super) struct Writer {
    /// Commands, each with the runtime on which its caller waits.
    pub(super) commands: Receiver<(Command, Handle)>,
    pub(super) state: Arc<RwLock<State>>,
    pub(super) parking: Parking,
    /// Grants that could not be delivered to a waiter, to be ended with the next transaction.
    pub(super) orphans: Vec<UndeliveredGrant>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) health: Arc<DiskHealth>,
    pub(super) closed: Arc<AtomicBool>,
    pub(super) boot: BootId,
    pub(super) log: Log,
    /// Whether the last write to the log was durable. If not, the log is repaired before any other write.
    pub(super) writable: bool,
    pub(super) written_at: Moment,
    /// Whether the last transaction left ended leases or tombstones to clear away.
    pub(super) sweep_pending: bool,
    /// The backup that is being made, if any.
    pub(super) backup: Option<Backup>,
    /// How many bytes the rows of all leases and tombstones take in the log.
    pub(super) live_bytes: u64,
    /// The error with which acquires are answered while the disk is full.
    pub(super) shortage: Option<StoreError>,
    /// When the writer tries a failed or full disk again.
    pub(super) try_after: Instant,
    /// Whether the reserve and the log file still have to grow, for when the disk is full.
    pub(super) keeping_space: bool,
    /// The lock file and the log file, which must stay in the data directory.
    pub(super) open_files: OpenFiles,
    /// When the writer last checked that the files are in the data directory.
    pub(super) files_checked_at: Instant,
    /// When the writer last sent positions in queues to the waiters that watch them.
    pub(super) positions_published_at: Instant,
    /// The lock on the data directory, released last, when the log is closed.
    pub(super) directory: Directory,
}

// === impl Writer ===

impl Writer {
    /// Serves commands until the store is closed or every handle is dropped.
    pub(super) fn run(mut self) {
        self.see_shortage();
        let mut batch = Vec::with_capacity(BATCH);
        // An estimate of the active callers from the sizes of the last two batches, and the size of the last
        // batch.
        let (mut callers, mut last) = (0, 0);
        let closed = loop {
            if !self.writable && Instant::now() >= self.try_after {
                self.recover();
            }
            if self.writable && self.files_checked_at.elapsed() >= RETRY {
                self.check_files();
            }
            match self.commands.recv_timeout(self.poll_timeout()) {
                Ok(command) => {
                    batch.push(command);
                    batch.extend(self.commands.try_iter().take(BATCH - 1));
                    if batch.len() < callers / 4 {
                        // The callers that were answered just now will ask again soon. Two alternating batches
                        // are best, because one is written while the callers of the other compute. So the
                        // writer waits only for much less than half of the callers.
                        std::thread::sleep(LINGER);
                        let room = BATCH - batch.len();
                        batch.extend(self.commands.try_iter().take(room));
                    }
                    // The estimate falls slowly: one small batch that came too early does not mean that callers
                    // have gone.
                    callers = (batch.len() + last).max(callers - callers.div_ceil(8));
                    last = batch.len();
                    if let ControlFlow::Break(closed) = self.serve(batch.drain(..)) {
                        break Some(closed);
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.tick(),
                Err(RecvTimeoutError::Disconnected) => break None,
            }
            if self.writable {
                self.keep_space();
            }
            if self.writable {
                self.go_on_with_next_file();
            }
            self.publish_positions();
            self.go_on_with_backup();
        };
        self.finish(closed);
    }

    /// How long the writer waits for a command at most, because other work is due afterwards.
    fn poll_timeout(&self) -> Duration {
        if !self.writable {
            return RETRY;
        }
        let is_idle = !self.sweep_pending && self.orphans.is_empty() && self.backup.is_none();
        if !is_idle || self.keeping_space || self.log.needs_next() {
            return Duration::ZERO;
        }
        let longest = if self.shortage.is_some() { RETRY } else { TICK };
        match self.state.write().next_hand_off() {
            Some(expiry) => {
                let left = expiry.since(Moment::now(&*self.clock));
                left.clamp(PROMPT, longest)
            }
            None => longest,
        }
    }

    /// Carries out a batch, makes it durable, and only then answers it.
    fn serve(
        &mut self,
        batch: impl Iterator<Item = (Command, Handle)>,
    ) -> ControlFlow<oneshot::Sender<()>> {
        if !self.writable {
            return self.refuse(batch);
        }
        let now = Moment::now(&*self.clock);
        let mut done = ExecutedBatch::default();
        let mut close = None;
        let rows = self.change(now, |state, backup| {
            for (command, runtime) in batch {
                if close.is_some() {
                    drop(command.refuse(Unavailability::Closing.into()));
                    continue;
                }
                match command {
                    Command::Change(mut change) => {
                        change.execute(state, now);
                        done.push(runtime, change);
                    }
                    Command::Backup(answer) => *backup = Some(Backup::begin(answer)),
                    Command::Close(closed) => close = Some(closed),
                }
            }
        });
        if rows.is_empty() {
            self.answer(done, now);
        } else {
            self.commit(&rows, now, done);
        }
        close.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }

    /// Runs one transaction on the state: first hand-offs that have become possible and the end of undelivered grants,
    /// then the commands of the batch, then the clearing of what has ended. Returns the rows to write.
    fn change(
        &mut self,
        now: Moment,
        change: impl FnOnce(&mut State, &mut Option<Backup>),
    ) -> Rows {
        let shortage = self.shortage.as_ref().map(|error| Shortage {
            error: error.clone(),
            room: self.log.room(),
        });
        let mut state = self.state.write();
        state.follow_wall(&*self.clock, now);
        state.bound(shortage, now);
        state.take_back(&self.orphans, now);
        change(&mut state, &mut self.backup);
        self.sweep_pending = !state.sweep(now, SWEEP);
        state.unwritten()
    }

    fn refuse(
        &mut self,
        batch: impl Iterator<Item = (Command, Handle)>,
    ) -> ControlFlow<oneshot::Sender<()>> {
        let why = self.health.now(&*self.clock).unwrap_or_default();
        for (command, _runtime) in batch {
            let refused = command.refuse(Unavailability::Disk(why.clone()).into());
            if let Some(closed) = refused {
                return ControlFlow::Break(closed);
            }
        }
        ControlFlow::Continue(())
    }

    fn commit(&mut self, rows: &Rows, now: Moment, done: ExecutedBatch) {
        self.health.record_write_start(now);
        if let Err(failure) = self.write(rows, now) {
            self.fail(&failure.error.to_string(), failure.may_be_found, done);
            return;
        }
        self.health.record_write_done();
        self.written_at = now;
        self.answer(done, now);
    }

    /// Writes a transaction to the log. On a full disk, all rows are written again, into the reserve.
    fn write(&mut self, rows: &Rows, now: Moment) -> Result<(), WriteFailure> {
        let meta = self.meta(now);
        if let Some(backup) = &mut self.backup {
            // If the transaction cannot be written, the backup is refused as well.
            backup.snapshot.add(&meta, rows);
        }
        match self.log.append(&meta, rows) {
            Err(failure) if failure.is_of_space() => {
                let live = self.state.read().live_bytes();
                if live >= self.log.room() {
                    return Err(failure);
                }
                self.write_anew(now)?;
                self.log.keep_space(live);
                Ok(())
            }
            written => written,
        }
    }

    /// Continues with making the next file of the log, if it is due. The state must be durable.
    fn go_on_with_next_file(&mut self) {
        if !self.log.needs_next() {
            return;
        }
        let now = Moment::now(&*self.clock);
        self.health.record_write_start(now);
        let meta = self.meta(now);
        let gone_on = self.log.go_on_with_next(&meta, &self.state.read());
        match gone_on {
            Ok(is_new) => {
                self.health.record_write_done();
                if is_new {
                    self.see_files();
                }
                // If the disk was full, the log may have moved into the reserve. Without this check, the writer would
                // serve an acquire for which there is no room.
                self.see_shortage();
            }
            Err(failure) => self.fail(&failure.error.to_string(), false, ExecutedBatch::default()),
        }
    }

    /// Copies the next part of the state into the backup. The state must be durable.
    fn go_on_with_backup(&mut self) {
        if let Some(backup) = self.backup.take() {
            let meta = self.meta(Moment::now(&*self.clock));
            self.backup = backup.go_on(&self.state.read(), &meta);
        }
    }

    /// Begins a new log file with all rows of the state.
    fn write_anew(&mut self, now: Moment) -> Result<(), WriteFailure> {
        let meta = self.meta(now);
        self.log.rewrite(&meta, &self.state.read())?;
        self.see_files();
        Ok(())
    }

    /// Enlarges the reserve and the log file for a full disk; if the disk is full, checks whether it has room
    /// again.
    fn keep_space(&mut self) {
        let was_short = self.log.shortage().is_some();
        let is_due = if was_short {
            self.keeping_space || Instant::now() >= self.try_after
        } else {
            self.log.lacks_space(self.live_bytes)
        };
        self.keeping_space = false;
        if is_due {
            let (now, began) = (Moment::now(&*self.clock), Instant::now());
            self.health.record_write_start(now);
            self.keeping_space = self.log.keep_space(self.live_bytes);
            // The log may hold ended leases and old records: a new file without them is shorter and frees
            // space.
            let may_shorten = was_short && !self.keeping_space && self.log.shortage().is_some();
            if may_shorten && self.log.is_wasteful(self.live_bytes) {
                match self.write_anew(now) {
                    Ok(()) => self.keeping_space = self.log.keep_space(self.live_bytes),
                    // The rewrite of the log has failed without a change to the log.
                    Err(failure) if failure.is_of_space() => {}
                    Err(WriteFailure {
                        error,
                        may_be_found,
                    }) => {
                        self.fail(&error.to_string(), may_be_found, ExecutedBatch::default());
                        return;
                    }
                }
            }
            self.health.record_write_done();
            if was_short {
                // If the attempt to find room was slow, the next attempt is made later.
                self.try_after = Instant::now() + RETRY.max(4 * began.elapsed());
            }
        }
        self.see_shortage();
    }

    /// Records whether the disk is full, and writes a log message if this has changed.
    fn see_shortage(&mut self) {
        let shortage = self.log.shortage();
        if shortage.is_some() == self.shortage.is_some() {
            return;
        }
        let why = shortage.map(|kind| {
            format!(
                "the disk of the data directory is full ({kind}): locks are renewed and released, \
                 and no lock is acquired until the disk has room"
            )
        });
        if let Some(why) = &why {
            let bytes_to_free = self.log.space_lacking(self.live_bytes);
            error!(bytes_to_free, "{why}");
        } else {
            info!("the disk of the data directory has room again: locks are acquired");
        }
        self.health.set_shortage(why.clone());
        self.shortage = why.map(|why| Unavailability::DiskFull(why).into());
    }

    pub(super) fn answer(&mut self, done: ExecutedBatch, carried_out: Moment) {
        let (notices, live_bytes) = {
            let mut state = self.state.write();
            (state.commit(), state.live_bytes())
        };
        self.live_bytes = live_bytes;
        let delay = Delay::since(carried_out, &*self.clock);
        let untold = notices
            .into_iter()
            .filter_map(|notice| notice.deliver(&self.parking, delay));
        // The undelivered grants of earlier transactions were ended in this transaction.
        self.orphans = untold.collect();
        done.answer(carried_out, &self.clock);
    }

    /// Handles a failed write: resets the state to what is durable, and answers all callers of the batch whether their
    /// commands may have been carried out.
    fn fail(&mut self, why: &str, may_be_found: bool, done: ExecutedBatch) {
        error!(error = why, "cannot write the data directory");
        self.health.record_failure(why, false);
        if let Some(backup) = self.backup.take() {
            backup.refuse(Unavailability::Disk(why.to_owned()).into());
        }
        self.state.write().rollback();
        self.writable = false;
        self.recover();
        let error = if may_be_found && !self.writable {
            Uncertainty::Disk(why.to_owned()).into()
        } else {
            Unavailability::Disk(why.to_owned()).into()
        };
        done.fail(&error);
    }

    /// Checks that the log file and the lock file are still in the data directory. A removed file counts as a failed
    /// disk, although it can still be written.
    fn check_files(&mut self) {
        self.files_checked_at = Instant::now();
        if let Err(why) = self.open_files.check() {
            self.fail(&why, false, ExecutedBatch::default());
        } else if let Err(why) = self.open_files.check_lengths() {
            // The log file may have lost records. All rows are in memory, and are written to a new file.
            self.log.distrust();
            self.fail(&why, false, ExecutedBatch::default());
        }
    }

    /// Makes sure that the log holds the rows in memory and can be written; if not, records why.
    ///
    /// After a failed fsync the batch may be in the page cache and never reach the disk. So a batch that can be
    /// read proves nothing: every row is written again, without the batch.
    fn recover(&mut self) {
        self.try_after = Instant::now() + RETRY;
        if let Err(why) = self.open_files.check() {
            self.health.record_failure(&why, true);
            return;
        }
        let (now, began) = (Moment::now(&*self.clock), Instant::now());
        let meta = self.meta(now);
        let appended = !self.log.is_torn() && self.log.reserve().is_ok();
        let written = if appended {
            self.log.append(&meta, &Rows::default())
        } else {
            // Writing all rows again is tried on a full disk, too: without ended leases, the rows may fit.
            self.write_anew(now)
        };
        // If the recovery was slow, the next attempt is made later.
        self.try_after = Instant::now() + RETRY.max(4 * began.elapsed());
        if let Err(failure) = written {
            self.health
                .record_failure(&failure.error.to_string(), false);
            return;
        }
        self.see_files();
        if self.log.shortage().is_some() {
            self.live_bytes = self.state.read().live_bytes();
            self.log.keep_space(self.live_bytes);
            self.see_shortage();
        }
        self.written_at = now;
        self.writable = true;
        self.health.record_write_done();
        info!("the data directory can be written again");
    }

    /// Records the current log file as the one that must stay in the directory.
    fn see_files(&mut self) {
        let log = self.directory.log_file(self.log.generation());
        self.open_files.set_log(log);
    }

    /// Runs when no command has arrived: clears away leases and tombstones that have ended, and writes a record if the
    /// last record is old.
    fn tick(&mut self) {
        if !self.writable {
            return;
        }
        let now = Moment::now(&*self.clock);
        let rows = self.change(now, |_state, _backup| {});
        let heartbeat = self.state.write().heartbeat(HEARTBEAT, HEARTBEAT_OF_ORDERS);
        let lags = heartbeat.is_some_and(|longest| now.since(self.written_at) >= longest);
        if lags || !rows.is_empty() {
            self.commit(&rows, now, ExecutedBatch::default());
        } else {
            self.answer(ExecutedBatch::default(), now);
        }
    }

    /// Sends the waiters that watch their position this position, at most once a tick. Each queue is walked once,
    /// however many of its waiters watch.
    fn publish_positions(&mut self) {
        if self.positions_published_at.elapsed() < TICK {
            return;
        }
        self.positions_published_at = Instant::now();
        for (name, watched) in self.parking.watched_by_name() {
            let state = self.state.read();
            state.publish_positions(&name, watched);
        }
    }

    /// The data of a transaction about the whole store, including the changes that are not yet durable.
    fn meta(&self, now: Moment) -> Meta {
        let state = self.state.read();
        Meta {
            fence: state.fence(),
            boot: self.boot.clone(),
            written_at: now,
            rows: state.len(),
        }
    }

    /// Ends the writer thread: refuses the remaining commands, ends all waits, closes the files, then confirms the
    /// close.
    fn finish(self, closed: Option<oneshot::Sender<()>>) {
        self.closed.store(true, Ordering::Release);
        for (late, _runtime) in self.commands.try_iter() {
            drop(late.refuse(Unavailability::Closing.into()));
        }
        // The news tell waiters that their queue is lost. They ask again, and are then answered that the store is
        // closing.
        let notices = {
            let mut state = self.state.write();
            state.drop_all_positions();
            state.commit()
        };
        let delay = Delay::since(Moment::now(&*self.clock), &*self.clock);
        for notice in notices {
            let orphan = notice.deliver(&self.parking, delay);
            debug_assert!(orphan.is_none(), "nothing is granted any more");
        }
        if self.writable
            && let Err(error) = self.log.close()
        {
            warn!(%error, "cannot mark the end of the log; the next start recovers as after a \
                           crash");
        }
        drop(self.directory);
        if let Some(closed) = closed {
            closed.send(()).ok();
        }
    }
}
