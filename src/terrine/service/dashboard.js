// The service's public numbers, read every two seconds. Words from the service become text, never mark-up.

import { listenToChart, showHistory } from "./dashboard.chart.js";
import { $, changed, clock, meter, moment, percent, plural, power } from "./dashboard.words.js";
import { roundUp, row, say, set, shape, tag, whole } from "./dashboard.words.js";

const EVERY = 2000; // ms between two readings
const LONGEST = 30000; // ms between two tries while the service does not answer
const PATIENCE = 15000; // ms for one answer
const STORED = "terrine.key"; // in sessionStorage: this tab's, gone with it

// By the code of the neighbouring relation: what nobody can reliably tell about a person in the private data.
const WHETHER = {
  row_replaced:
    "a given row of that person was in the private data, or a different row in its place",
  unit_replaced:
    "that person was in the private data, with all of their rows, or a different person in their place",
  unit_any:
    "that person was in the private data, with all of their rows, or not at all",
  unit_added:
    "that person was in the private data, with all of their rows, or not at all",
  row_added:
    "a given row of that person was in the private data, or not at all",
  one_teacher:
    "the one teacher that learned from that person’s share voted as it did, or differently",
};

/** If two neighbours are equally likely, no guess is right more often than (e^ε + δ)/(e^ε + 1). */
function meaning({ epsilon, delta, relation, neighbors }) {
  const factor = Math.exp(Math.min(Number(roundUp(epsilon, 3)), 50)) * (1 + 1e-12);
  const guess = Math.min((factor + delta) / (factor + 1), 1);
  const most = roundUp(100 * guess, guess < 0.99 ? 1 : 3).replace("100.000", "100");
  const whether = WHETHER[relation] ?? `the private data were these, or data that differ from these in one way: ${neighbors}`;
  return (
    `For a person in the private data: suppose that someone sees all answers and guesses whether ${whether}. If both ` +
    `cases are equally likely, that guess is right in at most ${most}% of cases, whatever else the guesser knows. ` +
    `A coin flip is right in 50%.${guess > 0.95 ? " This is a weak limit." : ""}`
  );
}

// ---- what is spent, and what is guaranteed

function showAbout(about) {
  const classes = `${whole(about.classes.length)} classes`;
  const teachers = `${whole(about.n_teachers ?? 0)} teachers vote, each trained on its own share of the private data`;
  const voted = `${teachers}. Only the noisy winner among ${classes} is released.`;
  say("about", about.probe ? `A probe, one model that was trained with noise, labels rows in ${classes}.` : voted);
  say("spent-head", about.probe ? "What labels cost" : "What is spent");
  for (const part of document.querySelectorAll(".of-teachers")) part.hidden = about.route === "probe";
  say("holder", `${about.key}, ${about.role}`);
  $("no-usage").hidden = about.role === "admin";
  $("usage").hidden = about.role !== "admin";
}

function showBudget(budget) {
  if (!changed("budget", budget)) return;
  const { guarantee, left, share_spent: share } = budget;
  if (share !== null) { // a probe's labels use nothing up
    set($("gauge"), "aria-valuenow", (100 * share).toFixed(1));
    set($("gauge"), "aria-valuetext", `${percent(share)} of the budget is spent`);
    set($("gauge-fill"), "stroke-dasharray", `${(100 * share).toFixed(2)} 100`);
    say("gauge-share", percent(share));
  }
  say("words", budget.words);
  say("epsilon", `ε = ${roundUp(guarantee.epsilon, 3)}`);
  say("delta", `at δ = ${power(guarantee.delta)}`);
  say("meaning", meaning(guarantee));
  say("relation", guarantee.neighbors);
  say("basis", guarantee.basis);
  if (budget.room !== null) {
    const queries = charged("Questions charged", budget.queries, left.queries);
    $("counts").replaceChildren(queries, charged("Answers charged", budget.answers, left.answers), ...rest(budget));
  }
  const news = notices(budget);
  if (changed("news", news)) $("notices").replaceChildren(...news.map(notice)); // each is read out once
  showOutcomes(budget);
  const [seq, digest] = budget.head.split(":");
  $("head").dataset.whole = budget.head;
  say("head", digest ? `${seq}:${digest.slice(0, 8)}…${digest.slice(-8)}` : budget.head);
}

function fact(name, value, ...about) {
  return tag("div", {}, tag("dt", {}, name), tag("dd", {}, tag("b", {}, value), ...about));
}

function charged(name, used, left) {
  if (left === undefined) return fact(name, whole(used)); // a filter limits the total cost, not the number
  const most = used + left;
  const of = tag("span", {}, ` of at most ${whole(most)}; ${whole(left)} left`);
  return fact(name, whole(used), of, meter(used / most));
}

