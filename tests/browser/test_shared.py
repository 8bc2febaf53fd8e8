"""A lock that several share: all of them are shown, and one or all can be broken. What is shared is what the tests say."""

import json
import re

from playwright.sync_api import expect

from browser import BrowserCase

# What the page asks for, and not the page itself, whose address ends in the same way.
LIST = re.compile(r"^http://[^/]+/locks\?")
LOCK = re.compile(r"^http://[^/]+/locks/gpu$")


def holder(fence, slot, **more):
    return {
        "owner": f"worker {slot}", "metadata": {}, "fencing_token": fence, "mode": "shared", "slot": slot,
        "ttl_ms": 600_000, "expires_in_ms": 300_000 + fence, "expires_at": "2026-11-20T12:00:30.000Z",
        "acquired_at": "2026-11-20T12:00:00.000Z", "hold_expires_in_ms": None, "foreign": False, "foreign_mark": None,
        "group": None, **more,
    }


class Shared(BrowserCase):
    def faked(self, holders, count=None, waiters=()):
        """A page on which the lock `gpu` is shared by these; and what it has asked to break."""
        context = self.context()
        self.holders, self.count = holders, count
        asked = []

        def shape():
            return {"holders": self.holders, "holder_count": self.count or len(self.holders)}

        def lock(route):
            body = {"name": "gpu", "state": "held" if self.holders else "free", **shape(),
                    "waiters": list(waiters), "waiter_count": len(waiters)}
            route.fulfill(json=body)

        def listed(route):
            locks = [{"name": "gpu", **shape(), "waiter_count": len(waiters)}] if self.holders else []
            route.fulfill(json={"locks": locks, "next_cursor": None})

        def broken(route):
            asked.append(json.loads(route.request.post_data))
            route.fulfill(json={"name": "gpu", **shape()})

        context.route(LIST, listed)
        context.route(LOCK, lambda route: lock(route) if route.request.method == "GET" else route.continue_())
        context.route("**/locks/gpu/break", broken)
        return context, asked

    def test_the_list_says_how_many_hold_it_and_finds_each_of_them(self):
        context, _ = self.faked([holder(7, 0), holder(9, 1, metadata={"job": "4711"})], count=120)
        page = self.open("/locks", context=context)
        row = page.get_by_role("row").filter(has_text="gpu")
        expect(row).to_contain_text("120 holders")
        expect(row).not_to_contain_text("worker")
        search = page.get_by_label("Search name, owner, metadata")
        for text in ("worker 1", "4711"):
            search.fill(text)
            expect(row).to_have_count(1)
        search.fill("worker 5")
        expect(page.get_by_text("No held locks match")).to_be_visible()

    def test_the_page_has_a_row_for_each_holder_with_its_slot(self):
        waiters = [
            {"position": 1, "owner": "writer", "mode": "exclusive", "limit": None, "waited_ms": 10},
            {"position": 2, "owner": "reader", "mode": "shared", "limit": None, "waited_ms": 5},
            {"position": 3, "owner": "job", "mode": "shared", "limit": 3, "waited_ms": 5},
        ]
        context, _ = self.faked([holder(7, 0), holder(9, 3), holder(11, None)], count=103, waiters=waiters)
        page = self.open("/locks/gpu", context=context)
        panel = page.locator(".sharers")
        expect(panel.get_by_role("heading", name="Holders")).to_contain_text("103")
        rows = panel.locator("li")
        expect(rows).to_have_count(3)
        for row, texts in zip(rows.all(), (("0", "worker 0", "7"), ("3", "worker 3", "9"), ("shared", "11"))):
            for text in texts:
                expect(row).to_contain_text(text)
        # A screen reader says what the time is.
        expect(rows.first).to_contain_text(re.compile(r"time left\s*[45]m"))
        expect(panel).to_contain_text("and 100 more")
        queue = page.locator(".queue tbody tr")
        expect(queue.nth(0)).not_to_contain_text("shared")
        expect(queue.nth(1)).to_contain_text("shared")
        expect(queue.nth(2)).to_contain_text("shared by at most 3")
        self.assert_fits(page)

    def say_why(self, page):
        page.get_by_label("Reason").fill("drain")
        self.ask_nobody(page)
        page.get_by_role("button", name="Break it now").click()
        expect(page.get_by_role("dialog")).to_have_count(0)

    def test_one_is_broken_by_its_row(self):
        context, asked = self.faked([holder(7, 0), holder(9, 1)])
        page = self.open("/locks/gpu", context=context)
        page.get_by_role("button", name="Break the lease 9").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("worker 1")
        expect(dialog).to_contain_text("1 lease goes on")
        self.say_why(page)
        self.assertEqual(asked, [{"reason": "drain", "fencing_token": 9}])

    def test_all_are_broken_together(self):
        context, asked = self.faked([holder(7, 0), holder(9, 1)])
        page = self.open("/locks/gpu", context=context)
        page.get_by_role("button", name="Break all…").click()
        expect(page.get_by_role("dialog")).to_contain_text("2 holders: all who share it")
        self.say_why(page)
        self.assertEqual(asked, [{"reason": "drain", "all": True}])

    def test_a_lease_that_has_ended_meanwhile_is_not_broken(self):
        context, asked = self.faked([holder(7, 0), holder(9, 1), holder(11, 2)])
        page = self.open("/locks/gpu", context=context)
        page.get_by_role("button", name="Break the lease 9").click()
        self.holders = [holder(7, 0), holder(11, 2)]
        # The page looks anew every ten seconds.
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("The leases to break have ended by now")
        dialog.get_by_role("button", name="Close").last.click()
        expect(dialog).to_have_count(0)
        self.assertEqual(asked, [])

    def test_all_are_not_broken_when_the_lock_has_gone_to_somebody_else(self):
        context, asked = self.faked([holder(7, 0), holder(9, 1)])
        page = self.open("/locks/gpu", context=context)
        page.get_by_role("button", name="Break all…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("2 holders: all who share it")
        # One of them goes on: all who share the lock are still meant.
        self.holders = [holder(7, 0)]
        expect(dialog).to_contain_text("1 holder: all who share it", timeout=15_000)
        page.get_by_label("Reason").fill("drain")
        self.ask_nobody(page)
        # Both have ended, and whoever waited for that has the lock.
        self.holders = [holder(11, None, mode="exclusive", owner="writer")]
        expect(dialog).to_contain_text("Another caller holds the lock by now: writer", timeout=15_000)
        expect(dialog.get_by_role("button", name="Break it now")).to_have_count(0)
        dialog.get_by_role("button", name="Look at the new holder").click()
        expect(dialog).to_contain_text("Fencing token11")
        self.assertEqual(asked, [])

    def test_a_holder_is_asked_first_unless_somebody_decides_otherwise(self):
        context, asked = self.faked([holder(7, 0), holder(9, 1)])
        page = self.open("/locks/gpu", context=context)
        page.get_by_role("button", name="Break the lease 9").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill("deploy")
        expect(dialog.get_by_label("Request a release, and break the lock after")).to_have_value("30000")
        dialog.get_by_role("button", name="Request release").click()
        expect(dialog).to_have_count(0)
        self.assertEqual(asked, [{"reason": "deploy", "fencing_token": 9, "grace_ms": 30_000}])

    def test_a_lock_that_one_shares_is_shown_with_its_mode_and_slot(self):
        context, asked = self.faked([holder(7, 4)])
        page = self.open("/locks/gpu", context=context)
        facts = page.locator(".holder .facts")
        expect(facts).to_contain_text("shared")
        expect(facts).to_contain_text("Slot4")
        page.get_by_role("button", name="Break…", exact=True).click()
        self.say_why(page)
        self.assertEqual(asked, [{"reason": "drain", "fencing_token": 7}])

    def test_a_lock_that_was_acquired_with_others_says_with_how_many(self):
        group = {"first": "cluster:eu", "count": 3}
        context, _ = self.faked([holder(7, None, mode="exclusive", group=group)])
        page = self.open("/locks/gpu", context=context)
        expect(page.locator(".holder .facts")).to_contain_text("Acquired withcluster:eu and 1 other")
        self.holders = [holder(7, 0, group={"first": None, "count": 2}), holder(9, 1)]
        page = self.open("/locks/gpu", context=context)
        rows = page.locator(".sharers li")
        expect(rows.nth(0)).to_contain_text("acquired with 1 other")
        expect(rows.nth(1)).not_to_contain_text("acquired with")

    def test_a_holder_that_waits_says_for_which_lock(self):
        group = {"first": "gpu", "count": 2}
        waits_for = {"name": "freeze", "since_ms": 31_000, "holders": [holder(9, None, mode="exclusive", owner="ann")]}
        context, _ = self.faked([holder(7, None, mode="exclusive", group=group, waiting=True, waits_for=waits_for)])
        page = self.open("/locks", context=context)
        expect(page.get_by_role("row").filter(has_text="gpu")).to_contain_text("waiting")
        page = self.open("/locks/gpu", context=context)
        expect(page.locator(".title .state")).to_have_text("waiting")
        facts = page.locator(".holder .facts")
        expect(facts).to_contain_text(re.compile(r"Waits forfreeze for 3\ds: held by ann"))
        expect(facts).not_to_contain_text("Acquired with")
        expect(facts).to_contain_text("Group, with1 other")
        expect(facts.get_by_role("link", name="freeze")).to_have_attribute("href", re.compile("locks/freeze$"))
        page.get_by_role("button", name="Break…", exact=True).click()
        expect(page.get_by_role("dialog")).to_contain_text(re.compile(r"This job waits for freeze for 3\ds: held by ann\. Breaking this lease does not help the job\."))
        self.holders = [holder(7, None, mode="exclusive", group=group, waiting=True, waits_for={"name": None, "since_ms": 2_000, "holders": []})]
        page = self.open("/locks/gpu", context=context)
        expect(page.locator(".holder .facts")).to_contain_text(re.compile(r"Waits foranother lock for \ds"))
        reservation = {"until": "2099-01-01T00:00:00Z", "reason": "incident 4711", "reserved_by": "ann"}
        reserved = holder(9, None, mode="exclusive", owner=None, reservation=reservation)
        self.holders = [holder(7, None, mode="exclusive", group=group, waiting=True, waits_for={"name": "freeze", "since_ms": 2_000, "holders": [reserved]})]
        page = self.open("/locks/gpu", context=context)
        expect(page.locator(".holder .facts")).to_contain_text("because incident 4711")

    def test_try_it_shows_that_somebody_asks_for_its_lock(self):
        context, _ = self.faked([])
        lease = {"name": "gpu", "token": "x" * 43, "waited_ms": 0, "renew_after_ms": 10_000, **holder(7, None)}
        request = {"by": "ops", "reason": "deploy", "within_ms": 60_000}

        def answer(route):
            if route.request.method == "GET":
                return route.fallback()
            body = lease if route.request.method == "POST" else {**lease, "release_requested": request}
            route.fulfill(status=201 if route.request.method == "POST" else 200, json=body)

        context.route(LOCK, answer)
        context.route("**/locks/gpu/renew", answer)
        context.route("**/locks/gpu/release", lambda route: route.fulfill(status=204))
        page = self.open("/locks/gpu", context=context)
        panel = self.try_it(page)
        panel.get_by_role("button", name="Acquire").click()
        expect(panel).not_to_contain_text("To be released")
        self.holders = [holder(7, None)]
        panel.get_by_role("button", name="Renew", exact=True).click()
        expect(panel).to_contain_text("requested by ops, deploy")

    def test_the_mode_and_the_limit_are_sent_by_try_it(self):
        context, _ = self.faked([])
        asked = []

        def acquire(route):
            if route.request.method != "POST":
                return route.fallback()
            asked.append(json.loads(route.request.post_data))
            lease = {"name": "gpu", "token": "x" * 43, "waited_ms": 0, "renew_after_ms": 10_000, **holder(7, 2, ttl_ms=30_000)}
            route.fulfill(status=201, json=lease)

        context.route(LOCK, acquire)
        context.route("**/locks/gpu/release", lambda route: route.fulfill(status=204))
        page = self.open("/locks/gpu", context=context)
        panel = self.try_it(page)
        expect(panel.get_by_label("Limit")).to_be_disabled()
        panel.get_by_label("Mode").select_option("shared")
        panel.get_by_label("Limit").fill("3")
        panel.get_by_role("button", name="Acquire").click()
        expect(panel).to_contain_text("Slot2")
        self.assertEqual((asked[0]["mode"], asked[0]["limit"]), ("shared", 3))
