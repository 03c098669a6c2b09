// Five thousand locks: the page stays responsive, its memory does not grow, and what it costs the service
// is told.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { kill, open, post, serve, shows } from "../world.mjs";

const LOCKS = 5000;
/** So many of them change hands, the others live on. */
const CHANGING = 2000;
const MINUTES = Number(process.env.UI_MINUTES ?? 0);
/** How long one window lasts in short, and how many there may be: others use the machine too. */
const [WINDOW_MS, WINDOWS] = [5000, 3];
const LONGEST_TASK_MS = 100;
const told = ({ used, lasted }) => `${used.toFixed(0)} ms of processor time (the longest by the clock: ${lasted.toFixed(0)} ms)`;

/** Processor time of a process, in seconds. */
async function cpu(pid) {
  const stat = (await readFile(`/proc/${pid}/stat`, "utf8")).split(") ")[1].split(" ");
  return (Number(stat[11]) + Number(stat[12])) / 100;
}

/** Locks that are taken and released through one service, 200 times a second. */
class Crowd {
  constructor(url) {
    this.url = url;
    this.names = Array.from({ length: LOCKS }, (_, at) => `many/${String(at).padStart(4, "0")}`);
    this.leases = new Map();
    this.changes = 0;
    this.on = true;
  }

  async take(name) {
    const { status, json } = await post(this.url, "/v1/acquire", { name, ttl: "60s" });
    if (status === 200) this.leases.set(name, json);
  }

  async give(name) {
    const held = this.leases.get(name);
    this.leases.delete(name);
    if (held) await post(this.url, "/v1/release", { name, lease: held.lease });
  }

  async each(act) {
    for (let at = 0; at < LOCKS; at += 64) await Promise.all(this.names.slice(at, at + 64).map(act));
  }

  async change() {
    // By the clock, so that a late round is made up for.
    let due = Date.now();
    for (let at = 0; this.on; at = (at + 10) % CHANGING) {
      due += 100;
      const some = this.names.slice(at, at + 10);
      await Promise.all(some.map((name) => this.give(name)));
      await Promise.all(some.map((name) => this.take(name)));
      this.changes += 20;
      await new Promise((wake) => setTimeout(wake, Math.max(0, due - Date.now())));
    }
  }

  async renew() {
    for (let at = CHANGING; this.on; at = at + 500 < LOCKS ? at + 500 : CHANGING) {
      const some = this.names.slice(at, at + 500).map((name) => this.leases.get(name)).filter(Boolean);
      await post(this.url, "/v1/extend", { ttl: "60s", leases: some.map(({ name, lease, token }) => ({ name, lease, token })) });
      await new Promise((wake) => setTimeout(wake, 3000));
    }
  }
}

/** Traces the page that `act` returns, and returns the longest task of its main thread: by the processor time that it
 *  used, which others on the machine hardly change, and by the clock, which they do. */
async function traced(browser, act) {
  const session = await browser.newBrowserCDPSession();
  const events = [];
  session.on("Tracing.dataCollected", ({ value }) => { for (const it of value) events.push(it); });
  await session.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: {
    includedCategories: ["disabled-by-default-devtools.timeline", "blink.user_timing"], excludedCategories: ["*"] } });
  const page = await act();
  await page.evaluate(() => performance.mark("traced"));
  const complete = new Promise((done) => session.once("Tracing.tracingComplete", done));
  await session.send("Tracing.end");
  await complete;
  await session.detach();
  const { pid, tid } = events.find((it) => it.name === "traced");
  const all = events.filter((it) => it.name === "RunTask" && it.ph === "X" && it.pid === pid && it.tid === tid);
  // A task that the trace begins or ends in has no processor time.
  const tasks = all.filter((it) => it.tdur >= 0);
  assert.ok(tasks.length > 0 && tasks.length > 0.99 * all.length - 2, `processor time is known of ${tasks.length} of ${all.length} tasks`);
  const longest = (time) => tasks.reduce((most, it) => Math.max(most, it[time] / 1000), 0);
  return { used: longest("tdur"), lasted: longest("dur") };
}