function rest({ room, left, open }) {
  const about = (words) => tag("span", {}, words);
  const found = [fact("Room for", room ? plural(room, "new question") : "no new question")];
  if (room) found[0].lastChild.append(about(" if all are answered"));
  const cost = left.rdp?.toPrecision(3);
  if (cost) found.push(fact("Left", percent(left.share), about(` a Rényi cost of ${cost} at order ${left.order}`)));
  if (open) found.push(fact("Not settled", plural(open, "question"), about(" in progress, or left by a crash")));
  return found;
}

function notices({ room, open, secure, guarantee, share_spent: share, test }) {
  const found = [];
  if (!secure) {
    const said = "Some answers were drawn with seeded noise, as in tests. The guarantee does not hold for them.";
    found.push(["Nothing is protected: the noise was seeded.", said, "notice alarm"]);
  }
  if (test === "failed") {
    const said = "ε and δ are spent all the same. Nothing will ever be released from this ledger.";
    found.push(["The test did not pass: no answer was released.", said, "notice alarm"]);
  } else if (room === 0 && test) {
    const said = "Rows that were released still get the same answers, for any key, at no cost. Others are refused.";
    found.push([test === "open" ? "The release is charged and not finished." : "The test passed.", said, "notice"]);
  } else if (room === 0) {
    const little = share < 1 ? "The rest of the budget is smaller than the cost of one question. " : "";
    const back = open ? " Questions in progress give back what they do not need; those left by a crash do not." : "";
    const said =
      `${little}New questions are refused; this keeps the guarantee at ε = ${roundUp(guarantee.epsilon, 3)}. ` +
      `A question that was answered before still gets the same answer, for any key, as often as it is asked, ` +
      `at no cost.${back}`;
    found.push(["The budget is used up.", said, "notice"]);
  }
  return found;
}

const notice = ([title, said, kind]) => tag("div", { class: kind }, tag("strong", {}, title), tag("p", {}, said));

// ---- outcomes

const OUTCOMES = [
  ["answered", "answered", "a noisy winner of the vote was released"],
  ["reinforced", "student’s own", "the teachers did not differ enough from the student, which kept its label"],
  ["withheld", "withheld", "the check did not pass, so no answer was released"],
  ["open", "not settled", "in progress, or left by a crash; charged as if answered"],
];

function showOutcomes(budget) {
  const parts = OUTCOMES.filter(([kind]) => kind === "answered" || kind === "withheld" || budget[kind] > 0);
  const total = parts.reduce((sum, [kind]) => sum + budget[kind], 0);
  const rows = parts.map(([kind, name, about]) => {
    const swatch = tag("i", { class: `swatch ${kind}`, "aria-hidden": "true" });
    const head = [swatch, name, tag("span", { class: "about" }, about)];
    return row(head, whole(budget[kind]), total ? percent(budget[kind] / total) : "–");
  });
  $("outcomes").replaceChildren(...rows);
  const bars = [];
  let x = 0;
  for (const [kind] of parts) {
    const width = total ? (100 * budget[kind]) / total : 0;
    if (width > 0) bars.push(bar(kind, x, width));
    x += width;
  }
  $("stack").replaceChildren(...(total ? bars : [bar("none", 0, 100)]));
}

function bar(kind, x, width) {
  const inside = Math.max(width - 0.8, 0.2); // a gap between two, in hundredths of the whole
  return shape("rect", { class: kind, x: (x + 0.4).toFixed(2), y: 0.8, width: inside.toFixed(2), height: 8.4 });
}

// ---- use per key

function showUsage(keys) {
  if (!changed("keys", keys)) return;
  const columns = [...document.querySelectorAll("table.keys thead th")].map((th) => th.textContent);
  const cell = (column, ...inside) => tag("td", { role: "cell", "data-column": columns[column] }, ...inside);
  const rows = keys.map((key) => {
    const share = key.quota ? key.queries / key.quota : null;
    return tag(
      "tr",
      { role: "row", class: key.revoked ? "revoked" : "used" },
      tag("th", { scope: "row", role: "rowheader" }, tag("bdi", {}, key.name)),
      cell(1, key.role),
      cell(2, whole(key.queries)),
      cell(3, whole(key.answers)),
      cell(4, key.quota === null ? "none" : whole(key.quota)),
      cell(5, share === null ? "–" : tag("div", {}, percent(share), meter(share))),
      cell(6, key.revoked ? `revoked ${moment(Date.parse(key.revoked))}` : "in use"),
    );
  });
  $("keys").replaceChildren(...rows);
}

