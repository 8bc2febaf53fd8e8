//! Acquire, over a quorum: two rounds with all nodes, repeated if several gateways split the votes.
//!
//! Round 1 reserves the lock for one try at each node where it is free. A majority must reserve it, and the highest
//! fence that these nodes propose is the fence of the lease. Round 2 has them accept this fence. A node accepts it only
//! if the try still has the lock there, the counter has not passed the fence, and no other node has learnt from this
//! node since its vote. A majority must accept. Any two majorities share a node, so the next lease is proposed a higher
//! fence, without any assumption about time. Then the lease must have time left. After the answer, the lease is taken
//! also at the nodes that refused it. A try that is not granted is withdrawn from every node, also from nodes that did
//! not answer.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout};

use crate::{
    lock::{FencingToken, HeldLease, Mode, Salt, TokenHash},
    store::{
        StoreError, Unavailability,
        contract::{Acquisition, Attempt, Holder},
    },
};

use super::{
    super::keys::Keys,
    agreement::{accepted, validity},
    calls::{Ratification, ReplayReply, ReplayRequest, ReserveRequest, Vote, VoteId},
    quorum::{Backoff, NodeReplies, up_to},
    scripts::Nonce,
    shared::Shared,
    sweeper::SweepTarget,
    tally::VoteVerdict,
};

/// Outcome of an attempt, before the decision whether it joins the queue.
#[derive(Debug)]
pub(super) enum AttemptOutcome {
    /// The attempt was granted the lock, by its try with this nonce.
    Granted(HeldLease, Nonce),
    /// The attempt has this final answer.
    Done(Acquisition),
    /// Another attempt or a foreign client holds the lock.
    Held(Holder),
    /// No attempt is known to have a majority of the nodes. The holder in the variant may have one.
    Split(Option<Holder>),
    /// The lock is free, and the request only asked who holds it.
    Free,
}

/// Outcome of one try of an attempt.
pub(super) enum TryOutcome {
    Over(AttemptOutcome),
    /// No attempt is known to have a majority of the nodes. The holder in the variant may have one.
    Split(Option<Holder>),
    /// The fence of the try is outdated: another lock of the slot was acquired meanwhile, or another node has learnt
    /// from a node of the try.
    Overtaken,
    /// Too few nodes of the quorum take part in the try, for this reason.
    TooFew(StoreError),
}

/// For how long an attempt is retried while too few nodes answer: as on one server, long enough for a restart, and
/// short enough that a caller is soon told that nothing happened.
const RETRY_FOR: Duration = Duration::from_secs(1);
/// How many times an attempt is retried after a split vote, in which no attempt got a majority of the nodes.
const TRIES: usize = 8;

// === impl Shared ===

