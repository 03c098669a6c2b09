// Who waits for whom: by session, as the nodes have it. Root blockers first, cycles before them.

import { el, fill, foreign } from "./dom.js";
import { clock, count, short } from "./format.js";
import { linkTo, titleOf } from "./locks.js";

/** @typedef {import("./live.js").Lock} Lock */
/** @typedef {import("./live.js").Holder} Holder */

/** How deep a tree is drawn, and how many waiters of one lock. */
const DEEPEST = 12;
const MOST = 50;

/**
 * Which party it is: its session, or the lock that it holds where it has none.
 * @param {Lock} lock
 * @param {Holder} holder
 */
function party(lock, holder) {
  return holder.session ?? `${lock.name}\u0000${holder.owner}`;
}

/**
 * @param {import("./app.js").Context} context
 * @returns {import("./app.js").View}
 */
export function waitsView({ main, live }) {
  const sum = el("p", { class: "sum" });
  const rings = el("div");
  const roots = el("section", { class: "card", "aria-label": "Root blockers" });
  main.append(el("div", { class: "head" }, el("h1", null, "Waits-for"), sum), rings, roots,
    el("p", { class: "hint" }, "Holders and waiters are one party if they share a session id, never by their labels. A process that does several things at once may be in a cycle that ends by itself."));

  function render() {
    const locks = [...live.locks.values()].filter((lock) => lock.queue?.length);
    /** @type {Map<string, { owner: string, locks: Lock[] }>} */
    const holders = new Map();
    /** @type {Set<string>} */
    const waiting = new Set();
    for (const lock of locks) {
      for (const holder of lock.holder ? [lock.holder] : lock.readers ?? []) {
        const id = party(lock, holder);
        const known = holders.get(id) ?? { owner: holder.owner, locks: [] };
        known.locks.push(lock);
        holders.set(id, known);
      }
      for (const waiter of lock.queue ?? []) if (waiter.session) waiting.add(waiter.session);
    }
    fill(rings, live.cycles.map((cycle) => el("section", { class: "card ring", "aria-label": "Cycle" },
      el("h2", null, el("span", { class: "tag bad" }, "cycle"), ` ${cycle.steps.length} sessions wait for each other`),
      el("ol", null, cycle.steps.map((step, at) => {
        const next = cycle.steps[(at + 1) % cycle.steps.length];
        return el("li", null, foreign("owner", step.owner), " waits for ", foreign("name", step.lock, linkTo(step.lock)),
          ", held by ", foreign("owner", next.owner));
      })), el("p", { class: "hint" }, "None of them goes on until one gives up, loses its lock, or is stolen from."))));

    /** @type {{ id: string, owner: string, blocked: number, node: HTMLElement }[]} */
    const trees = [];
    for (const [id, { owner, locks: held }] of holders) {
      if (waiting.has(id)) continue;
      const seen = new Set([id]);
      const branches = held.map((lock) => branch(lock, seen, 0));
      const blocked = branches.reduce((all, it) => all + it.blocked, 0);
      trees.push({ id, owner, blocked, node: el("li", null, foreign("owner", owner), " ",
        el("span", { class: "tag warn" }, `blocks ${count(blocked)}`), el("ul", null, branches.map((it) => it.node))) });
    }
    trees.sort((a, b) => b.blocked - a.blocked || (a.id < b.id ? -1 : 1));
    const all = locks.reduce((sum, lock) => sum + lock.waiting, 0);
    fill(sum, `${count(all)} waiting for ${count(locks.length)} locks`);
    fill(roots, el("h2", null, "Root blockers"), trees.length
      ? el("ul", { class: "tree" }, trees.map((tree) => tree.node))
      : el("p", { class: "hint" }, live.cycles.length ? "Everybody who is waited for waits too." : "Nobody waits for a lock."));

    /**
     * @param {Lock} lock
     * @param {Set<string>} seen
     * @param {number} depth
     * @returns {{ blocked: number, node: HTMLElement }}
     */
    function branch(lock, seen, depth) {
      let blocked = lock.waiting;
      const queue = lock.queue ?? [];
      const items = queue.slice(0, MOST).map((waiter) => {
        const id = waiter.session;
        const next = id && !seen.has(id) && depth < DEEPEST ? holders.get(id) : undefined;
        const deeper = next ? next.locks.map((it) => branch(it, new Set([...seen, /** @type {string} */ (id)]), depth + 1)) : [];
        blocked += deeper.reduce((sum, it) => sum + it.blocked, 0);
        return el("li", null, foreign("owner", waiter.owner), " ", el("span", { class: "soft" }, `for ${short(live.now() - waiter.since_ms)}`),
          deeper.length > 0 && el("ul", null, deeper.map((it) => it.node)));
      });
      const more = lock.waiting - items.length;
      const since = lock.holder && lock.holder.token !== null ? ` since ${clock(lock.holder.since_ms)}` : "";
      return { blocked, node: el("li", null, "holds ", foreign("name", titleOf(lock), linkTo(lock.name)), el("span", { class: "soft" }, since),
        el("ul", null, items, more > 0 && el("li", { class: "soft" }, `and ${count(more)} more`))) };
    }
  }

  let last = 0;
  return {
    update: render,
    tick: () => {
      // Ages, once in a while.
      if (Date.now() - last < 2000) return;
      last = Date.now();
      render();
    },
  };
}
