//! The process: workers that take turns until its standard input ends.

use std::{
    io::Read,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::worker::{Room, Worker};
use crate::{journal::Journal, random::Random};

/// What the program is called with to be a process of clients.
pub(crate) const COMMAND: &str = "clients";
/// The locks that all clients want. Of those that are `fair` nobody hangs up.
pub(crate) const LOCKS: [&str; 6] = [
    "rough:0", "rough:1", "rough:2", "rough:3", "fair:0", "fair:1",
];
/// The lock that everybody waits for, and asks nothing of.
pub(super) const PATIENT: &str = "patient";
/// The locks that are shared: by readers and writers, and as pools of so many places.
pub(crate) const SHARED: [&str; 4] = ["mixed:rough", "pool:rough", "mixed:fair", "pool:fair"];
/// How many places a pool has.
pub(super) const PLACES: u64 = 3;
/// The lock of which everybody waits for a place, and asks nothing, and how many it has.
pub(super) const PATIENT_POOL: (&str, u64) = ("patient-pool", 3);
/// The locks that are taken several as one.
pub(super) const GROUPED: [&str; 5] = [
    "grouped:0",
    "grouped:1",
    "grouped:2",
    "grouped:3",
    "grouped:4",
];
/// What the locks begin with whose holders are asked to release them.
pub(super) const REQUESTED: &str = "requested";
/// What the locks begin with that those want alone who leave soon.
pub(super) const LEAVING: &str = "leaving";
/// What the locks begin with that a worker has for itself.
pub(super) const QUICK: &str = "quick";

/// How a process of clients is called, as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
    pub(crate) gateways: Vec<SocketAddr>,
    pub(crate) resource: SocketAddr,
    /// Whether the store shares locks.
    pub(crate) shares: bool,
    pub(crate) seed: u64,
    /// The number of its first operation.
    pub(crate) first_op: u64,
}

/// Which workers a process has, and how many.
const WORKERS: [(Room, usize); 11] = [
    // First, as each three of them have a lock.
    (Room::Leaving, 6),
    // Then those of which each two have one.
    (Room::Requesting, 4),
    (Room::Rough, 3),
    (Room::Fair, 5),
    (Room::Patient, 1),
    (Room::Quick, 8),
    (Room::RoughSharing, 3),
    (Room::FairSharing, 4),
    (Room::PatientSharing, 2),
    (Room::Groups, 2),
    (Room::SharingGroups, 1),
];

/// Takes turns until the standard input ends, and then ends those that have begun.
pub(crate) async fn run(arguments: &[String]) {
    let call: Call = serde_json::from_str(&arguments[0]).unwrap();
    let journal = Journal::create(Path::new(&call.directory), &call.name);
    let over = Arc::new(AtomicBool::new(false));
    let ops = Arc::new(AtomicU64::new(call.first_op));
    let mut random = Random::with_seed(call.seed);
    let mut workers = JoinSet::new();
    let rooms = WORKERS
        .into_iter()
        .filter(|(room, _)| call.shares || !room.shares())
        .flat_map(|(room, count)| std::iter::repeat_n(room, count));
    for (number, room) in rooms.enumerate() {
        let worker = Worker::new(&call, number, room, &journal, &ops, random.fork());
        let over = Arc::clone(&over);
        workers.spawn(async move { worker.work(&over).await });
    }
    let ended = tokio::task::spawn_blocking(|| {
        // Whatever comes, it is the end of it that counts.
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
    });
    ended.await.unwrap();
    over.store(true, Ordering::SeqCst);
    while let Some(ended) = workers.join_next().await {
        ended.unwrap();
    }
}
