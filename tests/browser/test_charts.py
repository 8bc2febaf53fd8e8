"""What is written into the charts of the overview."""

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import until

# What each canvas says by now: it is cleared before it is drawn anew.
SPY = """
const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.clearRect = function (...area) {
  this.canvas.written = [];
  return clearRect.apply(this, area);
};
CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
  (this.canvas.written ??= []).push(text);
  return fillText.call(this, text, ...place);
};
"""


def written(canvas):
    """All that is written into a chart by now."""
    return [text for text in canvas.evaluate("(canvas) => canvas.written") if text]


class Charts(BrowserCase):
    def opened(self):
        context = self.context()
        context.add_init_script(SPY)
        page = self.open(context=context)
        expect(page.locator("canvas")).to_have_count(3)
        expect(page.get_by_text("Gathering the first figures")).to_have_count(0)
        return page

    def ticks(self, page, title):
        """The numbers beside a chart, without the times below it."""
        canvas = page.get_by_role("figure").filter(has_text=title).locator("canvas")
        return [text for text in written(canvas) if ":" not in text]

    def test_where_little_happens_no_two_ticks_are_the_same(self):
        self.gateway.acquire("one", ttl_ms=600_000)
        page = self.opened()
        self.assertEqual(self.ticks(page, "Locks held and waiters"), ["0", "1"])
        self.assertEqual(self.ticks(page, "Left of the TTL"), ["0", "1 ms"])
        self.assertEqual(self.ticks(page, "Grants and refusals"), ["0", "0.5", "1.0"])

    def test_ticks_of_counts_are_whole_numbers_and_stand_where_they_say(self):
        for number in range(7):
            self.gateway.acquire(f"lock{number}", ttl_ms=600_000)
        page = self.opened()
        # In steps of 2.5 it would be 0, 3, 5 and 8.
        until("all are drawn", lambda: page.wait_for_timeout(100) or self.ticks(page, "Locks held") == ["0", "5"], 20)

    def test_what_stands_in_an_empty_chart_is_not_struck_through_by_its_lines(self):
        context = self.context()
        # The first figures are there, and no second ones.
        asked = []

        def once(route):
            asked.append(route)
            route.continue_() if len(asked) == 1 else None

        context.route("**/stats", once)
        # Nor any of the last hour.
        context.route("**/samples", lambda route: route.fulfill(json={"instance": "another", "interval_ms": 10_000, "samples": []}))
        page = self.open(context=context)
        expect(page.locator("canvas")).to_have_count(3)
        for text in page.get_by_text("Gathering the first figures").all():
            shown = text.evaluate("(p) => getComputedStyle(p).backgroundColor")
            panel = text.evaluate("(p) => getComputedStyle(p.closest('.panel')).backgroundColor")
            self.assertEqual(shown, panel)
            self.assertLess(text.bounding_box()["width"], 220)
        self.assertEqual(page.get_by_text("Gathering the first figures").count(), 3)
