// Nodes that die, holders that die, and what is known of it afterwards.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { ask, go, hold, kill, named, pictured, rowOf, says, shows, sound } from "../world.mjs";

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
