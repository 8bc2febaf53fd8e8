"""The overview says what needs somebody, most urgent first, and its charts are full at once."""

import asyncio
import datetime
import json
import re
from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import lock, until
from test_many import fill

ONE = re.compile(r"^http://[^/]+/locks/[^/?]+$")
LIST = re.compile(r"^http://[^/]+/locks\?")
HISTORY = re.compile(r"^http://[^/]+/locks/[^/]+/history$")
STATS = re.compile(r"^http://[^/]+/stats$")
SAMPLES = re.compile(r"^http://[^/]+/samples$")


def ago(seconds):
    """A time so many seconds ago, as a gateway writes it."""
    at = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=seconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def leases(many, held, waited=0):
    """The entries of so many leases, each held for so many seconds."""
    return [
        {
            "fencing_token": number + 1, "mode": "exclusive", "slot": None, "owner": "ci", "metadata": {}, "acquired_by": None,
            "acquired_at": ago(86_000 - number * 500), "ended_at": ago(86_000 - number * 500 - held), "ended": "released",
            "waited_ms": waited, "ended_by": None, "reason": None, "ended_at_latest": None, "notes": [],
        }
        for number in reversed(range(many))
    ]


class AttentionCase(BrowserCase):
    def context(self, **options):
        context = super().context(**options)
        # Requests that are under way when a test ends belong to no test.
        self.addCleanup(lambda: context.unroute_all(behavior="ignoreErrors"))
        return context

    def changed(self, context, path, change):
        """The answers at this path, changed on their way."""
        def answer(route):
            if route.request.method != "GET":
                return route.fallback()
            fetched = route.fetch()
            if fetched.status != 200:
                return route.fulfill(response=fetched)
            body = fetched.json()
            change(body, route.request.url)
            route.fulfill(response=fetched, body=json.dumps(body))

        context.route(path, answer)

    def held_for(self, context, seconds, name="deploy"):
        """The lock is held for so long by now."""
        def older(body, _):
            for lock in body.get("locks", [body]):
                if lock["name"] == name:
                    for holder in lock["holders"]:
                        holder["acquired_at"] = ago(seconds)

        self.changed(context, LIST, older)
        self.changed(context, ONE, older)

    def usually(self, context, entries):
        self.changed(context, HISTORY, lambda body, _: body.update(entries=entries))

    def panel(self, page):
        return page.get_by_role("region", name="Needs attention")


