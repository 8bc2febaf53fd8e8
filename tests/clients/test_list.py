"""Each language has a test for each case of the list, and no other."""

import re
import unittest
from pathlib import Path

CLIENTS = Path(__file__).resolve().parents[2] / "clients"
CASES = [f"C{number:02}" for number in range(1, 40)]


def found(pattern, *files):
    return [number.upper() for file in files for number in re.findall(pattern, file.read_text(), re.MULTILINE)]


class List(unittest.TestCase):
    def test_the_list_has_these_cases(self):
        self.assertEqual(found(r"^\* \*\*(C\d+)\*\*", CLIENTS / "conformance.md"), CASES)

    def test_javascript_has_all_of_them(self):
        self.assertEqual(found(r"^define\('(C\d+)'", CLIENTS / "js" / "test" / "conformance.mjs"), CASES)

    def test_python_has_all_of_them(self):
        files = sorted((CLIENTS / "python" / "tests").rglob("test_*.py"))
        self.assertEqual(sorted(set(found(r"^ *(?:async )?def test_(c\d+)_", *files))), CASES)

    def test_rust_has_all_of_them(self):
        files = sorted((CLIENTS / "rust" / "tests" / "conformance").glob("*.rs"))
        attribute = r"^#\[(?:tokio::)?test\]\n"
        self.assertEqual(sorted(set(found(attribute + r"(?:async )?fn (c\d+)_", *files))), CASES)


if __name__ == "__main__":
    unittest.main()
