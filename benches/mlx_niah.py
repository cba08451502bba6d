"""Answers prompts with a pack in Python's MLX: what `cargo xtask bench mlx` measures the engine against.

    python mlx_niah.py PACK VERIFIER (stored or float32)

Reads one request a line, {"arm": "oracle" or "restored:s5", "decode": "forced" or "reforward", "prompt": TEXT, "tokens": N}
(restored in the re-forward loop alone), and answers each with {"seconds", "text", "prompt_tokens", "prefill_s", "tokens",
"decode_s"}. The forced loop goes on for N tokens, whatever they are. The verifier is mlx-lm's own, as
are its cache and its loop; VERIFIER is its folder. The re-forward loops are the reference's: the whole sequence again for
every token, without a cache; what is restored is made once, from the prompt.
"""

import json
import sys
import time
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx_lm import load
from mlx_lm.generate import generate_step

SINK, WINDOW, MAX_NEW_TOKENS, CHUNK = 4, 64, 24, 512


def floats(file):
    return {name: array.astype(mx.float32) for name, array in mx.load(str(file)).items()}


class Projection:
    """The drafter, as far as f_theta needs it, and f_theta."""

    def __init__(self, pack):
        self.config = json.loads((pack / "drafter/config.json").read_text())
        self.drafter = floats(pack / "drafter/model.safetensors")
        self.f_theta = floats(pack / "f_theta/f_theta_weights.safetensors")

    def heads(self, x, weight):
        """[T, n * d] normed and rotated, as [1, n, T, d]."""
        dim = self.config["head_dim"]
        x = mx.fast.rms_norm(x.reshape(len(x), -1, dim), weight, self.config["rms_norm_eps"])
        x = x.swapaxes(0, 1)[None]
        return mx.fast.rope(x, dim, traditional=False, base=self.config["rope_theta"], scale=1.0, offset=0)

    def rows(self, h, positions, layers):
        """Raw K and V of the layers for a run of positions, from the drafter's embedded sequence [T, hidden]."""
        config, dim = self.config, self.config["head_dim"]
        keys, values = [], []
        for i in range(config["num_hidden_layers"]):
            w = {name.removeprefix(f"layers.{i}.").removesuffix(".weight"): weight
                 for name, weight in self.drafter.items() if name.startswith(f"layers.{i}.")}
            x = mx.fast.rms_norm(h, w["input_layernorm"], config["rms_norm_eps"])
            k, v = x @ w["self_attn.k_proj"].T, x @ w["self_attn.v_proj"].T
            keys.append(k)
            values.append(v)
            if i + 1 == config["num_hidden_layers"]:
                break
            query = self.heads(x @ w["self_attn.q_proj"].T, w["self_attn.q_norm"])
            key = self.heads(k, w["self_attn.k_norm"])
            value = v.reshape(len(v), -1, dim).swapaxes(0, 1)[None]
            attended = mx.fast.scaled_dot_product_attention(query, key, value, scale=dim**-0.5)
            h = h + attended[0].swapaxes(0, 1).reshape(len(h), -1) @ w["self_attn.o_proj"].T
            y = mx.fast.rms_norm(h, w["post_attention_layernorm"], config["rms_norm_eps"])
            h = h + (nn.silu(y @ w["mlp.gate_proj"].T) * (y @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T
        projected = {}
        for side, parts in (("k", keys), ("v", values)):
            latent = mx.concatenate([part[positions] for part in parts], -1) @ self.f_theta[f"encoder_{side}.weight"].T
            for i in layers:
                projected[i, side] = (latent @ self.f_theta[f"decoders_{side}.{i}.weight"].T)[None]
        return projected


class Replaced(nn.Module):
    """A projection of K or V whose rows at evicted positions are taken down, or replaced by others."""

    def __init__(self, projection, place, verifier):
        super().__init__()
        self.inner, self._place, self._verifier = projection, place, verifier

    def __call__(self, x):
        out, verifier = self.inner(x), self._verifier
        if verifier.captured is not None:
            verifier.captured[self._place] = out[:, verifier.evicted]
        rows = verifier.rows.get(self._place)
        if rows is None:
            return out
        return mx.concatenate([out[:, : verifier.evicted.start], rows.astype(out.dtype), out[:, verifier.evicted.stop :]], 1)


class Verifier:
    def __init__(self, pack, folder, precision):
        self.model, self.tokenizer = load(str(folder))
        if precision == "float32":
            self.model.set_dtype(mx.float32)
        self.projection = Projection(pack)
        self.evicted, self.rows, self.captured = slice(0, 0), {}, None
        self.full = [layer.layer_type == "full_attention" for layer in self.model.layers]
        self.stops = set(self.tokenizer.eos_token_ids)

    def hooked(self):
        """Puts the replaceable projections in place; what is measured without them runs without them."""
        for i, layer in enumerate(self.model.layers):
            for side in ("k", "v"):
                projection = getattr(layer.self_attn, f"{side}_proj", None)
                if projection is not None and not isinstance(projection, Replaced):
                    setattr(layer.self_attn, f"{side}_proj", Replaced(projection, (i, side), self))

    def unhooked(self):
        for layer in self.model.layers:
            for side in ("k", "v"):
                projection = getattr(layer.self_attn, f"{side}_proj", None)
                if isinstance(projection, Replaced):
                    setattr(layer.self_attn, f"{side}_proj", projection.inner)

    def restore(self, ids):
        """The reference's S5: full layers keep the K/V of a clean forward, the others get f_theta's."""
        self.hooked()
        self.evicted = slice(SINK, max(SINK, len(ids) - WINDOW))
        self.captured, self.rows = {}, {}
        mx.eval(self.model(ids[None]))
        captured, self.captured = self.captured, None
        sliding = [i for i, full in enumerate(self.full) if not full]
        hidden = self.model.args.hidden_size
        embedded = self.model.model.embed_tokens(ids).astype(mx.float32) * float(hidden)
        rows = self.projection.rows(embedded, self.evicted, sliding)
        self.rows = rows | {place: kv for place, kv in captured.items() if self.full[place[0]]}
        mx.eval(list(self.rows.values()))

    def cached(self, ids, wanted):
        """Tokens of mlx-lm's own loop."""
        for token, _ in generate_step(ids, self.model, max_tokens=wanted, prefill_step_size=CHUNK):
            yield token

    def again(self, ids):
        """Tokens of the re-forward loop."""
        while True:
            token = mx.argmax(self.model(ids[None])[0, -1]).item()
            yield token
            ids = mx.concatenate([ids, mx.array([token])])

    def answer(self, arm, decode, ids, wanted):
        start = time.perf_counter()
        self.unhooked()
        self.rows = {}
        if arm == "restored:s5":
            self.restore(ids)
        if decode == "forced":
            steps, stops, most = self.cached(ids, wanted), set(), wanted
        else:
            steps, stops, most = self.again(ids), self.stops, MAX_NEW_TOKENS
        generated, first = [], None
        for token in steps:
            first = first or time.perf_counter()
            generated.append(token)
            if token in stops or len(generated) == most:
                break
        end = time.perf_counter()
        return {
            "seconds": end - start,
            "text": self.tokenizer.decode(generated, skip_special_tokens=True),
            "prompt_tokens": len(ids),
            "prefill_s": first - start,
            "tokens": len(generated),
            "decode_s": end - first,
        }


def main():
    pack, folder, precision = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    verifier = Verifier(pack, folder, precision)
    for line in sys.stdin:
        request = json.loads(line)
        message = [{"role": "user", "content": request["prompt"]}]
        ids = mx.array(verifier.tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False))
        print(json.dumps(verifier.answer(request["arm"], request["decode"], ids, request["tokens"])), flush=True)


if __name__ == "__main__":
    main()
