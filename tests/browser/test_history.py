"""Who held a lock before: there as soon as the page is, and read again after something has happened."""

import re
import time

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import Gateway, lock, until

HISTORY = re.compile(r"^http://[^/]+/locks/deploy/history$")


def entry(fence, **more):
    return {
        "fencing_token": fence, "mode": "exclusive", "slot": None, "owner": f"ci-{fence}", "metadata": {},
        "acquired_at": "2026-11-20T03:02:11.480Z", "acquired_by": None, "waited_ms": None,
        "ended_at": "2026-11-20T03:14:59.102Z", "ended": "released", "ended_by": None, "reason": None,
        "ended_at_latest": None, "notes": [], **more,
    }


OPEN = {"ended": None, "ended_at": None}
ENTRIES = [
    entry(9, **OPEN, acquired_by="ci", waited_ms=1_200, metadata={"job": "https://ci.example/jobs/4711", "commit": "ab12" * 20}),
    entry(8, ended="broken", ended_by="ops", reason="stuck since three o'clock, asked in #ops " + "and again " * 8,
          notes=[{"kind": "release-requested", "at": "2026-11-20T03:13:00Z", "by": "ops", "reason": "a newer one is ready"}]),
    entry(7, **OPEN, ended_at_latest="2026-11-20T03:01:00Z", mode="shared", slot=4),
    entry(6, ended="expired", owner="w" * 128, ended_at="2026-11-21T00:00:01Z"),
    entry(5, **OPEN, acquired_at=None, owner=None, mode=None,
          notes=[{"kind": "release-requested", "at": "2026-11-20T03:00:00Z", "by": None, "reason": "please"}]),
    entry(4, ended="lost", acquired_at=None),
    entry(3, acquired_by="ci", ended_by="ci"),
]


class HistoryCase(BrowserCase):
    def recorded(self, name, ended):
        """Waits until the lease that was granted last has this end in the history."""
        def found():
            _, kept = self.gateway.call("GET", lock(name, "history"))
            return kept["entries"] and kept["entries"][0]["ended"] == ended

        until(f"{ended} in the history of {name}", found)

    def held(self, name, **body):
        """A lease that is old enough for an entry, and is released."""
        lease = self.gateway.acquire(name, ttl_ms=600_000, **body)
        time.sleep(1.5)
        self.gateway.call("DELETE", lock(name), headers={"Lock-Token": lease["token"]})
        self.recorded(name, "released")
        return lease

    def panel(self, page):
        return page.get_by_role("region", name="History")


