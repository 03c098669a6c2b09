// Each view with real contention: what is shown is what the nodes say.

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DIR, go, hold, kill, named, open, overstayed, pictured, post, redis, rowOf, run, says, shows, sound, until, violations } from "../world.mjs";

/** All locks: sorted, filtered, by keyboard, with an address for each state. */
export async function locks({ browser, page, url, cast }) {
  await rowOf(page, "billing/close-month").waitFor();
  await shows(page, () => /[4-9] waiting/.test(document.querySelector(".sum")?.textContent ?? ""));
  const row = rowOf(page, "billing/close-month");
  await shows(page, () => document.querySelector('[data-name="billing/close-month"] .waiting')?.textContent === "3");
  await says(row.locator(".token"), /^\d{16}$/);
  await says(page.locator('a.lock-row[data-name^="{workers}:semaphore:"]').first(), /workers · slot [0-2].*semaphore/);
  await says(rowOf(page, "search/reindex"), /2 readers/);
  await says(rowOf(page, "export/nightly"), /past max hold/);
  await says(rowOf(page, "legacy/cron"), /a client of another library \([0-9a-f]+\).*foreign.*no expiry/);
  await says(rowOf(page, "scheduler"), /http:\/\/10\.0\.0\.7:8080/);
  // Sorted by who is waited for most; a filter and a sort are in the address.
  await shows(page, () => document.querySelector(".lock-row")?.dataset.name === "billing/close-month");
  await page.getByRole("searchbox").fill("deploy");
  await shows(page, () => document.querySelectorAll("[role=listitem]:not([hidden])").length === 1);
  assert.match(page.url(), /q=deploy/);
  const again = await open(browser, url);
  await again.goto(`${url}/ui/#/locks?q=slot&show=slots&sort=name&dir=up`);
  await again.reload();
  await shows(again, () => document.querySelector(".empty:not([hidden])")?.textContent.includes("No lock matches"));
  await again.goto(`${url}/ui/#/locks?show=slots`);
  await again.reload();
  await shows(again, () => document.querySelectorAll("[role=listitem]:not([hidden])").length === 2);
  await again.context().close();
  await page.getByRole("searchbox").fill("");
  await page.getByRole("searchbox").blur();
  await pictured(page, "locks");
  // By keyboard: down the rows, and into one.
  await page.locator(".lock-row").first().focus();
  await page.keyboard.press("ArrowDown");
  const second = await page.evaluate(() => document.activeElement?.dataset.name);
  assert.notEqual(second, "billing/close-month");
  assert.ok(second);
  await rowOf(page, "deploy/web").focus();
  await page.keyboard.press("Enter");
  await shows(page, () => location.hash === "#/lock/deploy%2Fweb");
  sound(page);
}

/** Each warning is shown in the list and on the lock's own page, and says what it means. */
export async function warnings({ page, url }) {
  const acquire = async (name, options) => {
    const { status, json } = await post(url, "/v1/acquire", { name, ...options });
    assert.equal(status, 200, name);
    return json;
  };
  const known = async (name) => {
    const { lease } = await acquire(name, { ttl: "30s" });
    await post(url, "/v1/release", { name, lease });
  };
  await acquire("warned/end", { ttl: "60s" });
  await overstayed(url, "warned/hold");
  // One node has forgotten it.
  await acquire("warned/bare", { ttl: "60s" });
  await redis(2, "DEL", "warned/bare");
  // Clients of another library: one of them has one node each, one has all of them and sets no TTL.
  await known("warned/split");
  for (const node of [0, 1, 2]) await redis(node, "SET", "warned/split", `host-${node}`, "PX", "60000");
  await known("warned/foreign");
  for (const node of [0, 1, 2]) await redis(node, "SET", "warned/foreign", "host-9");
  for (const [name, word, meaning] of [
    ["split", "split", /nobody on a majority/],
    ["bare", "bare majority", /if one more fails/],
    ["foreign", "foreign", /another library/],
    ["foreign", "no expiry", /never expires/],
    ["hold", "past max hold", /longer than its max_hold/],
    ["end", "near its end", /has not renewed/],
  ]) {
    await go(page, "#/locks?q=warned%2F");
    if (name === "end") {
      // As if 41 of its 60 seconds had passed, and its holder had not renewed.
      await rowOf(page, "warned/end").waitFor();
      for (const node of [0, 1, 2]) await redis(node, "PEXPIRE", "warned/end", "19000");
    }
    const tag = rowOf(page, `warned/${name}`).locator(".tag", { hasText: word });
    await tag.waitFor();
    assert.match(await tag.getAttribute("title"), meaning);
    await go(page, `#/lock/warned%2F${name}`);
    await page.locator("main .tag", { hasText: word }).first().waitFor();
    if (name !== "end") assert.deepEqual(await violations(page), [], word);
  }
  // Filtered: what has a warning, and nothing else.
  await go(page, "#/locks?q=warned%2F&show=warned");
  await shows(page, () => document.querySelectorAll("[role=listitem]:not([hidden])").length >= 4);
  assert.deepEqual(await violations(page), []);
  for (const node of [0, 1, 2]) await redis(node, "DEL", "warned/foreign", "warned/split");
  sound(page);
}

