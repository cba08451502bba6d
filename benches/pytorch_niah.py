"""Answers prompts with a pack in PyTorch: what `cargo xtask bench engine` measures the engine against.

    python pytorch_niah.py PACK THREADS

Reads one request a line, {"arm": "oracle" or "restored:s5", "decode": "incremental" or "reforward", "prompt": TEXT}, and
answers each with {"seconds": S, "text": TEXT}. The verifier is transformers' own, in f32, with its own cache and fused
attention; only the mixture of experts is one product over all experts here, which is faster than the library's loop.
Restored K/V get in by hooks on the projections: there they are still without norm and rotation.
"""

import json
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoTokenizer, DynamicCache
from transformers.models.gemma4.modeling_gemma4 import Gemma4ForCausalLM, Gemma4TextExperts

SINK, WINDOW, MAX_NEW_TOKENS = 4, 64, 24


def floats(file):
    return {name: tensor.float() for name, tensor in load_file(file).items()}


def norm(x, weight, eps):
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def all_experts(self, hidden, chosen, weights):
    """Every expert on every row; those not chosen weigh 0."""
    count, inner = self.num_experts, self.intermediate_dim
    spread = hidden.new_zeros(hidden.shape[0], count).scatter(1, chosen, weights)
    gate, up = F.linear(hidden, self.gate_up_proj.flatten(0, 1)).view(-1, count, 2, inner).unbind(2)
    weighted = self.act_fn(gate) * up * spread[..., None]
    return weighted.flatten(1) @ self.down_proj.transpose(1, 2).reshape(count * inner, -1)


class Projection:
    """The drafter, as far as f_theta needs it, and f_theta."""

    def __init__(self, pack):
        self.config = json.loads((pack / "drafter/config.json").read_text())
        self.drafter = floats(pack / "drafter/model.safetensors")
        self.f_theta = floats(pack / "f_theta/f_theta_weights.safetensors")

    def heads(self, x, weight, angles):
        """[T, n * d] normed and rotated, as [1, n, T, d]."""
        x = norm(x.view(len(x), -1, self.config["head_dim"]), weight, self.config["rms_norm_eps"]).transpose(0, 1)
        left, right = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)[None]

    def rows(self, h, positions, layers):
        """Raw K and V of the layers for a run of positions, from the drafter's embedded sequence [T, hidden]."""
        config, dim = self.config, self.config["head_dim"]
        frequencies = config["rope_theta"] ** (-torch.arange(0, dim, 2) / dim)
        angles = torch.outer(torch.arange(len(h)), frequencies)
        keys, values = [], []
        for i in range(config["num_hidden_layers"]):
            w = {name.removeprefix(f"layers.{i}.").removesuffix(".weight"): weight
                 for name, weight in self.drafter.items() if name.startswith(f"layers.{i}.")}
            x = norm(h, w["input_layernorm"], config["rms_norm_eps"])
            k, v = F.linear(x, w["self_attn.k_proj"]), F.linear(x, w["self_attn.v_proj"])
            keys.append(k)
            values.append(v)
            if i + 1 == config["num_hidden_layers"]:
                break
            query = self.heads(F.linear(x, w["self_attn.q_proj"]), w["self_attn.q_norm"], angles)
            key = self.heads(k, w["self_attn.k_norm"], angles)
            value = v.view(len(v), -1, dim).transpose(0, 1)[None]
            groups = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
            attended = F.scaled_dot_product_attention(query, key, value)[0].transpose(0, 1).flatten(1)
            h = h + F.linear(attended, w["self_attn.o_proj"])
            y = norm(h, w["post_attention_layernorm"], config["rms_norm_eps"])
            gated = F.silu(F.linear(y, w["mlp.gate_proj"])) * F.linear(y, w["mlp.up_proj"])
            h = h + F.linear(gated, w["mlp.down_proj"])
        projected = {}
        for side, parts in (("k", keys), ("v", values)):
            latent = F.linear(torch.cat([part[positions] for part in parts], -1), self.f_theta[f"encoder_{side}.weight"])
            for i in layers:
                projected[i, side] = F.linear(latent, self.f_theta[f"decoders_{side}.{i}.weight"])[None]
        return projected


class Verifier:
    def __init__(self, pack):
        self.tokenizer = AutoTokenizer.from_pretrained(pack / "verifier")
        self.model = Gemma4ForCausalLM.from_pretrained(pack / "verifier", dtype=torch.float32).eval()
        self.projection = Projection(pack)
        self.evicted, self.rows, self.captured = slice(0, 0), {}, {}
        self.full = [kind == "full_attention" for kind in self.model.config.layer_types]
        Gemma4TextExperts.forward = all_experts
        for i, layer in enumerate(self.model.model.layers):
            for side in ("k", "v"):
                projection = getattr(layer.self_attn, f"{side}_proj")
                if projection is not None:
                    projection.register_forward_hook(self.hook(i, side))
        stops = self.model.generation_config.eos_token_id
        self.stops = set(stops if isinstance(stops, list) else [stops])

    def hook(self, layer, side):
        def replace(_module, _inputs, out):
            if self.captured is not None and self.full[layer]:
                self.captured[layer, side] = out[:, self.evicted]
            rows = self.rows.get((layer, side))
            if rows is None:
                return out
            return torch.cat([out[:, : self.evicted.start], rows, out[:, self.evicted.stop :]], 1)

        return replace

    def forward(self, ids, cache=None):
        out = self.model(input_ids=ids, cache=cache, use_cache=cache is not None, logits_to_keep=1)
        return out.logits[0, -1]

    def restored(self, ids, cache):
        """The reference's S5: full layers keep the K/V of a clean forward, the others get f_theta's."""
        self.evicted = slice(SINK, max(SINK, ids.shape[1] - WINDOW))
        self.captured = {}
        self.forward(ids)
        captured, self.captured = self.captured, None
        hidden = self.model.config.hidden_size
        sliding = [i for i, full in enumerate(self.full) if not full]
        # The module's own factor of √hidden and, as in f_theta's training, the same once more.
        embedded = self.model.model.embed_tokens(ids)[0] * hidden**0.5
        self.rows = self.projection.rows(embedded, self.evicted, sliding) | captured
        logits = self.forward(ids, cache)
        self.rows = {}
        return logits

    def answer(self, arm, decode, ids):
        first = self.restored if arm == "restored:s5" else self.forward
        cache = DynamicCache(config=self.model.config) if decode == "incremental" else None
        logits, generated = first(ids, cache), []
        while True:
            token = logits.argmax().view(1, 1)
            generated.append(int(token))
            if generated[-1] in self.stops or len(generated) == MAX_NEW_TOKENS:
                return self.tokenizer.decode(generated, skip_special_tokens=True)
            ids = torch.cat([ids, token], 1)
            logits = first(ids, None) if cache is None else self.forward(token, cache)


@torch.inference_mode()
def main():
    pack, threads = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    verifier = Verifier(pack)
    for line in sys.stdin:
        request = json.loads(line)
        message = [{"role": "user", "content": request["prompt"]}]
        encoded = verifier.tokenizer.apply_chat_template(
            message, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        start = time.perf_counter()
        text = verifier.answer(request["arm"], request["decode"], encoded["input_ids"])
        print(json.dumps({"seconds": time.perf_counter() - start, "text": text}), flush=True)


if __name__ == "__main__":
    main()
