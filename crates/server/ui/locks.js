// All locks that are held or waited for. Only the rows on the screen exist, so that thousands cost
// no more than a few.

import { el, setText, visible } from "./dom.js";
import { WARNINGS, clock, count, short } from "./format.js";

/** @typedef {import("./live.js").Lock} Lock */

const ROW = 44;
const NARROW_ROW = 76;
/** Rows beyond the edges of the screen. */
const SPARE = 6;
/** For so long after the pointer moved over the rows they keep their places: nobody is to click on another
 *  lock than the one that was there. */
const STILL_MS = 1500;

const COLUMNS = /** @type {[string, string, string][]} */ ([
  ["name", "Lock", ""],
  ["owner", "Holder", ""],
  ["since", "Held since", "num"],
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
    this.at = el("span", { class: "at soft" });
    this.age = el("span");
    this.since = el("span", { class: "since num" }, this.at, this.age);
    this.fill = el("i");
    this.gauge = el("span", { class: "gauge", "aria-hidden": "true" }, this.fill);
    this.leftText = el("span", { class: "num" });
    this.left = el("span", { class: "left" }, this.gauge, this.leftText);
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
      this.waiting.classList.toggle("none", !lock.waiting);
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
    // Without a token it is known since the first look only.
    setText(this.at, holder && holder.token !== null ? `${clock(holder.since_ms)} · ` : "");
    setText(this.age, holder ? `${holder.token === null ? "≥ " : ""}${short(now - holder.since_ms)}` : "–");
    this.left.hidden = !holder;
    if (!holder) return;
    if (holder.expires_at_ms === null) {
      this.gauge.classList.add("endless");
      setText(this.leftText, "no end");
      return;
    }
    this.gauge.classList.remove("endless");
    const left = Math.max(0, holder.expires_at_ms - now);
    const share = Math.min(1, left / Math.max(1, holder.ttl_ms ?? left));
    this.fill.style.width = `${Math.round(share * 100)}%`;
    this.gauge.classList.toggle("low", share < 1 / 3);
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

  /** The rows on the screen by the name of their lock, so that a row that has the focus keeps its lock. */
  /** @type {Map<string, Row>} */
  let shown = new Map();
  /** @type {Row[]} */
  const spare = [];
  /** @type {Lock[]} */
  let sorted = [];
  let version = -1;
  let pointedAt = 0;
  rows.addEventListener("pointermove", () => { pointedAt = Date.now(); });
  rows.addEventListener("pointerleave", () => { pointedAt = 0; });
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
    const now = live.now();
    const wanted = sorted.slice(from, to);
    const names = new Set(wanted.map((lock) => lock.name));
    for (const [name, it] of shown) {
      if (names.has(name)) continue;
      shown.delete(name);
      it.node.remove();
      spare.push(it);
    }
    const focused = spacer.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement) : null;
    /** @type {Node | null} */
    let place = spacer.firstChild;
    wanted.forEach((lock, at) => {
      let it = shown.get(lock.name);
      if (!it) {
        it = spare.pop() ?? new Row();
        shown.set(lock.name, it);
      }
      it.show(lock, (from + at) * row, from + at, sorted.length, now);
      // In their order, for who reads or tabs through them.
      if (it.node === place) place = it.node.nextSibling;
      else spacer.insertBefore(it.node, place);
    });
    if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  }

  /** The same locks in the same places, with what is known of them now. */
  function refresh() {
    sorted = sorted.map((lock) => live.locks.get(lock.name) ?? { ...lock, held: false, holder: null, readers: [], waiting: 0, warnings: [] });
    draw();
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
    shown.get(sorted[at].name)?.link.focus({ preventScroll: true });
  });
  const resized = () => { shown.forEach((row) => { row.y = -1; }); draw(); };
  window.addEventListener("resize", resized);

  return {
    update: () => {
      if (version === live.version) return;
      if (Date.now() - pointedAt < STILL_MS) return refresh();
      version = live.version;
      sortAnew();
    },
    tick: () => {
      if (version !== live.version && Date.now() - pointedAt >= STILL_MS) {
        version = live.version;
        return sortAnew();
      }
      const now = live.now();
      for (const row of shown.values()) row.tick(now);
    },
    leave: () => window.removeEventListener("resize", resized),
  };
}
