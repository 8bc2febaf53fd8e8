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

    def test_a_holder_keeps_its_place_when_it_is_renewed(self):
        first = self.gateway.acquire("gpu", limit=2, ttl_ms=600_000, owner="one")
        self.gateway.acquire("gpu", limit=2, ttl_ms=700_000, owner="two")
        page = self.open("/locks/gpu")
        holders = page.locator(".sharers .who")
        expect(holders).to_have_text(["slot 0 one", "slot 1 two"])
        # Now the first ends last, which is where the gateway names it.
        self.gateway.call("PUT", "/locks/gpu/renew", {"ttl_ms": 3_600_000}, headers={"Lock-Token": first["token"]})
        expect(page.locator(".sharers li").filter(has_text="one")).to_contain_text("59m")
        _, lock = self.gateway.call("GET", "/locks/gpu")
        self.assertEqual([holder["owner"] for holder in lock["holders"]], ["two", "one"])
        expect(holders).to_have_text(["slot 0 one", "slot 1 two"])

    def test_a_lock_that_was_acquired_with_others_links_to_them(self):
        names = ["cluster:eu", "database", "queue:mail"]
        status, _ = self.gateway.call("POST", "/locks", {"names": names, "ttl_ms": 600_000, "owner": "deploy-bot"})
        self.assertEqual(status, 201)
        page = self.open("/locks/database")
        links = page.locator(".holder .facts a")
        expect(links).to_have_text(["cluster:eu", "queue:mail"])
        links.last.click()
        expect(page.get_by_role("heading", level=1, name="queue:mail")).to_be_visible()
        expect(links).to_have_text(["cluster:eu", "database"])

    def test_locks_that_were_acquired_with_terms_of_their_own_say_how_each_is_held(self):
        names = ["deploy", {"name": "openai", "mode": "shared", "limit": 20}, {"name": "prod", "mode": "shared"}]
        status, _ = self.gateway.call("POST", "/locks", {"names": names, "ttl_ms": 600_000, "owner": "deploy-bot"})
        self.assertEqual(status, 201)
        page = self.open("/locks/deploy")
        facts = page.locator(".holder .facts")
        expect(facts).to_contain_text("openai (slot 0), prod (shared)")
        facts.get_by_role("link", name="prod").click()
        expect(page.get_by_role("heading", level=1, name="prod")).to_be_visible()
        expect(facts).to_contain_text("deploy, openai (slot 0)")
        expect(facts).to_contain_text("Modeshared")

    def test_one_of_them_is_broken_and_the_other_goes_on(self):
        for owner in ("one", "two"):
            self.gateway.acquire("gpu", limit=2, ttl_ms=600_000, owner=owner)
        page = self.open("/locks/gpu")
        rows = page.locator(".sharers li")
        expect(rows).to_have_count(2)
        rows.filter(has_text="two").get_by_role("button").click()
        page.get_by_label("Reason").fill("stuck")
        self.ask_nobody(page)
        page.get_by_role("button", name="Break it now").click()
        expect(page.locator(".holder .facts .who")).to_have_text("one")
        _, lock = self.gateway.call("GET", "/locks/gpu")
        self.assertEqual([holder["owner"] for holder in lock["holders"]], ["one"])
