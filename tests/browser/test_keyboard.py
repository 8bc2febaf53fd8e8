"""All of it without a mouse."""

from playwright.sync_api import expect

from browser import BrowserCase


class Keyboard(BrowserCase):
    def setUp(self):
        super().setUp()
        for name in ("a", "b", "c"):
            self.gateway.acquire(f"lock:{name}", ttl_ms=600_000)

    def active(self, page):
        return page.locator(".grid .row.active .of-name a")

    def test_moves_and_opens_and_comes_back(self):
        page = self.open()
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        page.keyboard.press("g")
        page.keyboard.press("l")
        expect(page.get_by_role("heading", name="Locks")).to_be_focused()
        expect(page.get_by_role("row").filter(has_text="lock:c")).to_have_count(1)
        page.keyboard.press("/")
        expect(page.get_by_label("Search name, owner, metadata")).to_be_focused()
        # Typed into a field, a letter is a letter.
        page.keyboard.type("lo")
        page.keyboard.press("ArrowDown")
        expect(page.get_by_role("grid")).to_be_focused()
        expect(self.active(page)).to_have_text("lock:a")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowUp")
        expect(self.active(page)).to_have_text("lock:b")
        # A screen reader is told which row that is.
        self.assertEqual(
            page.evaluate("document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).innerText.includes('lock:b')"),
            True,
        )
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="lock:b")).to_be_focused()
        self.assertIn("lock:b", page.title())
        page.keyboard.press("Escape")
        expect(page.get_by_role("heading", name="Locks")).to_be_visible()
        page.keyboard.press("g")
        page.keyboard.press("e")
        expect(page.get_by_role("heading", name="Events")).to_be_visible()
        page.keyboard.press("g")
        page.keyboard.press("o")
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()

    def test_help_says_what_the_keys_do_and_single_keys_can_be_turned_off(self):
        page = self.open("/locks")
        expect(page.get_by_role("heading", name="Locks")).to_be_visible()
        page.keyboard.press("?")
        dialog = page.get_by_role("dialog", name="Keyboard")
        expect(dialog).to_be_visible()
        dialog.get_by_label("Shortcuts of a single key").uncheck()
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        page.keyboard.press("?")
        page.keyboard.press("/")
        expect(dialog).to_have_count(0)
        expect(page.get_by_label("Search name, owner, metadata")).not_to_be_focused()

    def test_a_dialog_keeps_the_focus_and_gives_it_back(self):
        page = self.open("/locks/lock:a")
        button = page.get_by_role("button", name="Break…")
        button.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_label("Reason")).to_be_focused()
        for _ in range(12):
            page.keyboard.press("Tab")
            inside = page.evaluate("document.activeElement === document.body || Boolean(document.activeElement.closest('dialog'))")
            self.assertTrue(inside)
        page.keyboard.press("Escape")
        expect(button).to_be_focused()
        # The page is still that of the lock.
        expect(page.get_by_role("heading", name="lock:a")).to_be_visible()

    def test_the_table_is_left_with_tab(self):
        page = self.open("/locks")
        page.get_by_role("grid").focus()
        page.keyboard.press("Shift+Tab")
        expect(page.get_by_role("grid")).not_to_be_focused()
