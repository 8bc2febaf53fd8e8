//! The examination of a server by the store, and its consequences.

use std::time::SystemTime;

use latchgate::clock::Clock as _;

use crate::redis::prelude::*;

/// The commands of the documented ACL line.
pub(crate) const COMMANDS: &str = "+evalsha +eval +info +type +time +exists +get +getrange +set +del +pttl +pexpire +scan +mget \
    +getdel +rpush +lpush +lpop +rpop +lpos +lset +lrem +lindex +llen +lrange \
    +setbit +bitpos +hset +hget +hmget +hvals +hlen +hdel +zadd +zcard +zcount +zrange +zrem \
    +publish +subscribe +ping";

/// A store whose user has the documented permissions.
pub(super) async fn store_as_documented(server: &RedisServer) -> RedisStore {
    store_without(server, "").await
}

/// A store whose user has the documented permissions and further rules.
pub(super) async fn store_without(server: &RedisServer, rules: &str) -> RedisStore {
    store_as(server, &format!("~lg:* &lg:* -@all {COMMANDS} {rules}")).await
}

/// A store whose user has these rules.
pub(super) async fn store_as(server: &RedisServer, rules: &str) -> RedisStore {
    server
        .set_user(&format!("gate reset on >s3cret {rules}"))
        .await;
    open(&server.url_as("gate", "s3cret"))
}

#[track_caller]
fn misconfigured<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::Unavailable(Unavailability::Misconfigured(what))) => what,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_healthy_server_passes_every_check() {
    let rig = Rig::start().await;
    let checks = rig.check().await;
    let names: Vec<_> = checks.iter().map(|check| check.name).collect();
    assert_eq!(names, ["connection", "permissions", "eviction", "clock"]);
    for check in checks {
        assert_eq!(check.health, Health::Passing, "{}", check.name);
    }
    assert_eq!(rig.keys().await, [""; 0], "the probe leaves nothing behind");
}

#[tokio::test]
async fn checks_that_are_asked_for_together_are_one_examination() {
    let rig = Rig::start().await;
    rig.check().await;
    rig.run(&["CONFIG", "RESETSTAT"]).await;
    for _ in 0..50 {
        rig.check().await;
    }
    let probes = rig.server.calls("publish").await;
    assert!(probes < 10, "{probes} probes for 50 checks");
}

#[tokio::test]
async fn the_documented_user_may_do_everything_that_is_needed() {
    let server = RedisServer::start().await;
    let store = store_as_documented(&server).await;
    for check in store.check().await {
        assert_eq!(check.health, Health::Passing, "{}", check.name);
    }
    let asked = store.must_hold(keyed("as-user", "a")).await;
    store.acquire(&keyed("as-user", "a")).await.unwrap();
    store.must_be_held(&asked.name).await;
    store.must_renew(&asked, None).await;
    let pages = store.pages(10, None).await;
    assert_eq!(pages.iter().flat_map(|page| &page.locks).count(), 1);
    store.must_release(&asked).await;
    let free = store.break_lock(&asked.name, None).await.unwrap();
    assert_eq!(free, Breaking::NotHeld);
    store.give_back(&asked.name, &asked.token).await.unwrap();
    server.run(&["RPUSH", "lg:{wrong}:lock", "x"]).await;
    let foreign = store.acquire(&attempt("wrong")).await;
    assert_foreign(foreign, "lg:{wrong}:lock");
}

