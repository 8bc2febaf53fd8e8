"""Accessibility, by axe-core: on every page, light and dark, wide and as a phone, nothing serious."""

import os
from pathlib import Path

from playwright.sync_api import expect

from browser import BrowserCase
from test_attention import LIST, SAMPLES, STATS, AttentionCase, ago, leases
from test_lanes import entries
from test_order import OrderCase
from test_reserve import Faked, reserved

AXE = Path(os.environ.get("AXE", "axe.min.js"))
SERIOUS = ("serious", "critical")
LOOKS = [
    (theme, size)
    for theme in ("light", "dark")
    for size in ({"width": 1440, "height": 900}, {"width": 768, "height": 1024}, {"width": 390, "height": 800})
]


class Axe(BrowserCase):
    KEYS = {
        "ops": ["--acquire", "*", "--view", "*", "--break", "*", "--metrics"],
        "team": ["--acquire", "team:", "--view", "team:", "--metrics"],
    }

    def assert_accessible(self, page, where):
        # What fades in is not looked at half-way.
        page.evaluate("Promise.all(document.getAnimations().filter((a) => a.effect?.getTiming().iterations === 1)"
                      ".map((a) => a.finished.catch(() => {})))")
        page.evaluate(AXE.read_text())
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        bad = [
            f"{where}: {rule['id']} ({rule['impact']}) {rule['help']}: "
            + "; ".join(f"{node['target']} {node.get('failureSummary', '')}" for node in rule["nodes"][:3])
            for rule in found["violations"]
            if rule["impact"] in SERIOUS
        ]
        self.assertEqual(bad, [])

    def assert_pane(self, page, button, dialog, look):
        button.click()
        expect(page.get_by_role("dialog", name=dialog)).to_be_visible()
        self.assert_accessible(page, f"{dialog}, {look}")
        self.assert_fits(page)

    def test_what_a_key_of_some_prefixes_is_told(self):
        for theme, size in LOOKS:
            context = self.context(color_scheme=theme, viewport=size, reduced_motion="reduce")
            look = f"{theme} {size['width']}"
            page = self.open("/locks", context=context)
            self.sign_in(page, "team")
            expect(page.get_by_role("button", name="Copy the line")).to_be_visible()
            self.assert_accessible(page, f"nothing to see, {look}")
            self.assert_fits(page)
            page.get_by_role("link", name="Overview", exact=True).click()
            expect(page.get_by_text("There may be others")).to_be_visible()
            self.assert_accessible(page, f"overview, {look}")
            self.assert_fits(page)
            context.close()

    def test_every_page_in_every_look(self):
        self.gateway.acquire("deploy:prod", owner="ci-runner-7", ttl_ms=600_000, metadata={"job": "4711"})
        self.gateway.acquire("ends-soon", ttl_ms=86_000_000)
        for theme, size in LOOKS:
            context = self.context(color_scheme=theme, viewport=size, reduced_motion="reduce")
            look = f"{theme} {size['width']}"
            page = self.open(context=context)
            expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
            self.assert_accessible(page, f"sign in, {look}")
            self.sign_in(page, "ops")
            expect(page.get_by_role("heading", name="Health")).to_be_visible()
            self.assert_accessible(page, f"overview, {look}")
            page.get_by_role("link", name="Locks", exact=True).click()
            row = page.get_by_role("row").filter(has_text="deploy:prod")
            expect(row).to_have_count(1)
            self.assert_accessible(page, f"locks, {look}")
            self.assert_pane(page, page.get_by_role("button", name="Free by owner…"), "Free what an owner holds", look)
            page.get_by_label("Owner, exactly").fill("ci-runner-7")
            page.keyboard.press("Enter")
            expect(page.get_by_role("dialog").get_by_role("listitem")).to_have_count(1)
            self.assert_accessible(page, f"what a break of all hits, {look}")
            page.keyboard.press("Escape")
            self.assert_pane(page, page.get_by_role("button", name="Open lock…"), "Open a lock", look)
            page.keyboard.press("Enter")
            expect(page.get_by_role("alert")).to_be_visible()
            self.assert_accessible(page, f"no name of a lock, {look}")
            page.keyboard.press("Escape")
            page.locator("summary", has_text="Export").click()
            self.assert_accessible(page, f"the formats of an export, {look}")
            page.locator("summary", has_text="Export").click()
            page.get_by_label("Name begins with").fill("no-such")
            expect(page.get_by_text("No held locks match")).to_be_visible()
            self.assert_accessible(page, f"no locks, {look}")
            # Nobody waits for as long as all looks take.
            waiter = f"ci-runner-9, {look}"
            self.gateway.wait_for("deploy:prod", waiter, wait_ms=50_000)
            page.goto(f"{self.gateway.url}/dashboard/locks/deploy:prod")
            expect(page.get_by_role("region", name="Queue")).to_contain_text(waiter)
            expect(page.get_by_role("region", name="History").locator("ol > li")).to_have_count(1)
            self.try_it(page)
            self.assert_accessible(page, f"one lock, {look}")
            page.get_by_role("button", name="latchgate", exact=True).click()
            self.assert_accessible(page, f"lines for latchgate, {look}")
            page.get_by_role("button", name="Break…").click()
            self.assert_accessible(page, f"break, {look}")
            page.get_by_label("Reason").fill("because")
            self.ask_nobody(page)
            expect(page.get_by_role("button", name="Break it now")).to_be_visible()
            self.assert_accessible(page, f"break at once, {look}")
            page.keyboard.press("Escape")
            page.goto(f"{self.gateway.url}/dashboard/locks/free:one")
            expect(page.get_by_text("Nobody holds the lock.")).to_be_visible()
            self.assert_accessible(page, f"a free lock, {look}")
            page.get_by_role("link", name="Events", exact=True).click()
            expect(page.locator(".live.is-live")).to_be_visible()
            lease = self.gateway.acquire("deploy:staging", owner="anna", ttl_ms=60_000)
            self.gateway.call("DELETE", "/locks/deploy:staging", headers={"Lock-Token": lease["token"]})
            expect(page.get_by_role("row").filter(has_text="released").first).to_be_visible()
            self.assert_accessible(page, f"events, {look}")
            page.keyboard.press("?")
            expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
            self.assert_accessible(page, f"help, {look}")
            page.keyboard.press("Escape")
            page.goto(f"{self.gateway.url}/dashboard/nowhere")
            expect(page.get_by_text("There is no such page")).to_be_visible()
            self.assert_accessible(page, f"no such page, {look}")
            context.close()


