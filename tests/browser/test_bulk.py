"""Everything that one owner holds is freed from the list: first it is shown what that hits, then the holders are asked or not."""

import time

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import lock, until


class Bulk(BrowserCase):
    KEYS = {"ops": ["--acquire", "*", "--view", "*", "--break", "team:"], "other": ["--acquire", "*", "--view", "*"]}

    def dialog(self, page, owner="ci-runner-8"):
        page.get_by_role("button", name="Free by owner…").click()
        dialog = page.get_by_role("dialog", name="Free what an owner holds")
        dialog.get_by_label("Owner").fill(owner)
        page.keyboard.press("Enter")
        return dialog

    def opened(self):
        self.leases = {
            name: self.gateway.acquire(name, owner=owner, ttl_ms=600_000)
            for name, owner in (("team:a", "ci-runner-8"), ("team:b", "ci-runner-8"), ("shared", "ci-runner-8"),
                                ("team:c", "ci-runner-80"))
        }
        page = self.open("/locks")
        self.sign_in(page, "ops")
        self.sent = []
        page.on("request", lambda request: request.url.endswith("/break") and self.sent.append(request.post_data_json))
        return page

    def fence(self, name):
        _, seen = self.gateway.call("GET", lock(name))
        return seen["holders"][0]["fencing_token"] if seen["holders"] else None

    def test_shows_what_it_hits_before_anything_is_sent(self):
        page = self.opened()
        dialog = self.dialog(page)
        expect(dialog).to_contain_text("ci-runner-8 holds 3 leases. Nothing has been sent yet.")
        expect(dialog.get_by_role("listitem")).to_have_count(3)
        expect(dialog.get_by_role("listitem").filter(has_text="shared")).to_contain_text("your key may not break it")
        expect(dialog.locator("button.danger")).to_have_text("Request release of 2 leases")
        # Nothing without a reason.
        dialog.locator("button.danger").click()
        expect(dialog.get_by_label("Reason")).to_be_focused()
        self.assertEqual(self.sent, [])

    def test_asks_all_of_them_first(self):
        page = self.opened()
        dialog = self.dialog(page)
        dialog.get_by_label("Reason").fill("runner 8 is replaced")
        dialog.locator("button.danger").click()
        expect(dialog.get_by_role("status")).to_have_text("2 of 2 leases: 2 asked.")
        self.assertEqual({body["fencing_token"] for body in self.sent}, {self.leases[name]["fencing_token"] for name in ("team:a", "team:b")})
        self.assertEqual({body["grace_ms"] for body in self.sent}, {30_000})
        self.assertEqual(self.fence("team:a"), self.leases["team:a"]["fencing_token"])
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Release requested").click()
        expect(page.locator(".grid .body .of-name a")).to_have_text(["team:a", "team:b"])

    def test_breaks_what_was_shown_and_nothing_that_came_later(self):
        page = self.opened()
        dialog = self.dialog(page)
        dialog.get_by_label("Reason").fill("runner 8 is gone")
        self.ask_nobody(page)
        # Meanwhile one is released, and passes on; and the owner has acquired another one.
        self.gateway.call("DELETE", lock("team:b"), headers={"Lock-Token": self.leases["team:b"]["token"]})
        second = self.gateway.acquire("team:b", owner="ci-runner-8", ttl_ms=600_000)
        self.gateway.acquire("team:d", owner="ci-runner-8", ttl_ms=600_000)
        self.forgive("status of 409")
        dialog.locator("button.danger").click()
        expect(dialog.get_by_role("status")).to_contain_text("1 broken")
        expect(dialog.get_by_role("status")).to_contain_text("1 another lease holds the lock by now")
        until("it is free", lambda: self.fence("team:a") is None)
        self.assertEqual(self.fence("team:b"), second["fencing_token"])
        self.assertIsNotNone(self.fence("team:d"))
        self.assertIsNotNone(self.fence("shared"))
        expect(dialog.locator("button.danger")).to_have_count(0)

    def test_names_the_locks_for_which_a_request_of_the_owner_waits(self):
        page = self.opened()
        self.gateway.acquire("queue", key="ops", owner="anna", ttl_ms=600_000)
        self.gateway.wait_for("queue", "ci-runner-8")
        dialog = self.dialog(page)
        expect(dialog).to_contain_text("Its requests also wait, and go on waiting, for queue.")
        expect(dialog.locator("button.danger")).to_have_text("Request release of 2 leases")

    def test_escape_in_the_midst_of_it_sends_no_more_and_shows_what_became_of_each(self):
        page = self.opened()
        for number in range(30):
            self.gateway.acquire(f"team:more:{number:02}", owner="ci-runner-8", ttl_ms=600_000)
        dialog = self.dialog(page)
        dialog.get_by_label("Reason").fill("runner 8 is gone")
        self.ask_nobody(page)
        page.route("**/break", lambda route: time.sleep(0.1) or route.continue_())
        dialog.locator("button.danger").click()
        expect(dialog.get_by_role("status")).to_contain_text("of 32 leases")
        page.keyboard.press("Escape")
        expect(dialog.get_by_role("button", name="Close").last).to_be_visible()
        expect(dialog.get_by_role("status")).to_contain_text("32 of 32 leases")
        expect(dialog.get_by_role("status")).to_contain_text("not sent")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)

    def test_a_gateway_that_is_asked_too_often_is_asked_again(self):
        page = self.opened()
        dialog = self.dialog(page)
        dialog.get_by_label("Reason").fill("runner 8 is gone")
        self.ask_nobody(page)
        self.forgive("status of 429")
        refused = []

        def once(route):
            if refused:
                return route.continue_()
            refused.append(route.request.url)
            route.fulfill(status=429, json={"code": "rate-limited", "title": "Too many requests", "retry_after_ms": 300})

        page.route("**/break", once)
        dialog.locator("button.danger").click()
        expect(dialog.get_by_role("status")).to_have_text("2 of 2 leases: 2 broken.")
        self.assertEqual(len(refused), 1)

    def test_an_owner_is_compared_exactly(self):
        page = self.opened()
        dialog = self.dialog(page, "ci-runner")
        expect(dialog).to_contain_text("holds no lock that your key may see")
        dialog.get_by_role("button", name="Another owner").click()
        expect(dialog.get_by_label("Owner")).to_have_value("ci-runner")

    def test_is_not_offered_to_a_key_that_breaks_nothing(self):
        self.gateway.acquire("team:a", owner="ci-runner-8", ttl_ms=600_000)
        page = self.open("/locks")
        self.sign_in(page, "other")
        expect(page.locator(".grid .body .row")).to_have_count(1)
        expect(page.get_by_role("button", name="Free by owner…")).to_have_count(0)

    def test_every_width(self):
        page = self.opened()
        dialog = self.dialog(page)
        expect(dialog.get_by_role("listitem")).to_have_count(3)
        for width in (390, 768, 1440):
            page.set_viewport_size({"width": width, "height": 844})
            self.assert_fits(page)
            self.assertFalse(dialog.evaluate("(element) => element.scrollWidth > element.clientWidth + 1"), width)
