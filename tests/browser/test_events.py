"""The feed: filters, a pause and an export."""

import json
from pathlib import Path

from playwright.sync_api import expect

from browser import BrowserCase


class Events(BrowserCase):
    def rows(self, page):
        return page.locator(".grid .body .row")

    def test_filters_by_name_owner_and_kind(self):
        page = self.open("/events")
        expect(page.locator(".live.is-live")).to_be_visible()
        lease = self.gateway.acquire("deploy:a", owner="Anna", ttl_ms=600_000)
        self.gateway.acquire("deploy:b", owner="Ben", ttl_ms=600_000)
        self.gateway.acquire("cron:a", owner="Anna", ttl_ms=600_000)
        self.gateway.call("DELETE", "/locks/deploy:a", headers={"Lock-Token": lease["token"]})
        expect(self.rows(page)).to_have_count(4)
        page.get_by_label("Name begins with").fill("deploy:")
        expect(self.rows(page)).to_have_count(3)
        page.get_by_label("Owner contains").fill("anna")
        expect(self.rows(page)).to_have_count(2)
        page.get_by_role("button", name="released").click()
        expect(self.rows(page)).to_have_count(1)
        # The address has it all.
        other = self.open(page.url.split("/dashboard")[1], context=page.context)
        expect(other.get_by_label("Name begins with")).to_have_value("deploy:")
        expect(other.get_by_role("button", name="released")).to_have_attribute("aria-pressed", "true")

    def test_renewals_are_shown_when_they_are_asked_for(self):
        page = self.open("/events")
        expect(page.locator(".live.is-live")).to_be_visible()
        lease = self.gateway.acquire("busy", ttl_ms=600_000)
        for _ in range(3):
            self.gateway.call("PUT", "/locks/busy/renew", headers={"Lock-Token": lease["token"]})
        self.gateway.acquire("after", ttl_ms=600_000)
        expect(self.rows(page)).to_have_count(2)
        page.get_by_label("renewals").check()
        expect(self.rows(page)).to_have_count(5)
        # Beside the kinds that are chosen, too; and the address has it.
        page.get_by_role("button", name="released").click()
        expect(self.rows(page)).to_have_count(3)
        self.assertIn("renewals=", page.url)
        page.get_by_label("renewals").uncheck()
        expect(page.get_by_text("Renewals are not shown")).to_be_visible()
        page.get_by_role("link", name="Locks", exact=True).click()
        page.get_by_role("row").filter(has_text="busy").get_by_role("link").click()
        expect(page.locator(".timeline li")).to_have_count(1)

    def test_the_end_of_a_lease_that_is_heard_late_stands_before_the_next_grant(self):
        page = self.open("/events")
        expect(page.locator(".live.is-live")).to_be_visible()
        heard = [("acquired", 1), ("acquired", 2), ("renewed", 2), ("released", 1), ("stale-write-refused", 1)]
        for kind, fence in heard:
            event = {"kind": kind, "name": "passed", "fencing_token": fence, "owner": None, "mode": "exclusive"}
            module = "import(new URL('app.js', document.baseURI)).then(({modules: {'model/feed.js': {hear}}}) => hear(%s))"
            page.evaluate(module % json.dumps({**event, "at": "2026-11-29T12:00:00.000Z"}))
        expect(self.rows(page)).to_have_count(4)
        shown = [row.inner_text().split() for row in self.rows(page).all()]
        kinds = [(row.locator(".kind").inner_text(), words[-1]) for row, words in zip(self.rows(page).all(), shown)]
        expected = [("stale-write-refused", "1"), ("acquired", "2"), ("released", "1"), ("acquired", "1")]
        self.assertEqual(kinds, expected, shown)

    def test_an_end_that_names_no_lease_ends_not_the_one_that_holds_the_lock(self):
        page = self.open("/events")
        lease = self.gateway.acquire("kept", ttl_ms=600_000)
        page.get_by_role("link", name="Locks", exact=True).click()
        expect(page.get_by_role("row").filter(has_text="kept")).to_be_visible()
        module = "import(new URL('app.js', document.baseURI)).then(({modules: {'model/locks.js': {apply, locks}}}) => {"
        for fence, kind in [(None, None), (lease["fencing_token"], "released")]:
            event = {"kind": "released", "name": "kept", "fencing_token": fence, "mode": None}
            ended = f"apply({json.dumps(event)}); return locks.get('kept').ended?.kind ?? null; }})"
            self.assertEqual(page.evaluate(module + ended), kind)

    def test_a_pause_keeps_what_is_shown_and_counts_what_comes(self):
        page = self.open("/events")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.acquire("one", ttl_ms=600_000)
        expect(self.rows(page)).to_have_count(1)
        page.get_by_role("button", name="Pause").click()
        self.gateway.acquire("two", ttl_ms=600_000)
        self.gateway.acquire("three", ttl_ms=600_000)
        expect(page.get_by_role("button", name="2 new")).to_be_visible()
        expect(self.rows(page)).to_have_count(1)
        page.get_by_role("button", name="2 new").click()
        expect(self.rows(page)).to_have_count(3)

    def test_exports_what_is_shown_as_json_lines(self):
        page = self.open("/events")
        expect(page.locator(".live.is-live")).to_be_visible()
        lease = self.gateway.acquire("exported", owner="\u202e<b>\"", ttl_ms=600_000)
        self.gateway.acquire("other", ttl_ms=600_000)
        expect(self.rows(page)).to_have_count(2)
        page.get_by_label("Name begins with").fill("exp")
        expect(self.rows(page)).to_have_count(1)
        page.locator("summary", has_text="Export").click()
        with page.expect_download() as download:
            page.get_by_role("button", name="JSON lines").click()
        lines = Path(download.value.path()).read_text().splitlines()
        [event] = [json.loads(line) for line in lines]
        self.assertRegex(download.value.suggested_filename, r"^latchgate-events-.*\.jsonl$")
        self.assertEqual(event["kind"], "acquired")
        self.assertEqual(event["owner"], "\u202e<b>\"")
        self.assertEqual(event["fencing_token"], lease["fencing_token"])
        self.assertRegex(event["id"], r"-\d+$")

    def test_times_are_of_the_zone_of_the_viewer_and_exact_on_hover(self):
        page = self.open("/events", timezone_id="Asia/Tokyo")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.acquire("when", ttl_ms=600_000)
        time = self.rows(page).locator("time")
        at = time.get_attribute("datetime")
        shown = page.evaluate("(at) => new Date(at).toLocaleTimeString('en-GB', {timeZone: 'Asia/Tokyo'})", at)
        expect(time).to_have_text(shown)
        self.assertIn("GMT+9", time.get_attribute("title"))
        self.assertIn(at, time.get_attribute("title"))
