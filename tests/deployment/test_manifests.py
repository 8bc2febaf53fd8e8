"""The Kubernetes manifests: valid, consistent, and about a gateway that exists."""

import re
import shutil
import tempfile
import unittest
from pathlib import Path

import kubernetes_validate
import yaml

import kustomize
import pin_images
import program

K8S = program.ROOT / "k8s"
KUBECTL = Path(__file__).parent / "kubectl"
COMPONENTS = sorted((K8S / "components").iterdir())
OVERLAYS = sorted(path.name for path in (K8S / "overlays").iterdir())
ALL = [K8S / "base", *(K8S / "overlays" / name for name in OVERLAYS)]
# The oldest version of Kubernetes that the manifests are checked with.
OLDEST = "1.30"
VERSIONS = [OLDEST, kubernetes_validate.latest_version()]
# Our objects; all other objects of a cluster belong to other programs.
SECRETS = {"latchgate-keys": {"keys.toml", "session-secret"}, "latchgate-store": {"url"}}


def each():
    """Every rendered kustomization: its name and objects."""
    for directory in ALL:
        yield directory.name, kustomize.render(directory)


def pods(objects):
    """Every workload with its pod template's spec."""
    for o in objects:
        if "template" in o["spec"]:
            yield o, o["spec"]["template"]["spec"]


def gateways(objects):
    """Every pod spec that has a gateway, with its container."""
    for _, pod in pods(objects):
        for container in pod["containers"]:
            if container["name"] == "latchgate":
                yield pod, container


def environment(container):
    """The variables of a container, with something in place of what comes from a Secret."""
    return {
        variable["name"]: variable.get("value", "redis://user:password@redis:6379/0")
        for variable in container["env"]
    }


def labels_match(selector, labels):
    return selector.items() <= labels.items()


