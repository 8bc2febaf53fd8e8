"""A lock whose name is a path: its slash is `%2F` in every address, and everything that can be done with a lock can be done."""

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import lock


class Paths(BrowserCase):
    def test_is_found_and_opened_and_its_address_can_be_shared(self):
        self.gateway.acquire("acme/web/deploy", owner="ci", ttl_ms=600_000)
        self.gateway.acquire("acme/api", owner="ci", ttl_ms=600_000)
        self.gateway.acquire("acme", owner="ci", ttl_ms=600_000)
        page = self.open("/locks")
        rows = page.locator(".grid .body .row")
        expect(rows).to_have_count(3)
        page.get_by_label("Name begins with").fill("acme/")
        expect(rows).to_have_count(2)
        page.get_by_label("Name begins with").fill("")
        page.get_by_label("Search name, owner, metadata").fill("web/dep")
        expect(rows).to_have_count(1)
        link = rows.get_by_role("link", name="acme/web/deploy")
        self.assertTrue(link.get_attribute("href").endswith("/dashboard/locks/acme%2Fweb%2Fdeploy"))
        link.click()
        expect(page.get_by_role("heading", level=1, name="acme/web/deploy")).to_be_visible()
        expect(page.get_by_role("region", name="Holder")).to_contain_text("ci")
        self.assertTrue(page.url.endswith("/dashboard/locks/acme%2Fweb%2Fdeploy"))
        page.reload()
        expect(page.get_by_role("region", name="Holder")).to_contain_text("ci")
        expect(page.locator(".curl code").first).to_contain_text("/locks/acme%2Fweb%2Fdeploy")
        # Somebody has typed the address, or a program between has decoded it.
        page = self.open("/locks/acme/web/deploy")
        expect(page.get_by_role("heading", level=1, name="acme/web/deploy")).to_be_visible()
        expect(page.get_by_role("region", name="Holder")).to_contain_text("ci")

    def test_is_tried_and_broken_from_its_page(self):
        page = self.open("/locks/acme%2Fweb")
        panel = self.try_it(page)
        panel.get_by_role("button", name="Acquire").click()
        expect(panel.get_by_role("button", name="Release")).to_be_visible()
        self.assertEqual(self.gateway.call("GET", lock("acme/web"))[1]["state"], "held")
        expect(page.locator(".timeline li")).to_have_count(1)
        page.get_by_role("button", name="Break…").click()
        page.get_by_label("Reason").fill("drain")
        self.ask_nobody(page)
        page.get_by_role("button", name="Break it now").click()
        expect(panel).to_contain_text("The lease was broken: drain")
        self.assertEqual(self.gateway.call("GET", lock("acme/web"))[1]["state"], "free")

    def test_what_a_proxy_would_read_as_something_else_is_no_name(self):
        for name in ("acme/renew", "acme/check", "acme//web", "/acme", "acme/", "acme/../web", "./acme"):
            page = self.open(f"/locks/{name.replace('/', '%2F')}")
            expect(page.get_by_text("No lock can be called that")).to_be_visible()
            expect(page.get_by_text("behind a slash the end is not break, check")).to_be_visible()
            page.context.close()
        page = self.open("/locks?prefix=acme/")
        expect(page.get_by_text("No held locks match")).to_be_visible()
        expect(page.get_by_text("Look at the free lock")).to_have_count(0)
        page.get_by_label("Name begins with").fill("acme//")
        expect(page.get_by_text("No lock can be called that")).to_be_visible()

    def test_a_name_as_long_as_names_get_fits(self):
        name = "/".join(["segment-of-a-path"] * 11)
        self.gateway.acquire(name, ttl_ms=600_000)
        for path in ("/locks", f"/locks/{name.replace('/', '%2F')}"):
            page = self.open(path, viewport={"width": 390, "height": 844})
            expect(page.get_by_text(name).first).to_be_visible()
            self.assert_fits(page)
