// What others wrote is text; what others send is refused.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { DIR, LIMIT, go, hold, kill, named, open, post, rowOf, serve, shows, sound, violations } from "../world.mjs";

/** HTML, quotes, marks that turn text around, 512 bytes: shown, and nothing executed. */
export async function names({ browser, page, url, cast }) {
  const bad = [
    `<img src=x onerror="alert(1)">`, `"><script>alert(2)</script>`, "'; alert(3); '", "javascript:alert(4)",
    "a\u202egnp.exe", "ש\u200fלום", "x".repeat(512), "%00%0a{{7*7}}${7*7}",
  ];
  for (const name of bad) {
    const { status } = await post(url, "/v1/acquire", { name, ttl: "30s" });
    assert.equal(status, 200, name);
  }
  cast.push(hold(["owner-test", "--value", `<b onmouseover="alert(5)">me</b>`], named("owner"), "elect"));
  await go(page, "#/locks?sort=name&dir=up");
  await page.reload();
  await shows(page, () => document.querySelector("[data-name='owner-test']"));
  for (const name of bad) {
    await page.getByRole("searchbox").fill(name);
    await shows(page, (wanted) => document.querySelector(".lock-row")?.dataset.name === wanted, name);
    await go(page, `#/lock/${encodeURIComponent(name)}`);
    await shows(page, () => document.querySelectorAll("td.agrees").length === 3);
    await go(page, "#/locks");
    await page.locator(".lock-row").first().waitFor();
  }
  await page.getByRole("searchbox").fill("owner-test");
  await shows(page, () => document.querySelector(".lock-row .owner")?.textContent === '<b onmouseover="alert(5)">me</b>');
  assert.equal(await page.evaluate(() => document.querySelectorAll("main img, main script, main b[onmouseover]").length), 0);
  // An address that somebody made up.
  await go(page, "#/lock/%");
  await shows(page, () => document.querySelector("h1")?.textContent === "%");
  await go(page, "#/locks");
  await page.getByRole("searchbox").fill("owner-test");
  // The mark that turns text around is shown as what it is.
  await page.getByRole("searchbox").fill("gnp");
  await shows(page, () => document.querySelector(".lock-row .name")?.textContent.includes("U+202E"));
  await page.getByRole("searchbox").fill("");
  sound(page);
  // And if something were inline, it would not run.
  await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "window.ran = true";
    document.body.append(script);
    const image = document.createElement("div");
    image.innerHTML = "<img src=x onerror='window.ran = true'>";
    document.body.append(image);
  });
  await page.waitForTimeout(200);
  assert.equal(await page.evaluate(() => window.ran), undefined);
  await page.reload();
  page.faults.length = 0;
}

/** A page of another site steals nothing, by a form or by a script, cookies or not. */
export async function foreign({ browser, page, url, cast }) {
  const { json: held } = await post(url, "/v1/acquire", { name: "prize", ttl: "60s" });
  // A form, a form whose text is JSON, a script that may not read the answer, one that asks whether it may.
  const json = JSON.stringify({ name: "prize", reason: "mine" });
  const attack = (how) => `<form method="post" action="${url}/v1/steal" enctype="${how}">${how === "text/plain"
    ? `<input name='${json.slice(0, -1)},"x":"' value='"}'>` : `<input name="name" value="prize"><input name="reason" value="mine">`}</form>
    <script>(async () => {
      const sent = { method: "POST", credentials: "include" };
      await fetch("${url}/v1/steal", { ...sent, mode: "no-cors", body: new URLSearchParams({ name: "prize", reason: "mine" }) }).catch(() => {});
      await fetch("${url}/v1/steal", { ...sent, headers: { "content-type": "application/json" }, body: ${JSON.stringify(json)} }).catch(() => {});
      document.forms[0].submit();
    })();</script>`;
  const foreign = createServer((asked, answer) => {
    answer.setHeader("content-type", "text/html");
    answer.end(attack(asked.url === "/plain" ? "text/plain" : "application/x-www-form-urlencoded"));
  });
  await new Promise((done) => foreign.listen(0, done));
  const { port } = foreign.address();
  // Another site, and another port of the same one; with a cookie, which the service never looks at.
  for (const site of [`http://localhost:${port}/`, `http://localhost:${port}/plain`, `http://127.0.0.1:${port}/`]) {
    const context = await browser.newContext();
    await context.addCookies([{ name: "session", value: "of the operator", url }]);
    const victim = await context.newPage();
    const answered = victim.waitForResponse((it) => it.url().endsWith("/v1/steal") && it.request().isNavigationRequest());
    await victim.goto(site);
    assert.equal((await answered).status(), 403, site);
    await context.close();
  }
  foreign.close();
  const { snapshot } = await (await fetch(`${url}/v1/events?after=0&name=prize`)).json();
  assert.equal(snapshot.locks[0].holder.token, held.token, "it is still whose it was");
}

