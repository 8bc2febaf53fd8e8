"""The time of a lock as bars, how long it is usually held and waited for, and estimates that are called so."""

import datetime
import re

from playwright.sync_api import expect

from gateway import until
from test_attention import ONE, AttentionCase, ago, leases


def ended(how, fence, begun, held, **more):
    return {**leases(1, 1)[0], "fencing_token": fence, "ended": how, "acquired_at": ago(begun), "ended_at": ago(begun - held), "owner": f"ci-{fence}", **more}


def entries():
    """Five leases of the last hour, each with another end."""
    return [
        ended("released", 9, 600, 120, waited_ms=60_000),
        ended("expired", 8, 1_800, 300),
        ended("broken", 7, 2_700, 200),
        ended("lost", 6, 3_000, 100),
        {**ended(None, 5, 3_400, 0), "ended_at": None, "ended_at_latest": ago(3_300)},
    ]


class Lanes(AttentionCase):
    def opened(self, entries, **options):
        context = self.context(timezone_id="UTC", **options)
        self.usually(context, entries)
        page = self.open("/locks/deploy", context=context)
        return page, page.get_by_role("region", name="Timeline")

    def test_each_lease_is_a_bar_with_its_end_and_each_wait_a_thin_one(self):
        page, panel = self.opened(entries())
        for kind in ("released", "expired", "broken", "lost", "unseen", "waiting"):
            expect(panel.locator(f".lane .span.{kind}")).to_have_count(1)
        # What a colour says, a word says too.
        expect(panel.locator(".legend li")).to_have_text(["end not seen", "lost", "broken", "expired", "waited", "released"])
        broken = panel.get_by_role("button", name=re.compile("^ci-7, broken, 3m 20s, from "))
        broken.hover()
        expect(panel.locator(".at")).to_contain_text("ci-7 held it 3m 20s")
        expect(panel.locator(".at")).to_contain_text("broken")
        # An hour is shown, and the bars lie where they were.
        expect(panel.get_by_role("button", name="1 h")).to_have_attribute("aria-pressed", "true")
        track = panel.locator(".lane").first.bounding_box()
        bar = broken.bounding_box()
        self.assertAlmostEqual((bar["x"] - track["x"]) / track["width"], 900 / 3600, delta=0.03)
        self.assertAlmostEqual(bar["width"] / track["width"], 200 / 3600, delta=0.01)

    def test_who_holds_the_lock_and_who_waits_now(self):
        self.gateway.acquire("deploy", owner="anna", ttl_ms=600_000)
        self.gateway.wait_for("deploy", "ci-7", 55_000)
        page, panel = self.opened([])
        expect(panel.locator(".lane .span.held")).to_have_count(1)
        expect(panel.locator(".lane .span.waits")).to_have_count(1)
        panel.get_by_role("button", name=re.compile("^ci-7, waits")).focus()
        expect(panel.locator(".at")).to_contain_text("ci-7 has waited")

    def test_by_keyboard(self):
        page, panel = self.opened(entries())
        last = panel.get_by_role("button", name=re.compile("^ci-9, released"))
        expect(last).to_have_attribute("tabindex", "0")
        self.assertEqual(panel.locator('.lane [tabindex="0"]').count(), 1)
        last.focus()
        said = panel.locator(".at")
        for key, words in (("ArrowLeft", "ci-9 waited"), ("ArrowLeft", "ci-8 held it"), ("Home", "ci-5 held it"), ("End", "ci-9 held it")):
            page.keyboard.press(key)
            expect(said).to_contain_text(words)
        page.keyboard.press("Home")
        expect(said).to_contain_text("ci-5")
        before = panel.locator(".span.unseen").first.bounding_box()["width"]
        page.keyboard.press("+")
        until("it is zoomed", lambda: page.wait_for_timeout(50) or panel.locator(".lane .span.unseen").bounding_box()["width"] > 1.7 * before)
        # To a bar out of sight the view moves.
        expect(panel.locator(".lane .span.released")).to_have_count(0)
        page.keyboard.press("End")
        expect(panel.locator(".lane .span.released")).to_be_focused()
        page.keyboard.press("-")
        expect(panel.locator(".lane .span.unseen")).to_have_count(1)
        panel.get_by_role("button", name="Earlier").click()
        expect(panel.locator(".lane .span.released")).to_have_count(0)
        panel.get_by_role("button", name="6 h").click()
        expect(panel.locator(".lane .span.released")).to_have_count(1)

    def test_leases_that_share_the_lock_have_rows_of_their_own(self):
        shared = [ended("released", fence, 1_000 + fence, 500, mode="shared", slot=fence) for fence in (3, 2, 1)]
        page, panel = self.opened(shared)
        expect(panel.locator(".lane")).to_have_count(3)
        tops = {bar.bounding_box()["y"] for bar in panel.locator(".lane .span").all()}
        self.assertEqual(len(tops), 3)

    def test_every_width(self):
        self.gateway.acquire("deploy", owner="a long name of a holder " * 4, ttl_ms=600_000)
        self.gateway.wait_for("deploy", "a long name of a waiter " * 4, 55_000)
        page, panel = self.opened(leases(30, 40)[:20] + entries())
        expect(panel.locator(".lane .span").first).to_be_visible()
        for width in (360, 390, 768, 1024, 1440):
            page.set_viewport_size({"width": width, "height": 844})
            self.assert_fits(page)
            for region in ("Timeline", "Queue"):
                wide = page.get_by_role("region", name=region).evaluate("(element) => element.scrollWidth > element.clientWidth + 1")
                self.assertFalse(wide, (region, width))


