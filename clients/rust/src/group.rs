//! Groups: several locks that are acquired, renewed and released together.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    AcquireRequest, Acquiring, Client, ClientError, GroupLocks, Holder, Lease, LeasePart, Problem,
    ReleaseRequest,
    acquire::OnDrop,
    error::{ENDED_BEFORE, LEASE_LOST},
    holder::are_exact,
    http::{Call, CallResponse, Retry, RetryableFailure},
    lease::renewal,
    lock::{GroupNames, LockName, Token},
};

/// The result of a renewal or release for one lease of a group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PartResult {
    /// The name of the lock to which this result belongs.
    pub name: String,
    /// Why the lease was not renewed or released, as a problem code such as `lease-lost`. `None`: success.
    pub code: Option<String>,
    /// A sentence that says why the lease was not renewed or released. `None`: success.
    pub detail: Option<String>,
    /// With `lease-lost`: whether another lease holds the lock.
    pub held: Option<bool>,
    /// The lease as the gateway describes it after its renewal. Without a renewal, all fields are absent.
    #[serde(flatten)]
    pub lease: Holder,
    /// With `lease-lost`: whether an earlier copy of the release of this lease, which got no answer, may have ended it.
    #[serde(skip)]
    in_doubt: bool,
}

/// The results of a renewal or release of a group.
#[derive(Debug, Clone)]
pub struct PartResults {
    /// The results of the renewal or release, one for each lease of the group, in the order of the lock names.
    pub results: Vec<PartResult>,
    renew_after: Duration,
    sent_at: Instant,
    received_at: Instant,
    /// Whether an earlier copy of the request may have been carried out, so that the answered copy may have found
    /// leases that had just ended.
    in_doubt: bool,
    json: String,
}

#[derive(Deserialize)]
struct ResultsWire {
    results: Vec<PartResult>,
    #[serde(default)]
    renew_after_ms: u64,
}

const OUTCOME_UNKNOWN: &str = "outcome-unknown";

// === impl Client ===

impl Client {
    /// Acquires a group of locks, all or none. If the request has a wait, waits while one of the locks is held. If the
    /// future is dropped, the client releases in the background, as [`Client::acquire`] does.
    pub async fn acquire_all(
        &self,
        locks: impl Into<GroupLocks>,
        request: &AcquireRequest,
    ) -> Result<Lease, ClientError> {
        let acquiring = self.acquiring_all(locks, request.clone());
        OnDrop::new(self, acquiring).finish().await
    }

    /// Prepares an acquire of a group of locks. No request is sent yet.
    pub fn acquiring_all(
        &self,
        locks: impl Into<GroupLocks>,
        request: AcquireRequest,
    ) -> Acquiring {
        self.prepare(None, Some(locks.into()), request)
    }

    /// Renews the leases of these locks, which have one token.
    pub async fn renew_all(
        &self,
        names: &GroupNames,
        token: &Token,
        ttl: Option<Duration>,
    ) -> Result<PartResults, ClientError> {
        let answer = renewal(format!("/locks?names={}", names.joined()), token, ttl)
            .send(self)
            .await?;
        PartResults::from_response(answer)
    }

    /// Releases the leases of these locks, which have one token.
    pub async fn release_all(
        &self,
        names: &GroupNames,
        token: &Token,
    ) -> Result<PartResults, ClientError> {
        let retry = Retry::until(self, Instant::now() + self.options.deadline);
        self.release_joined(&names.joined(), token, "", retry).await
    }

    /// Renews a lease, of one lock or of all locks of a group, with one request. If the lease of one lock of a group is
    /// lost, the whole lease counts as lost.
    pub(crate) async fn renew_lease_once(
        &self,
        lease: &Lease,
        ttl: Option<Duration>,
        time_out: Duration,
    ) -> Result<Lease, RetryableFailure> {
        let path = match lease.parts.as_slice() {
            [] => format!("/locks/{}/renew", lease.name.segment()),
            _ => format!("/locks?names={}", joined(lease)),
        };
        let renewal = renewal(path, &lease.token, ttl);
        let answer = renewal.send_copy(self, time_out).await?;
        if !lease.parts.is_empty() {
            return Ok(PartResults::from_response(answer)?.renewed(lease, ttl)?);
        }
        let renewed = Self::renewed(answer, &lease.name)?;
        if renewed.fence != lease.fence {
            return Err(not_of_this_lease().into());
        }
        Ok(renewed)
    }

