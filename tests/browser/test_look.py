"""How the list and the overview look: what is as it should be does not shout, and what is not does."""

import json

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import Gateway, until
from redis_server import Redis


def colour(element):
    return element.evaluate("(element) => getComputedStyle(element).color")


class Look(BrowserCase):
    def test_a_row_does_not_say_that_a_held_lock_is_held(self):
        self.gateway.acquire("plain", ttl_ms=600_000)
        self.gateway.acquire("soon", ttl_ms=600_000)
        context = self.context()

        def nearly_over(route):
            answer = route.fetch()
            body = answer.json()
            for lock in body["locks"]:
                if lock["name"] == "soon":
                    lock["holders"][0]["expires_in_ms"] = 140_000
            route.fulfill(response=answer, body=json.dumps(body))

        context.route("**/locks?*", nearly_over)
        page = self.open("/locks", context=context)
        row = page.get_by_role("row").filter(has_text="plain")
        expect(row).to_have_count(1)
        expect(row.locator(".state")).to_have_count(0)
        # A screen reader reads it all the same.
        expect(row.get_by_role("gridcell").first).to_have_text("held")
        expect(page.get_by_role("row").filter(has_text="soon").locator(".state.ending")).to_be_visible()
        page.goto(f"{self.gateway.url}/dashboard/locks/plain")
        state = page.locator(".title .state")
        expect(state).to_have_text("held")
        good = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--good')").strip()
        rgb = f"rgb({', '.join(str(int(good[at:at + 2], 16)) for at in (1, 3, 5))})"
        self.assertNotEqual(colour(state), rgb)

    def test_lines_for_a_terminal_are_whole(self):
        self.gateway.acquire("a-lock-with-a-name:" + "x" * 150, ttl_ms=600_000)
        for size in ({"width": 1280, "height": 800}, {"width": 390, "height": 844}):
            page = self.open("/locks/a-lock-with-a-name:" + "x" * 150, viewport=size)
            lines = page.locator(".curl code")
            expect(lines).to_have_count(4)
            for line in lines.all():
                self.assertTrue(line.evaluate("(code) => code.scrollWidth <= code.clientWidth"))
                self.assertGreater(line.bounding_box()["height"], 40)
            self.assert_fits(page)

    def test_a_line_shows_how_many_have_waited_and_moves_nothing(self):
        self.gateway.acquire("crowd", ttl_ms=600_000)
        self.gateway.acquire("quiet", ttl_ms=600_000)
        page = self.open("/locks", reduced_motion="reduce")
        crowd, quiet = (page.get_by_role("row").filter(has_text=name).locator(".of-waiters") for name in ("crowd", "quiet"))
        expect(crowd.locator("svg.spark")).to_have_count(1)
        place = lambda cell: (cell.bounding_box(), cell.locator("svg.spark").bounding_box())  # noqa: E731
        before = place(crowd)
        self.gateway.wait_for("crowd", "one")
        self.gateway.wait_for("crowd", "two")
        line = crowd.get_by_role("img")
        expect(line).to_have_attribute("aria-label", "Waiters over the last 2m 00s: at least 0, at most 2, now 2")
        self.assertRegex(line.locator("path").get_attribute("d"), r"^M\d+\.\d \d+\.\dL")
        expect(crowd).to_contain_text("2")
        self.assertEqual(place(crowd), before)
        # Where nobody has waited nothing is drawn, and nothing is read out.
        expect(quiet.locator("path")).to_have_count(0)
        expect(quiet.get_by_role("img")).to_have_count(0)

    def test_ready_is_not_green_beside_an_outage_or_a_warning(self):
        context = self.context()
        found = []

        def checked(route):
            answer = route.fetch()
            body = answer.json()
            body["checks"] = [*found, *body["checks"]]
            route.fulfill(response=answer, body=json.dumps(body))

        context.route("**/stats", checked)
        context.route("**/readyz", checked)
        page = self.open(context=context)
        verdict = page.locator(".verdict")
        expect(verdict).to_have_text("ready")
        green = colour(verdict)
        found.append({"name": "keys", "status": "warning", "detail": "old"})
        expect(verdict).to_have_text("ready, with a warning")
        self.assertNotEqual(colour(verdict), green)
        found.append({"name": "connection", "status": "outage", "detail": "no answer"})
        expect(verdict).to_have_text("in service, with an outage")
        self.assertNotEqual(colour(verdict), green)

    def test_a_quorum_that_refuses_says_for_how_long(self):
        context = self.context()
        found = {"name": "votes", "status": "outage", "detail": "b: it votes in 90 s", "refuses_for_ms": 90_000}

        def checked(route):
            answer = route.fetch()
            body = answer.json()
            body["checks"] = [found, *body["checks"]]
            route.fulfill(response=answer, body=json.dumps(body))

        context.route("**/stats", checked)
        context.route("**/readyz", checked)
        page = self.open(context=context)
        expect(page.locator(".banner")).to_contain_text("The quorum refuses grants for another 1m 2")
        expect(page.get_by_role("region", name="Health")).to_contain_text("refuses grants for another 1m 2")
        expect(page.get_by_text("The store has not responded")).to_have_count(0)
        expect(page.locator(".live")).to_have_text("Grants refused")
        # Of those who wait through other gateways of a quorum this one knows nothing.
        expect(page.locator(".overview > .tiles .label").first).to_have_text("Locks held")
        expect(page.locator(".overview > .tiles").get_by_text("Waiters")).to_have_count(0)
        expect(page.get_by_role("region", name="Most contended")).to_contain_text("through it")
        # Of others nobody knows how long that takes.
        del found["refuses_for_ms"]
        expect(page.locator(".banner")).to_contain_text("The quorum refuses grants. ")
        found["status"] = "passing"
        expect(page.locator(".banner")).to_have_count(0)