#[tokio::test]
async fn a_user_that_lacks_a_command_is_told_which_and_granted_nothing() {
    let server = RedisServer::start().await;
    for command in COMMANDS.split_whitespace() {
        let told_otherwise = "+info +scan +type +eval +publish +subscribe +ping";
        if words(told_otherwise).any(|it| it == command) {
            continue;
        }
        let lacking = command.replace('+', "-");
        let store = store_without(&server, &lacking).await;
        let what = misconfigured(store.acquire(&attempt("lacking")).await);
        let named = lacking.trim_start_matches('-').to_uppercase();
        let helps = what.split_once("; give the user");
        let (why, line) = helps.expect("it says what helps");
        // The error of a script that is refused before it runs names the command as the server writes it.
        let words = why.to_uppercase();
        let mut words = words.split(|c: char| !c.is_alphanumeric());
        assert!(words.any(|word| word == named), "{named}: {what}");
        assert!(line.contains("ACL SETUSER"), "{what}");
        match health(&store, "permissions").await {
            Some(Health::Misconfigured(found)) => assert_eq!(found, what),
            other => panic!("{command}: {other:?}"),
        }
        assert_eq!(server.keys().await, [""; 0], "{command}");
    }
}

#[tokio::test]
async fn a_permission_that_is_taken_away_leaves_no_lock_half_granted() {
    let server = RedisServer::start().await;
    for command in ["set", "time", "exists"] {
        let store = store_as_documented(&server).await;
        store.must_grant(&attempt(&format!("safe-{command}"))).await;
        server.set_user(&format!("gate -{command}")).await;
        let what = misconfigured(store.acquire(&keyed("half", "a")).await);
        assert!(what.contains("permission"), "{what}");
        let key = server.text(&["GET", "lg:{half}:lock"]).await;
        assert_eq!(key, "", "{command}");
    }
}

#[tokio::test]
async fn a_permission_that_is_taken_away_leaves_no_lock_half_shared() {
    let server = RedisServer::start().await;
    for command in ["del", "setbit", "zadd", "hset", "pexpire"] {
        let store = store_as_documented(&server).await;
        let asked = || {
            with(keyed(&format!("half-{command}"), "a"), |it| {
                it.terms.sharing = one_of(2, "any").terms.sharing;
            })
        };
        granted(store.acquire(&one_of(2, &format!("safe-{command}"))).await);
        server.set_user(&format!("gate -{command}")).await;
        store.acquire(&asked()).await.unwrap_err();
        let key = format!("lg:{{half-{command}}}:lock");
        assert_eq!(server.text(&["GET", &key]).await, "", "{command}");
        server.set_user(&format!("gate +{command}")).await;
        let lease = eventually("acquires are let through", async || {
            store.acquire(&asked()).await.ok()
        })
        .await;
        // The refused acquire has not used its idempotency key.
        assert!(matches!(lease, Acquisition::Granted(_)), "{lease:?}");
    }
}

#[tokio::test]
async fn a_permission_that_is_taken_away_leaves_no_lock_half_released() {
    let server = RedisServer::start().await;
    for command in ["set", "lpop", "del"] {
        let store = store_as_documented(&server).await;
        for give_back in [false, true] {
            let held = keyed(&format!("half-{command}-{give_back}"), "a");
            granted(store.acquire(&held).await);
            let end = async || {
                if give_back {
                    store.give_back(&held.name, &held.token).await.map(drop)
                } else {
                    store.release(&held.name, &held.token).await.map(drop)
                }
            };
            server.set_user(&format!("gate -{command}")).await;
            end().await.unwrap_err();
            // The error says that nothing happened, which must be true, and the command can be repeated.
            assert_holds(&server, held.name.as_str(), &held.token, command).await;
            server.set_user(&format!("gate +{command}")).await;
            end().await.unwrap();
            store.must_be_free(&held.name).await;
        }
    }
}

/// The commands whose absence must lose no waiter. Without LPUSH and SET nothing can be restored: the attempt asks
/// again, and enters the queue at its end.
fn taken_away() -> impl Iterator<Item = &'static str> {
    let commands = COMMANDS.split_whitespace().map(|it| &it[1..]);
    let spared = ["evalsha", "eval", "subscribe", "ping", "lpush", "set"];
    commands.filter(move |it| !spared.contains(it))
}

