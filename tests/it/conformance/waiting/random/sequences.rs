//! Random sequences of commands about a queue. Each answer, all news and what an inspection shows are compared with a
//! model.

use super::queue_model::{Answer, Ask, ExpectedNews, Holds, Model};
use crate::{conformance::prelude::*, support::Ask as _};

/// The number of commands in one sequence.
const COMMANDS: usize = 800;
const LONGEST_QUEUE: u64 = 6;
const LOCK: &str = "lock";

/// An attempt at a gateway, and its parked wait.
struct Player {
    attempt: Attempt,
    store: AnyStore,
    place: Option<Parked>,
}

struct Game {
    stores: Vec<AnyStore>,
    random: Random,
    model: Model,
    players: Vec<Player>,
    keys: Vec<IdempotencyHash>,
    fence: Option<FencingToken>,
    /// Whether some attempts take older waiters out of the queue: not on a store that cannot do this.
    supersedes: bool,
    history: Vec<String>,
}

pub(crate) async fn around_a_queue_behave_like_the_model(fixture: &dyn Fixture) {
    let stores = fixture.gateways();
    let mut game = Game {
        supersedes: stores[0].supports(StoreFeature::Supersedes),
        stores,
        random: Random::seeded(),
        model: Model::new(LONGEST_QUEUE),
        players: Vec::new(),
        keys: (0..3).map(|_| key()).collect(),
        fence: None,
        history: Vec::new(),
    };
    for _ in 0..COMMANDS {
        game.one_command().await;
        game.hear_the_news().await;
        game.look().await;
    }
}

// === impl Game ===

impl Game {
    fn tell(&mut self, what: String) {
        self.history.push(what);
    }

    async fn one_command(&mut self) {
        let standing = self.model.standing();
        let Some(&one) = standing.get(self.random.below(standing.len() + 3)) else {
            return self.ask().await;
        };
        match self.random.below(10) {
            0..3 => self.release().await,
            9 => self.ask_again(one).await,
            8 => self.break_lock().await,
            3 => self.give_back(one).await,
            4 => self.renew().await,
            _ => self.leave(one).await,
        }
    }

    async fn ask(&mut self) {
        let key = (self.random.below(2) == 0).then(|| self.random.below(self.keys.len()));
        let ask = Ask {
            key,
            in_other_words: self.random.below(6) == 0,
            waits: self.random.below(5) > 0,
            // A request that is repeated under its key says the same.
            supersedes: self.supersedes
                && key.map_or_else(|| self.random.below(3) == 0, |key| key == 0),
        };
        let plain = match ask.key {
            Some(key) if ask.in_other_words => keyed(LOCK, LONG - 1, self.keys[key]),
            Some(key) => keyed(LOCK, LONG, self.keys[key]),
            None => attempt(LOCK, LONG),
        };
        let waiting = Waiting {
            max_wait: Duration::from_secs(50),
            longest_queue: LONGEST_QUEUE,
            supersedes: ask
                .supersedes
                .then(|| SupersedeHash::from_bytes([7; 16]).into()),
        };
        let number = self.players.len();
        let attempt = with(plain, |it| {
            it.terms.said.owner = Some(owner(number));
            it.wait = ask.waits.then_some(waiting);
        });
        let store = self.stores[self.random.below(self.stores.len())].clone();
        let place = ask.waits.then(|| store.park(&attempt));
        let answer = store.acquire(&attempt).await.unwrap();
        self.tell(format!("{number} asks, {ask:?}: {answer:?}"));
        self.players.push(Player {
            attempt,
            store,
            place,
        });
        let expected = self.model.ask(number, ask);
        let right = match (&expected, &answer) {
            (Answer::Granted, Acquisition::Granted(held)) => {
                let risen = Some(held.fence) > self.fence;
                self.fence = Some(held.fence);
                risen
            }
            (
                Answer::Replayed(of),
                Acquisition::Replayed(held, salt) | Acquisition::Collected(held, salt, _),
            ) => {
                let original = self.players[*of].attempt.idempotency.as_ref();
                Some(held.fence) == self.fence && original.is_some_and(|it| it.salt == *salt)
            }
            (Answer::Held(waiters), Acquisition::Held(contention)) => {
                contention.waiters == *waiters
            }
            (Answer::Queued(ahead), Acquisition::Queued(place)) => place.ahead == *ahead,
            (Answer::QueueFull, Acquisition::QueueFull)
            | (Answer::Mismatch, Acquisition::IdempotencyMismatch) => true,
            _ => false,
        };
        self.check(right, &format!("expected {expected:?}"));
        if !matches!(answer, Acquisition::Queued(_)) {
            self.players[number].place = None;
        }
        if let Some(outdated) = self.model.take_outdated_key() {
            let again = keyed(LOCK, LONG, self.keys[outdated]);
            let answer = self.players[number].store.acquire(&again).await.unwrap();
            self.tell(format!("the key of the older waiter: {answer:?}"));
            self.check(answer == Acquisition::NewerWaiter, "it was taken out");
            self.renew_key(Some(outdated));
        }
    }

