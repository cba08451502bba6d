import { crc32, deflateSync } from "node:zlib";
import type { Browser } from "playwright-core";

/** Colours that a picture of few bytes can have. */
const COLOURS = 256;

/** The most frequent colours are kept as they are: grounds, lines and text. */
const EXACT = 64;
/** Bits by which one of the rarer colours is told from others: five of eight a channel. */
const TOLD = 0xf8f8f8;

/**
 * The same picture in at most 256 colours, which is a third of the bytes: colours that hardly differ become one, and the
 * rarest become the nearest of those that are kept. A browser reads it; pictures that it takes itself hold every colour.
 */
export async function fewerColours(browser: Browser, png: Buffer): Promise<Buffer> {
  const { width, height, rgba } = await pixels(browser, png);
  const colours = new Uint32Array(width * height).map((_, i) => rgba.readUIntBE(4 * i, 3));
  const counts = new Map<number, number>();
  for (const colour of colours) counts.set(colour, (counts.get(colour) ?? 0) + 1);
  const byCount = [...counts].sort(([, a], [, b]) => b - a).map(([colour]) => colour);
  const told = new Set<number>();
  const kept = byCount
    .filter((colour, i) => {
      const known = told.has(colour & TOLD);
      told.add(colour & TOLD);
      return i < EXACT || !known;
    })
    .slice(0, COLOURS);
  const index = new Map(byCount.map((colour) => [colour, nearest(kept, colour)]));
  const rows = Buffer.alloc((width + 1) * height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) rows[y * (width + 1) + x + 1] = index.get(colours[y * width + x] ?? 0) ?? 0;
  }
  return encode(width, height, kept, rows);
}

async function pixels(browser: Browser, png: Buffer): Promise<{ width: number; height: number; rgba: Buffer }> {
  const page = await browser.newPage();
  const { width, height, base64 } = await page.evaluate(async (png) => {
    const bitmap = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
    const canvas = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
    canvas?.drawImage(bitmap, 0, 0);
    const bytes = new Uint8Array(canvas?.getImageData(0, 0, bitmap.width, bitmap.height).data.buffer ?? []);
    const reader = new FileReader();
    const read = new Promise((done) => (reader.onload = done));
    reader.readAsDataURL(new Blob([bytes]));
    await read;
    return { width: bitmap.width, height: bitmap.height, base64: String(reader.result).replace(/^.*,/, "") };
  }, png.toString("base64"));
  await page.close();
  return { width, height, rgba: Buffer.from(base64, "base64") };
}

function nearest(colours: number[], wanted: number): number {
  const distance = (a: number, b: number) => {
    const [red, green, blue] = [(a >> 16) - (b >> 16), ((a >> 8) & 255) - ((b >> 8) & 255), (a & 255) - (b & 255)];
    return red * red + green * green + blue * blue;
  };
  let best = 0;
  for (const [i, colour] of colours.entries()) {
    if (distance(colour, wanted) < distance(colours[best] ?? 0, wanted)) best = i;
  }
  return best;
}

/** A PNG file of colours by their number in a palette; each row begins with its filter, none. */
function encode(width: number, height: number, palette: number[], rows: Buffer): Buffer {
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 3], 8);
  const colours = Buffer.concat(palette.map((colour) => Buffer.from([colour >> 16, (colour >> 8) & 255, colour & 255])));
  const parts: [string, Buffer][] = [
    ["IHDR", head],
    ["PLTE", colours],
    ["IDAT", deflateSync(rows, { level: 9 })],
    ["IEND", Buffer.alloc(0)],
  ];
  return Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), ...parts.map(([name, data]) => chunk(name, data))]);
}

function chunk(name: string, data: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(name, "latin1"), data]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  sum.writeUInt32BE(crc32(named));
  return Buffer.concat([length, named, sum]);
}
