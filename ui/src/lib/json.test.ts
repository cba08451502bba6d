import { expect, test } from "vitest";
import { tokens } from "./json";

const kinds = (line: string) => tokens(line).map(({ kind, text }) => `${kind}:${text.trim()}`);
const joined = (line: string) => tokens(line).map(({ text }) => text).join("");

test("keys, texts, numbers and words are told apart", () => {
  expect(kinds('  "a": "b: \\"c\\"",')).toEqual(["plain:", "key:\"a\"", "plain::", "plain:", 'string:"b: \\"c\\""', "plain:,"]);
  expect(kinds('"n": -1.5e-3, "x": NaN').filter((part) => !part.startsWith("plain"))).toEqual(['key:"n"', "number:-1.5e-3", 'key:"x"', "word:NaN"]);
});

test("nothing is lost, whatever stands there", () => {
  for (const line of ['"unclosed <img src=x onerror=alert(1)>', "", "][{}:,", '"\\', "证据 👩‍👩‍👧 1e5", '"a"'.repeat(3)]) {
    expect(joined(line)).toBe(line);
  }
});
