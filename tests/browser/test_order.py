"""A lock that never goes back: the page shows the order that the lock remembers, and sets or forgets it."""

import re
import subprocess
import time

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import Gateway, lock
from redis_server import Redis

LOCK = re.compile(r"^http://[^/]+/locks/deploy$")
ORDER = re.compile(r"^http://[^/]+/locks/deploy/granted-order$")
# As long as an owner may be.
LONG = "run of " + "a-branch-with-a-long-name " * 4


class OrderCase(BrowserCase):
    KEYS = {
        "ops": ["--acquire", "*", "--view", "*", "--order", "*"],
        "ci": ["--acquire", "*", "--view", "*"],
    }

    def new_gateway(self):
        self.redis = Redis()
        self.addCleanup(self.redis.end)
        return Gateway(self.KEYS, store=self.redis.url)

    def deploy(self, order, key="ci", **more):
        """The lock is granted for this order, and released."""
        lease = self.gateway.acquire("deploy", key=key, order=order, ttl_ms=600_000, **more)
        self.gateway.call("DELETE", lock("deploy"), headers={"Lock-Token": lease["token"]})
        return lease

    def signed_in(self, key, **options):
        page = self.open("/locks/deploy", **options)
        self.sign_in(page, key)
        expect(page.locator(".live.is-live")).to_be_visible()
        return page

    def ask(self, page):
        page.get_by_role("button", name="Order…").click()
        return page.get_by_role("dialog", name="Set the order")

    def remembered(self):
        return self.gateway.call("GET", lock("deploy"))[1].get("granted_order")


class Shown(OrderCase):
    def test_the_line_names_the_grant_and_follows_the_next_one(self):
        self.deploy(41902, owner="run 41902")
        page = self.signed_in("ci")
        line = page.locator(".never-below")
        expect(line).to_have_text(re.compile(r"Never below 41902 \(granted .*\d\d:\d\d:\d\d to run 41902 by the key ci\)"))
        expect(page.locator(".title .state")).to_have_text("free")
        self.gateway.acquire("deploy", key="ci", order=41903, ttl_ms=600_000)
        expect(line).to_have_text(re.compile(r"Never below 41903 \(granted .*\d\d:\d\d:\d\d by the key ci\)"))
        expect(page.get_by_role("region", name="Holder").locator("div:has(> dt:text-is('Order')) dd")).to_have_text("41903")
        expect(page.get_by_role("region", name="Last events")).to_contain_text("for 10m 00s, order 41903")

    def test_a_lock_that_remembers_no_order_has_no_line(self):
        lease = self.gateway.acquire("deploy", key="ci", ttl_ms=600_000)
        page = self.signed_in("ci")
        expect(page.get_by_role("region", name="Holder")).to_contain_text(str(lease["fencing_token"]))
        expect(page.locator(".never-below")).to_have_count(0)
        expect(page.get_by_role("region", name="Holder")).not_to_contain_text("Order")

    def test_a_rollback_is_named_beside_the_holder_and_in_history_and_events(self):
        self.deploy(41902)
        page = self.signed_in("ops")
        self.gateway.acquire("deploy", key="ops", order=41800, rollback="the release is broken", ttl_ms=600_000)
        expect(page.get_by_role("region", name="Holder")).to_contain_text("41800, a rollback: the release is broken")
        expect(page.locator(".never-below")).to_contain_text("Never below 41902")
        expect(page.get_by_role("region", name="Last events")).to_contain_text("rollback to 41800: the release is broken")
        first = page.get_by_role("region", name="History").locator("ol > li").first
        expect(first).to_contain_text("rollback to 41800: the release is broken")

    def test_the_history_says_the_order_of_each_lease(self):
        lease = self.gateway.acquire("deploy", key="ci", order=41902, ttl_ms=600_000)
        time.sleep(1.5)
        self.gateway.call("DELETE", lock("deploy"), headers={"Lock-Token": lease["token"]})
        page = self.signed_in("ci")
        first = page.get_by_role("region", name="History").locator("ol > li").first
        expect(first).to_contain_text(f"order 41902, fencing token {lease['fencing_token']}")

    def test_the_longest_texts_fit_every_window(self):
        self.deploy(2**53 - 1, owner=LONG)
        self.gateway.acquire("deploy", key="ops", order=2**53 - 2, rollback="w" * 200, owner=LONG, ttl_ms=600_000)
        page = self.signed_in("ops")
        expect(page.locator(".never-below")).to_contain_text("Never below 9007199254740991")
        history = page.get_by_role("region", name="History")
        expect(history).to_contain_text("rollback to 9007199254740990")
        dialog = self.ask(page)
        for width in (360, 390, 768, 1024, 1440):
            page.set_viewport_size({"width": width, "height": 844})
            self.assert_fits(page)
            for part in (page.locator(".never-below"), history, dialog):
                self.assertFalse(part.evaluate("(part) => part.scrollWidth > part.clientWidth + 1"), width)


