"""What an operator does: watch locks come and go, look at one, take it away."""

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import until


class Watch(BrowserCase):
    KEYS = {"ops": ["--acquire", "*", "--view", "*", "--break", "*", "--metrics"]}

    def test_signs_in_watches_a_lock_a_waiter_and_a_break(self):
        page = self.open("/locks")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        self.sign_in(page, "ops")
        # The page that was asked for, and no key in its address or in what it keeps.
        expect(page.get_by_text("No lock is held")).to_be_visible()
        self.assertTrue(page.url.endswith("/dashboard/locks"))
        self.assertNotIn("lgk_", page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"))

        lease = self.gateway.acquire("deploy:prod", owner="ci-runner-7", ttl_ms=60_000, metadata={"job": "4711"})
        row = page.get_by_role("row").filter(has_text="deploy:prod")
        expect(row).to_contain_text("held")
        expect(row).to_contain_text("ci-runner-7")

        waiter = self.gateway.wait_for("deploy:prod", "ci-runner-9")
        # Beside the number there may be a chart by now, which has a text of its own.
        expect(row.locator(".of-waiters .waiters")).to_have_text("1")
        row.get_by_role("link").click()

        expect(page.get_by_role("heading", level=1, name="deploy:prod")).to_be_visible()
        holder = page.get_by_role("region", name="Holder")
        expect(holder).to_contain_text("ci-runner-7")
        expect(holder).to_contain_text("4711")
        expect(page.get_by_role("region", name="Queue")).to_contain_text("ci-runner-9")
        timeline = page.get_by_role("region", name="Last events")
        expect(timeline).to_contain_text("acquired")
        expect(timeline).to_contain_text("queued")

        page.get_by_role("button", name="Break…").click()
        dialog = page.get_by_role("dialog", name="Break the lock")
        expect(dialog).to_contain_text("ci-runner-7")
        expect(dialog).to_contain_text("ci-runner-9")
        expect(dialog).to_contain_text(str(lease["fencing_token"]))
        # The holder is asked first unless somebody chooses otherwise, and never without a reason.
        expect(dialog.get_by_role("radio", name="Ask first")).to_be_checked()
        expect(dialog.locator("button.danger")).to_have_text("Request release")
        dialog.locator("button.danger").click()
        expect(dialog.get_by_label("Reason")).to_be_focused()
        dialog.get_by_label("Reason").fill("runner 7 is gone, asked in #ops")
        self.ask_nobody(page)
        expect(dialog.locator("button.danger")).to_have_text("Break it now")
        self.assertEqual(self.fence(), lease["fencing_token"])
        dialog.get_by_role("button", name="Break it now").click()
        expect(dialog).to_have_count(0)

        expect(holder).to_contain_text("ci-runner-9")
        waiter.join(10)
        self.assertEqual(self.fence(), waiter.lease["fencing_token"])
        expect(timeline).to_contain_text("broken")
        expect(timeline.locator("li.broken")).to_contain_text("ci-runner-7by ops: runner 7 is gone, asked in #ops")

        page.get_by_role("link", name="Events", exact=True).click()
        broken = page.get_by_role("row").filter(has_text="broken")
        expect(broken).to_contain_text("deploy:prod")
        expect(broken.locator(".of-owner")).to_have_text("ci-runner-7")
        expect(broken.locator(".of-details")).to_have_text("by ops: runner 7 is gone, asked in #ops")

    def test_a_lock_that_ends_leaves_the_table(self):
        page = self.open("/locks")
        self.sign_in(page, "ops")
        lease = self.gateway.acquire("short", ttl_ms=60_000)
        self.gateway.acquire("expires", ttl_ms=3_000)
        row = page.get_by_role("row").filter(has_text="short")
        expect(row).to_have_count(1)
        expect(page.get_by_role("row").filter(has_text="expires")).to_have_count(1)
        self.gateway.call("DELETE", "/locks/short", headers={"Lock-Token": lease["token"]})
        expect(row).to_contain_text("released")
        expect(row).to_have_count(0)
        expect(page.get_by_role("row").filter(has_text="expires")).to_have_count(0)

    def test_a_break_never_hits_somebody_else(self):
        lease = self.gateway.acquire("passed-on", owner="first", ttl_ms=60_000)
        page = self.open("/locks/passed-on")
        self.sign_in(page, "ops")
        page.get_by_role("button", name="Break…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill("gone")
        self.ask_nobody(page)
        self.gateway.call("DELETE", "/locks/passed-on", headers={"Lock-Token": lease["token"]})
        second = self.gateway.acquire("passed-on", owner="second", ttl_ms=60_000)
        expect(dialog).to_contain_text("Another caller holds the lock by now: second")
        expect(dialog.get_by_role("button", name="Break it now")).to_have_count(0)
        dialog.get_by_role("button", name="Look at the new holder").click()
        expect(dialog).to_contain_text(str(second["fencing_token"]))
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        _, lock = self.gateway.call("GET", "/locks/passed-on")
        self.assertEqual(lock["holders"][0]["owner"], "second")

    def test_a_break_that_comes_too_late_says_so_and_hits_nobody(self):
        # The page has not heard of the new holder when the break is sent.
        self.forgive("status of 409")
        first = self.gateway.acquire("late", owner="first", ttl_ms=60_000)
        page = self.open("/locks/late")
        self.sign_in(page, "ops")
        page.get_by_role("button", name="Break…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill("gone")
        self.ask_nobody(page)
        held = []
        page.route("**/break", lambda route: held.append(route))
        dialog.get_by_role("button", name="Break it now").click()
        until("the break is sent", lambda: page.wait_for_timeout(20) or held)
        self.gateway.call("DELETE", "/locks/late", headers={"Lock-Token": first["token"]})
        self.gateway.acquire("late", owner="second", ttl_ms=60_000)
        held[0].continue_()
        expect(dialog).to_contain_text("Another caller holds the lock by now: second")
        _, lock = self.gateway.call("GET", "/locks/late")
        self.assertEqual(lock["holders"][0]["owner"], "second")

    def fence(self):
        return self.gateway.call("GET", "/locks/deploy:prod")[1]["holders"][0]["fencing_token"]
