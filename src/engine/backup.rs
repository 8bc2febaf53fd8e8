//! Backup: everything that the store holds, as a file.

use std::time::Duration;

use bytes::Bytes;
use tokio::{sync::mpsc, time::timeout};
use tracing::warn;

use crate::{
    lifecycle::Lifecycle,
    store::{StoreError, contract::StoreBackup},
};

use super::Engine;

/// A backup that is handed out in parts. If the parts have fewer bytes than `len`, the backup ended early.
#[derive(Debug)]
pub struct BackupParts {
    /// The size of the backup in bytes.
    pub len: usize,
    /// Receives the content of the backup, part by part.
    pub parts: mpsc::Receiver<Bytes>,
}

/// The size of one part of a backup in bytes.
const PART: usize = 64 * 1024;
/// The slowest rate at which a backup may be read, in bytes per second: a line of one megabit per second is faster.
const SLOWEST: usize = 100_000;
/// How long reading a backup may take in addition to its size divided by `SLOWEST`.
const AT_LEAST: Duration = Duration::from_secs(30);

// === impl Engine ===

impl Engine {
    /// Makes a backup of all living leases and all acknowledged commands; `None` if the store is backed up in another
    /// way.
    pub async fn backup(&self) -> Option<Result<BackupParts, StoreError>> {
        let made = self.0.store.backup().await?;
        Some(made.map(|made| BackupParts::start(made, &self.0.lifecycle)))
    }
}

// === impl BackupParts ===

impl BackupParts {
    /// Starts a task that sends the backup part by part. A reader that is slow, or gone, keeps the backup in memory,
    /// and other backups out, for a limited time only.
    fn start(made: StoreBackup, lifecycle: &Lifecycle) -> Self {
        let StoreBackup { bytes, room } = made;
        let len = bytes.len();
        let (sender, parts) = mpsc::channel(1);
        let closed = lifecycle.closed();
        lifecycle.spawn(async move {
            let seconds = u64::try_from(len / SLOWEST).unwrap_or(u64::MAX);
            let within = AT_LEAST.saturating_add(Duration::from_secs(seconds));
            let handing_out = async {
                for part in bytes.chunks(PART) {
                    // Each part is copied, because a slice that is still to be sent would keep the whole backup in
                    // memory.
                    if sender.send(Bytes::copy_from_slice(part)).await.is_err() {
                        break;
                    }
                }
            };
            tokio::select! {
                handed_out = timeout(within, handing_out) => if handed_out.is_err() {
                    warn!(?within, "a backup was read too slowly, and is not whole");
                },
                () = closed => {}
            }
            drop(room);
        });
        Self { len, parts }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::{sync::Semaphore, time::sleep};

    use super::*;

    const LEN: usize = 10 * PART + 1;

    fn content() -> Vec<u8> {
        (0..=250).cycle().take(LEN).collect()
    }

    /// A backup for tests, and the semaphore of which the backup has taken the only permit.
    fn made() -> (BackupParts, Arc<Semaphore>) {
        let rooms = Arc::new(Semaphore::new(1));
        let room = Arc::clone(&rooms).try_acquire_owned().unwrap();
        let made = BackupParts::start(
            StoreBackup {
                bytes: content(),
                room,
            },
            &Lifecycle::new(),
        );
        (made, rooms)
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_read_in_time_is_whole_and_keeps_its_room_until_then() {
        let (mut made, rooms) = made();
        let mut read = Vec::new();
        while let Some(part) = made.parts.recv().await {
            assert!(part.len() <= PART);
            read.extend_from_slice(&part);
            sleep(Duration::from_secs(2)).await;
            assert_eq!(
                rooms.available_permits(),
                usize::from(read.len() > LEN - PART)
            );
        }
        assert_eq!(made.len, LEN);
        assert!(read == content());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_read_too_slowly_gives_up_its_room_and_ends_early() {
        let (mut made, rooms) = made();
        made.parts.recv().await.unwrap();
        sleep(Duration::from_secs(30)).await;
        assert_eq!(rooms.available_permits(), 0);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(rooms.available_permits(), 1);
        // The task had sent this part before the time for the whole backup was over.
        assert!(made.parts.recv().await.is_some());
        assert_eq!(made.parts.recv().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_nobody_wants_any_more_gives_up_its_room() {
        let (made, rooms) = made();
        drop(made);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(rooms.available_permits(), 1);
    }
}
