// What the tests look at: the program on real Redis servers, and a browser.

import { execFile, spawn } from "node:child_process";
import assert from "node:assert/strict";
import { existsSync, symlinkSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { reduced } from "./png.mjs";

const require = createRequire(import.meta.url);

export const FENCEPOST = process.env.UI_PROGRAM;
export const STORE = process.env.UI_STORE;
/** Three servers more, whose restarts are not trusted: under the default policy, as a cluster. */
export const CLUSTER = process.env.UI_CLUSTER;
const TRUSTED = ["--store", STORE, "--restart-policy", "trust"];
export const DIR = process.env.UI_DIR;
/** Where pictures go: those for the documentation, and those of a narrow screen. */
export const SHOTS = process.env.UI_SHOTS ?? join(DIR, "shots");
export const NARROW_SHOTS = process.env.UI_NARROW_SHOTS ?? join(DIR, "shots");
/** More than anything here takes on a busy machine. */
export const LIMIT = 30_000;

/** A program of that name, for its label: it holds a lock for as long as it is let. */
export function named(name, of = "/bin/sleep", ...words) {
  const path = join(DIR, name);
  if (!existsSync(path)) symlinkSync(of, path);
  return [path, ...(words.length ? words : ["600"])];
}

/** Sends a command to a node as a client of another library does. */
export function redis(node, ...words) {
  const { hostname, port } = new URL(STORE.split(",")[node]);
  const text = `*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join("")}`;
  return new Promise((done, failed) => {
    const socket = connect(Number(port), hostname, () => socket.write(text));
    socket.once("data", (data) => { socket.end(); done(String(data)); });
    socket.once("error", failed);
  });
}

const children = new Set();
process.once("exit", killAll);
// The Rust test gives up: what was started ends too.
process.once("SIGTERM", () => process.exit(143));

/** A command under a lock. */
export function hold(words, command, verb = "run") {
  const child = spawn(FENCEPOST, [verb, ...TRUSTED, ...words, "--", ...command],
    { cwd: DIR, stdio: ["ignore", "pipe", "pipe"], detached: true, env: { ...process.env, F: FENCEPOST, S: STORE } });
  return kept(child);
}

function kept(child) {
  child.err = "";
  child.stderr.on("data", (data) => { child.err += data; });
  child.stdout.resume();
  children.add(child);
  child.once("exit", () => children.delete(child));
  return child;
}

/** Ends a child and what it has started. */
export function kill(child, signal = "SIGKILL") {
  try {
    process.kill(-child.pid, signal);
  } catch {
    // It has ended.
  }
}

export function killAll() {
  for (const child of children) kill(child);
}

/** A service, and its address. */
export function serve(...words) {
  return serveOn(TRUSTED, ...words);
}

/** A service on another store than most, and its address. */
export async function serveOn(store, ...words) {
  const child = spawn(FENCEPOST, [...words, ...store],
    { cwd: DIR, stdio: ["ignore", "pipe", "pipe"], detached: true });
  children.add(child);
  child.err = "";
  child.stderr.on("data", (data) => { child.err += data; });
  const url = await new Promise((done, failed) => {
    child.stdout.once("data", (data) => done(String(data).trim()));
    child.once("exit", (code) => failed(new Error(`${words[0]} ended with ${code}: ${child.err}`)));
  });
  return { child, url: new URL(url).origin };
}

/** Runs the program to its end. */
export function run(...words) {
  return runOn(TRUSTED, ...words);
}

export function runOn(store, ...words) {
  return new Promise((done) => execFile(FENCEPOST, [...words, ...store], { cwd: DIR },
    (error, out, err) => done({ code: error ? error.code : 0, out, err })));
}

export async function post(url, path, body, headers = {}) {
  const answer = await fetch(url + path, { method: "POST", body: JSON.stringify(body),
    headers: { "content-type": "application/json", ...headers } });
  return { status: answer.status, json: await answer.json() };
}

/** A lock whose holder may have it for five seconds, and which the nodes keep for a minute all the same, as
 *  nodes do whose clocks are slow: the service itself grants no longer than `max_hold`. */
export async function overstayed(url, name) {
  const { status } = await post(url, "/v1/acquire", { name, ttl: "60s", max_hold: "5s" });
  assert.equal(status, 200, name);
  for (const node of [0, 1, 2]) assert.equal(await redis(node, "PEXPIRE", name, "60000"), ":1\r\n", name);
}

export async function until(what, holds, limit = LIMIT) {
  const end = Date.now() + limit;
  for (;;) {
    const found = await holds();
    if (found) return found;
    if (Date.now() > end) throw new Error(`${what}: not within ${limit / 1000} s`);
    await new Promise((wake) => setTimeout(wake, 50));
  }
}

export async function launch() {
  return chromium.launch({ executablePath: process.env.UI_CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"] });
}

/** A page that fails the tests by itself: on an error, on a violation of the policy, on a foreign request. */
export async function open(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, locale: "en-US", ...options });
  const page = await context.newPage();
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(`error: ${error.stack}`));
  page.on("console", (message) => {
    // The browser's own word for an answer that is refused.
    const refused = /Failed to load resource/.test(message.text());
    if (message.type() === "error" && !refused) page.faults.push(`console: ${message.text()}`);
  });
  page.on("dialog", (dialog) => { page.faults.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => {
    const to = new URL(request.url());
    if (to.origin !== new URL(url).origin && to.protocol !== "blob:") page.faults.push(`request to ${request.url()}`);
  });
  await page.goto(`${url}/ui/`);
  return page;
}

const AXE = await readFile(require.resolve("axe-core/axe.min.js"), "utf8");

/** What axe-core has to say of the page as it is. */
export async function violations(page) {
  await page.evaluate(`(() => { ${AXE}; window.axe = axe ?? window.axe; })()`);
  return page.evaluate(async () => {
    const { violations } = await window.axe.run(document, { resultTypes: ["violations"] });
    return violations.map((it) => `${it.id}: ${it.nodes.map((node) => `${node.html} ${node.failureSummary}`).join(" | ")}`);
  });
}

/** Until the page shows it. Not waitForFunction, which evaluates text in the page: its policy forbids that. */
export async function shows(page, condition, argument) {
  try {
    return await until(String(condition), () => page.evaluate(condition, argument));
  } catch (error) {
    throw Object.assign(error, { stack: new Error(error.message).stack });
  }
}

/** Until that part of the page says it: what it shows may be a moment old, and an event may be due only soon. */
export async function says(part, words) {
  let last = "";
  try {
    await until(String(words), async () => words.test(last = await part.textContent()));
  } catch (error) {
    throw new Error(`${error.message}; it says: ${last}`);
  }
}

export function sound(page) {
  assert.deepEqual(page.faults, []);
}

export async function go(page, hash) {
  await page.evaluate((to) => { location.hash = to; }, hash);
}

export const rowOf = (page, name) => page.locator(`a.lock-row[data-name="${name}"]`);

/** Light and dark, and without a violation; narrow it scrolls in one direction only. */
export async function pictured(page, name) {
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    assert.deepEqual(await violations(page), [], `${name}, ${scheme}`);
    await writeFile(join(SHOTS, `ui-${name}-${scheme}.png`), reduced(await page.screenshot()));
  }
  await page.emulateMedia({ colorScheme: "light" });
  const size = page.viewportSize();
  await page.setViewportSize({ width: 360, height: 740 });
  await page.waitForTimeout(100);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 360, `${name} is ${wide} px wide on a screen of 360`);
  assert.deepEqual(await violations(page), [], `${name}, narrow`);
  await writeFile(join(NARROW_SHOTS, `ui-${name}-narrow.png`), reduced(await page.screenshot()));
  await page.setViewportSize(size);
}

/** The Rust test has the servers: asks it to kill or restart one. */
export function ask(what, node) {
  console.log(`${what} ${node}`);
}