/// A lock whose lease is ended by a user without the permission for a command.
struct Ending<'a> {
    server: &'a RedisServer,
    here: &'a RedisStore,
    there: &'a RedisStore,
    command: &'a str,
    by: &'a str,
    /// Whether the next waiter is at the gateway that ends the lease.
    waits_here: bool,
    lock: String,
}

// === impl Ending ===

impl Ending<'_> {
    /// Runs a check for every command and every way to end a lease.
    async fn each(check: impl AsyncFn(&Ending<'_>)) {
        let server = RedisServer::start().await;
        let here = store_as_documented(&server).await;
        let there = TestGateway::on(&server).await;
        for (n, command) in taken_away().enumerate() {
            for (waits_here, by) in [
                (true, "release"),
                (false, "release"),
                (n % 2 == 0, "give-back"),
                (n % 2 == 1, "break"),
            ] {
                let ending = Ending {
                    server: &server,
                    here: &here,
                    there: &there.store,
                    command,
                    by,
                    waits_here,
                    lock: format!("{command}-{by}-{waits_here}"),
                };
                check(&ending).await;
            }
        }
    }

    /// The store of the next waiter's gateway, and the other store.
    fn stores(&self) -> [&RedisStore; 2] {
        if self.waits_here {
            [self.here, self.there]
        } else {
            [self.there, self.here]
        }
    }

    /// Ends a lease as its holder, its gateway or an operator does.
    async fn end(&self, held: &Attempt, fence: FencingToken) -> Result<(), StoreError> {
        let (store, name, token) = (self.here, &held.name, &held.token);
        match self.by {
            "release" => store.release(name, token).await.map(drop),
            "give-back" => store.give_back(name, token).await.map(drop),
            _ => store.break_lock(name, Some(fence.into())).await.map(drop),
        }
    }

    /// Ends the lease without the permission for a command. The error says that nothing happened, which must be true,
    /// and the command can be repeated.
    async fn end_without(
        &self,
        held: &Attempt,
        fence: FencingToken,
        nothing_happened: impl AsyncFnOnce(&str),
    ) {
        self.server
            .set_user(&format!("gate -{}", self.command))
            .await;
        let ended = self.end(held, fence).await;
        self.server
            .set_user(&format!("gate +{}", self.command))
            .await;
        if let Err(error) = ended {
            nothing_happened(&format!("{} -{}: {error}", self.lock, self.command)).await;
            self.end(held, fence).await.unwrap();
        }
    }
}

/// Makes an attempt enter the queue. Answers its parked wait and its id.
async fn queued(store: &RedisStore, asked: Attempt) -> (Parked, String) {
    let (place, token) = stand(store, asked).await;
    (place, format!("2{token}"))
}

/// Asserts that the queue consists of these ids in this order, each with its ticket.
async fn assert_stand(server: &RedisServer, lock: &str, ids: &[&String], why: &str) {
    let queue = format!("lg:{{{lock}}}:wait");
    let queued = list(server, &["LRANGE", &queue, "0", "-1"]).await;
    assert!(queued.iter().eq(ids.iter().copied()), "{why}: {queued:?}");
    for id in ids {
        let ticket = format!("lg:{{{lock}}}:of:{id}");
        let state = server.text(&["GETRANGE", &ticket, "0", "0"]).await;
        assert_eq!(state, "q", "{why}");
    }
}

/// The ids of the shared leases in the order of their slots, which must be the first slots.
async fn in_slots(server: &RedisServer, lock: &str, why: &str) -> Vec<String> {
    let leases = list(server, &["HVALS", &format!("lg:{{{lock}}}:leases")]).await;
    let slot_of = |lease: &String| -> usize {
        let (_, slot) = lease.rsplit_once('\n').expect("it has a slot");
        slot.parse().expect("a slot is a number")
    };
    let mut by_slots: Vec<_> = leases.iter().map(|it| (slot_of(it), &it[..65])).collect();
    by_slots.sort_unstable();
    let slots = by_slots.iter().map(|(slot, _)| *slot);
    assert!(slots.eq(0..leases.len()), "{why}: {by_slots:?}");
    by_slots.iter().map(|(_, id)| (*id).to_owned()).collect()
}