impl Shared {
    /// Repeats the try until the outcome of the attempt is known, or its retries are used up.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        keys: &Keys,
        attempt: &Attempt,
        request: ReserveRequest,
    ) -> Result<AttemptOutcome, StoreError> {
        let began = Instant::now();
        let mut pauses = Backoff::new();
        let mut splits = 0;
        loop {
            let tried = Instant::now();
            let pause = match self.try_once(keys, attempt, request).await? {
                TryOutcome::Over(tried) => return Ok(tried),
                TryOutcome::Split(holder) => {
                    splits += 1;
                    // An attempt that may wait is not retried after a split vote: it continues in the queue.
                    if splits > TRIES || !request.take || request.wake_within.is_some() {
                        return Ok(AttemptOutcome::Split(holder));
                    }
                    pauses.next(tried.elapsed())
                }
                // The retry needs no pause: the acquire that has raised the fence counter of the slot has finished with
                // the node.
                TryOutcome::Overtaken if began.elapsed() < self.deadline => Duration::ZERO,
                TryOutcome::Overtaken => {
                    let why = "other locks of its slot are acquired, or nodes learn, all the time"
                        .to_owned();
                    return Err(Unavailability::TooFewNodes(why).into());
                }
                TryOutcome::TooFew(error) => {
                    let pause = pauses.next(Duration::ZERO);
                    if began.elapsed() + pause >= RETRY_FOR.min(self.deadline) {
                        return Err(error);
                    }
                    pause
                }
            };
            sleep(pause).await;
        }
    }

    async fn try_once(
        self: &Arc<Self>,
        keys: &Keys,
        attempt: &Attempt,
        request: ReserveRequest,
    ) -> Result<TryOutcome, StoreError> {
        let nonce = Nonce::random();
        let began = Instant::now();
        // If this future is dropped half-way, the guard withdraws the try.
        let mut guard = TryGuard {
            shared: self,
            keys,
            token: &attempt.token,
            nonce: request.take.then(|| nonce.clone()),
        };
        let majority = self.quorum.majority();
        let votes = self.quorum.ask(
            |node| node.reserve(keys, attempt, &nonce, &request),
            |votes| {
                let reserved = votes.count(|vote| matches!(vote, Vote::Reserved(..)));
                let refused = votes.count(Vote::counts) - reserved;
                // If a majority of the nodes has voted and is split, the round ends: waiting for nodes that may be
                // silent for long would keep the lock split.
                let split = reserved + votes.count(Vote::is_taken);
                reserved >= majority || refused >= majority || split >= majority
            },
        );
        let votes = votes.await;
        let outcome = match VoteVerdict::from_votes(&votes, majority) {
            VoteVerdict::Reserved(fence) => {
                let fence = FencingToken::new(fence).map_err(|_| StoreError::FenceExhausted)?;
                let granted =
                    self.second_round(keys, attempt, &nonce, request, &votes, fence, began);
                match granted.await {
                    Ok(lease) => {
                        guard.nonce = None;
                        let granted = (&lease, began);
                        self.take_where_refused(attempt, &nonce, request, &votes, granted);
                        let granted = AttemptOutcome::Granted(lease, nonce);
                        return Ok(TryOutcome::Over(granted));
                    }
                    Err(outcome) => outcome,
                }
            }
            VoteVerdict::Free => TryOutcome::Over(AttemptOutcome::Free),
            VoteVerdict::Again => self.replay_own(keys, attempt).await?,
            VoteVerdict::Replay(lease) => self.replay_under_key(keys, attempt, lease).await?,
            VoteVerdict::Held(holder) => TryOutcome::Over(AttemptOutcome::Held(holder)),
            VoteVerdict::Split(holder) => TryOutcome::Split(holder),
            VoteVerdict::Refused(answer) => TryOutcome::done(answer),
            VoteVerdict::Withdrawn => return Err(Unavailability::Withdrawn.into()),
            VoteVerdict::TooFew => TryOutcome::TooFew(no_majority(&votes)?),
        };
        let vote = |node| votes.by_node().nth(node).and_then(|(_, vote)| vote);
        let concerns = |node| vote(node).is_none_or(Vote::may_be_reserved);
        guard.withdraw(concerns, |node| vote(node).is_some()).await;
        Ok(outcome)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "they are one try, taken apart for one call"
    )]
    async fn second_round(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        nonce: &Nonce,
        request: ReserveRequest,
        votes: &NodeReplies<Vote>,
        fence: FencingToken,
        began: Instant,
    ) -> Result<HeldLease, TryOutcome> {
        // Only nodes whose vote came before any node is asked to accept the fence count. If another node learns from
        // such a node meanwhile, either it learns of the acceptance of this fence, or the vote of the taught node ends.
        let reserved: HashMap<usize, &VoteId> = votes
            .by_node()
            .filter_map(|(node, vote)| match vote {
                Some(Vote::Reserved(_, name)) => Some((node, name)),
                _ => None,
            })
            .collect();
        let (majority, lead) = (self.quorum.majority(), began.elapsed());
        let is = |word: Ratification| move |answer: &Result<_, _>| *answer == Ok(word);
        let answers = self.quorum.ask_some(
            |node| reserved.contains_key(&node.index),
            |node| {
                let vote = reserved[&node.index];
                node.ratify(keys, &attempt.token, nonce, fence, vote, lead)
            },
            |answers| {
                let lost = answers.count(|answer| !is(Ratification::Ratified)(answer));
                answers.count(is(Ratification::Ratified)) >= majority
                    || lost > reserved.len() - majority
            },
        );
        let answers = answers.await;
        if answers.count(is(Ratification::Ratified)) < majority {
            if answers.count(is(Ratification::Overtaken)) > 0 {
                return Err(TryOutcome::Overtaken);
            }
            return Err(match answers.errors().next() {
                Some(_) => TryOutcome::TooFew(answers.too_few()),
                None => TryOutcome::Split(None),
            });
        }
        let granted = granted_lease(attempt, request, fence, began, Instant::now());
        granted.ok_or_else(|| {
            let why = "the nodes took longer than the lease would have lasted".to_owned();
            TryOutcome::TooFew(Unavailability::TooFewNodes(why).into())
        })
    }
}

