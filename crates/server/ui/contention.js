// Which names are waited for, how long holds and waits last, how often locks change hands.

import { el, fill, foreign } from "./dom.js";
import { count, duration } from "./format.js";
import { ask, paced } from "./live.js";
import { linkTo } from "./locks.js";

const EVERY_MS = 3000;

/** @param {number} ms */
function bound(ms) {
  return ms < 1000 ? `${ms}ms` : ms < 120_000 ? `${ms / 1000}s` : `${Math.round(ms / 60_000)}m`;
}

/**
 * @param {string} title
 * @param {number[]} counts
 * @param {number[]} bounds
 */
function histogram(title, counts, bounds) {
  const most = Math.max(1, ...counts);
  const all = counts.reduce((sum, it) => sum + it, 0);
  const text = counts.map((it, at) => `${it} ${at < bounds.length ? `up to ${bound(bounds[at])}` : "longer"}`).filter((_, at) => counts[at]).join(", ");
  return el("section", { class: "card", "aria-label": title }, el("h2", null, `${title} `, el("span", { class: "soft" }, count(all))),
    el("div", { class: "bars", role: "img", "aria-label": `${title}: ${text || "none yet"}` }, counts.map((it) => {
      const bar = el("i");
      bar.style.height = `${(100 * it) / most}%`;
      return el("div", null, bar, it > 0 && el("b", null, count(it)));
    })),
    el("div", { class: "ticks", "aria-hidden": "true" }, counts.map((_, at) => el("span", null, at < bounds.length ? bound(bounds[at]) : "more"))));
}

/**
 * @param {import("./app.js").Context} context
 * @returns {import("./app.js").View}
 */
export function contentionView({ main, refused }) {
  const sum = el("p", { class: "sum" });
  const charts = el("div", { class: "grid" });
  const rows = el("tbody");
  const empty = el("p", { class: "empty" }, "Nobody has waited since the dashboard began to watch.");
  const table = el("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Names, as a table" }, el("table", null, el("thead", null, el("tr", null,
    el("th", { scope: "col" }, "Lock"), el("th", { scope: "col", class: "num" }, "Time waited"), el("th", { scope: "col" }, "Share"),
    el("th", { scope: "col", class: "num" }, "Most waiting"), el("th", { scope: "col", class: "num" }, "Hand-offs"))), rows));
  main.append(el("div", { class: "head" }, el("h1", null, "Contention"), sum), charts,
    el("section", { class: "card", "aria-label": "Most waited for" }, el("h2", null, "Most waited for"), empty, table),
    el("p", { class: "hint" }, "From looks at the nodes, as a profiler takes samples: what came and went between two looks is not counted, so hand-offs are at least this many."));
  const look = paced(EVERY_MS, async () => {
    try {
      render(await ask("/v1/contention"));
    } catch (error) {
      refused(error);
    }
  });

  /** @param {any} seen */
  function render(seen) {
    const minutes = seen.watched_ms / 60_000;
    fill(sum, `watched for ${duration(seen.watched_ms)}; at least ${count(seen.hand_offs)} ${seen.hand_offs === 1 ? "hand-off" : "hand-offs"}`,
      minutes > 0.05 ? `, ${(seen.hand_offs / minutes).toFixed(1)} a minute` : "");
    fill(charts, histogram("Holds", seen.holds, seen.bounds_ms), histogram("Waits", seen.waits, seen.bounds_ms));
    const top = seen.top.filter((/** @type {any} */ it) => it.waited_ms > 0);
    const all = top.reduce((/** @type {number} */ total, /** @type {any} */ it) => total + it.waited_ms, 0) || 1;
    empty.hidden = top.length > 0;
    table.hidden = top.length === 0;
    fill(rows, top.map((/** @type {any} */ it) => {
      const bar = el("span", { class: "share" });
      bar.style.width = `${(100 * it.waited_ms) / all}%`;
      return el("tr", null, el("th", { scope: "row" }, foreign("name", it.name, linkTo(it.name))),
        el("td", { class: "num" }, duration(it.waited_ms)), el("td", null, bar),
        el("td", { class: "num" }, count(it.most_waiting)), el("td", { class: "num" }, count(it.hand_offs)));
    }));
  }

  look();
  return { update: look };
}
