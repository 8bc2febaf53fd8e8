"""What a key of some prefixes is told: that it is about what it may see, and what it can do."""

import os
import subprocess

from playwright.sync_api import expect

from browser import BrowserCase

TEAM = ["--acquire", "team:", "--view", "team:", "--view", "shared:"]
SEEN = "that your key may see"


class Sight(BrowserCase):
    KEYS = {
        "ops": ["--acquire", "*", "--view", "*", "--break", "*", "--metrics"],
        "team": TEAM,
        "measured": [*TEAM, "--metrics"],
        "reader": ["--view", "shared:"],
        "all-reader": ["--view", "*"],
        "apart": ["--acquire", "team:", "--view", "shared:"],
        "wide": ["--acquire", "*", "--view", "shared:"],
        "bare": ["--acquire", "ci", "--view", "*"],
        "long": ["--acquire", "a" * 198, "--view", "*"],
        "many": [part for number in range(12) for part in ("--view", f"t{number}:")],
    }

    def signed_in(self, key, path="/locks"):
        page = self.open(path)
        self.sign_in(page, key)
        return page

    def test_where_others_may_be_held_it_is_not_said_that_none_is(self):
        self.gateway.acquire("other:c", key="ops", ttl_ms=600_000)
        page = self.signed_in("team")
        main = page.locator("main")
        expect(main).to_contain_text(f"No lock {SEEN} is held")
        expect(main).to_contain_text("Your key may see the locks whose names begin with team: or shared:.")
        expect(main).to_contain_text(f"0 locks held {SEEN}")
        expect(page.get_by_text("No lock is held")).to_have_count(0)
        page.get_by_role("link", name="Events", exact=True).click()
        expect(main).to_contain_text(f"Nothing {SEEN} has happened yet")

    def test_of_a_key_of_many_prefixes_some_are_named(self):
        page = self.signed_in("many")
        expect(page.locator("main")).to_contain_text("t0:, t1:, t2:, t3:, t4:, t5:, t6:, t7: or 4 more.")

    def test_a_search_does_not_call_free_what_may_not_be_seen(self):
        self.gateway.acquire("other:c", key="ops", ttl_ms=600_000)
        page = self.signed_in("team")
        main, search = page.locator("main"), page.get_by_label("Name begins with")
        search.fill("other:c")
        expect(main).to_contain_text(f"No held locks {SEEN} match")
        expect(main).to_contain_text("Your key may not see whether other:c is held.")
        search.fill("team:c")
        expect(main).to_contain_text("Look at the free lock team:c")
        page = self.signed_in("wide")
        page.get_by_label("Name begins with").fill("other:c")
        expect(page.locator("main")).to_contain_text("Your key may acquire other:c, and not see whether it is held.")
        expect(page.get_by_text("free lock")).to_have_count(0)

    def test_the_overview_says_what_each_number_counts(self):
        for name in ("other:c", "team:a"):
            self.gateway.acquire(name, key="ops", ttl_ms=600_000)
        self.gateway.wait_for("other:c", "somebody")
        page = self.signed_in("measured", "")
        tile = lambda title: page.locator(".overview > .tiles .tile").filter(has=page.get_by_text(title, exact=True)).locator(".value")  # noqa: E731
        expect(tile(f"Locks held {SEEN}")).to_have_text("1")
        expect(tile(f"Waiters {SEEN}")).to_have_text("0")
        expect(tile(f"Longest hold {SEEN}")).to_contain_text("s")
        # The figures are those of the gateway, whatever the key sees.
        here = page.get_by_role("region", name="Through gateway")
        expect(here.locator(".tile").filter(has_text="Longest wait")).to_contain_text("s")
        expect(here.locator(".tile").filter(has_text="Grants per second")).to_have_count(1)
        chart = here.get_by_role("figure").filter(has_text="Leases and waiters")
        expect(chart).to_contain_text("Leases2")
        expect(chart).to_contain_text("Waiters1")
        main = page.locator("main")
        expect(main).to_contain_text("There may be others, which the figures of the gateway count too.")
        expect(main).to_contain_text(f"Nobody waits for a lock {SEEN}.")
        self.assertNotIn("other:c", page.content())
        page = self.signed_in("team", "")
        expect(page.locator("main")).to_contain_text("There may be others.")
        page = self.signed_in("ops", "")
        expect(page.locator(".tile").first).to_have_text("Locks held2")
        expect(page.get_by_role("heading", name="Locks held and waiters", exact=True)).to_be_visible()
        expect(page.get_by_text("your key")).to_have_count(0)

    def test_the_line_of_an_empty_page_works_and_its_lock_appears(self):
        page = self.signed_in("team")
        line = page.locator("main pre").inner_text()
        self.assertEqual(
            line, f"curl -X POST -H \"Authorization: Bearer $LATCHGATE_KEY\" '{self.gateway.url}/locks/team:deploy'"
        )
        subprocess.run(
            ["sh", "-c", line], check=True, capture_output=True,
            env={"PATH": os.environ["PATH"], "LATCHGATE_KEY": self.gateway.keys["team"]},
        )
        expect(page.get_by_role("row").filter(has_text="team:deploy")).to_have_count(1)

    def test_the_whole_line_is_shown_on_a_phone_and_copied(self):
        context = self.context(viewport={"width": 390, "height": 844})
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = self.open("/locks", context=context)
        self.sign_in(page, "team")
        shown = page.locator("main pre")
        expect(shown).to_be_visible()
        self.assertTrue(shown.evaluate("(pre) => pre.scrollWidth <= pre.clientWidth"))
        page.get_by_role("button", name="Copy the line").click()
        expect(page.get_by_text("Copied the line")).to_be_visible()
        self.assertEqual(page.evaluate("navigator.clipboard.readText()"), shown.inner_text())

    def test_what_is_offered_may_be_acquired_and_seen_and_is_nothing_where_nothing_may(self):
        offered = {"ops": "deploy", "wide": "shared:deploy", "bare": "ci:deploy", "long": "a" * 198}
        for key in ("ops", "wide", "bare", "long", "reader", "all-reader", "apart"):
            page = self.signed_in(key)
            expect(page.get_by_text("as soon as somebody acquires it")).to_be_visible()
            lines = page.locator("main pre").all_inner_texts()
            names = [line.removesuffix("'").rpartition("/")[2] for line in lines]
            self.assertEqual(names, [offered[key]] if key in offered else [], key)
            page.close()


class Open(BrowserCase):
    def test_without_keys_the_line_has_none(self):
        page = self.open("/locks")
        expect(page.get_by_text("No lock is held")).to_be_visible()
        self.assertEqual(page.locator("main pre").inner_text(), f"curl -X POST '{self.gateway.url}/locks/deploy'")
