//! A clock that moves only when a test moves it. The tests in `src` include this file as well.

use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use crate::clock::{BootId, Clock};

/// A clock that moves only when a test moves it.
#[derive(Debug)]
pub(crate) struct ManualClock(pub(crate) Mutex<ManualTime>);

/// The times that a [`ManualClock`] shows.
#[derive(Debug, Clone)]
pub(crate) struct ManualTime {
    pub(crate) wall: SystemTime,
    pub(crate) since_boot: Duration,
    pub(crate) boot_id: BootId,
}

// === impl ManualClock ===

impl ManualClock {
    /// A clock that shows `wall`, one hour after boot.
    pub(crate) fn at(wall: SystemTime) -> Self {
        Self(Mutex::new(ManualTime {
            wall,
            since_boot: Duration::from_hours(1),
            boot_id: BootId::new("boot-1"),
        }))
    }

    /// Moves wall time and time since boot forward.
    pub(crate) fn advance(&self, by: Duration) {
        let mut now = self.0.lock();
        now.wall += by;
        now.since_boot += by;
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> SystemTime {
        self.0.lock().wall
    }

    fn since_boot(&self) -> Duration {
        self.0.lock().since_boot
    }

    fn boot_id(&self) -> BootId {
        self.0.lock().boot_id.clone()
    }
}
