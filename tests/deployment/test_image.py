"""The Dockerfile and the compose file, held against the program.

That the steps of the Dockerfile work is shown by `scripts/clean-root`, which runs them.
"""

import re
import subprocess
import tempfile
import time
import tomllib
import unittest
from pathlib import Path

import yaml

import dockerfile
import pin_images
import program

DOCKERFILE = (program.ROOT / "Dockerfile").read_text()
BUILD, IMAGE = dockerfile.stages(DOCKERFILE)
COMPOSE = yaml.safe_load((program.ROOT / "compose.yaml").read_text())
CARGO = tomllib.loads((program.ROOT / "Cargo.toml").read_text())["package"]
SECONDS = re.compile(r"^(\d+)s$")


def seconds(text):
    return int(SECONDS.match(text)[1])


class Image(unittest.TestCase):
    def test_it_uses_no_instruction_that_is_not_looked_at_here(self):
        known = {
            "FROM", "WORKDIR", "COPY", "RUN", "ARG", "LABEL", "ENV", "EXPOSE", "VOLUME", "USER",
            "HEALTHCHECK", "ENTRYPOINT", "CMD",
        }
        self.assertEqual({name for stage in (BUILD, IMAGE) for name, _ in stage} - known, set())
        # The last stage has no shell.
        self.assertEqual(dockerfile.all_of(IMAGE, "RUN"), [])

    def test_it_builds_with_the_oldest_rust_that_is_promised_on_the_release_that_it_runs_on(self):
        rust = CARGO["rust-version"]
        build, _, name = dockerfile.one_of(BUILD, "FROM").partition(" AS ")
        self.assertEqual(name, "build")
        self.assertEqual(pin_images.unpinned(build), f"docker.io/library/rust:{rust}-slim-bookworm")
        # Debian 12 has the name bookworm.
        image = pin_images.unpinned(dockerfile.one_of(IMAGE, "FROM"))
        self.assertEqual(image, "gcr.io/distroless/cc-debian12:nonroot")

    def test_everything_that_is_copied_is_sent_to_the_build(self):
        ignore = (program.ROOT / ".dockerignore").read_text().splitlines()
        rules = [line for line in ignore if line and not line.startswith("#")]
        self.assertEqual(rules[0], "*")
        sent = {rule.removeprefix("!") for rule in rules[1:]}
        copied = {word for rest in dockerfile.all_of(BUILD, "COPY") for word in rest.split()[:-1]}
        # The content of a directory that is copied later is part of the build context.
        self.assertEqual(sent, {path for path in copied if Path(path).parent.as_posix() not in copied})
        for path in copied:
            self.assertTrue((program.ROOT / path).exists(), path)

    def test_the_source_includes_no_file_that_is_not_copied(self):
        sources = [program.ROOT / "src", program.ROOT / "clients" / "rust" / "src"]
        for path in (path for source in sources for path in source.rglob("*.rs")):
            for included in re.findall(r'include_(?:str|bytes)!\(\s*"([^"]+)"', path.read_text()):
                file = (path.parent / included).resolve()
                self.assertTrue(any(file.is_relative_to(source) for source in sources), f"{path}: {included}")

    def test_its_labels_say_what_the_package_says(self):
        labels = dockerfile.pairs(IMAGE, "LABEL")
        name = "org.opencontainers.image."
        self.assertEqual(labels[name + "version"], CARGO["version"])
        self.assertEqual(labels[name + "version"], program.version())
        self.assertEqual(labels[name + "licenses"], CARGO["license"])
        self.assertEqual(labels[name + "description"], CARGO["description"])
        self.assertEqual(labels[name + "revision"], "${REVISION}")
        self.assertEqual(labels[name + "source"], "${SOURCE}")
        self.assertEqual(dockerfile.all_of(IMAGE, "ARG"), ["REVISION=unknown", "SOURCE="])

    def test_the_program_is_told_its_commit_after_what_it_depends_on_was_built(self):
        instructions = [name for name, _ in BUILD]
        # Only before the last step: another commit must not rebuild the dependencies.
        self.assertEqual(dockerfile.all_of(BUILD, "ARG"), ["REVISION=unknown"])
        self.assertEqual(instructions[-2:], ["ARG", "RUN"])
        self.assertIn('LATCHGATE_COMMIT="${REVISION:-}" cargo build', BUILD[-1][1])
        self.assertIn('env::var("LATCHGATE_COMMIT")', (program.ROOT / "build.rs").read_text())

    def test_what_it_starts_is_what_was_copied(self):
        binary = "/usr/bin/latchgate"
        copies = [rest.split() for rest in dockerfile.all_of(IMAGE, "COPY")]
        targets = {words[-1]: words for words in copies}
        self.assertEqual(targets[binary][:3], ["--from=build", "--chown=0:0", "/out" + binary])
        self.assertEqual(dockerfile.command(dockerfile.one_of(IMAGE, "ENTRYPOINT")), [binary])
        self.assertEqual(dockerfile.command(dockerfile.one_of(IMAGE, "CMD")), ["serve"])
        self.assertIsNotNone(program.flags("serve"))

    def test_it_runs_as_nobody_in_particular_and_writes_to_its_volume_only(self):
        user = dockerfile.one_of(IMAGE, "USER")
        self.assertEqual(user, "65532:65532")
        (volume,) = dockerfile.command(dockerfile.one_of(IMAGE, "VOLUME"))
        owned = [rest.split() for rest in dockerfile.all_of(IMAGE, "COPY") if volume in rest.split()]
        self.assertEqual(owned, [["--from=build", f"--chown={user}", "/out" + volume, volume]])
        environment = dockerfile.pairs(IMAGE, "ENV")
        self.assertEqual(environment["LATCHGATE_STORE"], f"embedded:{volume}")

    def test_its_environment_is_one_that_the_program_takes_once_it_is_said_who_may_call(self):
        environment = dockerfile.pairs(IMAGE, "ENV")
        refused = program.run(["config", "check"], environment)
        self.assertEqual(refused.returncode, 2, refused)
        self.assertIn("LATCHGATE_AUTH_KEYS_FILE", refused.stderr)
        config = program.effective({**environment, "LATCHGATE_INSECURE_NO_AUTH": "true"})
        self.assertEqual(config["listen"], "0.0.0.0:" + dockerfile.one_of(IMAGE, "EXPOSE"))

    def test_it_is_checked_by_the_program_itself(self):
        rest = dockerfile.one_of(IMAGE, "HEALTHCHECK")
        options, _, command = rest.partition(" CMD ")
        self.assertEqual(dockerfile.command(command), ["/usr/bin/latchgate", "healthcheck"])
        self.assertIn("--timeout", program.flags("healthcheck"))
        waits = re.search(r"default: (\d+)s", program.run(["healthcheck", "--help"]).stdout)
        timeout = dict(option.split("=") for option in options.split())["--timeout"]
        self.assertGreater(seconds(timeout), int(waits[1]))


