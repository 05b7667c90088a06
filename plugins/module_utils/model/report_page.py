# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a fleet as one HTML page that needs nothing else: no network, no other file.

``page(document)`` takes what ``report.report`` returned. The plans are embedded as JSON and drawn in the browser; parts that several
hosts share (a layout, a policy, an empty list) are embedded once, and only what the page shows. A content security policy with the
hashes of the page's own script and style lets nothing else run or load, whatever a host's name contains.

The script lives in ``report_drawing`` (the drawing of a host), ``report_section`` (everything else about a host) and ``report_script`` (fleet table,
filter, keys); all three are Python because Ansible ships only Python files with a module.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json

from . import report, wording
from .report_drawing import DRAWING
from .report_script import SCRIPT
from .report_section import SECTION

# Parts of a plan that the page shows. A dotted name is a part of a part, shared on its own.
_PARTS = (
    "mode",
    "policy",
    "reserved",
    "isolated",
    "irq",
    "online_after_boot",
    "boot_cpu",
    "fingerprint",
    "why",
    "numa",
    "nics",
    "vector_budget",
    "kernel_args",
    "kubelet",
    "gates",
    "transition",
    "differences",
    "warnings",
    "what_if",
    "layout.machine",
    "layout.packages",
    "layout.nodes",
    "layout.llcs",
    "layout.cores",
    "layout.nics",
    "layout.gpus",
)
_ROW = (
    "model",
    "cpus",
    "nics",
    "queues",
    "gbps_per_core",
    "differs",
    "group",
)  # figures of a row that are not a part of the plan already

_STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --panel: #f6f7f9; --text: #1a1f24; --soft: #525c66; --line: #c9d0d7; --link: #0a4f9e; --focus: #0a4f9e; --mark: #fff3c4;
  --bad: #9b1c1c; --good: #1d5c37; --warn: #7a4300;
  --reserved: #f3b557; --reserved-edge: #6b3d00; --reserved-text: #241500;
  --isolated: #e2edf8; --isolated-edge: #7090b0; --isolated-text: #12304c;
  --off: #f0f0f0; --off-edge: #8a8a8a; --off-text: #5c5c5c;
  --box: #ffffff; --box-edge: #848f9b; --deep: #f6f7f9;
  --nic0: #0060a8; --nic1: #b04a00; --nic2: #00704f; --nic3: #9a3d78; --nic4: #5b4bb5; --nic5: #6f6300;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #14181c; --panel: #1c2126; --text: #e5e9ed; --soft: #a5b0ba; --line: #3c454e; --link: #8cc1ff; --focus: #8cc1ff; --mark: #4a3d00;
    --bad: #ff9c94; --good: #86d3a2; --warn: #f2c078;
    --reserved: #d9912a; --reserved-edge: #ffd08a; --reserved-text: #1d1000;
    --isolated: #203448; --isolated-edge: #55779a; --isolated-text: #d6e6f5;
    --off: #22262a; --off-edge: #6b737b; --off-text: #a0a8b0;
    --box: #181d22; --box-edge: #606b76; --deep: #1c2126;
    --nic0: #6fb7f5; --nic1: #f59a5a; --nic2: #4fcf9f; --nic3: #f094c9; --nic4: #b3a6ff; --nic5: #d9cc4f;
  }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { margin: 0; padding: 1.25rem 1.5rem 4rem; max-width: 108rem; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", "DejaVu Sans", sans-serif; }
code, pre, .mono, td.mono, input, .drawing text {
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", "DejaVu Sans Mono", monospace;
}
code, pre, .mono, td.mono { font-size: 13px; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; line-height: 1.25; margin: 0 0 .15rem; }
h2 { font-size: 1.1rem; margin: 0; }
h3 { font-size: .95rem; margin: 1.6rem 0 .45rem; }
p { margin: .3rem 0; max-width: 78ch; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; border-radius: 2px; }
.keep { white-space: nowrap; }
.soft { color: var(--soft); }
.unknown { color: var(--soft); font-style: italic; font-family: inherit; }
.bad { color: var(--bad); font-weight: 600; }
.warn { color: var(--warn); font-weight: 600; }
.good { color: var(--good); }
kbd { font: 12px/1 ui-monospace, Menlo, Consolas, "Liberation Mono", monospace; border: 1px solid var(--line); border-radius: 3px; padding: .1em .35em;
  background: var(--panel); }
button, input, select { font-size: 14px; color: var(--text); background: var(--page); border: 1px solid var(--line); border-radius: 4px;
  padding: .3rem .55rem; }
button, select { font-family: inherit; }
button { cursor: pointer; }

.facts { display: flex; flex-wrap: wrap; gap: .4rem; margin: .6rem 0 0; padding: 0; list-style: none; }
.facts button { font-variant-numeric: tabular-nums; }
.facts button[aria-pressed=true] { background: var(--mark); border-color: var(--text); }
.facts b { font-size: 1.05em; }
.tools { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: end; margin: 1.1rem 0 .5rem; }
.tools label { display: grid; gap: .1rem; font-size: 13px; color: var(--soft); }
.tools label.check { display: flex; gap: .4rem; align-items: center; color: var(--text); padding-bottom: .35rem; }
.tools input[type=search] { width: 24rem; max-width: 80vw; }
.shown { margin-left: auto; font-variant-numeric: tabular-nums; padding-bottom: .35rem; }

.scroll { overflow: auto; max-width: 100%; }
.fleet { border: 1px solid var(--line); border-radius: 4px; max-height: 72vh; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .25rem .7rem .25rem 0; }
th { font-weight: 600; font-size: 13px; }
caption { text-align: left; }
.grid th, .grid td { border-bottom: 1px solid var(--line); padding: .3rem .9rem .3rem 0; }
.grid td { font-size: 14px; }
.grid tbody th { font-size: 13.5px; }
.grid tbody th .soft { font-weight: 400; }
.grid thead th { color: var(--soft); white-space: nowrap; }
.reason { max-width: 34ch; font-size: 13px; }
.num { text-align: right; }
.fleet table { width: 100%; }
.fleet th, .fleet td { padding: .28rem .5rem; border-bottom: 1px solid var(--line); white-space: nowrap; font-size: 13.5px; }
.fleet thead th { position: sticky; top: 0; z-index: 1; background: var(--panel); padding: 0; box-shadow: inset 0 -1px var(--line); border: 0; }
.fleet thead th { vertical-align: bottom; }
.fleet thead button { width: 100%; border: 0; border-radius: 0; background: none; font-weight: 600; font-size: 13px; line-height: 1.2; text-align: inherit;
  padding: .4rem .5rem; white-space: normal; }
.fleet thead span { display: none; }
.fleet .sentence { white-space: normal; }
.fleet th[aria-sort=ascending] button::after { content: " \\2191"; }
.fleet th[aria-sort=descending] button::after { content: " \\2193"; }
.fleet tbody th { position: sticky; left: 0; background: var(--page); font-size: 13.5px; }
.fleet tbody tr:hover > * { background: var(--panel); }
.fleet tbody tr:last-child > * { border-bottom: 0; }
.cut { display: block; max-width: 19ch; overflow: hidden; text-overflow: ellipsis; }
.cut wbr { display: none; }
.fleet th .cut { max-width: 34ch; }
.clamp { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; }
.fleet .wrap { white-space: normal; min-width: 8rem; max-width: 14rem; }
.fleet th.wrap { min-width: 17rem; max-width: 19rem; }
.help { max-width: none; font-size: 13px; display: flex; flex-wrap: wrap; gap: .2rem 1rem; }

.host { margin-top: .5rem; border: 1px solid var(--line); border-radius: 4px; }
.host > h2 > button { display: flex; flex-wrap: wrap; gap: .2rem .9rem; align-items: baseline; width: 100%; border: 0; border-radius: 4px;
  background: var(--panel); font-size: 1rem; padding: .45rem .8rem; text-align: left; }
.host > h2 > button::before { content: "\\25B8"; width: .8em; color: var(--soft); }
.host > h2 > button[aria-expanded=true]::before { content: "\\25BE"; }
.host .name { font-weight: 650; overflow-wrap: anywhere; }
.host .state { font-weight: 400; font-size: 13.5px; }
.body { padding: .3rem 1rem 1.3rem; }
.lists { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .15rem 1.2rem; margin: .3rem 0; }
.lists dt { color: var(--soft); }
.lists dd { margin: 0; min-width: 0; }
.lists .size { color: var(--soft); margin-left: .8em; white-space: nowrap; }
.finding { border-left: 4px solid var(--warn); padding: .1rem 0 .1rem .8rem; margin: .6rem 0; }
.finding code { font-weight: 650; }
.finding.refusal { border-color: var(--bad); }
.cols { display: flex; flex-wrap: wrap; gap: 0 3.5rem; }
.cols > * { min-width: 0; max-width: 100%; }
td.mono.list { max-width: 46ch; min-width: 12ch; }

.drawing { border: 1px solid var(--line); border-radius: 4px; padding: .6rem; background: var(--page); }
.drawing svg { display: block; }
.drawing text { font-size: 10.5px; fill: var(--text); }
.drawing .title { font-size: 12px; font-weight: 700; }
.drawing .sub, .drawing .quiet { fill: var(--soft); }
.drawing .label { font-weight: 700; }
.drawing .socket { fill: var(--deep); stroke: var(--box-edge); }
.drawing .node { fill: var(--box); stroke: var(--box-edge); }
.drawing .unknown-place { fill: none; stroke: var(--box-edge); stroke-dasharray: 6 4; }
.drawing .llc { fill: none; stroke: var(--box-edge); stroke-dasharray: 2 2; }
.drawing .root { fill: none; stroke: var(--line); }
.drawing .cpu { stroke-width: 1; }
.drawing .cpu.r { fill: var(--reserved); stroke: var(--reserved-edge); }
.drawing .cpu.i { fill: var(--isolated); stroke: var(--isolated-edge); }
.drawing .cpu.o { fill: var(--off); stroke: var(--off-edge); stroke-dasharray: 2 2; }
.drawing .edge { fill: none; stroke: none; }
.drawing .edge.r { stroke: var(--reserved-edge); stroke-width: 2; }
.drawing .irq { fill: var(--reserved-edge); }
.drawing .digits text { font-size: 10.5px; text-anchor: middle; pointer-events: none; }
.drawing .digits .r { fill: var(--reserved-text); font-weight: 700; }
.drawing .digits .i { fill: var(--isolated-text); }
.drawing .digits .o { fill: var(--off-text); text-decoration: line-through; }
.drawing .digits .tag { font-size: 9px; }
.drawing .chip { fill: var(--page); stroke: var(--text); }
.drawing .chip.idle { stroke: var(--box-edge); stroke-dasharray: 3 2; }
.drawing .chip.gpu { stroke-width: 2; }
.drawing .queue { fill: none; stroke-width: 1.3; pointer-events: none; }
.drawing .queue.far { stroke-dasharray: 5 3; }
.drawing .end { pointer-events: none; }
.drawing .n0 { stroke: var(--nic0); } .drawing .n1 { stroke: var(--nic1); } .drawing .n2 { stroke: var(--nic2); }
.drawing .n3 { stroke: var(--nic3); } .drawing .n4 { stroke: var(--nic4); } .drawing .n5 { stroke: var(--nic5); }
.drawing .end.n0, .drawing .flag.n0 { fill: var(--nic0); } .drawing .end.n1, .drawing .flag.n1 { fill: var(--nic1); }
.drawing .end.n2, .drawing .flag.n2 { fill: var(--nic2); } .drawing .end.n3, .drawing .flag.n3 { fill: var(--nic3); }
.drawing .end.n4, .drawing .flag.n4 { fill: var(--nic4); } .drawing .end.n5, .drawing .flag.n5 { fill: var(--nic5); }
.drawing svg.picked .queue, .drawing svg.picked .end { opacity: .12; }
.drawing svg.picked .queue.on, .drawing svg.picked .end.on { opacity: 1; }
.drawing svg .queue.on { stroke-width: 2.4; }
.drawing [tabindex]:focus { outline: none; }
.drawing [tabindex]:focus-visible .ring { stroke: var(--focus); stroke-width: 3; }
.drawing .ring { fill: none; stroke: none; pointer-events: none; }
.readout { min-height: 1.5em; font-size: 13.5px; max-width: none; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; margin: .5rem 0 .2rem; font-size: 13.5px; }
.legend span { display: inline-flex; align-items: center; gap: .4rem; }

@page { size: landscape; margin: 12mm; }
@media print {
  body { padding: 0; font-size: 11px; max-width: none; }
  code, pre, .mono, td.mono { font-size: 10px; }
  h1 { font-size: 15px; }
  h3 { font-size: 11.5px; margin: .9rem 0 .25rem; }
  p, .grid th, .grid td, .grid tbody th, .reason, .legend, .lists, .facts button, .host .state { font-size: 10px; }
  .grid th, .grid td { padding: .12rem .7rem .12rem 0; }
  .facts { margin: .2rem 0 .5rem; gap: .2rem 1rem; }
  .facts button { border: 0; padding: 0; }
  .finding { margin: .25rem 0; }
  .no-print, .readout { display: none !important; }
  .scroll, .fleet { overflow: visible; max-height: none; }
  .fleet { border: 0; }
  .fleet thead th, .fleet tbody th { position: static; background: none; }
  .fleet th, .fleet td, .fleet tbody th { font-size: 9.5px; padding: .15rem .35rem; white-space: normal; }
  .fleet thead th { padding: .15rem .35rem; }
  .fleet thead button { display: none; }  /* Chromium paints no buttons in the heads that it repeats on every page */
  .fleet thead span { display: inline; }
  .cut { max-width: none; white-space: normal; overflow: visible; }
  .cut wbr { display: inline; }
  .clamp { display: block; }
  thead, tr, .finding, .lists, .grid, .drawing { break-inside: avoid; }
  h3 { break-after: avoid; }
  .host { display: none; border: 0; break-before: page; margin: 0; }
  .host.open { display: block; }
  .host > h2 > button { background: none; border-bottom: 2px solid #000; border-radius: 0; padding-left: 0; }
  .host > h2 > button::before { content: none !important; }
  .body { padding: 0; }
  .drawing { border: 0; padding: 0; }
  .drawing svg { width: auto; max-width: 100%; height: auto; max-height: 160mm; }
  .drawing.tall svg { max-height: none; }
  .drawing .socket, .drawing .node { fill: none; }
  .drawing .queue { stroke-width: 1.6; }
}
"""


def page(document, title=None):
    """The page's HTML text (str, ASCII only inside the embedded data). ``title`` is the heading, "Host plan" unless given."""
    heading = html.escape(wording.plain(title or "Host plan"))
    script = DRAWING + SECTION + SCRIPT
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src %s; script-src %s; base-uri 'none'; "
            "form-action 'none'\">" % (_hash(_STYLE), _hash(script)),
            '<link rel="icon" href="data:,">',
            "<title>%s</title>" % heading,
            "<style>%s</style>" % _STYLE,
            "</head>",
            "<body>",
            '<header><h1>%s</h1><div id="head"></div></header>' % heading,
            "<noscript><p>This page draws the plans with JavaScript. The same is in plan.txt and plan.json beside it.</p></noscript>",
            '<main id="main"></main>',
            '<script type="application/json" id="data">%s</script>' % _inert(embed(document)),
            "<script>%s</script>" % script,
            "</body>",
            "</html>",
            "",
        )
    )


