//! Random sequences of commands for shared and exclusive leases. Each answer, hand-off and inspection is compared with
//! a model of one queue.

use std::collections::VecDeque;

use crate::conformance::prelude::*;

/// The number of commands in one sequence.
const COMMANDS: usize = 400;
/// The largest number of holders and waiters.
const CROWD: usize = 12;
/// Longer than a message takes, also on a machine that does other work.
const LATE: Duration = Duration::from_mins(1);

/// The holders and waiters that the lock must have.
#[derive(Default)]
struct Model {
    holders: Vec<Member>,
    queue: VecDeque<Member>,
}

/// An attempt, and its lease if it has one.
#[derive(Debug, Clone)]
struct Member {
    attempt: Attempt,
    mode: Mode,
    /// The fencing token, as the store answered it.
    fence: Option<FencingToken>,
}

/// A store, and the model that it is compared with.
struct Game {
    store: AnyStore,
    random: Random,
    model: Model,
    places: HashMap<TokenHash, Parked>,
    last_fence: Option<FencingToken>,
    history: Vec<String>,
}

pub(crate) async fn behave_like_the_model(fixture: &dyn Fixture) {
    let mut game = Game {
        store: fixture.store(),
        random: Random::seeded(),
        model: Model::default(),
        places: HashMap::new(),
        last_fence: None,
        history: Vec::new(),
    };
    for _ in 0..COMMANDS {
        game.one_command().await;
        game.look().await;
    }
}

// === impl Model ===

impl Model {
    fn admits(&self, sharing: Option<Sharing>) -> bool {
        let all_share = self.holders.iter().all(|it| it.mode.is_shared());
        match sharing {
            None => self.holders.is_empty(),
            Some(wanted) => all_share && self.holders.len() < usize::from(wanted.limit.get()),
        }
    }

    fn granted(&mut self, attempt: Attempt) -> Mode {
        let slots = self.holders.iter().filter_map(|it| it.mode.slot());
        let slots: Vec<_> = slots.collect();
        let mut free = (0..=Limit::MAX).filter(|slot| !slots.contains(slot));
        let free = free.next();
        let mode = match attempt.terms.sharing {
            None => Mode::Exclusive,
            Some(sharing) => Mode::Shared {
                slot: free.filter(|_| sharing.has_slot),
            },
        };
        self.holders.push(Member {
            attempt,
            mode,
            fence: None,
        });
        mode
    }

    /// Hands the lock on. Answers the number of new leases, which are the last ones in `holders`.
    fn hand_off(&mut self) -> usize {
        let mut grants = 0;
        while let Some(head) = self.queue.front()
            && self.admits(head.attempt.terms.sharing)
        {
            let attempt = head.attempt.clone();
            self.queue.pop_front();
            self.granted(attempt);
            grants += 1;
        }
        grants
    }
}

// === impl Game ===

impl Game {
    fn check(&self, right: bool, what: &str) {
        assert!(
            right,
            "{what}, {}:\n{}\nholders {:?}\nqueue {:?}",
            self.random.how_to_repeat(),
            self.history.join("\n"),
            self.model.holders,
            self.model.queue,
        );
    }

    fn tell(&mut self, what: String) {
        self.history.push(what);
    }

    async fn one_command(&mut self) {
        let (holders, queue) = (self.model.holders.len(), self.model.queue.len());
        match self.random.below(16) {
            0..5 if holders + queue < CROWD => self.acquire().await,
            5..9 if holders > 0 => self.release().await,
            9 if holders > 0 => self.renew().await,
            10 if holders > 0 => self.repeat().await,
            11 if holders > 0 => self.give_back_a_lease().await,
            12 if queue > 0 => self.give_back_a_waiter().await,
            13 | 14 if queue > 0 => self.leave().await,
            15 => self.break_lock().await,
            _ => {}
        }
    }

    fn new_attempt(&mut self) -> Attempt {
        let wanted = match self.random.below(7) {
            0 | 1 => attempt("lock", LONG),
            2 | 3 => reader("lock", LONG),
            limit => one_of(limit as u64 - 3, "lock", LONG),
        };
        if self.random.below(4) > 0 {
            patient(wanted)
        } else {
            wanted
        }
    }

