# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report's page in headless Chromium: what it draws, how it is used by keyboard, and that nothing in it gets out or runs."""

from __future__ import annotations

import json
import re
import zlib

import pytest
import sample_plans as samples
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cpulist, report, report_page
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import make_plan
from topologies import article

SECONDS = 10  # a page of 200 hosts must be on the screen within this time on a slow machine


@pytest.fixture
def show(browser, tmp_path):
    """Opens a page with the given entries; at the end of the test it must have kept quiet and asked for nothing."""
    opened = []

    def open_page(*entries, anchor="", **look):
        path = tmp_path / ("page %d.html" % len(opened))
        path.write_text(report_page.page(report.report(list(entries), "2026-12-01T02:00:00Z")), encoding="utf-8")
        page = browser.page(path.as_uri() + anchor, **look)
        opened.append((page, path.as_uri() + anchor))
        return page

    yield open_page
    for page, address in opened:
        page.js("new Promise(done => setTimeout(done, 0))")
        assert page.console == [] and page.exceptions == []
        # The page itself, and its empty icon, which is in the page.
        assert set(page.requests) <= {address.partition("#")[0], "data:,"}
        page.close()


def texts(page, selector):
    return page.js("[...document.querySelectorAll(%s)].map(node => node.textContent)" % json.dumps(selector))


def names(page):
    """Hosts of the fleet table, in the order shown."""
    return texts(page, ".fleet tbody th a")


def is_open(page):
    return texts(page, ".host.open:not([hidden]) .name")


def focus(page):
    return page.js("document.activeElement.textContent")


def odd_machines():
    return {
        "two CPUs": samples.sample("vm", sockets=1, cores_per_node=2, threads=1, nics=[samples.nic("ens3", 0, None)]),
        "4 x H100": samples.h100("gpu"),
        "own irq list": samples.h100("gpu", irq="0,56"),
        "8 nodes": samples.sample(
            "epyc",
            nodes_per_socket=4,
            cores_per_llc=8,
            memory_only=2,
            nics=[samples.nic("ens%df0" % node, node) for node in range(8)]
            + [samples.nic("eno1", None, 25), samples.nic("eno2", None, planned=False)],
        ),
        "SMT8": samples.sample("power", cores_per_node=10, threads=8, nics=[samples.nic("enP1", 1, 100)]),
        "hybrid": samples.sample("desktop", sockets=1, cores_per_node=14, hybrid=8),
        "1152 CPUs in 64 nodes": samples.sample(
            "huge",
            sockets=32,
            nodes_per_socket=2,
            cores_per_node=9,
            nics=[samples.nic("ens%d" % node, node) for node in range(0, 64, 4)],
        ),
        "the article's": make_plan(article("alternate"), {"reserved_cores_per_node": 1}, (), None, "article"),
    }


# ---- the drawing ----------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(odd_machines()))
def test_the_drawing_is_the_plan(show, name):
    plan = odd_machines()[name]
    page = show(samples.entry(plan))
    assert page.js("document.querySelectorAll('.drawing .core').length") == len(plan["layout"]["cores"])

    drawn = page.js(
        "[...document.querySelectorAll('.drawing [data-cpu][data-state]')].map(cell => [Number(cell.dataset.cpu), cell.dataset.state])"
    )
    states = dict.fromkeys(cpulist.expand(plan["reserved"]), "r")
    states.update((cpu, "i") for cpu in cpulist.expand(plan["isolated"]))
    assert dict(drawn) == states and len(drawn) == len(states)

    lines = page.js(
        "[...document.querySelectorAll('.drawing path[data-queue]')].map(line => [line.dataset.nic, line.dataset.queue, line.dataset.cpu].map(Number))"
    )
    wanted = [
        [index, queue, nic["queue_cpus"][queue % len(nic["queue_cpus"])]]
        for index, nic in enumerate(plan["nics"])
        for queue in range(nic["queues"])
    ]
    assert sorted(lines) == wanted

    chips = page.js("[...document.querySelectorAll('.drawing [data-chip]')].map(chip => chip.dataset.chip)")
    assert (chips.count("nic"), chips.count("gpu")) == (len(plan["layout"]["nics"]), len(plan["layout"]["gpus"]))
    assert page.js("document.documentElement.scrollWidth <= innerWidth"), "what is wide scrolls inside its own frame"


