"""The list of locks: chips that narrow it, the state behind the name, the link of a job, and a sort that is remembered."""

import datetime
import re

from playwright.sync_api import expect

from gateway import lock
from test_attention import LIST, AttentionCase

SEARCH = "Search name, owner, metadata"
WIDTHS = (390, 768, 1440)


class Chips(AttentionCase):
    def names(self, page):
        return page.locator(".grid .body .of-name a")

    def chip(self, page, name):
        return page.get_by_role("group", name="Show only").get_by_role("button", name=name)

    def test_each_shows_the_locks_in_its_state_and_how_many_there_are(self):
        end = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.gateway.acquire("plain", ttl_ms=600_000)
        self.gateway.acquire("crowded", ttl_ms=600_000)
        self.gateway.wait_for("crowded", "ci-7", 55_000)
        self.gateway.acquire("kept", reserve={"until": end, "reason": "demo"})
        rests = self.gateway.acquire("rests", ttl_ms=600_000, min_hold_ms=500_000)
        self.gateway.call("DELETE", lock("rests"), headers={"Lock-Token": rests["token"]})
        self.gateway.acquire("asked", ttl_ms=600_000)
        self.gateway.call("POST", lock("asked", "break"), {"reason": "a newer one", "grace_ms": 500_000})
        for owner in ("one", "two"):
            self.gateway.acquire("pool", limit=3, owner=owner, ttl_ms=600_000)
        self.gateway.acquire("partial", ttl_ms=600_000)
        context = self.context()

        def waiting(body, _):
            for one in body["locks"]:
                if one["name"] == "partial":
                    one["holders"][0]["waiting"] = True

        self.changed(context, LIST, waiting)
        page = self.open("/locks", context=context)
        expect(self.names(page)).to_have_count(7)
        for chip, name in (("Waited for", "crowded"), ("Reserved", "kept"), ("Resting", "rests"), ("Release requested", "asked"),
                           ("Shared", "pool"), ("Group that waits", "partial")):
            expect(self.chip(page, chip)).to_have_text(re.compile(rf"{chip} 1$"))
            self.chip(page, chip).click()
            expect(self.names(page)).to_have_text([name])
            expect(self.chip(page, chip)).to_have_attribute("aria-pressed", "true")
        expect(page.get_by_text("1 of 7 locks held or resting")).to_be_visible()
        # The address has it, so it can be sent to somebody.
        self.assertIn("show=waiting", page.url)
        self.chip(page, "Group that waits").click()
        expect(self.names(page)).to_have_count(7)
        self.assertNotIn("show=", page.url)

    def test_where_none_is_in_that_state_the_way_back_is_shown(self):
        self.gateway.acquire("plain", ttl_ms=600_000)
        page = self.open("/locks?show=reserved")
        expect(page.get_by_text("No held locks match")).to_be_visible()
        page.get_by_role("button", name="Show all locks").click()
        expect(self.names(page)).to_have_text(["plain"])

    def test_the_most_wanted_sort_takes_one_press_at_every_width_and_is_remembered(self):
        for name, waiters in (("a", 0), ("b", 2), ("c", 1)):
            self.gateway.acquire(name, ttl_ms=600_000)
            for number in range(waiters):
                self.gateway.wait_for(name, f"{name}{number}", 55_000)
        for width in WIDTHS:
            context = self.context(viewport={"width": width, "height": 800})
            page = self.open("/locks", context=context)
            expect(self.names(page)).to_have_text(["a", "b", "c"])
            if width > 960:
                page.get_by_role("columnheader", name="Waiters").get_by_role("button").click()
            else:
                self.chip(page, "Most waiters first").click()
            expect(self.names(page)).to_have_text(["b", "c", "a"])
            page.goto(f"{self.gateway.url}/dashboard/locks")
            expect(self.names(page)).to_have_text(["b", "c", "a"])


