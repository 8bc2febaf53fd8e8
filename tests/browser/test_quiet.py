"""What is read out by a screen reader: what one does, and what lasts; never each row that comes and goes."""

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import until

GONE = (r"net::ERR_", r"TypeError: (network error|Failed to fetch)")

# Every word that a screen reader would be given from now on.
LISTEN = """() => {
  window.heard = [];
  const live = "[role=status], [role=alert], [aria-live]";
  new MutationObserver((changes) => {
    for (const {target, addedNodes} of changes) {
      const place = (target.nodeType === 1 ? target : target.parentElement)?.closest(live);
      if (place) window.heard.push(place.textContent);
      for (const node of addedNodes) if (node.nodeType === 1) {
        for (const inside of [node, ...node.querySelectorAll("*")]) if (inside.matches(live)) window.heard.push(inside.textContent);
      }
    }
  }).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


class Quiet(BrowserCase):
    def heard(self, page):
        return [words for words in page.evaluate("window.heard") if words]

    def test_a_live_table_says_nothing_by_itself(self):
        self.gateway.acquire("stays", ttl_ms=600_000)
        for path in ("/locks", "/events", "/locks/stays", ""):
            page = self.open(path)
            expect(page.locator(".live.is-live")).to_be_visible()
            if path == "/locks":
                expect(page.get_by_role("row").filter(has_text="stays")).to_have_count(1)
            if path == "/locks/stays":
                expect(page.get_by_role("region", name="Holder")).to_be_visible()
            if path == "":
                expect(page.get_by_role("heading", name="Health")).to_be_visible()
            page.evaluate(LISTEN)
            for number in range(20):
                lease = self.gateway.acquire(f"goes:{number}", ttl_ms=60_000)
                self.gateway.call("DELETE", f"/locks/goes:{number}", headers={"Lock-Token": lease["token"]})
            if path == "/events":
                expect(page.get_by_role("row").filter(has_text="goes:19")).to_have_count(2)
            # Longer than a word that lasts is waited for.
            page.wait_for_timeout(2_500)
            self.assertEqual(self.heard(page), [], path)

    def test_how_much_a_search_has_found_is_said_once(self):
        for name in ("a:1", "a:2", "b:1"):
            self.gateway.acquire(name, ttl_ms=600_000)
        page = self.open("/locks")
        expect(page.get_by_text("3 locks held")).to_be_visible()
        page.evaluate(LISTEN)
        page.get_by_label("Name begins with").press_sequentially("a:", delay=80)
        until("it is said", lambda: page.wait_for_timeout(50) or self.heard(page))
        self.assertEqual(self.heard(page), ["2 locks are shown"])

    def test_a_connection_that_comes_and_goes_is_not_spoken_of_each_time(self):
        self.forgive(*GONE)
        page = self.open("/locks")
        expect(page.locator(".live.is-live")).to_be_visible()
        page.evaluate(LISTEN)
        module = "import(new URL('app.js', document.baseURI)).then(({modules: {'model/connection.js': c}}) => { c.close(); c.open(); })"
        for _ in range(10):
            page.evaluate(module)
            expect(page.locator(".live.is-live")).to_be_visible()
        page.wait_for_timeout(2_500)
        self.assertEqual(self.heard(page), [])
        # What lasts is told, once.
        self.gateway.stop()
        expect(page.get_by_text("Connection lost, reconnecting.")).to_be_visible()
        until("it is said", lambda: page.wait_for_timeout(50) or self.heard(page))
        page.wait_for_timeout(2_500)
        self.assertEqual(self.heard(page), ["Reconnecting: the connection is lost"])

    def test_the_roles_of_the_table(self):
        for number in range(100):
            self.gateway.acquire(f"many:{number:03}", owner="somebody", ttl_ms=600_000)
        page = self.open("/locks")
        expect(page.get_by_text("100 locks held")).to_be_visible()
        grid = page.get_by_role("grid", name="Held locks")
        # What is out of sight does not exist, and is counted all the same.
        expect(grid).to_have_attribute("aria-rowcount", "101")
        expect(grid).to_have_attribute("aria-colcount", "6")
        heads = grid.get_by_role("columnheader")
        self.assertEqual(
            heads.all_inner_texts(),
            ["Name", "Owner", "Held for", "Time left", "Job", "Waiters"],
        )
        expect(grid.get_by_role("columnheader", name="Name")).to_have_attribute("aria-sort", "ascending")
        row = grid.get_by_role("row").filter(has_text="many:007")
        expect(row).to_have_attribute("aria-rowindex", "9")
        expect(row.get_by_role("gridcell")).to_have_count(6)
        # Every picture is hidden or has words.
        unnamed = page.evaluate(
            "[...document.querySelectorAll('svg')].filter((svg) => !svg.closest('[aria-hidden=true]') && svg.getAttribute('role') !== 'img').length"
        )
        self.assertEqual(unnamed, 0)

    def test_the_landmarks_of_the_page(self):
        page = self.open("/locks/one")
        expect(page.get_by_role("region", name="Holder")).to_be_visible()
        for role in ("banner", "main"):
            expect(page.get_by_role(role)).to_have_count(1)
        expect(page.get_by_role("navigation", name="Pages").get_by_role("link", name="Locks")).to_have_attribute("aria-current", "page")
        for name in ("Holder", "Queue", "History", "Last events", "Try it", "From a terminal"):
            expect(page.get_by_role("region", name=name)).to_have_count(1)