/** Whoever may not steal cannot; whose token is withdrawn is asked again. */
export async function tokens({ browser, page, url, cast }) {
  const file = join(DIR, "tokens.toml");
  const entry = (who, verbs) =>
    `[[token]]\nprincipal = "${who}"\nsha256 = "${createHash("sha256").update(who).digest("hex")}"\nverbs = ${JSON.stringify(verbs)}\nprefixes = [""]\n`;
  await writeFile(file, entry("viewer", ["read"]));
  const guarded = await serve("serve", "--listen", "127.0.0.1:0", "--tokens", file);
  const viewer = await open(browser, guarded.url);
  const field = viewer.getByLabel("Bearer token");
  await field.waitFor();
  assert.deepEqual(await violations(viewer), []);
  await field.fill("nonsense");
  await viewer.getByRole("button", { name: "Continue" }).click();
  await shows(viewer, () => /not known/.test(document.getElementById("login-why")?.textContent ?? ""));
  await field.fill("viewer");
  await viewer.getByRole("button", { name: "Continue" }).click();
  await rowOf(viewer, "billing/close-month").waitFor();
  await go(viewer, "#/lock/billing%2Fclose-month");
  await viewer.getByText("You have no right to steal.").waitFor();
  assert.ok(await viewer.getByRole("button", { name: /^Steal this lock/ }).isDisabled());
  // What the button does not let it do, the service does not either.
  const refused = await post(guarded.url, "/v1/steal", { name: "billing/close-month", reason: "x" }, { authorization: "Bearer viewer" });
  assert.equal(refused.status, 403);
  // Its token is withdrawn while it looks: the page asks again, and shows nothing new.
  await writeFile(file, entry("other", ["read"]));
  await field.waitFor({ timeout: LIMIT });
  const expired = await post(guarded.url, "/v1/steal", { name: "billing/close-month", reason: "x" }, { authorization: "Bearer viewer" });
  assert.equal(expired.status, 401);
  await post(url, "/v1/acquire", { name: "after-the-end", ttl: "60s" });
  await go(page, "#/locks?q=after");
  await rowOf(page, "after-the-end").waitFor();
  assert.equal(await viewer.getByText("after-the-end").count(), 0);
  // As another principal it goes on, and has no more rights than that one.
  await field.fill("other");
  await viewer.getByRole("button", { name: "Continue" }).click();
  await viewer.getByText("You have no right to steal.").waitFor();
  await go(viewer, "#/locks?q=after");
  await rowOf(viewer, "after-the-end").waitFor();
  assert.deepEqual(viewer.faults, []);
  await viewer.context().close();
  kill(guarded.child, "SIGTERM");
}

/** `fencepost ui` changes nothing. */
export async function readonly({ browser, page, url, cast }) {
  const only = await serve("ui");
  const shown = await open(browser, only.url);
  await rowOf(shown, "billing/close-month").waitFor();
  const refused = await post(only.url, "/v1/steal", { name: "billing/close-month", reason: "x" });
  assert.equal(refused.json.code, "read_only");
  await go(shown, "#/lock/billing%2Fclose-month");
  await shown.getByText("This dashboard only shows.").waitFor();
  await shown.context().close();
  kill(only.child, "SIGTERM");
}
