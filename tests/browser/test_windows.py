"""Several windows of one browser: one of them reads the stream of events, and the others hear what it reads."""

import re
from collections import Counter

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import until

GONE = (r"net::ERR_", r"TypeError: (network error|Failed to fetch)")
STREAM = re.compile(r"(?<!dashboard)/events(\?|$)")
# Chromium shows every page of a test.
LOOK = (
    "(hidden) => { Object.defineProperty(document, 'hidden', {configurable: true, get: () => hidden});"
    " document.dispatchEvent(new Event('visibilitychange')); }"
)


class WindowsCase(BrowserCase):
    def windows(self, many, path="/events", context=None):
        context = context or self.context()
        return [self.window(path, context) for _ in range(many)]

    def window(self, path, context):
        return self.open(path, context=context)

    def context(self, **options):
        """How often each window has opened the stream is in `self.read`."""
        self.read = Counter()
        context = super().context(**options)
        context.on("request", lambda request: STREAM.search(request.url) and self.read.update([request.frame.page]))
        return context

    def streams(self):
        return self.gateway.call("GET", "/stats")[1]["event_streams"]

    def one_stream(self):
        until("one window reads for all", lambda: self.streams() == 1)

    def live(self, pages):
        for page in pages:
            expect(page.locator(".live.is-live")).to_be_visible()

    def hear(self, pages, *names):
        """Each window has heard of these locks, in this order, and each once."""
        for page in pages:
            rows = page.get_by_role("row").filter(has_text=re.compile("|".join(names)))
            expect(rows).to_contain_text(list(reversed(names)))
            expect(rows).to_have_count(len(names))
            expect(page.get_by_role("row").filter(has_text="gap")).to_have_count(0)