// ---- the session: one key, one loop

let session = null;

async function get(path, { key, stop }) {
  const signal = AbortSignal.any([stop.signal, AbortSignal.timeout(PATIENCE)]);
  const headers = { Authorization: `Bearer ${key}` };
  const response = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit" });
  if (!response.ok) {
    const wait = 1000 * Number(response.headers.get("retry-after")) || 0;
    throw Object.assign(new Error("refused"), { status: response.status, wait });
  }
  return [await response.json(), Date.parse(response.headers.get("date")) || Date.now()];
}

async function read(mine) {
  if (!mine.about) [mine.about] = await get("v1/about", mine);
  const paths = ["v1/budget", "v1/history", ...(mine.about.role === "admin" ? ["v1/usage"] : [])];
  const [[budget], [history, now], usage] = await Promise.all(paths.map((path) => get(path, mine)));
  return { budget, points: history.points, now, keys: usage?.[0].keys ?? [] };
}

function show(mine, { budget, points, now, keys }) {
  if (!mine.shown) {
    mine.shown = true;
    sessionStorage.setItem(STORED, mine.key);
    $("door").hidden = true;
    $("key").value = "";
    $("board").hidden = false;
    $("session").hidden = false;
    showAbout(mine.about);
    if (mine.typed) $("spent-head").focus();
  }
  mine.updated = clock(Date.now());
  showBudget(budget);
  showHistory(points, now);
  showUsage(keys);
  say("updated", `Live, last update ${mine.updated}`);
  say("state", "");
  $("pulse").className = "";
}

/** What went wrong, with the last numbers left as they are. */
function trouble(mine, error) {
  let what = mine.shown ? "Connection lost" : "The service cannot be reached";
  if (error.status) what = `The service cannot answer (${error.status})`;
  if (error.status === 429) what = "The service gets too many requests";
  say("state", mine.shown ? `${what}, last update ${mine.updated}; trying again` : `${what}; trying again`);
  say("updated", mine.shown ? `Not live, last update ${mine.updated}` : "");
  $("pulse").className = "lost";
}

async function watch(mine) {
  let failures = 0;
  while (session === mine) {
    let pause = EVERY;
    let found = null;
    let error = null;
    try {
      found = await read(mine);
    } catch (caught) {
      error = caught;
    }
    if (session !== mine) return; // the key was forgotten meanwhile
    if (found) {
      failures = 0;
      show(mine, found);
    } else if (error.status === 401) {
      leave(mine.shown ? "This key was revoked." : "This key is not in use. Is it complete?");
      return;
    } else {
      failures += 1;
      pause = Math.max(Math.min(EVERY * 1.6 ** failures, LONGEST) * (0.8 + 0.4 * Math.random()), error.wait ?? 0);
      trouble(mine, error);
    }
    await rested(mine, pause);
  }
}

/** Wait for the pause, or until the network is back; while the tab is hidden, wait until someone looks. */
async function rested(mine, pause) {
  await new Promise((done) => {
    mine.wake = done;
    setTimeout(done, pause);
  });
  while (document.hidden && session === mine) {
    await new Promise((done) => (mine.wake = done));
  }
}

function enter(key, typed) {
  session?.stop.abort();
  session = { key, typed, stop: new AbortController(), shown: false, about: null, updated: "", wake: () => {} };
  say("door-said", "");
  say("state", "");
  watch(session);
}

function leave(said) {
  session?.stop.abort();
  session?.wake();
  session = null;
  sessionStorage.removeItem(STORED);
  $("board").hidden = true;
  $("session").hidden = true;
  $("door").hidden = false;
  for (const id of ["about", "holder", "updated", "state"]) say(id, "");
  showUsage([]); // an admin's numbers do not stay for the next key
  say("door-said", said);
  $("key").focus();
}

async function copyHead() {
  const head = $("head").dataset.whole;
  try {
    await navigator.clipboard.writeText(head); // not there over plain http
    say("copied", "Copied the whole head.");
  } catch {
    say("head", head);
    getSelection().selectAllChildren($("head"));
    say("copied", "Selected the whole head: copy it with the keyboard.");
  }
}

$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = $("key").value.trim();
  if (/^[\x21-\x7e]+$/.test(key)) enter(key, true);
  else leave("This is not an API key: it contains characters that keys never have.");
});
$("forget").addEventListener("click", () => leave(""));
$("copy").addEventListener("click", copyHead);
addEventListener("online", () => session?.wake());
document.addEventListener("visibilitychange", () => document.hidden || session?.wake());
listenToChart();

const stored = sessionStorage.getItem(STORED);
if (stored) enter(stored, false);
else $("door").hidden = false;
