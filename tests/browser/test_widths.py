"""What each table and chart shows can be read at every width of a window, from a small phone to a desk."""

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import until
from test_charts import SPY, written

WIDTHS = (360, 390, 768, 1024, 1440)
# What is wider than the box that is to show it.
CUT = "(element) => element.scrollWidth > element.clientWidth + 1"
OWNER = "ci-runner-7 (project web, deploy to prod)"


class Widths(BrowserCase):
    def at_each_width(self, path):
        """The page of this path at one width after the other, opened once, so that its events stay."""
        page = self.open(path)
        expect(page.locator(".live.is-live")).to_be_visible()
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            yield page

    def assert_inside(self, inner, outer):
        inner, outer = inner.bounding_box(), outer.bounding_box()
        self.assertGreaterEqual(inner["x"], outer["x"] - 1)
        self.assertLessEqual(inner["x"] + inner["width"], outer["x"] + outer["width"] + 1)

    def test_of_each_who_shares_a_lock_the_owner_and_the_button_that_breaks(self):
        for number in range(3):
            self.gateway.acquire("gpu", limit=3, owner=OWNER if number == 0 else f"w{number}", ttl_ms=600_000)
        for page in self.at_each_width("/locks/gpu"):
            holders = page.locator(".sharers li")
            expect(holders).to_have_count(3)
            for holder in holders.all():
                owner, button = holder.locator(".who"), holder.get_by_role("button")
                self.assertGreater(owner.bounding_box()["width"], 120, page.viewport_size)
                self.assertFalse(owner.evaluate(CUT), page.viewport_size)
                self.assertFalse(button.evaluate(CUT), page.viewport_size)
                self.assert_inside(button, holder)
                self.assert_inside(button, page.locator(".sharers"))
            expect(holders.first.locator(".who")).to_contain_text(OWNER)
            self.assert_fits(page)

    def test_the_longest_kind_of_an_event_covers_nothing(self):
        self.gateway.acquire("deploy", owner=OWNER, ttl_ms=600_000)
        for at in ("/events", "/locks/deploy"):
            asked = False
            for page in self.at_each_width(at):
                if not asked:
                    self.gateway.call("POST", "/locks/deploy/break", {"reason": "a newer one is ready", "grace_ms": 500_000})
                    asked = True
                # The events of before are there, too.
                kind = page.locator(".kind.release-requested").first
                expect(kind).to_be_visible()
                around = kind.locator("xpath=..") if at == "/events" else page.locator(".timeline li").first
                self.assertFalse(kind.evaluate(CUT))
                self.assertFalse(around.evaluate(CUT), (at, page.viewport_size))
                self.assert_inside(kind, around)
                what = page.locator(".grid .body .of-owner, .timeline .what").first.bounding_box()
                ends = kind.bounding_box()
                beside = what["x"] >= ends["x"] + ends["width"]
                self.assertTrue(beside or what["y"] >= ends["y"] + ends["height"] - 1, (what, ends))

    def test_all_columns_of_the_locks_and_the_events(self):
        for path in ("/locks", "/events"):
            for page in self.at_each_width(path):
                self.gateway.acquire(f"wide:{path[1:]}:{page.viewport_size['width']}", owner=OWNER, ttl_ms=600_000)
                grid = page.get_by_role("grid")
                expect(grid.locator(".body .row").first).to_be_visible()
                self.assertFalse(grid.evaluate(CUT), page.viewport_size)
                self.assert_fits(page)

    def test_below_each_chart_there_are_several_times_in_the_first_minute_and_after_an_hour(self):
        context = self.context()
        context.add_init_script(SPY)
        page = self.open(context=context)
        expect(page.locator("canvas")).to_have_count(3)
        module = "import(new URL('app.js', document.baseURI)).then(({modules: {'model/figures.js': {samplesOfAll, SPAN}}}) => %s)"
        older = module % "samplesOfAll().unshift({...samplesOfAll()[0], time: Date.now() - SPAN + 20_000}) > 1"
        for minutes in (1, 60):
            if minutes == 60:
                self.assertTrue(page.evaluate(older))
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 800})
                for chart in page.get_by_role("figure").all():
                    def times(chart=chart):
                        page.wait_for_timeout(50)
                        found = [text for text in written(chart.locator("canvas")) if ":" in text]
                        # Seconds only where the times are not whole minutes.
                        return {len(text) for text in found} == {8 if minutes == 1 else 5} and found

                    found = until(f"several times at {width} after {minutes} min", times, 20)
                    self.assertGreaterEqual(len(set(found)), 2, (width, minutes))
                    self.assertEqual(len(set(found)), len(found), (width, minutes))
