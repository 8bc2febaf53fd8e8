"""Whatever the files around the program name is something that the program has."""

import re
import unittest

import program

K8S = sorted((program.ROOT / "k8s").rglob("*.yaml"))
# The reliability report names things that only the tests have.
PAGES = sorted(page for page in (program.ROOT / "docs").rglob("*.md") if page.name != "reliability-report.md")
FILES = [
    *(program.ROOT / name for name in ("Dockerfile", "compose.yaml", "packaging/latchgate.service")),
    *K8S,
    program.ROOT / "README.md",
    *PAGES,
]
# Variables that commands of callers read, or that `latchgate run` sets.
OF_THE_CLIENT = {
    name
    for command in ("acquire", "renew", "run")
    for name in re.findall(r"\bLATCHGATE_[A-Z_]*[A-Z]", program.run([command, "--help"]).stdout)
}
# Variables that a build reads.
OF_THE_BUILD = set(re.findall(r'env::var\("(LATCHGATE_\w+)"\)', (program.ROOT / "build.rs").read_text()))
# Ports of Redis, of a collector that accepts OTLP over HTTP, and of a receiver of alerts; 0 takes a free one.
OF_OTHERS = {"6379", "4318", "9095", "0"}
# The port that LATCHGATE_METRICS_LISTEN sets in every manifest.
METRICS = "9420"


class Names(unittest.TestCase):
    def each(self, pattern):
        """Every match in every file; what fails names the file."""
        for path in FILES:
            for found in re.findall(pattern, path.read_text()):
                self.where = f"{path.name}: {found}"
                yield found

    def test_every_variable(self):
        for name in self.each(r"LATCHGATE_[A-Z_]*[A-Z]"):
            known = program.variables().keys() | OF_THE_CLIENT | OF_THE_BUILD
            self.assertIn(name, known, self.where)

    def test_every_key_of_the_configuration(self):
        keys = set(program.variables().values())
        sections = "|".join(name for name, value in program.defaults().items() if isinstance(value, dict))
        for key in self.each(rf"(?<![\w./:-])((?:{sections})\.[a-z]+_[a-z_]*[a-z])(?![\w.])"):
            self.assertIn(key, keys, self.where)

    def test_every_command_and_its_flags(self):
        for line in self.each(r"(?m)(?:^|[\s`/(])latchgate ([a-z]+(?: [^`\n|#;)]*)?)"):
            words = line.split()
            if not (words[0] in COMMANDS or any(word.startswith("--") for word in words)):
                continue
            flags = program.flags(words[0])
            self.assertIsNotNone(flags, self.where)
            # The words after `--` belong to another program.
            words = words[: words.index("--")] if "--" in words else words
            if words[0] in ("key", "config") and words[1:] and not words[1].startswith("-"):
                flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", program.run([*words[:2], "--help"]).stdout))
            used = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
            self.assertLessEqual(used, flags, self.where)

    def test_every_path_that_is_asked_for(self):
        for path in self.each(r"(?<![\w.])(/(?:healthz|readyz|locks|metrics|events|dashboard)\b)"):
            self.assertTrue(any(known.startswith(path) for known in program.paths()), self.where)

    def test_every_port(self):
        default = program.defaults()["listen"].rpartition(":")[2]
        for port in self.each(r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0|gateway):(\d+)"):
            self.assertIn(port, {default, METRICS} | OF_OTHERS, self.where)
        for path in K8S:
            for port in re.findall(r"(?:containerPort|port|targetPort): (\d+)", path.read_text()):
                self.assertIn(port, {default, "6379", "53", METRICS}, path)

    def test_the_redis_user_is_the_one_that_the_gateway_asks_for(self):
        source = (program.ROOT / "src" / "store" / "redis" / "client" / "failure.rs").read_text()
        lines = re.findall(r'ACL_LINE: &str = "(.*?)";', source, re.S)
        self.assertEqual(len(lines), 2)
        for line, page in zip(lines, ("redis.md", "redlock.md"), strict=True):
            text = (program.ROOT / "docs" / "stores" / page).read_text()
            self.assertIn(re.sub(r"\\\n\s*", "", line) + "\n", text)

    def test_no_metric_that_is_not_there(self):
        """A metric's name begins with latchgate_ and is in no file until the program has it."""
        for name in self.each(r"\blatchgate_[a-z_]+"):
            self.assertIn("/metrics", program.paths(), self.where)


COMMANDS = set(re.findall(r"(?m)^  ([a-z]+) ", program.run(["--help"]).stdout.partition("Commands:")[2].partition("Options:")[0]))

if __name__ == "__main__":
    unittest.main()