async fn list(server: &RedisServer, command: &[&str]) -> Vec<String> {
    from_redis_value(server.run(command).await).expect("it is a list of texts")
}

#[tokio::test]
async fn a_permission_that_is_taken_away_costs_nobody_a_place_in_the_queue() {
    Ending::each(async |ending| {
        let (server, lock) = (ending.server, &ending.lock);
        let held = attempt(lock);
        let fence = granted(ending.here.acquire(&held).await).fence;
        let (_place, id) = queued(ending.stores()[0], attempt(lock)).await;
        let nothing_happened = async |why: &str| {
            assert_holds(server, lock, &held.token, why).await;
            assert_stand(server, lock, &[&id], why).await;
        };
        ending.end_without(&held, fence, nothing_happened).await;
        let key = format!("lg:{{{lock}}}:lock");
        let holder = server.text(&["GETRANGE", &key, "0", "64"]).await;
        assert_eq!(holder, id, "{lock}");
    })
    .await;
}

#[tokio::test]
async fn a_permission_that_is_taken_away_costs_nobody_a_place_who_is_to_share_the_lock() {
    Ending::each(async |ending| {
        let (server, lock) = (ending.server, &ending.lock);
        let held = attempt(lock);
        let fence = granted(ending.here.acquire(&held).await).fence;
        let [one, other] = ending.stores();
        let (_first, first) = queued(one, one_of(3, lock)).await;
        let (_second, second) = queued(other, one_of(3, lock)).await;
        // This attempt cannot share the lock, but its gateway is checked all the same.
        let (_last, last) = queued(ending.there, attempt(lock)).await;
        let nothing_happened = async |why: &str| {
            let [key, shared, leases, slots] = &shared_keys(lock);
            assert_holds(server, lock, &held.token, why).await;
            let left = server.integer(&["PTTL", key]).await;
            assert!((1..=30_000).contains(&left), "{why}: {left}");
            assert_stand(server, lock, &[&first, &second, &last], why).await;
            let remains = server.integer(&["EXISTS", shared, leases, slots]).await;
            assert_eq!(remains, 0, "{why}");
        };
        ending.end_without(&held, fence, nothing_happened).await;
        // A new attempt first checks whether the waiters before it can be granted the lock.
        ending.there.must_refuse(&one_of(3, lock)).await;
        let found = in_slots(server, lock, lock).await;
        assert_eq!(found, [first, second], "{lock}");
        assert_stand(server, lock, &[&last], lock).await;
    })
    .await;
}

#[tokio::test]
async fn a_permission_that_is_taken_away_costs_nobody_a_place_beside_those_who_share_the_lock() {
    Ending::each(async |ending| {
        let (server, lock) = (ending.server, &ending.lock);
        let [held, stays] = [one_of(2, lock), one_of(2, lock)];
        let fence = granted(ending.here.acquire(&held).await).fence;
        granted(ending.here.acquire(&stays).await);
        let [held_id, stays] = [&held, &stays].map(|asked| format!("2{}", asked.token));
        let (_place, waits) = queued(ending.stores()[0], one_of(2, lock)).await;
        let (_last, last) = queued(ending.there, attempt(lock)).await;
        let nothing_happened = async |why: &str| {
            let holders = in_slots(server, lock, why).await;
            assert_eq!(holders, [held_id, stays.clone()], "{why}");
            assert_stand(server, lock, &[&waits, &last], why).await;
        };
        ending.end_without(&held, fence, nothing_happened).await;
        ending.there.must_refuse(&one_of(2, lock)).await;
        assert_eq!(in_slots(server, lock, lock).await, [waits, stays], "{lock}");
        assert_stand(server, lock, &[&last], lock).await;
    })
    .await;
}