class Setting(OrderCase):
    def test_a_lower_order_is_set_with_a_reason_and_every_window_hears_it(self):
        self.deploy(1_795_170_000_000, owner="run 7")
        other = self.signed_in("ci")
        page = self.signed_in("ops")
        dialog = self.ask(page)
        expect(dialog).to_contain_text("1795170000000 (granted")
        order = dialog.get_by_label("Order", exact=True)
        expect(order).to_be_focused()
        page.keyboard.type("41902")
        dialog.get_by_label("Reason").fill("a script sent milliseconds")
        page.keyboard.press("Enter")
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("status").first).to_have_text("The lock is granted for 41902 and higher orders.")
        self.assertEqual(self.remembered(), 41902)
        for window in (page, other):
            expect(window.locator(".never-below")).to_have_text("Never below 41902")
            event = window.get_by_role("region", name="Last events").locator("li").first
            expect(event).to_contain_text("order-set")
            expect(event).to_contain_text("to 41902 by ops: a script sent milliseconds")
            expect(event).not_to_contain_text("owner")
        page.get_by_role("link", name="Events", exact=True).click()
        page.get_by_role("button", name="order-set").click()
        row = page.get_by_role("row").filter(has_text="deploy")
        expect(row).to_contain_text("to 41902 by ops: a script sent milliseconds")
        expect(row).not_to_contain_text("not said")

    def test_an_order_is_forgotten(self):
        self.deploy(41902)
        page = self.signed_in("ops")
        dialog = self.ask(page)
        dialog.get_by_label("Forget the order").check()
        expect(dialog.get_by_label("Order", exact=True)).to_be_disabled()
        dialog.get_by_label("Reason").fill("the numbers begin again")
        dialog.get_by_role("button", name="Forget", exact=True).click()
        expect(dialog).to_have_count(0)
        expect(page.locator(".never-below")).to_have_count(0)
        expect(page.get_by_role("region", name="Last events")).to_contain_text("forgotten by ops: the numbers begin again")
        self.assertIsNone(self.remembered())
        # An order can be set where none is remembered, and there is none to forget.
        dialog = self.ask(page)
        expect(dialog).to_contain_text("the lock remembers no order")
        expect(dialog.get_by_label("Forget the order")).to_have_count(0)
        dialog.get_by_label("Order", exact=True).fill("1")
        dialog.get_by_label("Reason").fill("restored from a backup")
        page.keyboard.press("Enter")
        expect(page.locator(".never-below")).to_have_text("Never below 1")

    def test_a_wrong_number_or_no_reason_is_told_beside_the_field_and_nothing_is_sent(self):
        self.deploy(41902)
        context = self.context()
        sent = []
        context.route(ORDER, lambda route: (sent.append(route.request.post_data), route.abort()))
        page = self.signed_in("ops", context=context)
        dialog = self.ask(page)
        order, reason = dialog.get_by_label("Order", exact=True), dialog.get_by_label("Reason")
        for text, told in (("", "Enter a whole number"), ("-1", "Enter a whole number"), ("1e3", "Enter a whole number"),
                           (str(2**53), "Enter a whole number"), ("41902", "remembers this order already")):
            order.fill(text)
            reason.fill("why")
            page.keyboard.press("Enter")
            expect(dialog.get_by_role("alert")).to_contain_text(told)
            expect(order).to_be_focused()
            expect(order).to_have_attribute("aria-invalid", "true")
        order.fill("41903")
        reason.fill(" ")
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("alert")).to_have_text("Enter a reason.")
        expect(reason).to_be_focused()
        self.assertEqual(sent, [])

    def test_an_order_that_was_granted_meanwhile_is_not_replaced_before_it_is_seen(self):
        self.deploy(41902)
        page = self.signed_in("ops")
        dialog = self.ask(page)
        dialog.get_by_label("Reason").fill("a mistake")
        self.deploy(41910)
        expect(dialog.get_by_role("alert")).to_have_text("By now the lock remembers the order 41910.")
        expect(dialog.get_by_role("button", name="Set", exact=True)).to_have_count(0)
        dialog.get_by_role("button", name="Decide again").click()
        order = dialog.get_by_label("Order", exact=True)
        expect(order).to_have_value("41910")
        expect(order).to_be_focused()
        page.keyboard.type("41800")
        page.keyboard.press("Enter")
        expect(dialog).to_have_count(0)
        self.assertEqual(self.remembered(), 41800)

    def test_a_grant_that_the_page_has_not_seen_refuses_the_change(self):
        self.forgive("status of 409")
        self.deploy(41902)
        context = self.context()
        seen = []

        def one(route):
            # The page sees the lock as it was until it sends the change.
            seen.append(seen[0] if seen else route.fetch().text())
            route.fulfill(body=seen[0], content_type="application/json")

        context.route(LOCK, one)
        page = self.signed_in("ops", context=context)
        dialog = self.ask(page)
        self.deploy(41910)
        dialog.get_by_label("Order", exact=True).fill("41800")
        dialog.get_by_label("Reason").fill("a mistake")
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("alert")).to_contain_text("The lock remembers the order 41910. Nothing was changed.")
        self.assertEqual(self.remembered(), 41910)

    def test_a_change_without_an_answer_may_have_been_made(self):
        self.forgive("net::ERR_FAILED")
        self.deploy(41902)
        context = self.context()
        context.route(ORDER, lambda route: (route.fetch(), route.abort()))
        page = self.signed_in("ops", context=context)
        dialog = self.ask(page)
        dialog.get_by_label("Order", exact=True).fill("41800")
        dialog.get_by_label("Reason").fill("a mistake")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("The order may be set. Asking again is safe")
        expect(dialog).to_contain_text("By now the lock remembers the order 41800.")


