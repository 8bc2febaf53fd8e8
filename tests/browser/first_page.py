"""How soon the first page can be used: ten loads, each with nothing in the cache of the browser."""

import os
import statistics

from playwright.sync_api import sync_playwright

from browser import CHROMIUM, chromium_arguments
from gateway import Gateway

LOADS = 10
# The page marks when it has answered who this is, and has drawn itself.
MEASURE = """() => {
  const until = performance.getEntriesByName("latchgate-interactive")[0].startTime;
  const drawn = performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? until;
  const requests = performance.getEntriesByType("resource").filter((one) => one.startTime < until).length;
  return [drawn, until, requests];
}"""


def load(browser, url):
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(url)
    page.get_by_role("heading", name="Health").wait_for()
    measured = page.evaluate(MEASURE)
    context.close()
    return measured


def main():
    gateway = Gateway()
    gateway.acquire("one", ttl_ms=600_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=chromium_arguments())
        # The first one starts what all others use.
        load(browser, f"{gateway.url}/dashboard")
        loads = [load(browser, f"{gateway.url}/dashboard") for _ in range(LOADS)]
        browser.close()
    gateway.end()
    print(f"load average {os.getloadavg()[0]:.1f}, {LOADS} loads, {loads[0][2]} requests until the page can be used")
    for number, what in enumerate(("first drawn", "can be used")):
        times = sorted(one[number] for one in loads)
        print(f"{what}: median {statistics.median(times):.0f} ms, {times[0]:.0f} to {times[-1]:.0f} ms")


main()
