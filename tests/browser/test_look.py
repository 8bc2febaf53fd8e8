"""How the list and the overview look: what is as it should be does not shout, and what is not does."""

import json
import re

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
        expect(row.locator(".of-age")).to_have_text(re.compile(r"^held \d+s$"))
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
            expect(lines).to_have_count(7)
            for line in lines.all():
                self.assertTrue(line.evaluate("(code) => code.scrollWidth <= code.clientWidth"))
                self.assertGreater(line.bounding_box()["height"], 40)
            self.assert_fits(page)

    def test_sorting_by_waiters_begins_with_the_most_and_by_time_held_with_the_longest(self):
        for name in ("a:quiet", "b:crowd"):
            self.gateway.acquire(name, ttl_ms=600_000)
        self.gateway.wait_for("b:crowd", "one")
        page = self.open("/locks")
        names = page.locator(".grid .body .of-name a")
        expect(names).to_have_text(["a:quiet", "b:crowd"])
        head = page.get_by_role("columnheader", name="Waiters")
        head.get_by_role("button").click()
        expect(head).to_have_attribute("aria-sort", "descending")
        expect(names).to_have_text(["b:crowd", "a:quiet"])
        head.get_by_role("button").click()
        expect(names).to_have_text(["a:quiet", "b:crowd"])
        page.get_by_role("columnheader", name="Held for").get_by_role("button").click()
        expect(names).to_have_text(["a:quiet", "b:crowd"])
        expect(page.get_by_role("columnheader", name="Held for")).to_have_attribute("aria-sort", "descending")

    def test_a_request_to_release_shows_in_the_list_at_once_and_after_a_reload(self):
        self.gateway.acquire("alone", ttl_ms=600_000)
        first = self.gateway.acquire("shared", limit=2, ttl_ms=600_000)
        self.gateway.acquire("shared", limit=2, ttl_ms=600_000)
        page = self.open("/locks")
        rows = page.get_by_role("row")
        expect(page.locator(".live.is-live")).to_be_visible()
        expect(rows.filter(has_text="shared")).to_have_count(1)
        expect(page.get_by_text("asked", exact=True)).to_have_count(0)
        # The list is not read again meanwhile: the event tells it.
        page.route("**/locks?*", lambda route: route.abort())
        self.forgive("net::ERR_FAILED")
        self.gateway.call("POST", "/locks/alone/break", {"reason": "a newer one", "grace_ms": 300_000})
        one = {"reason": "a newer one", "grace_ms": 300_000, "fencing_token": first["fencing_token"]}
        self.gateway.call("POST", "/locks/shared/break", one)
        for name in ("alone", "shared"):
            expect(rows.filter(has_text=name)).to_contain_text("asked", timeout=8_000)
        page.unroute("**/locks?*")
        page.reload()
        for name in ("alone", "shared"):
            expect(rows.filter(has_text=name)).to_contain_text("asked")
        page.goto(f"{self.gateway.url}/dashboard/locks/shared")
        expect(page.locator(".title .state")).to_have_text("asked")
        expect(page.locator(".sharers li").filter(has_text="a newer one")).to_have_count(1)

    def test_on_the_overview_there_is_one_longest_wait_and_one_longest_hold(self):
        self.gateway.acquire("crowd", ttl_ms=600_000)
        self.gateway.wait_for("crowd", "one")
        page = self.open()
        expect(page.get_by_role("region", name="Most contended")).to_contain_text("crowd")
        for title in ("Longest wait", "Longest hold"):
            expect(page.get_by_text(title, exact=True)).to_have_count(1)

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
        for title in ("Longest wait", "Longest hold"):
            expect(page.get_by_text(title, exact=True)).to_have_count(1)
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
        rows = page.get_by_role("region", name="Gateways").get_by_role("row")
        expect(rows).to_have_count(3)
        # Each keeps its row, whichever has answered last.
        places = set()
        until("both have answered again", lambda: page.wait_for_timeout(50)
              or places.add(tuple(rows.locator("td:first-child").all_inner_texts())) or len(answers) >= 5)
        self.assertEqual(len(places), 1, places)
        self.assertEqual(page.evaluate("[...window.names]"), [f"Through gateway {instance[:8]}"])
