"""A search finds any part of name, owner and metadata: of what is loaded at once, and of the rest at the gateway."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlparse

from playwright.sync_api import expect

from browser import BrowserCase
from test_many import fill

SEARCH = "Search name, owner, metadata"


def loads_few(context):
    """A page that has loaded all it loads has heard of some only. Answers the queries that it sends."""
    asked = []

    def few(route):
        query = parse_qs(urlparse(route.request.url).query)
        asked.append(query)
        answer = route.fetch()
        if "search" in query:
            return route.fulfill(response=answer)
        body = answer.json()
        one = body["locks"][-1]
        holders = [{**one["holders"][0], "metadata": {}}]
        locks = [{**one, "name": f"loaded:{number}", "holders": holders} for number in range(10_000)]
        route.fulfill(response=answer, body=json.dumps({"locks": locks, "next_cursor": "x" * 24}))

    context.route("**/locks?*", few)
    return asked


class Search(BrowserCase):
    def test_a_part_of_name_owner_or_metadata_is_found_whatever_its_case(self):
        self.gateway.acquire("deploy:prod", owner="anna", ttl_ms=600_000)
        self.gateway.acquire("build", owner="PROD runner", ttl_ms=600_000)
        self.gateway.acquire("ticket", owner="bert", ttl_ms=600_000, metadata={"page": "https://ci.example/Prod/1"})
        self.gateway.acquire("other", owner="carl", ttl_ms=600_000, metadata={"prod": "no value"})
        page = self.open("/locks")
        rows = page.locator(".grid .body .of-name a")
        expect(rows).to_have_count(4)
        page.get_by_label(SEARCH).fill("pROD")
        expect(rows).to_have_text(["build", "deploy:prod", "ticket"])
        expect(page.get_by_text("3 of 4 locks held")).to_be_visible()
        # What was found is said where neither the name nor the owner shows it.
        expect(page.get_by_role("row").filter(has_text="ticket")).to_contain_text("page: https://ci.example/Prod/1")
        expect(page.get_by_role("row").filter(has_text="build").locator(".match")).to_have_count(0)
        # The address has it, so it can be sent to somebody; one of an earlier version had the owner.
        self.assertIn("search=pROD", page.url)
        page.get_by_label("Name begins with").fill("dep")
        expect(rows).to_have_text(["deploy:prod"])
        page = self.open("/locks?owner=BERT")
        expect(page.get_by_label(SEARCH)).to_have_value("BERT")
        expect(page.locator(".grid .body .of-name a")).to_have_text(["ticket"])
        page.get_by_label(SEARCH).fill("nothing-like-that")
        expect(page.get_by_text("No held locks match")).to_be_visible()
        page.get_by_role("button", name="Clear the search").click()
        expect(page.locator(".grid .body .of-name a")).to_have_count(4)

    def test_metadata_is_found_that_no_event_has_told(self):
        page = self.open("/locks")
        expect(page.locator(".live.is-live")).to_be_visible()
        expect(page.get_by_text("No lock is held")).to_be_visible()
        # Heard of by its event, long before the list is read again.
        page.clock.install()
        self.gateway.acquire("fresh", owner="anna", ttl_ms=600_000, metadata={"job": "Nightly-4711"})
        expect(page.get_by_role("row").filter(has_text="fresh")).to_have_count(1)
        page.get_by_label(SEARCH).fill("nightly-47")
        page.clock.run_for(300)
        expect(page.get_by_role("row").filter(has_text="fresh")).to_contain_text("job: Nightly-4711")

    def test_the_gateway_is_asked_for_what_is_not_loaded(self):
        with ThreadPoolExecutor() as other:
            other.submit(asyncio.run, fill(self.gateway.url, 60)).result()
        self.gateway.acquire("far:away", owner="zoe", ttl_ms=600_000, metadata={"job": "Needle"})
        context = self.context()
        asked = loads_few(context)
        page = self.open("/locks", context=context)
        expect(page.get_by_text("There are more than the 10,000 that are loaded")).to_be_visible()
        rows = page.locator(".grid .body .of-name a")
        page.get_by_label(SEARCH).fill("NEEDLE")
        expect(rows).to_have_text(["far:away"])
        self.assertEqual([query["search"] for query in asked if "search" in query], [["NEEDLE"]])
        page.get_by_label(SEARCH).fill("many:0005")
        expect(rows).to_have_count(10)
        page.get_by_label(SEARCH).fill("many:00050")
        expect(rows).to_have_text(["many:00050"])
        # What was shown for the sake of a search goes with it.
        page.get_by_label(SEARCH).fill("")
        # Long before the list is read again.
        expect(page.get_by_text("10,000 locks and more held")).to_be_visible(timeout=30_000)
        self.assert_fits(page)


    def test_a_capital_sigma_is_found_in_the_middle_of_a_word(self):
        self.gateway.acquire("greek", owner="ΟΔΟΣΑΣ", ttl_ms=600_000)
        page = self.open("/locks?search=ΟΔΟΣ")
        expect(page.locator(".grid .body .of-name a")).to_have_text(["greek"])

    def test_a_busy_store_is_searched_less_and_less_often(self):
        context = self.context()
        context.clock.install()
        asked = []
        context.on("request", lambda request: "/locks?limit=1000&search=" in request.url and asked.append(request.url))
        page = self.open("/locks", context=context)
        expect(page.locator(".live.is-live")).to_be_visible()
        page.get_by_label(SEARCH).fill("nothing-like-that")
        for number in range(60):
            self.gateway.acquire(f"busy:{number}", ttl_ms=600_000)
            page.clock.run_for(1_000)
        self.assertIn(len(asked), range(2, 8))


class Permitted(BrowserCase):
    KEYS = {"ops": ["--view", "*", "--acquire", "*"]}

    def test_a_search_is_asked_again_at_once_when_permissions_change(self):
        self.gateway.acquire("far:away", ttl_ms=600_000, metadata={"job": "Needle"})
        context = self.context()
        loads_few(context)
        unanswered = []

        def first(route):
            if unanswered:
                return route.fallback()
            unanswered.append(route)

        context.route("**/locks?*search=*", first)
        page = self.open("/locks", context=context)
        self.sign_in(page, "ops")
        expect(page.get_by_text("There are more than the 10,000 that are loaded")).to_be_visible()
        with page.expect_request("**/locks?*search=*"):
            page.get_by_label(SEARCH).fill("needle")
        self.gateway.permit("ops", acquire=["team:"])
        # By itself it is asked again a minute later.
        expect(page.locator(".grid .body .of-name a")).to_have_text(["far:away"], timeout=30_000)
        self.assertEqual(len(unanswered), 1)


class Links(BrowserCase):
    def test_metadata_that_is_the_address_of_a_page_is_a_link_and_nothing_else_is(self):
        good = {"job": "https://ci.example/jobs/4711?a=b#c", "plain": "HTTP://ci.example/x"}
        bad = {
            "script": "javascript:alert(1)",
            "data": "data:text/html,<b>x</b>",
            "file": "file:///etc/passwd",
            "relative": "/dashboard",
            "words": "see https://ci.example/",
            "spaces": "https://ci.example/a b",
            "user": "https://bank.example@evil.example/",
            "hidden": "https://ci.example/\u202egpj.exe",
            "backslash": "https:\\\\ci.example",
            "none": "https://",
            "look-alike": "https://\u0441i.example/",
            "escaped": "https://%63i.example/",
            "number": "http://127.1/",
        }
        self.gateway.acquire("linked", ttl_ms=600_000, metadata={**good, **bad})
        page = self.open("/locks/linked")
        holder = page.get_by_role("region", name="Holder")
        expect(holder).to_contain_text("backslash")
        links = holder.locator(".metadata a")
        expect(links).to_have_text([*good.values()])
        for link in links.all():
            self.assertEqual(link.get_attribute("rel"), "noopener noreferrer")
            self.assertEqual(link.get_attribute("target"), "_blank")
        self.assertEqual(links.first.get_attribute("href"), good["job"])
        # One sees that it is one.
        style = "(element, name) => getComputedStyle(element)[name]"
        words = holder.locator(".metadata dd").filter(has_text=bad["words"]).locator(".text")
        self.assertNotEqual(links.first.evaluate(style, "color"), words.evaluate(style, "color"))
        self.assertEqual(links.first.locator(".text").evaluate(style, "textDecorationLine"), "underline")
        self.assertEqual(words.evaluate(style, "textDecorationLine"), "none")
