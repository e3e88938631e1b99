"use strict";
// Asks for the figures once a second, keeps two minutes of them, and draws. Texts are set as texts, never as markup.

const KEPT = 120;
const EVERY_MS = 1000;
const WINDOW = 10;
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function draw(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// What figures look like.
function count(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  const size = Math.abs(number);
  if (size >= 1e6) return `${(number / 1e6).toFixed(1)} M`;
  if (size >= 1e4) return `${(number / 1e3).toFixed(1)} k`;
  if (size >= 100 || Number.isInteger(number)) return Math.round(number).toLocaleString("en");
  return number.toFixed(size >= 10 ? 1 : 2);
}

function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  while (Math.abs(number) >= 1024 && at < units.length - 1) {
    number /= 1024;
    at += 1;
  }
  return `${at === 0 || number >= 100 ? Math.round(number) : number.toFixed(1)} ${units[at]}`;
}

function time(us) {
  if (us === null || us === undefined) return "–";
  if (us >= 1e6) return `${(us / 1e6).toFixed(us >= 1e7 ? 0 : 1)} s`;
  if (us >= 1000) return `${(us / 1000).toFixed(us >= 1e4 ? 0 : 1)} ms`;
  return `${Math.round(us)} µs`;
}

const many = (number, noun, nouns = `${noun}s`) => `${count(number)} ${number === 1 ? noun : nouns}`;

const percent = (share) => (share === null ? "–" : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`);

function duration(seconds) {
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${Math.floor(seconds) % 60} s` : `${Math.floor(seconds)} s`;
}

// Where figures stand.
function at(document, path) {
  let value = document;
  for (const name of path.split(".")) value = value?.[name];
  return typeof value === "number" ? value : typeof value === "boolean" ? Number(value) : null;
}

// A sample: the answer, and what was learnt by comparing it with the one before.
const samples = [];

function seconds(from, to) {
  return (at(to.status, "uptimeMillis") - at(from.status, "uptimeMillis")) / 1000;
}

/// By how much a figure grew each second.
function rate(from, to, path) {
  const [before, after, took] = [at(from.status, path), at(to.status, path), seconds(from, to)];
  return before === null || after === null || took <= 0 ? null : Math.max(0, after - before) / took;
}

// The server's ranges: doubled each time, with half steps between 2 ms and 2 s.
function rangeEnd(from) {
  if (from === 0) return 2;
  if (from < 2048 || from >= 2 ** 21) return 2 * from;
  return Number.isInteger(Math.log2(from)) ? 1.5 * from : (4 / 3) * from;
}

/// The time that this share of the operations between two samples did not exceed, in microseconds.
function percentile(from, to, kind, share) {
  const before = new Map((from.status.opLatencies[kind].histogram ?? []).map((range) => [range.micros, range.count]));
  const ranges = (to.status.opLatencies[kind].histogram ?? [])
    .map((range) => [range.micros, range.count - (before.get(range.micros) ?? 0)])
    .filter(([, number]) => number > 0);
  const all = ranges.reduce((sum, [, number]) => sum + number, 0);
  let wanted = share * all;
  for (const [begin, number] of ranges) {
    if (wanted <= number) return begin + (rangeEnd(begin) - begin) * (wanted / number);
    wanted -= number;
  }
  return null;
}

const ratio = (part, whole) => (part === null || !whole ? null : part / whole);

