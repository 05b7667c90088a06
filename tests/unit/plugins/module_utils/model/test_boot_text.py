# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of boot loader files: ours in, ours out, and everything else byte for byte as it was."""

from __future__ import annotations

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import boot_text, cmdline, shell_values
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from hypothesis import example, given, strategies as st

TOKENS = ["isolcpus=managed_irq,2-3", "irqaffinity=0-1"]
OTHER = ["isolcpus=managed_irq,4-7", "irqaffinity=0-3", "nohz_full=4-7"]
RUN = " ".join(TOKENS)

GRUB = """# If you change this file, run 'update-grub' afterwards.
GRUB_DEFAULT=0
GRUB_TIMEOUT=5
GRUB_DISTRIBUTOR=`( . /etc/os-release; echo ${NAME:-Debian} ) 2>/dev/null || echo Debian`
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX="console=ttyS0"
"""

ENTRY = """title Rocky Linux (5.14.0-570.el9.x86_64) 9.6 (Blue Onyx)
version 5.14.0-570.el9.x86_64
linux /vmlinuz-5.14.0-570.el9.x86_64
initrd /initramfs-5.14.0-570.el9.x86_64.img $tuned_initrd
options root=/dev/mapper/rl-root ro crashkernel=1G-4G:192M $tuned_params
grub_users $grub_users
grub_arg --unrestricted
grub_class rocky
"""
RESCUE = ENTRY.replace("5.14.0-570.el9.x86_64", "0-rescue-1f2e")
ENTRIES = {"1f2e-5.14.0-570.el9.x86_64.conf": ENTRY, "1f2e-0-rescue.conf": RESCUE}
NAME = "1f2e-5.14.0-570.el9.x86_64.conf"

GRUB_CFG = """set timeout=5
menuentry 'Debian GNU/Linux' --class debian $menuentry_id_option 'gnulinux-simple-11' {
\tload_video
\tinsmod ext2
\tsearch --no-floppy --fs-uuid --set=root 11
\techo\t'Loading Linux 6.12.1-amd64 ...'
\tlinux\t/boot/vmlinuz-6.12.1-amd64 root=UUID=11 ro console=ttyS0 quiet
\techo\t'Loading initial ramdisk ...'
\tinitrd\t/boot/initrd.img-6.12.1-amd64
}
submenu 'Advanced options' $menuentry_id_option 'gnulinux-advanced-11' {
\tmenuentry 'Debian, with Linux 6.12.9-amd64' --class debian $menuentry_id_option 'gnulinux-6.12.9' {
\t\tlinux\t/boot/vmlinuz-6.12.9-amd64 root=UUID=11 ro console=ttyS0 quiet
\t\tif [ "${x}" = y ]; then
\t\t}
\t\tinitrd\t/boot/initrd.img-6.12.9-amd64
\t}
\tmenuentry 'Debian, with Linux 6.12.9-amd64 (recovery mode)' --class debian $menuentry_id_option 'gnulinux-6.12.9-r' {
\t\tlinux\t/boot/vmlinuz-6.12.9-amd64 root=UUID=11 ro single console=ttyS0
\t\tinitrd\t/boot/initrd.img-6.12.9-amd64
\t}
}
"""


def boots(files):
    found = shell_values.evaluate(files)["values"]
    pieces = found.get("GRUB_CMDLINE_LINUX", []) + [(" ", None)] + found.get("GRUB_CMDLINE_LINUX_DEFAULT", [])
    return [token["text"] for token in shell_values.tokens(pieces)]


# -- the drop-in -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cloud", ["", 'GRUB_CMDLINE_LINUX_DEFAULT="console=tty1 console=ttyS0"\n'])
def test_the_drop_in_adds_ours_and_removes_nothing(cloud):
    others = [("etc/default/grub", GRUB), ("etc/default/grub.d/50-cloudimg-settings.cfg", cloud)]
    before = boots(others)
    assert boots([*others, (boot_text.DROP_IN, boot_text.drop_in(TOKENS))]) == before + TOKENS


def test_the_drop_in_without_a_line_to_add_to():
    assert boots([("etc/default/grub", ""), (boot_text.DROP_IN, boot_text.drop_in(TOKENS))]) == TOKENS
    assert boot_text.drop_in([]) is None