class Attention(AttentionCase):
    def test_nothing_needs_anybody(self):
        self.gateway.acquire("calm", ttl_ms=600_000)
        page = self.open()
        for words in ("Nobody waits for long", "No lock is held for a minute", "No reservation is waited for",
                      "Nothing broken, lost or refused since", "The store and the gateway are well"):
            expect(self.panel(page)).to_contain_text(words)
        expect(self.panel(page).locator("h3")).to_have_count(0)

    def test_who_waits_longest_comes_first_with_the_holder(self):
        for name in ("short", "long"):
            self.gateway.acquire(name, owner=f"holder of {name}", ttl_ms=600_000)
            self.gateway.wait_for(name, f"waiter of {name}", 55_000)
        context = self.context()

        def waits(body, url):
            for waiter in body["waiters"]:
                waiter["waited_ms"] = 3_900_000 if url.endswith("long") else 61_000

        self.changed(context, ONE, waits)
        page = self.open(context=context)
        rows = self.panel(page).locator("li").filter(has_text="held up by")
        expect(rows).to_contain_text(["1h 05m", "1m 0"])
        expect(rows.first).to_contain_text("waiter of long waits, held up by holder of long")
        rows.first.get_by_role("link").click()
        expect(page.get_by_role("heading", name="long")).to_be_visible()

    def test_what_is_held_longer_than_usual_says_how_many_times(self):
        self.gateway.acquire("deploy", owner="stuck", ttl_ms=600_000)
        for many, held, words in ((10, 40, "6x longer than usual (40s is the median of 10)"), (9, 40, None), (30, 130, None)):
            context = self.context()
            self.held_for(context, 240)
            self.usually(context, leases(many, held))
            page = self.open(context=context)
            if words:
                expect(self.panel(page).locator("h3")).to_contain_text("Held longer")
                expect(self.panel(page)).to_contain_text(f"stuck holds it {words}")
            else:
                # The history has been read by then.
                until("it was asked for", lambda page=page: page.evaluate("performance.getEntriesByType('resource').some(({name}) => name.endsWith('/history'))"))
                page.wait_for_timeout(500)
                expect(self.panel(page).locator("h3")).to_have_count(0)
                # Of nine leases nothing is usual: then nothing is said of the hold.
                expect(self.panel(page).get_by_text("No hold is longer than usual")).to_have_count(1 if many > 9 else 0)
            page.close()

    def test_the_histories_of_long_holds_are_read_one_after_the_other_and_of_no_others(self):
        with ThreadPoolExecutor() as other:
            other.submit(asyncio.run, fill(self.gateway.url, 70)).result()
        asked = []
        context = self.context()
        context.on("request", lambda request: HISTORY.match(request.url) and asked.append(request.url))
        page = self.open(context=context)
        page.wait_for_timeout(5_000)
        # None is held for a minute.
        self.assertEqual(asked, [])
        expect(self.panel(page)).to_contain_text("No lock is held for a minute")

        def older(body, _):
            for lock in body["locks"]:
                for holder in lock["holders"]:
                    holder["acquired_at"] = ago(300)

        self.changed(context, LIST, older)
        page.reload()
        until("some are read", lambda: page.wait_for_timeout(200) or len(asked) >= 12)
        page.wait_for_timeout(2_000)
        self.assertEqual(len(asked), len(set(asked)))
        self.assertLess(len(asked), 25)

    def test_a_lease_that_was_renewed_often_is_looked_at_before_those_of_a_long_ttl(self):
        with ThreadPoolExecutor() as other:
            other.submit(asyncio.run, fill(self.gateway.url, 300)).result()
        self.gateway.acquire("report:daily", owner="stuck", ttl_ms=30_000)
        context = self.context()

        def older(body, _):
            for lock in body["locks"]:
                for holder in lock["holders"]:
                    holder["acquired_at"] = ago(780)

        self.changed(context, LIST, older)
        self.usually(context, leases(12, 1))
        page = self.open(context=context)
        rows = self.panel(page).locator("li").filter(has_text="longer than usual")
        expect(rows.filter(has_text="report:daily")).to_have_count(1, timeout=15_000)

    def test_a_lock_that_a_group_keeps_while_it_waits_is_not_held_for_long(self):
        self.gateway.acquire("deploy", owner="job 4711", ttl_ms=600_000)
        context = self.context()
        self.held_for(context, 600)
        self.changed(context, LIST, lambda body, _: [holder.update(waiting=True) for lock in body["locks"] for holder in lock["holders"]])
        self.usually(context, leases(12, 40))
        page = self.open(context=context)
        expect(self.panel(page)).to_contain_text("No lock is held for a minute")

    def test_what_was_not_looked_at_gets_no_green_line(self):
        self.gateway.acquire("deploy", ttl_ms=600_000)
        self.gateway.wait_for("deploy", "ci-7", 55_000)
        context = self.context()
        self.held_for(context, 600)
        self.changed(context, HISTORY, lambda body, _: body.update(enabled=False, entries=[]))
        self.forgive("status of 500")
        context.route(ONE, lambda route: route.fulfill(status=500, json={"code": "internal", "title": "It failed"}))
        page = self.open(context=context)
        expect(self.panel(page)).to_contain_text("No reservation is waited for")
        page.wait_for_timeout(3_000)
        for words in ("Nobody waits for long", "No hold is longer", "No lock is held for a minute"):
            expect(self.panel(page)).not_to_contain_text(words)
        # The number of waiters is known, and not for how long they have waited.
        expect(self.panel(page).locator("li").filter(has_text="1 waiter, held up by")).to_have_count(1)
        expect(self.panel(page).locator("h2 .number")).to_have_count(0)

    def test_a_look_at_a_queue_ends_with_the_lease(self):
        lease = self.gateway.acquire("deploy", owner="first", ttl_ms=600_000)
        second = self.gateway.wait_for("deploy", "second", 55_000)
        self.gateway.wait_for("deploy", "third", 55_000)
        context = self.context()

        def waits(body, _):
            for waiter in body["waiters"]:
                waiter["waited_ms"] = 3_900_000 if waiter["owner"] == "second" else 61_000

        self.changed(context, ONE, waits)
        page = self.open(context=context)
        rows = self.panel(page).locator("li").filter(has_text="held up by")
        expect(rows).to_contain_text("second")
        self.gateway.call("DELETE", lock("deploy"), headers={"Lock-Token": lease["token"]})
        until("it has passed", lambda: second.lease)
        expect(rows).to_contain_text("third", timeout=6_000)
        expect(rows).to_contain_text("held up by second")

    def test_the_longest_waits_of_the_gateway_come_before_crowded_locks(self):
        for number in range(12):
            self.gateway.acquire(f"crowded:{number}", ttl_ms=600_000)
            for waiter in ("one", "two"):
                self.gateway.wait_for(f"crowded:{number}", waiter, 55_000)
        self.gateway.acquire("lonely", owner="stuck", ttl_ms=600_000)
        self.gateway.wait_for("lonely", "patient", 55_000)
        context = self.context()
        self.changed(context, STATS, lambda body, _: body.update(longest_waits=[{"name": "lonely", "waited_ms": 10_800_000, "waiters": 1}]))

        def waits(body, url):
            for waiter in body["waiters"]:
                waiter["waited_ms"] = 10_800_000 if url.endswith("lonely") else 61_000

        self.changed(context, ONE, waits)
        page = self.open(context=context)
        rows = self.panel(page).locator("li").filter(has_text="held up by")
        expect(rows.first).to_contain_text("patient waits, held up by stuck")
        more = self.panel(page).get_by_role("link", name=re.compile("^and \\d+ more$"))
        expect(more).to_have_attribute("href", re.compile("sort=-wait"))

    def test_a_reservation_that_is_waited_for(self):
        end = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
        for name in ("staging", "quiet"):
            self.gateway.acquire(name, reserve={"until": end, "reason": "load test"}, owner="alice")
        self.gateway.wait_for("staging", "ci-7", 50_000)
        page = self.open()
        rows = self.panel(page).locator("li").filter(has_text="Reserved")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("staging")
        expect(rows).to_contain_text("Reserved by alice until")
        expect(rows).to_contain_text("because load test")

    def test_a_break_from_before_the_page_was_opened(self):
        first = self.open("/events")
        expect(first.locator(".live.is-live")).to_be_visible()
        lease = self.gateway.acquire("deploy", owner="ci-7", ttl_ms=600_000)
        self.gateway.call("POST", "/locks/deploy/break", {"reason": "it hangs", "fencing_token": lease["fencing_token"]})
        page = self.open()
        expect(self.panel(page).locator("li").filter(has_text="it hangs")).to_contain_text("ci-7")
        page.get_by_role("link", name="Events", exact=True).click()
        # Both are there at once, and none twice.
        expect(page.locator(".grid .body .row")).to_have_count(2)
        expect(page.get_by_text("No lock is held")).to_have_count(0)

    def test_a_break_stays_however_many_renewals_follow(self):
        self.gateway.acquire("deploy", owner="ci-7", ttl_ms=600_000)
        page = self.open()
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.call("POST", lock("deploy", "break"), {"reason": "it hangs"})
        expect(self.panel(page).locator("li").filter(has_text="it hangs")).to_have_count(1)
        page.evaluate("""async () => {
          const { modules } = await import(new URL("app.js", document.baseURI));
          const at = new Date().toISOString();
          for (let time = 0; time < 6_000; time += 1) modules["model/feed.js"].hear({ kind: "renewed", name: "other", at, expires_in_ms: 30_000 });
        }""")
        page.wait_for_timeout(500)
        expect(self.panel(page).locator("li").filter(has_text="it hangs")).to_have_count(1)

    def test_incidents_that_the_gateway_has_kept(self):
        kept = [{"at": ago(40_000), "kind": "broken", "name": "deploy", "owner": "ci-7", "by": "ops", "reason": "it hung at night"}]
        context = self.context()
        self.changed(context, STATS, lambda body, _: body.update(incidents=kept))
        page = self.open(context=context)
        expect(self.panel(page).locator("li").filter(has_text="it hung at night")).to_contain_text("ci-7")
        expect(self.panel(page).locator("h2 .number")).to_have_text("1")

    def test_changes_of_the_store_by_the_figures_and_by_the_event(self):
        context = self.context()
        change = {"at": ago(4_000), "kind": "moved", "text": "master moved from a to b"}
        self.changed(context, STATS, lambda body, _: body.update(store_changes=[change]))
        context.route(SAMPLES, lambda route: route.fulfill(json={"instance": "another", "interval_ms": 10_000, "samples": []}))
        page = self.open(context=context)
        expect(self.panel(page)).to_contain_text("The store moved: master moved from a to b")
        event = {"kind": "store-changed", "at": ago(0), "change": {"kind": "away", "text": "the store does not answer"}}
        page.evaluate("import(new URL('app.js', document.baseURI)).then(({modules: {'model/feed.js': {hear}}}) => hear(%s))" % json.dumps(event))
        expect(self.panel(page)).to_contain_text("The store does not answer: the store does not answer")
        page.get_by_role("link", name="Events", exact=True).click()
        expect(page.locator(".grid .body .row")).to_contain_text("the store does not answer")

    def test_locks_of_a_group_that_waits(self):
        self.gateway.acquire("deploy:web", owner="job 4711", ttl_ms=600_000)
        self.gateway.wait_for("deploy:web", "job 4712", 50_000)
        context = self.context()
        self.changed(context, LIST, lambda body, _: body["locks"][0]["holders"][0].update(waiting=True))
        page = self.open(context=context)
        expect(self.panel(page)).to_contain_text("which waits itself for another lock")
        expect(self.panel(page).get_by_role("link", name="1 lock is held by a group that still waits")).to_be_visible()


