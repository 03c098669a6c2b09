// The nodes: who votes, who does not and why, and how many more may fail.

import { el, fill } from "./dom.js";
import { duration } from "./format.js";
import { ask, paced } from "./live.js";

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

  const look = paced(500, async () => {
    askedAt = Date.now();
    try {
      render(await ask("/v1/nodes"));
    } catch (error) {
      refused(error);
    }
  });

  /** @param {any} found */
  function render(found) {
    const more = found.voters - found.needed;
    fill(verdict, `${found.voters} of ${found.nodes.length} vote, ${found.needed} needed. `,
      el("span", { class: `tag ${more > 0 ? "good" : more === 0 ? "warn" : "bad"}` },
        more > 0 ? `${more === 1 ? "one more" : `${more} more`} may fail` : more === 0 ? "none may fail" : "no quorum"));
    fill(cards, found.nodes.map((/** @type {any} */ node) => {
      const of = found.findings.filter((/** @type {any} */ it) => it.node === node.node);
      const bad = of.find((/** @type {any} */ it) => it.severity === "unsafe");
      const quarantined = bad?.what === "restarted";
      const state = node.error ? ["down", "bad"] : quarantined ? ["in quarantine", "warn"] : bad ? ["does not vote", "bad"] : ["votes", "good"];
      /** @type {[string, string | null | undefined][]} */
      const facts = node.error ? [["Why", node.error]] : [
        ["In quarantine", quarantined && node.quarantine_ms ? `for another ${duration(node.quarantine_ms)}` : null],
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
          [el("dt", null, name), el("dd", null, String(value))])));
    }));
    findings.hidden = found.findings.length === 0;
    fill(findings, el("h2", null, "What the doctor finds"), el("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Findings, as a table" }, el("table", null,
      el("thead", null, el("tr", null, el("th", { scope: "col" }, "Severity"), el("th", { scope: "col" }, "Node"), el("th", { scope: "col" }, "Finding"), el("th", { scope: "col" }, "Fix"))),
      el("tbody", null, found.findings.map((/** @type {any} */ it) => el("tr", null,
        el("td", null, el("span", { class: `tag ${SEVERITY[it.severity] ?? ""}` }, it.severity)),
        el("td", { class: "mono" }, it.node ?? "all"), el("td", null, it.why), el("td", null, it.fix)))))));
  }

  look();
  return {
    // Asked again when the stream says that a node came or went, and now and then while it is open.
    update: () => {
      const now = JSON.stringify(live.nodes);
      if (now !== known || Date.now() - askedAt > 10_000) {
        known = now;
        look();
      }
    },
  };
}