def _hash(text):
    return "'sha256-%s'" % base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _inert(text):
    """JSON text that cannot end its script element or open a comment; json leaves no character beyond ASCII (U+2028 among them)."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def embed(document):
    """JSON text of what the page shows: hosts refer to their parts by position in ``pool``, where equal parts stand once."""
    pool = {}
    hosts = []
    groups = {}
    for entry, row in zip(document["hosts"], report.rows(document)):
        host = {"host": entry["host"], "status": entry["status"], "group": row["group"]}
        groups.setdefault(row["group"], []).append(entry["host"])
        if entry["plan"] is None:
            host.update({"error": entry["error"], "error_code": entry["error_code"]})
        else:
            host["row"] = {key: row[key] for key in _ROW}
            host["parts"] = [
                pool.setdefault(json.dumps(_part(entry["plan"], name), separators=(",", ":")), len(pool))
                for name in _PARTS
            ]
        hosts.append(host)
    head = {
        "version": document["collection_version"],
        "generated_at": document["generated_at"],
        "summary": document["summary"],
        "names": _PARTS,
        "groups": [wording.host_ranges(names) for names in groups.values()],
        "hosts": hosts,
    }
    text = json.dumps(head, separators=(",", ":"))
    return '%s,"pool":[%s]}' % (text[:-1], ",\n".join(pool))


def _part(plan, name):
    if name == "layout.cores":
        return [core[:5] for core in plan["layout"]["cores"]]  # the list of a core follows from reserved and isolated
    for key in name.split("."):
        plan = plan.get(key)
    return plan
