"use strict";
// The page around planner_answer() of page.cpp: controls make the words of a command line, and what
// the C++ answers is drawn. No formula stands here.

const $ = (id) => document.getElementById(id);

function el(tag, props = {}, ...children) {
  const made = Object.assign(document.createElement(tag), props);
  made.append(...children);
  return made;
}

// ---- the C++ ------------------------------------------------------------------------------------

async function load() {
  const packed = Uint8Array.from(atob(WASM), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const none = new Proxy({}, { get: () => () => 52 });  // files, clocks: ENOSYS, there are none
  const { instance } = await WebAssembly.instantiate(await new Response(stream).arrayBuffer(),
    { wasi_snapshot_preview1: none });
  const cpp = instance.exports;
  cpp._initialize();
  const put = (text) => {
    const bytes = new TextEncoder().encode(text + "\0"), at = cpp.malloc(bytes.length);
    new Uint8Array(cpp.memory.buffer, at, bytes.length).set(bytes);
    return at;
  };
  const text = (at) => {
    const bytes = new Uint8Array(cpp.memory.buffer, at);
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
  };
  const choices = JSON.parse(text(cpp.planner_choices()));
  const answer = (words, device) => {
    const given = [put(words.join("\n")), put(device)];
    const json = text(cpp.planner_answer(...given));
    given.forEach(cpp.free);
    return json;
  };
  return { choices, answer };
}

// ---- the question -------------------------------------------------------------------------------

const any = (values) => [["", "any"], ...values.map((v) => [String(v), String(v)])];
const same = (values) => values.map((v) => [v, v]);
const divisors = (n) => Array.from({ length: n }, (_, i) => i + 1).filter((d) => n % d === 0);
const powers = (last) => Array.from({ length: 1 + Math.floor(Math.log2(last)) }, (_, i) => 2 ** i);

/// [fieldset, label, flag, kind, what it takes, value, a note]
const fields = (choices) => [
  ["job", "Model", "model", "select", same(choices.models), "llama3-70b"],
  ["job", "Devices", "gpus", "power", [0, 14], "512"],
  ["job", "Device", "device", "select", same(Object.keys(DEVICES)), "h100"],
  ["job", "Sequences of a step", "batch", "power", [0, 14], "1024"],
  ["job", "Tokens of a sequence", "seq-len", "power", [9, 20], "8192"],
  ["job", "Precision", "precision", "select", same(["bf16", "fp16", "fp8", "fp32"]), "bf16"],
  ["job", "Gradients", "gradients", "select", same(choices.gradients), "fp32",
    "in the usual accounting, beside 16-bit weights"],
  ["layout", "Tensor ranks", "tp", "select", any([1, 2, 4, 8]), ""],
  ["layout", "Stages", "pp", "select", any([]), ""],
  ["layout", "Ranks of the batch", "dp", "select", any([]), ""],
  ["layout", "Context ranks", "cp", "select", any([]), ""],
  ["layout", "Expert ranks", "ep", "select", any([]), ""],
  ["layout", "ZeRO", "zero", "select", any([0, 1, 2, 3]), ""],
  ["layout", "Replicas, of ZeRO 3", "replicas", "select", any([]), ""],
  ["layout", "Recomputation", "recompute", "select", any(["none", "selective", "full", "sqrt"]), ""],
  ["layout", "Micro-batch", "micro-batch", "select", any([]), ""],
  ["layout", "Schedule", "schedule", "select", any(choices.schedules), ""],
  ["layout", "Chunks of a stage, for interleaved", "chunks", "select", any([]), ""],
  ["layout", "No sequence parallelism", "no-sequence-parallel", "check", null, ""],
  ["more", "GiB that NCCL takes", "reserve", "text", "2, of one device 0", ""],
  ["more", "Blocks", "layers", "text", "the model's", ""],
  ["more", "Channels", "channels", "text", "the model's", ""],
  ["more", "Attention heads", "heads", "text", "the model's", ""],
  ["more", "Vocabulary", "vocab", "text", "the model's", ""],
  ["more", "Tokens of the run", "train-tokens", "text", "20 a parameter", ""],
  ["more", "Price of a device-hour", "price", "text", "none", ""],
  ["more", "Hours between failures of a device", "mtbf-hours", "text", "50000", ""],
  ["more", "Seconds of a checkpoint", "checkpoint-seconds", "text", "30", ""],
];

function options(select, pairs) {
  const value = select.value;
  select.replaceChildren(...pairs.map(([v, text]) => el("option", { value: v, textContent: text })));
  if (pairs.some(([v]) => v === value)) select.value = value;
}

function control([, label, flag, kind, takes, value, note]) {
  const input = kind === "select" ? el("select", { id: flag })
    : el("input", { id: flag, type: kind === "check" ? "checkbox" : "text", inputMode: "decimal" });
  if (kind === "select") options(input, takes);
  if (kind === "text") input.placeholder = takes;
  if (kind !== "check") input.value = value;
  const all = [el("label", { htmlFor: flag, textContent: label }), input];
  if (kind === "power") {
    const range = el("input", { type: "range", id: flag + "-range", min: takes[0], max: takes[1] });
    range.setAttribute("aria-label", label + ", powers of two");
    range.oninput = () => { input.value = 2 ** range.value; };
    input.oninput = input.follow = () => { range.value = Math.log2(input.value) || 0; };
    input.follow();
    all.push(range);
  }
  if (note) all.push(el("small", { textContent: note }));
  return el("div", { className: "field" }, ...all);
}

/// What the controls say, by flag. Empty ones say nothing.
function said() {
  const given = {};
  for (const [, , flag, kind] of FIELDS) {
    const input = $(flag);
    if (kind === "check" ? input.checked : input.value.trim() !== "")
      given[flag] = kind === "check" ? "" : input.value.trim();
  }
  return given;
}

function say(given) {
  for (const [, , flag, kind, , value] of FIELDS) {
    const input = $(flag);
    if (kind === "check") input.checked = flag in given;
    else if (flag in given && kind === "select" && input.value !== given[flag] &&
      ![...input.options].some((o) => o.value === given[flag]))
      input.append(el("option", { value: given[flag], textContent: given[flag] }));
    if (kind !== "check") input.value = given[flag] ?? value;
    if (input.follow) input.follow();
  }
}

const words = (given) =>
  Object.entries(given).flatMap(([flag, value]) => (value === "" ? ["--" + flag] : ["--" + flag, value]));

/// A layout that is found becomes the only one to look at.
function fixed(l) {
  const given = { tp: l.tp, pp: l.pp, dp: l.dp, cp: l.cp, ep: l.ep, zero: l.zero,
    replicas: l.replicas, recompute: l.recompute, "micro-batch": l.micro_batch };
  if (l.pp > 1) given.schedule = l.schedule;
  if (l.chunks > 1) given.chunks = l.chunks;
  return Object.fromEntries(Object.entries(given).map(([flag, value]) => [flag, String(value)]));
}

/// Choices that depend on the answer: ranks divide devices, and stages and chunks divide blocks.
function offer(report) {
  const ranks = any(divisors(report.gpus)), parts = divisors(report.layers);
  for (const flag of ["dp", "cp", "ep", "replicas"]) options($(flag), ranks);
  options($("pp"), any(parts.filter((n) => n <= report.gpus)));
  options($("chunks"), any($("schedule").value === "interleaved" ? parts.slice(1) : []));
  options($("micro-batch"), any(powers(report.batch)));
  options($("recompute"), any(report.policies));
}

// ---- the answer ---------------------------------------------------------------------------------

const number = (x, digits = 3) =>
  x.toLocaleString("en", x >= 10 ** (digits - 1) || x === 0 ? { maximumFractionDigits: 0 }
    : { minimumSignificantDigits: digits, maximumSignificantDigits: digits });
const size = (bytes) => (bytes < 2 ** 30 ? (bytes / 2 ** 20).toFixed(1) + " MiB" : (bytes / 2 ** 30).toFixed(1) + " GiB");
const time = (seconds) => (seconds < 1 ? number(1e3 * seconds) + " ms" : number(seconds) + " s");
const percent = (share) => (100 * share).toFixed(1) + "%";
const swatch = (name) => el("span", { className: "swatch", style: `background:var(--${name})` });

function layoutText(l) {
  const parts = ["tp", "pp", "dp", "cp", "ep"].filter((axis) => axis !== "ep" || l.ep > 1).map((axis) => `${axis} ${l[axis]}`);
  const schedule = l.pp > 1 ? [l.schedule + (l.chunks > 1 ? ` with ${l.chunks} chunks` : "")] : [];
  return [...parts, `ZeRO ${l.zero}` + (l.replicas > 1 ? `, ${l.replicas} replicas` : ""), `recompute ${l.recompute}`, `micro-batch ${l.micro_batch}`, ...schedule].join(", ");
}

/// Parts of a whole, side by side. `mark` is a line at that value.
function bar(names, values, most, label, mark) {
  const made = el("div", { className: "bar" });
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", label);
  for (const name of names)
    if (values[name] > 0)
      made.append(el("span", { title: name, style: `width:${100 * values[name] / most}%;background:var(--${name})` }));
  if (mark) made.append(el("i", { title: "usable", style: `left:${100 * mark / most}%` }));
  return made;
}

/// Rows in two tables beside each other, where there is room.
function tables(head, rows) {
  const half = Math.ceil(rows.length / 2);
  const table = (part) => el("table", {}, el("thead", {}, row("th", head)), el("tbody", {}, ...part.map((r) => row("td", r))));
  return el("div", { className: "small" }, table(rows.slice(0, half)), table(rows.slice(half)));
}

function row(tag, cells) {
  return el("tr", {}, ...cells.map((cell, i) => el(tag, { className: i === 0 ? "name" : "" }, ...[cell].flat())));
}

function drawFigures(report, l, place) {
  const figure = (name, value, note) => [el("dt", { textContent: name }), el("dd", { textContent: value }, el("small", { textContent: note }))];
  const cost = report.cost;
  const figures = [
    ["Step", time(l.step_seconds), number(l.tokens_per_second) + " tokens a second" + (l.step_seconds < 1 ? ", without kernel launches" : "")],
    ["Memory", size(l.bytes), `of ${size(report.room)} that tensors may take`],
    ["MFU", percent(l.mfu), `${percent(l.mfu_causal)} with half of attention`],
    ["Run", number(cost.days) + " days", `${number(cost.device_hours)} device-hours, ${number(cost.megawatt_hours)} MWh` + (cost.price > 0 ? `, price ${number(cost.price)}` : "")],
    ["Model", number(report.parameters / 1e9) + " B", `parameters; ${number(report.batch * report.seq_len / 1e6)} M tokens a step`],
  ];
  $("figures").replaceChildren(...figures.map((f) => el("div", {}, ...figure(...f))));
  $("chosen").textContent = `Layout ${place + 1}${place === 0 ? ", the fastest" : ""}: ${layoutText(l)}.`;
}

function drawMemory(report, names) {
  const { usual, ladder } = report.memory, sum = (bytes) => names.reduce((all, name) => all + bytes[name], 0);
  const most = 1.02 * Math.max(report.room, sum(usual), ladder ? sum(ladder.bytes) : 0);
  const line = (title, bytes) => [el("span", { textContent: title }),
    bar(names, bytes, most, `${title}: ${size(sum(bytes))}`, report.room), el("span", { textContent: size(sum(bytes)) })];
  const bars = el("div", { className: "bars" }, ...line("usual", usual), ...(ladder ? line("Ladder", ladder.bytes) : []));
  const [unit, per] = most < 2 ** 30 ? ["MiB", 2 ** 20] : ["GiB", 2 ** 30];
  const exact = (bytes) => el("span", { textContent: (bytes / per).toFixed(2), title: bytes + " bytes" });
  const rows = names.map((name) => [[swatch(name), name], exact(usual[name]), ladder ? exact(ladder.bytes[name]) : "-"]);
  const note = (ladder ? `Ladder: what a run of ${ladder.chapter} counts.` : `Ladder: a dash, as ${report.why_no_ladder}.`) +
    ` A rank of stage ${report.memory_stage}. The line is what tensors can have.`;
  $("memory").replaceChildren(bars, tables([unit, "usual", "Ladder"], rows), el("p", { textContent: note }));
}

function drawStep(l, names) {
  const used = names.filter((name) => l.seconds[name] > 0);
  const rows = used.map((name) => [[swatch(name), name], number(l.seconds[name]), percent(l.seconds[name] / l.step_seconds)]);
  $("step").replaceChildren(bar(used, l.seconds, l.step_seconds, `${time(l.step_seconds)} in terms`), tables(["term", "seconds", "share"], rows));
}

/// [kind, micro-batch, chunk, begin, end] of each stage. One stage has no clock: its micro-batches
/// follow each other.
function actions(report) {
  if (report.clock) return report.clock;
  const { forward, backward } = report.stage, each = forward + backward, list = [];
  for (let m = 0; m < report.micros; ++m)
    list.push(["F", m, 0, m * each, m * each + forward], ["B", m, 0, m * each + forward, (m + 1) * each]);
  return [list];
}

function drawClock(report, l) {
  const canvas = $("clock"), many = l.pp > 1 && !report.clock;
  canvas.hidden = many;
  $("clock-text").textContent = many ? "The pipeline has too many actions to draw." : "";
  if (many) return;
  const stages = actions(report), height = Math.max(3, Math.min(22, 420 / stages.length)), scale = devicePixelRatio;
  canvas.style.height = height * stages.length + "px";
  canvas.width = canvas.clientWidth * scale;
  canvas.height = height * stages.length * scale;
  const paint = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue("--" + name);
  const colors = { F: color("attention"), B: color("products"), I: color("products"), W: color("recomputation") };
  const x = canvas.width / l.step_seconds, gap = height > 6 ? scale : 0;
  const box = (begin, end, s, fill) => {
    paint.fillStyle = fill;
    paint.fillRect(begin * x, s * height * scale, Math.max(0.5, (end - begin) * x - ((end - begin) * x > 3 ? scale : 0)), height * scale - gap);
  };
  stages.forEach((list, s) => {
    for (const [what, , , begin, end] of list) box(begin, end, s, colors[what]);
    const busy = l.step_seconds - l.seconds.data - l.seconds.update;
    if (l.seconds.data > 0) box(busy, busy + l.seconds.data, s, color("data"));
    box(busy + l.seconds.data, l.step_seconds, s, color("update"));
  });
  const split = stages.some((list) => list.some(([what]) => what === "W"));
  const text = `${time(l.step_seconds)} from left to right, ${stages.length > 1 ? `a row for each of ${stages.length} stages` : "one stage"}, ` +
    `${report.micros} micro-batches. Light: forward. Dark: backward${split ? " (of inputs; lightest: of weights)" : ""}. ` +
    "Grey: waiting. Red: messages between replicas that nothing hides. Green: the update.";
  $("clock-text").textContent = text;
  canvas.setAttribute("aria-label", "Timeline. " + text);
}

function drawTable(report, place, memory, terms) {
  const plans = report.layouts, shown = SHOW_ALL ? plans.length : Math.min(12, plans.length);
  const slowest = Math.max(...plans.slice(0, shown).map((l) => l.step_seconds)), front = new Set(report.pareto);
  const head = ["", "seconds", "MFU", "bytes", "tp", "pp", "dp", "cp", "ep", "ZeRO", "recompute", "micro", "schedule", "step", "memory"];
  const rows = plans.slice(0, shown).map((l, i) => {
    const button = el("button", { type: "button", textContent: i + 1 + (front.has(i) ? " ●" : "") });
    button.setAttribute("aria-label", `Show layout ${i + 1}` + (front.has(i) ? ", no other is faster and smaller" : ""));
    button.onclick = () => {
      PLACE = i;
      update();
      $("layouts").querySelectorAll("button")[i].focus({ preventScroll: true });
      $("results").scrollIntoView({ block: "start", behavior: "smooth" });
    };
    const schedule = l.pp === 1 ? "-" : l.schedule + (l.chunks > 1 ? ` x${l.chunks}` : "");
    const made = row("td", [button, number(l.step_seconds), percent(l.mfu), size(l.bytes), l.tp, l.pp, l.dp, l.cp, l.ep,
      l.zero + (l.replicas > 1 ? ` x${l.replicas}` : ""), l.recompute, l.micro_batch, schedule, bar(terms, l.seconds, slowest, time(l.step_seconds)),
      bar(memory, l.memory, report.room, size(l.bytes))]
      .map((cell) => (cell instanceof Node ? cell : String(cell))));
    if (i === place) made.setAttribute("aria-current", "true");
    return made;
  });
  $("layouts").replaceChildren(el("thead", {}, row("th", head)), el("tbody", {}, ...rows));
  $("count").textContent = `${report.pruned}. ● No other is faster and smaller.`;
  $("all").hidden = plans.length <= 12;
  $("all").textContent = SHOW_ALL ? "Show 12" : `Show all ${plans.length}`;
  const reasons = report.reasons ?? [];
  $("reason").textContent = reasons.length > 0 ? `Layout 1 against layout 2: ${reasons[0]}.` : "No other layout fits.";
  $("reasons").replaceChildren(...reasons.map((text) => el("li", { textContent: text })));
}

// ---- both ---------------------------------------------------------------------------------------

let FIELDS, PLANNER, REPORT = null, PLACE = 0, SHOW_ALL = false, TIMER = 0;

/// Draws the layout at PLACE of REPORT.
function update() {
  const { terms, memory } = PLANNER.choices, l = REPORT.layouts[PLACE];
  const one = PLACE === 0 ? REPORT : JSON.parse(PLANNER.answer(words({ ...said(), ...fixed(l) }), $("file").value));
  drawFigures(one, l, PLACE);
  drawTable(REPORT, PLACE, memory, terms);
  drawMemory(one, memory);
  drawStep(l, terms);
  drawClock(one, l);
}

/// Asks what the controls say.
function ask() {
  const given = said();
  const report = JSON.parse(PLANNER.answer(words(given), $("file").value));
  const wrong = "error" in report;
  $("alert").hidden = !wrong;
  $("results").hidden = wrong;
  location.replace("#" + new URLSearchParams(given));
  $("alert").firstElementChild.textContent = wrong ? report.error : "";
  if (wrong) return;
  REPORT = report;
  PLACE = 0;
  offer(report);
  $("command").textContent = ["build/cpu/bin/ch23_planner", ...words(given)].join(" ");
  update();
}

async function start() {
  PLANNER = await load();
  FIELDS = fields(PLANNER.choices);
  for (const field of FIELDS) $(field[0]).append(control(field));
  $("choices").open = innerWidth > 860;  // a phone shows the answer first
  say(Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
  const file = () => { $("file").value = DEVICES[$("device").value]; };
  file();
  $("device").addEventListener("input", file);
  $("question").addEventListener("input", () => { clearTimeout(TIMER); TIMER = setTimeout(ask, 60); });
  $("question").addEventListener("submit", (event) => event.preventDefault());
  $("all").onclick = () => { SHOW_ALL = !SHOW_ALL; update(); };
  window.addEventListener("resize", () => REPORT && update());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => REPORT && update());
  ask();
}

start();
