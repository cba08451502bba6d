import { expect, test } from "vitest";
import { filtered, sorted, turned } from "./sorting";
import type { EvidenceRow } from "./types/EvidenceRow";

const row = (name: string, rest: Partial<EvidenceRow> = {}): EvidenceRow => ({
  path: `/e/${name}`,
  name,
  kind: null,
  platform: "cuda",
  rung: "70",
  tested: null,
  oracle: null,
  verdict: "pass",
  errors: 0,
  warnings: 0,
  demo: false,
  ...rest,
});
const names = (rows: EvidenceRow[]) => rows.map((row) => row.name).join(" ");

test("numbers sort as numbers, recall as a fraction, and the other way round on demand", () => {
  const rungs = [row("a", { rung: "1100" }), row("b", { rung: "70" }), row("c", { rung: "280" })];
  expect(names(sorted(rungs, { column: "rung", descending: false }))).toBe("b c a");
  const hits = [row("a", { tested: "9/10" }), row("b", { tested: "10/72" }), row("c")];
  expect(names(sorted(hits, { column: "tested", descending: true }))).toBe("a b c");
  expect(turned({ column: "rung", descending: false }, "rung")).toEqual({ column: "rung", descending: true });
  expect(turned({ column: "rung", descending: true }, "file")).toEqual({ column: "file", descending: false });
});

test("every word must be found, platform and verdict must be the chosen ones", () => {
  const rows = [row("k3_mac.json", { platform: "mac" }), row("k3_cuda.json", { verdict: "vacuous" })];
  const all = { text: "", platform: "", verdict: "" };
  expect(names(filtered(rows, all))).toBe("k3_mac.json k3_cuda.json");
  expect(names(filtered(rows, { ...all, text: "K3 mac" }))).toBe("k3_mac.json");
  expect(names(filtered(rows, { ...all, verdict: "vacuous" }))).toBe("k3_cuda.json");
  expect(names(filtered(rows, { ...all, platform: "cpu" }))).toBe("");
});
