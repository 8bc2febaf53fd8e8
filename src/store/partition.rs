//! Parts of a store that may fail one by one, and a limit for the commands in progress at each part.

use std::collections::{HashMap, VecDeque};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};

/// A part of a store that may be unreachable while the other parts serve, for example a master of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Partition(usize);

/// Runs store commands with a limit for how many are in progress at each partition. Further commands wait in the queue
/// of their partition, and do not delay commands to another partition.
pub(crate) struct PartitionedCommands<'a, T, R, F> {
    /// How many commands may be in progress at each partition, at most.
    limit: usize,
    send: F,
    queues: HashMap<Partition, PartitionQueue<T>>,
    running: FuturesUnordered<BoxFuture<'a, (Partition, R)>>,
}

/// The commands in progress, and the waiting commands, of one partition.
struct PartitionQueue<T> {
    running: usize,
    waiting: VecDeque<T>,
}

// === impl Partition ===

impl Partition {
    /// The only partition of a store that is reachable or unreachable as a whole.
    pub const WHOLE: Self = Self(0);

    /// The partition with this number, which must be unique and not zero.
    pub(crate) fn one_of(number: usize) -> Self {
        Self(number)
    }
}

// === impl PartitionedCommands ===

impl<'a, T, R: 'a, F: Fn(T) -> BoxFuture<'a, R>> PartitionedCommands<'a, T, R, F> {
    pub(crate) fn new(limit: usize, send: F) -> Self {
        Self {
            limit,
            send,
            queues: HashMap::new(),
            running: FuturesUnordered::new(),
        }
    }

    /// Sends a command at once if its partition is below the limit; otherwise queues the command.
    pub(crate) fn push(&mut self, partition: Partition, command: T) {
        let queue = self.queues.entry(partition);
        let queue = queue.or_insert_with(|| PartitionQueue {
            running: 0,
            waiting: VecDeque::new(),
        });
        if queue.running < self.limit {
            queue.running += 1;
            self.start(partition, command);
        } else {
            queue.waiting.push_back(command);
        }
    }

    /// Waits for the next command to finish and returns its outcome; `None` if no command is in progress. Safe
    /// to drop and call again.
    pub(crate) async fn next(&mut self) -> Option<R> {
        let (partition, outcome) = self.running.next().await?;
        if let Some(queue) = self.queues.get_mut(&partition) {
            if let Some(command) = queue.waiting.pop_front() {
                self.start(partition, command);
            } else {
                queue.running -= 1;
                if queue.running == 0 {
                    self.queues.remove(&partition);
                }
            }
        }
        Some(outcome)
    }

    /// Whether no command is in progress at any partition, and therefore none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// How many commands wait in the queues of their partitions.
    pub(crate) fn waiting(&self) -> usize {
        self.queues.values().map(|queue| queue.waiting.len()).sum()
    }

    fn start(&self, partition: Partition, command: T) {
        let outcome = (self.send)(command);
        let outcome = outcome.map(move |outcome| (partition, outcome));
        self.running.push(outcome.boxed());
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn so_many_are_under_way_at_each_and_the_others_follow_in_order() {
        let gates = [Semaphore::new(0), Semaphore::new(0)];
        let mut commands = PartitionedCommands::new(2, |(at, n): (usize, usize)| {
            let gate = &gates[at];
            Box::pin(async move {
                gate.acquire().await.unwrap().forget();
                (at, n)
            })
        });
        for n in 0..5 {
            commands.push(Partition::one_of(1), (0, n));
        }
        commands.push(Partition::one_of(2), (1, 0));
        assert_eq!((commands.running.len(), commands.waiting()), (3, 3));
        gates[1].add_permits(1);
        assert_eq!(commands.next().await, Some((1, 0)));
        gates[0].add_permits(5);
        for n in 0..5 {
            assert_eq!(commands.next().await, Some((0, n)));
        }
        assert!(commands.is_empty() && commands.queues.is_empty());
        assert_eq!((commands.next().await, commands.waiting()), (None, 0));
    }
}
