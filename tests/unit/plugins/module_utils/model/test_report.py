# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet report: its JSON, its text, and what the page embeds. How the page behaves is tested in a browser, in tests/browser."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path

import jsonschema
import pytest
import sample_plans as samples
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import report, report_page, wording
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import make_plan
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.version import COLLECTION_VERSION
from hypothesis import given, settings, strategies as st
from referencing import Registry, Resource
from topologies import article

SCHEMAS = Path(__file__).resolve().parents[5] / "docs" / "schemas"
TIME = "2026-12-01T02:00:00Z"
LIMIT = 10 * 1000 * 1000  # the page's size for a fleet of 200

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "\u2028\u2029",
    "a\x1b[31mred\x07",
    "'\"><img src=x onerror=alert(1)>",
    "$(reboot);`id`",
    "\ud800",
    "\u202egnp",
    "a&amp;b",
    "{{ x }}",
    "\x00",
    "x\ny",
)


def validator():
    schemas = {
        name: json.loads((SCHEMAS / name).read_text(encoding="utf-8"))
        for name in ("plan.schema.json", "report.schema.json")
    }
    registry = Registry().with_resources((name, Resource.from_contents(schema)) for name, schema in schemas.items())
    return jsonschema.Draft202012Validator(schemas["report.schema.json"], registry=registry)


def made(*entries):
    return report.report(list(entries), TIME)


def small(host="gpu-01", **changes):
    """A machine of 8 CPUs, small enough to write its text down."""
    wanted = {
        "sockets": 1,
        "cores_per_node": 4,
        "nics": [samples.nic("ens1f0np0", 0)],
        "gpus": [samples.gpu(0, "L40S")],
    }
    wanted.update(changes)
    return samples.sample(host, **wanted)


# ---- JSON -----------------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [samples.refused("a")],
        [samples.unreachable("a")],
        [
            samples.entry(samples.h100("a")),
            samples.entry(samples.sample("b", memory_only=2, hybrid=4)),
            samples.refused("c", code=None),
        ],
    ],
    ids=["none", "refused", "unreachable", "mixed"],
)
def test_the_report_is_as_its_schema_says(entries):
    validator().validate(json.loads(report.encode(made(*entries))))


def test_real_plans_are_as_the_schema_says():
    plan = make_plan(
        article("block"),
        {"reserved_count": 4, "strategy": "pack"},
        [{"label": "spread", "reserved_count": 4}],
        None,
        "article",
    )
    document = made(samples.entry(plan))
    validator().validate(json.loads(report.encode(document)))
    assert report.rows(document)[0]["reserved"] == "0-1,32-33"
    assert "0-1,32-33" in report.table(document) and "2-31,34-63" in report_page.page(document)


def test_summary_counts_hosts():
    document = made(*samples.fleet(50))
    assert document["collection_version"] == COLLECTION_VERSION
    assert (document["summary"]["planned"], document["summary"]["refused"], document["summary"]["unreachable"]) == (
        48,
        1,
        1,
    )
    assert document["summary"]["reboot"] == 48
    warned = [
        host["host"]
        for host in document["hosts"]
        if host["plan"] and any(item["code"] == "gbps_per_core" for item in host["plan"]["warnings"])
    ]
    assert document["summary"]["warnings"] == {"gbps_per_core": len(warned)} and len(warned) == 19


def test_a_host_with_two_findings_of_a_code_counts_once():
    plan = small()
    plan["warnings"] *= 2
    assert made(samples.entry(plan))["summary"]["warnings"] == {"gbps_per_core": 1}


def test_the_time_is_utc_and_to_the_second():
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", report.report([])["generated_at"])


def test_json_text_has_one_host_per_line_and_every_plan_whole():
    entries = samples.fleet(20)
    text = report.encode(made(*entries))
    assert [json.loads(line.rstrip(","))["host"] for line in text.splitlines() if line.startswith('{"host"')] == [
        entry["host"] for entry in entries
    ]
    assert json.loads(text)["hosts"] == json.loads(json.dumps(entries))


def without(key):
    plan = small()
    del plan[key]
    return samples.entry(plan)


