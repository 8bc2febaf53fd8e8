//! Acquire and leave, as those who wait see them: in order at this gateway.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    lock::{LockName, TokenHash},
    store::{
        StoreError,
        contract::{Acquisition, Attempt, Confirmation, Contention, Holder, Leaving, Place},
        parking::News,
        positions::Position,
    },
};

use super::{
    acquire::Tried,
    calls::Wish,
    contender::WAKES,
    line::{Joined, Left, Line},
    shared::Shared,
};

// === impl Shared ===

impl Shared {
    /// Acquires a lock that is free and for which nobody stands in line here; else joins the line, if the
    /// attempt wants to wait.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        attempt: &Attempt,
    ) -> Result<Acquisition, StoreError> {
        let line = self.lines.of(&attempt.name);
        // Where somebody waits the lock is not taken, and who only asks needs no turn.
        let turn = match (line.len(Instant::now()), line.turn.try_lock()) {
            (0, Ok(turn)) => Some(turn),
            // Somebody else just tries. Whoever wants to wait can as well do so in the line.
            (0, Err(_)) if attempt.wait.is_none() => Some(self.turn(&line).await?),
            _ => None,
        };
        let wish = Wish {
            take: turn.is_some() && line.len(Instant::now()) == 0,
            unheard: None,
            waits: attempt.wait.map(|_| WAKES),
        };
        let keys = self.keys(&attempt.name);
        let holder = match self.attempt(&keys, attempt, wish).await? {
            Tried::Granted(lease, _) => return Ok(Acquisition::Granted(lease)),
            Tried::Done(acquisition) => return Ok(acquisition),
            Tried::Held(holder) => Some(holder),
            // Whose lease is at a minority may have released it long ago.
            Tried::Split(_) | Tried::Free => None,
        };
        let joined = self.join(&line, attempt, holder);
        drop(turn);
        Ok(joined)
    }

    /// Takes a place in the line for an attempt, or answers why not.
    fn join(
        self: &Arc<Self>,
        line: &Arc<Line>,
        attempt: &Attempt,
        holder: Option<Holder>,
    ) -> Acquisition {
        let Some(waiting) = attempt.wait else {
            return match line.pass(attempt) {
                Err(_in_other_words) => Acquisition::IdempotencyMismatch,
                Ok(superseded) => {
                    self.supersede(superseded);
                    let waiters = line.len(Instant::now());
                    Acquisition::Held(Contention { holder, waiters })
                }
            };
        };
        match line.join(attempt, waiting, Instant::now()) {
            Joined::Full => Acquisition::QueueFull,
            Joined::Mismatch => Acquisition::IdempotencyMismatch,
            Joined::Standing {
                ahead,
                superseded,
                contend,
            } => {
                self.supersede(superseded);
                if contend {
                    self.start_contending(&attempt.name, line);
                }
                let waiters = line.len(Instant::now());
                let contention = Contention { holder, waiters };
                Acquisition::Queued(Place { ahead, contention })
            }
        }
    }

    fn supersede(&self, superseded: Option<TokenHash>) {
        if let Some(token) = superseded {
            // Whoever has left already need not hear it.
            let _heard = self.gateway.parking.tell(&token, News::Superseded);
        }
    }

    /// Takes an attempt out of the line. What it was granted in that instant it has.
    pub(super) async fn leave(
        &self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        let (keys, line) = (self.keys(name), self.lines.of(name));
        let mut left = line.leave(token, keep_for, Instant::now());
        if matches!(left, Left::Tried | Left::Elsewhere) {
            // It may be granted the lock just now: when the try for it is over, that is known.
            let turn = self.turn(&line).await;
            // Also where nobody knows: nobody waits in this place any more.
            left = line.leave_now(token, keep_for, Instant::now());
            let _turn = turn?;
            let confirmed = match left {
                // The try has come to nothing, or nobody knows and it is withdrawn from every node.
                Left::Gone => self.confirm(name, token).await.ok(),
                Left::Elsewhere => Some(self.confirm(name, token).await?),
                Left::Superseded | Left::Tried => None,
            };
            match confirmed {
                Some(Confirmation::Confirmed(lease)) => return Ok(Leaving::Granted(lease)),
                Some(Confirmation::Superseded) => return Ok(Leaving::Superseded),
                Some(Confirmation::Lost) | None => {}
            }
        }
        match left {
            Left::Superseded => Ok(Leaving::Superseded),
            Left::Gone | Left::Elsewhere | Left::Tried => {
                Ok(Leaving::Left(self.contention(&keys, &line).await))
            }
        }
    }

    /// Tells those who watch it where they stand.
    pub(super) fn show_positions(&self) {
        let positions = self.gateway.parking.positions();
        let now = Instant::now();
        for (name, tokens) in positions.by_name() {
            let Some(line) = self.lines.existing(&name) else {
                continue;
            };
            let waiters = line.len(now);
            for token in tokens {
                if let Some(ahead) = line.ahead_of(&token, now) {
                    positions.tell(&token, Position { ahead, waiters });
                }
            }
        }
    }
}
