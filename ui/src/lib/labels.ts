import type { Tone } from "./components/Chip.svelte";
import type { AxisName } from "./types/AxisName";
import type { GateVerdict } from "./types/GateVerdict";
import type { Group } from "./types/Group";
import type { MemoryKind } from "./types/MemoryKind";
import type { PairClass } from "./types/PairClass";
import type { Platform } from "./types/Platform";
import type { Severity } from "./types/Severity";
import type { Status } from "./types/Status";
import type { Verdict } from "./types/Verdict";

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

export const verdictTones: Record<Verdict, Tone> = {
  pass: "pass",
  vacuous: "warn",
  fail: "fail",
  inconclusive: "undecided",
  legacy: "neutral",
  "not-a-gate-report": "neutral",
};

export const verdictNames: Record<Verdict, string> = {
  pass: "pass",
  vacuous: "vacuous",
  fail: "fail",
  inconclusive: "inconclusive",
  legacy: "legacy schema",
  "not-a-gate-report": "no gate",
};

export const gateTones: Record<GateVerdict, Tone> = {
  pass: "pass",
  fail: "fail",
  undecided: "undecided",
  vacuous: "warn",
  missing: "fail",
};

export const severityTones: Record<Severity, Tone> = { error: "fail", warn: "warn", info: "neutral" };

export const platformNames: Record<Platform, string> = { cuda: "CUDA", mac: "Mac", cpu: "CPU", unknown: "unknown" };

export const memoryKinds: Record<MemoryKind, string> = {
  "allocator-peak": "measured peak",
  "device-sampled": "device, sampled",
  "process-footprint": "process footprint",
  "kv-counted": "counted K/V",
  formula: "formula, not measured",
};

export const axisNames: Record<AxisName, string> = {
  recall: "Recall",
  "per-sample": "Per sample",
  throughput: "Throughput",
  memory: "Memory",
  acceptance: "Acceptance",
};

export const pairNames: Record<PairClass, string> = {
  "cuda-mac": "two platforms",
  "cross-oracle": "an identity run against the other's oracle",
  repeat: "the same run twice",
  ab: "one platform, something changed on purpose",
};

/** Key of an arm in an evidence file, in words. */
export function armKeyName(key: string): string {
  const names: Record<string, string> = {
    oracle: "oracle",
    oracle_full_attention: "oracle",
    sink_window: "sink + window",
    v03_sink_window: "sink + window",
    k3_cross_model: "restored",
    v04_dlm_restored: "restored",
    k3_cross_model_s5: "restored (S5)",
    k3_cross_model_ftheta_only: "restored (f_θ only)",
    k3_identity_restore: "restored (identity)",
    engine_process: "engine process (all arms)",
  };
  return names[key] ?? key;
}