def broken(key, value):
    return samples.entry(dict(small(), **{key: value}))


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        (None, "not a list"),
        ({"host": "a"}, "not a list"),
        (["a"], "plan 1 is not a mapping"),
        ([{}], "plan 1 does not say which host"),
        ([{"host": ""}], "does not say which host"),
        ([{"host": 7, "status": "planned"}], "does not say which host"),
        ([{"host": "a"}], "the status of host a"),
        ([{"host": "a", "status": "done"}], "'done'"),
        ([{"host": "a", "status": ["planned"]}], "the status of host a"),
        ([{"host": "a", "status": "planned"}], "host a is planned but has no plan"),
        ([{"host": "a", "status": "planned", "plan": []}], "has no plan"),
        ([{"host": "a", "status": "planned", "plan": {}}], "missing or of the wrong type"),
        ([without("kubelet")], "kubelet"),
        ([without("layout")], "layout"),
        ([broken("layout", {})], "layout.cores"),
        ([broken("nics", [None])], "malformed"),
        ([broken("reserved", "all")], "malformed"),
        ([broken("numa", [{"id": 0}])], "malformed"),
        ([broken("transition", {})], "malformed"),
        ([samples.refused("a"), samples.refused("a")], "a host is in the plans twice"),
        ([{"host": "\x1b[2J", "status": 1}], r"\x1b[2J"),
    ],
)
def test_malformed_plans_are_refused_in_one_sentence(entries, says):
    with pytest.raises(HostprepError) as caught:
        report.report(entries)
    error = caught.value
    assert error.code == "plans_malformed" and says in str(error)
    assert error.read and error.allowed and error.cure and "\n" not in str(error) and str(error).isprintable()


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "cpus", "code", "message", "queues", "name", "queue_cpus", "verdict", "shape", "policies"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(small())), JUNK)
def test_nothing_but_a_refusal_comes_of_junk(key, junk):
    try:
        document = made(broken(key, junk))
        report.table(document)
        report_page.page(document)
        report.encode(document)
    except HostprepError as error:
        assert error.code == "plans_malformed"


# ---- grouping -------------------------------------------------------------------------------------------------------------------------------------


def changed(path, value):
    plan = small("b")
    inner = plan
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return plan


@pytest.mark.parametrize(
    ("plan", "same"),
    [
        (small("b"), True),
        (changed(("layout", "nodes", 0, "memory_mib"), 1), True),
        (changed(("numa", 0, "memory_mib"), 1), True),
        (changed(("fingerprint",), "0"), True),
        (changed(("warnings", 0, "read"), "412 Gb/s"), True),
        (changed(("reserved",), "0-3"), False),
        (changed(("mode",), "quiet"), False),
        (changed(("nics", 0, "queue_cpus"), [4, 0]), False),
        (changed(("differences", 0, "live"), "1-3"), False),
        (changed(("warnings",), []), False),
        (changed(("transition", "reboot"), False), False),
        (changed(("layout", "machine", "kernel"), "6.12.1"), False),
        (changed(("kubelet", "admission"), []), False),
    ],
)
def test_hosts_are_one_group_when_every_decision_is_the_same(plan, same):
    first, second = report.rows(made(samples.entry(small("a")), samples.entry(plan)))
    assert (first["group"] == second["group"]) is same


def test_refused_hosts_are_grouped_by_their_reason():
    found = report.rows(made(samples.refused("a"), samples.refused("b"), samples.refused("c", "another reason.")))
    assert [row["group"] for row in found] == [0, 0, 1]


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a,b"),
        (["gpu-1", "gpu-2", "gpu-3"], "gpu-[1-3]"),
        (["gpu-09", "gpu-10"], "gpu-[09-10]"),
        (["gpu-9", "gpu-10"], "gpu-[9-10]"),
        (["gpu-09", "gpu-9"], "gpu-[9,09]"),
        (["gpu-1", "gpu-3"], "gpu-[1,3]"),
        (["n1.dc2.lab", "n2.dc2.lab"], "n[1-2].dc2.lab"),
        (["n1.dc1", "n1.dc2", "n2.dc2"], "n1.dc[1-2],n2.dc2"),
        (["10.0.0.8", "10.0.0.9", "old"], "10.0.0.[8-9],old"),
        (["b1", "a", "b2"], "b[1-2],a"),
        (["gpu-001"] * 1, "gpu-001"),
        (["\u0663x1", "\u0663x2"], "\u0663x[1-2]"),
    ],
)
def test_host_names_are_folded(names, folded):
    assert wording.host_ranges(names) == folded


