//! The one thread that changes anything: group commit.

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

/// The most commands in one transaction: a bound on how long the first of them waits.
const BATCH: usize = 1024;
/// How long the writer waits for more commands when there are much fewer than in the batches before: the shortest
/// sleep there is, about 50 us. One caller alone never waits.
const LINGER: Duration = Duration::from_micros(1);
/// The most leases and tombstones that are cleared away in one transaction.
const SWEEP: usize = 1024;
/// How often the writer looks for what has ended while nobody asks for anything.
const TICK: Duration = Duration::from_secs(1);
/// How soon at the earliest the writer looks again for a lease that ends while somebody is queued
/// for it: the clocks of waits and of leases do not agree to the microsecond.
const PROMPT: Duration = Duration::from_millis(1);
/// How often a failed disk is tried again, and a sound one looked at for whether the files are still
/// there.
const RETRY: Duration = Duration::from_millis(250);
/// How far the log may lag behind the clock while a lease lives. After a reboot nobody knows how
/// late it was, except from the last write.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// All that the thread owns.
pub(super) struct Writer {
    /// Each with the runtime on which its answer is awaited.
    pub(super) commands: Receiver<(Command, Handle)>,
    pub(super) state: Arc<RwLock<State>>,
    pub(super) parking: Parking,
    /// Grants of which nobody could be told, to be taken back with the next transaction.
    pub(super) orphans: Vec<UndeliveredGrant>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) health: Arc<DiskHealth>,
    pub(super) closed: Arc<AtomicBool>,
    pub(super) boot: BootId,
    pub(super) log: Log,
    /// Whether the last write was durable. If not, everything is written anew before anything else is.
    pub(super) writable: bool,
    pub(super) written_at: Moment,
    /// Whether more has ended than was cleared away so far.
    pub(super) sweep_pending: bool,
    /// A backup that is being made.
    pub(super) backup: Option<Backup>,
    /// How many bytes of rows live.
    pub(super) live_bytes: u64,
    /// What those are told who ask for a lock while the disk is full.
    pub(super) shortage: Option<StoreError>,
    /// When a failed or full disk is tried again.
    pub(super) try_after: Instant,
    /// Whether more space is to be kept at once for when the disk is full.
    pub(super) keeping_space: bool,
    /// What must still be in the directory.
    pub(super) open_files: OpenFiles,
    /// When that was looked at last.
    pub(super) files_checked_at: Instant,
    /// When those were told where they stand who watch that.
    pub(super) positions_published_at: Instant,
    /// Given up last, when the file is closed.
    pub(super) directory: Directory,
}

// === impl Writer ===

impl Writer {
    /// Serves until it is closed or every handle is gone.
    pub(super) fn run(mut self) {
        self.see_shortage();
        let mut batch = Vec::with_capacity(BATCH);
        // How many commands the two last batches had, and the last one.
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
                        // The callers that were answered just now are about to ask again. Two batches that take
                        // turns are best, because one is written while the callers of the other compute; so the
                        // writer waits only for much less than half of the callers.
                        std::thread::sleep(LINGER);
                        let room = BATCH - batch.len();
                        batch.extend(self.commands.try_iter().take(room));
                    }
                    // Forgotten slowly: a batch that came too early is no sign that callers have gone.
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

    /// How long to wait for a command before there is something else to do.
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

    /// Carries out a batch, makes it durable, and only then answers.
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

    /// Changes the state, after what has become possible meanwhile and before what has ended is cleared away. Answers
    /// the rows to write.
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

