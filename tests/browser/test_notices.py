"""The browser tells of a lock, if somebody has asked for that: that it is free, theirs, or asked for."""

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import lock, until

# What was shown; headless browsers show no notices of their own.
SPY = """
window.notices = [];
window.Notification = class {
  static permission = "default";
  static requestPermission() { return Promise.resolve(window.permitted ?? "granted"); }
  constructor(title) { window.notices.push(title); }
};
"""
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", {configurable: true, get: () => hidden});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


class Notices(BrowserCase):
    def opened(self, path="/locks/deploy", more=""):
        context = self.context()
        context.add_init_script(SPY + more)
        page = self.open(path, context=context)
        expect(page.locator(".live.is-live")).to_be_visible()
        return page

    def notices(self, page):
        return page.evaluate("window.notices")

    def told(self, page, words):
        until(words, lambda: page.wait_for_timeout(50) or words in self.notices(page))

    def test_that_the_lock_is_free_and_is_asked_for(self):
        lease = self.gateway.acquire("deploy", ttl_ms=600_000)
        page = self.opened()
        page.get_by_role("button", name="Tell me").click()
        expect(page.get_by_role("button", name="Notices on")).to_have_attribute("aria-pressed", "true")
        # Also while nobody looks.
        page.evaluate(HIDE, True)
        self.gateway.call("POST", lock("deploy", "break"), {"reason": "a newer one is ready", "grace_ms": 500_000})
        self.told(page, "deploy is asked for: a newer one is ready")
        self.gateway.acquire("other", ttl_ms=600_000)
        self.gateway.call("DELETE", lock("deploy"), headers={"Lock-Token": lease["token"]})
        self.told(page, "deploy is free")
        self.assertEqual(len(self.notices(page)), 2)

    def test_a_lock_that_passes_to_a_waiter_is_not_free(self):
        lease = self.gateway.acquire("deploy", ttl_ms=600_000)
        waiter = self.gateway.wait_for("deploy", "ci-7")
        page = self.opened()
        page.get_by_role("button", name="Tell me").click()
        expect(page.get_by_role("button", name="Notices on")).to_be_visible()
        self.gateway.call("DELETE", lock("deploy"), headers={"Lock-Token": lease["token"]})
        until("it has passed", lambda: waiter.lease)
        page.wait_for_timeout(2_500)
        self.assertEqual(self.notices(page), [])

    def test_where_the_list_does_not_have_the_lock_the_gateway_is_asked(self):
        lease = self.gateway.acquire("deploy", ttl_ms=600_000)
        waiter = self.gateway.wait_for("deploy", "ci-7")
        page = self.opened()
        page.get_by_role("button", name="Tell me").click()
        expect(page.get_by_role("button", name="Notices on")).to_be_visible()
        page.get_by_role("link", name="Locks", exact=True).first.click()
        page.get_by_label("Name begins with").fill("other")
        expect(page.locator(".grid .body .row")).to_have_count(0)
        self.gateway.call("DELETE", lock("deploy"), headers={"Lock-Token": lease["token"]})
        until("it has passed", lambda: waiter.lease)
        page.wait_for_timeout(2_500)
        self.assertEqual(self.notices(page), [])
        self.gateway.call("DELETE", lock("deploy"), headers={"Lock-Token": waiter.lease["token"]})
        self.told(page, "deploy is free")

    def test_a_browser_that_throws_loses_no_event(self):
        lease = self.gateway.acquire("deploy", ttl_ms=600_000)
        page = self.opened(more="window.Notification = class extends Notification { constructor() { super(); throw new TypeError('Illegal constructor'); } };")
        page.get_by_role("button", name="Tell me").click()
        expect(page.get_by_role("button", name="Notices on")).to_be_visible()
        self.gateway.call("POST", lock("deploy", "break"), {"reason": "a newer one is ready", "grace_ms": 500_000})
        expect(page.locator(".title .state")).to_have_text("asked")
        expect(page.get_by_role("region", name="Last events")).to_contain_text("a newer one is ready")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.call("DELETE", lock("deploy"), headers={"Lock-Token": lease["token"]})

    def test_that_this_page_has_got_it(self):
        lease = self.gateway.acquire("deploy", ttl_ms=600_000)
        page = self.opened()
        page.get_by_role("button", name="Tell me").click()
        expect(page.get_by_role("button", name="Notices on")).to_be_visible()
        panel = self.try_it(page)
        panel.get_by_label("Wait").fill("40")
        panel.get_by_role("button", name="Acquire").click()
        expect(panel.get_by_role("button", name="Give up")).to_be_visible()
        self.gateway.call("DELETE", lock("deploy"), headers={"Lock-Token": lease["token"]})
        self.told(page, "deploy is yours")

    def test_nothing_is_told_unless_it_was_asked_for_or_any_more(self):
        lease = self.gateway.acquire("deploy", ttl_ms=600_000)
        page = self.opened()
        page.get_by_role("button", name="Tell me").click()
        page.get_by_role("button", name="Notices on").click()
        expect(page.get_by_role("button", name="Tell me")).to_have_attribute("aria-pressed", "false")
        self.gateway.call("DELETE", lock("deploy"), headers={"Lock-Token": lease["token"]})
        page.wait_for_timeout(2_500)
        self.assertEqual(self.notices(page), [])

    def test_a_browser_that_does_not_permit_it_says_so(self):
        page = self.opened(more="window.permitted = 'denied';")
        page.get_by_role("button", name="Tell me").click()
        expect(page.get_by_text("The browser does not permit notices for this page.")).to_be_visible()
        expect(page.get_by_role("button", name="Tell me")).to_have_attribute("aria-pressed", "false")

    def test_a_hidden_window_that_tells_keeps_the_stream_and_hands_it_over(self):
        page = self.opened()
        page.get_by_role("button", name="Tell me").click()
        expect(page.get_by_role("button", name="Notices on")).to_be_visible()
        page.evaluate(HIDE, True)
        # Another window is looked at: it reads the stream, and this one hears what it tells.
        other = self.open("/events", context=page.context)
        expect(other.locator(".live.is-live")).to_be_visible()
        streams = self.gateway.call("GET", "/stats")[1]["event_streams"]
        self.assertEqual(streams, 1)
        other.close()
        lease = self.gateway.acquire("deploy", ttl_ms=600_000)
        until("one window reads again", lambda: page.wait_for_timeout(100) or self.gateway.call("GET", "/stats")[1]["event_streams"] == 1)
        self.gateway.call("DELETE", lock("deploy"), headers={"Lock-Token": lease["token"]})
        self.told(page, "deploy is free")

    def test_over_plain_http_from_another_machine_it_is_not_offered(self):
        context = self.context()
        page = context.new_page()
        page.goto(self.gateway.url.replace("127.0.0.1", "gateway.test") + "/dashboard/locks/deploy")
        self.assertFalse(page.evaluate("window.isSecureContext"))
        expect(page.get_by_role("button", name="Tell me")).to_have_count(0)


class Forgotten(BrowserCase):
    KEYS = {"ops": ["--view", "*", "--acquire", "*"]}

    def test_with_the_session(self):
        context = self.context()
        context.add_init_script(SPY)
        page = self.open("/locks/deploy", context=context)
        self.sign_in(page, "ops")
        page.get_by_role("button", name="Tell me").click()
        expect(page.get_by_role("button", name="Notices on")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        self.sign_in(page, "ops")
        expect(page.get_by_role("button", name="Tell me")).to_have_attribute("aria-pressed", "false")
