import { expect, test } from "vitest";
import type { Backend } from "./backend/backend";
import { Checklist } from "./checklist.svelte";
import type { Check } from "./types/Check";
import type { PreflightRequest } from "./types/PreflightRequest";

const check = (id: string, status: Check["status"]): Check => ({
  id,
  group: "pack",
  title: id,
  status,
  measured: "",
  why: "",
  hint: "",
  command: "",
  fixable: false,
  undoable: false,
  seconds: 0,
});

const about = (pack: string): PreflightRequest => ({ pack, spec: null, spec_file: null, out: null, counterpart: null });

/** A program whose checklist says `checks`, and which hashes when it is let. */
function program(checks: Check[]) {
  let finish = () => {};
  const hashed: string[] = [];
  const backend = {
    preflight: async () => ({ checks, may_run: checks.every((row) => row.status !== "fail"), seconds: 0 }),
    preflightCheck: async (_: PreflightRequest, id: string) => check(id, "pass"),
    preflightDigests: async (pack: string, told: (progress: { done: number; total: number }) => void) => {
      hashed.push(pack);
      told({ done: 1, total: 2 });
      await new Promise<void>((resolve) => (finish = resolve));
    },
  } as unknown as Backend;
  return { checklist: new Checklist(backend), hashed, finish: () => finish() };
}

test("large files are hashed in the background, and their row is looked at again", async () => {
  const { checklist, hashed, finish } = program([check("pack-manifest", "pass"), check("pack-digests", "skipped")]);
  await checklist.ask(about("a"));
  await expect.poll(() => checklist.hashing).toEqual({ done: 1, total: 2 });
  await checklist.ask(about("a"));
  expect(hashed).toEqual(["a"]);
  finish();
  await expect.poll(() => checklist.hashing).toBe(null);
  await expect.poll(() => checklist.checks.at(1)?.status).toBe("pass");
});

test("nothing is hashed without a manifest", async () => {
  const { checklist, hashed } = program([check("pack-manifest", "fail"), check("pack-digests", "skipped")]);
  await checklist.ask(about("a"));
  expect(hashed).toEqual([]);
  expect(checklist.failing.map((row) => row.id)).toEqual(["pack-manifest"]);
});

test("one check alone decides again whether a run may start", async () => {
  const { checklist } = program([check("pack-manifest", "fail")]);
  await checklist.ask(about("a"));
  expect(checklist.report.value?.may_run).toBe(false);
  await checklist.askAgain(about("a"), "pack-manifest");
  expect(checklist.report.value?.may_run).toBe(true);
  await checklist.ask(about("b"));
  await checklist.askAgain(about("a"), "pack-manifest");
  expect(checklist.report.value?.may_run).toBe(false);
});
