# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Second third of the report page's script: what the section of one host shows, block by block (JavaScript in a Python string, see
``report_page``). ``describe(host)`` returns the blocks; each takes the plan and knows one part of it."""

from __future__ import annotations

SECTION = r"""
/* ---- parts of a section ---------------------------------------------------------------------------------------------------- */

// Text that wraps after its commas, as CPU lists and arguments want it, not at the hyphens of their ranges.
const wrapping = (text, after = /(?<=,)/) => String(text).split(after)
  .map(piece => (piece.length > 40 ? piece : [el("span", {class: "keep"}, piece), el("wbr")]));
const code = text => el("code", {}, wrapping(text));
const quiet = text => el("span", {class: "unknown"}, text);
const value = text => (text === null || text === undefined ? quiet("unknown") : text === "" ? quiet("(none)") : code(text));
const known = figure => (figure === null || figure === undefined ? quiet("?") : figure);
const judged = (flag, yes, no) => (flag ? el("span", {class: "good"}, yes) : flag === false ? el("span", {class: "bad"}, no) : quiet("not known"));

// A table. Heads: a string, or {text, num, mono}; rows: strings, numbers or nodes, of which the first is the row's heading.
function grid(heads, rows) {
  const looks = heads.map(head => [head.num && "num", head.mono && "mono list"].filter(Boolean).join(" ") || null);
  const cell = (content, place) => el(place ? "td" : "th", {scope: place ? null : "row", class: looks[place]},
    typeof content === "number" ? number(content) : content);
  return el("div", {class: "scroll"}, el("table", {class: "grid"},
    el("thead", {}, el("tr", {}, heads.map(head => el("th", {scope: "col", class: head.num ? "num" : null}, head.text === undefined ? head : head.text)))),
    el("tbody", {}, rows.map(row => el("tr", {}, row.map(cell))))));
}
const num = text => ({text, num: true});
const mono = text => ({text, mono: true});

function finding(item, refusal) {
  return el("div", {class: "finding" + (refusal ? " refusal" : "")},
    el("p", {}, item.code ? [el("code", {class: refusal ? "bad" : "warn"}, item.code), ": "] : null, item.message),
    item.read ? el("p", {class: "soft"}, "Read: ", code(item.read)) : null,
    item.cure ? el("p", {}, "To do: " + item.cure) : null);
}

// [[term, description], ...] as a definition list.
function terms(pairs) {
  return el("dl", {class: "lists"}, pairs.filter(Boolean).map(([term, ...description]) => [el("dt", {}, term), el("dd", {}, description)]));
}

function block(title, ...content) { return el("div", {class: "block"}, el("h3", {}, title), content); }
function beside(...blocks) { return blocks.some(Boolean) ? el("div", {class: "cols"}, blocks) : null; }

/* ---- the section of a host -------------------------------------------------------------------------------------------------- */

function describe(host) {
  const plan = planOf(host);
  if (!plan) return [finding({code: host.error_code, message: host.error}, true)];
  return [
    warningsOf(plan), listsOf(plan), drawingOf(plan), whyOf(plan), differencesOf(plan), transitionOf(plan), nodesOf(plan), nicsOf(plan),
    beside(vectorsOf(plan), admissionOf(plan)), whatIfOf(plan), gatesOf(plan), machineOf(host, plan),
  ].filter(Boolean);
}

function warningsOf(plan) {
  return plan.warnings.length ? block("Warnings", plan.warnings.map(item => finding(item))) : null;
}

function listsOf(plan) {
  const kubelet = plan.kubelet;
  const list = name => [name, value(plan[name]), el("span", {class: "size"}, name === "irq" && plan.irq === plan.reserved ? "as reserved"
    : plural(cpusOf(plan[name]).length, "CPU"))];
  const setting = (name, options) => {
    const more = Object.entries(options || {}).map(([key, given]) => key + "=" + given).join(", ");
    return el("div", {}, code(name + ": " + kubelet[name] + (more ? " (" + more + ")" : "")));
  };
  return block("Lists", terms([
    list("reserved"), list("isolated"), list("irq"),
    ["kernel arguments", plan.kernel_args.map(token => el("div", {}, code(token)))],
    ["kubelet", setting("reservedSystemCPUs"), setting("cpuManagerPolicy", kubelet.cpuManagerPolicyOptions),
      setting("topologyManagerPolicy", kubelet.topologyManagerPolicyOptions),
      el("div", {class: "soft"}, plural(kubelet.allocatable_cpus, "CPU") + " left for pods")],
  ]));
}