/// The lease that a majority has accepted, as it is `now`; `None` if its time is over. The time since the try `began`
/// is subtracted from the lease's time, including any time for which this process stood still.
fn granted_lease(
    attempt: &Attempt,
    request: ReserveRequest,
    fence: FencingToken,
    began: Instant,
    now: Instant,
) -> Option<HeldLease> {
    let mut lease = attempt.terms.granted(fence, Mode::Exclusive, now);
    let limit = lease.hold_expires_in;
    let lasts = request.undelivered_ttl.unwrap_or(lease.ttl.duration());
    let lasts = limit.map_or(lasts, |limit| limit.min(lasts));
    let spent = now.saturating_duration_since(began);
    let expires_in = validity(lasts, spent);
    if expires_in.is_zero() {
        return None;
    }
    lease.expires_in = expires_in;
    // If the hold limit is what ends the lease, the time left and the time until the hold limit must be the same.
    lease.hold_expires_in = limit.map(|limit| match limit {
        limit if limit == lasts => expires_in,
        limit => limit.saturating_sub(spent),
    });
    Some(lease)
}

/// Why no majority of the nodes has voted. `Err`: waiting does not remove the reason.
fn no_majority(votes: &NodeReplies<Vote>) -> Result<StoreError, StoreError> {
    let missing = || {
        votes.iter().filter_map(|vote| match vote {
            Vote::None(error) => Some(error),
            _ => None,
        })
    };
    let for_good = missing().find(|error| {
        matches!(
            error,
            StoreError::ForeignData { .. } | StoreError::FenceExhausted
        )
    });
    match for_good {
        Some(error) => Err(error.clone()),
        None => Ok(votes.too_few_answers(votes.count(Vote::counts), missing().next())),
    }
}

// === Bare majority ===
//
// Takes a granted lease also at the nodes that refused it because another try was there at that moment. If only a bare
// majority has a lease, one clock that steps forward ends it too early.

/// How many times a node that refused a try is asked again to take the granted lease.
const TRIES_TO_TAKE: u32 = 8;
/// The pause before a node that refused a try is first asked again; each further pause is twice as long.
const TAKES_AFTER: Duration = Duration::from_millis(4);
/// For how long a node that refused a try is asked again. This is much shorter than nodes remember the end of a lease,
/// so that no node takes a lease that has ended meanwhile.
const TAKES_WITHIN: Duration = Duration::from_secs(2);

// === impl Shared ===

impl Shared {
    /// After the holder is answered, takes its lease in the background at the nodes that refused the try. A lease for a
    /// kept position is not taken: its holder may collect it first, and a copy that came afterwards would stay
    /// provisional.
    fn take_where_refused(
        self: &Arc<Self>,
        attempt: &Attempt,
        nonce: &Nonce,
        request: ReserveRequest,
        votes: &NodeReplies<Vote>,
        (lease, began): (&HeldLease, Instant),
    ) {
        if request.undelivered_ttl.is_some() {
            return;
        }
        let (fence, lease_lasts) = (lease.fence, lease.expires_in);
        let refused = votes.by_node();
        for (node, _) in refused.filter(|(_, vote)| vote.is_some_and(Vote::is_taken)) {
            let (shared, attempt, nonce) = (Arc::clone(self), attempt.clone(), nonce.clone());
            self.start_background(async move {
                let (node, keys) = (&shared.quorum.nodes()[node], shared.keys(&attempt.name));
                let ended = &shared.sweeper.pending_withdrawals;
                let ask = || async {
                    if ended.contains(node.index, &attempt.name, &attempt.token) {
                        return false;
                    }
                    let request = ReserveRequest {
                        wake_within: None,
                        others_wait: false,
                        granted: Some((fence, began.elapsed())),
                        ..request
                    };
                    let vote = node.reserve(&keys, &attempt, &nonce, &request).await;
                    vote.is_taken()
                };
                ask_to_take(began + lease_lasts, ask).await;
            });
        }
    }
}

