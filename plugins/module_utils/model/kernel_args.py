# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel arguments: which ones each isolation mode needs, and how a command line is split and read.

Source of the rules: kernel-parameters.txt (isolcpus, irqaffinity, nohz_full, rcu_nocbs, nosmt). `isolcpus=<list>` alone means
`domain`: it takes load balancing away, and a pod of many threads then runs on ONE CPU. So only `pinned` uses it.
"""

from __future__ import annotations

from . import cpulist
from .errors import HostprepError, finding

OWNED = ("isolcpus", "irqaffinity", "nohz_full", "rcu_nocbs", "nosmt")
_FLAGS = ("domain", "managed_irq", "nohz")


def wanted(mode, irq, isolated, smt=None):
    """Tokens, in a fixed order, for a mode (balanced, quiet, pinned), two cpulists, and the nosmt token or None."""
    tokens = [
        "isolcpus=%s" % isolated if mode == "pinned" else "isolcpus=managed_irq,%s" % isolated,
        "irqaffinity=%s" % irq,
    ]
    if mode == "quiet":
        tokens += ["nohz_full=%s" % isolated, "rcu_nocbs=%s" % isolated]
    if smt:
        tokens.append(smt)
    return tokens


def smt_token(smt, control, args):
    """The nosmt token that keeps SMT as it is (smt: keep) or switches it off (smt: disabled); None where SMT stays on.

    control: text of smt/control or None; args: live tokens or None. A machine whose SMT is off now would come back with it,
    and with CPUs that are in no list, if the planned arguments lost the token.
    """
    live = next((token for token in args or [] if name_of(token) == "nosmt"), None)
    off = control in ("off", "forceoff") or (control is None and live is not None)
    return live or "nosmt" if smt == "disabled" or off else None


def split(cmdline):
    """Tokens of a command line. Double quotes group, as in the kernel's next_arg(); they stay in the token."""
    tokens, token, quoted = [], "", False
    for char in cmdline:
        if char == '"':
            quoted = not quoted
        if char.isspace() and not quoted:
            if token:
                tokens.append(token)
            token = ""
        else:
            token += char
    if token:
        tokens.append(token)
    return tokens


def name_of(token):
    """Argument name of a token; the kernel treats - and _ alike there."""
    return token.partition("=")[0].strip('"').replace("-", "_")


def owned(tokens):
    """{name: value or "" for a bare flag} of our arguments in a list of tokens; None for those that are absent.

    Where one stands twice, the last is reported joined with the first by " and ": the kernel drops one of two lists that differ.
    """
    found = dict.fromkeys(OWNED)
    for token in tokens:
        name = name_of(token)
        if name in found:
            value = token.partition("=")[2].strip('"')
            found[name] = value if found[name] in (None, value) else found[name] + " and " + value
    return found


def cpus_of(value):
    """(flags, cpulist) of an isolcpus-like value: "managed_irq,2-5" gives (["managed_irq"], "2-5"); the list is None if it is none."""
    parts = value.split(",")
    flags = []
    while parts and parts[0] in _FLAGS:
        flags.append(parts.pop(0))
    try:
        return flags, cpulist.compress(",".join(parts))
    except HostprepError:
        return flags, None


def same(name, left, right):
    """Whether two values of one of our arguments mean the same (lists compared as sets, flags in any order)."""
    if left is None or right is None or left == right:
        return left == right
    if name == "nosmt":
        return True  # bare or nosmt=force: SMT is off
    left_flags, left_cpus = cpus_of(left)
    right_flags, right_cpus = cpus_of(right)
    if name == "isolcpus":
        left_flags, right_flags = left_flags or ["domain"], right_flags or ["domain"]
    return left_cpus is not None and left_cpus == right_cpus and set(left_flags) == set(right_flags)


def lint(mode, config, tokens):
    """Findings on wanted tokens: mode, {CONFIG_X: y, m, n or None} of the running kernel, tokens."""
    warnings = []
    if mode == "pinned":
        warnings.append(
            finding(
                "pinned_no_balancing",
                "isolcpus without flags takes load balancing away: threads of a pod that do not pin themselves all run on one CPU",
                "use isolation_mode: balanced unless every thread of every pod pins itself",
                tokens[0],
            )
        )
    for option, argument in (
        ("CONFIG_CPU_ISOLATION", "isolcpus="),
        ("CONFIG_NO_HZ_FULL", "nohz_full="),
        ("CONFIG_RCU_NOCB_CPU", "rcu_nocbs="),
    ):
        if config.get(option) == "n" and any(token.startswith(argument) for token in tokens):
            warnings.append(
                finding(
                    "kernel_option_missing",
                    "the running kernel is built without %s, so it ignores %s" % (option, argument),
                    "boot a kernel with it, or choose another isolation_mode",
                    "%s is not set" % option,
                )
            )
    longest = max(len(token) for token in tokens)
    if sum(len(token) + 1 for token in tokens) > 1024:
        warnings.append(
            finding(
                "kernel_args_long",
                "the planned arguments take more than half of the 2,048 characters that a kernel command line may have on x86 and arm64 (COMMAND_LINE_SIZE)",
                "choose a policy whose lists compress better (reserved_cores_per_node on this numbering)",
                "longest %d characters" % longest,
            )
        )
    return warnings
