//! The process of clients: workers that take turns until its standard input ends.

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

/// The argument that makes the program a process of clients.
pub(crate) const COMMAND: &str = "clients";
/// The locks that all clients contend for. On the `fair` locks no client hangs up.
pub(crate) const LOCKS: [&str; 6] = [
    "rough:0", "rough:1", "rough:2", "rough:3", "fair:0", "fair:1",
];
/// The lock that clients only acquire, with a wait, and do nothing else with.
pub(super) const PATIENT: &str = "patient";
/// The lock that rests after each visit, and the pool whose slots rest, with its limit.
pub(super) const RESTING: &str = "resting";
pub(super) const RESTING_POOL: (&str, u64) = ("resting-pool", 2);
/// The shared locks: for readers and writers, and as pools with a limit.
pub(crate) const SHARED: [&str; 4] = ["mixed:rough", "pool:rough", "mixed:fair", "pool:fair"];
/// The limit of a pool.
pub(super) const PLACES: u64 = 3;
/// The pool that clients only acquire, with a wait, and its limit.
pub(super) const PATIENT_POOL: (&str, u64) = ("patient-pool", 3);
/// The locks that are acquired with an order.
pub(super) const ORDERED: [&str; 2] = ["ordered:0", "ordered:1"];
/// The locks that are acquired as groups.
pub(super) const GROUPED: [&str; 5] = [
    "grouped:0",
    "grouped:1",
    "grouped:2",
    "grouped:3",
    "grouped:4",
];
/// The locks that are reserved.
pub(super) const RESERVED: [&str; 4] = ["reserved:0", "reserved:1", "reserved:2", "reserved:3"];
/// Prefix of the locks whose release is requested.
pub(super) const REQUESTED: &str = "requested";
/// Prefix of the locks with a waiter for an exclusive lease that soon leaves.
pub(super) const LEAVING: &str = "leaving";
/// Prefix of the locks whose leases the history records.
pub(super) const RECORDED: &str = "recorded";
/// Prefix of the locks that only one worker uses.
pub(super) const QUICK: &str = "quick";

/// The arguments of a process of clients, as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
    pub(crate) gateways: Vec<SocketAddr>,
    pub(crate) resource: SocketAddr,
    /// Whether the store shares locks.
    pub(crate) shares: bool,
    pub(crate) seed: u64,
    /// The number of its first request.
    pub(crate) first_op: u64,
}

/// The workers of a process: how many there are in each room.
const WORKERS: [(Room, usize); 16] = [
    // First, because each three of them share a lock.
    (Room::Leaving, 6),
    // Second, because each two of them share a lock.
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
    (Room::Resting, 2),
    (Room::RestingSharing, 2),
    (Room::Reserving, 3),
    (Room::Ordering, 3),
    (Room::Recorded, 8),
];

/// Takes turns until the standard input ends, and then lets the open turns end.
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
        // The content of the standard input does not matter, only its end.
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
    });
    ended.await.unwrap();
    over.store(true, Ordering::SeqCst);
    while let Some(ended) = workers.join_next().await {
        ended.unwrap();
    }
}
