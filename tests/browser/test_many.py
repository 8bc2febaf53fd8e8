"""Thousands of locks: quick to see, quick to scroll."""

import asyncio
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlparse

from playwright.sync_api import expect

from browser import BrowserCase

MANY = 5_000
# What the design promises of the first page of a list, ten times over; and the browser's own work.
FIRST_ROWS_MS = 500 + 3_000
MOST_ROWS = 80


class Many(BrowserCase):
    def setUp(self):
        super().setUp()
        # The browser's own loop runs in this thread.
        with ThreadPoolExecutor() as other:
            other.submit(asyncio.run, fill(self.gateway.url, MANY)).result()

    def test_five_thousand_locks(self):
        begun = time.monotonic()
        page = self.open("/locks")
        page.locator(".grid .body .row").first.wait_for()
        first = (time.monotonic() - begun) * 1000
        expect(page.get_by_text("5,000 locks held")).to_be_visible()
        whole = (time.monotonic() - begun) * 1000
        print(f"\n  5,000 locks: first rows after {first:.0f} ms, all after {whole:.0f} ms", end="")
        self.assertLess(first, FIRST_ROWS_MS)

        frames = page.evaluate(SCROLL)
        print(f"; {len(frames['gaps'])} frames of scrolling, the longest {max(frames['gaps']):.0f} ms", end="")
        self.assertLess(frames["rows"], MOST_ROWS, "only rows in sight exist")
        self.assertEqual(frames["empty"], 0, "every frame showed rows")
        # Two frames are 33 ms; one that is late because of what else the machine does is no lag.
        self.assertLess(statistics.median(frames["gaps"]), 330)

        page.locator(".grid").press("End")
        expect(page.get_by_role("row").filter(has_text="many:04999")).to_have_count(1)

        typed = time.monotonic()
        page.get_by_label("Name begins with").fill("many:0123")
        expect(page.get_by_text("10 of 5,000 locks held")).to_be_visible()
        self.assertLess(time.monotonic() - typed, 5)
        page.get_by_label("Name begins with").fill("")
        page.get_by_label("Search name, owner, metadata").fill("OWNER-7")
        expect(page.get_by_text("of 5,000 locks held")).to_be_visible()

    def test_a_walk_that_takes_long_is_not_begun_anew(self):
        asked = []

        def slow(route):
            asked.append(route.request.url)
            # The page looks every second whether the list is to be read again.
            time.sleep(0.7)
            route.continue_()

        context = self.context()
        context.route("**/locks?*", slow)
        page = self.open("/locks", context=context)
        expect(page.get_by_text("5,000 locks held", exact=True)).to_be_visible()
        self.assertEqual([url for url in asked if "cursor=" not in url], asked[:1])
        self.assertEqual(len(asked), 6)

    def test_sorts_what_is_loaded(self):
        page = self.open("/locks")
        expect(page.get_by_text("5,000 locks held")).to_be_visible()
        head = page.get_by_role("columnheader", name="Owner")
        head.get_by_role("button").click()
        expect(head).to_have_attribute("aria-sort", "ascending")
        head.get_by_role("button").click()
        expect(head).to_have_attribute("aria-sort", "descending")
        shown = page.locator(".grid .body .of-owner").all_inner_texts()
        self.assertEqual(shown, sorted(shown, reverse=True))
        # The address has it, so it can be sent to somebody.
        self.assertIn("sort=-owner", page.url)


# Down the whole table in a second and a half, as fast as one drags: at each frame, how long it took
# and whether there were rows in sight.
SCROLL = """async () => {
  const grid = document.querySelector(".grid");
  const gaps = [];
  let rows = 0;
  let empty = 0;
  let last = performance.now();
  for (let step = 0; step <= 90; step += 1) {
    grid.scrollTop = (grid.scrollHeight - grid.clientHeight) * (step / 90);
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    gaps.push(now - last);
    last = now;
    const shown = [...grid.querySelectorAll(".body .row")];
    rows = Math.max(rows, shown.length);
    const box = grid.getBoundingClientRect();
    const middle = document.elementFromPoint(box.x + 200, box.y + box.height / 2);
    if (!middle?.closest(".row")) empty += 1;
  }
  return { gaps, rows, empty };
}"""


async def fill(url, many):
    """Takes so many locks, through a handful of connections."""
    to = urlparse(url)

    async def some(numbers):
        reader, writer = await asyncio.open_connection(to.hostname, to.port)
        for number in numbers:
            body = json.dumps({"ttl_ms": 3_600_000, "owner": f"owner-{number % 50}", "metadata": {"n": str(number)}})
            head = f"POST /locks/many:{number:05} HTTP/1.1\r\nHost: {to.netloc}\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            assert b" 201 " in answer, answer
            length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
        writer.close()

    await asyncio.gather(*(some(range(start, many, 16)) for start in range(16)))
