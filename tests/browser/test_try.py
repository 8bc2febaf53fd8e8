"""The panel that acquires, waits, renews and releases from the page."""

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import until


class Try(BrowserCase):
    def panel(self, page):
        return page.get_by_role("region", name="Try it")

    def lock(self, name):
        return self.gateway.call("GET", f"/locks/{name}")[1]

    def test_acquires_renews_and_releases(self):
        page = self.open("/locks/mine")
        panel = self.panel(page)
        panel.get_by_label("TTL").fill("60")
        panel.get_by_label("Owner").fill("me, from the page")
        panel.get_by_label("Metadata").fill("why=a test\nticket = 42")
        panel.get_by_role("button", name="Acquire").click()
        expect(page.get_by_role("region", name="Holder")).to_contain_text("me, from the page")
        holder = self.lock("mine")["holder"]
        self.assertEqual(holder["metadata"], {"why": "a test", "ticket": "42"})
        self.assertEqual(holder["ttl_ms"], 60_000)
        # The token is nowhere to be seen, nor is it kept where others might read it.
        self.assertNotRegex(page.content(), r"[A-Za-z0-9_-]{43}")
        self.assertEqual(page.evaluate("Object.keys({...localStorage, ...sessionStorage})"), [])
        panel.get_by_role("button", name="Renew").click()
        expect(panel).to_contain_text("PUT /locks/mine/renew")
        # What is held stays held while another page is looked at.
        page.get_by_role("link", name="Events", exact=True).click()
        expect(page.get_by_role("row").filter(has_text="renewed")).to_have_count(1)
        page.go_back()
        panel.get_by_role("button", name="Release").click()
        expect(page.get_by_text("Nobody holds the lock.")).to_be_visible()
        self.assertEqual(self.lock("mine")["state"], "free")

    def test_waits_and_gives_up(self):
        self.gateway.acquire("taken", owner="somebody", ttl_ms=600_000)
        page = self.open("/locks/taken")
        panel = self.panel(page)
        panel.get_by_label("Wait").fill("50")
        panel.get_by_role("button", name="Acquire").click()
        expect(panel).to_contain_text("Waiting for")
        expect(page.get_by_role("region", name="Queue")).to_contain_text("next")
        panel.get_by_role("button", name="Give up").click()
        until("the queue is left", lambda: self.lock("taken")["waiter_count"] == 0)
        expect(page.get_by_text("Nobody waits.")).to_be_visible()

    def test_is_told_that_the_lock_is_held(self):
        self.forgive("status of 423")
        self.gateway.acquire("taken", owner="somebody", ttl_ms=600_000)
        page = self.open("/locks/taken")
        self.panel(page).get_by_role("button", name="Acquire").click()
        expect(self.panel(page).get_by_role("alert")).to_contain_text("The lock is held")

    def test_a_refused_field_is_named(self):
        self.forgive("status of 400")
        page = self.open("/locks/mine")
        panel = self.panel(page)
        panel.get_by_label("Metadata").fill("\n".join(f"k{n}=v" for n in range(17)))
        panel.get_by_role("button", name="Acquire").click()
        expect(panel.get_by_role("alert")).to_contain_text("metadata")

    def test_a_lease_that_is_broken_is_over_here_too(self):
        page = self.open("/locks/mine")
        self.panel(page).get_by_role("button", name="Acquire").click()
        expect(self.panel(page).get_by_role("button", name="Release")).to_be_visible()
        self.gateway.call("POST", "/locks/mine/break", {"reason": "mine now"})
        expect(self.panel(page)).to_contain_text("It was broken: mine now")

    def test_gives_back_what_is_held_when_the_page_is_closed(self):
        page = self.open("/locks/kept")
        self.panel(page).get_by_label("TTL").fill("3600")
        self.panel(page).get_by_role("button", name="Acquire").click()
        expect(self.panel(page).get_by_role("button", name="Release")).to_be_visible()
        page.close()
        until("it is given back", lambda: self.lock("kept")["state"] == "free")

    def test_renews_by_itself_while_another_page_is_looked_at(self):
        page = self.open("/locks/kept")
        panel = self.panel(page)
        panel.get_by_label("TTL").fill("3")
        panel.get_by_role("button", name="Acquire").click()
        panel.get_by_label("Renew by itself").check()
        fence = self.lock("kept")["holder"]["fencing_token"]
        page.get_by_role("link", name="Events", exact=True).click()
        expect(page.get_by_role("row").filter(has_text="renewed").nth(3)).to_be_visible(timeout=30_000)
        self.assertEqual(self.lock("kept")["holder"]["fencing_token"], fence)
