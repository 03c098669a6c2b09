// Nodes that die, holders that die, and what is known of it afterwards.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { CLUSTER, ask, go, hold, kill, named, open, pictured, post, rowOf, runOn, says, serveOn, shows, sound, violations } from "../world.mjs";

/** How long a node that may have forgotten locks does not vote: longer than the looks here take. */
const MAX_TTL_S = 20;
/** Where the cluster's nodes stand among the servers of the Rust test, and which of them loses its data. */
const FORGETFUL = { server: 4, place: 1 };

/** A node is killed: the page says so, and how many more may fail. */
export async function nodes({ page, service }) {
  await go(page, "#/nodes");
  await shows(page, () => /3 of 3 vote, 2 needed. one more may fail/.test(document.querySelector(".sum")?.textContent ?? ""));
  ask("kill", 2);
  await shows(page, () => /2 of 3 vote, 2 needed. none may fail/.test(document.querySelector(".sum")?.textContent ?? ""));
  await says(page.locator("#down-count"), /^1 down$/);
  await pictured(page, "nodes");
  await go(page, "#/lock/billing%2Fclose-month");
  await shows(page, () => document.querySelectorAll("td.silent").length === 1);
  await page.getByText("bare majority").waitFor();
  sound(page);
}

/** A node comes back without its data: it is in quarantine, the page says until when and why, and it votes again. */
export async function quarantine({ browser }) {
  const store = ["--store", CLUSTER, "--max-ttl", `${MAX_TTL_S}s`];
  const made = await runOn(store, "init", "--fresh");
  assert.equal(made.code, 0, made.err);
  const guarded = await serveOn(store, "serve", "--listen", "127.0.0.1:0");
  const page = await open(browser, guarded.url);
  await go(page, "#/nodes");
  await shows(page, () => /3 of 3 vote, 2 needed. one more may fail/.test(document.querySelector(".sum")?.textContent ?? ""));
  ask("kill", FORGETFUL.server);
  await shows(page, () => /none may fail/.test(document.querySelector(".sum")?.textContent ?? ""));
  ask("restart", FORGETFUL.server);
  const { host } = new URL(CLUSTER.split(",")[FORGETFUL.place]);
  const card = page.locator("section.card", { hasText: host }).first();
  await says(card, /in quarantine/);
  await says(card, /In quarantineuntil \d\d:\d\d:\d\d, for another [\d.]+ s/);
  await says(card, /Why.*may have forgotten locks/);
  await says(page.locator(".sum"), /2 of 3 vote, 2 needed. none may fail/);
  // The others decide without it.
  const { status } = await post(guarded.url, "/v1/acquire", { name: "payroll", ttl: `${MAX_TTL_S}s` });
  assert.equal(status, 200);
  await go(page, "#/lock/payroll");
  await page.getByText("bare majority").waitFor();
  await shows(page, () => document.querySelectorAll("td.agrees").length === 2);
  // It votes again by itself, and that it did not is known afterwards.
  await go(page, "#/nodes");
  await says(card, /^redis:[^ ]*votes/);
  await says(page.locator(".sum"), /3 of 3 vote, 2 needed. one more may fail/);
  assert.deepEqual(await violations(page), []);
  await go(page, "#/timeline");
  await shows(page, () => /quarantine.*may have forgotten locks; does not vote for/.test(document.querySelector(".line")?.textContent ?? ""));
  await shows(page, () => /votes again/.test(document.querySelector(".line")?.textContent ?? ""));
  sound(page);
  await page.context().close();
  kill(guarded.child, "SIGTERM");
}

/** What went wrong is there afterwards: by name, by owner, by node, and to be taken away. */
export async function timeline({ page, service }) {
  // A holder that is killed releases nothing: its lock expires.
  const victim = hold(["nightly/backup", "--ttl", "2s"], named("backup"));
  await go(page, "#/locks");
  await rowOf(page, "nightly/backup").waitFor();
  kill(victim);
  await go(page, "#/timeline");
  await shows(page, () => /nightly\/backup.*did not renew it/.test(document.querySelector(".line")?.textContent ?? ""));
  await shows(page, () => /node down/.test(document.querySelector(".line")?.textContent ?? ""));
  await shows(page, () => /stolen.*the runner hangs since noon/.test(document.querySelector(".line")?.textContent ?? ""));
  // What was known before the service began, and when nobody watched.
  await shows(page, () => /lost.*billing\/close-month/.test(document.querySelector(".line")?.textContent ?? ""));
  await shows(page, () => /not watched .*\d\d:\d\d:\d\d–/.test(document.querySelector(".gap")?.textContent ?? ""));
  await pictured(page, "timeline");
  const saved = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export JSON" }).click();
  const events = JSON.parse(await readFile(await (await saved).path(), "utf8")).events;
  assert.ok(events.some((event) => event.event === "expired" && event.name === "nightly/backup"));
  const field = (title) => page.getByLabel(title, { exact: true });
  for (const [title, text, kept] of [["Lock", "nightly", "expired"], ["Owner", "close-month", "lost"], ["Node", "redis", "node down"]]) {
    await field(title).fill(text);
    await shows(page, (word) => {
      const words = [...document.querySelectorAll(".line .tag")].map((it) => it.textContent);
      return words.includes(word) && !words.includes(word === "node down" ? "lost" : "node down");
    }, kept);
    await field(title).fill("");
  }
  // The node comes back, and that is known too.
  ask("restart", 2);
  await shows(page, () => /node up/.test(document.querySelector(".line")?.textContent ?? ""));
  await shows(page, () => document.querySelector("#down-count").checkVisibility() === false);
  sound(page);
}

/** A service that ends is said to be gone. */
export async function closing({ page, service }) {
  kill(service.child, "SIGTERM");
  await shows(page, () => /Not connected/.test(document.getElementById("banner")?.textContent ?? ""));
}
