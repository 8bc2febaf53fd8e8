"""The store goes away while the gateway stays."""

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import Gateway
from redis_server import Redis


class Store(BrowserCase):
    def new_gateway(self):
        self.redis = Redis()
        self.addCleanup(self.redis.end)
        return Gateway(store=self.redis.url)

    def test_a_store_that_does_not_answer_is_told_and_comes_back(self):
        self.forgive("status of 50[34]", r"net::ERR_")
        self.gateway.acquire("kept", owner="somebody", ttl_ms=600_000)
        page = self.open("/locks/kept")
        expect(page.get_by_role("region", name="Holder")).to_contain_text("somebody")
        self.redis.freeze()
        # Told as what it is, beside what was known before.
        expect(page.get_by_role("alert")).to_contain_text("store", timeout=40_000)
        expect(page.get_by_role("region", name="Holder")).to_contain_text("somebody")
        page.get_by_role("link", name="Overview", exact=True).click()
        expect(page.get_by_role("region", name="Health")).to_contain_text("outage", timeout=30_000)
        self.redis.thaw()
        expect(page.get_by_role("region", name="Health")).not_to_contain_text("outage", timeout=30_000)
        page.get_by_role("link", name="Locks", exact=True).click()
        expect(page.get_by_role("row").filter(has_text="kept")).to_have_count(1)
        expect(page.get_by_role("alert")).to_have_count(0, timeout=30_000)
        self.gateway.acquire("again", ttl_ms=600_000)
        expect(page.get_by_role("row").filter(has_text="again")).to_have_count(1)

    def test_a_lock_of_a_foreign_client_is_shown_as_such(self):
        page = self.open("/locks")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.redis.command("SET", "lg:{foreign}:lock", "theirs", "PX", "600000")
        self.redis.command("SET", "lg:{for-ever}:lock", "theirs")
        row = page.get_by_role("row").filter(has_text="foreign")
        # Nobody tells of it: it comes with the next look at everything.
        expect(row.first).to_be_visible(timeout=40_000)
        expect(page.get_by_role("row").filter(has_text="for-ever")).to_contain_text("no expiry")
        page.get_by_role("row").filter(has_text="for-ever").get_by_role("link").click()
        expect(page.get_by_text("Taken in the store itself")).to_be_visible()
        page.get_by_role("button", name="Break…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("A foreign lease has no fencing token")
        dialog.get_by_label("Why").fill("left behind")
        dialog.get_by_role("button", name="Continue").click()
        dialog.get_by_role("button", name="Break it now").click()
        expect(page.get_by_text("Nobody holds the lock.")).to_be_visible()
