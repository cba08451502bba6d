import { expect, test } from "vitest";
import { fileName, splitAround, unique, visible, within } from "./text";

const joined = (text: string, code: string) =>
  splitAround(text, code)
    .map((part) => (part.marked ? `[${part.text}]` : part.text))
    .join("");

test("a code is marked wherever it stands, the text stays whole", () => {
  expect(joined("BETA-1409", "BETA-1409")).toBe("[BETA-1409]");
  expect(joined("It is BETA-1409, BETA-1409.", "BETA-1409")).toBe("It is [BETA-1409], [BETA-1409].");
  expect(joined("nothing", "BETA-1409")).toBe("nothing");
  expect(splitAround("", "")).toEqual([]);
  const hostile = "<img src=x onerror=alert(1)> BETA-1409";
  expect(splitAround(hostile, "BETA-1409").map((part) => part.text).join("")).toBe(hostile);
});

test("paths are shortened only below their folder", () => {
  expect(within("/a/b", "/a/b/c/d.json")).toBe("c/d.json");
  expect(within("/a/b", "/a/bc/d.json")).toBe("/a/bc/d.json");
  expect(within("/a/b", "/a/b")).toBe("/a/b");
  expect([fileName("/a/证据.json"), fileName("C:\\a\\b.json"), fileName("/a/b/")]).toEqual(["证据.json", "b.json", "b"]);
});

test("what acts unseen stands there as a mark; text of any script stays as it is", () => {
  expect(visible("a\u202eb\u2069\u001b[31m\u0085")).toBe("a‹U+202E›b‹U+2069›‹U+001B›[31m‹U+0085›");
  const plain = "tab\tline\r\nالرمز \u200f 👩‍👩‍👧 密码";
  expect(visible(plain)).toBe(plain);
  expect([fileName("/a/b\u202e.json"), within("/a", "/a/\u202eb")]).toEqual(["b‹U+202E›.json", "‹U+202E›b"]);
});

test("every path once", () => {
  expect(unique(["b", "a", "b"])).toEqual(["b", "a"]);
});
