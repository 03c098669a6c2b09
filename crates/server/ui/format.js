// How times and figures are written.

/**
 * `26 s`, `3 min 05 s`, `2 h 10 min`: at most two parts.
 * @param {number} ms
 */
export function duration(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m} min ${String(Math.floor(s % 60)).padStart(2, "0")} s`;
  const h = Math.floor(m / 60);
  if (h < 24) return `${h} h ${String(m % 60).padStart(2, "0")} min`;
  return `${Math.floor(h / 24)} d ${h % 24} h`;
}

/**
 * The same in one part, for tables: `26s`, `3m`, `2h`.
 * @param {number} ms
 */
export function short(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 100) return `${Math.floor(s)} s`;
  if (s < 6000) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

/** @param {number} value */
export function count(value) {
  return value.toLocaleString("en-US");
}

/**
 * `12:04:31`, with the day if it is another one.
 * @param {number} ms
 */
export function clock(ms) {
  const at = new Date(ms);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return at.toDateString() === new Date().toDateString()
    ? time
    : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

/**
 * A word for a shell: in quotes unless it needs none.
 * @param {string} text
 */
export function quoted(text) {
  return /^[A-Za-z0-9_./:@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** What a warning means. */
export const WARNINGS = /** @type {Record<string, [string, string, string]>} */ ({
  unknown: ["unknown", "bad", "Too few nodes answer to tell who holds it."],
  split: ["split", "bad", "Nodes have it for different holders, and nobody on a majority."],
  bare_majority: ["bare majority", "warn", "Held on just enough nodes: if one more fails, it cannot be renewed."],
  max_hold: ["past max hold", "bad", "Held for longer than its max_hold: its lease is over, whatever the nodes still say."],
  near_end: ["near its end", "warn", "Less than a third of its TTL is left: its holder has not renewed."],
  foreign: ["foreign", "", "Held by a client of another library: no token, no session."],
  no_expiry: ["no expiry", "warn", "It never expires by itself: its holder set no time to live."],
});
