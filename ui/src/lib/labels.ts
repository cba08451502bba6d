import { t } from "./look.svelte";
import { visible } from "./text";
import type { Tone } from "./components/Chip.svelte";
import type { GateVerdict } from "./types/GateVerdict";
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
  const alpha = mixOf(arm);
  return alpha === null ? (t().arms.names[arm] ?? visible(arm)) : t().arms.mixture(visible(alpha));
}

/** What an arm is for, in a sentence. */
export const armPurpose = (arm: string) => t().arms.purposes[arm] ?? "";

export const statusTones: Record<Status, Tone> = { pass: "pass", warn: "warn", fail: "fail", skipped: "neutral" };

export const verdictTones: Record<Verdict, Tone> = {
  pass: "pass",
  vacuous: "warn",
  fail: "fail",
  inconclusive: "undecided",
  legacy: "neutral",
  "not-a-gate-report": "neutral",
};

export const gateTones: Record<GateVerdict, Tone> = {
  pass: "pass",
  fail: "fail",
  undecided: "undecided",
  vacuous: "warn",
  missing: "fail",
};

export const severityTones: Record<Severity, Tone> = { error: "fail", warn: "warn", info: "neutral" };

/** Key of an arm in an evidence file, in words. */
export function armKeyName(key: string): string {
  const mix = "k3_cross_model_alpha_";
  return key.startsWith(mix) ? t().arms.mixture(visible(key.slice(mix.length))) : (t().arms.keys[key] ?? visible(key));
}

/** How many layers got what at the evicted positions, in words. */
export function filledLayers(layers: RestoredLayer[]): string {
  const count = (positions: (layer: RestoredLayer) => number) => layers.filter((layer) => positions(layer) > 0).length;
  const words = t().arms.filled;
  const kinds: [number, string][] = [
    [count((layer) => layer.from_f_theta), words.fTheta],
    [count((layer) => layer.from_mix), words.mix],
    [count((layer) => layer.from_noise), words.noise],
    [count((layer) => layer.hidden), words.hidden],
    [count((layer) => layer.from_capture), words.captured],
  ];
  const parts = kinds.filter(([layers]) => layers > 0).map(([layers, what]) => `${layers} ${what}`);
  return parts.join(", ") || t().common.none;
}
