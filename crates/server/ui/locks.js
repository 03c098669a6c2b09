// All locks that are held or waited for. Only the rows on the screen exist, so that thousands cost
// no more than a few.

import { el, setText, visible } from "./dom.js";
import { WARNINGS, count, short } from "./format.js";

/** @typedef {import("./live.js").Lock} Lock */

const ROW = 44;
const NARROW_ROW = 76;
/** Rows beyond the edges of the screen. */
const SPARE = 6;

const COLUMNS = /** @type {[string, string, string][]} */ ([
  ["name", "Lock", ""],
  ["owner", "Holder", ""],
  ["since", "Held for", "num"],
  ["left", "Time left", ""],
  ["token", "Token", "num"],
  ["waiting", "Waiting", "num"],
  ["warnings", "Warnings", ""],
]);

const SHOW = /** @type {[string, string, (lock: Lock) => boolean][]} */ ([
  ["all", "All locks", () => true],
  ["warned", "With warnings", (lock) => !!lock.warnings?.length],
  ["waited", "Waited for", (lock) => lock.waiting > 0],
  ["readers", "Held by readers", (lock) => !!lock.readers?.length],
  ["slots", "Semaphore slots", (lock) => lock.kind === "semaphore"],
]);

/** @param {Lock} lock */
export function holderOf(lock) {
  if (lock.holder) return lock.holder.owner;
  if (lock.readers?.length) {
    return lock.readers.length === 1 ? `reader ${lock.readers[0].owner}` : `${lock.readers.length} readers`;
  }
  if (lock.held === null) return "unknown";
  return lock.warnings?.includes("split") ? "nobody on a majority" : "free";
}

/** @param {Lock} lock */
function first(lock) {
  return lock.holder ?? lock.readers?.[0] ?? null;
}

/** @type {Record<string, (lock: Lock) => string | number>} */
const KEYS = {
  name: (lock) => lock.name,
  owner: holderOf,
  since: (lock) => first(lock)?.since_ms ?? Infinity,
  left: (lock) => first(lock)?.expires_at_ms ?? Infinity,
  token: (lock) => lock.holder?.token ?? 0,
  waiting: (lock) => lock.waiting,
  warnings: (lock) => lock.warnings?.length ?? 0,
};

/** The name as it is shown: a slot by what it is a slot of. */
/** @param {Lock} lock */
export function titleOf(lock) {
  return lock.of ? `${lock.of} · ${lock.kind === "semaphore" ? "slot" : lock.kind} ${lock.slot}` : lock.name;
}

/** @param {string} name */
export function linkTo(name) {
  return `#/lock/${encodeURIComponent(name)}`;
}

class Row {
  constructor() {
    this.name = el("span", { class: "name", dir: "auto" });
    this.owner = el("span", { class: "owner", dir: "auto" });
    this.since = el("span", { class: "since num" });
    this.meter = el("meter", { min: 0, max: 1, value: 0, "aria-label": "time left" });
    this.leftText = el("span", { class: "num" });
    this.left = el("span", { class: "left" }, this.meter, this.leftText);
    this.token = el("span", { class: "token num mono" });
    this.waiting = el("span", { class: "waiting num" });
    this.tags = el("span", { class: "tags" });
    this.link = el("a", { class: "lock-row" }, this.name, this.owner, this.since, this.left,
      this.token, this.waiting, this.tags);
    this.node = el("div", { role: "listitem" }, this.link);
    /** @type {Lock | null} */
    this.lock = null;
    this.tagKey = "";
    this.y = -1;
  }

  /**
   * @param {Lock} lock
   * @param {number} y
   * @param {number} at
   * @param {number} all
   * @param {number} now
   */
  show(lock, y, at, all, now) {
    if (this.y !== y) {
      this.y = y;
      this.link.style.transform = `translateY(${y}px)`;
    }
    if (this.lock !== lock) {
      this.lock = lock;
      this.link.href = linkTo(lock.name);
      this.link.dataset.name = lock.name;
      this.link.title = lock.name.length > 30 ? lock.name : "";
      setText(this.name, visible(titleOf(lock)));
      setText(this.owner, visible(holderOf(lock)));
      setText(this.token, lock.holder?.token ? String(lock.holder.token) : "–");
      setText(this.waiting, lock.waiting ? count(lock.waiting) : "–");
      const words = [...(lock.kind === "lock" ? [] : [lock.kind]), ...(lock.readers?.length ? ["readers"] : []),
        ...(lock.warnings ?? [])];
      const key = words.join();
      if (key !== this.tagKey) {
        this.tagKey = key;
        this.tags.textContent = "";
        for (const word of words) {
          const [text, tone, title] = WARNINGS[word] ?? [word, "kind", ""];
          this.tags.append(el("span", { class: `tag ${tone}`, title }, text));
        }
      }
    }
    this.node.setAttribute("aria-posinset", String(at + 1));
    this.node.setAttribute("aria-setsize", String(all));
    this.tick(now);
  }

  /** @param {number} now */
  tick(now) {
    const holder = this.lock && first(this.lock);
    setText(this.since, holder ? short(now - holder.since_ms) : "–");
    this.left.hidden = !holder;
    if (!holder) return;
    if (holder.expires_at_ms === null) {
      this.meter.value = 1;
      setText(this.leftText, "no end");
      return;
    }
    const left = Math.max(0, holder.expires_at_ms - now);
    const share = Math.min(1, left / Math.max(1, holder.ttl_ms ?? left));
    this.meter.value = share;
    this.meter.classList.toggle("low", share < 1 / 3);
    setText(this.leftText, short(left));
  }
}

/**
 * @param {import("./app.js").Context} context
 * @returns {import("./app.js").View}
 */
