"""The page on which the API can be tried: on a phone as on a desk, and a request is only what its sender has written."""

from playwright.sync_api import expect

from browser import BrowserCase

WIDTHS = (360, 390, 1440)
# Operations with the most parameters, and with the longest lists of problems.
OPERATIONS = ("listLocks", "holdLock", "renewLocks", "releaseLock")
# Parameters that every caller of the operation must send: their fields begin with an example.
REQUIRED = {"name", "names", "Lock-Token"}


class Docs(BrowserCase):
    def docs(self, width=390):
        # The library tries to add a style of its own, which the policy of the page refuses.
        self.forgive("Applying inline style", "policy: style-src-elem inline")
        page = self.open("/../docs", viewport={"width": width, "height": 844})
        expect(page.locator(".opblock").first).to_be_visible()
        return page

    def unfold(self, page, operation):
        """The panel of an operation, ready to be tried."""
        panel = page.locator(f"[id$='-{operation}']")
        panel.locator(".opblock-summary-control").click()
        panel.get_by_role("button", name="Try it out").click()
        expect(panel.get_by_role("button", name="Execute", exact=True)).to_be_visible()
        return panel

    def test_operations_fit_a_phone_and_begin_with_what_is_required(self):
        page = self.docs()
        for operation in OPERATIONS:
            panel = self.unfold(page, operation)
            self.assert_fits(page)
            fields = panel.locator(".parameters input").evaluate_all("(all) => all.map((one) => [one.placeholder, one.value])")
            self.assertTrue(fields, operation)
            filled = {name for name, value in fields if value}
            self.assertLessEqual(filled, REQUIRED, operation)
            panel.locator(".opblock-summary-control").click()

    def test_a_request_is_sent_without_a_preference_and_its_answer_fits(self):
        page = self.docs()
        panel = self.unfold(page, "acquireLock")
        with page.expect_request("**/locks/deploy%3Aprod") as sent:
            panel.get_by_role("button", name="Execute", exact=True).click()
        self.assertNotIn("prefer", sent.value.headers)
        expect(panel.locator(".live-responses-table .response-col_status").last).to_contain_text("201")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 844})
            self.assert_fits(page)
