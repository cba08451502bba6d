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
