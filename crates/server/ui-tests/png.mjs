// Screenshots with few colours: a palette PNG is a fifth of what a browser makes.

import { deflateSync, inflateSync } from "node:zlib";

const COLOURS = 96;

/** @param {Buffer} png as a browser makes it: 8 bits, RGB or RGBA, not interlaced */
export function reduced(png) {
  let at = 8;
  let header;
  const data = [];
  while (at < png.length) {
    const size = png.readUInt32BE(at);
    const kind = png.toString("latin1", at + 4, at + 8);
    const body = png.subarray(at + 8, at + 8 + size);
    if (kind === "IHDR") header = body;
    if (kind === "IDAT") data.push(body);
    at += size + 12;
  }
  const [width, height, channels] = [header.readUInt32BE(0), header.readUInt32BE(4), header[9] === 6 ? 4 : 3];
  const pixels = unfiltered(inflateSync(Buffer.concat(data)), width, height, channels);
  const counts = new Map();
  for (let i = 0; i < pixels.length; i += channels) {
    const colour = (pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2];
    counts.set(colour, (counts.get(colour) ?? 0) + 1);
  }
  const palette = chosen(counts);
  const nearest = new Map();
  for (const colour of counts.keys()) nearest.set(colour, closest(palette, colour));
  const rows = Buffer.alloc((width + 1) * height);
  for (let y = 0, i = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1, i += channels) {
      rows[y * (width + 1) + 1 + x] = nearest.get((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
    }
  }
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 3, 0, 0, 0], 8);
  const plte = Buffer.from(palette.flatMap((it) => [it >> 16, (it >> 8) & 255, it & 255]));
  return Buffer.concat([png.subarray(0, 8), chunk("IHDR", head), chunk("PLTE", plte),
    chunk("IDAT", deflateSync(rows, { level: 9 })), chunk("IEND", Buffer.alloc(0))]);
}

function unfiltered(raw, width, height, channels) {
  const stride = width * channels;
  const out = Buffer.alloc(stride * height);
  for (let y = 0; y < height; y += 1) {
    const filter = raw[y * (stride + 1)];
    for (let x = 0; x < stride; x += 1) {
      const a = x >= channels ? out[y * stride + x - channels] : 0;
      const b = y ? out[(y - 1) * stride + x] : 0;
      const c = x >= channels && y ? out[(y - 1) * stride + x - channels] : 0;
      const p = a + b - c;
      const [pa, pb, pc] = [Math.abs(p - a), Math.abs(p - b), Math.abs(p - c)];
      const guess = [0, a, b, (a + b) >> 1, pa <= pb && pa <= pc ? a : pb <= pc ? b : c][filter];
      out[y * stride + x] = raw[y * (stride + 1) + 1 + x] + guess;
    }
  }
  return out;
}

/** The most used, each at a distance from those before it: edges of letters fall together. */
function chosen(counts) {
  const byUse = [...counts].sort((a, b) => b[1] - a[1]).map(([colour]) => colour);
  for (let apart = 200; ; apart *= 4) {
    const palette = [];
    for (const colour of byUse) {
      if (palette.every((it) => distance(it, colour) > apart)) palette.push(colour);
      if (palette.length > COLOURS) break;
    }
    if (palette.length <= COLOURS) return palette;
  }
}

function distance(one, other) {
  const [r, g, b] = [(one >> 16) - (other >> 16), ((one >> 8) & 255) - ((other >> 8) & 255), (one & 255) - (other & 255)];
  return r * r + g * g + b * b;
}

function closest(palette, colour) {
  let best = 0;
  for (let i = 1; i < palette.length; i += 1) {
    if (distance(palette[i], colour) < distance(palette[best], colour)) best = i;
  }
  return best;
}

const TABLE = Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k += 1) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n >>> 0;
});

function chunk(kind, body) {
  const text = Buffer.concat([Buffer.from(kind, "latin1"), body]);
  let crc = 0xffffffff;
  for (const byte of text) crc = TABLE[(crc ^ byte) & 255] ^ (crc >>> 8);
  const [size, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  size.writeUInt32BE(body.length, 0);
  sum.writeUInt32BE((crc ^ 0xffffffff) >>> 0, 0);
  return Buffer.concat([size, text, sum]);
}