@given(st.lists(st.from_regex(r"[a-c]{0,2}[0-9]{1,3}(-[0-9]{1,2})?", fullmatch=True), unique=True, max_size=30))
def test_folded_names_unfold_to_the_same_hosts(names):
    unfolded = []
    for item in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", wording.host_ranges(names)):
        before, inside, after = re.fullmatch(r"([^\[]*)(?:\[([^\]]*)\])?(.*)", item).groups()
        for run in (inside or "").split(","):
            first, _dash, last = run.partition("-")
            last = last or first
            unfolded += [
                before + (str(value).zfill(len(first)) if first else "") + after
                for value in range(int(first or 0), int(last or 0) + 1)
            ]
    assert sorted(unfolded) == sorted(names)


# ---- text -----------------------------------------------------------------------------------------------------------------------------------------

GOLDEN = """\
Host plan of 3 hosts, lo0.rke2_hostprep {version}, 2026-12-01T02:00:00Z
2 planned, 1 refused, 0 unreachable; 2 hosts need a reboot; 2 hosts need a drain; 2 distinct plans
warnings, with the number of hosts: gbps_per_core 2

HOSTS      N  MODE      RESERVED  ISOLATED  NIC/Q  Gb/s/CORE  WARN  DIFF  CHANGE
gpu-[1-2]  2  balanced  0-1,4-5   2-3,6-7     1/4        200     1     1  reboot+drain
old        1            refused
NIC/Q: NICs planned and their queues. Gb/s/CORE: of the busiest node. DIFF: settings that are not as
planned.

gpu-[1-2]  (2 hosts, one plan; figures of gpu-1)
  machine    Intel(R) Xeon(R) Platinum 8480+, 1 socket, 1 NUMA node, 4 cores, 8 CPUs, 1 GPU, kernel
             6.8.0-45-generic
  reserved   0-1,4-5  (4 CPUs)
  isolated   2-3,6-7  (4 CPUs)
  irq        as reserved
  why        0,4: CPU 0 boots the machine; interrupts land on it whatever the arguments say
  why        1,5: housekeeping core of node 0
  nic        ens1f0np0 (mlx5_core), node 0, 400 Gb/s, 4 queues (now 63) on CPUs 0 1 4 5, 4
             completion vectors on 0-1,4-5, 100 Gb/s per queue
  vectors    room for 772 on 4 housekeeping CPUs; 180 now (fits), 60 as planned (fits); 40 managed
             by the kernel
  arguments  isolcpus=managed_irq,2-3,6-7 irqaffinity=0-1,4-5
  kubelet    reservedSystemCPUs as reserved, cpuManagerPolicy static, topologyManagerPolicy
             best-effort, 4 CPUs left for pods
  pod        llm-4gpu (24 CPUs, 4 GPUs, 256 GiB): admitted under none, best-effort, restricted;
             refused under single-numa-node (no node has 4 GPUs)
  pod        embedder (4 CPUs, 1 GPU, 256 GiB): admitted under none, best-effort, restricted,
             single-numa-node
  differs    isolcpus: planned managed_irq,2-3,6-7, configured unknown, live (none)
  unknown    reservedSystemCPUs (no kubelet was found): planned 0-1,4-5, configured unknown, live
             unknown
  same       irqaffinity
  change     reboot, drain; kubelet state to remove: /var/lib/kubelet/cpu_manager_state
    because  kernel_args: the boot arguments change
  WHAT IF            LOST  QUEUES  Gb/s/CORE  VECTORS     RESERVED
  as planned            0       4        200  fit         0-1,4-5
  one core per node    -2       2        400  do not fit  0,4
    pod      one core per node: llm-4gpu is admitted under none, best-effort
  what if    CPU 0 alone: the list splits siblings; read: 0; allowed: whole cores; what to do: add
             their siblings.
  WARNING    gbps_per_core: node 0: 400 Gb/s on 4 housekeeping CPUs is more than 100 Gb/s per core
    to do    reserve more cores on that node: reserved_cores_by_node

old
  refused    the reserved list names CPU 99; read: 99; allowed: 0-63; what to do: correct the list.
             (reserved_out_of_range)
"""


