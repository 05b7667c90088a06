# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keeper's systemd units and example alerts: as systemd and the metrics' names want them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import jinja2
import pytest
import yaml
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import irq_metrics

TOP = Path(__file__).resolve().parents[2]
UNITS = ("rke2-hostprep-irq.service", "rke2-hostprep-irq-pin.service")


def render(unit, **variables):
    """As Ansible's template module does."""
    loader = jinja2.FileSystemLoader(TOP / "roles" / "nic_irq" / "templates")
    environment = jinja2.Environment(
        loader=loader, trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["dirname"] = os.path.dirname
    return environment.get_template(unit + ".j2").render(**variables)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    "variables",
    [
        {},
        {
            "nic_irq_metrics_file": "/var/lib/node_exporter/irq.prom",
            "nic_irq_period": 300,
            "nic_irq_keeper_cpus": "0-1",
        },
        {
            "nic_irq_queues": True,
            "nic_irq_management_addresses": ["192.0.2.1", "2001:db8::1"],
            "nic_irq_queues_on_management": True,
            "nic_irq_steering": True,
        },
    ],
)
def test_lines_are_whole(unit, variables):
    text = render(unit, **variables)
    for line in text.splitlines():
        assert not line or line[0] in "#[" or re.match(r"[A-Z]\w+=", line), line
    measured = "nic_irq_metrics_file" in variables
    assert ("--metrics" in text) == ("ReadWritePaths" in text) == measured
    assert ("--steering" in text) == ("nic_irq_steering" in variables)
    if unit == UNITS[1]:
        assert ("--queues " in text) == ("nic_irq_queues" in variables)
        assert ("--management=192.0.2.1 --management=2001:db8::1 --queues-on-management\n" in text) == (
            "nic_irq_queues" in variables
        )
    if measured and unit == UNITS[0]:
        assert "WatchdogSec=900\n" in text and "--period=300\n" in text and "CPUAffinity=0-1\n" in text


@pytest.mark.parametrize(
    ("result", "server"),
    [({"rke2": "server"}, True), ({"rke2": "agent"}, False), ({"rke2": None}, False), ({}, False), (None, False)],
)
def test_a_server_is_one_without_asking_for_services(result, server):
    default = yaml.safe_load((TOP / "roles/nic_irq/defaults/main.yml").read_text())["nic_irq_is_server"]
    known = {} if result is None else {"host_plan_result": result}
    assert jinja2.Environment().from_string(default).render(**known) == str(server)


@pytest.mark.parametrize(
    ("variables", "capable"),
    [
        ({}, ()),
        ({"nic_irq_queues": True}, UNITS[1:]),
        ({"nic_irq_steering": True}, UNITS),
    ],
)
def test_the_capability_only_where_it_is_needed(variables, capable):
    for unit in UNITS:
        (bound,) = re.findall(r"^CapabilityBoundingSet=(.*)$", render(unit, **variables), re.MULTILINE)
        assert bound == ("CAP_NET_ADMIN" if unit in capable else "")


@pytest.mark.parametrize("unit", UNITS)
def test_it_keeps_the_hosts_own_proc(unit):
    """systemd gives a unit with one of these a new instance of /proc, in which inotify sees no write through the host's."""
    names = set(re.findall(r"^([A-Z]\w+)=", render(unit), re.MULTILINE))
    assert not names & {
        "MountAPIVFS",
        "PrivatePIDs",
        "ProcSubset",
        "ProtectControlGroups",
        "ProtectKernelTunables",
        "ProtectProc",
        "RootDirectory",
        "RootImage",
    }


@pytest.mark.parametrize("unit", UNITS)
def test_confined(unit, tmp_path):
    program = shutil.which("systemd-analyze")
    if not program:
        pytest.skip("needs systemd-analyze")
    place = tmp_path / unit
    place.write_text(render(unit, nic_irq_metrics_file="/var/lib/node_exporter/irq.prom"))
    done = subprocess.run(
        [program, "security", "--offline=true", "--threshold=20", "--no-pager", str(place)],
        check=False,
        capture_output=True,
        text=True,
    )
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd is too old to judge a file")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


def test_alerts_name_metrics_that_there_are():
    path = TOP / "examples" / "prometheus" / "rke2_hostprep_irq.rules.yml"
    rules = [rule for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]
    used = {name for rule in rules for name in re.findall(irq_metrics.PREFIX + r"(\w+)", rule["expr"])}
    assert used and used <= set(irq_metrics.METRICS)
    assert all(rule["labels"]["severity"] and rule["annotations"]["summary"] for rule in rules)


def test_every_metric_is_documented():
    text = (TOP / "docs" / "nic_irq.md").read_text(encoding="utf-8")
    assert not [name for name in irq_metrics.METRICS if "`%s`" % name not in text]


@pytest.mark.parametrize(
    "path", ["/var/lib/node exporter/irq.prom", "/var/lib/%h/irq.prom", "irq.prom", "/var/lib/x\n[Service]"]
)
def test_a_path_that_a_units_line_would_split_is_refused_before_anything_else(tmp_path, path):
    role = yaml.safe_load((TOP / "roles/nic_irq/tasks/main.yml").read_text(encoding="utf-8"))
    variables = {"nic_irq_metrics_file": path, "nic_irq_python": "/usr/bin/python3", "nic_irq_state": "present"}
    play = {"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": role[:1]}
    playbook = tmp_path / "play.yml"
    playbook.write_text(yaml.safe_dump([play]), encoding="utf-8")
    command = ["ansible-playbook", "-i", "localhost,", "-c", "local", str(playbook)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "A path cannot stand in a systemd unit; read:" in refused.stdout
    variables["nic_irq_metrics_file"] = "/var/lib/node_exporter/irq.prom"
    playbook.write_text(yaml.safe_dump([play]), encoding="utf-8")
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
