import { t } from "./look.svelte";
import { visible } from "./text";
import type { Audit } from "./types/Audit";

/** A claim of a file beside what its rows give. */
export interface Claim {
  name: string;
  stored: string;
  /** Null where rows give no such number. */
  recomputed: string | null;
  /** The audit found that the two do not agree. */
  contradicted: boolean;
}

/** The claims in the file's `gate` block. What is a contradiction, the audit decides. */
export function claims(audit: Audit): Claim[] {
  const gate = audit.claimed_gate;
  if (typeof gate !== "object" || gate === null) return [];
  const given = recomputed(audit);
  return Object.entries(gate).map(([name, stored]) => ({
    name: visible(name),
    stored: shown(stored),
    recomputed: name in given ? shown(given[name]) : null,
    contradicted: audit.findings.some(
      (finding) => finding.code.endsWith("_MISMATCH") && finding.pointer === `/gate/${name}`,
    ),
  }));
}

function recomputed(audit: Audit): Record<string, unknown> {
  const recall = (keys: string[]) => audit.niah?.arms.find((arm) => keys.includes(arm.key))?.recall;
  const paired = audit.recomputed?.paired;
  const given: Record<string, unknown> = {
    recall_cross_model: recall(["k3_cross_model"]),
    recall_oracle: recall(["oracle", "oracle_full_attention"]),
    recall_delta_vs_oracle_pp: paired ? Math.abs(paired.delta_pp) : undefined,
    recall_delta_within_5pp: paired?.within_5pp,
  };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

function shown(value: unknown): string {
  if (typeof value === "number") return String(Math.round(value * 1e4) / 1e4);
  if (value === null) return t().evidence.notMeasured;
  if (typeof value === "boolean") return value ? t().common.yes : t().common.no;
  return visible(typeof value === "string" ? value : JSON.stringify(value));
}
