"use strict";
const subjects = JSON.parse(document.getElementById("data").textContent);
const W = innerWidth < 640 ? 380 : 520, H = 250, // a phone gets fewer units across, so that letters stay readable
  LEFT = 52, RIGHT = 12, TOP = 10, BOTTOM = 30;
const COLOURS = ["--blue", "--green", "--amber", "--violet", "--red"].map(name => `var(${name})`);
const by = id => document.getElementById(id);

// Elements. Text only ever enters as text, so a name can be anything.
function make(tag, attributes = {}, text) {
  const isDrawing = ["svg", "title", "g", "path", "line", "rect", "text", "circle", "polygon"].includes(tag);
  const element = isDrawing ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
const show = (value, digits = 3) => value === null || value === undefined ? "–"
  : Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(1) : String(+value.toPrecision(digits));
const percent = value => value === null || value === undefined ? "–" : `${Math.round(100 * value)}%`;
const steps = value => value >= 1e6 ? `${+(value / 1e6).toPrecision(3)}M` : value >= 1e3 ? `${+(value / 1e3).toPrecision(3)}k` : String(+value.toPrecision(3));

function scale(low, high, from, to, isLog) {
  if (isLog) { const a = Math.log(low), b = Math.log(high); return v => from + (to - from) * (Math.log(Math.max(v, low)) - a) / (b - a || 1); }
  return v => from + (to - from) * (v - low) / (high - low || 1);
}
function ticks(low, high, isLog) {
  if (isLog) {
    const found = [], multiples = high / low < 200 ? [1, 2, 5] : [1];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1e-9; power++) found.push(...multiples.map(m => m * 10 ** power));
    return found.filter(v => v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9));
  }
  const raw = (high - low) / 5.5 || 1, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(m => m * unit).find(s => s >= raw);
  const found = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) found.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return found;
}

