import { expect, test } from "vitest";
import { bytes, count, interval, percent, seconds } from "./format";

test("bytes change unit at powers of 1024", () => {
  expect([0, 1023, 1024, 2 ** 20 - 1, 2 ** 20, 24 * 2 ** 30].map(bytes)).toEqual([
    "0 B",
    "1023 B",
    "1.0 KiB",
    "1024.0 KiB",
    "1.0 MiB",
    "24.00 GiB",
  ]);
});

test("durations carry over into minutes and hours", () => {
  expect([0, 9.94, 10, 59.4, 59.6, 65, 3599.6, 7380].map(seconds)).toEqual([
    "0.0 s",
    "9.9 s",
    "10 s",
    "59 s",
    "1 min 00 s",
    "1 min 05 s",
    "1 h 00 min",
    "2 h 03 min",
  ]);
});

test("fractions are percentages, whole where they are whole", () => {
  expect([0, 0.5, 2 / 3, 1].map(percent)).toEqual(["0 %", "50 %", "66.7 %", "100 %"]);
  expect(interval(0.8316, 1)).toBe("83.2 – 100 %");
});

test("one file, two files", () => {
  expect([count(1, "file"), count(0, "file"), count(2, "entry", "entries")]).toEqual(["1 file", "0 files", "2 entries"]);
});