/** 5,000 locks, 200 changes a second. */
export async function many({ browser, url }) {
  const crowd = new Crowd(url);
  await crowd.each((name) => crowd.take(name));
  assert.equal(crowd.leases.size, LOCKS);
  // A replica of its own, which does nothing but show: what it uses is what one open dashboard costs.
  const shower = await serve("serve", "--listen", "127.0.0.1:0");
  let many;
  const opening = await traced(browser, async () => {
    many = await open(browser, shower.url);
    await shows(many, () => /5,\d\d\d held/.test(document.querySelector(".sum")?.textContent ?? ""));
    return many;
  });
  const metrics = await many.context().newCDPSession(many);
  await metrics.send("Network.enable");
  let bytes = 0;
  metrics.on("Network.dataReceived", (it) => { bytes += it.dataLength; });
  const heap = async () => {
    await metrics.send("HeapProfiler.collectGarbage");
    return (await metrics.send("Runtime.getHeapUsage")).usedSize;
  };
  const working = [crowd.change(), crowd.renew()];
  await many.waitForTimeout(2000);
  const [before, cpuBefore, start] = [await heap(), await cpu(shower.child.pid), Date.now()];
  [crowd.changes, bytes] = [0, 0];
  /** Scrolls up and down for a while. */
  const look = (ms) => traced(browser, async () => {
    await many.mouse.move(600, 500);
    for (const end = Date.now() + ms; Date.now() < end;) {
      await many.mouse.wheel(0, Math.random() < 0.5 ? 3000 : -3000);
      await many.waitForTimeout(400);
    }
    return many;
  });
  let longest = { used: 0, lasted: 0 };
  for (let minute = 1; minute <= MINUTES; minute += 1) {
    const task = await look(60_000);
    console.log(`   after ${minute} min: heap ${((await heap()) / 1e6).toFixed(1)} MB, longest task ${told(task)}`);
    if (task.used > longest.used) longest = task;
  }
  for (let window = 0; !MINUTES && window < WINDOWS; window += 1) {
    longest = await look(WINDOW_MS);
    if (longest.used < LONGEST_TASK_MS) break;
  }
  const seconds = (Date.now() - start) / 1000;
  const after = await heap();
  const used = ((await cpu(shower.child.pid)) - cpuBefore) / seconds;
  crowd.on = false;
  await Promise.all(working);
  console.log(`   ${LOCKS} locks, ${(crowd.changes / seconds).toFixed(0)} changes/s over ${seconds.toFixed(0)} s: ` +
    `longest task ${told(longest)}, when it is opened ${told(opening)}, heap ${(before / 1e6).toFixed(1)} -> ${(after / 1e6).toFixed(1)} MB; ` +
    `one open dashboard costs the service ${(100 * used).toFixed(0)} % of a core and ${(bytes / seconds / 1000).toFixed(0)} kB/s`);
  for (const task of [opening, longest]) assert.ok(task.used < LONGEST_TASK_MS, `a task of ${told(task)}`);
  assert.ok(after < before * 1.5 + 5e6, `the heap grew from ${before} to ${after}`);
  assert.ok(await many.evaluate(() => document.querySelectorAll(".lock-row").length < 80), "only what is on the screen exists");
  assert.deepEqual(many.faults, []);
  await many.context().close();
  kill(shower.child, "SIGTERM");
}

/** Much has piled up while the page was busy: it is not read at one stretch. */
export async function backlog({ browser, url }) {
  const page = await open(browser, url);
  const EVENTS = 100;
  await page.route("**/v1/backlog", (route) => route.fulfill({ contentType: "text/event-stream",
    body: Array.from({ length: EVENTS }, (_, at) => `event: piled\ndata: ${at}\n\n`).join("") }));
  const turns = await page.evaluate(async (events) => {
    const { stream } = await import("/ui/live.js");
    const taken = [];
    let turns = 0;
    const others = new MessageChannel();
    others.port1.onmessage = () => { turns += 1; others.port2.postMessage(null); };
    await new Promise((done) => {
      const end = stream("/v1/backlog", (_, at) => {
        if (at === 0) others.port2.postMessage(null);
        taken.push(at);
        for (const until = performance.now() + 2; performance.now() < until;);
        if (taken.length === events) { end(); done(null); }
      }, () => {});
    });
    others.port1.close();
    return taken.every((at, place) => at === place) ? turns : -1;
  }, EVENTS);
  assert.ok(turns >= 5, `while ${EVENTS} events were read, others had ${turns} turns`);
  assert.deepEqual(page.faults, []);
  await page.context().close();
}