const CHARTS = [
  {
    title: "Operations per second",
    format: count,
    lines: ["insert", "query", "update", "delete", "getmore", "command"].map((name) => [
      name, (from, to) => rate(from, to, `opcounters.${name}`),
    ]),
  },
  {
    title: "Latency",
    note: "Half of the operations, and 99 of 100, took no longer. Of the last five seconds.",
    format: time,
    lines: [
      ["reads, half", (from, to, back) => percentile(back(5), to, "reads", 0.5)],
      ["reads, 99 %", (from, to, back) => percentile(back(5), to, "reads", 0.99)],
      ["writes, half", (from, to, back) => percentile(back(5), to, "writes", 0.5)],
      ["writes, 99 %", (from, to, back) => percentile(back(5), to, "writes", 0.99)],
    ],
  },
  {
    title: "Cache",
    note: "What is in memory, and how much of it is not in the data files yet.",
    format: bytes,
    base: 1024,
    lines: [
      ["filled", (from, to) => at(to.status, "tenon.common.cacheBytes")],
      ["changed", (from, to) => at(to.status, "tenon.common.dirtyBytes")],
      // Far above the others as long as the cache has room: a figure without a line.
      ["at most", (from, to) => at(to.status, "tenon.common.cacheBytesMax"), "figure"],
    ],
  },
  {
    title: "Data files",
    format: (number) => `${bytes(number)}/s`,
    base: 1024,
    lines: [
      ["read", (from, to) => rate(from, to, "tenon.common.bytesRead")],
      ["written", (from, to) => rate(from, to, "tenon.common.bytesWritten")],
    ],
  },
  {
    title: "Log",
    format: (number) => `${bytes(number)}/s`,
    base: 1024,
    lines: [["written", (from, to) => rate(from, to, "tenon.log.bytesWritten")]],
  },
  {
    title: "Group commit",
    note: "Entries of the log that went to disk together.",
    format: count,
    lines: [
      ["entries in a group", (from, to) => ratio(rate(from, to, "tenon.log.entries"), rate(from, to, "tenon.log.groups"))],
      ["syncs per second", (from, to) => rate(from, to, "tenon.log.syncs")],
    ],
  },
  {
    title: "Checkpoints",
    note: "How long the last one took; the second line is up while one is taken.",
    format: (ms) => time(ms * 1000),
    lines: [
      ["last", (from, to) => at(to.status, "tenon.checkpoints.lastMillis")],
      ["running", (from, to) => at(to.status, "tenon.checkpoints.running") * at(to.status, "tenon.checkpoints.lastMillis")],
    ],
  },
  {
    title: "Held back",
    note: "Time that writers waited each second because something could not keep up.",
    format: time,
    lines: [
      ["by the engine", (from, to) => rate(from, to, "tenon.common.writeDelayMicros")],
      ["by followers", (from, to) => rate(from, to, "flowControl.timeAcquiringMicros")],
      ["by locks", (from, to) => lockWaits(from, to)],
    ],
  },
  {
    title: "Connections",
    format: count,
    lines: [
      ["open", (from, to) => at(to.status, "connections.current")],
      ["busy", (from, to) => at(to.status, "connections.active")],
      ["waiting for a lock", (from, to) => at(to.status, "globalLock.currentQueue.total")],
    ],
  },
  {
    title: "Network",
    format: (number) => `${bytes(number)}/s`,
    base: 1024,
    lines: [
      ["in", (from, to) => rate(from, to, "network.physicalBytesIn")],
      ["out", (from, to) => rate(from, to, "network.physicalBytesOut")],
    ],
  },
];

function lockWaits(from, to) {
  const ofCollections = (status) => Object.values(status.locks.Collection.timeAcquiringMicros ?? {});
  const all = ({ status }) => ofCollections(status).reduce((sum, us) => sum + us, at(status, "tenon.locks.waitMicros"));
  return Math.max(0, all(to) - all(from)) / seconds(from, to);
}

// Charts.
const WIDTH = 400;
const HEIGHT = 140;
const TOP = 16;

/// A round figure that is not below `most`, in units of powers of `base`.
function ceiling(most, base = 10) {
  if (!(most > 0)) return 1;
  const unit = base ** Math.floor(Math.log(most) / Math.log(base));
  return [1, 2, 5, 10, 20, 50, 100, 200, 500, 1024].map((step) => step * unit).find((step) => step >= most * 0.999);
}

