//! Acquire: ask for a lock.

use std::{sync::Arc, time::Duration};

use crate::{
    lock::{
        CallerId, Fingerprint, HeldLease, HoldLimit, IdempotencyKey, Lease, LockName, Metadata,
        Owner, Salt, Token, Ttl,
    },
    store::{
        Store, StoreError,
        contract::{Acquisition, Attempt, Holder, Idempotency},
    },
};

use super::{
    Engine,
    delivery::Delivery,
    reaper::{Abandoned, Reaper},
};

/// What a caller asks for.
#[derive(Debug, Clone)]
pub struct AcquireRequest {
    /// The lock that is wanted.
    pub name: LockName,
    /// How long the grant lasts.
    pub ttl: Ttl,
    /// How long the lease may be kept with renewals.
    pub hold_limit: Option<HoldLimit>,
    /// Who asks.
    pub owner: Option<Owner>,
    /// What to attach.
    pub metadata: Metadata,
    /// Whose idempotency key it is.
    pub caller: CallerId,
    /// The key under which the request may be repeated.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// A lease on its way to its holder.
///
/// Dropped before [`Delivery::delivered`], at whatever point, a new lease is given back.
#[derive(Debug)]
pub struct Granted {
    /// The lease.
    pub lease: Lease,
    /// To be told when the lease has reached its holder.
    pub delivery: Delivery,
}

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// Somebody else holds it.
    #[error("the lock is held")]
    Held(Holder),
    /// A lease lives under this idempotency key, and was asked for in other words.
    #[error("the idempotency key was used for a different request")]
    IdempotencyMismatch,
    /// The lease under this idempotency key has ended.
    #[error("the lease under this idempotency key has ended")]
    IdempotencyExpired,
    /// The gateway is about to stop.
    #[error("the gateway is draining")]
    Draining,
    /// The store gave no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// One attempt, with what is needed to tell its caller about it and to give it back.
struct Run {
    store: Arc<dyn Store>,
    reaper: Reaper,
    attempt: Attempt,
    token: Token,
    request: AcquireRequest,
}

// === impl Engine ===

impl Engine {
    /// Acquires a lock if it is free.
    ///
    /// If the caller drops this future, a task of its own finishes the attempt and gives back
    /// whatever it was granted.
    pub async fn acquire(&self, request: AcquireRequest) -> Result<Granted, AcquireError> {
        if self.is_draining() {
            return Err(AcquireError::Draining);
        }
        let run = Run::new(Arc::clone(&self.store), self.reaper.clone(), request);
        // A caller that has gone hears no answer: the outcome is dropped, and with it the delivery,
        // which gives the lease back.
        self.see_through(run.finish()).await
    }
}

// === impl Run ===

impl Run {
    fn new(store: Arc<dyn Store>, reaper: Reaper, request: AcquireRequest) -> Self {
        let salt = Salt::random();
        let (token, idempotency) = match &request.idempotency_key {
            None => (Token::random(), None),
            Some(key) => {
                let fingerprint = Fingerprint::of(
                    request.ttl,
                    request.hold_limit,
                    request.owner.as_ref(),
                    &request.metadata,
                );
                let hash = key.hash(&request.caller, &request.name);
                let token = key.derive_token(&request.caller, &request.name, &salt);
                (
                    token,
                    Some(Idempotency {
                        hash,
                        fingerprint,
                        salt,
                    }),
                )
            }
        };
        let attempt = Attempt {
            name: request.name.clone(),
            token: token.hash(),
            ttl: request.ttl,
            hold_limit: request.hold_limit,
            owner: request.owner.clone(),
            metadata: request.metadata.clone(),
            idempotency,
        };
        Self {
            store,
            reaper,
            attempt,
            token,
            request,
        }
    }

    async fn finish(self) -> Result<Granted, AcquireError> {
        match self.store.acquire(&self.attempt).await {
            Ok(Acquisition::Granted(held)) => {
                let delivery = Delivery::of(self.reaper.clone(), self.abandoned());
                Ok(self.granted(self.token.clone(), held, delivery))
            }
            Ok(Acquisition::Replayed(held, salt)) => {
                let key = self.request.idempotency_key.as_ref();
                let key = key.expect("only an attempt with a key is answered with a replay");
                let token = key.derive_token(&self.request.caller, &self.request.name, &salt);
                // Its caller may have heard of it before: not ours to give back.
                Ok(self.granted(token, held, Delivery::of_replay()))
            }
            Ok(Acquisition::Held(holder)) => Err(AcquireError::Held(holder)),
            Ok(Acquisition::IdempotencyMismatch) => Err(AcquireError::IdempotencyMismatch),
            Ok(Acquisition::IdempotencyExpired) => Err(AcquireError::IdempotencyExpired),
            Err(error) => {
                if let StoreError::Indeterminate(_) = error {
                    // It may hold the lock, or may yet come to hold it, and nobody knows its token.
                    self.reaper.submit(self.abandoned());
                }
                Err(AcquireError::Store(error))
            }
        }
    }

    fn granted(&self, token: Token, held: HeldLease, delivery: Delivery) -> Granted {
        let name = self.request.name.clone();
        Granted {
            lease: Lease {
                name,
                token,
                held,
                waited: Duration::ZERO,
            },
            delivery,
        }
    }

    fn abandoned(&self) -> Abandoned {
        Abandoned {
            name: self.attempt.name.clone(),
            token: self.attempt.token,
            may_be_asked_again: self.attempt.idempotency.is_some(),
        }
    }
}