    async fn acquire(&mut self) {
        let wanted = self.new_attempt();
        if wanted.wait.is_some() {
            let place = self.store.park(&wanted);
            self.places.insert(wanted.token, place);
        }
        let answer = self.store.acquire(&wanted).await.unwrap();
        self.tell(format!("acquire {:?} -> {answer:?}", wanted.terms.sharing));
        let (holders, waiters) = (self.model.holders.len(), self.model.queue.len());
        let waits = wanted.wait.is_some();
        let may = waiters == 0 && self.model.admits(wanted.terms.sharing);
        let told = |holder: Option<&Holder>| holder.map_or(0, Holder::count);
        let right = match &answer {
            Acquisition::Granted(held) => {
                let right = may && Some(held.fence) > self.last_fence;
                self.places.remove(&wanted.token);
                let mode = self.model.granted(wanted);
                self.set_fence(holders, held.fence);
                right && held.mode == mode
            }
            Acquisition::Queued(place) => {
                let count = told(place.contention.holder.as_ref());
                self.model.queue.push_back(Member {
                    attempt: wanted,
                    mode: Mode::Exclusive,
                    fence: None,
                });
                waits && !may && (place.ahead, count) == (waiters as u64, holders as u64)
            }
            Acquisition::Held(contention) => {
                let count = told(contention.holder.as_ref());
                !waits && !may && (contention.waiters, count) == (waiters as u64, holders as u64)
            }
            _ => false,
        };
        self.check(right, "the acquire is answered wrongly");
    }

    fn set_fence(&mut self, holder: usize, fence: FencingToken) {
        self.model.holders[holder].fence = Some(fence);
        self.last_fence = self.last_fence.max(Some(fence));
    }

    fn a_holder(&mut self) -> usize {
        self.random.below(self.model.holders.len())
    }

    fn a_waiter(&mut self) -> usize {
        self.random.below(self.model.queue.len())
    }

    async fn release(&mut self) {
        let at = self.a_holder();
        let gone = self.model.holders.remove(at).attempt;
        let answer = self.store.release(&gone.name, &gone.token).await;
        self.tell(format!("release {at} -> {answer:?}"));
        self.check(
            matches!(answer, Ok(Release::Released(_))),
            "it held the lock",
        );
        self.hand_off().await;
    }

    async fn renew(&mut self) {
        let at = self.a_holder();
        let holder = self.model.holders[at].clone();
        let Attempt { name, token, .. } = &holder.attempt;
        let answer = self.store.renew(name, token, None).await.unwrap();
        self.tell(format!("renew {at} -> {answer:?}"));
        let right = match answer {
            Renewal::Renewed(held, _) => {
                (Some(held.fence), held.mode) == (holder.fence, holder.mode)
            }
            Renewal::Adopted | Renewal::Lost(_) => false,
        };
        self.check(right, "it holds the lock");
    }

    /// Repeats the acquire of a holder.
    async fn repeat(&mut self) {
        let at = self.a_holder();
        let holder = self.model.holders[at].clone();
        let answer = self.store.acquire(&holder.attempt).await.unwrap();
        self.tell(format!("repeat {at} -> {answer:?}"));
        let same = matches!(answer, Acquisition::Granted(held)
            if (Some(held.fence), held.mode) == (holder.fence, holder.mode));
        self.check(same, "it holds the lock");
    }

    async fn give_back_a_lease(&mut self) {
        let at = self.a_holder();
        let gone = self.model.holders.remove(at).attempt;
        let answer = self.store.give_back(&gone.name, &gone.token, None).await;
        self.tell(format!("give back {at} -> {answer:?}"));
        self.check(answer == Ok(GiveBack::GivenBack), "it held the lock");
        self.hand_off().await;
    }

    async fn give_back_a_waiter(&mut self) {
        let gone = self.gone_from_the_queue();
        let answer = self.store.give_back(&gone.name, &gone.token, None).await;
        self.tell(format!("give back one who waits -> {answer:?}"));
        self.check(answer == Ok(GiveBack::NothingHeld), "it held nothing");
        self.hand_off().await;
    }

    async fn leave(&mut self) {
        let gone = self.gone_from_the_queue();
        let answer = self.store.leave(&gone.name, &gone.token, None).await;
        self.tell(format!("leave -> {answer:?}"));
        self.check(matches!(answer, Ok(Leaving::Left(_))), "it held nothing");
        self.hand_off().await;
    }

    /// Removes a random waiter from the model. Answers its attempt.
    fn gone_from_the_queue(&mut self) -> Attempt {
        let at = self.a_waiter();
        let gone = self.model.queue.remove(at).expect("it is within").attempt;
        self.places.remove(&gone.token);
        gone
    }