    async fn release(&mut self) {
        let Some(holder) = self.model.holder_that_knows() else {
            return;
        };
        let Attempt { name, token, .. } = &self.players[holder].attempt;
        let store = &self.stores[self.random.below(self.stores.len())];
        let answer = store.release(name, token).await.unwrap();
        self.tell(format!("{holder} releases: {answer:?}"));
        self.check(matches!(answer, Release::Released(_)), "it holds the lock");
        let used = self.model.release();
        self.renew_key(used);
    }

    async fn renew(&mut self) {
        let Some(holder) = self.model.holder_that_knows() else {
            return;
        };
        let Attempt { name, token, .. } = &self.players[holder].attempt;
        let store = &self.stores[self.random.below(self.stores.len())];
        let answer = store.renew(name, token, None).await.unwrap();
        self.tell(format!("{holder} renews: {answer:?}"));
    }

    async fn break_lock(&mut self) {
        let Some(holder) = self.model.holder_that_knows() else {
            return;
        };
        let fence = self.fence.filter(|_| self.random.below(2) == 0);
        let Attempt { name, token, .. } = &self.players[holder].attempt;
        let store = &self.stores[self.random.below(self.stores.len())];
        let meant = fence.map(BreakTarget::Lease);
        let answer = store.break_lock(name, meant).await.unwrap();
        let after = store.renew(name, token, None).await.unwrap();
        let what = format!("{holder} is broken, meaning {fence:?}: {answer:?}, and then {after:?}");
        self.tell(what);
        let used = self.model.release();
        let right = match answer {
            Breaking::Broken(Holder::Lease(held)) => held.said.owner == Some(owner(holder)),
            _ => false,
        };
        let next = self.model.holder().is_some();
        let told = after == Renewal::Lost(Loss::Broken { held: next });
        self.check(right && told, "it held the lock");
        self.renew_key(used);
    }

    async fn give_back(&mut self, one: usize) {
        if !self.model.is_attended(one) {
            return;
        }
        let player = &mut self.players[one];
        let Attempt { name, token, .. } = &player.attempt;
        let answer = player.store.give_back(name, token, None).await.unwrap();
        player.place = None;
        self.tell(format!("{one} is given back: {answer:?}"));
        let (held, used) = self.model.give_back(one);
        let right = match answer {
            GiveBack::GivenBack => held,
            GiveBack::NothingHeld | GiveBack::Kept => !held,
        };
        self.check(right, "");
        self.renew_key(used);
    }

    async fn leave(&mut self, one: usize) {
        if !self.model.is_attended(one) {
            return;
        }
        let keep = self.random.below(2) == 0;
        let keep_for = keep.then_some(Duration::from_mins(5));
        let player = &mut self.players[one];
        let Attempt { name, token, .. } = &player.attempt;
        let answer = player.store.leave(name, token, keep_for).await.unwrap();
        player.place = None;
        self.tell(format!("{one} leaves, keeping {keep}: {answer:?}"));
        let right = match (self.model.holds(one), &answer) {
            (Some(Holds::Lease), Leaving::Granted(held)) => Some(held.fence) == self.fence,
            (Some(Holds::Replaced), Leaving::Replaced) => true,
            (None, Leaving::Left(contention)) => contention.waiters == self.model.leave(one, keep),
            _ => false,
        };
        self.check(right, "");
    }