def test_the_text_of_a_small_fleet():
    document = made(samples.entry(small("gpu-1")), samples.entry(small("gpu-2")), samples.refused("old"))
    assert report.table(document) == GOLDEN.format(version=COLLECTION_VERSION)


def test_an_own_irq_list_and_a_refused_vector_budget_are_told():
    plan = small(irq="0,4")
    plan["vector_budget"] = dict(plan["vector_budget"], judged=False, why="no interrupts were captured")
    text = report.table(made(samples.entry(plan)))
    assert re.search(r"irq +0,4 +\(2 CPUs\)", text)
    assert "not judged: no interrupts were captured" in text


@pytest.mark.parametrize("width", [72, 80, 100, 132])
def test_no_line_is_wider_than_asked(width):
    entries = samples.fleet(200) + [
        samples.entry(small("x" * 70)),
        samples.entry(samples.sample("wide", sockets=16, cores_per_node=36)),
    ]
    lines = report.table(made(*entries), width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert all(line == line.rstrip() for line in lines)


def test_a_fleet_of_200_is_a_page_of_text_per_plan_not_per_host():
    document = made(*samples.fleet(200))
    lines = report.table(document).splitlines()
    assert len({row["group"] for row in report.rows(document)}) == 6
    assert len(lines) < 250 and lines[1].endswith("6 distinct") and lines[2].strip() == "plans"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_harmless_in_a_terminal(name):
    plan = small(name, nics=[samples.nic(name, 0, driver=name)], kernel=name, model=name)
    plan["warnings"][0].update(message=name, cure=name, code=name)
    text = report.table(made(samples.entry(plan), samples.refused("x" + name, name, name)))
    assert all(char == "\n" or char.isprintable() for char in text)
    assert text.encode("utf-8")


# ---- page -----------------------------------------------------------------------------------------------------------------------------------------


def embedded(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))


def part(plan, name):
    for key in name.split("."):
        plan = plan[key]
    return plan


def test_the_page_holds_every_part_that_it_shows():
    entries = samples.fleet(20)
    data = embedded(report_page.page(made(*entries)))
    assert [host["host"] for host in data["hosts"]] == [entry["host"] for entry in entries]
    for host, entry in zip(data["hosts"], entries):
        for name, place in zip(data["names"], host["parts"]):
            wanted = json.loads(json.dumps(part(entry["plan"], name)))
            assert data["pool"][place] == ([core[:5] for core in wanted] if name == "layout.cores" else wanted)


def test_what_hosts_share_is_embedded_once():
    one, many = (
        report_page.embed(made(*(samples.entry(samples.h100("gpu-%03d" % index)) for index in range(count))))
        for count in (1, 100)
    )
    assert (len(many) - len(one)) / 99 < 500


def all_different(count):
    """Hosts of 256 CPUs of which no two share a list, a NIC or a size."""
    for index in range(count):
        plan = samples.sample(
            "node-%03d.example.net" % index,
            nodes_per_socket=4,
            cores_per_node=16,
            cores_per_llc=8,
            kernel="6.8.0-%d-generic" % index,
            nics=[samples.nic("enp%ds%df0np0" % (slot, index), slot, 200 + index) for slot in range(8)],
            gpus=[samples.gpu(slot, "GPU %d" % index) for slot in range(8)],
        )
        for node in plan["numa"] + plan["layout"]["nodes"]:
            node["memory_mib"] += index
        for core in plan["layout"]["cores"]:
            core[4] = "P%d" % index
        for cache in plan["layout"]["llcs"]:
            cache["size_kib"] += index
        yield samples.entry(plan)