class Usual(AttentionCase):
    def opened(self, held, entries, waiters=()):
        self.gateway.acquire("deploy", owner="anna", ttl_ms=600_000)
        for owner in waiters:
            self.gateway.wait_for("deploy", owner, 55_000)
        context = self.context()
        self.held_for(context, held)
        self.usually(context, entries)
        return self.open("/locks/deploy", context=context)

    def test_how_long_it_is_held_and_waited_for(self):
        past = leases(19, 40, waited=3_000) + leases(1, 600, waited=60_000)
        page = self.opened(10, past)
        panel = page.get_by_role("region", name="Timeline")
        for words in ("Held, median40s", "Held, 95% within40s", "Waited, median3s", "Of the last20 leases"):
            expect(panel).to_contain_text(words)
        expect(page.locator(".longer")).to_have_count(0)

    def test_a_hold_that_is_longer_than_usual_is_said_above_the_holder(self):
        page = self.opened(250, leases(12, 40))
        expect(page.locator(".longer")).to_contain_text(re.compile(r"Held 6(\.\d)?x longer than usual: 4m 1\ds, and the median of the last 12 leases is 40s\."))

    def test_a_turn_is_estimated_from_ten_leases_on(self):
        page = self.opened(10, leases(12, 120), waiters=["one", "two"])
        queue = page.get_by_role("region", name="Queue")
        rows = queue.locator("tbody tr")
        expect(rows.nth(0)).to_contain_text("estimate: about 2 min")
        expect(rows.nth(1)).to_contain_text("estimate: about 4 min")
        expect(queue).to_contain_text("Estimate: a new waiter gets the lock in about 6 min: 2 before it, median hold 2m 00s.")

    def test_no_turn_is_estimated_of_too_few_leases_or_behind_a_hold_that_is_longer_than_usual(self):
        page = self.opened(10, leases(9, 120), waiters=["one"])
        queue = page.get_by_role("region", name="Queue")
        expect(queue.locator("tbody tr")).to_have_count(1)
        page.wait_for_timeout(1_000)
        expect(queue).not_to_contain_text(re.compile("estimate", re.I))
        context = self.context()
        self.held_for(context, 250)
        self.usually(context, leases(12, 120))
        page = self.open("/locks/deploy", context=context)
        expect(page.locator(".longer")).to_be_visible()
        expect(page.get_by_role("region", name="Queue")).not_to_contain_text(re.compile("estimate", re.I))

    def test_the_wait_for_a_reservation_ends_when_it_ends(self):
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=30)
        self.gateway.acquire("deploy", reserve={"until": end.strftime("%Y-%m-%dT%H:%M:%SZ"), "reason": "demo"})
        self.gateway.wait_for("deploy", "ci-7", 55_000)
        context = self.context()
        self.usually(context, leases(12, 40))
        page = self.open("/locks/deploy", context=context)
        expect(page.get_by_role("region", name="Queue").locator("tbody tr")).to_contain_text("estimate: about 30 min")

    def test_a_waiter_says_its_metadata(self):
        self.gateway.acquire("deploy", owner="anna", ttl_ms=600_000)
        self.gateway.wait_for("deploy", "ci-7", 55_000)
        context = self.context()
        told = {"metadata": {"job": "https://ci.example/jobs/4711"}}
        self.changed(context, ONE, lambda body, _: [waiter.update(told) for waiter in body["waiters"]])
        page = self.open("/locks/deploy", context=context)
        row = page.get_by_role("region", name="Queue").locator("tbody tr")
        expect(row.get_by_role("link")).to_have_attribute("href", "https://ci.example/jobs/4711")
