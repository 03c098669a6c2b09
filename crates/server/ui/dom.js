// Elements are made by hand, and what others wrote becomes text and nothing else: there is no
// innerHTML anywhere in the dashboard.

/**
 * @typedef {string | number | Node | null | undefined | false} Child
 * @typedef {Record<string, unknown>} Props
 */

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Props | null} [props] `class`, `on…` handlers, properties and attributes
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") node.className = String(value);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), /** @type {EventListener} */ (value));
    else if (key in node && !key.includes("-")) /** @type {any} */ (node)[key] = value;
    else node.setAttribute(key, String(value));
  }
  append(node, children);
  return node;
}

/**
 * @param {Node} node
 * @param {(Child | Child[])[]} children
 */
function append(node, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    node.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * Puts these in the place of what was there.
 * @param {Element} node
 * @param {...(Child | Child[])} children
 */
export function fill(node, ...children) {
  node.textContent = "";
  append(node, children);
}

/**
 * Sets the text only if it is another one: layout is not done for nothing.
 * @param {Node} node
 * @param {string} text
 */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return found;
}

/** A name or an owner: text of others, which keeps its direction to itself. */
/**
 * @param {"name" | "owner"} kind
 * @param {string} text
 * @param {string} [href]
 */
export function foreign(kind, text, href) {
  const shown = visible(text);
  const title = text.length > 40 ? text : undefined;
  return href
    ? el("a", { class: kind, href, dir: "auto", title }, shown)
    : el("span", { class: kind, dir: "auto", title }, shown);
}

/**
 * Marks that would turn or hide text are shown as what they are.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g,
    (mark) => `\u27e8U+${mark.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);
}
