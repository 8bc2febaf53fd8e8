//! Who may start a task, on which thread it runs, and how the program stops.
//!
//! # Threads
//!
//! | thread | what runs on it |
//! |---|---|
//! | main, one `current_thread` runtime | everything that is not a request: the accept loop, signals, the reaper, events, messages between gateways, rounds, timers, watches of Sentinel, Cluster, keys and certificates |
//! | `latchgate-0`, `latchgate-1`, …: one `current_thread` runtime each; by default one per processor, one fewer with the embedded store | connections with all of their requests, and connections to Redis |
//! | `latchgate-store` | the writer of the embedded store |
//! | `latchgate-audit`, `latchgate-log` | writes of the audit log and of standard error, so that neither delays a request |
//! | tokio's blocking threads | reading files: the store at a start, keys, certificates, credentials |
//!
//! The accept loop gives a connection to the worker with the fewest connections. The connection and its requests stay there. A
//! command to Redis is written, and its reply is read, on the worker of the request, so no other thread has to wake.
//!
//! **Nothing may block a worker**, because a blocked worker stalls all of its connections. A panic of a task ends that task only;
//! a panic that unwinds a runtime aborts the process.
//!
//! # How a gateway stops
//!
//! On TERM or INT these steps follow each other within `shutdown.grace_ms`:
//!
//! 1. *Withdrawn.* `/readyz` fails. Everything else works for `shutdown.delay_ms`, and every answer is the last one of its
//!    connection (`Connection: close`, GOAWAY).
//! 2. *Draining.* Acquires are answered 503 `draining`. Streams end, and their leases live on. Renewals and releases work until
//!    no request except GETs is under way and no lease that was granted or renewed here is needed any more.
//! 3. *Closing.* Each connection ends after its current request.
//! 4. *Stopping.* Background tasks finish: the reaper releases at once what is left to it. Then the store closes, and spans and
//!    the audit log are flushed.
//!
//! A second signal ends the process at once. Nothing durable depends on a clean end.

mod tasks;
mod workers;

pub use tasks::{Lifecycle, TasksLeft};
pub use workers::{RunningWorkers, Seat, Worker, Workers};
