//! What becomes of a grant whose caller is not there, in paused time.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::{Notify, Semaphore};

use super::*;
use crate::{
    config::{LimitsConfig, Millis},
    lifecycle::Lifecycle,
    lock::{
        CallerId, FencingToken, HeldLease, IdempotencyKey, LockName, Metadata, Salt, Token,
        TokenHash, Ttl,
    },
    store::{
        Store, StoreError, Unavailability, Uncertainty,
        contract::{Acquisition, Attempt, Check, GiveBack, Inspection, Loss, Release, Renewal},
    },
};

const GRACE: Duration = Duration::from_secs(5);

/// Answers what the test says and notes what it was told.
struct ScriptedStore {
    acquisitions: Mutex<VecDeque<Result<Acquisition, StoreError>>>,
    give_back_errors: Mutex<VecDeque<StoreError>>,
    given_back: Mutex<Vec<TokenHash>>,
    released: Mutex<Vec<TokenHash>>,
    /// Commands wait here for a permit.
    gate: Semaphore,
    changed: Notify,
}

impl ScriptedStore {
    fn answering(acquisition: Result<Acquisition, StoreError>) -> Arc<Self> {
        Arc::new(Self {
            acquisitions: Mutex::new([acquisition].into()),
            give_back_errors: Mutex::default(),
            given_back: Mutex::default(),
            released: Mutex::default(),
            gate: Semaphore::new(100),
            changed: Notify::new(),
        })
    }

    /// Nobody gets an answer until [`ScriptedStore::open_gate`].
    fn with_closed_gate(self: Arc<Self>) -> Arc<Self> {
        self.gate.forget_permits(100);
        self
    }

    fn open_gate(&self) {
        self.gate.add_permits(100);
    }

    async fn pass_gate(&self) {
        self.gate.acquire().await.unwrap().forget();
    }

    fn given_back(&self) -> usize {
        self.given_back.lock().unwrap().len()
    }

    async fn until_given_back(&self) -> TokenHash {
        loop {
            let changed = self.changed.notified();
            if let Some(token) = self.given_back.lock().unwrap().first() {
                return *token;
            }
            changed.await;
        }
    }
}

#[async_trait]
impl Store for ScriptedStore {
    async fn acquire(&self, _attempt: &Attempt) -> Result<Acquisition, StoreError> {
        let answer = self.acquisitions.lock().unwrap().pop_front();
        self.pass_gate().await;
        answer.expect("the test says what acquire answers")
    }

    async fn renew(
        &self,
        _name: &LockName,
        _token: &TokenHash,
        _ttl: Option<Ttl>,
    ) -> Result<Renewal, StoreError> {
        Ok(Renewal::Renewed(held()))
    }

    async fn release(&self, _name: &LockName, token: &TokenHash) -> Result<Release, StoreError> {
        self.pass_gate().await;
        self.released.lock().unwrap().push(*token);
        self.changed.notify_waiters();
        Ok(Release::Lost(Loss::Free))
    }

    async fn give_back(&self, _: &LockName, token: &TokenHash) -> Result<GiveBack, StoreError> {
        self.pass_gate().await;
        if let Some(error) = self.give_back_errors.lock().unwrap().pop_front() {
            return Err(error);
        }
        self.given_back.lock().unwrap().push(*token);
        self.changed.notify_waiters();
        Ok(GiveBack::GivenBack)
    }

    async fn inspect(&self, _name: &LockName) -> Result<Inspection, StoreError> {
        Ok(Inspection::Free)
    }

    async fn check(&self) -> Vec<Check> {
        Vec::new()
    }

    async fn close(&self) {}

    fn describe(&self) -> String {
        "scripted".to_owned()
    }
}

fn held() -> HeldLease {
    HeldLease {
        fence: FencingToken::new(7).unwrap(),
        ttl: Ttl::MAX,
        expires_in: Ttl::MAX.duration(),
        held_for: Duration::ZERO,
        hold_expires_in: None,
        owner: None,
        metadata: Metadata::default(),
    }
}

fn granted() -> Acquisition {
    Acquisition::Granted(held())
}

fn unknown() -> StoreError {
    StoreError::Indeterminate(Uncertainty::TimedOut)
}

fn engine(store: &Arc<ScriptedStore>) -> (Engine, Lifecycle) {
    let lifecycle = Lifecycle::new();
    let limits = LimitsConfig {
        reconnect_grace_ms: Millis(u64::try_from(GRACE.as_millis()).unwrap()),
        ..LimitsConfig::default()
    };
    let store: Arc<dyn Store> = Arc::<ScriptedStore>::clone(store);
    (Engine::start(store, lifecycle.clone(), &limits), lifecycle)
}

fn request(key: Option<&str>) -> AcquireRequest {
    AcquireRequest {
        name: name(),
        ttl: Ttl::MAX,
        hold_limit: None,
        owner: None,
        metadata: Metadata::default(),
        caller: CallerId::ANONYMOUS,
        idempotency_key: key.map(|key| IdempotencyKey::new(key).unwrap()),
    }
}

fn name() -> LockName {
    LockName::new("job").unwrap()
}