/// Asks a node to take a lease, several times, for as long as `ask` answers that the node has not taken it, at the
/// latest until `lease_ends`.
///
/// After a lost answer no other copy of the request may be sent: an end of the lease at the node cancels one copy that
/// is still on its way, and not two.
pub(super) async fn ask_to_take<F>(lease_ends: Instant, ask: impl Fn() -> F)
where
    F: Future<Output = bool>,
{
    let until = lease_ends.min(Instant::now() + TAKES_WITHIN);
    for tried in 0..TRIES_TO_TAKE {
        let pause = TAKES_AFTER * 2_u32.pow(tried);
        sleep(pause / 2 + up_to(pause / 2)).await;
        if Instant::now() >= until || !ask().await {
            return;
        }
    }
}

// === impl TryOutcome ===

impl TryOutcome {
    pub(super) fn done(acquisition: Acquisition) -> Self {
        Self::Over(AttemptOutcome::Done(acquisition))
    }
}

// === Replay ===
//
// Answers a lease again: to the attempt that has it, or under its idempotency key.

// === impl Shared ===

impl Shared {
    /// Answers an attempt that some node has already. If a majority has accepted the attempt's lease and no node is
    /// about to withdraw it, the answer is this lease. Otherwise the vote is split: the rest of a failed try will soon
    /// be withdrawn.
    pub(super) async fn replay_own(
        &self,
        keys: &Keys,
        attempt: &Attempt,
    ) -> Result<TryOutcome, StoreError> {
        let began = Instant::now();
        let (name, token) = (&attempt.name, &attempt.token);
        // Pending withdrawals are read before the nodes are asked: a withdrawal that ends while they are asked is not
        // listed afterwards.
        let doomed = self.nodes_to_withdraw_from(name, token);
        let view = self.view(keys, false).await?;
        let pending_withdrawals = &self.sweeper.pending_withdrawals;
        // Pending withdrawals are read after the nodes have answered: a lease that is withdrawn from now on was granted
        // to no other caller.
        let sure = view.nodes_holding(token);
        let sure = sure.filter(|(node, _)| {
            !doomed.contains(node) && !pending_withdrawals.contains(*node, name, token)
        });
        let sure: Vec<_> = sure.map(|(_, lease)| lease).collect();
        let lease = accepted(&sure, self.quorum.majority(), began, Instant::now());
        Ok(match lease {
            Some(lease) if !lease.expires_in.is_zero() => {
                TryOutcome::done(Acquisition::Granted(lease))
            }
            Some(_) | None => TryOutcome::Split(None),
        })
    }

    /// Answers an attempt with the lease that lives under its idempotency key. From then on this attempt is the
    /// recipient of the lease.
    pub(super) async fn replay_under_key(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        lease: TokenHash,
    ) -> Result<TryOutcome, StoreError> {
        let Some(key) = &attempt.idempotency else {
            return Ok(TryOutcome::Split(None));
        };
        let request = ReplayRequest {
            asks: attempt.token,
            key: key.hash,
            lease,
        };
        let majority = self.quorum.majority();
        let local_queue = self.local_queues.get_or_create(keys.name());
        let adopting = local_queue.adopting.lock().await;
        let began = Instant::now();
        let answers = self.quorum.ask(
            |node| node.replay(keys, &request),
            |answers| {
                let alive = answers.count(|answer| matches!(answer, Ok(ReplayReply::Lease(..))));
                alive >= majority
            },
        );
        let answers = answers.await;
        drop(adopting);
        if answers.count(|answer| *answer == Ok(ReplayReply::Replaced)) > 0 {
            return Ok(TryOutcome::done(Acquisition::Replaced));
        }
        let found: Vec<_> = answers
            .iter()
            .filter_map(|answer| match answer {
                Ok(ReplayReply::Lease(lease, salt, delivered)) => Some((lease, salt, *delivered)),
                _ => None,
            })
            .collect();
        let leases: Vec<_> = found.iter().map(|(lease, ..)| *lease).collect();
        let Some(lease) = accepted(&leases, majority, began, Instant::now()) else {
            return Ok(match answers.errors().next() {
                Some(_) => TryOutcome::TooFew(answers.too_few()),
                None => TryOutcome::Split(None),
            });
        };
        let delivered = found.iter().filter(|(.., delivered)| *delivered).count();
        let salt: Salt = *found[0].1;
        Ok(TryOutcome::Over(AttemptOutcome::Done(if delivered > 0 {
            Acquisition::Replayed(lease, salt)
        } else {
            // How long the position has waited is not known: a kept position exists only in the memory of a gateway,
            // and is removed when it is granted the lock.
            Acquisition::Collected(lease, salt, Duration::ZERO)
        })))
    }
}