@pytest.mark.parametrize(
    "other", ["50-cloudimg-settings.cfg", "99-local.cfg", "kdump-tools.cfg", "init-select.cfg", "vendor.cfg"]
)
def test_the_drop_in_sorts_after_what_packages_and_images_bring(other):
    assert boot_text.DROP_IN > "etc/default/grub.d/" + other
    boot_text.refuse_discarded(
        [("etc/default/grub", GRUB), ("etc/default/grub.d/" + other, 'GRUB_CMDLINE_LINUX_DEFAULT="x"\n')], TOKENS
    )


def test_a_file_that_would_discard_ours_is_named():
    files = [
        ("etc/default/grub", GRUB),
        ("etc/default/grub.d/zzz.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n'),
        ("etc/default/grub.d/zzzz.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT b"\n'),
    ]
    with pytest.raises(HostprepError) as caught:
        boot_text.refuse_discarded(files, TOKENS)
    assert caught.value.code == "drop_in_discarded"
    assert caught.value.read == "/etc/default/grub.d/zzz.cfg"
    boot_text.refuse_discarded([files[0], files[2]], TOKENS)


@pytest.mark.parametrize(
    ("text", "shell", "code"),
    [
        ('X="a', "bash", "grub_defaults_broken"),
        ('GRUB_CMDLINE_LINUX+=" a"\n', "dash", "grub_defaults_append"),
    ],
)
def test_defaults_that_grub_mkconfig_would_stop_at_are_refused(text, shell, code):
    with pytest.raises(HostprepError) as caught:
        boot_text.refuse_defaults(shell_values.evaluate([("etc/default/grub", text)]), shell)
    assert caught.value.code == code
    assert caught.value.read.startswith("/etc/default/grub")


def test_defaults_that_run_something_are_warned_about():
    ok = shell_values.evaluate([("g", GRUB + 'GRUB_CMDLINE_LINUX+=" a"\n')])
    assert boot_text.refuse_defaults(ok, "bash") == []
    unclear = shell_values.evaluate([("g", "GRUB_CMDLINE_LINUX=$(cat /x)\nif true; then X=1; fi\n")])
    assert {entry["code"] for entry in boot_text.refuse_defaults(unclear, "dash")} == {"grub_defaults_unclear"}


# -- the block ---------------------------------------------------------------------------------------------------------------

MARKED = "lo0.rke2_hostprep kernel arguments"
TEXT = st.one_of(st.text(), st.text(alphabet='GRUB_X=" \n#\r')).filter(lambda text: MARKED not in text)


@pytest.mark.parametrize("text", [GRUB, GRUB.rstrip("\n"), "", "\n", "x", GRUB.replace("\n", "\r\n")])
def test_the_block_goes_as_it_came(text):
    once = boot_text.with_block(text, TOKENS)
    assert boot_text.with_block(once, TOKENS) == once
    assert boot_text.without_block(once) == text
    assert boot_text.with_block(boot_text.with_block(once, OTHER), []) == text


@given(TEXT, TEXT)
@example("a", "")
@example("a\n", "b")
@example("", "\n")
def test_the_block_goes_from_any_text_and_leaves_what_came_after_it(text, later):
    once = boot_text.with_block(text, TOKENS)
    assert boot_text.with_block(once, TOKENS) == once
    assert boot_text.without_block(once) == text
    assert boot_text.without_block(boot_text.with_block(once, OTHER)) == text
    assert boot_text.without_block(once + later) == text + later
    assert boot_text.without_block(text) == text


def test_the_block_adds_ours_and_removes_nothing():
    before = boots([("g", GRUB)])
    assert boots([("g", boot_text.with_block(GRUB, TOKENS))]) == before + TOKENS
    tuned = (
        GRUB
        + 'GRUB_CMDLINE_LINUX_DEFAULT="${GRUB_CMDLINE_LINUX_DEFAULT:+$GRUB_CMDLINE_LINUX_DEFAULT }\\$tuned_params"\n'
    )
    assert boots([("g", boot_text.with_block(tuned, TOKENS))]) == [*before, "$tuned_params", *TOKENS]


@pytest.mark.parametrize(
    "harm",
    [
        lambda text: text.replace("# END", "# end"),
        lambda text: text + text,
        lambda text: text.replace("GRUB_CMDLINE", "X=1\nGRUB_CMDLINE"),
        lambda text: text.replace("# BEGIN", "# begin"),
    ],
)
def test_a_damaged_block_is_refused(harm):
    with pytest.raises(HostprepError) as caught:
        boot_text.with_block(harm(boot_text.with_block("", TOKENS)), OTHER)
    assert caught.value.code == "owned_block_damaged"


# -- tokens in a line --------------------------------------------------------------------------------------------------------

FREE = st.text(alphabet="ab=# \t\n\r/-$", max_size=40)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("root=UUID=1 ro\n", "root=UUID=1 ro %s\n" % RUN),
        ("root=UUID=1 ro", "root=UUID=1 ro %s" % RUN),
        ("root=UUID=1  ro \n\n", "root=UUID=1  ro %s \n\n" % RUN),
        ("# note\nroot=1\n# end\n", "# note\nroot=1 %s\n# end\n" % RUN),
        ("", "%s\n" % RUN),
        ("\n", "\n%s\n" % RUN),
        ("# only\n", "# only\n%s\n" % RUN),
        ("# only", "# only\n%s" % RUN),
    ],
)
def test_kernel_cmdline_gets_ours_and_gives_them_back(text, after):
    assert boot_text.with_tokens(text, TOKENS) == after
    assert boot_text.with_tokens(after, TOKENS, TOKENS) == after
    assert boot_text.with_tokens(after, [], TOKENS) == text


