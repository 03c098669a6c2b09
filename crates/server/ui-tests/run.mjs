// The dashboard in a real browser, on real Redis servers. Each scene is a promise; started by the Rust
// test crates/cli/tests/it/dashboard.rs, which starts the servers and says where the program is.
//   UI_SCENES=locks,steal   some scenes only
//   UI_SHOTS=DIR            where screenshots go (they are taken in any case); UI_NARROW_SHOTS for narrow ones
//   UI_MINUTES=5            how long 5,000 locks are watched

import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { closing, nodes, quarantine, timeline } from "./scenes/faults.mjs";
import { foreign, names, readonly, tokens } from "./scenes/hostile.mjs";
import { backlog, many } from "./scenes/many.mjs";
import { contention, lock, locks, steal, waits, warnings } from "./scenes/views.mjs";
import { DIR, NARROW_SHOTS, SHOTS, hold, killAll, launch, named, open, overstayed, post, redis, run, serve, until } from "./world.mjs";

const WANTED = process.env.UI_SCENES?.split(",");
// Many locks come last: they are left to expire, and the timeline would show nothing else.
const SCENES = { locks, lock, contention, steal, waits, warnings, nodes, timeline, quarantine, names, foreign, tokens, readonly, backlog, many, closing };

for (const place of [SHOTS, NARROW_SHOTS]) await mkdir(place, { recursive: true });
// Somebody watched last night, and nobody since.
const night = Date.now() - 8 * 3_600_000;
await mkdir(join(DIR, "timeline"));
await writeFile(join(DIR, "timeline", "timeline.0.jsonl"), [
  { watched: { from_ms: night, to_ms: night + 3 * 3_600_000 } },
  { event: "near_miss", at_ms: night + 5_400_000, name: "billing/close-month", owner: "db-2:881:close-month", token: 7, left_ms: 1_900 },
  { event: "lost", at_ms: night + 5_430_000, name: "billing/close-month", owner: "db-2:881:close-month", token: 7, held_ms: 81_000 },
].map((line) => JSON.stringify(line)).join("\n"));
const browser = await launch();
const service = await serve("serve", "--listen", "127.0.0.1:0", "--timeline", join(DIR, "timeline"));
const { url } = service;

// What is there to be seen: holders, waiters, readers and slots, all real processes.
const cast = [
  hold(["billing/close-month"], named("close-month")),
  hold(["deploy/web"], named("deploy.sh")),
  hold(["search/reindex", "--shared"], named("search-api")),
  hold(["search/reindex", "--shared"], named("search-api")),
  hold(["workers", "--slots", "3"], named("worker")),
  hold(["workers", "--slots", "3"], named("worker")),
  hold(["scheduler", "--value", "http://10.0.0.7:8080"], named("scheduler"), "elect"),
];
await until("all of them hold", async () => {
  const { out } = await run("list", "--json");
  return JSON.parse(out || "{}").locks?.length >= 6;
});
for (const owner of ["report-a", "report-b", "report-c"]) cast.push(hold(["billing/close-month"], named(owner)));
cast.push(hold(["deploy/web", "--fair"], named("ci-runner-7")));
cast.push(hold(["search/reindex"], named("reindex")));
// One that lasts longer than it may, and one of a client of another library, without an end.
await overstayed(url, "export/nightly");
const { json: old } = await post(url, "/v1/acquire", { name: "legacy/cron", ttl: "30s" });
await post(url, "/v1/release", { name: "legacy/cron", lease: old.lease });
for (const node of [0, 1, 2]) await redis(node, "SET", "legacy/cron", "cron-host-3");

const page = await open(browser, url);
try {
  for (const [name, play] of Object.entries(SCENES)) {
    if (WANTED && !WANTED.includes(name)) continue;
    const start = Date.now();
    await play({ browser, page, url, service, cast });
    console.log(`ok ${name} (${((Date.now() - start) / 1000).toFixed(1)} s)`);
  }
} catch (error) {
  await writeFile(join(DIR, "failed.png"), await page.screenshot().catch(() => Buffer.alloc(0)));
  console.log(`${error.stack}\nthe page: ${page.faults.join("\n")}\n${await page.locator("body").innerText().catch(() => "")}`);
  process.exitCode = 1;
} finally {
  killAll();
  await browser.close();
}
