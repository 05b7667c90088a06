# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUs, cores and the groups above them, on the odd machines that sysfs can describe."""

from __future__ import annotations

import pytest

CPU = "sys/devices/system/cpu/"


def cpus(host):
    return host.discover()["cpus"]


def notes(host, what):
    return [note["why"] for note in host.discover()["unknown"] if note["what"] == what]


def topology(cpu, **files):
    return {"%scpu%d/topology/%s" % (CPU, cpu, name): content for name, content in files.items()}


def test_siblings_packages_and_widths(host):
    facts = cpus(host.cpus(16, threads=2, packages=2))
    assert facts["online"] == "0-15" and facts["offline"] == "" and facts["boot"] == 0
    assert facts["siblings"] == ["0,8", "1,9", "2,10", "3,11", "4,12", "5,13", "6,14", "7,15"]
    assert facts["packages"] == 2
    assert facts["package_cpus"] == [{"id": 0, "cpus": "0-3,8-11"}, {"id": 1, "cpus": "4-7,12-15"}]
    assert (facts["threads_per_core"], facts["threads_per_core_min"], facts["cores_per_package"]) == (2, 2, 4)
    assert [core["package"] for core in facts["cores"]] == [0] * 4 + [1] * 4
    assert [core["cpus"] for core in facts["cores"]] == facts["siblings"]


def test_offline_is_what_is_present_and_not_online(host):
    host.cpus(8)
    (host.top / CPU / "online").write_text("1-3,5\n", encoding="utf-8")
    (host.top / CPU / "present").write_text("0-6\n", encoding="utf-8")
    facts = cpus(host)
    assert (facts["online"], facts["offline"], facts["boot"]) == ("1-3,5", "0,4,6", 1)
    assert facts["siblings"] == ["1", "2", "3", "5"]


def test_without_the_online_file_the_folders_tell(host):
    host.cpus(6).add(
        {CPU + "cpu3/online": "0\n", CPU + "cpu4/online": "1\n", CPU + "cpufreq": None, CPU + "cpuidle": None}
    )
    (host.top / CPU / "online").unlink()
    (host.top / CPU / "present").unlink()
    facts = cpus(host)
    assert (facts["online"], facts["offline"], facts["present"]) == ("0-2,4-5", "3", None)


@pytest.mark.parametrize("text", ["", "\n", "(null)\n", "0-\n", "0-99999999\n", "\x01\x02"])
def test_an_online_file_that_makes_no_sense_is_not_replaced_by_a_guess(host, text):
    host.cpus(4)
    (host.top / CPU / "online").write_text(text, encoding="utf-8")
    facts = cpus(host)
    assert facts["online"] is facts["offline"] is facts["boot"] is facts["siblings"] is facts["packages"] is None
    assert facts["cores"] == [] and facts["package_cpus"] == []
    assert notes(host, "cpus.online")[0].startswith("makes no sense")


def test_no_cpu_folder_at_all(host):
    facts = cpus(host.add({"proc/version": "x"}))
    assert facts["online"] is facts["offline"] is facts["siblings"] is facts["llcs"] is None
    assert notes(host, "cpus.online") == ["missing"]


@pytest.mark.parametrize(
    "files",
    [
        {"core_cpus_list": "%s\n"},
        {"thread_siblings_list": "%s\n"},
        {"core_cpus": "MASK"},
        {"thread_siblings": "MASK"},
        {"core_cpus_list": "%s\n", "thread_siblings_list": "0-9\n"},
    ],
)
def test_every_file_that_tells_siblings(host, files):
    host.add({CPU + "online": "0-3\n"})
    for cpu in range(4):
        pair = (cpu % 2, cpu % 2 + 2)
        mask = "%08x\n" % (1 << pair[0] | 1 << pair[1])
        host.add(
            topology(
                cpu,
                **{
                    name: mask if form == "MASK" else form.replace("%s", "%d,%d" % pair) for name, form in files.items()
                },
            )
        )
    assert cpus(host)["siblings"] == ["0,2", "1,3"]


