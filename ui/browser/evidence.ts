import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { file, program, ROOT } from "./desk";

/** Settings of a needle run of our own making: an evidence file holds these, and its rows. */
const CONFIG = { seed: 42, haystack_min_lines: 18, haystack_max_lines: 22, sink_size: 4, window_size: 64, max_new_tokens: 24 };

/** The text of a needle file in which both arms said `texts`, one a sample. */
export function evidence(texts: string[], extra: object = {}): string {
  const rows = { per_sample_correct: texts.map(() => true), per_sample_decoded: texts, recall: 1, n: texts.length };
  return JSON.stringify({
    schema_version: 2,
    kind: "k3_integrated_niah_acceptance",
    config: { ...CONFIG, n_samples: texts.length },
    results: { k3_cross_model: rows, oracle: rows },
    gate: { recall_delta_within_5pp: true },
    ...extra,
  });
}

interface Prompt {
  answer: string;
  padding_lines: number;
}

/** The prompts of a rung, as the program makes them. */
function prompts(rung: number, n: number): { lines: [number, number]; prompts: Prompt[] } {
  const asked = ["prompts", "--seed", "42", "--rung", String(rung), "-n", String(n), "--format", "json"];
  const { sets } = JSON.parse(execFileSync(program(), asked, { encoding: "utf8" })) as { sets: { lines: [number, number]; prompts: Prompt[] }[] };
  const [set] = sets;
  if (!set) throw new Error(`no prompts for rung ${String(rung)}`);
  return set;
}

/** What an arm said: the code, but for the samples that it lost; `slow` is its seconds a sample. */
function arm(name: string, codes: string[], lost: number[], say: (code: string) => string, slow: number): object {
  const said = codes.map((code, i) => (lost.includes(i) ? "I found no code." : say(code)));
  const correct = codes.map((_, i) => !lost.includes(i));
  const rates = codes.map((_, i) => (8 + (i % 3)) / slow);
  const hits = correct.filter(Boolean).length;
  return {
    name,
    samples_total: codes.length,
    samples_correct: hits,
    recall: hits / codes.length,
    per_sample_decoded: said,
    per_sample_correct: correct,
    per_sample_decode_tokens: codes.map((_, i) => 8 + (i % 3)),
    per_sample_throughput_tokens_per_sec: rates,
  };
}

/**
 * Files shaped like those of this program on a CUDA box and on a Mac, two rungs each. Nothing ran: their numbers are made
 * up, and agree with each other.
 */
export function lookAlikes(folder: string): void {
  for (const rung of [70, 280]) {
    const cuda = { device: "cuda", backend: "candle", says: (code: string) => code, lost: rung === 70 ? [] : [17], slow: rung / 100, gib: 17 + rung / 140 };
    const mac = { device: "metal", backend: "mlx", says: (code: string) => `The secret code is ${code}.`, lost: rung === 70 ? [] : [17, 23], slow: rung / 40, gib: 13 + rung / 160 };
    file(`evidence/cuda_ctx${String(rung)}.json`, lookAlike(rung, cuda))(folder);
    file(`evidence/mac_ctx${String(rung)}.json`, lookAlike(rung, mac))(folder);
  }
}

/** Digests of the prompts of a rung, 60 of seed 42. */
const DIGESTS: Record<number, string> = {
  70: "8a9666ee2036a2b8f788f8bddffef2c59ff34bde1ef31bb55eecf92c1c4501db",
  280: "64a23510be35af3088276048d735c20508c9770debdd12e94230c5a0cae0787a",
};

interface Machine {
  device: string;
  backend: string;
  /** How it puts a code. */
  says: (code: string) => string;
  /** Samples that the restored arm lost. */
  lost: number[];
  /** Seconds a sample. */
  slow: number;
  /** Highest memory of the restored arm, GiB. */
  gib: number;
}

function lookAlike(rung: number, { device, backend, says, lost, slow, gib }: Machine): string {
  const n = 60;
  const { lines, prompts: asked } = prompts(rung, n);
  const codes = asked.map(({ answer }) => answer);
  const lens = asked.map(({ padding_lines }) => padding_lines * 20 + 34);
  const real = JSON.parse(readFileSync(join(ROOT, "tests/fixtures/evidence/demo_ctx20_s5.json"), "utf8")) as { config: object; provenance: { host: object } };
  const peak = (gib: number) => ({ device_kind: device, device_name: "look-alike", peak_allocated_bytes: Math.round(gib * 2 ** 30) });
  const recall = 1 - lost.length / n;
  const delta = 100 * (1 - recall);
  const counters = { arm: "restored:s5", complete: true, passes: n, evicted_positions: lens.reduce((sum, len) => sum + len - 68, 0) };
  const layers = [0, 1, 2, 3, 4, 5].map((layer) => {
    const [from_f_theta, from_capture] = layer % 3 === 2 ? [0, counters.evicted_positions] : [counters.evicted_positions, 0];
    return { layer, from_f_theta, from_capture };
  });
  const dataset = { seed: 42, n_samples: n, min_lines: lines[0], max_lines: lines[1], rung, prompt_variant: "legacy", sha256: DIGESTS[rung] };
  const evidence = {
    schema_version: 2,
    kind: "k3_integrated_niah_acceptance",
    config: { ...real.config, ...CONFIG, n_samples: n, haystack_min_lines: lines[0], haystack_max_lines: lines[1], prompt_token_lens: lens, device },
    results: { k3_cross_model: arm("k3_cross_model", codes, lost, says, 2 * slow), oracle: arm("oracle", codes, [], says, slow) },
    memory: { k3_cross_model: peak(gib), oracle: peak(gib + rung / 50) },
    gate: { recall_cross_model: recall, recall_oracle: 1, recall_delta_vs_oracle_pp: delta, recall_delta_within_5pp: delta <= 5 },
    restoration: {
      k3_cross_model: {
        ...counters,
        drafter_positions: counters.evicted_positions,
        projected_positions: 4 * counters.evicted_positions,
        drafter_s: 0.4 * slow * n,
        projection_s: 0.1 * slow * n,
        capture_s: 0.2 * slow * n,
        layers,
        samples: lens.map((prompt_tokens, sample) => ({ sample, prompt_tokens, passes: 1, evicted_positions: prompt_tokens - 68, complete: true })),
      },
    },
    provenance: {
      ...real.provenance,
      pack_name: "look-alike",
      demo: false,
      backend,
      device,
      device_name: "look-alike",
      host: { ...real.provenance.host, cpu: "look-alike" },
      git_dirty: false,
      weights: [],
      dataset,
    },
  };
  return JSON.stringify(evidence, null, 1);
}