def boxes(page, selector):
    """[left, top, right, bottom] of elements, to the pixel."""
    return page.js(
        "[...document.querySelectorAll(%s)].map(node => { const box = node.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]; })"
        % json.dumps(selector)
    )


def inside(inner, outer):
    return (
        inner[0] >= outer[0] - 1 and inner[1] >= outer[1] - 1 and inner[2] <= outer[2] + 1 and inner[3] <= outer[3] + 1
    )


@pytest.mark.parametrize("name", ["4 x H100", "8 nodes", "SMT8", "1152 CPUs in 64 nodes"])
def test_things_are_drawn_at_their_place(show, name):
    plan = odd_machines()[name]
    page = show(samples.entry(plan))
    nodes = boxes(page, ".drawing rect.node")
    titles = [
        re.match(r"NUMA (\d+)", title)
        for title in page.js(
            "[...document.querySelectorAll('.drawing .under text')].map(text => text.querySelector('.title') ? text.querySelector('.title').textContent : '')"
        )
    ]
    order = [int(match.group(1)) for match in titles if match]
    assert sorted(order) == [node["id"] for node in plan["layout"]["nodes"]]
    frame_of = dict(zip(order, nodes))
    for box, core in zip(boxes(page, ".drawing .core .edge"), sorted_cores(page, plan)):
        home = plan["layout"]["nodes"][core[1]]["id"]
        assert [node for node, frame in frame_of.items() if inside(box, frame)] == [home]
    chips = page.js(
        "[...document.querySelectorAll('.drawing [data-chip]')].map(chip => chip.getAttribute('aria-label'))"
    )
    for box, label in zip(boxes(page, ".drawing [data-chip] .chip"), chips):
        node = re.search(r"NUMA node (\d+|unknown)", label).group(1)
        at = [str(number) for number, frame in frame_of.items() if inside(box, frame)]
        assert at == ([] if node == "unknown" else [node]), label
    for one in boxes(page, ".drawing .core .edge"):
        assert not any(
            one[0] < other[2] - 1 and other[0] < one[2] - 1 and one[1] < other[3] - 1 and other[1] < one[3] - 1
            for other in boxes(page, ".drawing .chip")
        ), "no chip covers a core"


def sorted_cores(page, plan):
    indices = page.js("[...document.querySelectorAll('.drawing .core')].map(core => Number(core.dataset.core))")
    return [plan["layout"]["cores"][index] for index in indices]


def test_lists_can_be_told_apart_without_colour(show):
    page = show(samples.entry(samples.h100("gpu", irq="0,56")))
    letters = page.js(
        "[...document.querySelectorAll('.drawing > .scroll .tag')].map(text => text.textContent).join('')"
    )
    assert set(letters) == {"R", "Q", "I"} and letters.count("Q") == 2
    label = page.js("document.querySelector('.core').getAttribute('aria-label')")
    assert label == page.js("document.querySelector('.core title').textContent")
    assert label.startswith(
        "Core with CPUs 0,112: reserved, takes interrupts; NUMA node 0, socket 0, L3 cache #0; ens1f0np0 queue 0 on CPU 0"
    )
    assert page.js("document.querySelectorAll('.drawing rect.irq').length") == 2 + 1  # one more in the legend
    reserved, isolated = (
        page.js("getComputedStyle(document.querySelector('.core .cpu.%s')).fill" % state) for state in "ri"
    )
    assert reserved != isolated


def test_devices_of_unknown_place_are_in_a_box_of_their_own(show):
    plan = samples.sample(
        "vm", nics=[samples.nic("ens3", None, 10), samples.nic("ens4", 7, 10)], gpus=[samples.gpu(None)]
    )
    page = show(samples.entry(plan))
    [unknown] = boxes(page, ".drawing .unknown-place")
    assert all(inside(box, unknown) for box in boxes(page, ".drawing .chip"))
    assert (
        page.js("document.querySelectorAll('path.queue.far[data-queue]').length")
        == page.js("document.querySelectorAll('path.queue[data-queue]').length")
        > 0
    )
    assert "NUMA node 7 (absent)" in page.js("document.querySelector('.drawing').innerHTML")