def test_siblings_are_cut_to_what_is_online(host):
    host.cpus(8, threads=2)
    (host.top / CPU / "online").write_text("0-5\n", encoding="utf-8")
    facts = cpus(host)
    assert facts["siblings"] == ["0,4", "1,5", "2", "3"]
    assert (facts["threads_per_core"], facts["threads_per_core_min"]) == (2, 1)


def test_core_ids_that_repeat_within_a_package_merge_nothing(host):
    host.cpus(8)
    for cpu in range(8):
        host.add(topology(cpu, core_id="%d\n" % (cpu % 4)))
    assert cpus(host)["siblings"] == [str(cpu) for cpu in range(8)]


def test_contradictory_siblings_are_unknown(host):
    host.cpus(4)
    (host.top / CPU / "cpu1/topology/core_cpus_list").write_text("0-1\n", encoding="utf-8")
    assert cpus(host)["siblings"] is None
    assert notes(host, "cpus.siblings") == ["contradictory: CPU 1 lists 0-1, CPU 0 lists 0"]


def test_a_cpu_that_does_not_list_itself(host):
    host.cpus(2)
    for cpu in range(2):
        (host.top / CPU / ("cpu%d/topology/core_cpus_list" % cpu)).write_text("7\n", encoding="utf-8")
    assert cpus(host)["siblings"] is None
    assert "does not list itself" in notes(host, "cpus.siblings")[0]


@pytest.mark.parametrize("text", ["(null)\n", "\x7fELF", "0,", ""])
def test_one_garbled_list_makes_siblings_unknown(host, text):
    host.cpus(4).add({CPU + "smt/active": "0\n"})
    (host.top / CPU / "cpu2/topology/core_cpus_list").write_text(text, encoding="utf-8")
    assert cpus(host)["siblings"] is None
    assert len(notes(host, "cpus.siblings")) == 1


def test_without_topology_only_smt_off_tells(host):
    host.add({CPU + "online": "0-2\n", **{CPU + "cpu%d/cache" % cpu: None for cpu in range(3)}})
    assert cpus(host)["siblings"] is None
    assert notes(host, "cpus.siblings") == ["missing"]
    host.add({CPU + "smt/active": "0\n"})
    assert cpus(host)["siblings"] == ["0", "1", "2"]


def test_smt_that_is_not_supported_tells_too(host):
    host.add({CPU + "online": "0-1\n", CPU + "cpu0": None, CPU + "cpu1": None, CPU + "smt/control": "notsupported\n"})
    facts = cpus(host)
    assert facts["siblings"] == ["0", "1"] and facts["smt_control"] == "notsupported" and facts["smt_active"] is None


def test_smt_on_without_topology_tells_nothing(host):
    host.add(
        {
            CPU + "online": "0-1\n",
            CPU + "cpu0": None,
            CPU + "cpu1": None,
            CPU + "smt/active": "1\n",
            CPU + "smt/control": "on\n",
        }
    )
    assert cpus(host)["siblings"] is None


@pytest.mark.parametrize("number", ["-1\n", "65535\n", "4294967295\n", None])
def test_packages_without_an_id_go_by_their_list(host, number):
    host.cpus(4, threads=2)
    for cpu in range(4):
        (host.top / CPU / ("cpu%d/topology/physical_package_id" % cpu)).unlink()
        if number:
            host.add(topology(cpu, physical_package_id=number))
        host.add(topology(cpu, core_siblings_list="%d,%d\n" % (cpu % 2, cpu % 2 + 2)))
    facts = cpus(host)
    assert facts["packages"] == 2
    assert facts["package_cpus"] == [{"id": None, "cpus": "0,2"}, {"id": None, "cpus": "1,3"}]


def test_packages_that_nothing_tells(host):
    host.cpus(2)
    (host.top / CPU / "cpu1/topology/physical_package_id").unlink()
    facts = cpus(host)
    assert facts["packages"] is facts["cores_per_package"] is None
    assert notes(host, "cpus.packages") == ["neither a package id nor a list of the package's CPUs for CPU 1"]