class Gateways(BrowserCase):
    def new_gateway(self):
        self.redis = Redis()
        self.addCleanup(self.redis.end)
        return Gateway(store=self.redis.url)

    def test_each_figure_is_of_all_gateways_or_stands_under_the_name_of_one(self):
        other = Gateway(store=self.redis.url)
        self.addCleanup(other.end)
        self.gateway.acquire("shared", ttl_ms=600_000)
        other.acquire("there", ttl_ms=600_000)
        self.gateway.wait_for("shared", "here")
        for owner in ("there 1", "there 2"):
            other.wait_for("shared", owner)
        page = self.open()
        all_tiles = page.locator(".overview > .tiles .tile")
        tile = lambda tiles, title: tiles.filter(has=page.get_by_text(title, exact=True)).locator(".value")  # noqa: E731
        expect(tile(all_tiles, "Waiters")).to_have_text("3")
        expect(tile(all_tiles, "Locks held")).to_have_text("2")
        self.assertEqual(all_tiles.locator(".label").all_inner_texts(), ["Locks held", "Waiters", "Longest hold"])
        instance = self.gateway.call("GET", "/stats")[1]["instance"]
        one = page.get_by_role("region", name=f"Through gateway {instance[:8]}")
        expect(tile(one.locator(".tile"), "Waiters")).to_have_text("1")
        expect(tile(one.locator(".tile"), "Leases")).to_have_text("1")
        expect(tile(one.locator(".tile"), "Longest wait")).to_contain_text("s")
        expect(one.get_by_role("figure")).to_have_count(2)
        of_all = page.get_by_role("figure").filter(has_text="Locks held and waiters")
        expect(of_all).to_contain_text("Held2")
        expect(of_all).to_contain_text("Waiters3")
        crowded = page.get_by_role("region", name="Most contended")
        expect(crowded).to_contain_text("3")
        expect(crowded.get_by_role("columnheader")).to_have_text(["Lock", "Holder", "Waiters"])

    def test_behind_a_load_balancer_the_figures_are_those_of_one_gateway(self):
        other = Gateway(store=self.redis.url)
        self.addCleanup(other.end)
        other.acquire("there", ttl_ms=600_000)
        context = self.context()
        answers = []

        def balance(route):
            answers.append(route.request.url)
            if len(answers) % 2:
                return route.continue_()
            route.fulfill(response=route.fetch(url=f"{other.url}/stats"))

        context.route("**/stats", balance)
        page = self.open(context=context)
        instance = self.gateway.call("GET", "/stats")[1]["instance"]
        name = page.locator("#of-gateway .mono")
        expect(name).to_have_text(instance[:8])
        page.evaluate(
            "window.names = new Set(); new MutationObserver(() => window.names.add(document.querySelector('#of-gateway')?.innerText))"
            ".observe(document.querySelector('main'), { subtree: true, childList: true, characterData: true })"
        )
        until("both have answered again", lambda: page.wait_for_timeout(50) or len(answers) >= 5)
        expect(page.get_by_role("region", name="Gateways").get_by_role("row")).to_have_count(3)
        self.assertEqual(page.evaluate("[...window.names]"), [f"Through gateway {instance[:8]}"])
