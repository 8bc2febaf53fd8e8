"""A job of a runner of GitHub Actions, as far as an action sees one."""

import os
import re
import signal
import subprocess
import uuid
from pathlib import Path

import yaml

# Of whatever a test waits for; the runner kills a step after 10 s, which is no measure of this machine.
DEADLINE = 90


class Step:
    """One of main and post, while it runs and afterwards."""

    def __init__(self, job, script, state, parent=(), shell=()):
        self.job = job
        self._files = {name: job.home / f"{name.lower()}-{uuid.uuid4().hex}" for name in ("GITHUB_STATE", "GITHUB_OUTPUT")}
        for file in self._files.values():
            file.touch()
        environment = {**job.environment(), **{name: str(file) for name, file in self._files.items()}}
        environment.update({f"STATE_{name}": value for name, value in state.items()})
        command = [*shell, job.node, str(job.action / script)]
        if parent:
            # The runner itself does not know the file of the state, a shell that it starts does.
            command = [*parent, "env", f"GITHUB_STATE={environment.pop('GITHUB_STATE')}", *command]
        self.process = subprocess.Popen(
            command, env=environment, cwd=job.workspace, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        job.case.addCleanup(self.process.stdout.close)
        job.case.addCleanup(self.process.wait)
        job.case.addCleanup(self.process.kill)
        self.code = None
        self.raw = None

    def ended(self):
        """Waits for the end, and takes what it leaves as the runner does: also of a step that was killed."""
        self.raw, _ = self.process.communicate(timeout=DEADLINE)
        self.code = self.process.returncode
        return self

    def file(self, name):
        """What is in a file of commands, each line `name=value`."""
        lines = self._files[name].read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    @property
    def state(self):
        return self.file("GITHUB_STATE")

    @property
    def outputs(self):
        return self.file("GITHUB_OUTPUT")

    @property
    def log(self):
        """What people see: secrets are masked, commands are not shown."""
        text = self.raw
        for secret in re.findall(r"(?m)^::add-mask::(.*)$", text):
            text = text.replace(secret, "***")
        return text

    def commands(self, kind):
        return re.findall(rf"(?m)^::{kind}(?: [^:]*)?::(.*)$", self.log)

    def spoil_output(self):
        """Makes its file of outputs one that cannot be written."""
        self._files["GITHUB_OUTPUT"].unlink()
        self._files["GITHUB_OUTPUT"].mkdir()

    def cancel(self):
        """As the runner does it."""
        for number, seconds in ((signal.SIGINT, 7.5), (signal.SIGTERM, 2.5)):
            self.process.send_signal(number)
            try:
                self.process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                continue
        else:
            self.process.kill()
        return self.ended()


class Job:
    def __init__(self, case, action, node, home, **inputs):
        self.case = case
        self.action = Path(action)
        self.node = node
        self.home = home
        self.workspace = home / "workspace"
        self.temporary = home / "temp"
        self.workspace.mkdir()
        self.temporary.mkdir()
        self.tracking = f"github_{uuid.uuid4()}"
        # Variables that differ from those below.
        self.variables = {}
        self.metadata = yaml.safe_load((self.action / "action.yml").read_text())
        self.inputs = {name: str(given.get("default", "")) for name, given in self.metadata["inputs"].items()}
        for name, value in inputs.items():
            name = name.replace("_", "-")
            assert name in self.inputs, f"action.yml has no input {name}"
            self.inputs[name] = value
        case.addCleanup(self.end)

    def environment(self):
        return {
            "PATH": os.environ["PATH"], "HOME": str(self.home),
            "GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_REPOSITORY": "team/shop", "GITHUB_WORKFLOW": "Deploy",
            "GITHUB_RUN_NUMBER": "12", "GITHUB_RUN_ID": "4711", "GITHUB_JOB": "production",
            "GITHUB_SERVER_URL": "https://github.com", "ACTIONS_RUNTIME_TOKEN": "runtime-token-of-the-job",
            "RUNNER_TEMP": str(self.temporary), "RUNNER_TRACKING_ID": self.tracking,
            **{f"INPUT_{name.upper()}": value for name, value in self.inputs.items()}, **self.variables,
        }

    def main(self, **options):
        self.step = Step(self, self.metadata["runs"]["main"], {}, **options)
        return self.step

    def post(self):
        return Step(self, self.metadata["runs"]["post"], self.step.state).ended()

    def processes(self):
        """What the job has left running: the runner knows it by a variable."""
        found = []
        for file in Path("/proc").glob("[0-9]*/environ"):
            try:
                text = file.read_bytes()
                if f"RUNNER_TRACKING_ID={self.tracking}".encode() in text:
                    found.append(int(file.parent.name))
            except OSError:
                continue
        return found

    def renewer(self):
        """The process that main has left behind."""
        (found,) = [one for one in self.processes() if b"renewer.mjs" in Path(f"/proc/{one}/cmdline").read_bytes()]
        return found

    def end(self):
        """Kills what is left, as the runner does after the last post."""
        left = self.processes()
        for one in left:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return left