@given(FREE)
def test_kernel_cmdline_of_any_text(text):
    once = boot_text.with_tokens(text, TOKENS)
    assert boot_text.with_tokens(once, TOKENS, TOKENS) == once
    assert boot_text.with_tokens(once, [], TOKENS) == text
    changed = boot_text.with_tokens(once, OTHER, TOKENS)
    assert boot_text.with_tokens(changed, [], OTHER) == text


@given(FREE)
def test_an_entry_of_any_text(text):
    for start in (text, text + "\noptions root=1 ro\n" + text, "options a\n" + text):
        once = boot_text.entry_with_tokens(start, TOKENS)
        assert boot_text.entry_with_tokens(once, TOKENS, TOKENS) == once
        assert boot_text.entry_with_tokens(once, [], TOKENS) == start


def test_ours_are_taken_out_where_someone_wrote_between_them():
    text = "root=1 isolcpus=managed_irq,2-3 quiet irqaffinity=0-1 b\n"
    assert boot_text.with_tokens(text, [], TOKENS) == "root=1 quiet b\n"
    assert boot_text.with_tokens("irqaffinity=0-1 b\n", [], TOKENS) == "b\n"
    assert boot_text.with_tokens("irqaffinity=0-15 b\n", [], TOKENS) == "irqaffinity=0-15 b\n"


def test_a_new_kernel_cmdline():
    assert boot_text.new_cmdline(["root=UUID=1", "ro"], TOKENS) == "root=UUID=1 ro %s\n" % RUN


# -- entries -----------------------------------------------------------------------------------------------------------------


def test_the_trial_is_a_clone_and_alone_carries_panic():
    trial = boot_text.trial_entry(NAME, ENTRY, TOKENS, boot_text.extras("7f", 30))
    assert trial["name"] == "1f2e-5.14.0-570.el9.x86_64~hostprep-trial.conf"
    assert trial["id"] + ".conf" == trial["name"]
    keys = dict(boot_text.entry(trial["text"]))
    old = dict(boot_text.entry(ENTRY))
    assert keys["options"].split() == [*old["options"].split(), *TOKENS, "panic=30", "rke2_hostprep.trial=7f"]
    assert keys["title"] != old["title"]
    assert {key for key in keys if keys[key] != old[key]} == {"title", "options"}


def test_a_trial_replaces_what_is_committed_and_counts_no_boots():
    committed = boot_text.entry_with_tokens(ENTRY, TOKENS)
    trial = boot_text.trial_entry("a-6.12+3-0.conf", "id old\n" + committed, OTHER, boot_text.extras("1"), added=TOKENS)
    assert trial["id"] == "a-6.12~hostprep-trial"
    keys = dict(boot_text.entry(trial["text"]))
    assert keys["id"] == trial["id"]
    assert TOKENS[0] not in keys["options"]
    assert OTHER[0] in keys["options"]