def test_cpus_that_will_be_offline_are_shown_so(show):
    plan = samples.sample("gpu", cores_per_node=4)
    plan["isolated"] = cpulist.minus(plan["isolated"], "8-15")  # the second threads, as with smt: disabled
    plan["reserved"] = cpulist.minus(plan["reserved"], "8-15")
    page = show(samples.entry(plan))
    assert page.js("document.querySelectorAll('.core [data-state=o]').length") == 8
    assert "not online after the planned boot" in texts(page, ".legend")[0]


def test_many_idle_functions_are_counted_not_drawn(show):
    plan = samples.sample(
        "sriov",
        nics=[samples.nic("ens1f0", 0)] + [samples.nic("ens1f0v%d" % vf, 0, planned=False) for vf in range(126)],
    )
    page = show(samples.entry(plan))
    assert page.js("document.querySelectorAll('.drawing [data-chip=nic]').length") == 1 + 5 + 1
    assert "121 more NICs" in texts(page, ".drawing .chips")[0]


def test_a_host_that_cannot_be_drawn_still_shows_its_lists(show):
    plan = samples.h100("gpu")
    plan["layout"]["cores"][0][3] = 99  # a cache that does not exist
    page = show(samples.entry(plan))
    assert "could not be drawn" in texts(page, ".body")[0] and plan["isolated"] in texts(page, ".body")[0]
    assert len(page.console) == 1
    page.console.clear()


def test_pointing_at_a_nic_or_a_core_brings_out_its_lines(show):
    plan = odd_machines()["8 nodes"]
    page = show(samples.entry(plan))
    lit = (
        "[...document.querySelectorAll('path.queue.on')].map(line => line.dataset.nic + ':' + line.dataset.cpu).sort()"
    )
    assert page.js(lit) == []
    page.hover("[data-chip][data-nic='2']")
    assert page.js(lit) == sorted("2:%d" % cpu for cpu in plan["nics"][2]["queue_cpus"])
    assert texts(page, ".readout")[0].startswith("NIC ens2f0: 4 queues on CPUs 32 33 160 161")
    assert page.js("getComputedStyle(document.querySelector('path.queue:not(.on)[data-queue]')).opacity") < "0.5"
    page.hover(".core[data-core='0']")
    assert {line.split(":")[1] for line in page.js(lit)} == {"0", "128"}
    page.hover("h1")
    assert page.js(lit) == []


def test_the_drawing_by_keyboard(show):
    page = show(samples.entry(samples.h100("gpu")))
    page.js("document.querySelector('.core[tabindex=\"0\"]').focus()")
    label = "document.activeElement.getAttribute('aria-label')"
    assert page.js(label).startswith("Core with CPUs 0,112")
    for key, cpus in (
        ("ArrowRight", "1,113"),
        ("ArrowDown", "8,120"),
        ("ArrowUp", "1,113"),
        ("ArrowLeft", "0,112"),
        ("ArrowLeft", "0,112"),
        ("End", "111,223"),
        ("Home", "0,112"),
    ):
        page.key(key)
        assert page.js(label).startswith("Core with CPUs %s:" % cpus), key
    assert page.js("document.querySelectorAll('path.queue.on').length") == 2
    page.key("Tab")
    assert page.js(label).startswith("NIC eno1: not planned")
    page.key("ArrowRight")
    assert page.js(label).startswith("NIC ens1f0np0: 4 queues")
    assert page.js("document.querySelectorAll('path.queue.on').length") == 4
    assert page.js("getComputedStyle(document.activeElement.querySelector('.ring')).strokeWidth") == "3px", (
        "the focus is visible"
    )
    page.key("Tab")
    assert page.js("document.activeElement.closest('svg')") is None


# ---- the fleet ------------------------------------------------------------------------------------------------------------------------------------


def test_200_hosts(show):
    entries = samples.fleet(200)
    page = show(*entries)
    print("200 hosts on the screen after %.2f s" % page.load_seconds)
    assert page.load_seconds < SECONDS
    assert names(page) == [entry["host"] for entry in entries]
    assert is_open(page) == []
    assert page.js("document.querySelectorAll('svg').length") == 0, "drawings are made when a host is opened"
    took = page.js(
        "(() => { const start = performance.now(); visit(HOSTS[2]); document.body.getBoundingClientRect(); return performance.now() - start; })()"
    )
    print("a host of 256 CPUs opened in %.2f s" % (took / 1000))
    assert page.js("document.querySelectorAll('.core').length") == 128


