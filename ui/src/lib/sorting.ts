import { t } from "./look.svelte";
import type { EvidenceRow } from "./types/EvidenceRow";

/** Columns of the evidence list by which it can be sorted. */
export const COLUMNS = ["file", "platform", "rung", "tested", "oracle", "verdict", "findings"] as const;
export type Column = (typeof COLUMNS)[number];

/** What the list is sorted by. */
export interface Order {
  column: Column;
  descending: boolean;
}

/** What the list is narrowed down to; empty means all. */
export interface Filter {
  text: string;
  platform: string;
  verdict: string;
}

/** By the same column the other way round; by another from its start. */
export function turned(order: Order, column: Column): Order {
  return { column, descending: order.column === column && !order.descending };
}

const text = new Intl.Collator(undefined, { numeric: true });

/** Hits as a fraction; a file without them comes first. */
function recall(hits: string | null): number {
  const [hit, n] = (hits ?? "").split("/").map(Number);
  return hit === undefined || !n ? -1 : hit / n;
}

const compare: Record<Column, (a: EvidenceRow, b: EvidenceRow) => number> = {
  file: (a, b) => text.compare(a.path, b.path),
  platform: (a, b) => text.compare(a.platform, b.platform),
  rung: (a, b) => text.compare(a.rung, b.rung),
  tested: (a, b) => recall(a.tested) - recall(b.tested),
  oracle: (a, b) => recall(a.oracle) - recall(b.oracle),
  verdict: (a, b) => text.compare(a.verdict, b.verdict),
  findings: (a, b) => a.errors - b.errors || a.warnings - b.warnings,
};

/** The rows in this order; rows that are equal in it keep the one they came in. */
export function sorted(rows: EvidenceRow[], { column, descending }: Order): EvidenceRow[] {
  const sign = descending ? -1 : 1;
  return rows.toSorted((a, b) => sign * compare[column](a, b));
}

/** The rows that hold every word, on this platform, with this verdict. */
export function filtered(rows: EvidenceRow[], { text, platform, verdict }: Filter): EvidenceRow[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter(
    (row) =>
      (platform === "" || row.platform === platform) &&
      (verdict === "" || row.verdict === verdict) &&
      words.every((word) => haystack(row).includes(word)),
  );
}

function haystack({ path, kind, platform, verdict, rung }: EvidenceRow): string {
  return [path, kind, t().platforms[platform], verdict, t().verdicts[verdict], rung].join(" ").toLowerCase();
}
