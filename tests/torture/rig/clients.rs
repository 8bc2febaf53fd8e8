//! The processes of clients.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
};

use super::process::{Process, command};
use crate::{
    client::{COMMAND, Call},
    random::Random,
};

/// The processes of clients. A name is never used twice.
pub(crate) struct Clients {
    pub(crate) processes: Vec<(String, Process)>,
    directory: PathBuf,
    gateways: Vec<SocketAddr>,
    resource: SocketAddr,
    shares: bool,
    random: Random,
    started: u64,
}

/// The number of processes.
const PROCESSES: usize = 4;
/// How many requests a process may number.
const OPERATIONS: u64 = 1_000_000_000;

// === impl Clients ===

impl Clients {
    /// Starts all processes.
    pub(crate) fn start(
        directory: &Path,
        gateways: Vec<SocketAddr>,
        resource: SocketAddr,
        shares: bool,
        random: Random,
    ) -> Self {
        let mut clients = Self {
            processes: Vec::new(),
            directory: directory.to_owned(),
            gateways,
            resource,
            shares,
            random,
            started: 0,
        };
        for _ in 0..PROCESSES {
            let process = clients.launch();
            clients.processes.push(process);
        }
        clients
    }

    /// Starts a new process in the place of one that has ended.
    pub(crate) fn replace(&mut self, place: usize) {
        self.processes[place] = self.launch();
    }

    /// Tells all processes to end their turns, and waits for their ends.
    pub(crate) async fn end(mut self) {
        for (_, process) in &mut self.processes {
            drop(process.child().stdin.take());
        }
        for (_, process) in &mut self.processes {
            process.ended().await;
        }
    }

    fn launch(&mut self) -> (String, Process) {
        let call = Call {
            name: format!("clients-{}", self.started),
            directory: self.directory.clone(),
            gateways: self.gateways.clone(),
            resource: self.resource,
            shares: self.shares,
            seed: self.random.next(),
            first_op: self.started * OPERATIONS,
        };
        self.started += 1;
        let this = std::env::current_exe().unwrap();
        let mut command = command(&this);
        command
            .args([COMMAND, &serde_json::to_string(&call).unwrap()])
            .stdin(Stdio::piped());
        let process = Process::start(command, &self.directory, &call.name);
        (call.name, process)
    }
}