    async fn break_lock(&mut self) {
        let holders = &self.model.holders;
        let is_shared = holders.first().is_some_and(|it| it.mode.is_shared());
        let one = self.random.below(holders.len().max(1));
        let fence = holders.get(one).and_then(|holder| holder.fence);
        let target = match self.random.below(4) {
            0 => None,
            1 => Some(BreakTarget::All),
            _ => fence.map(BreakTarget::Lease),
        };
        let answer = self.store.break_lock(&name("lock"), target).await.unwrap();
        self.history.push(format!("break {target:?} -> {answer:?}"));
        let all: Vec<_> = holders.iter().filter_map(|it| it.fence).collect();
        let gone = match target {
            None if is_shared => Vec::new(),
            Some(BreakTarget::Lease(_)) => fence.into_iter().collect(),
            None | Some(BreakTarget::All | BreakTarget::Foreign(_)) => all.clone(),
        };
        let right = match answer {
            Breaking::NotHeld => all.is_empty(),
            Breaking::Ambiguous(shown) => {
                target.is_none() && is_shared && shown.count == all.len() as u64
            }
            Breaking::Broken(holder) => {
                let mut broken: Vec<_> = holder.leases().iter().map(|it| it.fence).collect();
                broken.sort_unstable();
                let mut expected = gone.clone();
                expected.sort_unstable();
                broken == expected && !gone.is_empty()
            }
            Breaking::HolderChanged(_) => false,
        };
        self.check(right, "the break is answered wrongly");
        let is_gone = |it: &Member| it.fence.is_some_and(|fence| gone.contains(&fence));
        self.model.holders.retain(|it| !is_gone(it));
        self.hand_off().await;
    }

    /// Asserts that the next waiters hear of their grants and confirm them, and that no other waiter hears anything.
    async fn hand_off(&mut self) {
        let grants = self.model.hand_off();
        let first = self.model.holders.len() - grants;
        for at in first..first + grants {
            let holder = self.model.holders[at].clone();
            let Attempt { name, token, .. } = &holder.attempt;
            let mut place = self.places.remove(token).expect("it waits");
            let news = timeout(LATE, place.news()).await;
            self.tell(format!("{at} hears {news:?}"));
            self.check(news.is_ok(), "somebody who is next is granted nothing");
            let answer = self.store.confirm(name, token).await.unwrap();
            let Confirmation::Confirmed(held) = answer else {
                self.check(false, "its grant was lost");
                continue;
            };
            let right = held.mode == holder.mode && Some(held.fence) > self.last_fence;
            self.check(right, &format!("it was granted {held:?}"));
            self.set_fence(at, held.fence);
        }
    }

    /// Asserts that an inspection shows the holders and waiters of the model.
    async fn look(&mut self) {
        let model = &self.model;
        let mut expected: Vec<_> = model.holders.iter().map(|it| (it.fence, it.mode)).collect();
        expected.sort_by_key(|(fence, _)| *fence);
        let queue: Vec<_> = model
            .queue
            .iter()
            .map(|it| it.attempt.terms.sharing)
            .collect();
        let store = &self.store;
        // In a long queue, waiters that have left are removed a little later.
        let shown = eventually("the queue is as it must be", async || {
            let shown = store.inspect(&name("lock")).await.unwrap();
            (shown.waiters == queue.len() as u64).then_some(shown)
        })
        .await;
        let leases = shown.holder.as_ref().map_or(&[][..], Holder::leases);
        let mut seen: Vec<_> = leases.iter().map(|it| (Some(it.fence), it.mode)).collect();
        seen.sort_by_key(|(fence, _)| *fence);
        self.check(seen == expected, &format!("holders are shown as {seen:?}"));
        let limits = |queue: &[Option<Sharing>]| -> Vec<_> {
            let limits = queue.iter().map(|it| it.map(|it| it.explicit_limit()));
            limits.collect()
        };
        let waits: Vec<_> = shown.queue.iter().map(|it| it.sharing).collect();
        self.check(
            limits(&waits) == limits(&queue),
            &format!("the queue is shown as {waits:?}"),
        );
        let waiting = self.places.values_mut();
        let news: Vec<_> = waiting.filter_map(Parked::try_news).collect();
        self.check(news.is_empty(), &format!("others hear {news:?}"));
    }
}
