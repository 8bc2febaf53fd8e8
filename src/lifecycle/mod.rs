//! How tasks are started, on which threads they run, and how the program stops.
//!
//! # Threads
//!
//! * The main thread, with one `current_thread` runtime: everything that is not a request. That is the accept loop,
//!   signals, the reaper, events, messages between gateways, rounds, timers, watches of Sentinel, Cluster, keys and
//!   certificates.
//! * `latchgate-0`, `latchgate-1`, …, the worker threads, with one `current_thread` runtime each: connections with
//!   all of their requests, and connections to Redis. By default there is one for each processor, one fewer with
//!   the embedded store.
//! * `latchgate-store`: the writer of the embedded store.
//! * `latchgate-audit`, `latchgate-log` and `latchgate-notify`: writes of the audit log, of standard error, and to a
//!   service manager, so that no write delays a request.
//! * The blocking threads of tokio: reading files, that is the store at a start, keys, certificates and
//!   credentials.
//!
//! The accept loop gives a connection to the worker with the fewest connections. The connection and its requests
//! stay on that worker. The worker of a request also writes its commands to Redis and reads the replies, so no
//! other thread has to wake.
//!
//! **No task may block a worker thread**, because a blocked worker stalls all of its connections. A panic of a task
//! ends that task only; a panic that unwinds a runtime aborts the process.
//!
//! # How a gateway stops
//!
//! On TERM or INT these steps follow each other within `shutdown.grace_ms`:
//!
//! 1. *Withdrawn.* `/readyz` fails. All requests are served for `shutdown.delay_ms`, and every answer is the last of
//!    its connection (`Connection: close`, GOAWAY).
//! 2. *Draining.* Acquires are answered 503 `draining`. Streams end, and their leases stay alive. Renewals and
//!    releases work until no request except GETs is under way and no lease that was granted or renewed here is
//!    needed any more.
//! 3. *Closing.* Each connection ends after its current request.
//! 4. *Stopping.* Background tasks finish: the reaper sends its remaining releases at once. Then the store closes,
//!    and spans and the audit log are flushed.
//!
//! A second signal ends the process at once. No durable state depends on a clean end.

mod tasks;
mod workers;

pub use tasks::{Lifecycle, TasksLeft};
pub use workers::{RunningWorkers, Seat, Worker, Workers};