class Chart {
  constructor(definition) {
    this.definition = definition;
    this.values = definition.lines.map(() => []);
    this.svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    this.svg.append(draw("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1 }));
    this.svg.append(draw("line", { class: "grid", x1: 0, x2: WIDTH, y1: TOP, y2: TOP }));
    this.paths = definition.lines.map((_, position) => draw("path", { class: `c${position}` }));
    this.hair = draw("line", { class: "hair", y1: TOP, y2: HEIGHT, visibility: "hidden" });
    this.svg.append(...this.paths, this.hair);
    this.figures = definition.lines.map(() => make("b"));
    this.most = make("p");
    const legend = definition.lines.map(([name], position) =>
      make("li", { class: `c${position}` }, make("span", {}, `${name} `), this.figures[position]));
    this.place = make("div", { class: "chart", role: "group", "aria-label": definition.title, "data-chart": "" },
      make("h2", {}, definition.title), this.most, this.svg, make("ul", { class: "legend" }, ...legend));
    if (definition.note) this.place.append(make("p", {}, definition.note));
    this.pointed = null;
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => { this.pointed = null; this.show(); });
    byId("charts").append(this.place);
  }

  add(from, to, back) {
    this.definition.lines.forEach(([, value], position) => {
      const values = this.values[position];
      values.push(from ? value(from, to, back) : null);
      if (values.length > KEPT) values.shift();
    });
    this.show();
  }

  forget() {
    this.values.forEach((values) => { values.length = 0; });
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const there = Math.round(((event.clientX - box.left) / box.width) * (KEPT - 1));
    this.pointed = there - (KEPT - this.values[0].length);
    this.show();
  }

  show() {
    const hasLine = (position) => this.definition.lines[position][2] !== "figure";
    const all = this.values.filter((_, position) => hasLine(position)).flat().filter((value) => value !== null);
    const most = ceiling(Math.max(0, ...all), this.definition.base);
    this.most.textContent = `up to ${this.definition.format(most)}`;
    this.values.forEach((values, position) => {
      const left = KEPT - values.length;
      let path = "";
      values.forEach((value, index) => {
        if (value === null || !hasLine(position)) return;
        const x = ((left + index) / (KEPT - 1)) * WIDTH;
        const y = HEIGHT - 1 - (value / most) * (HEIGHT - 1 - TOP);
        const goesOn = index > 0 && values[index - 1] !== null;
        path += `${goesOn ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
        if (!goesOn) path += "h0.1";
      });
      this.paths[position].setAttribute("d", path);
      const shown = this.pointed !== null && values[this.pointed] !== undefined ? values[this.pointed] : values.at(-1);
      this.figures[position].textContent = this.definition.format(shown ?? null);
    });
    const isPointed = this.pointed !== null && this.pointed >= 0 && this.pointed < this.values[0].length;
    this.hair.setAttribute("visibility", isPointed ? "visible" : "hidden");
    if (isPointed) {
      const x = ((KEPT - this.values[0].length + this.pointed) / (KEPT - 1)) * WIDTH;
      this.hair.setAttribute("x1", x);
      this.hair.setAttribute("x2", x);
    }
    this.place.dataset.drawn = String(all.length > 0);
  }
}

// Tables.
function table(id, heads, rows, otherwise) {
  const place = byId(id);
  if (rows.length === 0) {
    place.replaceChildren(make("p", {}, otherwise));
    return;
  }
  const cell = (tag, value, isNumber) => make(tag, isNumber ? { class: "number" } : {}, String(value ?? ""));
  const head = make("tr", {}, ...heads.map(([name, isNumber]) => cell("th", name, isNumber)));
  const body = rows.map((row) => make("tr", {}, ...row.map((value, position) => cell("td", value, heads[position][1]))));
  place.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

function showTables(from, now) {
  const cannot = (name, otherwise) => (now.refused[name] ? `Not shown: ${now.refused[name]}` : otherwise);
  const before = new Map((from?.collections ?? []).map((row) => [row.ns, row]));
  const took = from ? seconds(from, now) : 0;
  const collections = now.collections
    .map((row) => {
      const old = before.get(row.ns) ?? row;
      const grown = (name) => (took > 0 ? Math.max(0, row[name] - old[name]) / took : 0);
      return { ns: row.ns, share: grown("time") / 1e6, reads: grown("reads"), writes: grown("writes"), count: row.count };
    })
    .sort((one, other) => other.share - one.share || other.count - one.count)
    .slice(0, 12);
  table("collections",
    [["collection"], ["time", true], ["reads/s", true], ["writes/s", true], ["operations since the start", true]],
    collections.map((row) => [row.ns, percent(row.share), count(row.reads), count(row.writes), count(row.count)]),
    cannot("top", "Nothing has been used yet."));
  table("running",
    [["since", true], ["operation"], ["on"], ["plan"], ["waits"], ["number", true]],
    now.running.filter((row) => row.us >= 100000)
      .map((row) => [time(row.us), row.command ?? row.op, row.ns, row.plan, row.waits ? "for a lock" : "", row.id]),
    cannot("running", "None."));
  table("slow",
    [["when (UTC)"], ["took", true], ["operation"], ["on"], ["plan"], ["keys", true], ["documents", true], ["returned", true], ["error"]],
    now.slow.map((row) => [
      String(row.time ?? "").slice(0, 19).replace("T", " "), row.ms ? time(row.ms * 1000) : "under 1 ms", row.command, row.ns, row.plan,
      row.keys, row.docs, row.returned, row.error,
    ]),
    cannot("slow", "None in the log."));
  byId("set").hidden = !now.set;
  if (now.set) {
    const members = now.set.members ?? [];
    const primary = members.find((member) => member.state === 1)?.optimeDate;
    table("members",
      [["member"], ["state"], ["behind by", true], ["ping", true]],
      members.map((member) => [
        member.name, member.stateStr,
        primary && member.optimeDate && member.health ? duration(Math.max(0, primary - member.optimeDate) / 1000) : "",
        member.pingMs === undefined || !member.health ? "" : `${member.pingMs} ms`,
      ]), "No members are known.");
  }
  const figures = [];
  for (const [group, inner] of Object.entries(now.status.tenon.engine)) {
    if (typeof inner !== "object") figures.push([group, inner]);
    else for (const [name, value] of Object.entries(inner ?? {})) figures.push([`${group}.${name}`, value]);
  }
  table("figures", [["figure"], ["value", true]],
    figures.map(([name, value]) => [name, /bytes/i.test(name) ? bytes(value) : typeof value === "number" ? count(value) : value]),
    "This engine counts nothing.");
}

/// What goes on inside, a sentence for each thing.
function words(from, now) {
  const status = now.status;
  const grew = (path) => (from ? rate(from, now, path) : null);
  const hasLog = at(status, "tenon.log.on") !== 0;
  const said = [];
  const say = (sentence, isBad = false) => said.push([sentence, isBad]);
  const [cached, most, dirty] = ["cacheBytes", "cacheBytesMax", "dirtyBytes"].map((name) => at(status, `tenon.common.${name}`));
  if (cached !== null) {
    say(most
      ? `The cache of the engine ${now.engine} holds ${bytes(cached)} of ${bytes(most)} (${percent(cached / most)}). When it is full, what was not used lately is evicted and read again when it is needed.`
      : `The engine ${now.engine} holds ${bytes(cached)} in memory, and all data stay there: nothing is evicted when memory runs short.`);
  }
  if (dirty !== null) say(`${bytes(dirty)} of that are changes that the data files do not have yet; a checkpoint writes them. ${hasLog ? "What of them is in the log on disk outlives a crash." : "A crash loses them, as there is no log."}`);
  const [read, evicted] = [grew("tenon.common.pagesRead"), grew("tenon.common.pagesEvicted")];
  if (read !== null) say(`${count(read)} pages a second are read into the cache and ${count(evicted)} are evicted. Many of both mean that what is in use does not fit.`);
  const [taken, failed] = [at(status, "tenon.checkpoints.count"), at(status, "tenon.checkpoints.failed")];
  say(`${taken === 1 ? "One checkpoint was" : `${count(taken)} checkpoints were`} taken since the start; the last one took ${time(1000 * at(status, "tenon.checkpoints.lastMillis"))}, the longest ${time(1000 * at(status, "tenon.checkpoints.maxMillis"))}.${at(status, "tenon.checkpoints.running") ? " One is being taken now." : ""}`);
  if (failed > 0) say(`${many(failed, "checkpoint")} failed: is the disk full? The log grows until one succeeds.`, true);
  const [last, durable, kept] = [at(status, "tenon.log.lastSeq"), at(status, "tenon.log.durableSeq"), at(status, "tenon.checkpoints.durableSeq")];
  // Without one nothing but a checkpoint makes changes durable.
  const [replayed, lost] = (hasLog ? [durable - kept, last - durable] : [0, last - kept]).map((entries) => Math.max(0, entries));
  say(hasLog
    ? `A crash now would have ${many(replayed, "entry", "entries")} of the log replayed at the next start, and lose ${count(lost)} that ${lost === 1 ? "is" : "are"} not on disk yet.`
    : `There is no log (--nojournal): a crash now would lose ${many(lost, "entry", "entries")}, all that was written since the last checkpoint.`, !hasLog && lost > 0);
  const [groups, syncs] = [grew("tenon.log.groups"), grew("tenon.log.syncs")];
  if (groups > 0) say(`Writes share their way to disk: on average ${(grew("tenon.log.entries") / groups).toFixed(1)} entries of the log go in one group; ${count(syncs)} syncs a second take ${time(ratio(grew("tenon.log.syncMicros"), syncs))} each.`);
  const waits = grew("tenon.log.waitsForRoom");
  if (waits > 0) say(`${count(waits)} writers a second wait because the log's buffer is full: the disk of the log is too slow for what is written.`, true);
  const held = grew("tenon.common.writeDelayMicros");
  if (held !== null) {
    say(held > 0
      ? `Writers are held back for ${time(held)} each second, because the engine cannot write as fast as it is written to.`
      : "No writer is held back by the engine.", held > 100000);
  }
  const [snapshots, history] = [at(status, "tenon.common.snapshotsOpen"), at(status, "tenon.common.historyBytes")];
  if (snapshots !== null) say(`${many(snapshots, "snapshot")} ${snapshots === 1 ? "is" : "are"} open${history === null ? "" : `; for them ${bytes(history)} of former versions are kept`}.`);
  const waiting = at(status, "globalLock.currentQueue.total");
  if (waiting > 0) say(`${many(waiting, "operation")} waiting for a lock.`, true);
  const [gathered, allowed] = [at(status, "tenon.operationMemory.bytes"), at(status, "tenon.operationMemory.bytesMax")];
  say(`Operations have gathered ${bytes(gathered)} in memory for sorts, groups and the like; all together may have ${bytes(allowed)}.`);
  const builds = at(status, "tenon.indexBuilds.running");
  if (builds > 0) say(`${many(builds, "index build")} running.`);
  if (at(status, "flowControl.isLagged")) say("Writers are held back because a majority of the members shows late what is written.", true);
  byId("words").replaceChildren(...said.map(([sentence, isBad]) => make("li", isBad ? { class: "bad" } : {}, sentence)));
}

// The beat.
const charts = CHARTS.map((definition) => new Chart(definition));
let timer = null;
let asks = false;

function state(kind, sentence) {
  byId("state").className = kind;
  byId("state").textContent = sentence;
}

function take(now) {
  const former = samples.at(-1);
  // The server was started again: nothing can be compared with what was before.
  if (former && seconds(former, now) <= 0) {
    samples.length = 0;
    charts.forEach((chart) => chart.forget());
  }
  const from = samples.at(-1);
  samples.push(now);
  if (samples.length > KEPT) samples.shift();
  const back = (steps) => samples.at(-1 - Math.min(steps, samples.length - 1));
  charts.forEach((chart) => chart.add(from, now, back));
  const before = samples.length > 1 ? back(WINDOW) : null;
  words(before, now);
  showTables(before, now);
  const { status } = now;
  byId("title").textContent = `Tenon on ${status.host}`;
  document.title = `${status.host} · Tenon`;
  const role = now.set ? `, ${String(now.set.members?.find((member) => member.self)?.stateStr ?? "member").toLowerCase()} of ${now.set.set}` : "";
  byId("about").textContent = `Version ${status.tenon.version}, engine ${now.engine}${role}. Up for ${duration(status.uptime)}, ${count(status.mem.resident)} MB of memory.`;
}

async function beat() {
  timer = null;
  if (asks) return;
  asks = true;
  try {
    const reply = await fetch("status.json", { cache: "no-store", credentials: "same-origin" });
    if (!reply.ok) throw new Error(`${reply.status}: ${(await reply.text()).trim()}`);
    take(await reply.json());
    state("live", "Live");
  } catch (error) {
    state("lost", `No figures (${error.message}). Trying again.`);
  }
  asks = false;
  if (!document.hidden && timer === null) timer = setTimeout(beat, EVERY_MS);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(timer);
    timer = null;
    state("", "Paused while nobody looks");
  } else if (timer === null) {
    beat();
  }
});
beat();