class Charts(AttentionCase):
    def faked(self, many=360, instance=None, changes=True):
        context = self.context()
        if changes:
            self.changed(context, STATS, lambda body, _: body.update(store_changes=[]))
        me = self.gateway.call("GET", "/stats")[1]
        asked = []

        def samples(route):
            asked.append(route.request.url)
            kept = [
                {
                    "at": ago(10 * (many - number)), "leases": 7, "waiters": 3,
                    "totals": {"acquires": {"granted": number * 50, "held": 0, "refused": number * 10}},
                    "renew_margin": {"counts": [number] * len(me["renew_margin"]["counts"])},
                }
                for number in range(many)
            ]
            told = instance or self.gateway.call("GET", "/stats")[1]["instance"]
            route.fulfill(json={"instance": told, "interval_ms": 10_000, "samples": kept})

        context.route(SAMPLES, samples)
        return context, asked

    SAMPLED = "import(new URL('app.js', document.baseURI)).then(({modules: {'model/figures.js': {samplesOfAll}}}) => samplesOfAll())"

    def test_are_full_at_once(self):
        context, asked = self.faked()
        page = self.open(context=context)
        until("the samples are there", lambda: page.wait_for_timeout(100) or len(page.evaluate(self.SAMPLED)) > 350)
        expect(page.get_by_text("Gathering the first figures")).to_have_count(0)
        points = page.evaluate(self.SAMPLED)
        old = points[100]
        self.assertEqual((old["held"], old["waiters"], old["leases"]), (7, 3, 7))
        self.assertAlmostEqual(old["grants"], 5, delta=0.1)
        self.assertAlmostEqual(old["refusals"], 1, delta=0.1)
        self.assertGreater(old["margin"], 0)
        self.assertEqual([one["time"] for one in points], sorted(one["time"] for one in points))
        page.wait_for_timeout(4_500)
        self.assertEqual(len(asked), 1)

    def test_another_gateway_behind_the_same_address_answers(self):
        context, asked = self.faked(instance="another")
        page = self.open(context=context)
        until("it is asked again, and not for ever", lambda: page.wait_for_timeout(100) or len(asked) >= 5)
        page.wait_for_timeout(4_500)
        self.assertEqual(len(asked), 5)
        self.assertLess(len(page.evaluate(self.SAMPLED)), 20)

    def test_after_a_restart_the_samples_stay_in_order(self):
        context, _ = self.faked(changes=False)
        page = self.open(context=context)
        until("the samples are there", lambda: page.wait_for_timeout(100) or len(page.evaluate(self.SAMPLED)) > 350)
        # A gateway that is away is in the console of the browser.
        self.forgive("Failed to load resource", r"net::ERR_")
        self.gateway.stop()
        self.gateway.start()
        until("it answers again", lambda: page.wait_for_timeout(500) or len({one["instance"] for one in page.evaluate(self.SAMPLED)} - {None}) == 2)
        until("its samples are read", lambda: page.wait_for_timeout(500) or len(page.evaluate(self.SAMPLED)) > 650, deadline=60)
        times = [one["time"] for one in page.evaluate(self.SAMPLED)]
        self.assertEqual(times, sorted(times))

    def test_where_the_gateway_keeps_none_they_fill_from_now_on(self):
        asked = []
        context = self.context()
        self.changed(context, STATS, lambda body, _: body.pop("store_changes", None))
        context.on("request", lambda request: SAMPLES.match(request.url) and asked.append(request.url))
        page = self.open(context=context)
        expect(page.get_by_text("Gathering the first figures")).to_have_count(0)
        self.assertEqual(asked, [])


class Keys(AttentionCase):
    KEYS = {"figures": ["--acquire", "team:", "--metrics"], "team": ["--view", "team:"], "all": ["--view", "*", "--acquire", "*", "--break", "*"]}

    def test_a_key_is_told_what_it_may_see(self):
        lease = self.gateway.acquire("other:one", key="all", owner="ci", ttl_ms=600_000)
        page = self.open()
        self.sign_in(page, "figures")
        expect(self.panel(page)).to_contain_text("The store and the gateway are well")
        expect(self.panel(page).locator("li")).to_have_count(1)
        page.get_by_role("button", name="Sign out").click()
        self.sign_in(page, "team")
        expect(self.panel(page)).to_contain_text("Nobody waits for long")
        self.gateway.call("POST", "/locks/other:one/break", {"reason": "hangs", "fencing_token": lease["fencing_token"]}, key="all")
        page.wait_for_timeout(1_500)
        expect(self.panel(page)).not_to_contain_text("other:one")