class Schemas(unittest.TestCase):
    def test_every_object_is_what_kubernetes_knows(self):
        for name, objects in each():
            for o in objects:
                if o["kind"] == "ServiceMonitor":
                    self.is_a_service_monitor(o, objects)
                    continue
                for version in VERSIONS:
                    with self.subTest(name, kind=o["kind"], version=version):
                        used = kubernetes_validate.validate(o, version, strict=True)
                        self.assertTrue(version.startswith(used))

    def is_a_service_monitor(self, monitor, objects):
        """No schema of it is at hand: the few fields that are used, as its operator documents them."""
        self.assertEqual(monitor["apiVersion"], "monitoring.coreos.com/v1")
        self.assertEqual(set(monitor["spec"]), {"jobLabel", "selector", "endpoints"})
        labels = monitor["spec"]["selector"]["matchLabels"]
        (service,) = [
            o for o in objects if o["kind"] == "Service" and labels_match(labels, o["metadata"]["labels"])
        ]
        self.assertEqual(service["metadata"]["labels"][monitor["spec"]["jobLabel"]], "latchgate")
        for endpoint in monitor["spec"]["endpoints"]:
            self.assertLessEqual(set(endpoint), {"port", "path", "interval"})
            self.assertIn(endpoint["port"], [port["name"] for port in service["spec"]["ports"]])
            self.assertIn(endpoint["path"], program.paths())

    def test_so_are_those_of_the_recipes(self):
        page = (program.ROOT / "docs/recipes/kubernetes.md").read_text()
        found = [yaml.safe_load(text) for text in re.findall(r"(?ms)^```yaml\n(.*?)^```$", page)]
        self.assertEqual([o["kind"] for o in found], ["CronJob"])
        for o in found:
            for version in VERSIONS:
                kubernetes_validate.validate(o, version, strict=True)

    def test_a_misspelt_field_would_be_found(self):
        (deployment,) = [o for o in kustomize.render(K8S / "base") if o["kind"] == "Deployment"]
        deployment["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["perid"] = 1
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(deployment, OLDEST, strict=True)

    def test_there_are_the_overlays_that_the_documentation_names(self):
        self.assertEqual(OVERLAYS, ["embedded", "external-redis", "monitored", "trial"])
        page = (program.ROOT / "docs" / "deploy.md").read_text()
        for overlay in OVERLAYS:
            self.assertIn(f"k8s/overlays/{overlay}", page)


class Renderer(unittest.TestCase):
    """Of our own, because no Debian or Python package has one."""

    def test_it_renders_as_kubectl_does(self):
        """`kubectl/expected.yaml` is what `kubectl kustomize` of `kubectl/overlay` printed."""
        rendered = kustomize.render(KUBECTL / "overlay")
        self.assertEqual(rendered, kustomize.documents(KUBECTL / "expected.yaml"))

    def test_it_refuses_what_it_does_not_know(self):
        text = (K8S / "base" / "kustomization.yaml").read_text()
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(K8S / "base", copy, dirs_exist_ok=True)
            (Path(copy) / "kustomization.yaml").write_text(text + "namePrefix: x-\n")
            with self.assertRaises(kustomize.Unsupported):
                kustomize.render(copy)

    def test_every_file_is_part_of_something(self):
        used = set()
        for directory in ALL + COMPONENTS:
            (kustomization,) = kustomize.documents(directory / "kustomization.yaml")
            named = [*kustomization.get("resources", []), *(p["path"] for p in kustomization.get("patches", []))]
            used |= {directory / name for name in named} | {directory / "kustomization.yaml"}
        files = {path for path in K8S.rglob("*") if path.is_file()}
        self.assertEqual(files - {path.resolve() for path in used}, set())


class Gateways(unittest.TestCase):
    """Held against the program."""

    def each_gateway(self):
        for name, objects in each():
            found = list(gateways(objects))
            self.assertEqual(len(found), 1, name)
            yield name, objects, *found[0]

    def test_the_program_takes_their_arguments_and_environment(self):
        keys = program.run(["key", "new", "--name", "test", "--acquire", "*"]).stdout
        with tempfile.TemporaryDirectory() as directory:
            for name, _, pod, container in self.each_gateway():
                with self.subTest(name):
                    self.assertEqual(container["args"], ["serve"])
                    variables = environment(container)
                    mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
                    contents = {
                        "LATCHGATE_AUTH_KEYS_FILE": keys[keys.index("[[key]]"):],
                        "LATCHGATE_AUTH_SESSION_SECRET_FILE": "0123456789abcdef" * 4,
                    }
                    for variable, content in contents.items():
                        # The Secret is mounted where the gateway reads it.
                        mounted = Path(variables[variable])
                        (volume,) = [v for v in pod["volumes"] if v["name"] == mounts[str(mounted.parent)]]
                        self.assertIn(mounted.name, [item["path"] for item in volume["secret"]["items"]])
                        (Path(directory) / mounted.name).write_text(content)
                        variables[variable] = str(Path(directory) / mounted.name)
                    # The variables of the image are set as well.
                    config = program.effective({"LATCHGATE_LISTEN": "0.0.0.0:7420", **variables})
                    self.assertFalse(config["insecure_no_auth"])

    def test_metrics_are_served_on_the_port_that_has_their_name(self):
        for name, _, _, container in self.each_gateway():
            (port,) = [p["containerPort"] for p in container["ports"] if p["name"] == "metrics"]
            self.assertEqual(environment(container)["LATCHGATE_METRICS_LISTEN"], f"0.0.0.0:{port}", name)

    def test_probes_ask_for_paths_on_the_port_that_is_served(self):
        for name, objects, _, container in self.each_gateway():
            with self.subTest(name):
                self.assertIn({"name": "http", "containerPort": 7420}, container["ports"])
                for probe, path in [
                    ("startupProbe", "/healthz"),
                    ("livenessProbe", "/healthz"),
                    ("readinessProbe", "/readyz"),
                ]:
                    self.assertEqual(container[probe]["httpGet"], {"path": path, "port": "http"})
                    self.assertIn(path, program.paths())
                    # The store check of /readyz takes at most 750 ms.
                    self.assertGreaterEqual(container[probe]["timeoutSeconds"], 2)

    def test_they_are_killed_only_after_their_grace_period(self):
        for name, _, pod, container in self.each_gateway():
            with self.subTest(name):
                grace = int(environment(container)["LATCHGATE_SHUTDOWN_GRACE_MS"])
                # The delay is part of the gateway's grace period. A preStop hook would run before it and add to it.
                self.assertNotIn("lifecycle", container)
                self.assertGreaterEqual(pod["terminationGracePeriodSeconds"], grace / 1000 + 5)

    def test_where_there_is_another_gateway_callers_are_let_go_before_the_drain(self):
        for name, _, pod, container in self.each_gateway():
            with self.subTest(name):
                variables = environment(container)
                probe = container["readinessProbe"]
                found_out = probe["periodSeconds"] * probe["failureThreshold"] * 1000
                if name == "embedded":
                    self.assertNotIn("LATCHGATE_SHUTDOWN_DELAY_MS", variables)
                    continue
                delay = int(variables["LATCHGATE_SHUTDOWN_DELAY_MS"])
                self.assertGreaterEqual(delay, found_out + 1000)
                drain = int(variables["LATCHGATE_SHUTDOWN_GRACE_MS"]) - delay
                self.assertEqual(drain, program.defaults()["shutdown"]["grace_ms"])

    def test_those_who_wait_have_room(self):
        """20 KiB each (benches/README.md measures them), and what an idle gateway takes."""
        for name, _, _, container in self.each_gateway():
            with self.subTest(name):
                limit = container["resources"]["limits"]["memory"]
                self.assertRegex(limit, r"^\d+Mi$")
                waiters = int(environment(container)["LATCHGATE_LIMITS_MAX_WAITERS"])
                needed = 20 * 2**20 + waiters * 20 * 2**10
                self.assertGreater(int(limit[:-2]) * 2**20, needed)

    def test_the_embedded_store_is_on_a_volume_of_one_gateway(self):
        for name, objects, pod, container in self.each_gateway():
            url = environment(container)["LATCHGATE_STORE"]
            scheme, _, directory = url.partition(":")
            (workload,) = [o for o, spec in pods(objects) if spec is pod]
            with self.subTest(name):
                if name == "embedded":
                    self.assertEqual(scheme, "embedded")
                    self.assertEqual((workload["kind"], workload["spec"]["replicas"]), ("StatefulSet", 1))
                    mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
                    (claim,) = workload["spec"]["volumeClaimTemplates"]
                    self.assertEqual(mounts[directory], claim["metadata"]["name"])
                else:
                    self.assertEqual(scheme, "redis")
                    self.assertGreaterEqual(workload["spec"]["replicas"], 2)

    def test_the_image_has_one_name_in_pages_compose_file_and_manifests(self):
        image = f"latchgate:{program.version()}"
        (built,) = re.findall(r"docker build .* -t (\S+) ", (program.ROOT / "docs/deploy.md").read_text())
        compose = kustomize.documents(program.ROOT / "compose.yaml")[0]["services"]["gateway"]["image"]
        self.assertEqual((built, compose), (image, image))
        for name, _, _, container in self.each_gateway():
            self.assertEqual(container["image"], image, name)

    def test_the_image_of_every_overlay_is_named_in_one_place(self):
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory) / "k8s"
            shutil.copytree(K8S, copy)
            place = copy / "components/image/kustomization.yaml"
            place.write_text(place.read_text().replace("newName: latchgate", "newName: registry.example/latchgate"))
            for path in ALL:
                rendered = kustomize.render(copy / path.relative_to(K8S))
                for _, container in gateways(rendered):
                    self.assertEqual(container["image"], f"registry.example/latchgate:{program.version()}", path.name)


