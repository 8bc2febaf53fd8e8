"""A write that a check of its fencing token refused: in the feed, on the page of the lock, and as a figure."""

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import lock

FIGURE = "Writes refused that a lock alone would have let through"


class Check(BrowserCase):
    def check(self, name, fence):
        return self.gateway.call("GET", lock(name, "check"), headers={"Fencing-Token": str(fence)})

    def overtaken(self, name):
        """The fencing token of a lease that has ended, and after which another was granted."""
        first = self.gateway.acquire(name, owner="slept", ttl_ms=600_000)
        self.gateway.call("DELETE", lock(name), headers={"Lock-Token": first["token"]})
        self.gateway.acquire(name, owner="next", ttl_ms=600_000)
        return first["fencing_token"]

    def test_is_an_event_of_its_own(self):
        page = self.open("/events")
        expect(page.locator(".live.is-live")).to_be_visible()
        fence = self.overtaken("state:prod")
        self.assertEqual(self.check("state:prod", fence)[0], 403)
        row = page.get_by_role("row").filter(has_text="stale-write-refused")
        expect(row).to_have_count(1)
        expect(row).to_contain_text(f"with the fencing token {fence}, whose lease is over")
        page.get_by_role("button", name="stale-write-refused").click()
        expect(page.locator(".grid .body .row")).to_have_count(1)
        row.get_by_role("link", name="state:prod").click()
        expect(page.locator(".timeline li.stale-write-refused")).to_contain_text(str(fence))

    def test_is_counted_on_the_overview(self):
        page = self.open()
        figure = page.get_by_role("region", name="Health").locator(".since div").filter(has_text=FIGURE)
        expect(figure.locator("dd")).to_have_text("0")
        fence = self.overtaken("deploy")
        self.check("deploy", fence)
        expect(figure.locator("dd")).to_have_text("1")
        # What is checked and holds the lock is no such write.
        now = self.gateway.call("GET", lock("deploy"))[1]["holders"][0]["fencing_token"]
        self.assertEqual(self.check("deploy", now)[0], 204)
        for width in (390, 1440):
            page.set_viewport_size({"width": width, "height": 844})
            self.assert_fits(page)
            self.assertFalse(figure.evaluate("(element) => element.scrollWidth > element.clientWidth + 1"))

    def test_the_line_for_a_terminal_checks_the_holder(self):
        lease = self.gateway.acquire("deploy", ttl_ms=600_000)
        page = self.open("/locks/deploy")
        line = page.locator(".curl li").filter(has_text="check its fencing token").locator("code")
        expect(line).to_contain_text(f'-H "Fencing-Token: {lease["fencing_token"]}"')
        expect(line).to_contain_text("/locks/deploy/check'")
