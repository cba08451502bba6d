"""Tokens a second of llama.cpp: one of what `cargo xtask bench gguf` measures the engine against.

    python llama_cpp_rates.py FOLDER THREADS

FOLDER holds one GGUF file. Reads one request a line, {"ids": PROMPT, "tokens": N}, and answers each greedily with {"ids",
"prefill_s", "decode_s"}: seconds up to the first token, and those of the N - 1 after it.
"""

import json
import sys
import time
from pathlib import Path

import llama_cpp
from llama_cpp import Llama


def without_extra_buffers(defaults=llama_cpp.llama_model_default_params):
    """The kernels that copy weights into a layout of their own are left out: those for AMX crash where a virtual machine
    shows the instructions but has no room for their registers. They exist for few formats of 4 bits."""
    params = defaults()
    params.use_extra_bufts = False
    return params


llama_cpp.llama_cpp.llama_model_default_params = without_extra_buffers


def answer(model, ids, count):
    model.reset()
    start = time.perf_counter()
    model.eval(ids)
    tokens = [model.sample(temp=0.0)]
    middle = time.perf_counter()
    while len(tokens) < count:
        model.eval(tokens[-1:])
        tokens.append(model.sample(temp=0.0))
    return {"ids": tokens, "prefill_s": middle - start, "decode_s": time.perf_counter() - middle}


def main():
    (file,) = Path(sys.argv[1]).glob("*.gguf")
    threads = int(sys.argv[2])
    model = Llama(str(file), n_ctx=4096, n_threads=threads, n_threads_batch=threads, verbose=False)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(answer(model, request["ids"], request["tokens"])), flush=True)


if __name__ == "__main__":
    main()