def test_opening_200_hosts_leaves_the_page_usable(show):
    page = show(*samples.fleet(200))
    page.key("o")
    page.key("j")
    assert focus(page) == "h100-001" and len(is_open(page)) == 200
    filled = "document.querySelectorAll('.drawing').length"
    assert page.js(filled) < 198, "the rest is drawn bit by bit"
    page.key("c")
    stopped = page.js(filled)
    page.js("new Promise(done => setTimeout(done, 300))")
    assert page.js(filled) == stopped and is_open(page) == []


def test_the_head_of_a_long_table_stays_in_view(show):
    page = show(*samples.fleet(200))
    page.js("document.querySelector('.fleet').scrollTop = 3000")
    head, frame = boxes(page, ".fleet thead th")[0], boxes(page, ".fleet")[0]
    assert abs(head[1] - frame[1]) <= 2


@pytest.mark.parametrize("count", [1, 10, 11])
def test_small_fleets_are_shown_opened(show, count):
    page = show(*(samples.entry(samples.h100("gpu-%d" % index)) for index in range(count)))
    assert len(is_open(page)) == (count if count <= 10 else 0)


def test_a_fleet_without_hosts(show):
    page = show()
    assert names(page) == [] and "0 hosts" in texts(page, "header")[0]


def test_the_text_filter(show):
    page = show(*samples.fleet(200))
    page.key("/")
    page.type("EPYC")
    assert names(page) and all(name.startswith("epyc-") for name in names(page))
    assert texts(page, ".shown") == ["39 of 200 hosts shown"]
    assert texts(page, ".host:not([hidden]) .name") == names(page)
    page.type(" 03")  # every word must match
    assert names(page) == ["epyc-003", "epyc-033", "epyc-038"] + ["epyc-103"]
    page.type("zzz")
    assert names(page) == [] and page.js("ui.none.hidden") is False
    page.key("Escape")
    assert len(names(page)) == 200 and page.js("ui.filter.value") == "" and page.js("ui.none.hidden")


@pytest.mark.parametrize(
    "word", ["gbps_per_core", "112-113", "ens1f0np0", "H100", "8480", "0000:17:00.0", "quiet-mode"]
)
def test_the_filter_knows_codes_lists_and_devices(show, word):
    plan = samples.h100("gpu", kernel="6.8.0-quiet-mode")
    page = show(
        samples.entry(plan), samples.entry(samples.sample("other", sockets=1, cores_per_node=4, model="Neoverse-N1"))
    )
    page.key("/")
    page.type(word)
    assert names(page) == ["gpu"]


def test_filters_by_state_and_by_warning(show):
    quiet = samples.sample("quiet", nics=[])
    quiet["transition"].update(reboot=False, drain=False)
    quiet["differences"] = [dict(item, verdict="same") for item in quiet["differences"]]
    page = show(
        samples.entry(samples.h100("gpu")), samples.entry(quiet), samples.refused("bad"), samples.unreachable("gone")
    )
    for state, hosts in {
        "planned": ["gpu", "quiet"],
        "refused": ["bad"],
        "unreachable": ["gone"],
        "reboot": ["gpu"],
        "drain": ["gpu"],
        "differs": ["gpu"],
        "nothing": ["quiet"],
    }.items():
        press = "document.querySelector('[data-state=%s]').click()" % state
        count = page.js("document.querySelector('[data-state=%s] b').textContent" % state)
        page.js(press)
        assert names(page) == hosts and count == str(len(hosts)), state
        assert (
            page.js("ui.state.value") == state
            and page.js("document.querySelector('[data-state=%s]').getAttribute('aria-pressed')" % state) == "true"
        )
        page.js(press)
        assert len(names(page)) == 4
    page.js("document.querySelector('[data-code=gbps_per_core]').click()")
    assert names(page) == ["gpu"]
    page.key("Escape")
    page.js("ui.code.value = 'gbps_per_core'; ui.code.dispatchEvent(new Event('change'))")
    assert names(page) == ["gpu"]