class Cluster(unittest.TestCase):
    """What the objects say of each other."""

    def test_every_container_is_locked_down(self):
        for name, objects in each():
            for workload, pod in pods(objects):
                with self.subTest(name, workload=workload["metadata"]["name"]):
                    self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                    self.assertEqual(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault")
                    self.assertFalse(pod["automountServiceAccountToken"])
                    for container in pod["containers"]:
                        self.assertEqual(
                            container["securityContext"],
                            {
                                "allowPrivilegeEscalation": False,
                                "readOnlyRootFilesystem": True,
                                "capabilities": {"drop": ["ALL"]},
                            },
                        )
                        self.assertIn("memory", container["resources"]["limits"])
                        self.assertLessEqual({"cpu", "memory"}, set(container["resources"]["requests"]))

    def test_every_selector_finds_the_pods_that_it_means(self):
        for name, objects in each():
            labels = {
                o["metadata"]["name"]: o["spec"]["template"]["metadata"]["labels"]
                for o, _ in pods(objects)
            }
            for o in objects:
                selector = o["spec"].get("selector", o["spec"].get("podSelector"))
                selector = selector.get("matchLabels", selector)
                found = [pod for pod, those in labels.items() if labels_match(selector, those)]
                meant = o["metadata"]["name"].removesuffix("-pods")
                with self.subTest(name, kind=o["kind"], name_=o["metadata"]["name"]):
                    self.assertEqual(found, [meant])
            for workload, pod in pods(objects):
                for spread in pod.get("topologySpreadConstraints", []):
                    self.assertTrue(
                        labels_match(
                            spread["labelSelector"]["matchLabels"], labels[workload["metadata"]["name"]]
                        )
                    )

    def test_every_workload_has_a_policy_and_every_named_port_is_there(self):
        for name, objects in each():
            ports = {
                o["metadata"]["name"]: {p["name"]: p["containerPort"] for p in pod["containers"][0]["ports"]}
                for o, pod in pods(objects)
            }
            policies = {o["metadata"]["name"] for o in objects if o["kind"] == "NetworkPolicy"}
            self.assertEqual(policies, set(ports), name)
            for o in objects:
                named = []
                if o["kind"] == "Service":
                    named = [p["targetPort"] for p in o["spec"].get("ports", [])]
                if o["kind"] == "NetworkPolicy":
                    named = [p["port"] for rule in o["spec"]["ingress"] for p in rule["ports"]]
                meant = o["metadata"]["name"].removesuffix("-pods")
                for port in named:
                    self.assertIn(port, ports[meant], (name, o["kind"]))

    def test_nothing_is_mentioned_that_nobody_makes(self):
        for name, objects in each():
            services = {o["metadata"]["name"] for o in objects if o["kind"] == "Service"}
            for workload, pod in pods(objects):
                if workload["kind"] == "StatefulSet":
                    self.assertIn(workload["spec"]["serviceName"], services)
                claims = {
                    c["metadata"]["name"] for c in workload["spec"].get("volumeClaimTemplates", [])
                }
                volumes = {v["name"] for v in pod.get("volumes", [])} | claims
                for volume in pod.get("volumes", []):
                    keys = {item["key"] for item in volume["secret"]["items"]}
                    self.assertLessEqual(keys, SECRETS[volume["secret"]["secretName"]])
                for container in pod["containers"]:
                    for mount in container.get("volumeMounts", []):
                        self.assertIn(mount["name"], volumes, name)
                    for variable in container.get("env", []):
                        reference = variable.get("valueFrom", {}).get("secretKeyRef")
                        if reference:
                            self.assertIn(reference["key"], SECRETS[reference["name"]])
                        host = re.match(r"redis://([a-z-]+):(\d+)/", variable.get("value", ""))
                        if host:
                            self.assertIn(host[1], services, name)

    def test_the_secrets_are_made_as_the_documentation_says(self):
        page = (program.ROOT / "docs" / "deploy.md").read_text()
        for secret, keys in SECRETS.items():
            for key in keys:
                pattern = rf"kubectl create secret generic {secret} (.* )?--from-(file|literal)={re.escape(key)}"
                self.assertRegex(page, pattern)

    def test_the_budget_lets_nodes_be_drained(self):
        for name, objects in each():
            for o in objects:
                if o["kind"] == "PodDisruptionBudget":
                    self.assertEqual(o["spec"]["maxUnavailable"], 1, name)

    def test_a_rollout_never_has_fewer_gateways_than_were_asked_for(self):
        for name, objects in each():
            for o in objects:
                if o["kind"] == "Deployment":
                    self.assertEqual(o["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0, name)

    def test_the_port_of_redis_is_open_to_redis_only(self):
        redis = {"app.kubernetes.io/name": "latchgate", "app.kubernetes.io/component": "redis"}
        for name, objects in each():
            (policy,) = [
                o for o in objects if o["kind"] == "NetworkPolicy" and o["metadata"]["name"] == "latchgate"
            ]
            for rule in policy["spec"]["egress"]:
                if 6379 not in [port["port"] for port in rule["ports"]]:
                    continue
                with self.subTest(name):
                    # A rule without receivers would allow all.
                    self.assertTrue(rule["to"])
                    for to in rule["to"]:
                        if "ipBlock" in to:
                            self.assertRegex(to["ipBlock"]["cidr"], r"/32$")
                        else:
                            self.assertEqual(to, {"podSelector": {"matchLabels": redis}})

    def test_there_is_one_version_of_redis(self):
        compose = kustomize.documents(program.ROOT / "compose.yaml")[0]["services"]["redis"]["image"]
        images = {pin_images.unpinned(compose)}
        for _, objects in each():
            for container in kustomize.containers(objects):
                if container["name"] == "redis":
                    images.add(pin_images.unpinned(container["image"]))
        self.assertEqual(len(images), 1, images)


class Components(unittest.TestCase):
    """What may be added to an overlay."""

    def rendered(self, *names):
        """The overlay for an external Redis with components."""
        with tempfile.TemporaryDirectory() as directory:
            kustomization = {
                "kind": "Kustomization",
                "resources": [str(K8S / "overlays" / "external-redis")],
                "components": [str(K8S / "components" / name) for name in names],
            }
            (Path(directory) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
            return kustomize.render(directory)

    def test_each_is_what_kubernetes_knows(self):
        self.assertEqual([path.name for path in COMPONENTS], ["autoscaling", "image", "ingress"])
        objects = self.rendered("autoscaling", "ingress")
        for o in objects:
            for version in VERSIONS:
                with self.subTest(kind=o["kind"], version=version):
                    kubernetes_validate.validate(o, version, strict=True)

    def test_a_component_is_no_overlay(self):
        with self.assertRaises(kustomize.Unsupported):
            kustomize.render(K8S / "components" / "ingress")

    def test_a_proxy_gives_up_after_the_longest_wait_and_keeps_nothing_back(self):
        objects = self.rendered("ingress")
        (ingress,) = [o for o in objects if o["kind"] == "Ingress"]
        says = {name.rpartition("/")[2]: value for name, value in ingress["metadata"]["annotations"].items()}
        longest = program.defaults()["limits"]["max_wait_ms"] / 1000
        for timeout in ("proxy-read-timeout", "proxy-send-timeout"):
            self.assertGreater(int(says[timeout]), longest)
        self.assertEqual((says["proxy-buffering"], says["proxy-next-upstream"]), ("off", "off"))
        # The service and the port exist, and every host has a certificate.
        (service,) = [o for o in objects if o["kind"] == "Service"]
        ports = {port["name"] for port in service["spec"]["ports"]}
        hosts = {host for tls in ingress["spec"]["tls"] for host in tls["hosts"]}
        for rule in ingress["spec"]["rules"]:
            self.assertIn(rule["host"], hosts)
            for path in rule["http"]["paths"]:
                backend = path["backend"]["service"]
                self.assertEqual(backend["name"], service["metadata"]["name"])
                self.assertIn(backend["port"]["name"], ports)

    def test_the_autoscaler_counts_what_the_program_reports_and_nobody_else_decides(self):
        objects = self.rendered("autoscaling")
        (scaler,) = [o for o in objects if o["kind"] == "HorizontalPodAutoscaler"]
        (deployment,) = [o for o in objects if o["kind"] == "Deployment"]
        target = scaler["spec"]["scaleTargetRef"]
        self.assertEqual(target["name"], deployment["metadata"]["name"])
        self.assertEqual(target["kind"], deployment["kind"])
        self.assertNotIn("replicas", deployment["spec"])
        self.assertGreaterEqual(scaler["spec"]["minReplicas"], 2)
        metrics = (program.ROOT / "docs" / "metrics.md").read_text()
        (metric,) = scaler["spec"]["metrics"]
        self.assertIn(f"| `{metric['pods']['metric']['name']}` | gauge |", metrics)
        # One gateway has room for the callers of another that is stopped.
        ((_, container),) = gateways(objects)
        waiters = int(environment(container)["LATCHGATE_LIMITS_MAX_WAITERS"])
        self.assertLessEqual(2 * int(metric["pods"]["target"]["averageValue"]), waiters)
        down = scaler["spec"]["behavior"]["scaleDown"]
        longest = program.defaults()["limits"]["max_wait_ms"] / 1000
        self.assertGreater(down["stabilizationWindowSeconds"], longest)
        self.assertEqual([policy["value"] for policy in down["policies"]], [1])


if __name__ == "__main__":
    unittest.main()
