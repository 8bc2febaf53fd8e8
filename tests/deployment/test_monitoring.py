"""The dashboard and the alert rules ask only for metrics and labels that the program has."""

import json
import re
import unittest

import yaml

import program

MONITORING = program.ROOT / "packaging" / "monitoring"
# Metrics and labels of Prometheus itself: the state of each target, and what it adds to every series.
OWN_METRICS = {"up"}
OWN_LABELS = {"instance", "job", "le"}
# Words of the query language that may stand in the place of a metric.
WORDS = {"by", "without", "on", "ignoring", "and", "or", "unless", "bool", "offset", "group_left", "group_right"}


def listed():
    """The samples of each metric in the list, with their labels."""
    samples = {}
    page = (program.ROOT / "docs" / "metrics.md").read_text()
    for name, kind, labels in re.findall(r"(?m)^\| `([a-z_]+)` \| ([a-z]+) \| ([^|]*) \|", page):
        labels = set(re.findall(r"`([a-z_]+)`", labels))
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        samples |= {name + end: labels for end in ends}
    return samples


def dashboard():
    return json.loads((MONITORING / "dashboard.json").read_text())


def rules():
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries():
    """Each query, with the labels that the text beside it names."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"], set(re.findall(r"{{\s*([a-z_]+)\s*}}", target["legendFormat"]))
    for rule in rules():
        text = " ".join(rule["annotations"].values())
        yield rule["expr"], set(re.findall(r"\$labels\.([a-z_]+)", text))


def used(query):
    """The metrics of a query with the labels by which they are picked, and the labels it groups by."""
    bare = re.sub(r'"[^"]*"', '""', query)
    metrics = []
    for name, picked in re.findall(r"(?<![\w$])([a-z_:]+)(?:{([^}]*)})?(?!\s*\(|[\w(])", re.sub(r"\b(?:by|without)\s*\([^)]*\)", " ", bare)):
        if name not in WORDS and not re.fullmatch(r"[smhd]", name):
            metrics.append((name, set(re.findall(r"([a-z_]+)\s*[=!]", picked))))
    grouped = set()
    for labels in re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", bare):
        grouped |= {label.strip() for label in labels.split(",")}
    return metrics, grouped


class Monitoring(unittest.TestCase):
    def test_every_metric_and_every_label_that_is_asked_for(self):
        samples = listed()
        self.assertGreater(len(samples), 30)
        for query, shown in queries():
            metrics, grouped = used(query)
            self.assertTrue(metrics, query)
            known = set(OWN_LABELS)
            for name, picked in metrics:
                if name in OWN_METRICS:
                    labels = set()
                else:
                    self.assertIn(name, samples, query)
                    labels = samples[name]
                self.assertLessEqual(picked, labels | OWN_LABELS, query)
                known |= labels
            self.assertLessEqual(grouped, known, query)
            kept = grouped | OWN_LABELS if grouped else known
            self.assertLessEqual(shown, kept, query)

    def test_a_query_with_a_metric_or_a_label_that_is_not_there_is_found(self):
        metrics, grouped = used('sum by (le, gone) (rate(latchgate_no_total{outcome!="x", other=~"y"}[5m])) / up')
        self.assertEqual(metrics, [("latchgate_no_total", {"outcome", "other"}), ("up", set())])
        self.assertEqual(grouped, {"le", "gone"})

    def test_what_may_go_wrong_has_an_alert(self):
        asked = " ".join(rule["expr"] for rule in rules())
        for metric in (
            "latchgate_check",
            "latchgate_expired_while_held_total",
            "latchgate_renew_margin_seconds_bucket",
            "latchgate_store_errors_total",
            "latchgate_store_channel",
            "latchgate_store_clock_skew_seconds",
            "latchgate_certificate_expiry_timestamp_seconds",
        ):
            self.assertIn(metric, asked)

    def test_panels_do_not_overlap_and_have_ids_of_their_own(self):
        taken, ids = set(), []
        for panel in dashboard()["panels"]:
            ids.append(panel["id"])
            at = panel["gridPos"]
            self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(taken & cells, panel["title"])
            taken |= cells
        self.assertEqual(len(ids), len(set(ids)))


if __name__ == "__main__":
    unittest.main()
