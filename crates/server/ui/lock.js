// One lock: who holds it, who waits in which order, what each node says, who held it before; and how
// to take it from its holder.

import { el, fill, foreign, setText, visible } from "./dom.js";
import { WARNINGS, clock, count, duration, quoted, short } from "./format.js";
import { ask, hasToken, stream } from "./live.js";
import { linkTo, titleOf } from "./locks.js";

/** @typedef {import("./live.js").Lock} Lock */
/** @typedef {import("./live.js").Holder} Holder */

const ENDED = /** @type {Record<string, [string, string]>} */ ({
  released: ["released", "good"],
  expired: ["expired", "bad"],
  stolen: ["stolen", "warn"],
  lost: ["lost", "bad"],
});

/**
 * @param {string} text
 * @param {string} label
 */
function copyable(text, label) {
  const button = el("button", { type: "button", onclick: async () => {
    await navigator.clipboard.writeText(text).catch(() => {});
    setText(button, "Copied");
    setTimeout(() => setText(button, "Copy"), 1500);
  } }, "Copy");
  button.setAttribute("aria-label", `Copy: ${label}`);
  return el("div", { class: "copy" }, el("code", { tabIndex: 0, role: "region", "aria-label": label }, visible(text)), button);
}

/**
 * One action, as a command and as a request.
 * @param {string} title
 * @param {string[]} lines
 */
function byHand(title, ...lines) {
  return el("div", { class: "by-hand" }, el("h3", null, title),
    lines.map((line) => copyable(line, `${title} by ${line.startsWith("curl") ? "curl" : "fencepost"}`)));
}

/**
 * @param {import("./app.js").Context} context
 * @returns {import("./app.js").View}
 */