def test_sorting(show):
    page = show(
        *(
            samples.entry(samples.h100("gpu-%d" % number, cores_per_node=cores))
            for number, cores in ((10, 8), (9, 32), (1, 16))
        ),
        samples.refused("bad"),
    )
    head = "document.querySelectorAll('.fleet thead button')[%d].click()"
    assert names(page) == ["gpu-10", "gpu-9", "gpu-1", "bad"]
    page.js(head % 0)
    assert names(page) == ["bad", "gpu-1", "gpu-9", "gpu-10"], "numbers in names are numbers"
    assert page.js("document.querySelector('.fleet th').getAttribute('aria-sort')") == "ascending"
    page.js(head % 0)
    assert names(page) == ["gpu-10", "gpu-9", "gpu-1", "bad"]
    page.js(head % 2)
    assert names(page) == ["gpu-10", "gpu-1", "gpu-9", "bad"], "a host without a plan has no value and stays at the end"
    page.js(head % 2)
    assert names(page) == ["gpu-9", "gpu-1", "gpu-10", "bad"]
    assert page.js("document.querySelectorAll('[aria-sort]').length") == 1


def test_one_row_per_distinct_plan(show):
    page = show(*samples.fleet(50))
    page.js("document.querySelector('#grouped').click()")
    assert len(names(page)) == 6 and names(page)[0].startswith("h100-[001-002,")
    assert texts(page, ".shown") == ["6 distinct plans, 50 of 50 hosts shown"]
    assert texts(page, ".host:not([hidden]) .name") == [
        "h100-001",
        "epyc-003",
        "old-004",
        "arm-005",
        "h100-bad",
        "gone-1",
    ]
    page.key("/")
    page.type("h100-016")
    assert texts(page, ".host:not([hidden]) .name") == ["h100-016"], (
        "the member that was asked for stands for its group"
    )
    page.key("Enter")
    page.key("Enter")
    assert "other host" in texts(page, ".host.open details summary")[0]


def test_a_link_opens_its_host(show):
    page = show(*samples.fleet(50), samples.entry(samples.h100("odd name/\u00fc#1")), anchor="#old-009")
    assert is_open(page) == ["old-009"] and focus(page).startswith("old-009")
    page.js("location.hash = '#' + encodeURIComponent('odd name/\u00fc#1')")
    page.js("new Promise(done => setTimeout(done, 50))")
    assert is_open(page) == ["old-009", "odd name/\u00fc#1"]
    page.js("location.hash = '#%'; history.back()")
    page.js("new Promise(done => setTimeout(done, 50))")


