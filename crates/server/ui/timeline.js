// What may have gone wrong: losses, near misses, steals, nodes; and when nobody watched.

import { el, fill, foreign, visible } from "./dom.js";
import { clock, duration } from "./format.js";
import { ask, paced } from "./live.js";
import { linkTo } from "./locks.js";

/** @typedef {import("./live.js").Happened} Happened */

const PAUSE_MS = 500;

/** @type {Record<string, [string, string, (it: Happened) => (string | Node)[]]>} */
const EVENTS = {
  lost: ["lost", "bad", (it) => [owner(it), " lost it: a majority of the nodes has it no more, while others still do"]],
  expired: ["expired", "bad", (it) => [owner(it), ` did not renew it; held for ${duration(it.held_ms ?? 0)}`]],
  stolen: ["stolen", "warn", (it) => ["from ", owner(it), ` by ${visible(it.by ?? "?")}: ${visible(it.reason ?? "")}`]],
  near_miss: ["near miss", "warn", (it) => [owner(it), ` renewed it with ${duration(it.left_ms ?? 0)} left`]],
  node_down: ["node down", "bad", (it) => [visible(it.reason ?? "")]],
  node_up: ["node up", "good", () => ["answers again"]],
  quarantined: ["quarantine", "warn", (it) => [`may have forgotten locks; does not vote for ${duration(it.left_ms ?? 0)}`]],
  voting: ["votes again", "good", () => ["the quarantine is over"]],
};

/** @param {Happened} it */
function owner(it) {
  return foreign("owner", it.owner ?? "?");
}

/**
 * @param {import("./app.js").Context} context
 * @returns {import("./app.js").View}
 */
export function timelineView({ main, live, query, setQuery, refused }) {
  const sum = el("p", { class: "sum" });
  const silent = el("div");
  const list = el("ol", { class: "line" });
  const empty = el("p", { class: "empty" }, "Nothing went wrong while somebody watched.");
  /** @param {string} key @param {string} title */
  const field = (key, title) => {
    const input = el("input", { value: query.get(key) ?? "", placeholder: title, "aria-label": title, size: 12, oninput: () => {
      if (input.value) query.set(key, input.value); else query.delete(key);
      setQuery(query);
      look();
    } });
    return input;
  };
  const fields = [field("name", "Lock"), field("owner", "Owner"), field("node", "Node")];
  const save = el("button", { type: "button", onclick: () => {
    const link = el("a", { href: URL.createObjectURL(new Blob([JSON.stringify(known, null, 2)], { type: "application/json" })), download: "fencepost-timeline.json" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  } }, "Export JSON");
  main.append(el("div", { class: "head" }, el("h1", null, "Timeline"), sum, el("div", { class: "tools" }, fields, save)),
    silent, el("section", { class: "card flush", "aria-label": "What happened" }, empty, list));
  /** @type {any} */
  let known = {};
  let notable = live.notable;

  const look = paced(PAUSE_MS, async () => {
    try {
      known = await ask(`/v1/timeline?${query}`);
      render();
    } catch (error) {
      refused(error);
    }
  });

  function render() {
    /** @type {{ replica: string, error?: string }[]} */
    const replicas = known.replicas ?? [];
    fill(sum, `known since ${clock(known.since_ms)}`, known.kept ? "" : "; not kept on disk (start with --timeline DIR)",
      replicas.length > 1 && `; ${replicas.length} replicas asked`);
    fill(silent, replicas.filter((it) => it.error).map((it) =>
      el("p", { class: "notice warn" }, "Not in this list: what ", el("span", { class: "mono" }, it.replica), ` saw (${visible(it.error ?? "")}).`)));
    const all = replicas.filter((it) => !it.error).length;
    /** @type {{ at: number, node: HTMLElement }[]} */
    const items = known.events.map((/** @type {Happened} */ it) => {
      const [word, tone, say] = EVENTS[it.event] ?? [it.event, "", () => []];
      return { at: it.at_ms, node: el("li", null, el("time", { dateTime: new Date(it.at_ms).toISOString() }, clock(it.at_ms)),
        el("span", null, el("span", { class: `tag ${tone}` }, word)),
        el("span", null, it.name ? foreign("name", it.name, linkTo(it.name)) : el("span", { class: "mono" }, it.node ?? ""), " ", say(it),
          all > 1 && it.seen_by && it.seen_by.length < all && el("span", { class: "soft" }, ` · seen by ${it.seen_by.join(", ")} only`))) };
    });
    for (const gap of known.gaps) {
      items.push({ at: gap.to_ms - 1, node: el("li", { class: "gap" }, el("time", null, clock(gap.to_ms)), el("span", null, "gap"),
        el("span", null, `not watched ${clock(gap.from_ms)}\u2013${clock(gap.to_ms)}`)) });
    }
    items.sort((a, b) => b.at - a.at);
    empty.hidden = items.length > 0;
    list.hidden = items.length === 0;
    fill(list, items.map((it) => it.node), known.more && el("li", null, el("span", null, ""), el("span", null, ""), el("span", { class: "soft" }, "Older entries are not shown: filter, or export by the API.")));
  }

  look();
  return {
    // Asked again only when the stream has told of something that it keeps.
    update: () => {
      if (notable === live.notable) return;
      notable = live.notable;
      look();
    },
  };
}