@pytest.mark.parametrize(
    "entries", [samples.fleet(200), list(all_different(200))], ids=["five kinds of hardware", "all different"]
)
def test_the_page_of_200_hosts_is_small_enough(entries):
    size = len(report_page.page(made(*entries)).encode("utf-8"))
    print("page of 200 hosts: %.1f MB" % (size / 1e6))
    assert size <= LIMIT


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_strings_stay_data(text):
    plan = small(
        text,
        nics=[samples.nic(text, 0, driver=text), samples.nic(text + "2", None, planned=False, root=text)],
        kernel=text,
        model=text,
    )
    plan["warnings"][0].update(message=text, cure=text, read=text, code=text)
    page = report_page.page(made(samples.entry(plan), samples.refused("x" + text, text, text)), title=text)
    assert page.encode("utf-8")
    assert len(re.findall("<script", page)) == 2 and len(re.findall("</script", page)) == 2 and "<!--" not in page
    data = embedded(page)
    assert data["hosts"][0]["host"] == text and data["hosts"][1]["error"] == text
    heading = re.search(r"<h1>(.*?)</h1>", page).group(1)
    assert "<" not in heading and html.unescape(heading) == wording.plain(text)


def test_the_policy_of_the_page_lets_its_own_script_and_style_run_and_nothing_else():
    page = report_page.page(made(samples.entry(small())))
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1))
    style, script = (
        re.search("<style>(.*?)</style>", page, re.S).group(1),
        re.search("<script>(.*?)</script>", page, re.S).group(1),
    )

    def source(text):
        return "'sha256-%s'" % base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")

    assert policy.split("; ") == [
        "default-src 'none'",
        "img-src data:",
        "style-src " + source(style),
        "script-src " + source(script),
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_the_page_needs_no_other_file_and_parses_nothing_as_html():
    page = report_page.page(made(samples.entry(small())))
    addresses = set(re.findall(r"https?://[^\s\"']+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(
        r"(?i)@import|url\(|<link rel=\"stylesheet|\ssrc=|\son[a-z]+=|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function",
        page,
    )


def shades(style, dark):
    """The colour variables of one scheme, as the browser resolves them."""
    light, night = re.findall(r":root \{(.*?)\}", style, re.S)
    found = dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", light))
    return dict(found, **dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", night))) if dark else found


def contrast(one, other):
    """Contrast ratio of two colours (WCAG 2.2)."""
    levels = []
    for colour in (one, other):
        channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
        levels.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(levels) + 0.05) / (min(levels) + 0.05)


TEXT = [(word, ground) for word in ("text", "soft", "link", "bad", "good", "warn") for ground in ("page", "panel")] + [
    ("text", "mark"),
    ("soft", "box"),
    ("text", "box"),
    ("soft", "deep"),
    ("reserved-text", "reserved"),
    ("isolated-text", "isolated"),
    ("off-text", "off"),
]
SHAPES = [
    ("focus", "page"),
    ("box-edge", "page"),
    ("reserved-edge", "box"),
    ("isolated-edge", "box"),
    ("off-edge", "box"),
] + [("nic%d" % index, ground) for index in range(6) for ground in ("box", "isolated")]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("front", "back", "least"), [(*pair, 4.5) for pair in TEXT] + [(*pair, 3) for pair in SHAPES])
def test_contrast(front, back, least, dark):
    style = re.search("<style>(.*?)</style>", report_page.page(made()), re.S).group(1)
    colours = shades(style, dark)
    assert contrast(colours[front], colours[back]) >= least


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_reserved_and_isolated_differ_without_colour(dark):
    colours = shades(re.search("<style>(.*?)</style>", report_page.page(made()), re.S).group(1), dark)
    assert contrast(colours["reserved"], colours["isolated"]) >= 1.4


def test_an_unreachable_host_has_its_sentence_apart_from_the_label():
    document = report.report([samples.unreachable("a")], generated_at="2026-01-01T00:00:00Z")
    line = next(line for line in report.table(document).splitlines() if "no answer" in line)
    assert line.split("no answer")[1].startswith("  ")
