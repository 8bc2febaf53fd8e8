"""The Helm chart: what Helm renders is what the kustomization has."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import kubernetes_validate
import yaml

import kustomize
import program

sys.path.insert(0, str(program.ROOT / "packaging"))

from release import chart, versions  # noqa: E402

K8S = program.ROOT / "k8s"
VERSION = versions.program()


def setUpModule():
    global HELM, PACKED
    HELM = subprocess.run([program.ROOT / "scripts/helm"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    folder = tempfile.TemporaryDirectory(prefix="latchgate-chart-")
    unittest.addModuleCleanup(folder.cleanup)
    chart.write(Path(folder.name), VERSION, 1_700_000_001)
    PACKED = Path(folder.name) / f"latchgate-chart-{VERSION}.tgz"


def helm(command, *more):
    return subprocess.run([HELM, *command, PACKED, *more], capture_output=True, text=True, timeout=120)


def rendered(*values, **settings):
    """The objects, by their kind."""
    sets = [word for name, value in settings.items() for word in ("--set", f"{name.replace('__', '.')}={value}")]
    ran = helm(["template", "latchgate"], *sets, *values)
    assert ran.returncode == 0, ran.stderr
    return {o["kind"]: o for o in yaml.safe_load_all(ran.stdout) if o}


def of_kustomize(directory):
    return {o["kind"]: o for o in kustomize.render(K8S / directory)}


class Chart(unittest.TestCase):
    maxDiff = None

    def test_helm_finds_nothing_to_complain_of(self):
        ran = helm(["lint", "--strict"])
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_without_values_it_is_the_base(self):
        self.assertEqual(rendered(), of_kustomize("base"))

    def test_an_address_and_the_monitor_make_it_the_overlay(self):
        values = ["--set-json", 'networkPolicy.redis=[{"ipBlock": {"cidr": "192.0.2.10/32"}}]']
        self.assertEqual(rendered(*values, serviceMonitor__enabled="true"), of_kustomize("overlays/monitored"))

    def test_its_ingress_and_autoscaler_are_those_of_the_components(self):
        found = rendered(ingress__enabled="true", autoscaling__enabled="true")
        [ingress] = kustomize.documents(K8S / "components/ingress/ingress.yaml")
        [autoscaler] = kustomize.documents(K8S / "components/autoscaling/autoscaler.yaml")
        self.assertEqual((found["Ingress"], found["HorizontalPodAutoscaler"]), (ingress, autoscaler))
        self.assertNotIn("replicas", found["Deployment"]["spec"])

    def test_every_value_is_used_and_kubernetes_knows_what_comes_of_it(self):
        found = rendered(
            "--set-json", 'env=[{"name": "LATCHGATE_LOG_LEVEL", "value": "debug"}]',
            image__repository="registry.example.com/latchgate", image__tag="x", replicas=3, secrets__keys="k", secrets__store="s",
            ingress__enabled="true", ingress__host="locks.example.com", ingress__className="other", ingress__tlsSecret="t",
            networkPolicy__redisPort=6380, resources__limits__memory="1Gi",
        )
        for o in found.values():
            kubernetes_validate.validate(o, "1.30", strict=True)
        spec = found["Deployment"]["spec"]
        [container] = spec["template"]["spec"]["containers"]
        self.assertEqual((spec["replicas"], container["image"]), (3, "registry.example.com/latchgate:x"))
        self.assertEqual(container["env"][0]["valueFrom"]["secretKeyRef"]["name"], "s")
        self.assertEqual(container["env"][-1], {"name": "LATCHGATE_LOG_LEVEL", "value": "debug"})
        self.assertEqual(container["resources"]["limits"]["memory"], "1Gi")
        self.assertEqual(spec["template"]["spec"]["volumes"][0]["secret"]["secretName"], "k")
        self.assertEqual(found["NetworkPolicy"]["spec"]["egress"][1]["ports"], [{"port": 6380}])
        ingress = found["Ingress"]["spec"]
        self.assertEqual((ingress["ingressClassName"], ingress["rules"][0]["host"]), ("other", "locks.example.com"))
        self.assertEqual(ingress["tls"], [{"hosts": ["locks.example.com"], "secretName": "t"}])

    def test_it_is_marked_as_not_run(self):
        for path in ("Chart.yaml", "README.md"):
            self.assertIn("No cluster has run", chart.contents(VERSION)[path][0].decode())


if __name__ == "__main__":
    unittest.main()