#[tokio::test]
async fn a_missing_channel_is_reported_and_a_missing_key_pattern_refused() {
    let server = RedisServer::start().await;
    let rules = format!("~lg:* resetchannels -@all {COMMANDS}");
    let store = store_as(&server, &rules).await;
    granted(store.acquire(&attempt("channel")).await);
    assert_health(&store, "permissions", Health::Misconfigured, "&lg:*").await;
    let store = store_as(&server, &format!("~app:* &lg:* -@all {COMMANDS}")).await;
    let what = misconfigured(store.acquire(&attempt("pattern")).await);
    assert!(what.contains("~lg:*"), "{what}");
}

#[tokio::test]
async fn permissions_that_are_given_later_are_found_by_itself() {
    let server = RedisServer::start().await;
    let store = store_without(&server, "-lset").await;
    misconfigured(store.acquire(&attempt("later")).await);
    server.set_user("gate +lset").await;
    until_answered(&store, "later").await;
}

#[tokio::test]
async fn a_database_that_the_server_lacks_is_told_with_what_helps() {
    let server = RedisServer::start().await;
    let database = |login: &str| url(&format!("redis://{login}127.0.0.1:{}/99", server.port()));
    let store = open(&database(""));
    let what = misconfigured(store.acquire(&attempt("nowhere")).await);
    assert!(what.contains("no database 99"), "{what}");
    assert!(what.contains("`databases`"), "{what}");
    assert!(!what.contains("ACL"), "{what}");

    drop(store_as_documented(&server).await);
    let store = open(&database("gate:s3cret@"));
    let what = misconfigured(store.acquire(&attempt("nowhere")).await);
    assert!(what.contains("+select"), "{what}");
}

#[tokio::test]
async fn clocks_that_differ_and_fences_ahead_of_the_time_are_worth_a_look() {
    let server = RedisServer::start().await;
    let lifecycle = Lifecycle::new();
    let wall: SystemTime = SystemClock.wall();
    let slow = Arc::new(ManualClock::at(wall - Duration::from_hours(1)));
    let store = RedisStore::open(&server.url(), &quick(), slow, &lifecycle);
    assert_health(&store, "clock", Health::Warning, "").await;
    granted(store.acquire(&attempt("slow")).await);

    let rig = Rig::on(server);
    let ahead = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap() + Duration::from_hours(1);
    let key = fence_key(&name("ahead"));
    rig.run(&["SET", &key, &ahead.as_micros().to_string()])
        .await;
    rig.grant(&attempt("ahead")).await;
    until_health(&rig.store, "clock", Health::Warning, "fencing").await;
}

#[tokio::test]
async fn nothing_is_granted_and_nothing_lost_and_with_a_new_one_all_goes_on() {
    let server = RedisServer::start().await;
    let store = store_as_documented(&server).await;
    let held = attempt("held");
    let lease = granted(store.acquire(&held).await);
    server.set_user("gate resetpass >an0ther").await;
    server.run(&["CLIENT", "KILL", "USER", "gate"]).await;
    eventually("it is told as what it is", async || {
        match store.acquire(&attempt("new")).await {
            Err(StoreError::Unavailable(Unavailability::Misconfigured(_))) => Some(()),
            // Commands that were on their way on the closed connection.
            Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) => None,
            other => panic!("{other:?}"),
        }
    })
    .await;
    assert_eq!(server.text(&["GET", "lg:{new}:lock"]).await, "");
    until_health(&store, "permissions", Health::Misconfigured, "").await;
    // A store with the new password finds the lease.
    let other = open(&server.url_as("gate", "an0ther"));
    other.must_refuse(&attempt("held")).await;
    server.set_user("gate resetpass >s3cret").await;
    let renewed = eventually("the first goes on", async || {
        store.renew(&held.name, &held.token, None).await.ok()
    })
    .await;
    assert!(matches!(&renewed, Renewal::Renewed(now, _) if now.fence == lease.fence));
}
