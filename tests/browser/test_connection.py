"""The gateway goes away and comes back, and the page says so."""

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
        self.gateway.freeze()
        expect(self.banner(page)).to_be_visible(timeout=30_000)
        # What cannot be asked is said to be old, and not taken for an answer.
        expect(page.locator(".columns.stale")).to_be_visible()
        self.gateway.thaw()
        expect(self.banner(page)).to_have_count(0, timeout=30_000)
        expect(page.locator(".columns.stale")).to_have_count(0)
        self.gateway.wait_for("before", "late-comer")
        expect(page.get_by_role("region", name="Queue")).to_contain_text("late-comer")

    def test_a_break_whose_answer_is_lost_can_be_asked_for_again(self):
        self.forgive(*GONE, "status of 409")
        self.gateway.acquire("lost-answer", owner="first", ttl_ms=600_000)
        page = self.open("/locks/lost-answer")
        page.get_by_role("button", name="Break…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Why").fill("gone")
        dialog.get_by_role("button", name="Continue").click()

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

    def test_the_page_reads_on_where_it_was_cut_off(self):
        self.forgive(*GONE)
        page = self.open("/events")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.acquire("one", ttl_ms=600_000)
        row = page.get_by_role("row").filter(has_text="one")
        expect(row).to_have_count(1)
        page.context.set_offline(True)
        # The stream that is open survives that; what is cut is every new request, so end it.
        page.evaluate("import(new URL('model/connection.js', document.baseURI)).then((c) => { c.close(); c.open(); })")
        until("it is lost", lambda: page.locator(".live.is-lost").count() or page.wait_for_timeout(50))
        self.gateway.acquire("two", ttl_ms=600_000)
        page.context.set_offline(False)
        expect(page.get_by_role("row").filter(has_text="two")).to_have_count(1)
        expect(row).to_have_count(1)
        expect(page.get_by_role("row").filter(has_text="gap")).to_have_count(0)