const KEY: Option<&str> = Some("5f0c2f5e-9d1b-4c58-9a3b-6f5f2b1f7d11");

/// Lets every task that can run do so, and no time pass.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_delivered_lease_is_kept() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, _lifecycle) = engine(&store);
    engine
        .acquire(request(None))
        .await
        .unwrap()
        .delivery
        .delivered();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(store.given_back(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_delivered_is_given_back_at_once() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, _lifecycle) = engine(&store);
    let granted = engine.acquire(request(None)).await.unwrap();
    let token = granted.lease.token.hash();
    drop(granted);
    settle().await;
    assert_eq!(*store.given_back.lock().unwrap(), [token]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_with_a_key_is_given_back_after_the_reconnect_grace() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, _lifecycle) = engine(&store);
    drop(engine.acquire(request(KEY)).await.unwrap());
    tokio::time::sleep(GRACE.saturating_sub(Duration::from_millis(2))).await;
    assert_eq!(store.given_back(), 0);
    tokio::time::sleep(Duration::from_millis(4)).await;
    assert_eq!(store.given_back(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replayed_lease_is_never_given_back() {
    let store = ScriptedStore::answering(Ok(Acquisition::Replayed(held(), Salt::random())));
    let (engine, _lifecycle) = engine(&store);
    let granted = engine.acquire(request(KEY)).await.unwrap();
    assert!(granted.delivery.is_replay());
    drop(granted);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(store.given_back(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_replayed_lease_has_the_token_of_its_salt() {
    let salt = Salt::random();
    let store = ScriptedStore::answering(Ok(Acquisition::Replayed(held(), salt)));
    let (engine, _lifecycle) = engine(&store);
    let granted = engine.acquire(request(KEY)).await.unwrap();
    let key = IdempotencyKey::new(KEY.unwrap()).unwrap();
    let expected = key.derive_token(&CallerId::ANONYMOUS, &name(), &salt);
    assert_eq!(granted.lease.token.hash(), expected.hash());
}

#[tokio::test(start_paused = true)]
async fn a_grant_whose_caller_hung_up_while_the_store_was_thinking_is_given_back() {
    let store = ScriptedStore::answering(Ok(granted())).with_closed_gate();
    let (engine, _lifecycle) = engine(&store);
    let hung_up = tokio::time::timeout(Duration::from_secs(1), engine.acquire(request(None)));
    assert!(hung_up.await.is_err());
    store.open_gate();
    store.until_given_back().await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_of_unknown_outcome_is_given_back() {
    let store = ScriptedStore::answering(Err(unknown()));
    let (engine, _lifecycle) = engine(&store);
    let error = engine.acquire(request(None)).await.unwrap_err();
    assert!(
        matches!(error, AcquireError::Store(StoreError::Indeterminate(_))),
        "{error:?}"
    );
    settle().await;
    assert_eq!(store.given_back(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_certainly_did_not_happen_is_not_given_back() {
    let store = ScriptedStore::answering(Err(Unavailability::OutOfMemory.into()));
    let (engine, _lifecycle) = engine(&store);
    engine.acquire(request(None)).await.unwrap_err();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(store.given_back(), 0);
}

#[tokio::test(start_paused = true)]
async fn giving_back_goes_on_until_the_store_has_answered() {
    let store = ScriptedStore::answering(Ok(granted()));
    let away = StoreError::Unavailable(Unavailability::Connect("refused".to_owned()));
    *store.give_back_errors.lock().unwrap() = (0..40)
        .map(|turn| {
            if turn % 2 == 0 {
                away.clone()
            } else {
                unknown()
            }
        })
        .collect();
    let (engine, _lifecycle) = engine(&store);
    drop(engine.acquire(request(None)).await.unwrap());
    // Forty tries, none more than two seconds after the one before.
    tokio::time::timeout(Duration::from_secs(81), store.until_given_back())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn stopping_gives_back_at_once_what_waited_for_its_grace() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, lifecycle) = engine(&store);
    drop(engine.acquire(request(KEY)).await.unwrap());
    settle().await;
    lifecycle.stop(Duration::from_secs(1)).await.unwrap();
    assert_eq!(store.given_back(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_draining_engine_renews_and_releases_but_does_not_acquire() {
    let store = ScriptedStore::answering(Ok(granted()));
    let (engine, lifecycle) = engine(&store);
    lifecycle.drain();
    let error = engine.acquire(request(None)).await.unwrap_err();
    assert!(matches!(error, AcquireError::Draining));
    assert!(engine.renew(name(), Token::random(), None).await.is_ok());
    let error = engine.release(name(), &Token::random()).await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(Loss::Free)));
}

#[tokio::test(start_paused = true)]
async fn a_release_is_carried_out_although_its_caller_hung_up() {
    let store = ScriptedStore::answering(Ok(granted())).with_closed_gate();
    let (engine, _lifecycle) = engine(&store);
    let token = Token::random();
    let hung_up = tokio::time::timeout(Duration::from_secs(1), engine.release(name(), &token));
    assert!(hung_up.await.is_err());
    let changed = store.changed.notified();
    store.open_gate();
    changed.await;
    assert_eq!(*store.released.lock().unwrap(), [token.hash()]);
}