// A frame with axes. Options: x, y ranges; log (of y), xlog, label (of x), xform, yform, caption.
function frame(title, o) {
  const box = make("figure"), svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img" });
  svg.append(make("title", {}, title));
  const X = scale(o.x[0], o.x[1], LEFT, W - RIGHT, o.xlog), Y = scale(o.y[0], o.y[1], H - BOTTOM, TOP, o.log);
  for (const v of ticks(...o.x, o.xlog)) {
    svg.append(make("line", { x1: X(v), x2: X(v), y1: H - BOTTOM, y2: H - BOTTOM + 4, class: "axis" }));
    svg.append(make("text", { x: X(v), y: H - BOTTOM + 16, "text-anchor": "middle" }, (o.xform || steps)(v)));
  }
  for (const v of ticks(...o.y, o.log)) {
    svg.append(make("line", { x1: LEFT, x2: W - RIGHT, y1: Y(v), y2: Y(v), class: "axis" }));
    svg.append(make("text", { x: LEFT - 6, y: Y(v) + 4, "text-anchor": "end" }, (o.yform || show)(v)));
  }
  svg.append(make("text", { x: W - RIGHT, y: H - 2, "text-anchor": "end" }, o.label || "environment steps per seed"));
  box.append(make("h3", {}, title), svg);
  const readout = make("div", { class: "readout" });
  box.append(readout, make("figcaption", {}, o.caption || ""));
  by("figures").append(box);
  return { svg, X, Y, readout, o };
}
function rules(f, list) {
  list.forEach((rule, index) => {
    const isAcross = rule.y !== undefined;
    if (isAcross ? f.o.log && rule.y <= 0 : rule.x < f.o.x[0] || rule.x > f.o.x[1]) return;
    const [x1, x2] = isAcross ? [LEFT, W - RIGHT] : [f.X(rule.x), f.X(rule.x)], [y1, y2] = isAcross ? [f.Y(rule.y), f.Y(rule.y)] : [TOP, H - BOTTOM];
    const isLeft = isAcross || x1 > W - 90; // the text ends here rather than begins
    f.svg.append(make("line", { x1, x2, y1, y2, class: "rule", ...(rule.colour && { style: `stroke:${rule.colour}` }) }));
    f.svg.append(make("text", { x: isLeft ? x2 - (isAcross ? 0 : 4) : x2 + 4, y: isAcross ? y1 - 4 : TOP + 12 + 14 * index, "text-anchor": isLeft ? "end" : "start", class: "note" }, rule.text));
  });
}
function path(f, xs, ys, attributes) {
  let d = "", pen = false;
  xs.forEach((x, i) => {
    const y = ys[i];
    if (y === null || y === undefined) { pen = false; return; }
    d += `${pen ? "L" : "M"}${f.X(x).toFixed(1)} ${f.Y(y).toFixed(1)}`; pen = true;
  });
  f.svg.append(make("path", { d, fill: "none", ...attributes }));
}
function band(f, xs, low, high, colour) {
  const known = xs.map((x, i) => i).filter(i => low[i] !== null && high[i] !== null);
  const points = [...known.map(i => [xs[i], high[i]]), ...known.reverse().map(i => [xs[i], low[i]])];
  f.svg.append(make("polygon", { points: points.map(([x, y]) => `${f.X(x).toFixed(1)},${f.Y(y).toFixed(1)}`).join(" "), fill: colour, opacity: 0.18 }));
}
// Under the pointer: the nearest point of every named series.
function pointer(f, xs, series) {
  const cross = make("line", { y1: TOP, y2: H - BOTTOM, class: "axis", visibility: "hidden" });
  f.svg.append(cross);
  f.svg.addEventListener("pointermove", event => {
    const place = f.svg.getBoundingClientRect(), x = (event.clientX - place.left) * W / place.width;
    let best = 0;
    xs.forEach((value, i) => { if (Math.abs(f.X(value) - x) < Math.abs(f.X(xs[best]) - x)) best = i; });
    cross.setAttribute("x1", f.X(xs[best])); cross.setAttribute("x2", f.X(xs[best])); cross.setAttribute("visibility", "visible");
    f.readout.textContent = `${(f.o.xform || steps)(xs[best])}: ` + series.map(([name, ys]) => `${name} ${show(ys[best])}`).join(", ");
  });
  f.svg.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); f.readout.textContent = ""; });
}
function range(lists, floor, ceiling) {
  const all = lists.flat().filter(v => v !== null && v !== undefined);
  let low = Math.min(...all, ...(floor === undefined ? [] : [floor])), high = Math.max(...all, ...(ceiling === undefined ? [] : [ceiling]));
  if (low === high) { low -= 0.5; high += 0.5; }
  return [low, high];
}
function key(f, names) {
  const line = make("div", { class: "key" });
  for (const [name, colour] of names) {
    const item = make("span", {}, name);
    item.prepend(make("i", { style: `background:${colour}` }));
    line.append(item);
  }
  f.svg.before(line);
}

// Lines [name, values, colour] over the steps of training, thin ones [name, rows] of every seed, a band and rules.
function lineFigure(title, xs, lines, { seeds = [], band: ends, rules: list = [], ...options }) {
  const f = frame(title, { x: [0, Math.max(...xs) * 1.02], ...options });
  if (ends) band(f, xs, ...ends, lines[0][2]);
  for (const [, steps, values] of seeds) path(f, steps, values, { stroke: lines[0][2], "stroke-width": 0.8, opacity: 0.45, class: "seed" });
  for (const [, values, stroke] of lines) path(f, xs, values, { stroke, "stroke-width": 2 });
  rules(f, list);
  if (lines.length > 1) key(f, lines.map(([name, , colour]) => [name, colour]));
  pointer(f, xs, [...lines, ...seeds.map(([name, , values]) => [name, values])].slice(0, 7));
}

const floorOf = s => (s.epsilon ?? 0.02) / 50;

