# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Last third of the report page's script: data, header, fleet table, filter, opening and closing hosts, keys (JavaScript in a Python string,
see ``report_page``). A host's section is filled when it is first opened, so that a fleet of hundreds loads at once."""

from __future__ import annotations

SCRIPT = r"""
/* ---- data ---------------------------------------------------------------------------------------------------------------- */

const DATA = JSON.parse(document.getElementById("data").textContent);
const HOSTS = DATA.hosts;
const OPEN_AT_MOST = 10;    // fleets up to this size show every host opened
HOSTS.forEach((host, index) => { host.index = index; });
const GROUPS = groupBy(HOSTS, host => host.group);

// The plan of a host, put together from the shared parts on first use; null where there is none.
function planOf(host) {
  if (!host.parts) return null;
  if (!host.plan) {
    host.plan = {layout: {}};
    DATA.names.forEach((name, place) => {
      const [key, inner] = name.split(".");
      if (inner) host.plan[key][inner] = DATA.pool[host.parts[place]];
      else host.plan[key] = DATA.pool[host.parts[place]];
    });
  }
  return host.plan;
}

function change(plan) { return [plan.transition.reboot && "reboot", plan.transition.drain && "drain"].filter(Boolean).join(", "); }
function codes(plan) { return [...new Set(plan.warnings.map(warning => warning.code))]; }

const withPlan = test => host => host.row !== undefined && test(planOf(host), host.row);
const STATES = {
  all: ["all hosts", () => true],
  planned: ["planned", host => host.status === "planned"],
  refused: ["refused", host => host.status === "refused"],
  unreachable: ["unreachable", host => host.status === "unreachable"],
  reboot: ["need a reboot", withPlan(plan => plan.transition.reboot)],
  drain: ["need a drain", withPlan(plan => plan.transition.drain)],
  differs: ["differ from the plan", withPlan((plan, row) => row.differs > 0)],
  warned: ["have warnings", withPlan(plan => plan.warnings.length > 0)],
  nothing: ["need nothing", withPlan((plan, row) => !row.differs && !plan.warnings.length && !change(plan))],
};

// What the text filter looks through.
function haystack(host) {
  if (host.hay === undefined) {
    const plan = planOf(host);
    const words = [host.host, host.status, host.error, host.error_code];
    if (plan) {
      words.push(host.row.model, plan.mode, plan.reserved, plan.isolated, plan.irq, change(plan), plan.layout.machine.kernel, ...codes(plan));
      plan.layout.nics.forEach(nic => words.push(nic.name, nic.pci, nic.driver));
      plan.layout.gpus.forEach(gpu => words.push(gpu.name, gpu.pci));
    }
    host.hay = words.filter(Boolean).join("\n").toLowerCase();
  }
  return host.hay;
}

/* ---- fleet table ---------------------------------------------------------------------------------------------------------- */

const collate = new Intl.Collator("en", {numeric: true}).compare;
const plainModel = model => model && model.replace(/\((R|TM)\)|\bCPU\b|\bProcessor\b|@.*/gi, "").replace(/\s+/g, " ").trim();
const column = (title, look, sort, show) => ({title, look, sort: host => (host.row ? sort(host.row, planOf(host), host) : null), show});
// Each: title, look, what it is sorted by, and what is shown where that differs. Hosts without a plan show their error instead.
const COLUMNS = [
  {title: "Host", sort: host => host.host},
  column("Model", "cut", row => plainModel(row.model)),
  column("CPUs", "num", row => row.cpus),
  column("Mode", "", (row, plan) => plan.mode),
  column("Reserved", "cut mono", (row, plan) => plan.reserved),
  column("Isolated", "cut mono", (row, plan) => plan.isolated),
  column("IRQ", "cut mono", (row, plan) => plan.irq, (row, plan) => (plan.irq === plan.reserved ? "= reserved" : plan.irq)),
  column("NICs", "num", row => row.nics),
  column("Queues", "num", row => row.queues),
  column("Gb/s per core", "num", row => row.gbps_per_core, row => (row.gbps_per_core === null ? "\u2013" : number(row.gbps_per_core))),
  column("Warnings", "wrap", (row, plan) => plan.warnings.length,
    (row, plan) => (plan.warnings.length ? el("span", {class: "warn"}, wrapping(codes(plan).join(", "), /(?<=[,_])/)) : "none")),
  column("Change", "", (row, plan) => change(plan), (row, plan) => change(plan) || "none"),
  column("Differs", "num", row => row.differs),
];
const view = {sort: null, descending: false, text: "", state: "all", code: "", grouped: false};
const ui = {waiting: new Set()};   // elements that change; order: hosts that are listed; waiting: hosts opened but not filled yet

function tableCell({look, sort, show}, host) {
  const content = show ? show(host.row, planOf(host)) : sort(host);
  const cut = look.includes("cut");
  const text = content === null || content === undefined ? quiet("unknown") : typeof content === "object" ? content : String(content);
  return el("td", {class: look.replace("cut", "").trim() || null},
    cut ? el("span", {class: "cut", title: typeof text === "string" ? text : null}, look.includes("mono") ? wrapping(content) : text) : text);
}

function hostLink(host, label) {
  const click = event => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    visit(host);
  };
  return el("a", {href: "#" + encodeURIComponent(host.host), on: {click}}, wrapping(label || host.host));
}

function buildTable() {
  const sortBy = place => () => {
    view.descending = view.sort === place && !view.descending;
    view.sort = place;
    refresh();
  };
  ui.heads = COLUMNS.map(({title, look}, place) => el("th", {scope: "col", class: look === "num" ? "num" : null},
    el("button", {type: "button", on: {click: sortBy(place)}}, title), el("span", {"aria-hidden": "true"}, title)));
  ui.body = el("tbody");
  ui.rows = HOSTS.map(host => el("tr", {}, el("th", {scope: "row"}), host.row ? COLUMNS.slice(1).map(each => tableCell(each, host))
    : el("td", {class: "sentence", colspan: COLUMNS.length - 1}, el("span", {class: "bad"}, host.status), ": " + host.error)));
  return el("div", {class: "scroll fleet", id: "fleet", tabindex: "0", role: "region", "aria-label": "Fleet table"},
    el("table", {}, el("thead", {}, el("tr", {}, ui.heads)), ui.body));
}

// The heading of a row: the host, or all hosts of its plan where rows are grouped.
function nameRow(host) {
  const head = ui.rows[host.index].firstChild;
  const members = view.grouped ? GROUPS.get(host.group).length : 1;
  const label = members > 1 ? DATA.groups[host.group] : host.host;
  head.replaceChildren(el("span", {class: members > 1 ? "clamp" : "cut", title: label}, hostLink(host, members > 1 ? label : null)),
    members > 1 ? el("div", {class: "soft"}, members + " hosts, one plan") : "");
  head.className = members > 1 ? "wrap" : "";
}

function matches(host) {
  if (!STATES[view.state][1](host)) return false;
  if (view.code && !(host.row && codes(planOf(host)).includes(view.code))) return false;
  return !view.text || view.text.split(/\s+/).every(word => haystack(host).includes(word));
}

function sorted(hosts) {
  if (view.sort === null) return hosts;
  const by = COLUMNS[view.sort].sort;
  const empty = entry => entry === null || entry === undefined || entry === "";
  const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : collate(String(a), String(b)));
  return hosts.map(host => ({host, key: by(host)})).sort((a, b) => {
    if (empty(a.key) || empty(b.key)) return empty(a.key) - empty(b.key) || a.host.index - b.host.index;   // without a value: at the end
    return order(a.key, b.key) * (view.descending ? -1 : 1) || a.host.index - b.host.index;
  }).map(({host}) => host);
}

// Shows what the filter, the order and the grouping ask for.
function refresh() {
  const shown = sorted(HOSTS.filter(matches));
  ui.order = view.grouped ? [...groupBy(shown, host => host.group).values()].map(group => group[0]) : shown;
  ui.heads.forEach((head, place) => {
    if (place === view.sort) head.setAttribute("aria-sort", view.descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  ui.order.forEach(nameRow);
  ui.body.replaceChildren(...ui.order.map(host => ui.rows[host.index]));
  const visible = new Set(ui.order);
  HOSTS.forEach(host => { ui.sections[host.index].hidden = !visible.has(host); });
  ui.list.append(...ui.order.map(host => ui.sections[host.index]));
  const plans = view.grouped ? plural(ui.order.length, "distinct plan") + ", " : "";
  ui.shown.textContent = plans + shown.length + " of " + plural(HOSTS.length, "host") + " shown";
  ui.none.hidden = shown.length > 0;
  for (const button of document.querySelectorAll(".facts button")) {
    const {state, code: warning} = button.dataset;
    button.setAttribute("aria-pressed", String(warning ? view.code === warning : view.state === state));
  }
}

/* ---- header and tools ----------------------------------------------------------------------------------------------------- */

function buildHead() {
  const press = (click, attributes, ...words) => el("li", {}, el("button", {type: "button", "aria-pressed": "false", ...attributes, on: {click}}, words));
  const fact = state => {
    const hosts = HOSTS.filter(STATES[state][1]).length;
    const alarm = hosts && (state === "refused" || state === "unreachable") ? "bad" : null;
    return press(() => choose({state: view.state === state ? "all" : state}), {"data-state": state},
      el("b", {class: alarm}, String(hosts)), " " + STATES[state][0]);
  };
  const warned = ([warning, hosts]) => press(() => choose({code: view.code === warning ? "" : warning}), {"data-code": warning},
    el("b", {class: "warn"}, String(hosts)), " ", el("code", {}, warning));
  const warnings = Object.entries(DATA.summary.warnings).sort((a, b) => b[1] - a[1] || collate(a[0], b[0]));
  const states = ["planned", "refused", "unreachable", "reboot", "drain", "differs", "nothing"];
  const distinct = GROUPS.size < HOSTS.length ? ", " + plural(GROUPS.size, "distinct plan") : "";
  fill(document.getElementById("head"), {}, [
    el("p", {class: "soft"}, "lo0.rke2_hostprep " + DATA.version + ", generated at ", el("time", {datetime: DATA.generated_at}, DATA.generated_at), ", " +
      plural(HOSTS.length, "host") + distinct),
    el("ul", {class: "facts", "aria-label": "Hosts by state"}, states.map(fact)),
    warnings.length ? el("ul", {class: "facts", "aria-label": "Hosts by warning"}, warnings.map(warned)) : null]);
}

function buildTools() {
  ui.filter = el("input", {type: "search", id: "filter", autocomplete: "off", spellcheck: "false", placeholder: "host, model, CPU list, NIC, code \u2026",
    on: {input: () => choose({text: ui.filter.value.trim().toLowerCase()})}});
  ui.state = el("select", {id: "state", on: {change: () => choose({state: ui.state.value})}},
    Object.entries(STATES).map(([state, [words]]) => el("option", {value: state}, words)));
  ui.code = el("select", {id: "code", on: {change: () => choose({code: ui.code.value})}}, el("option", {value: ""}, "any or none"),
    Object.keys(DATA.summary.warnings).map(warning => el("option", {value: warning}, warning)));
  ui.grouped = el("input", {type: "checkbox", id: "grouped", on: {change: () => choose({grouped: ui.grouped.checked})}});
  ui.shown = el("span", {class: "shown soft", role: "status"});
  const button = (words, click) => el("button", {type: "button", on: {click}}, words);
  ui.none = el("p", {hidden: true}, "No host matches. ", button("Clear the filter", clear));
  return el("div", {class: "tools no-print", role: "search"},
    el("label", {}, "Filter", ui.filter), el("label", {}, "Hosts that", ui.state), el("label", {}, "Warning", ui.code),
    el("label", {class: "check"}, ui.grouped, "one row per distinct plan"),
    el("span", {}, button("Open shown", () => openShown(true)), " ", button("Close all", () => openShown(false))), ui.shown);
}

function buildHelp() {
  const key = (words, ...names) => el("span", {}, names.map(name => [el("kbd", {}, name), " "]), words);
  return el("p", {class: "soft no-print help"}, "Keys: ", key("filter", "/"), key("clear it", "Esc"), key("next, previous host", "j", "k"),
    key("open or close", "Enter"), key("back to the table", "t"), key("open all shown", "o"), key("close all", "c"), key("through everything", "Tab"));
}

function choose(wanted) {
  Object.assign(view, wanted);
  ui.state.value = view.state;
  ui.code.value = view.code;
  refresh();
}
function clear() {
  ui.filter.value = "";
  choose({text: "", state: "all", code: ""});
}
// The first few are filled at once, the others one by one while the page stays usable.
function openShown(open) {
  (open ? ui.order : HOSTS).forEach((host, place) => toggle(host, open, place >= OPEN_AT_MOST));
  fillWaiting();
}

/* ---- opening and closing hosts --------------------------------------------------------------------------------------------- */

function buildSection(host) {
  const plan = planOf(host);
  const id = "host-" + host.index;
  const note = (words, look) => el("span", {class: "state " + (look || "")}, words);
  const notes = !plan ? [note(host.status, "bad")] : [
    note(short(plan.reserved, 40) + " reserved", "mono"),
    change(plan) && note("needs a " + change(plan).replace(", ", " and a ")),
    host.row.differs && note(plural(host.row.differs, "difference")),
    plan.warnings.length && note(plural(plan.warnings.length, "warning"), "warn")];
  const name = {id: id + "-name", "aria-expanded": "false", "aria-controls": id + "-body"};
  const button = el("button", {type: "button", ...name, on: {click: () => toggle(host)}}, el("span", {class: "name"}, host.host), notes.filter(Boolean));
  const body = el("div", {class: "body", id: id + "-body", hidden: true});
  return el("section", {class: "host", id, "aria-labelledby": name.id}, el("h2", {}, button), body);
}
const nameOf = host => ui.sections[host.index].querySelector("h2 button");
const linkOf = host => ui.rows[host.index].querySelector("a");

function toggle(host, wanted, later) {
  const section = ui.sections[host.index];
  const open = wanted === undefined ? !section.classList.contains("open") : wanted;
  if (!open) ui.waiting.delete(host);
  else if (later) ui.waiting.add(host);
  else fillSection(host);
  nameOf(host).setAttribute("aria-expanded", String(open));
  section.lastChild.hidden = !open;
  section.classList.toggle("open", open);
}

function fillSection(host) {
  ui.waiting.delete(host);
  const body = ui.sections[host.index].lastChild;
  if (!body.hasChildNodes()) body.append(...describe(host));
}
function fillWaiting() {
  const [host] = ui.waiting;
  if (!host) return;
  fillSection(host);
  setTimeout(fillWaiting);
}

// Opens a host, brings it into view and puts the focus on its name. A host that the filter hides is shown all the same.
function visit(host) {
  toggle(host, true);
  ui.sections[host.index].hidden = false;
  ui.sections[host.index].scrollIntoView();
  nameOf(host).focus({preventScroll: true});
  const hash = "#" + encodeURIComponent(host.host);
  if (location.hash !== hash) history.pushState(null, "", hash);
}
function visitHash() {
  let name = location.hash.slice(1);
  try { name = decodeURIComponent(name); } catch (error) { /* a hash that somebody typed: look for it as it is */ }
  const host = HOSTS.find(each => each.host === name);
  if (host) visit(host);
}

/* ---- keys ----------------------------------------------------------------------------------------------------------------- */

// The host whose row or section has the focus.
function focused() {
  const at = document.activeElement;
  return HOSTS.find(host => ui.rows[host.index].contains(at) || ui.sections[host.index].contains(at));
}
// To the next or previous host that is listed: from section to section when the focus is in one, else from row to row.
function walk(step) {
  const place = ui.order.indexOf(focused());
  const next = ui.order[place < 0 ? (step > 0 ? 0 : ui.order.length - 1) : Math.min(ui.order.length - 1, Math.max(0, place + step))];
  if (!next) return;
  const stop = ui.list.contains(document.activeElement) ? nameOf(next) : linkOf(next);
  stop.focus();
  stop.scrollIntoView({block: "nearest"});
}
function backToTable() {
  const host = focused() || ui.order[0];
  if (!host || !ui.rows[host.index].isConnected) return;
  linkOf(host).focus();
  ui.rows[host.index].scrollIntoView({block: "center"});
}
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target;
  if (event.key === "Escape") {
    clear();
    if (target === ui.filter) ui.filter.blur();
    return;
  }
  const inFilter = target === ui.filter;
  if (target.closest("input, select") && !(inFilter && event.key === "Enter")) return;
  const onLink = target.closest("tbody th a");
  const onName = onLink || target.closest(".host h2 button");
  const actions = {
    "/": () => ui.filter.select(), j: () => walk(1), k: () => walk(-1), t: backToTable, o: () => openShown(true), c: () => openShown(false),
    ArrowDown: onName && (() => walk(1)), ArrowUp: onName && (() => walk(-1)), " ": onLink && (() => onLink.click()), Enter: inFilter && (() => walk(1)),
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

/* ---- start ---------------------------------------------------------------------------------------------------------------- */

buildHead();
ui.list = el("div", {id: "hosts"});
fill(document.getElementById("main"), {}, [buildTools(), buildHelp(), buildTable(), ui.none, ui.list]);
ui.sections = HOSTS.map(buildSection);
refresh();
if (HOSTS.length <= OPEN_AT_MOST) openShown(true);
document.addEventListener("keydown", onKey);
window.addEventListener("hashchange", visitHash);
window.addEventListener("popstate", visitHash);
window.addEventListener("beforeprint", () => ui.waiting.forEach(fillSection));
if (location.hash) visitHash();
"""
