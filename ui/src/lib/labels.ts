import type { Tone } from "./components/Chip.svelte";
import type { AxisName } from "./types/AxisName";
import type { GateVerdict } from "./types/GateVerdict";
import type { Group } from "./types/Group";
import type { MemoryKind } from "./types/MemoryKind";
import type { PairClass } from "./types/PairClass";
import type { Platform } from "./types/Platform";
import type { RestoredLayer } from "./types/RestoredLayer";
import type { Severity } from "./types/Severity";
import type { Status } from "./types/Status";
import type { Verdict } from "./types/Verdict";

/** Every arm but mixtures, in the order in which a report shows them. */
export const ARMS = [
  "oracle",
  "sink-window",
  "restored:s5",
  "restored:f-theta",
  "restored:identity",
  "restored:same-checkpoint",
  "no-restoration:s5",
  "no-restoration:f-theta",
  "random:s5",
  "random:f-theta",
];

const MIX = "restored:mix:";

/** The weight of the true K/V in a mixture; null for every other arm. */
export function mixOf(arm: string): string | null {
  return arm.startsWith(MIX) ? arm.slice(MIX.length) : null;
}

/** The arm that mixes true K/V into those of f_θ with a weight. */
export const mixArm = (alpha: number) => MIX + alpha;

/** What an arm is called. */
export function armName(arm: string): string {
  const names: Record<string, string> = {
    oracle: "oracle",
    "sink-window": "sink + window",
    "restored:s5": "restored (S5 + f_θ)",
    "restored:f-theta": "restored (f_θ only)",
    "restored:identity": "restored (identity)",
    "restored:same-checkpoint": "restored (same checkpoint)",
    "no-restoration:s5": "control: hidden (S5)",
    "no-restoration:f-theta": "control: hidden (all layers)",
    "random:s5": "control: noise (S5)",
    "random:f-theta": "control: noise (all layers)",
  };
  const alpha = mixOf(arm);
  return alpha === null ? (names[arm] ?? arm) : `mixture, α = ${alpha}`;
}

/** What an arm is for, in a sentence. */
export function armPurpose(arm: string): string {
  const purposes: Record<string, string> = {
    oracle: "The verifier with its whole native memory: the yardstick.",
    "sink-window": "Sees only sink and window, nothing restored: shows what eviction costs.",
    "restored:s5": "f_θ on sliding layers, the verifier's own K/V on full-attention layers.",
    "restored:f-theta": "f_θ on every layer: the arm in which f_θ has to carry the recall.",
    "restored:identity": "The verifier's own K/V on every layer: proves the plumbing, must equal the oracle.",
    "restored:same-checkpoint": "The verifier as its own drafter, without f_θ: for packs that have none.",
    "no-restoration:s5": "Evicted positions hidden on sliding layers: if it recalls as much as S5, f_θ carries nothing there.",
    "no-restoration:f-theta": "Evicted positions hidden on every layer: what is left without any restoration.",
    "random:s5": "Noise with f_θ's mean and norm on sliding layers: if it recalls as much as S5, f_θ carries nothing there.",
    "random:f-theta": "Noise with f_θ's mean and norm on every layer.",
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
  specification: "The run that is meant",
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
    k3_same_checkpoint: "restored (same checkpoint)",
    no_restoration: "control: hidden",
    no_restoration_s5: "control: hidden (S5)",
    no_restoration_ftheta_only: "control: hidden (all layers)",
    random_restoration: "control: noise",
    random_restoration_s5: "control: noise (S5)",
    random_restoration_ftheta_only: "control: noise (all layers)",
    engine_process: "engine process (all arms)",
  };
  const mix = "k3_cross_model_alpha_";
  return key.startsWith(mix) ? `mixture, α = ${key.slice(mix.length)}` : (names[key] ?? key);
}

/** How many layers got what at the evicted positions, in words. */
export function filledLayers(layers: RestoredLayer[]): string {
  const count = (positions: (layer: RestoredLayer) => number) => layers.filter((layer) => positions(layer) > 0).length;
  const kinds: [number, string][] = [
    [count((layer) => layer.from_f_theta), "from f_θ"],
    [count((layer) => layer.from_mix), "mixed"],
    [count((layer) => layer.from_noise), "noise"],
    [count((layer) => layer.hidden), "hidden"],
    [count((layer) => layer.from_capture), "captured"],
  ];
  const words = kinds.filter(([layers]) => layers > 0).map(([layers, what]) => `${layers} ${what}`);
  return words.join(", ") || "none";
}
