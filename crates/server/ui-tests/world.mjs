// What the tests look at: the program on real Redis servers, and a browser.

import { execFile, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const require = createRequire(import.meta.url);

export const FENCEPOST = process.env.FENCEPOST_PROGRAM;
export const STORE = process.env.UI_STORE;
export const DIR = process.env.UI_DIR;
/** More than anything here takes on a busy machine. */
export const LIMIT = 30_000;

const children = new Set();

/** Starts the program; it is killed at the end at the latest. */
export function start(...words) {
  const child = spawn(FENCEPOST, [...words, "--store", STORE, "--restart-policy", "trust"],
    { cwd: DIR, stdio: ["ignore", "pipe", "pipe"], detached: true });
  return kept(child);
}

/** A command under a lock. */
export function hold(words, command) {
  const child = spawn(FENCEPOST, ["run", "--store", STORE, "--restart-policy", "trust", ...words, "--", ...command],
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
export async function serve(...words) {
  const child = spawn(FENCEPOST, [...words, "--store", STORE, "--restart-policy", "trust"],
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
  return new Promise((done) => execFile(FENCEPOST, [...words, "--store", STORE, "--restart-policy", "trust"], { cwd: DIR },
    (error, out, err) => done({ code: error ? error.code : 0, out, err })));
}

export async function post(url, path, body, headers = {}) {
  const answer = await fetch(url + path, { method: "POST", body: JSON.stringify(body),
    headers: { "content-type": "application/json", ...headers } });
  return { status: answer.status, json: await answer.json() };
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
  const path = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
  return chromium.launch({ executablePath: process.env.UI_CHROMIUM ?? path, args: ["--no-sandbox", "--disable-gpu",
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
