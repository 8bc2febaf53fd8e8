"""Locks, events and the history as files: a spreadsheet takes no cell for a formula."""

import csv
import json
from pathlib import Path

from playwright.sync_api import expect

from gateway import lock
from test_attention import AttentionCase, leases

FORMULAS = ['=1+1', '+1', '-1', '@SUM(A1)', '\t=1', 'x;=1+1']
SAFE = ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\t=1", "x;'=1+1"]


class Export(AttentionCase):
    def saved(self, within, choice):
        within.locator("summary", has_text="Export").click()
        page = within if hasattr(within, "expect_download") else within.page
        with page.expect_download() as download:
            within.get_by_role("button", name=choice).click()
        return download.value.suggested_filename, Path(download.value.path()).read_bytes().decode("utf-8-sig")

    def test_locks_as_a_spreadsheet(self):
        for number, owner in enumerate([*FORMULAS[:4], FORMULAS[5]]):
            self.gateway.acquire(f"lock:{number}", owner=owner, ttl_ms=600_000)
        self.gateway.acquire("lock:plain", owner='anna, "the first"', ttl_ms=600_000, metadata={"job": "4711"})
        self.gateway.acquire("other", ttl_ms=600_000)
        page = self.open("/locks?prefix=lock:")
        expect(page.locator(".grid .body .row")).to_have_count(6)
        name, text = self.saved(page, "CSV")
        self.assertRegex(name, r"^latchgate-locks-.*\.csv$")
        rows = list(csv.DictReader(text.splitlines()))
        self.assertEqual([row["owner"] for row in rows], [*SAFE[:4], SAFE[5], 'anna, "the first"'])
        last = rows[-1]
        self.assertEqual((last["name"], last["state"], last["holders"], last["waiters"]), ("lock:plain", "held", "1", "0"))
        self.assertEqual(json.loads(last["metadata"]), {"job": "4711"})
        self.assertRegex(last["acquired_at"], r"^\d{4}-\d\d-\d\dT.*Z$")

    def test_locks_as_json(self):
        self.gateway.acquire("deploy", owner="=1", ttl_ms=600_000, metadata={"job": "4711"})
        page = self.open("/locks")
        expect(page.locator(".grid .body .row")).to_have_count(1)
        name, text = self.saved(page, "JSON")
        self.assertRegex(name, r"^latchgate-locks-.*\.json$")
        [found] = json.loads(text)
        # JSON is for programs: nothing is changed.
        self.assertEqual((found["owner"], found["metadata"], found["state"]), ("=1", {"job": "4711"}, "held"))

    def test_events_as_a_spreadsheet(self):
        page = self.open("/events")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.acquire("deploy", owner="anna", ttl_ms=600_000)
        self.gateway.call("POST", lock("deploy", "break"), {"reason": "=HYPERLINK(1)"})
        expect(page.locator(".grid .body .row")).to_have_count(2)
        name, text = self.saved(page, "CSV")
        self.assertRegex(name, r"^latchgate-events-.*\.csv$")
        rows = list(csv.DictReader(text.splitlines()))
        # Oldest first.
        self.assertEqual([row["kind"] for row in rows], ["acquired", "broken"])
        self.assertEqual(rows[1]["reason"], "'=HYPERLINK(1)")
        for field in ("reservation", "waiting", "change"):
            self.assertIn(field, rows[0])

    def test_the_history_of_a_lock(self):
        context = self.context()
        self.usually(context, leases(12, 40))
        page = self.open("/locks/deploy", context=context)
        panel = page.get_by_role("region", name="History")
        name, text = self.saved(panel, "CSV")
        self.assertRegex(name, r"^latchgate-history-.*\.csv$")
        self.assertEqual(len(list(csv.DictReader(text.splitlines()))), 12)
        name, text = self.saved(panel, "JSON")
        self.assertEqual(len(json.loads(text)), 12)

    def test_the_menu_by_keyboard_and_at_every_width(self):
        self.gateway.acquire("deploy", ttl_ms=600_000)
        page = self.open("/locks")
        expect(page.locator(".grid .body .row")).to_have_count(1)
        menu = page.locator("summary", has_text="Export")
        for width in (360, 390, 768, 1440):
            page.set_viewport_size({"width": width, "height": 844})
            menu.focus()
            page.keyboard.press("Enter")
            choices = page.locator(".menu .choices")
            expect(choices).to_be_visible()
            box = choices.bounding_box()
            self.assertGreaterEqual(box["x"], 0, width)
            self.assertLessEqual(box["x"] + box["width"], width, width)
            self.assert_fits(page)
            page.keyboard.press("Tab")
            page.keyboard.press("Escape")
            expect(choices).to_be_hidden()
            expect(menu).to_be_focused()
