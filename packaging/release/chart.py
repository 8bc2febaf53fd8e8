"""The Helm chart, made of the kustomization: its files with values in place of what differs from cluster to cluster."""

from . import ROOT, archive

BASE, COMPONENTS, CHART = "k8s/base", "k8s/components", "packaging/chart"
# What is replaced in each file: every text occurs there once.
REPLACED = {
    f"{BASE}/deployment.yaml": {
        "  replicas: 2\n": "  {{- if not .Values.autoscaling.enabled }}\n  replicas: {{ .Values.replicas }}\n  {{- end }}\n",
        "image: latchgate\n": 'image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"\n',
        "name: latchgate-store\n": "name: {{ .Values.secrets.store }}\n",
        "secretName: latchgate-keys\n": "secretName: {{ .Values.secrets.keys }}\n",
        '              value: "10000"\n': '              value: "10000"\n            {{- with .Values.env }}\n'
        "            {{- toYaml . | nindent 12 }}\n            {{- end }}\n",
        "            requests:\n              cpu: 100m\n              memory: 64Mi\n"
        "            # No limit of CPU: a gateway that is throttled renews too late.\n"
        "            limits:\n              memory: 384Mi\n": "            {{- toYaml .Values.resources | nindent 12 }}\n",
    },
    f"{BASE}/networkpolicy.yaml": {
        "    # The Redis in this namespace. One that is elsewhere has the addresses in overlays/external-redis.\n": "",
        "        - podSelector:\n            matchLabels:\n              app.kubernetes.io/name: latchgate\n"
        "              app.kubernetes.io/component: redis\n": "        {{- toYaml .Values.networkPolicy.redis | nindent 8 }}\n",
        "- port: 6379\n": "- port: {{ .Values.networkPolicy.redisPort }}\n",
    },
    f"{BASE}/poddisruptionbudget.yaml": {},
    f"{BASE}/service.yaml": {},
    f"{COMPONENTS}/ingress/ingress.yaml": {
        "ingressClassName: nginx\n": "ingressClassName: {{ .Values.ingress.className }}\n",
        "hosts: [latchgate.example.org]\n": "hosts: [{{ .Values.ingress.host | quote }}]\n",
        "secretName: latchgate-tls\n": "secretName: {{ .Values.ingress.tlsSecret }}\n",
        "- host: latchgate.example.org\n": "- host: {{ .Values.ingress.host | quote }}\n",
    },
    f"{COMPONENTS}/autoscaling/autoscaler.yaml": {
        "minReplicas: 2\n": "minReplicas: {{ .Values.autoscaling.min }}\n",
        "maxReplicas: 8\n": "maxReplicas: {{ .Values.autoscaling.max }}\n",
    },
    "k8s/overlays/monitored/servicemonitor.yaml": {},
}
# What is there only if its value says so.
OPTIONAL = {"ingress": "ingress", "autoscaler": "autoscaling", "servicemonitor": "serviceMonitor"}


def template(path):
    """A file of the kustomization as a template."""
    text = (ROOT / path).read_text()
    for old, new in REPLACED[path].items():
        assert text.count(old) == 1, f"{path} has {text.count(old)} times {old!r}: change packaging/release/chart.py"
        text = text.replace(old, new)
    if value := OPTIONAL.get(name(path)):
        text = f"{{{{- if .Values.{value}.enabled }}}}\n{text}{{{{- end }}}}\n"
    return text


def name(path):
    return path.rpartition("/")[2].removesuffix(".yaml")


def contents(version):
    """{path in the chart: (bytes, mode)}."""
    chart = (
        "apiVersion: v2\nname: latchgate\ntype: application\n"
        f"version: {version}\nappVersion: \"{version}\"\n"
        "description: A lock gateway, distributed locks over plain HTTP and JSON. No cluster has run this chart\n"
        'kubeVersion: ">=1.30.0-0"\n'
    )
    made = {"Chart.yaml": chart, "LICENSE": (ROOT / "LICENSE").read_text()}
    for path in ("README.md", "values.yaml"):
        made[path] = (ROOT / CHART / path).read_text()
    made["templates/NOTES.txt"] = (ROOT / CHART / "NOTES.txt").read_text()
    made |= {f"templates/{name(path)}.yaml": template(path) for path in REPLACED}
    return {path: (text.encode(), 0o644) for path, text in made.items()}


def write(out, version, moment):
    archive.write(out / f"latchgate-chart-{version}.tgz", "latchgate", contents(version), moment)