def test_the_running_kernels_entry_is_found():
    trial = boot_text.trial_entry(NAME, ENTRY, TOKENS, boot_text.extras("7f"))
    entries = {**ENTRIES, trial["name"]: trial["text"]}
    assert boot_text.running_entry(entries, "5.14.0-570.el9.x86_64") == NAME
    assert boot_text.running_entry({**entries, "1f2e-rescue.conf": ENTRY}, "5.14.0-570.el9.x86_64") == NAME
    assert boot_text.release_of(ENTRY) == "5.14.0-570.el9.x86_64"
    assert boot_text.release_of("linux /vmlinuz-6\n") == "6"
    assert boot_text.release_of("") is None
    for release in ("5.14", "", None):
        with pytest.raises(HostprepError) as caught:
            boot_text.running_entry(entries, release)
        assert caught.value.code == "entry_unknown"
    with pytest.raises(HostprepError):
        boot_text.running_entry({**ENTRIES, "copy.conf": ENTRY}, "5.14.0-570.el9.x86_64")


def test_commit_on_el_touches_every_entry_but_rescue_and_trial():
    trial = boot_text.trial_entry(NAME, ENTRY, TOKENS, boot_text.extras("7f"))
    plan = boot_text.el_commit({**ENTRIES, trial["name"]: trial["text"]}, TOKENS)
    assert plan["commands"] == [["grubby", "--update-kernel=ALL", "--args=" + RUN]]
    assert list(plan["expected"]) == [NAME]
    again = boot_text.el_commit({NAME: plan["expected"][NAME]}, TOKENS, TOKENS)
    assert again == {"commands": [], "expected": {NAME: plan["expected"][NAME]}}
    gone = boot_text.el_commit({NAME: plan["expected"][NAME]}, [], TOKENS)
    assert gone == {"commands": [["grubby", "--update-kernel=ALL", "--remove-args=" + RUN]], "expected": {NAME: ENTRY}}


# -- grub.cfg ----------------------------------------------------------------------------------------------------------------


def test_menu_entries_of_a_grub_cfg():
    found = boot_text.menu_entries(GRUB_CFG)
    assert [(one["kernel"], one["recovery"]) for one in found] == [
        ("/boot/vmlinuz-6.12.1-amd64", False),
        ("/boot/vmlinuz-6.12.9-amd64", False),
        ("/boot/vmlinuz-6.12.9-amd64", True),
    ]
    assert found[1]["args"] == "root=UUID=11 ro console=ttyS0 quiet"


def test_the_trial_boots_the_running_kernel_and_not_the_newest():
    menu = boot_text.trial_menu(GRUB_CFG, "6.12.9-amd64", TOKENS, boot_text.extras("7f"))
    lines = menu["text"].splitlines()
    assert lines[0].startswith("menuentry ") and "--id " + menu["id"] in lines[0]
    assert lines[-1] == "}"
    assert [line for line in lines if "vmlinuz" in line] == [
        "\tlinux\t/boot/vmlinuz-6.12.9-amd64 root=UUID=11 ro console=ttyS0 quiet %s panic=60 rke2_hostprep.trial=7f"
        % RUN
    ]
    assert "\tinitrd\t/boot/initrd.img-6.12.9-amd64" in lines


@pytest.mark.parametrize(
    ("header", "access"),
    [
        ("--class os --unrestricted $menuentry_id_option 'x'", " --unrestricted"),
        ("--unrestricted --class os", " --unrestricted"),
        ("--class os --users 'ada bob' --id x", " --users 'ada bob'"),
        ("--users ada", " --users ada"),
        ('--users=""', ' --users=""'),
        ("--class os", ""),
    ],
)
def test_where_grub_has_a_password_the_trial_is_booted_by_whoever_boots_the_entry_it_was_made_from(header, access):
    text = (
        "menuentry 'Debian --unrestricted' %s {\n\tlinux\t/boot/vmlinuz-6.12.9-amd64 root=UUID=11 ro quiet\n}\n"
        % header
    )
    menu = boot_text.trial_menu(text, "6.12.9-amd64", TOKENS, boot_text.extras("7f"))["text"]
    assert menu.splitlines()[0] == "menuentry 'Trial of kernel arguments (lo0.rke2_hostprep)'%s --id %s {" % (
        access,
        boot_text.TRIAL_ID,
    )


def test_a_trial_over_committed_arguments_has_the_new_ones_alone():
    committed = GRUB_CFG.replace("quiet", "quiet " + RUN)
    assert boot_text.trial_menu(
        committed, "6.12.9-amd64", OTHER, boot_text.extras("1"), added=TOKENS
    ) == boot_text.trial_menu(GRUB_CFG, "6.12.9-amd64", OTHER, boot_text.extras("1"))