// === Try guard ===
//
// A try whose outcome is not known yet: if its guard is dropped half-way, the try is withdrawn.

/// Guards a try whose outcome is not known yet. Dropping the guard withdraws the try from every node.
pub(super) struct TryGuard<'a> {
    pub(super) shared: &'a Shared,
    pub(super) keys: &'a Keys,
    pub(super) token: &'a TokenHash,
    /// Nonce of the try; `None` if the try is granted, is withdrawn, or took nothing.
    pub(super) nonce: Option<Nonce>,
}

// === impl TryGuard ===

impl TryGuard<'_> {
    /// Withdraws the try from the nodes that may have it. The sweeper withdraws it later from nodes that do not answer
    /// now.
    pub(super) async fn withdraw(
        self,
        concerns: impl Fn(usize) -> bool,
        answers: impl Fn(usize) -> bool,
    ) {
        let Some(nonce) = self.nonce.clone() else {
            return;
        };
        let (shared, keys, token) = (self.shared, self.keys, self.token);
        let (quorum, sweeper) = (&shared.quorum, &shared.sweeper);
        let concerned = (0..quorum.nodes().len()).filter(|node| concerns(*node));
        let _until_then: Vec<_> = concerned
            .map(|node| sweeper.pending_withdrawals.begin(node, keys.name(), token))
            .collect();
        // If this future is dropped half-way, the guard is dropped first and hands the try to the sweeper: at no
        // instant does the state of the try at a node look like a lease.
        let mut guard = self;
        let withdrawn = quorum.ask_some(
            |node| concerns(node.index) && answers(node.index),
            |node| timeout(node.timeout, node.withdraw(keys, token, Some(&nonce), None)),
            |_| false,
        );
        let withdrawn = withdrawn.await;
        for node in withdrawn.others(|answer| matches!(answer, Ok(Ok(_)))) {
            if concerns(node) {
                let swept = SweepTarget::Try(nonce.clone());
                sweeper.sweep(node, keys.name(), token, swept);
            }
        }
        guard.nonce = None;
    }
}

impl Drop for TryGuard<'_> {
    fn drop(&mut self) {
        if let Some(nonce) = &self.nonce {
            for node in self.shared.quorum.nodes() {
                let swept = SweepTarget::Try(nonce.clone());
                let sweeper = &self.shared.sweeper;
                sweeper.sweep(node.index, self.keys.name(), self.token, swept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use crate::lock::{LockName, Terms, Token, Ttl};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_process_that_stands_still_before_it_has_the_lease_tells_what_is_left() {
        let attempt = Attempt {
            name: LockName::new("lock").unwrap(),
            token: Token::random().hash(),
            terms: Terms::lasting(Ttl::from_millis(30_000).unwrap()),
            idempotency: None,
            wait: None,
        };
        let began = Instant::now();
        let granted = |now| {
            let fence = FencingToken::new(7).unwrap();
            granted_lease(&attempt, ReserveRequest::default(), fence, began, now)
        };
        // The process stands still between the answers of the quorum and the making of the lease.
        advance(Duration::from_secs(10)).await;
        let lease = granted(Instant::now()).unwrap();
        let left = Duration::from_millis(30_000 - 302 - 10_000);
        assert_eq!(lease.expires_in, left);
        // The process stands still between the making of the lease and its answer to the caller.
        advance(Duration::from_secs(5)).await;
        let told = lease.at(Instant::now()).expires_in;
        assert_eq!(told, left.saturating_sub(Duration::from_secs(5)));
        advance(Duration::from_secs(15)).await;
        assert_eq!(granted(Instant::now()), None);
    }
}