class Attending(AttentionCase):
    assert_accessible = Axe.assert_accessible

    def test_all_that_needs_attention_and_a_lock_that_is_held_longer_than_usual(self):
        for name in ("deploy", "build"):
            self.gateway.acquire(name, owner="anna", ttl_ms=600_000)
        self.gateway.call("POST", "/locks/build/break", {"reason": "it hangs"})
        self.gateway.acquire("part", owner="job 4711", ttl_ms=600_000)
        for theme, size in LOOKS:
            context = self.context(color_scheme=theme, viewport=size, reduced_motion="reduce")
            look = f"{theme} {size['width']}"
            # Nobody waits for as long as all looks take.
            self.gateway.wait_for("deploy", f"ci-7, {look}", 40_000)
            self.held_for(context, 2_000)
            # Of the others the numbers are smaller.
            self.usually(context, leases(30, 60)[:20] + entries())
            change = {"at": ago(500), "kind": "failed-over", "text": "master moved from a to b"}
            self.changed(context, STATS, lambda body, _: body.update(store_changes=[change]))
            context.route(SAMPLES, lambda route: route.fulfill(json={"instance": "another", "interval_ms": 10_000, "samples": []}))

            def listed(body, _):
                for one in body["locks"]:
                    mark = {"acquired_at": ago(2_000)} if one["name"] == "deploy" else {"waiting": True}
                    one["holders"][0].update(mark)

            self.changed(context, LIST, listed)
            page = self.open(context=context)
            panel = page.get_by_role("region", name="Needs attention")
            for heading in ("Longest waits", "Held longer than usual", "Store and gateway"):
                expect(panel.locator("h3").filter(has_text=heading)).to_be_visible()
            self.assert_accessible(page, f"what needs attention, {look}")
            self.assert_fits(page)
            page.goto(f"{self.gateway.url}/dashboard/locks/deploy")
            expect(page.locator(".longer")).to_be_visible()
            timeline = page.get_by_role("region", name="Timeline")
            timeline.locator(".lane .span").first.focus()
            expect(timeline.locator(".at")).to_contain_text("held it")
            self.assert_accessible(page, f"a lock over time, {look}")
            self.assert_fits(page)
            page.close()


class Reserved(Faked):
    assert_accessible = Axe.assert_accessible

    def test_a_reservation_and_its_dialogs(self):
        for theme, size in LOOKS:
            context = self.faked([reserved()], color_scheme=theme, viewport=size, reduced_motion="reduce")
            look = f"{theme} {size['width']}"
            page = self.open("/locks", context=context)
            expect(page.locator(".row.reserved")).to_have_count(1)
            self.assert_accessible(page, f"locks, {look}")
            page.goto(f"{self.gateway.url}/dashboard/locks/staging")
            for button, dialog in (("End reservation…", "End the reservation"), ("Reserve…", "Reserve the lock")):
                page.get_by_role("button", name=button).click()
                expect(page.get_by_role("dialog", name=dialog)).to_be_visible()
                if button == "Reserve…":
                    # The reason is missing.
                    page.keyboard.press("Enter")
                    expect(page.get_by_role("alert")).to_be_visible()
                self.assert_accessible(page, f"{dialog}, {look}")
                page.keyboard.press("Escape")
                expect(page.get_by_role("dialog")).to_have_count(0)
            self.assert_accessible(page, f"one lock, {look}")
            context.close()


class Ordered(OrderCase):
    assert_accessible = Axe.assert_accessible

    def test_an_order_and_its_dialog(self):
        self.deploy(41902, owner="run 41902")
        self.gateway.acquire("deploy", key="ops", order=41800, rollback="the release is broken", ttl_ms=600_000)
        for theme in ("light", "dark"):
            for width in (390, 1440):
                look = f"{theme} {width}"
                page = self.signed_in("ops", color_scheme=theme, viewport={"width": width, "height": 844}, reduced_motion="reduce")
                expect(page.get_by_role("region", name="History")).to_contain_text("rollback to 41800")
                self.assert_accessible(page, f"an order, {look}")
                dialog = self.ask(page)
                # The reason is missing, and the number is that of now.
                page.keyboard.press("Enter")
                expect(dialog.get_by_role("alert")).to_have_count(2)
                self.assert_accessible(page, f"the dialog, {look}")
                dialog.get_by_label("Forget the order").check()
                self.assert_accessible(page, f"the dialog that forgets, {look}")
                page.context.close()
