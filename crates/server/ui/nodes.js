// The nodes: who votes, who does not and why, and how many more may fail.

import { el, fill, setText } from "./dom.js";
import { clock, duration } from "./format.js";
import { ask, paced } from "./live.js";

/** For so long the service keeps what it found: an answer may be from before the news. */
const KEPT_MS = 5500;

/** The worst first. */
const SEVERITY = /** @type {Record<string, string>} */ ({ unsafe: "bad", warning: "warn", note: "" });

/**
 * @param {import("./app.js").Context} context
 * @returns {import("./app.js").View}
 */
export function nodesView({ main, live, refused }) {
  const verdict = el("p", { class: "sum" });
  const cards = el("div", { class: "grid" });
  const findings = el("section", { class: "card", "aria-label": "What the doctor finds", hidden: true });
  main.append(el("div", { class: "head" }, el("h1", null, "Nodes"), verdict), cards, findings);
  let askedAt = 0;
  let known = "";
  let again = 0;
  /** How long nodes are still in quarantine: counted down while the page is open. */
  /** @type {[HTMLElement, number][]} */
  let counted = [];

  const look = paced(500, async () => {
    askedAt = Date.now();
    try {
      render(await ask("/v1/nodes"));
    } catch (error) {
      refused(error);
    }
  });

  function countDown() {
    for (const [place, until] of counted) setText(place, `until ${clock(until)}, for another ${duration(until - live.now())}`);
  }

  /** @param {any} found */
  function render(found) {
    counted = [];
    const more = found.voters - found.needed;
    fill(verdict, `${found.voters} of ${found.nodes.length} vote, ${found.needed} needed. `,
      el("span", { class: `tag ${more > 0 ? "good" : more === 0 ? "warn" : "bad"}` },
        more > 0 ? `${more === 1 ? "one more" : `${more} more`} may fail` : more === 0 ? "none may fail" : "no quorum"));
    fill(cards, found.nodes.map((/** @type {any} */ node) => {
      const of = found.findings.filter((/** @type {any} */ it) => it.node === node.node);
      const bad = of.find((/** @type {any} */ it) => it.severity === "unsafe");
      const quarantined = bad?.what === "restarted";
      const state = node.error ? ["down", "bad"] : quarantined ? ["in quarantine", "warn"] : bad ? ["does not vote", "bad"] : ["votes", "good"];
      const left = el("span");
      if (quarantined && node.quarantine_until_ms) counted.push([left, node.quarantine_until_ms]);
      /** @type {[string, string | HTMLElement | null | undefined][]} */
      const facts = node.error ? [["Why", node.error]] : [
        ["In quarantine", quarantined ? left : null],
        // For how long is said above, and counted down there.
        ["Why", bad?.why.replace(/, so it does not vote for .*$/, "")],
        ["Round trip", node.round_trip_us === undefined ? null : `${(node.round_trip_us / 1000).toFixed(2)} ms`],
        ["Version", node.version],
        ["Role", node.role],
        ["Up", node.uptime_s === undefined || node.uptime_s === null ? null : duration(node.uptime_s * 1000)],
        ["Persistence", node.append_only ? `append-only file, fsync ${node.fsync ?? "?"}` : node.append_only === false ? (node.snapshots ? "snapshots only" : "none") : null],
        ["Eviction", node.maxmemory === 0 ? "no memory limit" : node.eviction_policy],
        ["Clock", node.clock_ahead_us === undefined || node.clock_ahead_us === null ? null : `${node.clock_ahead_us > -500 ? "+" : "−"}${Math.abs(node.clock_ahead_us / 1000).toFixed(0)} ms`],
        ["Link", node.link],
      ];
      return el("section", { class: "card", "aria-label": `Node ${node.node}` },
        el("div", { class: "head" }, el("h2", { class: "mono" }, node.node), el("span", { class: `tag ${state[1]}` }, state[0])),
        el("dl", { class: "facts" }, facts.filter(([, value]) => value).flatMap(([name, value]) =>
          [el("dt", null, name), el("dd", null, value)])));
    }));
    countDown();
    findings.hidden = found.findings.length === 0;
    const rank = (/** @type {any} */ it) => Object.keys(SEVERITY).indexOf(it.severity);
    found.findings.sort((/** @type {any} */ a, /** @type {any} */ b) => rank(a) - rank(b));
    fill(findings, el("h2", null, "What the doctor finds"), el("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Findings, as a table" }, el("table", null,
      el("thead", null, el("tr", null, el("th", { scope: "col" }, "Severity"), el("th", { scope: "col" }, "Node"), el("th", { scope: "col" }, "Finding"), el("th", { scope: "col" }, "Fix"))),
      el("tbody", null, found.findings.map((/** @type {any} */ it) => el("tr", null,
        el("td", null, el("span", { class: `tag ${SEVERITY[it.severity] ?? ""}` }, it.severity)),
        el("td", { class: "mono" }, it.node ?? "all"), el("td", null, it.why), el("td", null, it.fix)))))));
  }

  look();
  return {
    // Asked again when the stream says that a node came or went, or that a quarantine began or ended; and
    // now and then while there is news.
    update: () => {
      const now = `${live.notable} ${JSON.stringify(live.nodes)}`;
      if (now !== known || Date.now() - askedAt > 10_000) {
        if (now !== known) {
          clearTimeout(again);
          again = setTimeout(look, KEPT_MS);
        }
        known = now;
        look();
      }
    },
    tick: countDown,
    leave: () => clearTimeout(again),
  };
}
