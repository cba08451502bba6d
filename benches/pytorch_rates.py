"""Tokens a second of transformers on PyTorch: one of what `cargo xtask bench gguf` measures the engine against.

    python pytorch_rates.py FOLDER THREADS

Requests and answers are those of llama_cpp_rates.py. Weights are expanded to f32 on loading, as transformers does.
"""

import json
import sys
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, DynamicCache


def answer(model, ids, count):
    cache = DynamicCache(config=model.config)

    def step(ids):
        logits = model(input_ids=torch.tensor([ids]), cache=cache, logits_to_keep=1).logits[0, -1]
        return int(logits.argmax())

    start = time.perf_counter()
    tokens = [step(ids)]
    middle = time.perf_counter()
    while len(tokens) < count:
        tokens.append(step(tokens[-1:]))
    return {"ids": tokens, "prefill_s": middle - start, "decode_s": time.perf_counter() - middle}


@torch.inference_mode()
def main():
    (file,) = Path(sys.argv[1]).glob("*.gguf")
    torch.set_num_threads(int(sys.argv[2]))
    folder, name = str(file.parent), file.name
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(answer(model, request["ids"], request["tokens"])), flush=True)


if __name__ == "__main__":
    main()
