"""`scripts/pin-images`: every image of a registry gets its digest, or nothing is changed."""

import email.message
import tempfile
import unittest
import urllib.error
from pathlib import Path

import pin_images
import program

SCRIPT = pin_images.script
TEXTS = {path: (program.ROOT / path).read_text() for path in SCRIPT.FILES}
DIGEST = "sha256:" + "0123456789abcdef" * 4


def headers(**fields):
    message = email.message.Message()
    for name, value in fields.items():
        message[name.replace("_", "-")] = value
    return message


class Images(unittest.TestCase):
    def test_every_image_of_a_registry_is_found(self):
        found = {image for text in TEXTS.values() for image, _ in SCRIPT.images(text)}
        named = {image.partition("/")[2].partition(":")[0] for image in found}
        self.assertEqual(named, {"library/rust", "library/redis", "distroless/cc-debian12"})

    def test_a_quoted_image_is_found_and_pinned(self):
        for quote in ("'", '"'):
            text = f"  - image: {quote}docker.io/library/redis:7.4{quote}\n"
            self.assertEqual(SCRIPT.images(text), [("docker.io/library/redis:7.4", None)])
            pinned, _ = SCRIPT.pin({"a": text}, lambda image: DIGEST)
            self.assertEqual(pinned["a"], text.replace("7.4", f"7.4@{DIGEST}"))

    def test_digests_are_written_behind_the_tags_replaced_and_taken_away(self):
        pinned, digests = SCRIPT.pin(TEXTS, lambda image: DIGEST)
        self.assertEqual(set(digests.values()), {"@" + DIGEST})
        changed = {path for path, text in pinned.items() if text != TEXTS[path]}
        self.assertEqual(changed, {"Dockerfile", "compose.yaml", "k8s/overlays/trial/redis.yaml"})
        for text in pinned.values():
            for image, digest in SCRIPT.images(text):
                self.assertEqual(digest, "@" + DIGEST, image)
        newer, _ = SCRIPT.pin(pinned, lambda image: DIGEST.replace("0", "9"))
        self.assertNotIn(DIGEST, "".join(newer.values()))
        tags = {path: SCRIPT.with_digests(text, {}) for path, text in TEXTS.items()}
        self.assertEqual({path: SCRIPT.with_digests(text, {}) for path, text in newer.items()}, tags)
        self.assertIn(f"-slim-bookworm@{DIGEST} AS build", pinned["Dockerfile"])

    def test_one_that_cannot_be_resolved_fails_all(self):
        def digest(image):
            if "distroless" in image:
                raise SCRIPT.Failed(f"{image}: gone")
            return DIGEST

        with self.assertRaisesRegex(SCRIPT.Failed, "distroless.*gone"):
            SCRIPT.pin(TEXTS, digest)


    def test_one_that_cannot_be_written_leaves_all_as_they_were(self):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            (root / "a").write_text("old")
            with self.assertRaisesRegex(SCRIPT.Failed, "missing/b"):
                SCRIPT.write({"a": "new", "missing/b": "new"}, root)
            self.assertEqual([path.read_text() for path in root.iterdir()], ["old"])
            (root / "b").write_text("old")
            (root / "a").chmod(0o755)
            SCRIPT.write({"a": "new", "b": "new"}, root)
            self.assertEqual([(root / name).read_text() for name in "ab"], ["new", "new"])
            self.assertEqual((root / "a").stat().st_mode & 0o777, 0o755)
            self.assertEqual({path.name for path in root.iterdir()}, {"a", "b"})


class Registry(unittest.TestCase):
    IMAGE = "docker.io/library/redis:7.4"

    def test_it_is_asked_for_the_tag_after_signing_in(self):
        asked = []

        def ask(url, fields, method):
            asked.append((method, url, fields.get("Authorization")))
            if "Authorization" not in fields:
                challenge = headers(WWW_Authenticate='Bearer realm="https://a/token",scope="s"')
                raise urllib.error.HTTPError(url, 401, "no", challenge, None)
            return headers(Docker_Content_Digest=DIGEST), b""

        found = SCRIPT.digest(self.IMAGE, ask, lambda challenge: "t" if 'scope="s"' in challenge else None)
        self.assertEqual(found, DIGEST)
        url = "https://registry-1.docker.io/v2/library/redis/manifests/7.4"
        self.assertEqual(asked, [("HEAD", url, None), ("HEAD", url, "Bearer t")])

    def test_what_is_no_answer_is_said_with_the_name_of_the_image(self):
        def away(url, fields, method):
            raise urllib.error.URLError("away")

        def silent(url, fields, method):
            return headers(), b""

        for ask in (away, silent):
            with self.assertRaisesRegex(SCRIPT.Failed, "docker.io/library/redis:7.4: "):
                SCRIPT.digest(self.IMAGE, ask)


if __name__ == "__main__":
    unittest.main()