/** One lock: its queue in order, what each node says, how the last holders ended. */
export async function lock({ browser, page, url, cast }) {
  await go(page, "#/lock/billing%2Fclose-month");
  await shows(page, () => document.querySelectorAll("ol.queue li").length === 3);
  const waiting = await page.locator("ol.queue .owner").allTextContents();
  assert.deepEqual(waiting.map((owner) => owner.split(":")[2]).sort(), ["report-a", "report-b", "report-c"]);
  await shows(page, () => document.querySelectorAll("td.agrees").length === 3);
  const line = await page.locator(".copy code").first().textContent();
  assert.equal(line, "fencepost status billing/close-month");
  // The holder ends: the next in the queue has it, and the page says how it went on.
  kill(cast[0], "SIGTERM");
  await shows(page, () => document.querySelectorAll("#past tbody tr").length >= 1);
  await says(page.locator("#past tbody tr").first(), /released.*report-/);
  await shows(page, () => document.querySelectorAll("ol.queue li").length === 2);
  await pictured(page, "lock");
  sound(page);
}

/** Which names are waited for most. */
export async function contention({ browser, page, url, cast }) {
  await go(page, "#/contention");
  await shows(page, () => /billing\/close-month/.test(document.querySelector("tbody")?.textContent ?? ""));
  await shows(page, () => /at least [1-9]/.test(document.querySelector(".sum")?.textContent ?? ""));
  // By keyboard past the head of the page, which stays where it is.
  await page.locator(".skip").focus();
  await page.keyboard.press("Enter");
  assert.deepEqual(await page.evaluate(() => [location.hash, document.activeElement?.id]), ["#/contention", "main"]);
  await pictured(page, "contention");
  sound(page);
}

/** Only with the typed name and a reason; and the new token is shown. */
export async function steal({ browser, page, url, cast }) {
  await go(page, "#/lock/deploy%2Fweb");
  await shows(page, () => document.querySelectorAll("ol.queue li").length === 1);
  const before = await page.locator("dl.facts .mono").first().textContent();
  await page.getByRole("button", { name: /^Steal this lock/ }).click();
  const steal = page.getByRole("button", { name: "Steal", exact: true });
  await page.getByLabel("Type the name").fill("deploy/we");
  await page.getByLabel("Reason").fill("the runner hangs since noon");
  assert.ok(await steal.isDisabled(), "the name is not the lock's");
  assert.deepEqual(await violations(page), []);
  await page.getByLabel("Type the name").fill("deploy/web");
  await steal.click();
  const token = await page.locator(".stolen strong").textContent();
  assert.ok(BigInt(token) > BigInt(before), `${token} is larger than ${before}`);
  await shows(page, () => /stolen.*by anonymous: the runner hangs since noon/.test(document.querySelector("#past")?.textContent ?? ""));
  sound(page);
}

/** Who waits for whom; a cycle of three is shown within a second. */
export async function waits({ browser, page, url, cast }) {
  await go(page, "#/waits");
  await shows(page, () => /blocks [1-9]/.test(document.querySelector("ul.tree")?.textContent ?? ""));
  assert.equal((await run("deadlocks")).code, 0);
  // Three, each of which holds one lock and then wants the next one's. Found within a second of the
  // last one's waiting; again if the machine was too busy.
  for (let round = 1; ; round += 1) {
    const names = ["accounts", "ledger", "audit"].map((name) => `${name}-${round}`);
    const ring = names.map((name, at) => {
      const next = names[(at + 1) % 3];
      const wait = `while [ ! -e go-${round} ]; do sleep 0.02; done; "$F" run --store "$S" --restart-policy trust ${next} -- ${named(`worker-${at + 1}`)[0]} 0`;
      return hold([name], named(`worker-${at + 1}.sh`, "/bin/sh", "-c", wait));
    });
    await until("all three hold one", async () => {
      const { out } = await run("list", "--names");
      return names.every((name) => out.includes(name));
    });
    await writeFile(join(DIR, `go-${round}`), "");
    await page.locator(".ring").waitFor();
    const seen = await page.evaluate(() => Date.now());
    const snapshot = await (await fetch(`${url}/v1/events?after=0`)).json();
    const waits = snapshot.snapshot.locks.filter((lock) => names.includes(lock.name)).flatMap((lock) => lock.queue ?? []);
    const took = seen - Math.max(...waits.map((waiter) => waiter.since_ms));
    console.log(`   the cycle was shown ${took} ms after the last of them began to wait`);
    const said = await page.locator(".ring").textContent();
    for (const at of [0, 1, 2]) assert.match(said, new RegExp(`worker-${at + 1} waits for ${names[(at + 1) % 3]}, held by .*worker-${((at + 1) % 3) + 1}`));
    await says(page.locator("#cycle-count"), /^1 cycle$/);
    const found = await run("deadlocks");
    assert.equal(found.code, 1, found.out + found.err);
    assert.match(found.out, /cycle of 3/);
    if (round === 1) await pictured(page, "waits");
    ring.forEach((child) => kill(child));
    await page.locator(".ring").waitFor({ state: "detached", timeout: 90_000 });
    if (took < 1000) break;
    assert.ok(round < 4, `the cycle was shown after ${took} ms`);
  }
  sound(page);
}
