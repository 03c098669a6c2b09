// The page: one stream, one view at a time, chosen by what stands behind the # in the address.

import { byId, fill, setText } from "./dom.js";
import { duration } from "./format.js";
import { Live, logIn, stream } from "./live.js";
import { locksView } from "./locks.js";
import { lockView } from "./lock.js";
import { nodesView } from "./nodes.js";
import { waitsView } from "./waits.js";
import { contentionView } from "./contention.js";
import { timelineView } from "./timeline.js";

/**
 * @typedef {{ main: HTMLElement, live: Live, rest: string, query: URLSearchParams,
 *   setQuery: (query: URLSearchParams) => void, refused: (error: unknown) => void }} Context
 * A view fills `main`, and returns what is to be done when something has changed (`update`), a few
 * times a second (`tick`), and when it is left (`leave`).
 * @typedef {{ update?: () => void, tick?: () => void, leave?: () => void }} View
 */

/** @type {Record<string, [string, (context: Context) => View]>} */
const VIEWS = {
  locks: ["Locks", locksView],
  lock: ["Lock", lockView],
  waits: ["Waits-for", waitsView],
  contention: ["Contention", contentionView],
  timeline: ["Timeline", timelineView],
  nodes: ["Nodes", nodesView],
};

const TICK_MS = 500;

const live = new Live();
/** @type {View} */
let view = {};
let shown = "";
let state = "lost";
let end = () => {};
let dirty = false;

/** `#/locks?q=x` and `#/lock/NAME`: the name is encoded, so that it may have anything in it. */
function address() {
  const text = location.hash.replace(/^#\/?/, "");
  const [path, query] = [text.split("?")[0], text.split("?").slice(1).join("?")];
  const at = path.indexOf("/");
  const name = at < 0 ? path : path.slice(0, at);
  return {
    view: name in VIEWS ? name : "locks",
    rest: at < 0 ? "" : decoded(path.slice(at + 1)),
    query: new URLSearchParams(query),
    key: path || "locks",
  };
}

/** @param {string} text that anybody may have typed */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function show() {
  const { view: name, rest, query, key } = address();
  if (key === shown) return;
  shown = key;
  view.leave?.();
  const main = byId("main");
  fill(main);
  for (const link of document.querySelectorAll("nav a")) {
    const of = link.getAttribute("data-view");
    if (of === name || (of === "locks" && name === "lock")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const [title, make] = VIEWS[name];
  document.title = rest ? `${rest} · fencepost` : `${title} · fencepost`;
  view = make({
    main, live, rest, query, refused,
    setQuery: (next) => {
      const text = next.toString();
      history.replaceState(null, "", `#/${key}${text ? `?${text}` : ""}`);
    },
  });
  view.update?.();
}

/** @param {unknown} error */
function refused(error) {
  if (/** @type {any} */ (error)?.status === 401) return askForToken(/** @type {Error} */ (error).message);
  banner(error instanceof Error ? error.message : String(error));
}

/** @param {string} text */
function banner(text) {
  const place = byId("banner");
  place.hidden = !text;
  setText(place, text);
}

/** @param {string} why */
function askForToken(why) {
  const dialog = /** @type {HTMLDialogElement} */ (byId("login"));
  setText(byId("login-why"), `This service asks who you are: ${why}.`);
  if (!dialog.open) dialog.showModal();
}

byId("login-form").addEventListener("submit", () => {
  const input = /** @type {HTMLInputElement} */ (byId("login-token"));
  logIn(input.value);
  input.value = "";
  connect();
});

function connect() {
  end();
  end = stream("/v1/events", (event, data) => live.take(event, data), (now, why) => {
    state = now;
    if (now === "unauthenticated") askForToken(why);
    banner(now === "lost" ? `Not connected: ${why}. Trying again.` : now === "forbidden" ? why : "");
    age();
  });
}

function age() {
  const place = byId("age");
  const old = Date.now() - live.seenAt;
  const slow = old > 8000;
  place.className = `age ${state !== "open" ? "off" : slow ? "stale" : ""}`;
  setText(place, !live.seenAt ? "connecting" : `nodes asked ${duration(old < 1500 ? 0 : old).replace("0 ms", "just now")}${old < 1500 ? "" : " ago"}`);
}

function badges() {
  const cycles = byId("cycle-count");
  cycles.hidden = live.cycles.length === 0;
  setText(cycles, live.cycles.length === 1 ? "1 cycle" : `${live.cycles.length} cycles`);
  const down = live.nodes?.filter((node) => node.error).length ?? 0;
  const badge = byId("down-count");
  badge.hidden = down === 0;
  setText(badge, `${down} down`);
}

// At most once a frame, however much the stream tells.
live.listeners.add(() => {
  if (dirty) return;
  dirty = true;
  requestAnimationFrame(() => {
    dirty = false;
    badges();
    view.update?.();
  });
});
setInterval(() => {
  if (document.hidden) return;
  age();
  view.tick?.();
}, TICK_MS);
// What stands behind the # chooses the view: this link must not.
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});
window.addEventListener("hashchange", () => {
  show();
  byId("main").focus({ preventScroll: true });
});
show();
connect();
