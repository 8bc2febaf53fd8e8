"""A shared lock on a real store, live: those who come and go are told by events."""

from playwright.sync_api import expect

from browser import BrowserCase


class SharedOnAStore(BrowserCase):
    def release(self, lease):
        self.gateway.call("DELETE", "/locks/gpu", headers={"Lock-Token": lease["token"]})

    def test_rows_follow_those_who_come_and_go(self):
        first = self.gateway.acquire("gpu", limit=3, ttl_ms=600_000, owner="first")
        page = self.open("/locks")
        row = page.get_by_role("row").filter(has_text="gpu")
        expect(row).to_contain_text("first")
        second = self.gateway.acquire("gpu", limit=3, ttl_ms=600_000, owner="second")
        expect(row).to_contain_text("2 holders")
        self.release(first)
        expect(row).to_contain_text("second")
        self.release(second)
        expect(row).to_have_count(0)

    def test_events_say_the_slot_and_the_mode(self):
        page = self.open("/events")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.acquire("gpu", limit=3, ttl_ms=600_000)
        self.gateway.acquire("book", mode="shared", ttl_ms=600_000)
        rows = page.get_by_role("row")
        expect(rows.filter(has_text="gpu")).to_contain_text("slot 0")
        expect(rows.filter(has_text="book")).to_contain_text("shared")

    def test_one_of_them_is_broken_and_the_other_goes_on(self):
        for owner in ("one", "two"):
            self.gateway.acquire("gpu", limit=2, ttl_ms=600_000, owner=owner)
        page = self.open("/locks/gpu")
        rows = page.locator(".sharers tbody tr")
        expect(rows).to_have_count(2)
        rows.filter(has_text="two").get_by_role("button").click()
        page.get_by_label("Reason").fill("stuck")
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("button", name="Break it now").click()
        expect(page.locator(".holder .who")).to_have_text("one")
        _, lock = self.gateway.call("GET", "/locks/gpu")
        self.assertEqual([holder["owner"] for holder in lock["holders"]], ["one"])