class Windows(WindowsCase):
    def test_eight_windows_are_live_with_one_stream_and_a_late_one_at_once(self):
        context = self.context()
        pages = self.windows(8, context=context)
        self.live(pages)
        self.one_stream()
        self.gateway.acquire("first", ttl_ms=600_000)
        self.hear(pages, "first")
        late = self.window("/locks", context)
        # Nothing that it asks for stands behind a stream, nor waits for another event.
        expect(late.locator(".live.is-live")).to_be_visible(timeout=10_000)
        expect(late.get_by_role("row").filter(has_text="first")).to_have_count(1)
        self.assertEqual(self.streams(), 1)

    def test_another_window_reads_on_when_the_one_that_reads_is_closed(self):
        pages = self.windows(4)
        self.live(pages)
        self.gateway.acquire("before", ttl_ms=600_000)
        self.hear(pages, "before")
        [leader] = [page for page in pages if self.read[page]]
        pages.remove(leader)
        leader.close()
        # Perhaps nobody reads at this moment.
        self.gateway.acquire("between", ttl_ms=600_000)
        until("another one reads", lambda: pages[0].wait_for_timeout(50) or any(self.read[page] for page in pages), deadline=5)
        self.gateway.acquire("after", ttl_ms=600_000)
        self.hear(pages, "before", "between", "after")
        self.live(pages)
        self.one_stream()

    def test_another_window_reads_when_the_one_that_reads_is_frozen(self):
        pages = self.windows(3)
        self.live(pages)
        self.gateway.acquire("before", ttl_ms=600_000)
        self.hear(pages, "before")
        [leader] = [page for page in pages if self.read[page]]
        others = [page for page in pages if page is not leader]
        # A browser freezes no page that is looked at. One that stands in a debugger does nothing either.
        devtools = leader.context.new_cdp_session(leader)
        devtools.send("Debugger.enable")
        devtools.send("Debugger.pause")
        self.gateway.acquire("meanwhile", ttl_ms=600_000)
        until("another one reads", lambda: others[0].wait_for_timeout(50) or any(self.read[page] for page in others), deadline=15)
        self.hear(others, "before", "meanwhile")
        devtools.send("Debugger.resume")
        self.gateway.acquire("after", ttl_ms=600_000)
        self.hear(pages, "before", "meanwhile", "after")
        self.live(pages)
        self.one_stream()

    def test_all_windows_say_that_the_gateway_is_gone_and_that_it_is_back(self):
        self.forgive(*GONE)
        pages = self.windows(3, "/locks")
        self.live(pages)
        self.gateway.stop()
        for page in pages:
            expect(page.get_by_text("Connection lost, reconnecting.")).to_be_visible()
            expect(page.locator(".live.is-lost")).to_be_visible()
        self.gateway.start()
        self.gateway.acquire("meanwhile", ttl_ms=600_000)
        self.live(pages)
        for page in pages:
            expect(page.get_by_role("row").filter(has_text="meanwhile")).to_have_count(1)
        self.gateway.acquire("afterwards", ttl_ms=600_000)
        for page in pages:
            expect(page.get_by_role("row").filter(has_text="afterwards")).to_have_count(1)

    def test_a_window_that_is_looked_at_reads_in_place_of_one_that_is_not(self):
        first, second = self.windows(2)
        self.live([first, second])
        self.assertEqual((self.read[first], self.read[second]), (1, 0))
        first.evaluate(LOOK, True)
        until("the other one reads", lambda: first.wait_for_timeout(50) or self.read[second])
        # The one in the background goes on to hear, and does not read again when it is looked at.
        self.gateway.acquire("one", ttl_ms=600_000)
        self.hear([first, second], "one")
        first.evaluate(LOOK, False)
        self.gateway.acquire("two", ttl_ms=600_000)
        self.hear([first, second], "one", "two")
        self.assertEqual((self.read[first], self.read[second]), (1, 1))
        second.evaluate(LOOK, True)
        until("the first one reads again", lambda: first.wait_for_timeout(50) or self.read[first] == 2)
        self.gateway.acquire("three", ttl_ms=600_000)
        self.hear([first, second], "one", "two", "three")
        self.one_stream()

    def test_a_window_that_comes_reads_in_place_of_one_in_the_background(self):
        context = self.context()
        first = self.window("/events", context)
        self.live([first])
        first.evaluate(LOOK, True)
        second = self.window("/events", context)
        self.live([second])
        self.assertEqual(self.read[second], 1)
        self.one_stream()

    def test_an_event_that_two_windows_pass_on_is_heard_once(self):
        first, second = self.windows(2)
        self.live([first, second])
        self.gateway.acquire("one", ttl_ms=600_000)
        self.hear([first, second], "one")
        # As a window that begins to lead, and has heard less than others.
        first.evaluate(
            "import(new URL('app.js', document.baseURI)).then(({modules: {'model/feed.js': {events}}}) => {"
            " const {id, kind, ...event} = events().at(-1);"
            " new BroadcastChannel('latchgate-events / {}').postMessage({events: [{id, kind, data: JSON.stringify(event)}]}); })"
        )
        self.gateway.acquire("two", ttl_ms=600_000)
        self.hear([first, second], "one", "two")

    def test_a_window_that_has_missed_events_says_so(self):
        first, second = self.windows(2)
        self.live([first, second])
        self.gateway.acquire("heard", ttl_ms=600_000)
        self.hear([first, second], "heard")
        connection = "import(new URL('app.js', document.baseURI)).then(({modules: {'model/connection.js': c}}) => c.%s())"
        # As a page that the browser keeps, and shows again when somebody goes back to it.
        second.evaluate(connection % "close")
        self.gateway.acquire("missed", ttl_ms=600_000)
        self.hear([first], "heard", "missed")
        second.evaluate(connection % "open")
        expect(second.get_by_role("row").filter(has_text="not heard by this window")).to_have_count(1)
        second.get_by_role("link", name="Locks", exact=True).first.click()
        expect(second.get_by_role("row").filter(has_text="missed")).to_have_count(1)
        self.gateway.acquire("later", ttl_ms=600_000)
        second.get_by_role("link", name="Events", exact=True).click()
        expect(second.get_by_role("row").filter(has_text="later")).to_have_count(1)

    def test_requests_that_wait_for_a_connection_are_no_outage(self):
        page = self.window("/locks", self.context())
        self.live([page])
        self.gateway.acquire("taken", ttl_ms=600_000)
        # With the stream they are the six connections that a browser makes to a host.
        page.evaluate(
            "for (let one = 0; one < 5; one += 1) fetch(new URL('../locks/taken', document.baseURI),"
            " {method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{\"wait_ms\": 50000}'}).catch(() => {}); 0"
        )
        until("they wait", lambda: self.gateway.call("GET", "/locks/taken")[1]["waiter_count"] == 5)
        for _ in range(160):
            page.wait_for_timeout(100)
            self.assertEqual(page.locator(".live.is-live").count(), 1)
        page.goto("about:blank")


