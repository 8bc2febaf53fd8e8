"""Signing in and out, and what a key may not do."""

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import until


class Session(BrowserCase):
    KEYS = {
        "ops": ["--acquire", "*", "--view", "*", "--break", "*", "--metrics"],
        "reader": ["--view", "*"],
        "team": ["--acquire", "team:", "--view", "team:", "--view", "shared:", "--break", "team:"],
        "figures": ["--metrics"],
        "blind": ["--acquire", "*"],
    }

    def test_a_wrong_key_is_told_why(self):
        self.forgive("status of 401")
        page = self.open()
        field = page.get_by_label("API key")
        expect(field).to_be_focused()
        field.fill("lgk_wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_be_visible()
        expect(field).to_be_focused()
        self.sign_in(page, "ops")
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()

    def test_signing_out_forgets_everything(self):
        page = self.open("/locks")
        self.sign_in(page, "ops")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.acquire("secret-name", ttl_ms=600_000)
        expect(page.get_by_role("row").filter(has_text="secret-name")).to_have_count(1)
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        self.assertNotIn("secret-name", page.content())
        # Nor does whoever comes next see what was heard before.
        self.sign_in(page, "team")
        page.get_by_role("link", name="Events", exact=True).click()
        expect(page.get_by_text("Nothing has happened yet")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.reload()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()

    def test_a_revoked_key_is_signed_out_at_once(self):
        self.forgive("status of 401")
        page = self.open("/locks")
        self.sign_in(page, "reader")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.revoke("reader")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        expect(page.get_by_text("Your session is over")).to_be_visible()

    def test_a_key_without_break_is_not_offered_it(self):
        self.gateway.acquire("deploy", owner="somebody", ttl_ms=600_000)
        page = self.open("/locks/deploy")
        self.sign_in(page, "reader")
        expect(page.get_by_role("region", name="Holder")).to_contain_text("somebody")
        expect(page.get_by_role("button", name="Break…")).to_have_count(0)
        expect(page.get_by_role("region", name="Try it")).to_have_count(0)
        expect(page.get_by_text("break it")).to_have_count(0)
        expect(page.get_by_text("acquire it")).to_have_count(0)
        expect(page.get_by_text("inspect it")).to_be_visible()
        # And the gateway refuses it anyway.
        refused = page.evaluate(
            "fetch(new URL('../locks/deploy/break', document.baseURI), {method: 'POST',"
            " headers: {'Content-Type': 'application/json', 'X-Requested-With': 'latchgate'},"
            " body: '{\"reason\": \"no\"}'}).then((answer) => answer.status)"
        )
        self.forgive("status of 403")
        self.assertEqual(refused, 403)

    def test_a_key_of_some_prefixes_sees_these(self):
        for name in ("team:a", "shared:b", "other:c"):
            self.gateway.acquire(name, key="ops", ttl_ms=600_000)
        page = self.open("/locks")
        self.sign_in(page, "team")
        expect(page.get_by_role("row").filter(has_text="team:a")).to_have_count(1)
        expect(page.get_by_role("row").filter(has_text="shared:b")).to_have_count(1)
        self.assertNotIn("other:c", page.content())
        page.goto(f"{self.gateway.url}/dashboard/locks/shared:b")
        expect(page.get_by_role("region", name="Holder")).to_be_visible()
        expect(page.get_by_role("button", name="Break…")).to_have_count(0)
        page.goto(f"{self.gateway.url}/dashboard/locks/team:a")
        expect(page.get_by_role("button", name="Break…")).to_be_visible()
        page.goto(f"{self.gateway.url}/dashboard")
        expect(page.get_by_text("Your key may not read the figures")).to_be_visible()

    def test_a_lock_that_the_key_may_not_see_is_told_as_such(self):
        self.forgive("status of 403")
        page = self.open("/locks/other:c")
        self.sign_in(page, "team")
        expect(page.get_by_role("alert")).to_contain_text("may not")

    def test_a_key_that_sees_nothing_is_told_so(self):
        page = self.open("/locks")
        self.sign_in(page, "blind")
        expect(page.get_by_text("Your key may not see any lock")).to_be_visible()
        page.get_by_role("link", name="Events", exact=True).click()
        expect(page.get_by_text("Your key may not see any lock")).to_be_visible()

    def lock(self, name):
        return self.gateway.call("GET", f"/locks/{name}", key="ops")[1]

    def test_signing_out_gives_back_what_the_page_holds_and_leaves_the_queue(self):
        self.gateway.acquire("taken", key="ops", ttl_ms=600_000)
        page = self.open("/locks/mine")
        self.sign_in(page, "ops")
        panel = page.get_by_role("region", name="Try it")
        panel.get_by_label("TTL").fill("3600")
        panel.get_by_role("button", name="Acquire").click()
        expect(panel.get_by_role("button", name="Release")).to_be_visible()
        page.get_by_role("link", name="Locks", exact=True).first.click()
        page.get_by_role("row").filter(has_text="taken").locator(".of-owner").click()
        expect(page.get_by_role("heading", name="taken")).to_be_visible()
        panel.get_by_label("Wait").fill("50")
        panel.get_by_role("button", name="Acquire").click()
        until("it waits", lambda: page.wait_for_timeout(50) or self.lock("taken")["waiter_count"] == 1)
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        until("it is given back", lambda: self.lock("mine")["state"] == "free")
        until("the queue is left", lambda: self.lock("taken")["waiter_count"] == 0)

    def test_who_signs_in_with_another_key_in_another_tab_is_somebody_else_here_too(self):
        self.gateway.acquire("other:c", key="ops", ttl_ms=600_000)
        self.gateway.acquire("team:a", key="ops", ttl_ms=600_000)
        context = self.context()
        page = self.open("/locks", context=context)
        self.sign_in(page, "ops")
        expect(page.get_by_role("row").filter(has_text="other:c")).to_have_count(1)
        other = self.open("/locks", context=context)
        # What the page asks for in the meantime it asks for as nobody, or as somebody who may not.
        self.forgive(r"status of 40[13] ")
        other.get_by_role("button", name="Sign out").click()
        self.sign_in(other, "team")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.get_by_role("row").filter(has_text="other:c")).to_have_count(0)
        expect(page.get_by_role("row").filter(has_text="team:a")).to_have_count(1)
        expect(page.get_by_role("banner")).to_contain_text("team")

    def test_a_key_that_reads_figures_only_sees_how_much_this_gateway_has(self):
        self.gateway.acquire("one", key="ops", ttl_ms=600_000)
        page = self.open()
        self.sign_in(page, "figures")
        expect(page.get_by_role("listitem").filter(has_text="Held, this gateway")).to_contain_text("1")
        expect(page.get_by_role("listitem").filter(has_text="Waiters, this gateway")).to_contain_text("0")