function drawingOf(plan) {
  const room = Math.max(700, Math.min(1600, document.getElementById("main").clientWidth - 80));
  try {
    return block("Drawing", drawHost(plan, room));
  } catch (error) {   // the lists and tables matter more than the drawing
    console.error(error);
    return block("Drawing", el("p", {class: "bad"}, "This host could not be drawn: " + error.message));
  }
}

function whyOf(plan) {
  if (!plan.why.length) return null;
  const nodeOf = reason => (reason.node === null ? "none" : reason.node);
  const merged = [...groupBy(plan.why, reason => JSON.stringify([reason.code, reason.message])).values()];
  return block("Why these CPUs are reserved", grid([mono("CPUs"), "Node", "Rule", "Reason"], merged.map(same => [
    value(listOf(same.flatMap(reason => cpusOf(reason.cpus)))), [...new Set(same.map(nodeOf))].join(", "), code(same[0].code), same[0].message])));
}

function differencesOf(plan) {
  const verdicts = {same: ["good", "same"], differs: ["warn", "\u2260 differs"], unknown: ["unknown", "unknown"]};
  const rows = plan.differences.map(item => {
    const [look, words] = verdicts[item.verdict] || verdicts.unknown;
    return [item.what, value(item.planned), value(item.configured), value(item.live), el("span", {class: look + " keep"}, words), item.note || ""];
  });
  return block("Planned, configured and live", rows.length ? grid(["Setting", mono("Planned"), mono("Configured"), mono("Live"), "Verdict", "Note"], rows)
    : el("p", {}, "Nothing was compared."));
}

function transitionOf(plan) {
  const {kubelet_state_files: files, reasons} = plan.transition;
  return block("To get there",
    el("p", {}, change(plan) ? "Needs a " + change(plan).replace(", ", " and a ") + "." : "Needs neither a reboot nor a drain."),
    files.length ? el("p", {}, "The kubelet's state has to be removed while it is stopped: ", files.map(path => [code(path), " "])) : null,
    reasons.map(item => finding(item)));
}

function nodesOf(plan) {
  const heads = ["Node", mono("Reserved"), mono("Isolated"), num("Cores reserved"), num("Memory"), "NICs", num("GPUs"), num("Gb/s"), num("Gb/s per core")];
  const load = figure => (figure === null ? "\u2013" : figure);
  return plan.numa.length ? block("NUMA nodes", grid(heads, plan.numa.map(node => [
    node.id === null ? "none" : String(node.id), value(node.reserved), value(node.isolated),
    node.cores ? node.reserved_cores + " of " + node.cores : "no CPUs", gib(node.memory_mib), node.nics.join(", "), node.gpus.length,
    load(node.gbps), load(node.gbps_per_core)]))) : null;
}

function nicsOf(plan) {
  const idle = plan.layout.nics.filter(nic => !nic.planned);
  const heads = ["NIC", "PCI", "Driver", num("Node"), num("Speed"), num("Queues"), num("Now"), mono("Queue CPUs, queue 0 first"), mono("RDMA vectors"),
    mono("Other interrupts"), num("Gb/s per queue")];
  const rows = plan.nics.map(nic => [
    nicName(nic), nic.pci || "", nic.driver || quiet("unknown"), known(nic.numa_node), nic.gbps === null ? quiet("unknown") : gbps(nic.gbps),
    nic.queues, known(nic.queues_now), nic.queue_cpus.join(" "), nic.ceqs ? nic.ceqs + " on " + listOf(nic.ceq_cpus) : "none",
    value(nic.other_cpus), known(nic.gbps_per_queue)]);
  return block("NICs", rows.length ? grid(heads, rows) : el("p", {}, "No NIC is planned."),
    idle.length ? el("p", {class: "soft"}, "Not planned: " + idle.map(nicName).join(", ")) : null);
}

function vectorsOf(plan) {
  const budget = plan.vector_budget;
  if (!budget.judged) return block("Interrupt vectors", el("p", {}, "Not judged: " + (budget.why || "no reason was given") + "."));
  const rows = [
    ["Room on " + plural(budget.housekeeping_cpus, "housekeeping CPU") + ", " + budget.per_cpu + " each", known(budget.capacity), ""],
    ["Managed by the kernel", known(budget.managed), ""],
    ["Unmanaged now", known(budget.unmanaged_now), judged(budget.fits_now, "fits", "does not fit")],
    ["Unmanaged as planned", known(budget.unmanaged_planned), judged(budget.fits_planned, "fits", "does not fit")]];
  const fits = "What would fit: " + plural(budget.queues_that_fit, "queue") + " and " + plural(budget.ceqs_that_fit, "RDMA vector") + ", or " +
    plural(budget.housekeeping_that_would, "housekeeping CPU") + ".";
  return block("Interrupt vectors", grid(["", num("Vectors"), "Verdict"], rows),
    budget.fits_planned === false || budget.fits_now === false ? el("p", {}, fits) : null);
}