class Signed(WindowsCase):
    KEYS = {
        "ops": ["--acquire", "*", "--view", "*", "--metrics"],
        "team": ["--acquire", "team:", "--view", "team:"],
    }

    def test_what_one_key_may_see_is_not_passed_on_to_another_that_has_signed_in(self):
        # The requests of a page as whoever it shows, which nobody has told that it is somebody else.
        self.forgive(r"status of 40[13] ")
        context = self.context()
        context.add_init_script(
            "const Channel = window.BroadcastChannel; window.BroadcastChannel = class {"
            " constructor(name) { if (!name.startsWith('latchgate-session')) return new Channel(name); }"
            " postMessage() {} close() {} };"
        )
        page = self.window("/events", context)
        self.sign_in(page, "ops")
        other = self.window("/locks", context)
        self.live([page, other])
        self.one_stream()
        # An answer would tell it. Its stream goes on.
        page.route(re.compile(r"/(session|stats|readyz|locks(\?.*)?)$"), lambda route: None)
        other.get_by_role("button", name="Sign out").click()
        self.sign_in(other, "team")
        other.get_by_role("link", name="Events", exact=True).click()
        self.live([other])
        self.gateway.acquire("other:c", key="ops", ttl_ms=600_000)
        self.gateway.acquire("team:a", key="ops", ttl_ms=600_000)
        expect(page.get_by_role("row").filter(has_text="other:c")).to_have_count(1)
        expect(other.get_by_role("row").filter(has_text="team:a")).to_have_count(1)
        self.assertNotIn("other:c", other.content())

    def test_windows_share_the_stream_of_the_next_key(self):
        self.forgive(r"status of 40[13] ")
        pages = self.windows(1, "/locks")
        self.sign_in(pages[0], "ops")
        pages += self.windows(2, "/locks", pages[0].context)
        self.live(pages)
        pages[1].get_by_role("button", name="Sign out").click()
        for page in pages:
            expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        until("nobody reads", lambda: self.streams() == 0)
        self.sign_in(pages[2], "team")
        self.live(pages)
        self.one_stream()
        self.gateway.acquire("other:c", key="ops", ttl_ms=600_000)
        self.gateway.acquire("team:a", key="ops", ttl_ms=600_000)
        for page in pages:
            expect(page.get_by_role("row").filter(has_text="team:a")).to_have_count(1)
            self.assertNotIn("other:c", page.content())


class Insecure(WindowsCase):
    """Over plain HTTP from another machine: there a browser elects no window."""

    KEYS = {"ops": ["--acquire", "*", "--view", "*", "--metrics"]}

    def window(self, path, context):
        local = self.gateway.url
        self.gateway.url = local.replace("127.0.0.1", "gateway.test")
        try:
            return super().window(path, context)
        finally:
            self.gateway.url = local

    def test_a_window_that_is_not_looked_at_has_no_stream_and_reads_on_when_it_is(self):
        # What was sent over HTTP is not isolated, which the browser says.
        self.forgive("Cross-Origin-Opener-Policy")
        context = self.context()
        first = self.window("/events", context)
        self.sign_in(first, "ops")
        self.assertFalse(first.evaluate("isSecureContext || 'locks' in navigator"))
        pages = [first]
        for _ in range(7):
            self.live(pages[-1:])
            pages[-1].evaluate(LOOK, True)
            pages.append(self.window("/events", context))
        self.live(pages[-1:])
        self.one_stream()
        self.gateway.acquire("one", ttl_ms=600_000)
        self.hear(pages[-1:], "one")
        expect(first.locator(".live.is-off")).to_be_visible()
        first.evaluate(LOOK, False)
        self.live([first])
        self.hear([first], "one")
        until("both read", lambda: self.streams() == 2)