function curveFigures(s, everySeed, isLog) {
  const p = s.pooled, xs = p.steps, blue = COLOURS[0];
  const seedsOf = name => everySeed ? Object.entries(s.seeds).map(([seed, rows]) => [`seed ${seed}`, rows.steps, rows[name]]) : [];
  const returns = seedsOf("return");
  lineFigure("Return", xs, [["all seeds", p.return, blue]], {
    seeds: returns, y: range([p.return, ...returns.map(([, , values]) => values)]), caption: "Mean over equal blocks of training; thick: all seeds.",
  });
  const measured = [["all seeds", p.measured, blue], ...(p.bound ? [["Cantelli's bound", p.bound, COLOURS[2]]] : [])];
  const limited = seedsOf("measured"), rules = [{ y: s.allowed, text: `${s.kind === "chance" ? "epsilon" : "limit"} ${show(s.allowed)}` }];
  if (s.kind === "chance") lineFigure(`Violation probability, ${s.label}`, xs, measured, {
    seeds: limited, y: isLog ? [floorOf(s), 1] : [0, Math.max(s.allowed * 1.5, ...p.upper)], log: isLog, band: [p.lower, p.upper], rules,
    caption: "Band: exact binomial 95% interval of all seeds per block.",
  });
  else if (s.kind === "cvar") lineFigure(s.label, xs, measured.slice(0, 1), {
    seeds: limited, y: range([p.measured, ...limited.map(([, , values]) => values)], 0, s.allowed * 1.1), rules, caption: "What the constraint limits, per block.",
  });
  const spread = [-1, 1].map(sign => p.cost.map((v, i) => v === null ? null : Math.max(0, v + sign * p.deviation[i])));
  lineFigure("Episode cost", xs, [["all seeds", p.cost, blue]], {
    seeds: seedsOf("cost"), y: range([p.cost, spread[1]], 0, s.limit * 1.1), band: spread, rules: [{ y: s.limit, text: `limit ${show(s.limit)}` }],
    caption: "Band: one standard deviation of the episodes.",
  });
}
function costFigure(s) {
  const c = s.costs;
  if (!c) return;
  const shares = c.counts.map(v => v / c.episodes), top = Math.max(...shares), last = c.edges[c.edges.length - 1];
  const f = frame("Distribution of episode costs, second half of training", {
    x: [c.edges[0], last], y: [0, top * 1.15], label: "episode cost", xform: show, yform: percent,
    caption: `${c.episodes.toLocaleString()} episodes, ${c.violations.toLocaleString()} violations` + (c.beyond ? `; the last bar gathers ${c.beyond.toLocaleString()} beyond the axis` : "") + (s.deadZone === null ? "." : "; line: shaped cost φ (0 to 1)."),
  });
  shares.forEach((share, i) => {
    const left = f.X(c.edges[i]), right = f.X(c.edges[i + 1]), isOver = c.edges[i] >= s.limit - 1e-9;
    f.svg.append(make("rect", { x: left + 0.5, width: Math.max(right - left - 1, 0.5), y: f.Y(share), height: H - BOTTOM - f.Y(share), fill: isOver ? "var(--red)" : "var(--blue)", opacity: 0.75 }));
  });
  if (s.deadZone !== null) {
    const xs = [c.edges[0], s.deadZone * s.limit, s.limit, last].filter((v, i, all) => i === 0 || v >= all[i - 1]);
    path(f, xs, xs.map(v => top * Math.min(1, Math.max(0, (v / s.limit - s.deadZone) / (1 - s.deadZone)))), { stroke: "var(--amber)", "stroke-width": 2, class: "phi" });
  }
  const marks = [["limit", s.limit, "--red"], ["mean", c.mean, "--quiet"], ["VaR", c.var, "--violet"], ["CVaR", c.cvar, "--green"]].filter(([, x]) => x !== null);
  rules(f, marks.map(([, x, colour]) => ({ x, text: "", colour: `var(${colour})` })));
  key(f, marks.map(([name, x, colour]) => [`${name} ${show(x)}`, `var(${colour})`])); // close together, so not on their lines
  pointer(f, c.edges.slice(0, -1).map((v, i) => (v + c.edges[i + 1]) / 2), [["share", shares]]);
}
const UPDATES = { nominal: COLOURS[0], "bound restoration": COLOURS[2], "mean restoration": COLOURS[4], "no step": COLOURS[3], multiplier: COLOURS[2], constraint_level: COLOURS[0] };
function updateFigure(s, isLog) {
  const { steps: xs, block, ...series } = s.updates, lines = Object.entries(series).map(([name, values]) => [name.replace("_", " "), values, UPDATES[name]]);
  if (!lines.length) return;
  if (!series.multiplier) return lineFigure("Tiers of the update", xs, lines, {
    y: [0, 1], yform: percent, caption: "Share of updates that were nominal steps, restored the bound, restored the mean, or did not move.",
  });
  const values = lines.map(([, values]) => values);
  lineFigure("Price of the constraint", xs, lines, {
    y: isLog ? [0.01, Math.max(20, ...values.flat())] : range(values, 0), log: isLog, rules: [{ y: 1, text: "" }],
    caption: "The multiplier of the constraint at each update, and the level of the constraint: 1 is what is allowed.",
  });
}
function finalFigure(s, isLog) {
  if (!s.final.length) return;
  const low = floorOf(s), edge = isLog ? low / 1.3 : -Infinity, atEdge = s.final.filter(([p]) => p <= edge), zeros = atEdge.filter(([p]) => p === 0).length; // a logarithm has no 0
  const points = s.final.map(([p, value]) => [Math.max(p, edge), value]), high = Math.max((s.epsilon ?? 0.01) * 2, ...points.map(([p]) => p));
  const [least, most] = range([points.map(([, value]) => value)]), room = 0.06 * (most - least); // no point on the edge
  const f = frame("Final policies: return", {
    x: isLog ? [low / 1.6, high * 1.1] : [-0.03 * high, high * 1.1], xlog: isLog, y: [least - room, most + room], label: "violation probability", xform: v => show(v, 2),
    caption: (s.isExact ? "Exact, by dynamic programming." : "Measured on fresh episodes.") + " A point per seed." + (atEdge.length ? ` At the left edge: ${zeros} with P = 0${atEdge.length > zeros ? `, ${atEdge.length - zeros} below ${show(edge, 2)}` : ""}.` : ""),
  });
  for (const [p, value] of points) f.svg.append(make("circle", { cx: f.X(p), cy: f.Y(value), r: 4, fill: COLOURS[0], opacity: 0.8 }));
  if (s.kind === "chance") rules(f, [{ x: s.epsilon, text: `epsilon ${show(s.epsilon)}` }]);
}
function table(id, rows) {
  const body = by(id).querySelector("tbody");
  body.replaceChildren(...rows.map(row => { const line = make("tr"); line.append(...row.map(cell => make("td", {}, cell))); return line; }));
}
function draw() {
  const index = +by("subject").value, s = subjects[index];
  by("figures").replaceChildren();
  by("warnings").replaceChildren(...Object.entries(s.warnings).map(([seed, text]) => make("p", { class: "problem" }, `seed ${seed} is ${text}.`)));
  curveFigures(s, by("seeds").checked, by("log").checked);
  costFigure(s);
  updateFigure(s, by("log").checked);
  finalFigure(s, by("log").checked);
  table("configuration", s.configuration);
  table("versions", s.facts);
  document.querySelectorAll("#summary tbody tr").forEach((row, i) => row.classList.toggle("chosen", i === index));
}
subjects.forEach((s, index) => by("subject").append(make("option", { value: index }, s.name)));
document.querySelectorAll("#summary tbody tr").forEach((row, index) => row.addEventListener("click", () => { by("subject").value = index; draw(); }));
for (const id of ["subject", "seeds", "log"]) by(id).addEventListener("change", draw);
draw();