class Rows(AttentionCase):
    def test_the_state_stands_behind_the_name_and_held_is_not_said(self):
        self.gateway.acquire("calm", ttl_ms=600_000)
        self.gateway.acquire("asked:" + "with-a-long-name-" * 8, ttl_ms=600_000)
        self.gateway.call("POST", lock("asked:" + "with-a-long-name-" * 8, "break"), {"reason": "a newer one", "grace_ms": 500_000})
        page = self.open("/locks")
        asked = page.get_by_role("row").filter(has_text="asked:")
        expect(page.get_by_role("row").filter(has_text="calm").locator(".tag")).to_have_count(0)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            # The name is cut, and the state is not.
            expect(asked.locator(".tag")).to_have_text("asked")
            cell, tag = asked.locator(".of-name").bounding_box(), asked.locator(".tag").bounding_box()
            self.assertLessEqual(tag["x"] + tag["width"], cell["x"] + cell["width"] + 1, width)
            self.assert_fits(page)

    def test_the_link_of_the_job(self):
        jobs = {
            "linked": ({"commit": "ab12", "url": "https://ci.example/jobs/4711?x=1"}, "url 4711", "https://ci.example/jobs/4711?x=1"),
            "named": ({"commit": "ab12", "job": "4712"}, "job 4712", None),
            "neither": ({"commit": "ab12"}, "–", None),
            "odd": ({"job": "https://ci.example/%zz"}, "job %zz", "https://ci.example/%zz"),
        }
        for name, (metadata, _, _) in jobs.items():
            self.gateway.acquire(name, ttl_ms=600_000, metadata=metadata)
        page = self.open("/locks", viewport={"width": 1440, "height": 900})
        for name, (_, words, to) in jobs.items():
            cell = page.get_by_role("row").filter(has=page.locator(f"a[href$='/{name}']")).locator(".of-job")
            expect(cell).to_have_text(words)
            if to:
                expect(cell.locator("a")).to_have_attribute("href", to)
                expect(cell.locator("a")).to_have_attribute("rel", "noopener noreferrer")
            else:
                expect(cell.locator("a")).to_have_count(0)


class Waiters(AttentionCase):
    def searched(self, match):
        """A gateway that finds waiters."""
        context = self.context()
        self.asked = []

        def answer(route):
            if "search=" not in route.request.url:
                return route.fallback()
            self.asked.append(route.request.url)
            fetched = self.gateway.call("GET", "/locks")[1]
            found = [{**one, "match": match} for one in fetched["locks"] if one["name"] == "deploy"]
            route.fulfill(json={"locks": found, "next_cursor": None})

        context.route(LIST, answer)
        return context

    def test_are_found_at_the_gateway_and_what_matched_stands_below_the_name(self):
        self.gateway.acquire("deploy", owner="anna", ttl_ms=600_000)
        self.gateway.acquire("other", owner="bert", ttl_ms=600_000)
        self.gateway.wait_for("deploy", "runner-8", 55_000)
        for match, words in (
            ({"of": "waiter", "field": "owner", "name": None, "value": "runner-8"}, "waiter: runner-8"),
            ({"of": "waiter", "field": "metadata", "name": "job", "value": "runner-8/1"}, "waiter, job: runner-8/1"),
        ):
            page = self.open("/locks", context=self.searched(match))
            names = page.locator(".grid .body .of-name a")
            expect(names).to_have_count(2)
            page.get_by_label(SEARCH).fill("RUNNER-8")
            expect(names).to_have_text(["deploy"])
            expect(page.locator(".match")).to_have_text(words)
            expect(page.get_by_text("its first 100 waiters")).to_be_visible()
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 800})
                shown = page.locator(".match").bounding_box()
                row = page.locator(".grid .body .row").bounding_box()
                self.assertLessEqual(shown["y"] + shown["height"], row["y"] + row["height"], width)
                self.assert_fits(page)
            # The search is over, and so is what it has found.
            page.get_by_label(SEARCH).fill("")
            expect(names).to_have_count(2)
            expect(page.locator(".match")).to_have_count(0)
            page.get_by_label(SEARCH).fill("runner-9")
            expect(page.get_by_text("No held locks match").or_(names.first)).to_be_visible()
            self.assertGreater(len(self.asked), 0)
            page.close()

    def test_the_gateway_is_not_asked_where_nobody_waits(self):
        self.gateway.acquire("deploy", owner="anna", ttl_ms=600_000)
        page = self.open("/locks", context=self.searched({}))
        expect(page.locator(".grid .body .of-name a")).to_have_count(1)
        page.get_by_label(SEARCH).fill("runner")
        expect(page.get_by_text("No held locks match")).to_be_visible()
        page.wait_for_timeout(1_000)
        self.assertEqual(self.asked, [])
