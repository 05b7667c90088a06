# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""First third of the report page's script: helpers, and the drawing of one host (JavaScript in a Python string, see ``report_page``).

Boxes are measured first (plain objects {w, h, put(x, y)}), in several arrangements of sockets and nodes, and only the flattest one that
fits the window is drawn. Layers from back to front: frames, cores, queue lines, CPU numbers, chips (NICs and GPUs).
"""

from __future__ import annotations

DRAWING = r"""
"use strict";

/* ---- helpers ------------------------------------------------------------------------------------------------------------ */

// Every text that came from a host passes through here as a text node or an attribute value; nothing is ever parsed as HTML.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, action] of Object.entries(value)) node.addEventListener(event, action);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}
function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}
function svg(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

// CPU ids of a kernel list such as "0-1,32-33".
function cpusOf(list) {
  const ids = [];
  for (const item of (list || "").split(",")) {
    if (!item) continue;
    const [first, last] = item.split("-").map(Number);
    for (let id = first; id <= (last === undefined ? first : last); id += 1) ids.push(id);
  }
  return ids;
}
function groupBy(list, keyOf) {
  const groups = new Map();
  for (const entry of list) {
    const key = keyOf(entry);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(entry);
  }
  return groups;
}
// The kernel list of CPU ids, the other way round.
function listOf(ids) {
  const runs = [];
  for (const id of [...new Set(ids)].sort((a, b) => a - b)) {
    const run = runs[runs.length - 1];
    if (run && id === run[1] + 1) run[1] = id;
    else runs.push([id, id]);
  }
  return runs.map(([first, last]) => (first === last ? String(first) : first + "-" + last)).join(",");
}
function number(value) {
  return value === null || value === undefined ? "?" : String(Math.round(value * 10) / 10);
}
function plural(count, noun) {
  return count + " " + noun + (count === 1 ? "" : "s");
}
function gib(mib) {
  return mib === null || mib === undefined ? "memory unknown" : number(mib / 1024) + " GiB";
}
function gbps(speed) {
  return speed === null || speed === undefined ? "speed unknown" : number(speed) + " Gb/s";
}
// The CPU of every queue of a planned NIC: where there are fewer CPUs than queues they are used in turn.
function queueCpus(nic) {
  const cpus = nic.queue_cpus;
  return cpus.length ? Array.from({length: nic.queues}, (_, queue) => cpus[queue % cpus.length]) : [];
}
function short(text, length) {
  return text.length > length ? text.slice(0, length - 1) + "\u2026" : text;
}
function nicName(nic) {
  return nic.name || nic.pci || "unnamed";
}

/* ---- boxes: measured, then put ------------------------------------------------------------------------------------------- */

const LETTER = 6.4; // width of a character of the drawing's monospaced 10.5 px
const TITLE_LETTER = 7.4;

// Boxes side by side, in as many rows as the limit asks for; boxes of one row get the same height.
function shelf(boxes, limit, gap) {
  const rows = [];
  let row = null;
  for (const box of boxes) {
    if (!row || row.w + gap + box.w > limit) rows.push((row = {boxes: [], w: -gap, h: 0}));
    row.boxes.push(box);
    row.w += gap + box.w;
    row.h = Math.max(row.h, box.h);
  }
  return {
    w: Math.max(0, ...rows.map(item => item.w)),
    h: Math.max(
      0,
      rows.reduce((sum, item) => sum + item.h + gap, -gap),
    ),
    put(x, y) {
      for (const item of rows) {
        let left = x;
        for (const box of item.boxes) {
          if (box.stretch) box.h = item.h;
          box.put(left, y);
          left += box.w + gap;
        }
        y += item.h + gap;
      }
    },
  };
}

function stack(boxes, gap) {
  const shown = boxes.filter(box => box && box.h > 0);
  return {
    w: Math.max(0, ...shown.map(box => box.w)),
    h: Math.max(
      0,
      shown.reduce((sum, box) => sum + box.h + gap, -gap),
    ),
    put(x, y) {
      for (const box of shown) {
        box.put(x, y);
        y += box.h + gap;
      }
    },
  };
}

// A frame around an inner box, with a title and a quieter note after it: above, or below where queue lines come in from above.
function frame(layer, className, title, note, inner, pad, below) {
  const head = title ? 18 : 14;
  const titleWidth = title ? title.length * TITLE_LETTER + 8 : 0;
  const minimum = titleWidth + Math.min(note.length, title ? 36 : 14) * LETTER;
  return {
    stretch: true,
    w: Math.max(inner.w, minimum) + 2 * pad,
    h: head + inner.h + 2 * pad,
    put(x, y) {
      layer.append(svg("rect", {class: className, x, y, width: this.w, height: this.h, rx: 4}));
      const room = Math.max(10, Math.floor((this.w - 2 * pad - titleWidth) / LETTER + 0.01));
      layer.append(
        svg(
          "text",
          {x: x + pad, y: below ? y + this.h - pad : y + pad + head - 7},
          note.length > room ? svg("title", {}, note) : null,
          title ? svg("tspan", {class: "title"}, title) : null,
          note ? svg("tspan", {class: "sub", dx: title ? 8 : 0}, short(note, room)) : null,
        ),
      );
      inner.put(x + pad, y + pad + (below ? 0 : head));
    },
  };
}

/* ---- a host as the drawing sees it ---------------------------------------------------------------------------------------- */

const MAKERS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel", "0x1da3": "Gaudi"};
const STATES_OF_CPU = {R: "reserved", Q: "reserved, takes interrupts", I: "isolated", "\u2013": "not online after the planned boot"};

// The plan's layout with references resolved: cores know their state and queues, devices whether they are planned.
function readMachine(plan) {
  const layout = plan.layout;
  const reserved = new Set(cpusOf(plan.reserved));
  const isolated = new Set(cpusOf(plan.isolated));
  const irq = new Set(cpusOf(plan.irq));
  const ownIrq = plan.irq !== plan.reserved;
  const stateOf = id => (reserved.has(id) ? "r" : isolated.has(id) ? "i" : "o");
  const nodes = layout.nodes.filter(node => node.id !== null); // an entry without id stands for CPUs that no node owns
  const nodeById = new Map(nodes.map(node => [node.id, node]));
  const sockets = layout.packages.map((socket, index) => (socket.id === null ? "#" + index : String(socket.id)));

  const cores = layout.cores.map(([list, node, socket, llc, type], index) => {
    const ids = cpusOf(list);
    const state = stateOf(ids[0]);
    const home = node === null || layout.nodes[node].id === null ? null : layout.nodes[node];
    const letter = state === "r" ? (ownIrq && ids.some(id => irq.has(id)) ? "Q" : "R") : state === "i" ? "I" : "\u2013";
    return {index, list, ids, state, letter, node: home, socket, llc, type, queues: []};
  });
  const coreOf = new Map(cores.flatMap(core => core.ids.map(id => [id, core])));
  plan.nics.forEach((nic, which) =>
    queueCpus(nic).forEach((cpu, queue) => coreOf.has(cpu) && coreOf.get(cpu).queues.push({which, queue, cpu})),
  );

  const devices = layout.nics.map(nic => {
    const same = item => (nic.pci !== null ? item.pci === nic.pci : nic.name !== null && item.pci === null && item.name === nic.name);
    return {kind: "nic", which: plan.nics.findIndex(same), facts: nic};
  });
  const drawn = new Set(devices.map(device => device.which));
  plan.nics.forEach((nic, which) => drawn.has(which) || devices.push({kind: "nic", which, facts: nic}));
  layout.gpus.forEach(gpu => devices.push({kind: "gpu", which: -1, facts: gpu}));
  for (const device of devices) {
    device.node = nodeById.get(device.facts.numa_node) || null; // unknown, or a node that is not there: nowhere, never node 0
    device.root = device.facts.pcie_root || null;
    device.text = deviceText(plan, device);
  }

  const cachesOf = layout.llcs.map((_, llc) => cores.filter(core => core.llc === llc).length);
  const machine = {plan, nodes, sockets, llcs: layout.llcs, cachesOf, cores, coreOf, devices, irq, ownIrq, stateOf};
  machine.hybrid = cores.some(core => core.type);
  machine.threads = Math.max(1, ...cores.map(core => core.ids.length));
  machine.loads = new Map(plan.numa.map(item => [item.id, item.gbps_per_core]));
  cores.forEach(core => (core.text = coreText(machine, core)));
  return machine;
}

function coreText(machine, core) {
  const place = [
    core.node ? "NUMA node " + core.node.id : machine.nodes.length ? "NUMA node unknown" : null,
    core.socket === null ? null : "socket " + machine.sockets[core.socket],
    core.llc === null ? null : "L" + machine.llcs[core.llc].level + " cache #" + core.llc,
    core.type ? core.type + "-core" : null,
  ].filter(Boolean);
  const queues = core.queues.map(
    item => nicName(machine.plan.nics[item.which]) + " queue " + item.queue + (core.ids.length > 1 ? " on CPU " + item.cpu : ""),
  );
  const name = core.ids.length > 1 ? "Core with CPUs " : "Core with CPU ";
  return [name + core.list + ": " + STATES_OF_CPU[core.letter], place.join(", "), queues.join(", ")].filter(Boolean).join("; ");
}

function deviceText(plan, device) {
  const facts = device.facts;
  const node = facts.numa_node === null ? "NUMA node unknown" : "NUMA node " + facts.numa_node + (device.node ? "" : " (absent)");
  const where = [facts.pci, node, device.root ? "PCIe root " + device.root : "PCIe root unknown"].filter(Boolean).join(", ");
  if (device.kind === "gpu") return "GPU " + (facts.name || MAKERS[facts.vendor] || "of unknown make") + ": " + where;
  if (device.which < 0) {
    return "NIC " + nicName(facts) + ": not planned; " + where + ", " + gbps(facts.speed_mbps === null ? null : facts.speed_mbps / 1000);
  }
  const nic = plan.nics[device.which];
  const cpus = nic.queue_cpus.length ? " on CPUs " + nic.queue_cpus.join(" ") : "";
  return "NIC " + nicName(nic) + ": " + plural(nic.queues, "queue") + cpus + "; " + where + ", " + gbps(nic.gbps);
}

/* ---- cores, caches ---------------------------------------------------------------------------------------------------------- */

const GAP_X = 4;
const GAP_Y = 5;

// Sizes of a core's cell: a letter for its list, then its threads, then the letter of its kind on hybrids.
function cellOf(machine) {
  const digits = String(Math.max(0, ...machine.cores.map(core => core.ids[core.ids.length - 1]))).length;
  const columns = machine.threads <= 2 ? machine.threads : machine.threads <= 4 ? 2 : 4;
  const cell = {w: Math.max(19, digits * LETTER + 8), h: 17, columns, tag: 13, kind: machine.hybrid ? 11 : 0};
  cell.width = cell.tag + columns * cell.w + cell.kind;
  cell.height = Math.ceil(machine.threads / columns) * cell.h;
  return cell;
}

function putCore(canvas, core, x, y) {
  const {cell, layers, machine} = canvas;
  const columns = Math.min(core.ids.length, cell.columns);
  const size = {x, y, width: cell.tag + columns * cell.w + cell.kind, height: Math.ceil(core.ids.length / cell.columns) * cell.h, rx: 2};
  const group = item(canvas, "core", core.text, {class: "core", "data-core": core.index}, size);
  group.append(svg("rect", {class: "cpu " + core.state, ...size}));
  core.ids.forEach((id, place) => {
    const left = x + cell.tag + (place % cell.columns) * cell.w;
    const top = y + Math.floor(place / cell.columns) * cell.h;
    const state = machine.stateOf(id);
    group.append(svg("rect", {class: "cpu " + state, "data-cpu": id, "data-state": state, x: left, y: top, width: cell.w, height: cell.h}));
    if (machine.ownIrq && machine.irq.has(id)) {
      group.append(svg("rect", {class: "irq", x: left + 1, y: top + cell.h - 3, width: cell.w - 2, height: 2.5}));
    }
    layers.digits.append(svg("text", {class: state, x: left + cell.w / 2, y: top + 12.5}, String(id)));
    canvas.anchors.set(id, {x: left, top, bottom: top + cell.h, w: cell.w, node: core.node});
  });
  layers.digits.append(svg("text", {class: "tag " + core.state, x: x + cell.tag / 2, y: y + 12}, core.letter));
  if (core.type) layers.digits.append(svg("text", {class: "tag " + core.state, x: x + size.width - cell.kind / 2, y: y + 12}, core.type));
  group.append(svg("rect", {class: "edge " + core.state, ...size}));
  layers.cells.append(group);
}

// A grid of cores, wider than high, with as few holes as a nearby number of columns allows.
function coreGrid(canvas, list, limit) {
  const wide = canvas.cell.width + GAP_X;
  const high = canvas.cell.height + GAP_Y;
  const most = Math.max(1, Math.floor((limit + GAP_X) / wide));
  const wanted = Math.max(1, Math.ceil(Math.sqrt((2.5 * list.length * high) / wide)));
  let columns = Math.min(wanted, most, list.length);
  let holes = Infinity;
  for (let tried = columns; tried <= Math.min(most, list.length, Math.ceil(wanted * 1.35)); tried += 1) {
    const left = (tried - (list.length % tried)) % tried;
    if (left < holes) [holes, columns] = [left, tried];
  }
  return {
    w: columns * wide - GAP_X,
    h: Math.ceil(list.length / columns) * high - GAP_Y,
    put(x, y) {
      list.forEach((core, place) => putCore(canvas, core, x + (place % columns) * wide, y + Math.floor(place / columns) * high));
    },
  };
}

// The cores of one place by last-level cache; a cache of each core's own is not worth a frame.
function caches(canvas, list, limit) {
  const {llcs, cachesOf} = canvas.machine;
  const groups = groupBy(list, core => (core.llc !== null && cachesOf.some(count => count > 1) ? core.llc : null));
  const boxes = [...groups].map(([llc, own]) => {
    if (llc === null) return coreGrid(canvas, own, limit);
    const size = llcs[llc].size_kib ? " " + number(llcs[llc].size_kib / 1024) + " MiB" : "";
    const elsewhere = cachesOf[llc] > own.length ? ", also elsewhere" : "";
    return frame(canvas.layers.under, "llc", "", "L" + llcs[llc].level + " #" + llc + size + elsewhere, coreGrid(canvas, own, limit - 12), 5, true);
  });
  return shelf(boxes, limit, 6);
}

/* ---- NICs, GPUs ------------------------------------------------------------------------------------------------------------- */

const IDLE_SHOWN = 6; // NICs of one PCIe root that are not planned are drawn up to this many, the rest counted

function chip(canvas, device) {
  const facts = device.facts;
  const gpu = device.kind === "gpu";
  const nic = device.which >= 0 ? canvas.machine.plan.nics[device.which] : null;
  const make = (facts.name || MAKERS[facts.vendor] || "").replace("NVIDIA ", "");
  const first = short(gpu ? "GPU " + make : device.label || nicName(facts), 22);
  const second = gpu ? facts.pci || "" : nic ? (nic.gbps === null ? "speed ?" : gbps(nic.gbps)) + ", " + plural(nic.queues, "queue") : "not planned";
  return {
    w: Math.max(first.length, second.length) * LETTER + 17,
    h: 32,
    put(x, y) {
      const size = {x, y, width: this.w, height: this.h, rx: 3};
      const group = item(canvas, "chip", device.text, {"data-chip": device.kind, "data-nic": nic ? device.which : null}, size);
      fill(group, {}, [
        svg("rect", {class: "chip" + (gpu ? " gpu" : nic ? "" : " idle"), ...size}),
        nic ? svg("rect", {class: "flag n" + (device.which % 6), x: x + 0.5, y: y + 0.5, width: 5, height: this.h - 1}) : null,
        svg("text", {class: nic || gpu ? "label" : "quiet", x: x + 10, y: y + 13}, first),
        svg("text", {class: "quiet", x: x + 10, y: y + 26}, second),
      ]);
      canvas.layers.chips.append(group);
      if (nic) canvas.ports.set(device.which, {x, top: y, bottom: y + this.h, w: this.w, node: device.node});
    },
  };
}

// The NICs and GPUs of one place, each under its PCIe root.
function devices(canvas, list, limit) {
  const roots = [...groupBy(list, device => device.root)].sort(([a], [b]) => (a === null) - (b === null) || (a < b ? -1 : 1));
  const frames = roots.map(([root, own]) => {
    const idle = own.filter(device => device.kind === "nic" && device.which < 0);
    const rest = idle.length > IDLE_SHOWN ? idle.slice(IDLE_SHOWN - 1) : [];
    const shown = own.filter(device => !rest.includes(device));
    if (rest.length) {
      const label = rest.length + " more NICs";
      const text = label + " that are not planned: " + rest.map(device => nicName(device.facts)).join(", ");
      shown.push({kind: "nic", which: -1, facts: {}, label, text});
    }
    const title = root ? "PCIe " + root.replace(/^pci/, "") : "PCIe root unknown";
    const chips = shown.map(device => chip(canvas, device));
    const box = frame(canvas.layers.under, "root", "", title, shelf(chips, limit - 12, 6), 5);
    box.wired = own.some(device => device.which >= 0);
    return box;
  });
  // Where they need several rows, the planned NICs come last, so that their lines start next to the cores.
  const wide = frames.reduce((sum, box) => sum + box.w + 6, -6) > limit;
  return shelf(wide ? [...frames.filter(box => !box.wired), ...frames.filter(box => box.wired)] : frames, limit, 6);
}

/* ---- nodes, sockets --------------------------------------------------------------------------------------------------------- */

const socketTitle = (machine, socket) => (socket === null ? "Socket unknown" : "Socket " + machine.sockets[socket]);

// Between devices and cores: the more planned NICs, the more room for their lines.
function spaceForLines(list) {
  const planned = list.filter(device => device.which >= 0).length;
  return planned ? 26 + 6 * Math.min(planned, 6) : 8;
}

// A NUMA node (null: the cores of none): its devices above its cores. ``inner(limit)`` measures the cores' box.
function nodeBox(canvas, node, limit, inner) {
  const {machine, layers} = canvas;
  const own = node ? machine.devices.filter(device => device.node === node) : [];
  const cores = inner ? inner(limit - 16) : null;
  const strip = own.length ? devices(canvas, own, limit - 16) : null;
  const content = stack([strip, cores], spaceForLines(own));
  if (!node && !machine.nodes.length) return content;
  const load = node ? machine.loads.get(node.id) : null;
  const notes = node ? [inner ? null : "no CPUs", gib(node.memory_mib), load === null || load === undefined ? null : number(load) + " Gb/s per core"] : [];
  return frame(layers.under, "node", node ? "NUMA " + node.id : "NUMA node unknown", notes.filter(Boolean).join(", "), content, 8);
}

// Everything, for one choice of widths. Sockets hold nodes; where a node spans sockets, nodes hold sockets.
function arrange(canvas, room, socketLimit, nodeLimit) {
  const {machine, layers} = canvas;
  const coresOf = (node, socket) => machine.cores.filter(core => core.node === node && (socket === undefined || core.socket === socket));
  const socketsOf = node => [...new Set(coresOf(node).map(core => core.socket))].sort((a, b) => (a === null) - (b === null) || a - b);
  const plain = (node, list, limit) => nodeBox(canvas, node, limit, list.length ? inner => caches(canvas, list, inner) : null);
  const split = machine.nodes.some(node => socketsOf(node).length > 1);
  const boxes = [];
  const bare = [];
  if (!split && machine.cores.some(core => core.socket !== null)) {
    const sockets = [...new Set(machine.cores.map(core => core.socket))].sort((a, b) => (a === null) - (b === null) || a - b);
    const memoryOnly = machine.nodes.filter(node => !coresOf(node).length);
    for (const socket of sockets) {
      const nodes = machine.nodes.filter(node => (memoryOnly.includes(node) ? node.package === socket && socket !== null : socketsOf(node)[0] === socket));
      const inner = nodes.map(node => plain(node, coresOf(node), nodeLimit - 20));
      const homeless = coresOf(null, socket);
      if (homeless.length) inner.push(plain(null, homeless, nodeLimit - 20));
      boxes.push(frame(layers.under, "socket", socketTitle(machine, socket), "", shelf(inner, socketLimit - 20, 10), 10));
    }
    memoryOnly.filter(node => node.package === null || !sockets.includes(node.package)).forEach(node => bare.push(plain(node, [], nodeLimit)));
  } else {
    for (const node of [...machine.nodes, null]) {
      const own = coresOf(node);
      if (!own.length) {
        if (node) bare.push(plain(node, own, nodeLimit));
      } else if (!split) boxes.push(plain(node, own, nodeLimit));
      else {
        const parts = limit => socketsOf(node).map(socket =>
          frame(layers.under, "socket", socketTitle(machine, socket), "", caches(canvas, coresOf(node, socket), Math.min(nodeLimit, limit) - 16), 8));
        boxes.push(nodeBox(canvas, node, socketLimit, limit => shelf(parts(limit), limit, 8)));
      }
    }
  }
  const lost = machine.devices.filter(device => !device.node);
  const title = machine.nodes.length ? "NUMA node unknown" : "NICs and GPUs";
  const note = machine.nodes.length ? "the firmware does not say which" : "this kernel has no NUMA nodes";
  const unknown = lost.length ? frame(layers.under, "unknown-place", title, note, devices(canvas, lost, room - 16), 8) : null;
  return stack([unknown, stack([shelf(boxes, room, 12), shelf(bare, room, 12)], 12)], spaceForLines(lost) + 4);
}

/* ---- the drawing ------------------------------------------------------------------------------------------------------------ */

// A thing that the pointer and the keyboard can pick: it has a name, and a ring that shows the focus.
function item(canvas, kind, text, attributes, {x, y, width, height}) {
  const group = svg("g", {role: "img", tabindex: "-1", "aria-label": text, ...attributes}, svg("title", {}, text));
  group.append(svg("rect", {class: "ring", x: x - 2, y: y - 2, width: width + 4, height: height + 4, rx: 4}));
  canvas.items.push({group, kind, x: x + width / 2, y: y + height / 2});
  return group;
}

// From each planned NIC's chip to the cell of every queue's CPU; returns how many lines.
function putWires(canvas) {
  const {machine, layers} = canvas;
  const wires = machine.plan.nics.flatMap((nic, which) =>
    queueCpus(nic)
      .map((cpu, queue) => ({which, queue, cpu, count: nic.queues, port: canvas.ports.get(which), target: canvas.anchors.get(cpu)}))
      .filter(wire => wire.target),
  );
  wires.sort((a, b) => a.which - b.which || a.target.x - b.target.x || a.target.top - b.target.top);
  const arriving = groupBy(wires, wire => wire.cpu);
  const departing = groupBy(wires, wire => wire.which);
  for (const wire of wires) {
    const {port, target} = wire;
    const down = target.top >= port.bottom;
    const start = departing.get(wire.which).indexOf(wire);
    const end = arriving.get(wire.cpu).indexOf(wire);
    const x1 = (port.x + 8 + ((port.w - 16) * (start + 0.5)) / wire.count).toFixed(1);
    const x2 = (target.x + (target.w * (end + 1)) / (arriving.get(wire.cpu).length + 1)).toFixed(1);
    const y1 = down ? port.bottom : port.top;
    const y2 = down ? target.top + 1 : target.bottom - 1;
    const bend = Math.max(12, Math.abs(y2 - y1) / 2) * (down ? 1 : -1);
    const far = port.node === null || target.node !== port.node;
    const marks = {"data-nic": wire.which, "data-core": machine.coreOf.get(wire.cpu).index};
    const names = " n" + (wire.which % 6) + (far ? " far" : "");
    const path = `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
    layers.wires.append(
      svg("path", {...marks, class: "queue" + names, "data-queue": wire.queue, "data-cpu": wire.cpu, d: path}),
      svg("circle", {...marks, class: "end" + names, cx: x2, cy: y2, r: 1.8}),
    );
  }
  return wires.length;
}

// The drawing of a host, at most ``room`` pixels wide where its parts allow it.
function drawHost(plan, room) {
  const machine = readMachine(plan);
  const layers = {};
  for (const name of ["under", "cells", "wires", "digits", "chips"]) layers[name] = svg("g", {class: name});
  layers.digits.setAttribute("aria-hidden", "true");
  const canvas = {machine, layers, cell: cellOf(machine), items: [], anchors: new Map(), ports: new Map()};

  // Of several choices of widths the flattest arrangement that fits is drawn, or the narrowest if none fits.
  const least = canvas.cell.width + 60;
  const tried = [1, 2, 3, 4].flatMap(across => [1, 2, 4].map(inside => {
    const socketLimit = (room - 12 * (across - 1)) / across;
    return arrange(canvas, room, socketLimit, Math.max(least, (socketLimit - 20) / inside));
  }));
  const fitting = tried.filter(box => box.w <= room);
  const best = fitting.length ? fitting.reduce((a, b) => (b.h < a.h ? b : a)) : tried.reduce((a, b) => (b.w < a.w ? b : a));
  best.put(1, 1);
  const wires = putWires(canvas);

  const size = {width: Math.ceil(best.w + 2), height: Math.ceil(best.h + 2)};
  const counts = [[machine.sockets.length, "socket"], [machine.nodes.length, "NUMA node"], [machine.cores.length, "core"], [wires, "queue line"]];
  const summary = counts.map(([count, noun]) => plural(count, noun)).join(", ");
  const extent = {...size, viewBox: `0 0 ${size.width} ${size.height}`};
  const picture = svg("svg", {role: "group", "aria-label": "Drawing: " + summary, ...extent}, Object.values(layers));
  const readout = el("p", {class: "readout", "aria-live": "polite"});
  interact(picture, canvas.items, readout, summary);
  const key = legend(machine, wires, layers.wires.querySelector(".far") !== null);
  const tall = size.height > 0.8 * size.width; // on paper: over several pages rather than too small to read
  return el("div", {class: "drawing" + (tall ? " tall" : "")}, key, el("div", {class: "scroll"}, picture), readout);
}

/* Pointing at or focusing a NIC or a core brings out its lines and says what it is; arrow keys walk within NICs and GPUs, or within cores. */
function interact(picture, items, readout, summary) {
  const rest = summary + ". Point at a NIC or a core, or reach them with Tab and the arrow keys, to see its queues.";
  const byElement = new Map(items.map(item => [item.group, item]));
  const pick = group => {
    picture.querySelectorAll(".on").forEach(node => node.classList.remove("on"));
    const name = group && (group.dataset.nic !== undefined ? "nic" : group.dataset.core !== undefined ? "core" : null);
    const mine = name
      ? picture.querySelectorAll(
          `[data-queue][data-${name}="${group.dataset[name]}"], .end[data-${name}="${group.dataset[name]}"]`,
        )
      : [];
    mine.forEach(node => node.classList.add("on"));
    picture.classList.toggle("picked", mine.length > 0);
    readout.textContent = group ? group.getAttribute("aria-label") : rest;
  };
  const own = event => event.target.closest("g[tabindex]");
  picture.addEventListener("pointerover", event => pick(own(event) || picture.querySelector("g[tabindex]:focus-visible")));
  picture.addEventListener("pointerleave", () => pick(picture.querySelector("g[tabindex]:focus-visible")));
  picture.addEventListener("focusin", event => pick(own(event)));
  picture.addEventListener("focusout", () => pick(null));
  for (const kind of ["chip", "core"]) {
    const list = items.filter(item => item.kind === kind);
    if (list.length) list[0].group.setAttribute("tabindex", "0");
  }
  picture.addEventListener("keydown", event => {
    const from = byElement.get(own(event));
    if (!from || event.ctrlKey || event.metaKey || event.altKey) return;
    const list = items.filter(item => item.kind === from.kind);
    const place = list.indexOf(from);
    const away = {ArrowDown: 1, ArrowUp: -1}[event.key];
    let next = {ArrowRight: list[place + 1], ArrowLeft: list[place - 1], Home: list[0], End: list[list.length - 1]}[event.key];
    if (away) {
      const distance = item => (item.y - from.y) * away + 3 * Math.abs(item.x - from.x);
      next = list
        .filter(item => (item.y - from.y) * away > 4)
        .reduce((near, item) => (!near || distance(item) < distance(near) ? item : near), null);
    }
    if (next === undefined && !["ArrowRight", "ArrowLeft"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    if (!next) return;
    from.group.setAttribute("tabindex", "-1");
    next.group.setAttribute("tabindex", "0");
    next.group.focus();
  });
  pick(null);
}

function legend(machine, wires, far) {
  const sample = (state, letter, irq) => svg("svg", {width: 34, height: 18, "aria-hidden": "true"},
    svg("rect", {class: "cpu " + state, x: 1, y: 1, width: 32, height: 16, rx: 2}),
    irq ? svg("rect", {class: "irq", x: 14, y: 13.5, width: 18, height: 2.5}) : null,
    svg("rect", {class: "edge " + state, x: 1, y: 1, width: 32, height: 16, rx: 2}),
    svg("g", {class: "digits"}, svg("text", {class: "tag " + state, x: 8, y: 12.5}, letter), svg("text", {class: state, x: 23, y: 12.5}, "0")));
  const line = names => svg("svg", {width: 30, height: 12, "aria-hidden": "true"}, svg("path", {class: "queue n0" + names, d: "M1 6H29"}));
  const off = machine.cores.some(core => core.ids.some(id => machine.stateOf(id) === "o"));
  const entries = [
    [sample("r", "R"), machine.ownIrq ? "reserved" : "reserved, takes interrupts"],
    machine.ownIrq && [sample("r", "Q", true), "reserved, takes interrupts (barred CPUs)"],
    [sample("i", "I"), "isolated"],
    off && [sample("o", "\u2013"), "not online after the planned boot"],
    machine.threads > 1 && ["one box: one core with its siblings"],
    machine.hybrid && ["P, E: kind of core"],
    wires && [line(""), "queue to its CPU"],
    far && [line(" far"), "from another or an unknown node"],
  ];
  return el("div", {class: "legend"}, entries.filter(Boolean).map(entry => el("span", {}, entry)));
}
"""
