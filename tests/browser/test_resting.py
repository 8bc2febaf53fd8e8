"""A lock that was released before its minimum hold was over rests: nobody holds it, and nobody gets it yet."""

import re

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import lock, until
from test_shared import LOCK, holder


class Resting(BrowserCase):
    def rest(self, name, min_hold_ms, **body):
        lease = self.gateway.acquire(name, ttl_ms=600_000, min_hold_ms=min_hold_ms, **body)
        self.gateway.call("DELETE", lock(name), headers={"Lock-Token": lease["token"]})
        self.assertEqual(self.gateway.call("GET", lock(name))[1]["state"], "resting")
        return lease

    def test_is_in_the_list_and_counts_down_until_it_is_over(self):
        self.rest("nightly", 500_000)
        page = self.open("/locks")
        row = page.get_by_role("row").filter(has_text="nightly")
        expect(row.locator(".state")).to_have_text("resting")
        expect(row.locator(".of-owner")).to_have_text("nobody")
        expect(row.locator(".of-left")).to_contain_text(re.compile("[78]m"))
        expect(page.locator("main .count")).to_have_text("1 lock held or resting")
        # No event tells that it rests: the list does.
        self.rest("shortly", 20_000)
        page.reload()
        shortly = page.get_by_role("row").filter(has_text="shortly")
        expect(shortly.locator(".state")).to_have_text("resting")
        expect(shortly).to_have_count(0, timeout=40_000)
        expect(row).to_have_count(1)

    def test_its_page_says_so_and_ends_the_rest(self):
        lease = self.rest("nightly", 500_000)
        page = self.open("/locks/nightly")
        expect(page.locator(".title .state")).to_have_text("resting")
        panel = page.get_by_role("region", name="Holder")
        expect(panel).to_contain_text("nobody gets it until then")
        expect(panel).to_contain_text(f"fencing token {lease['fencing_token']}")
        self.assert_fits(page)
        panel.get_by_role("button", name=f"End the rest {lease['fencing_token']}").click()
        dialog = page.get_by_role("dialog", name="End the rest")
        expect(dialog.get_by_label("Reason")).to_be_focused()
        dialog.get_by_label("Reason").fill("deploy it once more")
        page.keyboard.press("Enter")
        expect(dialog).to_have_count(0)
        expect(page.locator(".title .state")).to_have_text("free")
        self.gateway.acquire("nightly", ttl_ms=600_000)

    def test_a_rest_that_is_over_meanwhile_is_not_ended(self):
        self.rest("nightly", 20_000)
        page = self.open("/locks/nightly")
        page.get_by_role("button", name="End the rest").click()
        dialog = page.get_by_role("dialog", name="End the rest")
        expect(dialog.get_by_role("alert")).to_have_text("The rest is over by now: there is nothing to end.", timeout=30_000)
        dialog.get_by_role("button", name="Close").last.click()
        expect(page.locator(".title .state")).to_have_text("free")

    def test_who_waits_gets_it_when_the_rest_is_over(self):
        self.rest("nightly", 20_000)
        waiter = self.gateway.wait_for("nightly", "next")
        page = self.open("/locks/nightly")
        expect(page.locator(".title .state")).to_have_text("resting")
        expect(page.get_by_role("region", name="Holder")).to_contain_text("next", timeout=60_000)
        until("it is granted", lambda: waiter.lease)

    def test_slots_rest_beside_those_that_are_held(self):
        resting = [{"fencing_token": 5, "slot": 2, "available_in_ms": 412_000}, {"fencing_token": 6, "slot": 0, "available_in_ms": 12_000}]
        for holders in ([holder(7, 1)], [holder(7, 1), holder(9, 3)], []):
            context = self.context()
            body = {"name": "gpu", "state": "held" if holders else "resting", "holders": holders, "holder_count": len(holders),
                    "resting": resting, "waiters": [], "waiter_count": 0}
            context.route(LOCK, lambda route, _, body=body: route.fulfill(json=body))
            page = self.open("/locks/gpu", context=context)
            rests = page.locator(".rests li")
            expect(rests).to_have_count(2)
            expect(rests.nth(0)).to_contain_text("slot 0 rests")
            expect(rests.nth(1)).to_contain_text("slot 2 rests")
            expect(rests.nth(1)).to_contain_text("6m")
            for width in (360, 390, 1440):
                page.set_viewport_size({"width": width, "height": 844})
                self.assert_fits(page)
            context.close()


class Keys(BrowserCase):
    KEYS = {"ops": ["--acquire", "*", "--view", "*"]}

    def test_who_may_not_break_ends_no_rest(self):
        lease = self.gateway.acquire("nightly", ttl_ms=600_000, min_hold_ms=500_000)
        self.gateway.call("DELETE", lock("nightly"), headers={"Lock-Token": lease["token"]})
        page = self.open("/locks/nightly")
        self.sign_in(page, "ops")
        expect(page.locator(".title .state")).to_have_text("resting")
        expect(page.get_by_role("button", name="End the rest")).to_have_count(0)