    /// Releases a lease, of one lock or of all locks of a group, with the limits of `retry` on attempts and time.
    /// `unused`: nothing was done under the lease, so the lock does not rest.
    pub(crate) async fn release_lease_with(
        &self,
        lease: &Lease,
        unused: bool,
        retry: Retry,
    ) -> Result<(), ClientError> {
        let query = if unused && lease.rests {
            "?unused=true"
        } else {
            ""
        };
        if lease.parts.is_empty() {
            return self
                .release_with(&lease.name, &lease.token, query, retry)
                .await;
        }
        let names = joined(lease);
        let released = self
            .release_joined(&names, &lease.token, query, retry)
            .await?;
        released.check()
    }

    /// Releases a lease of one lock or of a group.
    pub async fn release_lease(&self, lease: &Lease) -> Result<(), ClientError> {
        let retry = Retry::until(self, Instant::now() + self.options.deadline);
        self.release_lease_with(lease, false, retry).await
    }

    /// Releases a lease under which nothing was done: the lock does not rest for the minimum hold of the lease.
    pub async fn release_unused(&self, lease: &Lease) -> Result<(), ClientError> {
        let retry = Retry::until(self, Instant::now() + self.options.deadline);
        self.release_lease_with(lease, true, retry).await
    }

    async fn release_joined(
        &self,
        names: &str,
        token: &Token,
        query: &str,
        mut retry: Retry,
    ) -> Result<PartResults, ClientError> {
        let more = query.replace('?', "&");
        let call = Call::at(Method::DELETE, format!("/locks?names={names}{more}")).token(token);
        let answer = call.send_with(self, &mut retry).await?;
        let in_doubt = answer.in_doubt;
        // For a group, an earlier copy of the release may have ended leases that this copy reports as lost: the gateway
        // recognizes a repeated release by its idempotency key only for one lock.
        let released =
            PartResults::from_response(answer).map_err(|error| error.of_release(in_doubt));
        let mut released = released?;
        if released.results.iter().any(PartResult::may_be_repeated) {
            retry.answered(false);
            self.release_rest(&mut released, token, query, retry).await;
        }
        Ok(released)
    }

    /// Sends a separate release for each lease of the group that the store could not release.
    async fn release_rest(
        &self,
        released: &mut PartResults,
        token: &Token,
        query: &str,
        mut retry: Retry,
    ) {
        loop {
            let mut failure = None;
            for result in &mut released.results {
                if !result.may_be_repeated() {
                    continue;
                }
                let Ok(name) = LockName::new(&result.name) else {
                    continue;
                };
                let call = Call::new(Method::DELETE, &name, query).token(token);
                match call.send_copy(self, retry.time_out()).await {
                    Ok(answer) => result.answered(&answer),
                    Err(error) => {
                        if error.in_doubt {
                            result.code = Some(OUTCOME_UNKNOWN.to_owned());
                        }
                        failure = Some(error);
                    }
                }
            }
            let Some(failure) = failure else { break };
            if retry.after(failure).await.is_err() {
                break;
            }
        }
        released.update_json();
    }
}

/// The error for an answer to a renewal that describes another lease.
fn not_of_this_lease() -> ClientError {
    ClientError::unknown("the answer to the renewal is not of this lease", None)
}

fn joined(lease: &Lease) -> String {
    let names: Vec<_> = lease.parts.iter().map(|part| part.name.as_str()).collect();
    names.join(",")
}

// === impl ResultsWire ===

impl ResultsWire {
    fn is_exact(&self) -> bool {
        let mut leases = self.results.iter().map(|it| &it.lease);
        are_exact(&[Some(self.renew_after_ms)]) && leases.all(Holder::is_exact)
    }
}

// === impl PartResult ===

impl PartResult {
    /// Whether a further request for this lease may succeed, because the store did not answer, or not in time.
    fn may_be_repeated(&self) -> bool {
        matches!(
            self.code.as_deref(),
            Some("store-unavailable" | OUTCOME_UNKNOWN)
        )
    }

    fn problem(&self) -> Problem {
        let code = self.code.as_deref().unwrap_or_default();
        Problem::of_part(&self.name, code, self.detail.as_deref(), self.held)
    }