class History(HistoryCase):
    def faked(self, entries, **more):
        context = self.context(timezone_id="UTC")
        body = {"name": "deploy", "entries": entries, "shorter_leases": None, "dropped": 0, "enabled": True, **more}
        context.route(HISTORY, lambda route: route.fulfill(json=body))
        return context

    def test_is_there_before_anything_happens(self):
        lease = self.held("deploy", owner="ci-7", metadata={"commit": "ab12"})
        page = self.open("/locks/deploy")
        first = self.panel(page).locator("ol > li")
        expect(first).to_have_count(1)
        for text in ("ci-7", "released", f"fencing token {lease['fencing_token']}", "commit: ab12"):
            expect(first).to_contain_text(text)
        expect(page.get_by_text("since this page was opened")).to_have_count(0)
        expect(page.get_by_text("Events appear here as they happen.")).to_be_visible()

    def test_follows_what_happens(self):
        page = self.open("/locks/deploy")
        expect(self.panel(page)).to_contain_text("No lease is recorded yet.")
        expect(page.locator(".live.is-live")).to_be_visible()
        lease = self.gateway.acquire("deploy", owner="ci-7", ttl_ms=600_000)
        first = self.panel(page).locator("ol > li").first
        expect(first.locator(".state")).to_have_text("held")
        self.gateway.call("POST", lock("deploy", "break"), {"reason": "stuck", "fencing_token": lease["fencing_token"]})
        expect(first).to_contain_text("broken")
        expect(first).to_contain_text("stuck")

    def test_says_of_each_lease_who_when_how_and_why(self):
        context = self.faked(ENTRIES, dropped=12, shorter_leases={"count": 1240, "since": "2026-11-20T03:02:00Z"})
        page = self.open("/locks/deploy", context=context)
        entries = self.panel(page).locator("ol > li")
        expect(entries).to_have_count(7)
        for number, texts in enumerate([
            ["since 20 Nov, 03:02:11", "held", "ci-9 acquired by ci", "waited 1.2s, fencing token 9", "commit: ab12"],
            ["20 Nov, 03:02:11 – 03:14:5912m 47s", "broken by ops: stuck", "release-requested at 20 Nov, 03:13:00 by ops: a newer"],
            ["end not seen, at the latest 20 Nov, 03:01:00", "slot 4, fencing token 7"],
            ["20 Nov, 03:02:11 – 21 Nov, 00:00:0120h 57m", "expired"],
            ["–", "not recorded", "owner not said", ": please"],
            ["until 20 Nov, 03:14:59", "lost"],
            ["ci-3 acquired and released by ci"],
        ]):
            for text in texts:
                expect(entries.nth(number)).to_contain_text(text)
        expect(entries.first.get_by_role("link")).to_have_attribute("href", "https://ci.example/jobs/4711")
        expect(self.panel(page)).to_contain_text("12 records are missing: a gateway could not keep them.")
        expect(self.panel(page)).to_contain_text("1,240 shorter leases since 20 Nov, 03:02:00")
        for width in (360, 390, 768, 1024, 1440):
            page.set_viewport_size({"width": width, "height": 844})
            self.assert_fits(page)
            self.assertFalse(self.panel(page).evaluate("(panel) => panel.scrollWidth > panel.clientWidth + 1"), width)

    def test_a_long_one_is_shown_in_full_when_somebody_asks(self):
        context = self.faked([entry(fence) for fence in range(50, 0, -1)])
        page = self.open("/locks/deploy", context=context)
        entries = self.panel(page).locator("ol > li")
        expect(entries).to_have_count(10)
        self.panel(page).get_by_role("button", name="Show all 50").press("Enter")
        expect(entries).to_have_count(50)
        # Who works with the keyboard goes on at the first that was not shown.
        expect(entries.nth(10)).to_be_focused()

    def test_one_that_cannot_be_read_says_why_and_the_rest_of_the_page_is_there(self):
        self.forgive("status of 503")
        self.gateway.acquire("deploy", owner="ci-7", ttl_ms=600_000)
        context = self.context()
        problem = {"code": "store-unavailable", "title": "The store does not answer", "detail": "Nothing was done.", "status": 503}
        context.route(HISTORY, lambda route: route.fulfill(status=503, json=problem))
        page = self.open("/locks/deploy", context=context)
        expect(self.panel(page).get_by_role("alert")).to_contain_text("The store does not answer")
        expect(page.get_by_role("region", name="Holder")).to_contain_text("ci-7")


class Keys(HistoryCase):
    KEYS = {
        "ops": ["--acquire", "*", "--view", "*", "--break", "*"],
        "ci": ["--acquire", "*"],
    }

    def test_names_who_acquired_and_who_ended(self):
        self.gateway.acquire("deploy", key="ci", owner="runner", ttl_ms=600_000)
        time.sleep(1.5)
        self.gateway.call("POST", lock("deploy", "break"), {"reason": "stuck"}, key="ops")
        self.recorded("deploy", "broken")
        page = self.open("/locks/deploy")
        self.sign_in(page, "ops")
        first = self.panel(page).locator("ol > li")
        expect(first).to_contain_text("runner acquired by ci")
        expect(first).to_contain_text("broken by ops: stuck")

    def test_who_may_not_see_the_lock_is_told_so_and_asks_for_no_history(self):
        # The page asks once whether it may see the lock.
        self.forgive("status of 403")
        context = self.context()
        asked = []
        context.on("request", lambda request: request.url.endswith("/history") and asked.append(request.url))
        page = self.open("/locks/deploy", context=context)
        self.sign_in(page, "ci")
        expect(page.get_by_text("holders, waiters, events and the history are shown with the permission view")).to_be_visible()
        expect(self.panel(page)).to_have_count(0)
        self.assertEqual(asked, [])


class Off(BrowserCase):
    def new_gateway(self):
        return Gateway(environment={"LATCHGATE_HISTORY_ENTRIES": "0"})

    def test_is_said(self):
        page = self.open("/locks/deploy")
        expect(page.get_by_role("region", name="History")).to_contain_text("History is off at this gateway")
        expect(page.get_by_text("Events appear here as they happen.")).to_be_visible()
