import type { Tone } from "./components/Chip.svelte";
import type { Group } from "./types/Group";
import type { Status } from "./types/Status";

/** Every arm, in the order in which a report shows them. */
export const ARMS = ["oracle", "sink-window", "restored:s5", "restored:f-theta", "restored:identity"];

/** What an arm is called. */
export function armName(arm: string): string {
  const names: Record<string, string> = {
    oracle: "oracle",
    "sink-window": "sink + window",
    "restored:s5": "restored (S5 + f_θ)",
    "restored:f-theta": "restored (f_θ only)",
    "restored:identity": "restored (identity)",
  };
  return names[arm] ?? arm;
}

/** What an arm is for, in a sentence. */
export function armPurpose(arm: string): string {
  const purposes: Record<string, string> = {
    oracle: "The verifier with its whole native memory: the yardstick.",
    "sink-window": "Sees only sink and window, nothing restored: shows what eviction costs.",
    "restored:s5": "f_θ on sliding layers, the verifier's own K/V on full-attention layers.",
    "restored:f-theta": "f_θ on every layer: the arm in which f_θ has to carry the recall.",
    "restored:identity": "The verifier's own K/V on every layer: proves the plumbing, must equal the oracle.",
  };
  return purposes[arm] ?? "";
}

export const groupNames: Record<Group, string> = {
  host: "Host",
  engine: "Engine",
  pack: "Model pack",
  verifier: "Verifier",
  tokenizer: "Tokenizer",
  drafter: "Drafter",
  "f-theta": "f_θ",
};

export const statusTones: Record<Status, Tone> = { pass: "pass", warn: "warn", fail: "fail", skipped: "neutral" };