class Permitted(OrderCase):
    def test_a_key_without_the_permission_sees_the_order_and_changes_nothing(self):
        self.deploy(41902)
        page = self.signed_in("ci")
        expect(page.locator(".never-below")).to_contain_text("Never below 41902")
        expect(page.locator(".curl")).to_contain_text("inspect it")
        expect(page.locator(".curl")).not_to_contain_text("set its order")
        expect(page.get_by_role("button", name="Order…")).to_have_count(0)

    def test_a_dialog_goes_with_the_permission(self):
        self.deploy(41902)
        page = self.signed_in("ops")
        dialog = self.ask(page)
        self.gateway.permit("ops", order=["other:"])
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("button", name="Order…")).to_have_count(0)

    def test_the_line_for_a_terminal_sets_the_order(self):
        self.deploy(41902)
        page = self.signed_in("ops")
        line = page.locator(".curl li").filter(has_text="set its order").locator("code").inner_text()
        line = line.replace('"order":41902,', '"order":41800,')
        done = subprocess.run(
            ["bash", "-c", line], env={"LATCHGATE_KEY": self.gateway.keys["ops"], "PATH": "/usr/bin:/bin"},
            capture_output=True, text=True, check=True,
        )
        self.assertIn('"granted_order":41800', done.stdout)
        expect(page.locator(".never-below")).to_have_text("Never below 41800")


class WithoutKeys(OrderCase):
    KEYS = None

    def test_the_line_names_no_key_and_everybody_sets_the_order(self):
        self.deploy(41902, key=None, owner="run 41902")
        page = self.open("/locks/deploy")
        expect(page.locator(".never-below")).to_have_text(re.compile(r"\(granted .*\d\d:\d\d:\d\d to run 41902\)"))
        dialog = self.ask(page)
        page.keyboard.type("41800")
        dialog.get_by_label("Reason").fill("a mistake")
        page.keyboard.press("Enter")
        expect(page.get_by_role("region", name="Last events")).to_contain_text("to 41800: a mistake")
