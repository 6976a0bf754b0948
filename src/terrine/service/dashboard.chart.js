// Spending over time: a line of steps, with a readout for pointers and arrow keys.

import { $, changed, clock, day, minutes, moment } from "./dashboard.words.js";
import { percent, plural, row, say, set, shape, whole } from "./dashboard.words.js";

const line = { points: [], now: 0, chosen: null, at: [] }; // chosen: a moment in ms
const DAY = 86400000; // ms
const STEPS = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200].map((s) => 1000 * s);
const TOPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1];

/** What stayed charged at each time: the charges without those that were given back later. */
function stayed(points) {
  const found = points.map((point) => ({ ...point, ms: Date.parse(point.time) }));
  for (let i = found.length - 2; i >= 0; i -= 1) {
    found[i].answers = Math.min(found[i].answers, found[i + 1].answers);
    found[i].share_spent = Math.min(found[i].share_spent, found[i + 1].share_spent);
  }
  return found.filter((point, i) => point.ms !== found[i + 1]?.ms);
}

export function showHistory(points, now) {
  line.points = stayed(points);
  line.now = now;
  const none = points.every((point) => point.queries === 0); // keys are entries too
  $("no-spending").hidden = !none;
  $("chart-figure").hidden = none;
  $("chart-details").hidden = none;
  if (none) return;
  if (changed("rows", points)) showRows();
  draw();
}

function showRows() {
  const last = line.points.length - 1;
  const some = new Set(Array.from({ length: 17 }, (_, i) => Math.round((i * last) / 16)));
  const rows = [...some].map((i) => {
    const { ms, queries, answers, share_spent: share } = line.points[i];
    return row([moment(ms)], whole(queries), whole(answers), percent(share));
  });
  $("chart-rows").replaceChildren(...rows);
}

/** Round local times for the axis; days if the span is long. */
function times(from, to, most) {
  const rough = (to - from) / most;
  const step = STEPS.find((one) => one >= rough) ?? Math.ceil(rough / DAY) * DAY;
  const offset = (ms) => new Date(ms).getTimezoneOffset() * 60000;
  const found = [];
  for (let local = Math.ceil((from - offset(from)) / step) * step; ; local += step) {
    const ms = local + offset(local + offset(from)); // that moment's own offset: clocks may have changed
    if (ms > to) break;
    if (ms < from) continue;
    const midnight = local % DAY === 0;
    found.push([ms, step >= DAY || midnight ? day(ms) : step < 60000 ? clock(ms) : minutes(ms)]);
  }
  return found;
}

function draw() {
  const width = Math.max($("chart").clientWidth, 240);
  const height = width < 560 ? 250 : 300;
  const [left, right, top, bottom] = [50, width - 12, 40, height - 44];
  const { points } = line;
  const last = points[points.length - 1];
  const to = Math.max(line.now, last.ms);
  const from = Math.min(points[0].ms - 0.04 * (to - points[0].ms), to - 60000);
  const high = Math.max(...points.map((point) => point.share_spent));
  const most = TOPS.find((one) => one >= 1.1 * high) ?? 1;
  const x = (ms) => left + ((right - left) * (ms - from)) / (to - from);
  const y = (share) => bottom - ((bottom - top) * share) / most;
  const text = (px, py, kind, words) => shape("text", { class: kind, x: px.toFixed(1), y: py.toFixed(1) }, words);

  const parts = [text(2, 16, "label", "share of the budget, in percent")];
  const lines = [0.002, 0.02, 0.2].includes(most) ? 4 : 5;
  for (let i = 0; i <= lines; i += 1) {
    const share = (most * i) / lines;
    parts.push(shape("path", { class: "grid", d: `M${left} ${y(share).toFixed(1)}H${right}` }));
    parts.push(text(left - 8, y(share) + 4, "tick end", `${Number((100 * share).toPrecision(3))}%`));
  }
  for (const [ms, words] of times(from, to, (right - left) / 85)) {
    parts.push(shape("path", { class: "axis", d: `M${x(ms).toFixed(1)} ${bottom}v5` }));
    if (x(ms) < right - 20 && x(ms) > left + 10) parts.push(text(x(ms), bottom + 20, "tick mid", words));
  }
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "local";
  parts.push(text(right, height - 4, "label end", `time (${zone})`));
  // Spent stays spent until the next entry: steps, and level up to now.
  line.at = points.map((point) => [x(point.ms), y(point.share_spent)]);
  const steps = line.at.map(([px, py]) => `H${px.toFixed(1)}V${py.toFixed(1)}`).join("");
  const path = `M${left} ${y(0)}${steps}H${right}`;
  parts.push(shape("path", { class: "under", d: `${path}V${bottom}H${left}Z` }));
  parts.push(shape("path", { class: "spent", d: path }));
  if (most === 1) {
    parts.push(shape("path", { class: "limit", d: `M${left} ${y(1)}H${right}` }));
    parts.push(text(right, y(1) - 8, "limit-label end", "the whole budget"));
  }
  parts.push(shape("path", { class: "axis", d: `M${left} ${bottom}H${right}` }));
  parts.push(shape("circle", { class: "dot", cx: right, cy: y(last.share_spent).toFixed(1), r: 4 }));

  const chosen = line.chosen === null ? -1 : nearest(points.map((point) => point.ms), line.chosen);
  if (chosen >= 0) {
    const [px, py] = line.at[chosen].map((value) => value.toFixed(1));
    parts.push(shape("path", { class: "here", d: `M${px} ${top}V${bottom}` }));
    parts.push(shape("circle", { class: "ring", cx: px, cy: py, r: 5 }));
  }
  const about = { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" };
  $("chart").replaceChildren(shape("svg", about, ...parts));
  readOut(chosen < 0 ? points.length - 1 : chosen, chosen < 0 ? "Latest, " : "");
}

function readOut(index, before) {
  const point = line.points[index];
  const said =
    `${before}${moment(point.ms)}: ${plural(point.queries, "question")} and ${plural(point.answers, "answer")} ` +
    `charged, ${percent(point.share_spent)} of the budget`;
  say("readout", said);
  set($("chart"), "aria-valuemax", line.points.length);
  set($("chart"), "aria-valuenow", index + 1);
  set($("chart"), "aria-valuetext", said);
}

function choose(index) {
  line.chosen = index === null ? null : line.points[Math.min(Math.max(index, 0), line.points.length - 1)].ms;
  draw();
}

function nearest(values, value) {
  const away = values.map((one) => Math.abs(one - value));
  return away.lastIndexOf(Math.min(...away));
}

export function listenToChart() {
  const chart = $("chart");
  const point = (event) => choose(nearest(line.at.map(([x]) => x), event.clientX - chart.getBoundingClientRect().left));
  chart.addEventListener("pointermove", point);
  chart.addEventListener("pointerdown", point);
  chart.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && choose(null));
  chart.addEventListener("blur", () => choose(null));
  chart.addEventListener("keydown", (event) => {
    const last = line.points.length - 1;
    const at = line.chosen === null ? last : nearest(line.points.map((one) => one.ms), line.chosen);
    const page = Math.max(1, Math.round(last / 10));
    const moves = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, Home: 0, End: last };
    const to = { ...moves, PageDown: at - page, PageUp: at + page, Escape: null }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    choose(to);
  });
  new ResizeObserver(() => line.points.length && draw()).observe(chart);
}