export function locksView({ main, live, query, setQuery }) {
  let text = query.get("q") ?? "";
  let show = query.get("show") ?? "all";
  let sort = query.get("sort") ?? "waiting";
  let down = (query.get("dir") ?? (sort === "waiting" ? "down" : "up")) === "down";

  const sum = el("p", { class: "sum" });
  const search = el("input", { type: "search", value: text, placeholder: "Filter by name or holder",
    "aria-label": "Filter by name or holder", oninput: () => { text = search.value; remember(); sortAnew(); } });
  const select = el("select", { "aria-label": "Show", onchange: () => { show = select.value; remember(); sortAnew(); } },
    SHOW.map(([value, title]) => el("option", { value, selected: value === show }, title)));
  const heads = COLUMNS.map(([key, title, tone]) => el("span", { class: tone },
    el("button", { type: "button", onclick: () => {
      down = sort === key ? !down : key === "waiting" || key === "warnings" || key === "token";
      sort = key;
      remember();
      sortAnew();
    } }, title)));
  const spacer = el("div", { class: "spacer", role: "list", "aria-label": "Locks" });
  const rows = el("div", { class: "rows", onscroll: () => draw() }, spacer);
  const empty = el("p", { class: "empty", hidden: true });
  main.append(
    el("div", { class: "head" }, el("h1", null, "Locks"), sum, el("div", { class: "tools" }, search, select)),
    el("section", { class: "card flush", "aria-label": "Locks" },
      el("div", { class: "lock-head" }, heads), empty, rows));

  /** @type {Row[]} */
  let pool = [];
  /** @type {Lock[]} */
  let sorted = [];
  let version = -1;
  const narrow = matchMedia("(max-width: 52rem)");
  const height = () => (narrow.matches ? NARROW_ROW : ROW);

  function remember() {
    const next = new URLSearchParams();
    if (text) next.set("q", text);
    if (show !== "all") next.set("show", show);
    if (sort !== "waiting" || !down) {
      next.set("sort", sort);
      next.set("dir", down ? "down" : "up");
    }
    setQuery(next);
  }

  function sortAnew() {
    const wanted = text.toLowerCase();
    const shows = SHOW.find(([value]) => value === show)?.[2] ?? (() => true);
    const found = [];
    for (const lock of live.locks.values()) {
      if (!shows(lock)) continue;
      if (wanted && !lock.name.toLowerCase().includes(wanted) && !holderOf(lock).toLowerCase().includes(wanted)) continue;
      found.push(lock);
    }
    const key = KEYS[sort] ?? KEYS.name;
    const sign = down ? -1 : 1;
    sorted = found.map((lock) => ({ lock, key: key(lock) }))
      .sort((a, b) => (a.key < b.key ? -sign : a.key > b.key ? sign : a.lock.name < b.lock.name ? -1 : 1))
      .map(({ lock }) => lock);
    let held = 0;
    let waiting = 0;
    for (const lock of live.locks.values()) {
      if (lock.held) held += 1;
      waiting += lock.waiting;
    }
    setText(sum, `${count(held)} held, ${count(waiting)} waiting${sorted.length === live.locks.size ? "" : `; ${count(sorted.length)} shown`}`);
    heads.forEach((head, at) => {
      const button = /** @type {HTMLElement} */ (head.firstChild);
      const chosen = COLUMNS[at][0] === sort;
      button.setAttribute("aria-pressed", String(chosen));
      setText(button, `${COLUMNS[at][1]}${chosen ? (down ? " ↓" : " ↑") : ""}`);
    });
    empty.hidden = sorted.length > 0;
    rows.hidden = sorted.length === 0;
    setText(empty, live.you === null ? "Waiting for the first look at the nodes."
      : live.locks.size ? "No lock matches the filter." : "No lock is held, and nobody waits.");
    draw();
  }

  function draw() {
    const row = height();
    const tall = `${sorted.length * row}px`;
    if (spacer.style.height !== tall) spacer.style.height = tall;
    const screen = rows.clientHeight || 600;
    const from = Math.max(0, Math.floor(rows.scrollTop / row) - SPARE);
    const to = Math.min(sorted.length, Math.ceil((rows.scrollTop + screen) / row) + SPARE);
    const size = to - from;
    const now = live.now();
    while (pool.length < size) {
      const fresh = new Row();
      pool.push(fresh);
      spacer.append(fresh.node);
    }
    pool.forEach((it, at) => { it.node.hidden = at >= size; });
    for (let at = 0; at < size; at += 1) pool[at].show(sorted[from + at], (from + at) * row, from + at, sorted.length, now);
  }

  rows.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const name = /** @type {HTMLElement} */ (document.activeElement)?.dataset?.name;
    if (!step || name === undefined) return;
    event.preventDefault();
    const at = sorted.findIndex((lock) => lock.name === name) + step;
    if (at < 0 || at >= sorted.length) return;
    const row = height();
    const [top, end] = [at * row, (at + 1) * row];
    if (top < rows.scrollTop) rows.scrollTop = top;
    if (end > rows.scrollTop + rows.clientHeight) rows.scrollTop = end - rows.clientHeight;
    draw();
    pool.find((it) => !it.node.hidden && it.lock?.name === sorted[at].name)?.link.focus({ preventScroll: true });
  });
  const resized = () => { pool.forEach((row) => { row.y = -1; }); draw(); };
  window.addEventListener("resize", resized);

  return {
    update: () => {
      if (version === live.version) return;
      version = live.version;
      sortAnew();
    },
    tick: () => {
      const now = live.now();
      for (const row of pool) if (!row.node.hidden) row.tick(now);
    },
    leave: () => window.removeEventListener("resize", resized),
  };
}