class Compose(unittest.TestCase):
    gateway = COMPOSE["services"]["gateway"]
    redis = COMPOSE["services"]["redis"]

    def test_it_has_a_gateway_and_its_redis(self):
        self.assertEqual(set(COMPOSE), {"services", "volumes"})
        self.assertEqual(set(COMPOSE["services"]), {"gateway", "redis"})
        self.assertEqual(self.gateway["depends_on"], {"redis": {"condition": "service_healthy"}})
        self.assertEqual(self.gateway["build"], ".")

    def test_the_program_takes_the_environment_of_the_gateway(self):
        environment = {**dockerfile.pairs(IMAGE, "ENV"), **self.gateway["environment"]}
        config = program.effective(environment)
        self.assertEqual(config["store"], "redis://redis:6379/0")
        # Without API keys, only this machine may reach the gateway.
        port = config["listen"].rpartition(":")[2]
        self.assertEqual(self.gateway["ports"], [f"127.0.0.1:{port}:{port}"])

    def test_it_is_locked_down_and_has_time_to_drain(self):
        self.assertTrue(self.gateway["read_only"])
        self.assertEqual(self.gateway["cap_drop"], ["ALL"])
        self.assertEqual(self.gateway["security_opt"], ["no-new-privileges:true"])
        grace = program.defaults()["shutdown"]["grace_ms"]
        self.assertGreater(seconds(self.gateway["stop_grace_period"]) * 1000, grace)

    def test_what_redis_keeps_is_on_a_volume(self):
        (volume,) = self.redis["volumes"]
        name, directory = volume.split(":")
        self.assertIn(name, COMPOSE["volumes"])
        self.assertEqual(directory, "/data")


class Redis(unittest.TestCase):
    """The Redis of the compose file and of the trial overlay, started as they start it."""

    def commands(self):
        yield "compose", COMPOSE["services"]["redis"]["command"]
        text = (program.ROOT / "k8s" / "overlays" / "trial" / "redis.yaml").read_text()
        (server,) = [o for o in yaml.safe_load_all(text) if o["kind"] == "StatefulSet"]
        yield "trial", server["spec"]["template"]["spec"]["containers"][0]["args"]

    def test_it_keeps_what_it_has_granted_and_evicts_nothing(self):
        for name, command in self.commands():
            with self.subTest(name), tempfile.TemporaryDirectory() as directory:
                socket = f"{directory}/redis.sock"
                server = subprocess.Popen(
                    [*command, "--port", "0", "--unixsocket", socket, "--dir", directory],
                    stdout=subprocess.DEVNULL,
                )
                try:
                    ask = ["redis-cli", "-s", socket]
                    deadline = time.monotonic() + 20
                    while subprocess.run([*ask, "ping"], capture_output=True).stdout != b"PONG\n":
                        self.assertIsNone(server.poll(), "it does not start")
                        self.assertLess(time.monotonic(), deadline)
                        time.sleep(0.02)
                    for key, value in {
                        "appendonly": "yes",
                        "appendfsync": "always",
                        "maxmemory-policy": "noeviction",
                        "maxmemory": str(256 * 2**20),
                        "save": "",
                    }.items():
                        answer = subprocess.run([*ask, "config", "get", key], capture_output=True, text=True)
                        self.assertEqual(answer.stdout, f"{key}\n{value}\n")
                finally:
                    server.kill()
                    server.wait()


if __name__ == "__main__":
    unittest.main()