function admissionOf(plan) {
  const shapes = plan.kubelet.admission;
  if (!shapes.length) return null;
  const policies = Object.keys(shapes[0].policies);
  const size = shape => [number(shape.cpus) + " CPUs", shape.gpus && plural(shape.gpus, "GPU"), shape.memory_mib && gib(shape.memory_mib)]
    .filter(Boolean).join(", ");
  const nodes = list => (list.length ? " on " + (list.length === 1 ? "node " : "nodes ") + list.join(", ") : "");
  const answer = given => el("div", {}, judged(given.admitted, "admitted", "refused"), given.admitted ? nodes(given.nodes) : "",
    el("div", {class: "soft reason"}, given.reason));
  const heads = policies.map(policy => (policy === plan.kubelet.topologyManagerPolicy ? policy + " (planned)" : policy));
  return block("Pod shapes, by topology policy", grid(["Shape", ...heads], shapes.map(({shape, policies: answers}) => [
    el("div", {}, shape.name || "pod", el("div", {class: "soft"}, size(shape))), ...policies.map(policy => answer(answers[policy]))])));
}

// Several policies beside each other, one column each; the planner puts the plan itself first.
function whatIfOf(plan) {
  if (!plan.what_if.length) return null;
  const lines = (given, show) => Object.entries(given).map(([key, figure]) => el("div", {}, show(key, figure)));
  const rows = {
    "reserved": variant => value(variant.reserved),
    "isolated": variant => value(variant.isolated),
    "isolated CPUs lost": variant => variant.isolated_lost,
    "queues": variant => lines(variant.queues, (nic, queues) => nic + ": " + queues),
    "Gb/s per core": variant => lines(variant.gbps_per_core, (node, load) => "node " + node + ": " + number(load)),
    "vectors": variant => judged(variant.vectors_fit, "fit", "do not fit"),
    "shapes admitted": variant => lines(variant.shapes_admitted, (shape, policies) => shape + ": " + (policies.join(", ") || "under no policy")),
  };
  return block("What if", grid(["", ...plan.what_if.map(variant => mono(variant.label))], Object.entries(rows).map(([name, show]) => [
    name, ...plan.what_if.map(variant => (!variant.error ? show(variant) : name === "reserved" ? el("span", {class: "bad"}, variant.error) : ""))])));
}

function gatesOf(plan) {
  const answered = Object.entries(plan.gates || {}).filter(([, gate]) => gate.eligible !== null);
  return answered.length ? block("Dataplane gates", answered.map(([name, gate]) => [
    el("p", {}, code(name), ": ", judged(gate.eligible, "eligible", "not eligible")), gate.reasons.map(item => finding(item))])) : null;
}

function machineOf(host, plan) {
  const {machine, packages, nodes, cores, gpus} = plan.layout;
  const given = Object.entries(plan.policy).filter(([, setting]) => setting !== null && !(Array.isArray(setting) && !setting.length));
  const policy = given.map(([key, setting]) => key + ": " + (typeof setting === "string" ? setting : JSON.stringify(setting))).join("; ");
  const same = HOSTS.filter(other => other.group === host.group && other !== host);
  const counts = [[packages.length, "socket"], [nodes.filter(node => node.id !== null).length, "NUMA node"], [cores.length, "core"], [gpus.length, "GPU"]];
  return block("Machine and policy", terms([
    ["model", machine.cpu_model || quiet("unknown")], ["architecture", machine.arch || quiet("unknown")],
    ["hypervisor", machine.hypervisor || quiet("unknown")], ["kernel", value(machine.kernel)],
    ["layout", counts.map(([count, noun]) => plural(count, noun)).join(", ") + ", " + plural(host.row.cpus, "CPU") + " after the planned boot"],
    ["boot CPU", String(plan.boot_cpu)], ["mode", plan.mode], ["policy", value(policy)], ["fingerprint", value(plan.fingerprint)],
    same.length ? ["the same plan", el("details", {}, el("summary", {}, plural(same.length, "other host")),
      el("p", {}, same.map((other, place) => [place ? ", " : "", hostLink(other)])))] : null,
  ]));
}
"""