def test_the_fleet_by_keyboard(show):
    page = show(*samples.fleet(50))
    page.key("j")
    assert focus(page) == "h100-001"
    page.key("j")
    page.key("ArrowDown")
    page.key("ArrowUp")
    assert focus(page) == "h100-002"
    page.key("k")
    page.key("k")
    assert focus(page) == "h100-001", "the first host is the end"
    page.key("j")
    page.key("Enter")
    assert is_open(page) == ["h100-002"] and page.js("document.activeElement.getAttribute('aria-expanded')") == "true"
    assert page.js("decodeURIComponent(location.hash)") == "#h100-002"
    page.key("j")
    assert focus(page).startswith("epyc-003") and page.js("document.activeElement.tagName") == "BUTTON", (
        "from section to section"
    )
    page.key("Enter")
    assert is_open(page) == ["h100-002", "epyc-003"]
    page.key(" ")
    assert is_open(page) == ["h100-002"]
    page.key("t")
    assert focus(page) == "epyc-003" and page.js("document.activeElement.tagName") == "A"
    page.key(" ")
    assert is_open(page) == ["h100-002", "epyc-003"]
    page.key("c")
    assert is_open(page) == []
    page.key("/")
    page.type("old")
    page.key("Enter")
    assert focus(page) == "old-004"
    page.key("o")
    assert len(is_open(page)) == 10
    assert page.js("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is visible"
    assert all(key in texts(page, ".help")[0] for key in ("/", "Esc", "j", "k", "Enter", "Tab"))


def test_tab_reaches_everything_and_leaves_again(show):
    page = show(samples.entry(samples.h100("gpu")))
    stops = []
    for _step in range(60):
        page.key("Tab")
        stop = page.js(
            "document.activeElement === document.body ? '' : document.activeElement.id || document.activeElement.tagName + ' ' + "
            "(document.activeElement.getAttribute('aria-label') || document.activeElement.textContent).slice(0, 18)"
        )
        if not stop or stop in stops[:1]:
            break
        stops.append(stop)
    reached = " | ".join(stops)
    for wanted in (
        "BUTTON 1 planned",
        "BUTTON 1 gbps_per_core",
        "filter",
        "state",
        "code",
        "grouped",
        "BUTTON Open shown",
        "fleet",
        "BUTTON Host",
        "A gpu",
        "host-0-name",
        "g Core with CPUs",
    ):
        assert wanted in reached, wanted
    assert len(stops) < 60


# ---- a host ---------------------------------------------------------------------------------------------------------------------------------------


def test_a_section_tells_all_of_the_plan(show):
    plan = samples.h100("gpu", irq="0,56")
    page = show(samples.entry(plan))
    text = re.sub(r"\s+", " ", " ".join(texts(page, ".body")))
    for wanted in (
        plan["reserved"],
        plan["isolated"],
        "irq0,562 CPUs",
        *plan["kernel_args"],
        "reservedSystemCPUs: " + plan["reserved"],
        "216 CPUs left for pods",
        "gbps_per_core: node 0: 400 Gb/s",
        "To do: reserve more cores",
        "Read: 400 Gb/s",
        "boot_core",
        "CPU 0 boots the machine",
        "differs",
        "no kubelet was found",
        "Needs a reboot and a drain.",
        "/var/lib/kubelet/cpu_manager_state",
        "kernel_args: the boot arguments change",
        "2 of 56",
        "Not planned: eno1",
        "Unmanaged as planned",
        "llm-4gpu",
        "best-effort (planned)",
        "refusedno node has 4 GPUs",
        "admitted on nodes 0, 1",
        "as planned",
        "CPU 0 alone",
        "the list splits siblings",
        "-2",
        "llm-4gpu: none, best-effort",
        "Intel(R) Xeon(R) Platinum 8480+",
        "6.8.0-45-generic",
        plan["fingerprint"],
    ):
        assert wanted in text, wanted
    assert texts(page, ".body h3") == [
        "Warnings",
        "Lists",
        "Drawing",
        "Why these CPUs are reserved",
        "Planned, configured and live",
        "To get there",
        "NUMA nodes",
        "NICs",
        "Interrupt vectors",
        "Pod shapes, by topology policy",
        "What if",
        "Machine and policy",
    ]


def test_vectors_that_do_not_fit_say_what_would(show):
    plan = samples.h100("gpu")
    plan["vector_budget"].update(fits_planned=False, queues_that_fit=12, ceqs_that_fit=10, housekeeping_that_would=14)
    page = show(samples.entry(plan))
    assert "does not fit" in texts(page, ".body")[0]
    assert "What would fit: 12 queues and 10 RDMA vectors, or 14 housekeeping CPUs." in texts(page, ".body")[0]


def test_a_refused_host_shows_the_sentence(show):
    page = show(samples.refused("bad"), samples.unreachable("gone"))
    assert texts(page, ".finding") == [
        "reserved_out_of_range: the reserved list names CPU 99; read: 99; allowed: 0-63; what to do: correct the list.",
        "ssh: connect to host gone port 22: No route to host",
    ]
    assert "refused: the reserved list names CPU 99" in texts(page, ".fleet tbody tr")[0]


# ---- hostile names --------------------------------------------------------------------------------------------------------------------------------

EVIL = (
    "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1><svg onload=window.pwned=1>'\"`$(reboot)"
)


def test_hostile_strings_stay_text(show):
    plan = samples.h100(
        EVIL,
        nics=[samples.nic(EVIL, 0, driver=EVIL, root=EVIL), samples.nic(EVIL + "2", None, planned=False)],
        gpus=[samples.gpu(0, EVIL)],
        kernel=EVIL,
        model=EVIL,
    )
    plan["warnings"][0] = dict.fromkeys(("code", "message", "cure", "read"), EVIL)
    plan["why"][0].update(code=EVIL, message=EVIL)
    plan["differences"][0].update(what=EVIL, planned=EVIL, configured=EVIL, live=EVIL, note=EVIL)
    plan["transition"]["reasons"][0].update(code=EVIL, message=EVIL)
    plan["kubelet"]["admission"][0]["shape"]["name"] = EVIL
    plan["what_if"][0].update(label=EVIL, queues={EVIL: 1})
    plan["policy"][EVIL] = EVIL
    page = show(samples.entry(plan), samples.refused("javascript:window.pwned=1", EVIL, EVIL))
    page.js("document.querySelector('#grouped').click()")
    page.key("j")
    page.key("Enter")
    page.hover("[data-chip][data-nic='0']")
    page.js("new Promise(done => setTimeout(done, 100))")
    assert page.js("window.pwned") is None
    assert page.js(
        "[document.images.length, document.querySelectorAll('script').length, document.querySelectorAll('[onload], [onerror], [onclick]').length]"
    ) == [0, 2, 0]
    assert names(page)[0] == EVIL and EVIL in texts(page, ".readout")[0]
    assert page.js("[...document.querySelectorAll('a')].every(link => link.getAttribute('href').startsWith('#'))")


def test_the_policy_stops_what_the_page_does_not_do_itself(show):
    page = show(samples.entry(samples.h100("gpu")))
    page.js(
        "(() => { const script = document.createElement('script'); script.textContent = 'window.pwned = 1'; document.body.append(script); })()"
    )
    page.js(
        "(() => { const image = document.createElement('img'); image.src = 'http://192.0.2.1/x.png'; document.body.append(image); })()"
    )
    page.js("fetch('http://192.0.2.1/').catch(() => 0)")
    page.js("new Promise(done => setTimeout(done, 100))")
    assert page.js("window.pwned") is None
    assert len(page.console) >= 3 and all("Content Security Policy" in line for line in page.console)
    page.console.clear()
    page.requests[:] = [address for address in page.requests if "192.0.2.1" not in address]  # asked for, and blocked


# ---- looks ----------------------------------------------------------------------------------------------------------------------------------------


def test_dark_scheme(show):
    light, dark = (show(samples.entry(samples.h100("gpu")), dark=dark) for dark in (False, True))
    shades = [
        page.js("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
        for page in (light, dark)
    ]
    assert shades[0] == ["rgb(255, 255, 255)", "rgb(26, 31, 36)"] and shades[1] == [
        "rgb(20, 24, 28)",
        "rgb(229, 233, 237)",
    ]


def test_a_narrow_window_scrolls_tables_and_drawings_not_the_page(show):
    page = show(samples.entry(samples.h100("gpu")), width=500)
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    assert (
        page.js(
            "[...document.querySelectorAll('.scroll')].filter(frame => frame.scrollWidth > frame.clientWidth).length"
        )
        >= 2
    )


def test_print_has_no_dark_ground_no_tools_and_the_open_hosts(show):
    page = show(*samples.fleet(20), dark=True)
    page.js("visit(HOSTS[0]); visit(HOSTS[2])")
    page.media(dark=True, printing=True)
    visible = "[...document.querySelectorAll(%s)].filter(node => node.getClientRects().length).length"
    assert page.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.js(visible % "'.tools, .help, .readout'") == 0
    assert page.js(visible % "'.host'") == 2 and page.js(visible % "'.drawing svg .core'") == 112 + 128
    assert page.js("getComputedStyle(document.querySelector('.fleet')).overflowY") == "visible"
    assert page.js("getComputedStyle(document.querySelector('.host.open')).breakBefore") == "page"
    assert page.js("document.documentElement.scrollWidth <= innerWidth")


def pages_and_text(pdf):
    """(number of pages, uncompressed streams) of a PDF, as far as these tests need it."""
    streams = b""
    for raw in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.S):
        try:
            streams += zlib.decompress(raw)
        except zlib.error:
            streams += raw
    return len(re.findall(rb"/Type\s*/Page\b", pdf + streams)), streams


def test_print_to_pdf(show):
    few = show(samples.entry(samples.h100("gpu-1")), samples.entry(samples.h100("gpu-2")), samples.refused("bad"))
    pdf = few.pdf()
    assert pdf.startswith(b"%PDF-") and pages_and_text(pdf)[0] >= 1 + 3, "each host begins a page"
    closed = show(*samples.fleet(50))
    assert pages_and_text(closed.pdf())[0] <= 8, "closed hosts are not printed"