    /// Replaces this result by the answer to the separate release of its lease.
    fn answered(&mut self, answer: &CallResponse) {
        self.in_doubt = self.code.as_deref() == Some(OUTCOME_UNKNOWN);
        if answer.status == StatusCode::NO_CONTENT {
            (self.code, self.detail, self.held) = (None, None, None);
        } else if let Some(problem) = answer.problem() {
            (self.code, self.detail, self.held) =
                (Some(problem.code), problem.detail, problem.held);
        }
        if self.in_doubt && self.code.as_deref() == Some(LEASE_LOST) {
            self.detail = Some(ENDED_BEFORE.to_owned());
        }
    }
}

// === impl PartResults ===

impl PartResults {
    /// The results as the gateway sent them, as JSON.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Fails if a lease of the group was not renewed or released. Reports a lost lease before a lease whose outcome is
    /// unknown.
    pub fn check(&self) -> Result<(), ClientError> {
        let failed = self.results.iter().filter(|it| it.code.is_some());
        // A lease whose lock another caller holds now is reported first, because its work must stop at once.
        let worst = failed.min_by_key(|it| {
            (
                it.code.as_deref() != Some(LEASE_LOST),
                it.in_doubt,
                it.held != Some(true),
            )
        });
        let Some(part) = worst else {
            return Ok(());
        };
        let problem = Box::new(part.problem());
        Err(match problem.code.as_str() {
            // An earlier copy may have released this lease: for a group, the gateway cannot recognize a repeated
            // release by its idempotency key.
            LEASE_LOST if self.in_doubt || part.in_doubt => {
                ClientError::unknown(format!("{}: {ENDED_BEFORE}", part.name), Some(problem))
            }
            LEASE_LOST => ClientError::Lost(problem),
            OUTCOME_UNKNOWN => ClientError::unknown(problem.to_string(), Some(problem)),
            _ => ClientError::Unavailable(problem),
        })
    }

    fn from_response(answer: CallResponse) -> Result<Self, ClientError> {
        if answer.status != StatusCode::OK {
            return Err(answer.refusal());
        }
        let wire = serde_json::from_str::<ResultsWire>(&answer.body);
        let Some(wire) = wire.ok().filter(ResultsWire::is_exact) else {
            return Err(answer.unusable("the outcome of each lease"));
        };
        Ok(Self {
            results: wire.results,
            renew_after: Duration::from_millis(wire.renew_after_ms),
            sent_at: answer.sent_at,
            received_at: answer.received_at,
            in_doubt: answer.in_doubt,
            json: answer.body,
        })
    }

    /// Updates the JSON document of the results after the separate releases.
    fn update_json(&mut self) {
        let mut document: Value = serde_json::from_str(&self.json).unwrap_or_default();
        let shown = document["results"].as_array_mut().into_iter().flatten();
        for (shown, result) in shown.zip(&self.results) {
            shown["code"] = json!(result.code);
            shown["detail"] = json!(result.detail);
            shown["held"] = json!(result.held);
        }
        self.json = document.to_string();
    }

    /// The lease of the group after the renewal. Fails if the lease of one lock was not renewed.
    fn renewed(self, before: &Lease, ttl: Option<Duration>) -> Result<Lease, ClientError> {
        self.check()?;
        let is_renewed = |part: &LeasePart| {
            let result = self.results.iter().find(|it| it.name == part.name.as_str());
            result.is_some_and(|it| it.lease.expires_in_ms.is_some())
        };
        let is_it = self.results.len() == before.parts.len() && before.parts.iter().all(is_renewed);
        if !is_it {
            return Err(not_of_this_lease());
        }
        let smallest =
            |of: fn(&PartResult) -> Option<u64>| self.results.iter().filter_map(of).min();
        let left = smallest(|it| it.lease.expires_in_ms).unwrap_or_default();
        let hold_left = smallest(|it| it.lease.hold_expires_in_ms);
        let mut lease = before.clone();
        (lease.sent_at, lease.received_at) = (self.sent_at, self.received_at);
        lease.ttl = ttl.unwrap_or(before.ttl);
        // After a renewal with a shorter TTL, the gateway may report a longer remaining time. This client counts on no
        // more than the TTL.
        lease.expires_in = Duration::from_millis(left).min(lease.ttl);
        lease.renew_after = self.renew_after;
        lease.hold_expires_in = hold_left.map(Duration::from_millis);
        let requests = self.results.iter().filter_map(|it| {
            let request = it.lease.release_requested.clone()?;
            let name = Some(it.name.clone());
            Some(ReleaseRequest { name, ..request })
        });
        lease.release_requested = requests.min_by_key(|request| request.within_ms);
        Ok(lease)
    }
}