export function lockView({ main, live, rest: name, refused }) {
  /** @type {Lock | null} */
  let lock = null;
  let heard = false;
  const here = location.origin;
  // The token itself is not shown: a line that is copied ends in a shell's history.
  const curl = `curl${hasToken() ? ' -H "Authorization: Bearer $TOKEN"' : ""}`;

  const title = el("h1", { class: "lock-title name", dir: "auto" }, visible(name));
  const tags = el("div", { class: "row" });
  const facts = el("dl", { class: "facts" });
  const queue = el("div");
  const matrix = el("tbody");
  const past = el("tbody");
  const noPast = el("p", { class: "hint" }, "No holder was seen to end since the dashboard began to watch.");
  const open = el("button", { type: "button", class: "danger", onclick: () => ask_steal() }, "Steal this lock…");
  const why = el("p", { class: "hint" });
  const outcome = el("div", { role: "status" });

  main.append(
    el("p", { class: "crumb" }, el("a", { href: "#/locks" }, "← All locks")),
    el("div", { class: "head" }, title, tags),
    el("div", { class: "grid" },
      el("section", { class: "card", "aria-label": "Holder" }, el("h2", null, "Holder"), facts),
      el("section", { class: "card", "aria-label": "Queue" }, el("h2", null, "Queue"), queue)),
    el("section", { class: "card", "aria-label": "What each node says" }, el("h2", null, "What each node says"),
      el("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Nodes, as a table" }, el("table", null,
        el("thead", null, el("tr", null,
          el("th", { scope: "col" }, "Node"), el("th", { scope: "col" }, "Holder"),
          el("th", { scope: "col", class: "num" }, "Token"), el("th", { scope: "col", class: "num" }, "Expires in"),
          el("th", { scope: "col", class: "num" }, "Register"), el("th", { scope: "col", class: "num" }, "Waiting"),
          el("th", { scope: "col" }, "Vote"))), matrix))),
    el("section", { class: "card", "aria-label": "Last holders" }, el("h2", null, "Last holders"), noPast,
      el("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Last holders, as a table" }, el("table", { id: "past" },
        el("thead", null, el("tr", null,
          el("th", { scope: "col" }, "Holder"), el("th", { scope: "col", class: "num" }, "Token"),
          el("th", { scope: "col" }, "From"), el("th", { scope: "col", class: "num" }, "Held for"),
          el("th", { scope: "col" }, "How it ended"))), past))),
    el("section", { class: "card", "aria-label": "By hand" }, el("h2", null, "By hand"),
      el("p", { class: "hint" }, "The commands look for the nodes in FENCEPOST_STORE."),
      byHand("Look at it", `fencepost status ${quoted(name)}`,
        `${curl} ${quoted(`${here}/v1/locks?name=${encodeURIComponent(name)}`)}`),
      byHand("Follow it", `fencepost watch ${quoted(name)}`,
        `${curl} -N ${quoted(`${here}/v1/events?name=${encodeURIComponent(name)}`)}`),
      byHand("Steal it", `fencepost steal ${quoted(name)}`,
        `${curl} --data-urlencode ${quoted(`name=${name}`)} --data-urlencode reason=WHY ${here}/v1/steal`)),
    el("section", { class: "card", "aria-label": "Steal" }, el("h2", null, "Steal"),
      el("p", { class: "hint" }, "Takes the lock from its holder at once, with a larger token. The old holder is told when it renews; until then only a resource that checks tokens is safe from it."),
      el("div", { class: "row" }, open, why), outcome));

  function ask_steal() {
    const typed = el("input", { id: "steal-name", autocomplete: "off", spellcheck: false, oninput: check });
    const reason = el("input", { id: "steal-reason", autocomplete: "off", maxLength: 1024, oninput: check });
    const go = el("button", { type: "submit", class: "danger", disabled: true }, "Steal");
    const dialog = el("dialog", { "aria-labelledby": "steal-title", onclose: () => { dialog.remove(); open.focus(); } },
      el("form", { method: "dialog", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); steal(); } },
        el("h2", { id: "steal-title" }, "Steal this lock"),
        el("p", null, "Held by ", lock?.holder ? foreign("owner", lock.holder.owner) : "nobody on a majority", "."),
            el("div", { class: "field" }, el("label", { for: "steal-name" }, "Type the name of the lock"), typed,
          el("p", { class: "hint mono" }, visible(name))),
        el("div", { class: "field" }, el("label", { for: "steal-reason" }, "Reason, for the audit log"), reason),
        el("div", { class: "row" }, go, el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"))));
    function check() {
      go.disabled = typed.value !== name || !reason.value.trim();
    }
    async function steal() {
      if (go.disabled) return;
      go.disabled = true;
      try {
        const granted = await ask("/v1/steal", { name, reason: reason.value.trim() });
        fill(outcome, el("p", { class: "stolen" }, "Stolen. The new token is ",
          el("strong", { class: "mono" }, String(granted.token)), `, valid for ${duration(granted.valid_for_ms)}.`),
          el("p", { class: "hint" }, "Release it when you are done:"),
          copyable(`${curl} --data-urlencode ${quoted(`name=${name}`)} -d lease=${granted.lease} ${here}/v1/release`, "Release it by curl"));
        dialog.close();
      } catch (error) {
        dialog.close();
        fill(outcome, el("p", { class: "tag bad" }, error instanceof Error ? error.message : String(error)));
        if (/** @type {any} */ (error)?.status === 401) refused(error);
      }
    }
    document.body.append(dialog);
    dialog.showModal();
    typed.focus();
  }

  function render() {
    setText(title, visible(lock ? titleOf(lock) : name));
    title.title = name;
    const may = live.you?.may_steal !== false;
    open.disabled = !may || !lock || lock.held === false;
    setText(why, live.you?.read_only ? "This dashboard only shows." : !may ? "You have no right to steal." : lock && lock.held !== false ? "" : "Nobody holds it.");
    if (!lock) {
      fill(tags);
      fill(facts, el("dt", null, "State"), el("dd", null, heard ? "never used, or forgotten" : "asking the nodes"));
      fill(queue, el("p", { class: "hint" }, "Nobody waits."));
      fill(matrix);
      past.closest("table")?.toggleAttribute("hidden", true);
      return;
    }
    const alike = lock.kind === "lock" ? "A lock, or an election: nodes store both alike." : "";
    fill(tags, el("span", { class: "tag kind", title: alike }, lock.readers?.length ? "readers" : lock.kind), (lock.warnings ?? []).map((word) => {
      const [text, tone, explained] = WARNINGS[word] ?? [word, "", ""];
      return el("span", { class: `tag ${tone}`, title: explained }, text);
    }));
    drawFacts();
    drawQueue();
    drawMatrix();
    const ended = lock.past ?? [];
    noPast.hidden = ended.length > 0;
    past.closest("table")?.toggleAttribute("hidden", ended.length === 0);
    fill(past, ended.map((hold) => {
      const [word, tone] = ENDED[hold.ended] ?? [hold.ended, ""];
      const more = hold.ended === "stolen" ? `by ${hold.by}: ${hold.reason}`
        : hold.next && hold.ended === "released" ? `${hold.next} held it at the next look: released, or stolen outside this service` : "";
      return el("tr", null, el("td", null, foreign("owner", hold.owner)),
        el("td", { class: "num mono" }, hold.token === null ? "–" : String(hold.token)),
        el("td", null, clock(hold.since_ms)), el("td", { class: "num" }, duration(hold.ended_ms - hold.since_ms)),
        el("td", null, el("span", { class: `tag ${tone}` }, word), " ", el("span", { class: "hint", dir: "auto" }, visible(more))));
    }));
  }

  function drawFacts() {
    if (!lock) return;
    const now = live.now();
    /** @param {Holder} holder */
    const one = (holder) => [
      el("dt", null, lock?.holder ? "Owner" : "Reader"), el("dd", null, foreign("owner", holder.owner)),
      el("dt", null, "Held since"), el("dd", null, `${holder.token === null ? "at the latest " : ""}${clock(holder.since_ms)} (${duration(now - holder.since_ms)}${holder.max_hold_ms ? ` of at most ${duration(holder.max_hold_ms)}` : ""})`),
      el("dt", null, "Expires"), el("dd", null, holder.expires_at_ms === null ? "never by itself"
        : `in ${duration(holder.expires_at_ms - now)} unless renewed`),
      holder.token !== null && el("dt", null, "Token"), holder.token !== null && el("dd", { class: "mono" }, String(holder.token)),
      holder.session !== null && el("dt", null, "Session"), holder.session !== null && el("dd", { class: "mono" }, holder.session),
    ];
    const holders = lock.holder ? [lock.holder] : lock.readers ?? [];
    fill(facts, holders.length ? holders.flatMap(one)
      : [el("dt", null, "State"), el("dd", null, lock.held === null ? "unknown: too few nodes answer"
        : lock.warnings?.includes("split") ? "split: nobody has it on a majority" : "free")],
      el("dt", null, "Nodes"), el("dd", null, `${lock.votes} of ${lock.of_nodes} have this holder, ${lock.answered} answer`));
  }

  function drawQueue() {
    const waiting = lock?.queue ?? [];
    if (!waiting.length) return fill(queue, el("p", { class: "hint" }, "Nobody waits."));
    const now = live.now();
    const more = (lock?.waiting ?? 0) - waiting.length;
    fill(queue, el("ol", { class: "queue" }, waiting.map((waiter) => el("li", null, foreign("owner", waiter.owner),
      el("span", { class: "tag" }, waiter.mode === "default" ? "may be passed" : waiter.mode),
      el("span", { class: "num" }, short(now - waiter.since_ms))))),
      more > 0 && el("p", { class: "hint" }, `and ${count(more)} more`));
  }

  function drawMatrix() {
    const now = live.now();
    fill(matrix, (lock?.nodes ?? []).map((cell) => {
      if (cell.error) {
        return el("tr", null, el("th", { scope: "row", class: "mono" }, cell.node),
          el("td", { class: "silent", colSpan: 5 }, cell.error), el("td", null, el("span", { class: "tag bad" }, "silent")));
      }
      const tone = cell.agrees ? (cell.holder ? "agrees" : "") : "differs";
      return el("tr", null, el("th", { scope: "row", class: "mono" }, cell.node),
        el("td", { class: tone }, cell.holder === null ? "free" : foreign("owner", cell.holder)),
        el("td", { class: "num mono" }, cell.token === null ? "–" : String(cell.token)),
        el("td", { class: "num" }, cell.holder === null ? "–" : cell.expires_at_ms === null ? "never" : short(cell.expires_at_ms - now)),
        el("td", { class: "num mono" }, String(cell.register)), el("td", { class: "num" }, String(cell.waiting)),
        el("td", null, cell.agrees ? (cell.holder ? el("span", { class: "tag good" }, "for the holder") : "–")
          : el("span", { class: "tag warn" }, cell.holder ? "for another" : "has forgotten it")));
    }));
  }

  const end = stream(`/v1/events?name=${encodeURIComponent(name)}`, (event, data) => {
    if (event === "snapshot") {
      heard = true;
      lock = data.locks[0] ?? null;
    } else if (event === "locks") {
      lock = data.changed[0] ?? lock;
    } else if (event === "released" || event === "expired") {
      if (lock && !lock.waiting) lock = { ...lock, held: false, holder: null, readers: [], votes: 0, warnings: [] };
    } else {
      return;
    }
    render();
  }, (state, text) => {
    if (state === "forbidden") {
      heard = true;
      fill(outcome, el("p", { class: "tag bad" }, text));
    }
  });
  render();
  return {
    tick: () => { drawFacts(); drawQueue(); drawMatrix(); },
    update: render,
    leave: end,
  };
}

export { linkTo };