    /// An attempt that was granted the lock asks again, or confirms its grant, as if the answer had been lost.
    async fn ask_again(&mut self, one: usize) {
        let is_attended = self.model.is_attended(one);
        let Some(holds) = self.model.holds(one).filter(|_| is_attended) else {
            return;
        };
        let Player { attempt, store, .. } = &self.players[one];
        let again = store.acquire(attempt).await.unwrap();
        let confirmed = store.confirm(&attempt.name, &attempt.token).await.unwrap();
        self.tell(format!(
            "{one} asks again: {again:?}, and confirms: {confirmed:?}"
        ));
        let right = match (holds, &again, &confirmed) {
            (Holds::Lease, Acquisition::Granted(held), Confirmation::Confirmed(same)) => {
                Some(held.fence) == self.fence && same.fence == held.fence
            }
            (Holds::Replaced, Acquisition::Replaced, Confirmation::Replaced) => true,
            _ => false,
        };
        self.check(right, &format!("it holds the {holds:?}"));
    }

    /// Asserts that each waiter gets the news of the model, and no other news.
    async fn hear_the_news(&mut self) {
        for (one, told) in self.model.take_news() {
            let mut place = self.players[one].place.take().expect("it waits");
            let mut news = timeout(LATE, place.news()).await;
            self.tell(format!("{one} hears {news:?}"));
            let player = &self.players[one];
            if news == Ok(News::Forgotten) {
                news = Ok(match player.store.acquire(&player.attempt).await.unwrap() {
                    Acquisition::Granted(held) => News::Granted(held),
                    Acquisition::Replaced => News::Replaced,
                    Acquisition::NewerWaiter => News::NewerWaiter,
                    other => return self.check(false, &format!("it is told {other:?} then")),
                });
            }
            let held = match (told, news) {
                (ExpectedNews::Replaced, Ok(News::Replaced))
                | (ExpectedNews::NewerWaiter, Ok(News::NewerWaiter)) => continue,
                (ExpectedNews::Granted, Ok(News::Granted(held))) => held,
                (ExpectedNews::Granted, Ok(News::GrantedProvisionally)) => {
                    let Attempt { name, token, .. } = &player.attempt;
                    match player.store.confirm(name, token).await.unwrap() {
                        Confirmation::Confirmed(held) => held,
                        Confirmation::Lost | Confirmation::Replaced => {
                            return self.check(false, "it is not lost");
                        }
                    }
                }
                (told, _) => return self.check(false, &format!("expected {told:?}")),
            };
            let risen = Some(held.fence) > self.fence;
            let full = held.expires_in > Duration::from_millis(LONG / 2);
            self.fence = Some(held.fence);
            self.check(risen && full, "a new lease, with all its time");
        }
        for (one, player) in self.players.iter_mut().enumerate() {
            let Some(place) = &mut player.place else {
                continue;
            };
            let news = place.try_news();
            if news == Some(News::Forgotten) {
                // If the machine stands still, the sweep may look for a position before it is taken.
                place.rearm();
                let again = player.store.acquire(&player.attempt).await.unwrap();
                let stands = matches!(again, Acquisition::Queued(_));
                assert!(stands, "{one} asks again: {again:?}");
                continue;
            }
            assert_eq!(news, None, "{one} hears it");
        }
    }

    /// Asserts that an inspection shows the holder and the queue of the model.
    async fn look(&mut self) {
        let store = &self.stores[self.random.below(self.stores.len())];
        let shown = store.inspect(&name(LOCK)).await.unwrap();
        let holder = match &shown.holder {
            Some(Holder::Lease(held)) => held.said.owner.clone(),
            Some(Holder::Shared(_) | Holder::Foreign { .. }) => {
                return self.check(false, "nobody is foreign");
            }
            None => None,
        };
        if self.model.holder().is_some() && self.model.holder_that_knows().is_none() {
            // The grant was told to no caller; the inspection is the first to show its fencing token.
            if let Some(Holder::Lease(held)) = &shown.holder {
                self.fence = self.fence.max(Some(held.fence));
            }
        }
        let queue: Vec<_> = shown.queue.iter().map(|it| it.owner.clone()).collect();
        let expected: Vec<_> = self.model.queue().map(|it| Some(owner(it))).collect();
        let right = holder == self.model.holder().map(owner)
            && queue == expected
            && shown.waiters == expected.len() as u64;
        self.check(right, &format!("expected {expected:?}, shown {shown:?}"));
    }

    /// Replaces a key that was used up by a new one.
    fn renew_key(&mut self, used: Option<usize>) {
        if let Some(used) = used {
            self.keys[used] = key();
        }
    }

    fn check(&self, right: bool, why: &str) {
        assert!(
            right,
            "the last answer is wrong, {why}, {}:\n{}",
            self.random.how_to_repeat(),
            self.history.join("\n")
        );
    }
}

fn owner(number: usize) -> Owner {
    Owner::new(&format!("player {number}")).unwrap()
}
