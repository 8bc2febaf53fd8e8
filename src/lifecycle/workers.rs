//! Worker threads, which answer requests.
//!
//! Each worker has a runtime of its own, and serves a connection from its first byte to its last. Commands of its
//! requests to a server use connections of the same runtime, so a request wakes no other thread. A blocked worker
//! delays all of its connections; the store, files and logs have other threads.

use std::{
    cell::Cell,
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};
use tokio_util::task::AbortOnDropHandle;

/// The worker threads, which answer requests. Cheap to clone. The default has none, and every task runs on the
/// runtime that starts it.
#[derive(Clone, Default)]
pub struct Workers(Arc<[Thread]>);

struct Thread {
    runtime: Handle,
    /// How many connections this worker thread serves now.
    connections: AtomicUsize,
}

/// The number of a worker thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker(usize);

/// The place of a connection on its worker thread, which counts the connection until the seat is dropped.
#[derive(Debug)]
pub struct Seat {
    workers: Workers,
    worker: Worker,
}

/// A guard that ends the worker threads when it is dropped, without waiting for them.
#[derive(Debug)]
pub struct RunningWorkers {
    _ends: Vec<oneshot::Sender<()>>,
}

/// How many sockets with new events a worker's runtime handles in one turn. Commands are sent to Redis after the
/// requests of all these sockets have been read, and Redis is idle until then. With fewer than 16, each request
/// costs more system calls.
const EVENTS: usize = 16;

thread_local! {
    static CURRENT: Cell<Option<Worker>> = const { Cell::new(None) };
}

// === impl Workers ===

impl Workers {
    /// Starts `count` worker threads.
    pub fn start(count: usize) -> io::Result<(Self, RunningWorkers)> {
        let (mut threads, mut ends) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for number in 0..count {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .max_io_events_per_tick(EVENTS)
                .build()?;
            threads.push(Thread {
                runtime: runtime.handle().clone(),
                connections: AtomicUsize::new(0),
            });
            let (end, ended) = oneshot::channel::<()>();
            ends.push(end);
            let name = format!("latchgate-{number}");
            thread::Builder::new().name(name).spawn(move || {
                let _abort = AbortOnPanic;
                CURRENT.set(Some(Worker(number)));
                // Nothing is sent on the channel: the thread ends when the sender is dropped.
                runtime.block_on(ended).ok();
                runtime.shutdown_background();
            })?;
        }
        Ok((Self(threads.into()), RunningWorkers { _ends: ends }))
    }

    /// The number of workers.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// All workers.
    pub fn all(&self) -> impl Iterator<Item = Worker> + use<> {
        (0..self.0.len()).map(Worker)
    }

    /// The runtime of a worker thread, on which tasks can be started.
    pub(super) fn runtime(&self, worker: Worker) -> &Handle {
        &self.0[worker.0].runtime
    }

    /// A seat for a new connection on the worker with the fewest connections. `None` if there are no workers.
    pub fn seat(&self) -> Option<Seat> {
        let connections = |worker: &Worker| self.0[worker.0].connections.load(Ordering::Relaxed);
        let worker = self.all().min_by_key(connections)?;
        self.0[worker.0].connections.fetch_add(1, Ordering::Relaxed);
        Some(Seat {
            workers: self.clone(),
            worker,
        })
    }

    /// Runs a task on a worker and returns its output; `None` if the worker has ended. Dropping the future aborts
    /// the task.
    pub async fn carry_out<T>(
        &self,
        worker: Worker,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Option<T>
    where
        T: Send + 'static,
    {
        let task = self.runtime(worker).spawn(task);
        AbortOnDropHandle::new(task).await.ok()
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workers").field(&self.0.len()).finish()
    }
}

/// A guard that aborts the process when the thread of a worker unwinds, that is, when its runtime panics. The
/// runtime catches the panic of a task, so such a panic does not get here. Without the abort, the accept loop would
/// give new connections to a thread that serves none.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

// === impl Worker ===

impl Worker {
    /// The worker whose thread is running this code, if any.
    pub fn current() -> Option<Self> {
        CURRENT.get()
    }

    /// The number of the worker, from 0.
    pub fn number(self) -> usize {
        self.0
    }
}

// === impl Seat ===

impl Seat {
    /// The worker that serves the connection.
    pub fn worker(&self) -> Worker {
        self.worker
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let thread = &self.workers.0[self.worker.0];
        thread.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        os::unix::process::ExitStatusExt,
        process::{Command, Stdio},
    };

    use rustix::process::Signal;

    use super::*;
    use crate::lifecycle::Lifecycle;

    /// Argument that tells the test's child process to unwind a worker.
    const ENDS: &str = "in a process of its own";

    #[tokio::test]
    async fn a_connection_goes_to_the_worker_that_serves_the_fewest() {
        let (workers, _running) = Workers::start(3).unwrap();
        let mut seats: Vec<_> = (0..6).filter_map(|_| workers.seat()).collect();
        let on = |seats: &[Seat], worker| seats.iter().filter(|it| it.worker() == worker).count();
        assert!(workers.all().all(|worker| on(&seats, worker) == 2));
        let emptied = Worker(1);
        seats.retain(|seat| seat.worker() != emptied);
        let next = [(); 2].map(|()| workers.seat().unwrap());
        assert_eq!(on(&next, emptied), 2);
    }

    #[test]
    fn a_thread_that_unwinds_ends_the_process() {
        if env::args().any(|argument| argument == ENDS) {
            let worker = thread::spawn(|| {
                let _abort = AbortOnPanic;
                panic!("the runtime cannot go on");
            });
            worker.join().unwrap_err();
            return;
        }
        let this = "lifecycle::workers::tests::a_thread_that_unwinds_ends_the_process";
        let ended = Command::new(env::current_exe().unwrap())
            .args(["--exact", this, ENDS])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(ended.signal(), Some(Signal::ABORT.as_raw()), "{ended}");
    }

    #[tokio::test]
    async fn work_runs_on_the_worker_it_is_given_to_and_is_waited_for() {
        let (workers, running) = Workers::start(2).unwrap();
        let lifecycle = Lifecycle::on(workers.clone());
        let (received, mut heard) = tokio::sync::mpsc::channel(2);
        for worker in workers.all() {
            let received = received.clone();
            lifecycle.spawn_on(Some(worker), async move {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                received.send((worker, Worker::current())).await.unwrap();
            });
        }
        lifecycle.quiet().await;
        for _ in workers.all() {
            let (given, ran) = heard.try_recv().unwrap();
            assert_eq!(ran, Some(given));
        }
        assert_eq!(Worker::current(), None);
        drop(running);
        let after = workers.carry_out(Worker(0), std::future::pending::<()>());
        assert_eq!(after.await, None, "it has ended");
    }
}