def test_a_recovery_entry_is_not_what_a_trial_is_made_from():
    lines = GRUB_CFG.split("\n")
    start = next(number for number, line in enumerate(lines) if "recovery mode" in line)
    recovery = lines[start : start + 4]
    first = "\n".join(recovery + lines)
    assert boot_text.menu_entries(first)[0]["recovery"]
    assert boot_text.trial_menu(first, "6.12.9-amd64", TOKENS, boot_text.extras("1")) == boot_text.trial_menu(
        GRUB_CFG, "6.12.9-amd64", TOKENS, boot_text.extras("1")
    )


@pytest.mark.parametrize(
    ("grub_cfg", "release", "pending"),
    [(GRUB_CFG, "6.12.9-amd64", "6.12.1-amd64"), (GRUB_CFG, "6.12.1-amd64", None), ("", "6.12.1-amd64", None)],
)
def test_a_kernel_that_waits_for_its_first_boot_is_told(grub_cfg, release, pending):
    assert boot_text.pending_kernel(grub_cfg, release) == pending


@pytest.mark.parametrize("release", ["6.12", "", None, "9"])
def test_a_kernel_without_an_entry_is_refused(release):
    with pytest.raises(HostprepError) as caught:
        boot_text.trial_menu(GRUB_CFG, release, TOKENS, boot_text.extras("7f"))
    assert caught.value.code == "entry_unknown"


@given(st.one_of(st.none(), st.text().filter(lambda text: "rke2_hostprep" not in text)))
@example(None)
@example("")
def test_custom_cfg_goes_back_to_what_it_was(custom):
    menu = boot_text.trial_menu(GRUB_CFG, "6.12.9-amd64", TOKENS, boot_text.extras("7f"))["text"]
    once = boot_text.with_trial_menu(custom, menu)
    assert boot_text.with_trial_menu(once, menu) == once
    assert boot_text.with_trial_menu(once, None) == custom
    assert boot_text.with_trial_menu(custom, None) == custom


@given(st.text(alphabet="menuentry linux{}\t\n 'ab/", max_size=200))
def test_any_grub_cfg_is_read_without_a_traceback(text):
    boot_text.menu_entries(text)
    boot_text.entry(text)
    boot_text.release_of(text)


SDBOOT = "boot/efi/loader/entries/m-6.12.conf"
HOSTS = {
    "debian": {boot_text.DROP_IN: None},
    "sles": {"etc/default/grub": GRUB},
    "systemd-boot": {
        "etc/kernel/cmdline": "root=UUID=1 ro\n",
        SDBOOT: "version 6.12\nlinux /m/6.12/linux\noptions root=UUID=1 ro systemd.machine_id=m\n",
    },
    "el": {"boot/loader/entries/" + name: text for name, text in ENTRIES.items()},
}
NOTHING = {"files": [], "commands": [], "undo": [], "generate": None}
PROGRAMS = {"debian": "grub-mkconfig", "sles": "grub2-mkconfig", "el": "grubby", "systemd-boot": None}


@pytest.mark.parametrize("backend", sorted(HOSTS))
def test_a_change_and_its_undoing_on_each_backend(backend):
    before = HOSTS[backend]

    def changes(files, tokens, added=()):
        return boot_text.changes(backend, files, tokens, added, kernels=["6.12"])

    def programs(change):
        return [argv[0] for argv in [*change["commands"], change["generate"]] if argv]

    first = changes(before, TOKENS)
    assert first["files"] and programs(first) == [one for one in [PROGRAMS[backend]] if one]
    after = {**before, **{one["path"]: one["after"] for one in first["files"]}}
    assert changes(after, TOKENS, TOKENS) == NOTHING
    other = changes(after, OTHER, TOKENS)
    changed = {**after, **{one["path"]: one["after"] for one in other["files"]}}
    for state, added in ((after, TOKENS), (changed, OTHER)):
        back = changes(state, [], added)
        assert programs(back) == programs(first)
        assert {**state, **{one["path"]: one["after"] for one in back["files"]}} == before
    assert changes(before, []) == NOTHING
    assert changes(changed, TOKENS, OTHER)["undo"] == changes(after, OTHER, TOKENS)["commands"]


