"""The systemd unit, held against systemd and against the program."""

import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import program

UNIT = program.ROOT / "packaging" / "latchgate.service"
# The score of `systemd-analyze security`: 0 is fully locked, 10 is open.
MOST_EXPOSED = 1.3


def settings():
    """What the unit sets: every value of every name, in order."""
    found = {}
    for line in UNIT.read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def analyze(*arguments):
    """Runs systemd-analyze on the unit, with the program where it was built."""
    with tempfile.TemporaryDirectory() as directory:
        unit = Path(directory) / UNIT.name
        text = UNIT.read_text().replace("/usr/bin/latchgate", str(program.PROGRAM))
        unit.write_text(text)
        return subprocess.run(
            ["systemd-analyze", *arguments, unit], capture_output=True, text=True, timeout=60
        )


class Unit(unittest.TestCase):
    def test_systemd_reads_every_line_of_it(self):
        verified = analyze("verify", "--man=no")
        # An unknown line is only a warning, with exit code 0.
        self.assertEqual((verified.returncode, verified.stderr), (0, ""))

    def test_it_is_locked_away(self):
        judged = analyze("security", "--offline=yes", "--no-pager", f"--threshold={int(MOST_EXPOSED * 10)}")
        exposed = re.search(r"exposure level for \S+: ([\d.]+)", judged.stdout)
        self.assertIsNotNone(exposed, judged.stderr)
        self.assertLessEqual(float(exposed[1]), MOST_EXPOSED)

    def test_it_starts_what_the_program_has(self):
        (start,) = settings()["ExecStart"]
        binary, command, *flags = start.split()
        self.assertEqual(binary, "/usr/bin/latchgate")
        self.assertIsNotNone(program.flags(command))
        self.assertLessEqual(set(flags), program.flags(command))
        self.assertEqual(settings()["ExecReload"], ["/bin/sh -c 'kill -HUP ${MAINPID}'"])

    def test_its_environment_is_one_that_the_program_takes(self):
        (variable,) = settings()["Environment"]
        name, _, value = variable.partition("=")
        self.assertIn(name, program.variables())
        # The documentation says which file belongs there.
        page = (program.ROOT / "docs" / "deploy.md").read_text()
        self.assertIn(f"config/embedded.toml {value}", page)
        config = program.effective({name: str(program.ROOT / "config" / "embedded.toml")})
        (state,) = settings()["StateDirectory"]
        self.assertEqual(config["store"], f"embedded:/var/lib/{state}")
        self.assertEqual(settings()["WorkingDirectory"], [f"/var/lib/{state}"])

    def test_it_is_killed_only_after_its_grace_period(self):
        (stop,) = settings()["TimeoutStopSec"]
        self.assertGreaterEqual(int(stop) * 1000, program.defaults()["shutdown"]["grace_ms"] + 5000)

    def test_it_waits_for_word_and_watches(self):
        self.assertEqual(settings()["Type"], ["notify"])
        self.assertGreater(int(settings()["WatchdogSec"][0]), 0)

    def test_a_wrong_configuration_is_not_tried_for_ever(self):
        (code,) = settings()["RestartPreventExitStatus"]
        refused = program.run(["serve"], {"LATCHGATE_LISTN": "x"})
        self.assertEqual(refused.returncode, int(code))

    def test_the_boot_id_can_be_read(self):
        """The embedded store tells a restart from a reboot by it."""
        self.assertNotIn("ProcSubset", settings())
        self.assertIn("/proc/sys/kernel/random/boot_id", (program.ROOT / "src" / "clock.rs").read_text())


if __name__ == "__main__":
    unittest.main()