    /// Writes a transaction; on a full disk, with everything that lives, in the space that is kept for that.
    fn write(&mut self, rows: &Rows, now: Moment) -> Result<(), WriteFailure> {
        let meta = self.meta(now);
        if let Some(backup) = &mut self.backup {
            // If it cannot be written, the backup ends with it.
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

    /// Goes on with the next file of the log, if one is due. All that lives is durable here.
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
                // The disk may have been full, and the log gone on in the reserve: no acquire may be served then.
                self.see_shortage();
            }
            Err(failure) => self.fail(&failure.error.to_string(), false, ExecutedBatch::default()),
        }
    }

    /// Copies a part of what lives into a backup. All of that is durable here.
    fn go_on_with_backup(&mut self) {
        if let Some(backup) = self.backup.take() {
            let meta = self.meta(Moment::now(&*self.clock));
            self.backup = backup.go_on(&self.state.read(), &meta);
        }
    }

    /// Begins a file of the log with all that is in memory.
    fn write_anew(&mut self, now: Moment) -> Result<(), WriteFailure> {
        let meta = self.meta(now);
        self.log.rewrite(&meta, &self.state.read())?;
        self.see_files();
        Ok(())
    }

    /// Keeps the next piece of the space that is needed when the disk is full, or looks whether it has room again.
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
            // It may be full of what the log does not need any more.
            let may_shorten = was_short && !self.keeping_space && self.log.shortage().is_some();
            if may_shorten && self.log.is_wasteful(self.live_bytes) {
                match self.write_anew(now) {
                    Ok(()) => self.keeping_space = self.log.keep_space(self.live_bytes),
                    // The log is as it was.
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
                // What takes long is not tried as often.
                self.try_after = Instant::now() + RETRY.max(4 * began.elapsed());
            }
        }
        self.see_shortage();
    }

    /// Takes note of whether the disk is full.
    fn see_shortage(&mut self) {
        let shortage = self.log.shortage();
        if shortage.is_some() == self.shortage.is_some() {
            return;
        }
        let why = shortage.map(|kind| {
            format!(
                "the disk of the data directory is full ({kind}): locks are renewed and released, and none is \
                 acquired until it has room"
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
        // Those of the turn before were taken back in this one.
        self.orphans = untold.collect();
        done.answer(carried_out, &self.clock);
    }

    /// A write failed: memory goes back to what is durable, and everybody is told what is known.
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

    /// A file that was removed is as good as a disk that failed, although it can be written.
    fn check_files(&mut self) {
        self.files_checked_at = Instant::now();
        if let Err(why) = self.open_files.check() {
            self.fail(&why, false, ExecutedBatch::default());
        } else if let Err(why) = self.open_files.check_lengths() {
            // All that it held is in memory, and is written anew.
            self.log.distrust();
            self.fail(&why, false, ExecutedBatch::default());
        }
    }

    /// Makes sure that the log holds what memory holds, and that it can be written. If it cannot, says why.
    ///
    /// After a failed fsync the batch may be in the page cache and never reach the disk. So if it
    /// can be read, that proves nothing: every row is written anew, without the batch.
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
            // On a full disk, too: without what has ended it may be short enough.
            self.write_anew(now)
        };
        // What takes long is not tried as often.
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

    /// Takes note of the files that there are now.
    fn see_files(&mut self) {
        let log = self.directory.log_file(self.log.generation());
        self.open_files.set_log(log);
    }

    /// Nobody asks for anything.
    fn tick(&mut self) {
        if !self.writable {
            return;
        }
        let now = Moment::now(&*self.clock);
        let rows = self.change(now, |_state, _backup| {});
        let lags = self.state.write().len() > 0 && now.since(self.written_at) >= HEARTBEAT;
        if lags || !rows.is_empty() {
            self.commit(&rows, now, ExecutedBatch::default());
        } else {
            self.answer(ExecutedBatch::default(), now);
        }
    }

    /// Tells those who watch it where they stand: each queue is walked through once, however many watch
    /// it, and not more often than once a tick.
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

    /// What a transaction says of the store, with the changes that are in memory.
    fn meta(&self, now: Moment) -> Meta {
        let state = self.state.read();
        Meta {
            fence: state.fence(),
            boot: self.boot.clone(),
            written_at: now,
            rows: state.len(),
        }
    }

    /// Lets go of everything, then says so.
    fn finish(self, closed: Option<oneshot::Sender<()>>) {
        self.closed.store(true, Ordering::Release);
        for (late, _runtime) in self.commands.try_iter() {
            drop(late.refuse(Unavailability::Closing.into()));
        }
        // Whoever is still queued is told to ask again, and then that the store is closing.
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
            warn!(%error, "cannot mark the end of the log; that is as after a crash");
        }
        drop(self.directory);
        if let Some(closed) = closed {
            closed.send(()).ok();
        }
    }
}
