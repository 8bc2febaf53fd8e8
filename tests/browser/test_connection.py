"""The gateway goes away and comes back, and the page says so."""

import http.client
import re
from urllib.parse import urlparse

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import until

# A browser writes every request that got no answer into its console.
GONE = (r"net::ERR_", r"TypeError: (network error|Failed to fetch)")


class Connection(BrowserCase):
    def banner(self, page):
        return page.get_by_text("Connection lost, reconnecting.")

    def test_a_gateway_that_is_killed_and_started_again(self):
        self.forgive(*GONE)
        self.gateway.acquire("before", owner="stays", ttl_ms=600_000)
        page = self.open("/locks")
        expect(page.get_by_role("row").filter(has_text="before")).to_have_count(1)
        self.gateway.stop()
        expect(self.banner(page)).to_be_visible()
        expect(page.get_by_text("Reconnecting", exact=True)).to_be_visible()
        # What was known stays in sight.
        expect(page.get_by_role("row").filter(has_text="before")).to_have_count(1)
        self.gateway.start()
        self.gateway.acquire("meanwhile", ttl_ms=600_000)
        expect(self.banner(page)).to_have_count(0)
        expect(page.get_by_role("row").filter(has_text="before")).to_have_count(1)
        expect(page.get_by_role("row").filter(has_text="meanwhile")).to_have_count(1)
        # And it is live: this one is told by an event.
        self.gateway.acquire("afterwards", ttl_ms=600_000)
        expect(page.get_by_role("row").filter(has_text="afterwards")).to_have_count(1)

    def test_a_gateway_that_is_frozen_and_thawed(self):
        self.forgive(*GONE)
        self.gateway.acquire("before", ttl_ms=600_000)
        page = self.open("/locks/before")
        expect(page.locator(".live.is-live")).to_be_visible()
        # The stream may live before the lock has been looked at.
        expect(page.get_by_role("region", name="Holder")).to_be_visible()
        self.gateway.freeze()
        expect(self.banner(page)).to_be_visible()
        # What cannot be asked is said to be old, and not taken for an answer.
        expect(page.locator(".columns.stale")).to_be_visible()
        self.gateway.thaw()
        expect(self.banner(page)).to_have_count(0)
        expect(page.locator(".columns.stale")).to_have_count(0)
        self.gateway.wait_for("before", "late-comer")
        expect(page.get_by_role("region", name="Queue")).to_contain_text("late-comer")

    def test_a_break_whose_answer_is_lost_is_seen_by_the_lock_itself(self):
        self.forgive(*GONE, "status of 409")
        self.gateway.acquire("lost-answer", owner="first", ttl_ms=600_000)
        page = self.open("/locks/lost-answer")
        page.get_by_role("button", name="Break…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill("gone")
        self.ask_nobody(page)

        def cut(route):
            route.fetch()
            route.abort()

        page.route("**/break", cut)
        dialog.get_by_role("button", name="Break it now").click()
        # It has happened: the page learns that from the lock itself.
        expect(dialog).to_contain_text("The lock is free by now")
        dialog.get_by_role("button", name="Close", exact=True).last.click()
        expect(page.get_by_text("Nobody holds the lock.")).to_be_visible()

    def test_a_gateway_that_is_not_there_at_first(self):
        self.forgive(*GONE)
        page = self.open("/locks")
        expect(page.locator(".live.is-live")).to_be_visible()
        page.route("**/session", lambda route: route.abort())
        page.reload()
        expect(page.get_by_text("The gateway does not answer")).to_be_visible()
        page.unroute("**/session")
        expect(page.get_by_role("heading", name="Locks")).to_be_visible()

    def test_gaps_again_and_again_begin_few_walks_through_the_list_and_cut_none_off(self):
        self.gateway.acquire("one", ttl_ms=600_000)
        context = self.context()
        gap = 'id: {0}\nevent: gap\ndata: {{"kind":"gap","reason":"too-many","at":"2026-01-01T00:00:00Z"}}\n\n'
        gaps = "".join(gap.format(f"instance-{number}") for number in range(50))
        asked, ended = [], []

        def stream(route):
            first = "last-event-id" not in route.request.headers
            route.fulfill(body="id: instance-0\n\n" if first else gaps, headers={"Content-Type": "text/event-stream"})

        context.route(re.compile(r"(?<!dashboard)/events(\?|$)"), stream)
        page = self.open(context=context)
        # Of 50 gaps at once, no walk but the first is cut off.
        context.on("request", lambda request: "/locks?" in request.url and asked.append(request.url))
        context.on("requestfailed", lambda request: "/locks?" in request.url and ended.append(request.url))
        page.get_by_role("link", name="Locks", exact=True).first.click()
        expect(page.get_by_role("row").filter(has_text="one")).to_have_count(1)
        # For so long it is counted; the first three pauses are shorter.
        page.wait_for_timeout(4_000)
        self.assertLessEqual(len(asked), 8)
        self.assertLessEqual(len(ended), 2)

    def test_tabs_that_are_opened_in_the_background_take_no_connection_from_the_one_that_is_looked_at(self):
        context = self.context()
        # Chromium shows every page of a test. A browser makes six connections to a host, for all tabs.
        hide = "Object.defineProperty(Document.prototype, 'hidden', {configurable: true, get: () => !window.looked});"
        background = []
        for _ in range(6):
            page = context.new_page()
            page.add_init_script(hide)
            page.goto(f"{self.gateway.url}/dashboard/events")
            expect(page.get_by_role("heading", name="Events")).to_be_visible()
            background.append(page)
        page = self.open("/locks", context=context)
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.acquire("told", ttl_ms=600_000)
        expect(page.get_by_role("row").filter(has_text="told")).to_have_count(1)
        first = background[0]
        expect(first.locator(".live.is-off")).to_be_visible()
        first.evaluate("window.looked = true; document.dispatchEvent(new Event('visibilitychange'))")
        expect(first.locator(".live.is-live")).to_be_visible()
        self.gateway.acquire("too", ttl_ms=600_000)
        expect(first.get_by_role("row").filter(has_text="too")).to_have_count(1)

    def test_a_feed_that_is_out_of_sight_lets_go_and_reads_on_later(self):
        page = self.open()
        page.clock.install()
        page.goto(f"{self.gateway.url}/dashboard/events")
        expect(page.locator(".live.is-live")).to_be_visible()
        look = (
            "(hidden) => { Object.defineProperty(document, 'hidden', {configurable: true, get: () => hidden});"
            " document.dispatchEvent(new Event('visibilitychange')); }"
        )
        page.evaluate(look, True)
        page.clock.fast_forward(61_000)
        expect(page.locator(".live.is-off")).to_be_visible()
        self.gateway.acquire("meanwhile", ttl_ms=600_000)
        page.evaluate(look, False)
        expect(page.get_by_role("row").filter(has_text="meanwhile")).to_have_count(1)
        expect(page.get_by_role("row").filter(has_text="gap")).to_have_count(0)

    def test_the_page_reads_on_where_it_was_cut_off(self):
        self.forgive(*GONE)
        page = self.open("/events")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.acquire("one", ttl_ms=600_000)
        row = page.get_by_role("row").filter(has_text="one")
        expect(row).to_have_count(1)
        page.context.set_offline(True)
        # The stream that is open survives that; what is cut is every new request, so end it.
        page.evaluate("import(new URL('app.js', document.baseURI)).then(({modules: {'model/connection.js': c}}) => { c.close(); c.open(); })")
        until("it is lost", lambda: page.locator(".live.is-lost").count() or page.wait_for_timeout(50))
        self.gateway.acquire("two", ttl_ms=600_000)
        page.context.set_offline(False)
        expect(page.get_by_role("row").filter(has_text="two")).to_have_count(1)
        expect(row).to_have_count(1)
        expect(page.get_by_role("row").filter(has_text="gap")).to_have_count(0)

    def test_offline_and_online_again(self):
        self.forgive(*GONE)
        self.gateway.acquire("before", ttl_ms=600_000)
        page = self.open("/locks")
        expect(page.get_by_role("row").filter(has_text="before")).to_have_count(1)
        page.context.set_offline(True)
        page.get_by_role("row").filter(has_text="before").get_by_role("link").click()
        expect(page.get_by_role("alert")).to_contain_text("The gateway does not answer")
        page.context.set_offline(False)
        # By now it may have seen by itself that the gateway is there, and have no such button any more.
        page.evaluate("[...document.querySelectorAll('button')].find((it) => it.textContent === 'Try again')?.click()")
        expect(page.get_by_role("region", name="Holder")).to_be_visible()


class Crowded(BrowserCase):
    KEYS = {
        "ops": ["--acquire", "*", "--view", "*", "--break", "*", "--metrics"],
        "few": ["--view", "*", "--metrics", "--max-streams", "3"],
        "one": ["--view", "*", "--max-streams", "1"],
    }

    def test_a_page_opens_one_stream(self):
        context = self.context()
        opened, failed = [], []
        events = re.compile(r"(?<!dashboard)/events(\?|$)")
        context.on("request", lambda request: events.search(request.url) and opened.append(request.url))
        context.on("requestfailed", lambda request: events.search(request.url) and failed.append(request.url))
        page = self.open("/events", context=context)
        # The only one that this key may have: a second one would be refused.
        self.sign_in(page, "one")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.acquire("now", key="ops", ttl_ms=600_000)
        expect(page.get_by_role("row").filter(has_text="now")).to_have_count(1)
        self.assertEqual((len(opened), failed), (1, []))

    def test_a_hundred_tabs_of_one_key_have_the_streams_that_it_may_have_and_the_others_ask(self):
        self.forgive("status of 429")
        self.gateway.acquire("before", key="ops", ttl_ms=600_000)
        to = urlparse(self.gateway.url)
        streams, statuses = [], []
        # As many tabs as that, by what each opens: a browser makes six connections to a host.
        for _ in range(100):
            stream = http.client.HTTPConnection(to.hostname, to.port, timeout=60)
            stream.request("GET", "/events", headers={"Authorization": f"Bearer {self.gateway.keys['few']}"})
            statuses.append(stream.getresponse().status)
            streams.append(stream)
            self.addCleanup(stream.close)
        self.assertEqual((statuses.count(200), statuses.count(429)), (3, 97))
        page = self.open("/locks")
        self.sign_in(page, "few")
        expect(page.get_by_text("No events:")).to_be_visible()
        # What there is to see is seen.
        expect(page.get_by_role("row").filter(has_text="before")).to_have_count(1)
        self.gateway.acquire("meanwhile", key="ops", ttl_ms=600_000)
        expect(page.get_by_role("row").filter(has_text="meanwhile")).to_have_count(1)
        # The other keys are not concerned.
        other = self.open("/locks")
        self.sign_in(other, "ops")
        expect(other.locator(".live.is-live")).to_be_visible()
        for stream in streams:
            stream.close()
        expect(page.locator(".live.is-live")).to_be_visible()