def test_tokens_stand_where_kernel_install_will_put_them():
    made = boot_text.changes("systemd-boot", HOSTS["systemd-boot"], TOKENS, kernels=["6.12"])
    texts = {one["path"]: one["after"] for one in made["files"]}
    assert texts[SDBOOT].splitlines()[-1] == "options %s systemd.machine_id=m" % texts["etc/kernel/cmdline"].strip()


def test_entries_of_other_systems_stay_as_they_are():
    made = boot_text.changes("systemd-boot", HOSTS["systemd-boot"], TOKENS, kernels=["6.1"])
    assert [one["path"] for one in made["files"]] == ["etc/kernel/cmdline"]


def test_a_host_without_kernel_cmdline_gets_what_it_booted_with():
    made = boot_text.changes("systemd-boot", {"etc/kernel/cmdline": None}, TOKENS, base=["root=1", "ro"])
    assert made["files"] == [{"path": "etc/kernel/cmdline", "before": None, "after": "root=1 ro %s\n" % RUN}]


# -- GRUB's environment block ------------------------------------------------------------------------------------------------

EMPTY = b"# GRUB Environment Block\n" + b"#" * (1024 - 25)


@given(st.lists(st.tuples(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), st.text("ab=/ ", max_size=20)), max_size=8))
def test_one_variable_of_the_block_is_set_and_taken_out_and_the_others_stay(entries):
    block = EMPTY
    for name, value in entries:
        block = boot_text.with_entry(block, name, value)
    others = [entry for entry in boot_text.block_entries(block) if entry[0] != "next_entry"]
    chosen = boot_text.with_entry(block, "next_entry", "x")
    assert len(chosen) == 1024 and dict(boot_text.block_entries(chosen))["next_entry"] == "x"
    gone = boot_text.with_entry(chosen, "next_entry", None)
    assert boot_text.block_entries(gone) == others and len(gone) == 1024


@pytest.mark.parametrize("block", [b"", EMPTY[:-1], EMPTY[1:] + b"#", boot_text.with_entry(EMPTY, "a", "x" * 990)])
def test_a_damaged_or_full_block_is_refused(block):
    with pytest.raises(HostprepError) as caught:
        boot_text.with_entry(block, "next_entry", "lo0-rke2-hostprep-trial")
    assert caught.value.code == "grubenv_invalid"


def test_what_an_entry_of_grub_cfg_gives_to_its_kernel():
    text = GRUB_CFG.replace("ro console=ttyS0 quiet", 'ro console=ttyS0 ${mine} "dyndbg=file x +p" $saved $none')
    text = 'set mine="nosmt audit=0"\n' + text
    found = boot_text.menu_tokens(text, "6.12.9-amd64", {"saved": [("quiet", None)]})
    assert found == [["root=UUID=11", "ro", "console=ttyS0", "nosmt", "audit=0", '"dyndbg=file x +p"', "quiet"]]
    assert boot_text.menu_tokens(text, "6.12", {}) == []


def test_the_trial_mark_is_no_argument_of_a_user():
    with pytest.raises(HostprepError):
        cmdline.lint(["%s=1" % cmdline.TRIAL_MARK], {"present": "0-3", "boot_cpu": 0, "config": {}, "others": 0})


def entry_of(release):
    return "title x\nversion %s\nlinux /v\noptions ro\n" % release


@pytest.mark.parametrize(
    ("releases", "chosen", "pending"),
    [
        (("5.14.0-427.el9", "5.14.0-70.el9"), (), None),
        (("5.14.0-427.el9", "5.14.0-503.1.el9"), (), "5.14.0-503.1.el9"),
        (("5.14.0-427.el9", "5.14.0-503.1.el9"), ("m-5.14.0-427.el9",), None),
        (("5.14.0-427.el9", "5.14.0-503.1.el9"), ("gone", "m-5.14.0-5*"), "5.14.0-503.1.el9"),
        (("5.14.0-427.el9", "5.14.0-503.1.el9"), ("something else",), None),
        (("5.14.0-427.el9", "5.14.0-503.1.el9", "0-rescue-1"), (), "5.14.0-503.1.el9"),
    ],
)
def test_the_kernel_of_the_entry_that_is_booted_unless_told(releases, chosen, pending):
    entries = {"m-%s.conf" % release: entry_of(release) for release in releases}
    entries["m-9~hostprep-trial.conf"] = entry_of("9")
    assert boot_text.pending_entry(entries, "5.14.0-427.el9", chosen) == pending