def test_ids_win_over_lists_that_contradict_them(host):
    """A kernel with Cluster on Die listed half a package in core_siblings; the ids were right."""
    host.cpus(4, packages=2)
    for cpu in range(4):
        host.add(topology(cpu, core_siblings_list="%d\n" % cpu))
    assert cpus(host)["packages"] == 2


def test_packages_of_different_size_have_no_common_count(host):
    host.cpus(4)
    (host.top / CPU / "cpu3/topology/physical_package_id").write_text("1\n", encoding="utf-8")
    facts = cpus(host)
    assert facts["packages"] == 2 and facts["cores_per_package"] is None


def test_s390_books_and_drawers_are_no_packages(host):
    host.cpus(4, packages=2)
    for cpu in range(4):
        host.add(
            topology(
                cpu,
                book_id="%d\n" % cpu,
                drawer_id="%d\n" % cpu,
                book_siblings_list="%d\n" % cpu,
                drawer_siblings_list="0-3\n",
            )
        )
    facts = cpus(host)
    assert facts["packages"] == 2 and facts["cores_per_package"] == 2 and facts["dies"] is None


def test_dies_and_clusters(host):
    host.cpus(8, packages=2)
    for cpu in range(8):
        host.add(
            topology(cpu, die_id="%d\n" % (cpu // 2 % 2), die_cpus_list="%d-%d\n" % (cpu // 2 * 2, cpu // 2 * 2 + 1))
        )
        host.add(topology(cpu, cluster_id="%d\n" % cpu, cluster_cpus_list="%d\n" % cpu))
    facts = cpus(host)
    assert facts["dies"] == ["0-1", "2-3", "4-5", "6-7"]
    assert facts["clusters"] == [str(cpu) for cpu in range(8)]
    assert [core["die"] for core in facts["cores"]] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("number", ["-1\n", "65535\n", "4294967295\n"])
def test_ids_that_mean_none(host, number):
    host.cpus(2)
    for cpu in range(2):
        host.add(
            topology(cpu, die_id=number, die_cpus_list="%d\n" % cpu, cluster_id=number, cluster_cpus_list="%d\n" % cpu)
        )
    facts = cpus(host)
    assert facts["dies"] is facts["clusters"] is None
    assert notes(host, "cpus.dies") == notes(host, "cpus.clusters") == ["the kernel tells of none"]


def test_dies_that_overlap_are_unknown(host):
    host.cpus(4)
    for cpu, group in enumerate(("0-1", "0-1", "1-3", "2-3")):
        host.add(topology(cpu, die_id="0\n", die_cpus_list=group))
    assert cpus(host)["dies"] is None
    assert notes(host, "cpus.dies") == ["contradictory: 1-3"]


def cache(cpu, index, level, kind, shared=None, size="32768K", mask=None):
    folder = "%scpu%d/cache/index%d/" % (CPU, cpu, index)
    files = {folder + "level": "%d\n" % level, folder + "type": kind + "\n"}
    if size:
        files[folder + "size"] = size + "\n"
    if shared:
        files[folder + "shared_cpu_list"] = shared + "\n"
    if mask:
        files[folder + "shared_cpu_map"] = mask + "\n"
    return files


def test_last_level_caches(host):
    host.cpus(4, threads=2)
    for cpu in range(4):
        host.add(cache(cpu, 0, 1, "Data", "%d,%d" % (cpu % 2, cpu % 2 + 2)))
        host.add(cache(cpu, 1, 1, "Instruction", "0-3"))
        host.add(cache(cpu, 2, 3, "Unified", "%d,%d" % (cpu % 2, cpu % 2 + 2), "16M"))
        host.add(cache(cpu, 3, 4, "Instruction", "0-3"))
    facts = cpus(host)
    assert facts["llcs"] == [
        {"cpus": "0,2", "level": 3, "size_kib": 16384},
        {"cpus": "1,3", "level": 3, "size_kib": 16384},
    ]
    assert [core["llc"] for core in facts["cores"]] == [0, 1]


def test_a_cache_told_by_mask_and_without_a_size(host):
    host.cpus(2)
    for cpu in range(2):
        host.add(cache(cpu, 0, 2, "Unified", None, None, "ffffffff"))
    assert cpus(host)["llcs"] == [{"cpus": "0-1", "level": 2, "size_kib": None}]


def test_cores_of_one_machine_may_end_at_different_levels(host):
    host.cpus(3)
    host.add(cache(0, 0, 3, "Unified", "0-1"))
    host.add(cache(1, 0, 3, "Unified", "0-1"))
    host.add(cache(2, 0, 2, "Unified", "2", "2048K"))
    assert [(llc["cpus"], llc["level"]) for llc in cpus(host)["llcs"]] == [("0-1", 3), ("2", 2)]


def test_caches_that_contradict_each_other_or_miss_a_cpu(host):
    host.cpus(3)
    host.add(cache(0, 0, 3, "Unified", "0-1"))
    host.add(cache(2, 0, 3, "Unified", "1-2"))
    assert cpus(host)["llcs"] is None
    assert notes(host, "cpus.llcs") == ["contradictory: 1-2"]


def test_caches_told_for_some_cpus_only(host):
    host.cpus(2).add(cache(0, 0, 3, "Unified", "0"))
    assert cpus(host)["llcs"] is None
    assert notes(host, "cpus.llcs") == ["no cache told for CPU 1"]


def test_intel_core_types(host):
    host.cpus(4).add({"sys/devices/cpu_core/cpus": "0-1\n", "sys/devices/cpu_atom/cpus": "2-3\n"})
    assert [core["type"] for core in cpus(host)["cores"]] == ["P", "P", "E", "E"]


def test_capacities(host):
    host.cpus(4).add(
        {CPU + "cpu%d/cpu_capacity" % cpu: "%d\n" % value for cpu, value in enumerate((1024, 1024, 718, 280))}
    )
    facts = cpus(host)
    assert [core["capacity"] for core in facts["cores"]] == [1024, 1024, 718, 280]
    assert [core["type"] for core in facts["cores"]] == ["P", "P", "E", "E"]


def test_one_capacity_for_all_is_one_type(host):
    host.cpus(2).add({CPU + "cpu%d/cpu_capacity" % cpu: "1024\n" for cpu in range(2)})
    assert [(core["capacity"], core["type"]) for core in cpus(host)["cores"]] == [(1024, None), (1024, None)]


def test_isolated_and_nohz_full(host):
    host.cpus(8).add({CPU + "isolated": "4-7\n", CPU + "nohz_full": "  (null)\n", CPU + "possible": "0-127\n"})
    facts = cpus(host)
    assert (facts["isolated"], facts["nohz_full"], facts["possible"]) == ("4-7", None, "0-127")
    assert notes(host, "cpus.nohz_full") == ["(null), as kernels print where nohz_full= was not given"]


def test_sparse_ids(host):
    ids = (0, 7, 100, 1023, 4095)
    host.add({CPU + "online": ",".join(map(str, ids)) + "\n"})
    for cpu in ids:
        host.add(topology(cpu, core_cpus_list="%d\n" % cpu, physical_package_id="0\n"))
    facts = cpus(host)
    assert facts["siblings"] == [str(cpu) for cpu in ids] and facts["cores_per_package"] == 5


@pytest.mark.parametrize(
    "text, value", [("on\n", "on"), ("notsupported\n", "notsupported"), ("4\n", "4"), ("(null)\n", None), ("", None)]
)
def test_smt_control(host, text, value):
    host.cpus(1).add({CPU + "smt/control": text})
    assert cpus(host)["smt_control"] == value
    assert bool(notes(host, "cpus.smt_control")) == (value is None)
