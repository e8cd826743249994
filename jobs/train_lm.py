"""A decoder-only language model on random tokens: a script of one's own in plain torch, with the three lines of the probe."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from hpcddp.probe import measure


class Block(nn.Module):
    """Attention to what came before, and two layers for each position."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, dim=-1))
        x = x + self.out(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        x = x + self.mlp(self.between(x))
        return x


parser = argparse.ArgumentParser()
for name, default in (("depth", 12), ("width", 768), ("heads", 12), ("length", 1024), ("batch", 8), ("vocabulary", 50304)):
    parser.add_argument(f"--{name}", type=int, default=default)
given = parser.parse_args()
width, vocabulary, tokens = given.width, given.vocabulary, given.batch * given.length
gpu, several = torch.cuda.is_available(), int(os.environ.get("WORLD_SIZE", "1")) > 1
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()) if gpu else torch.device("cpu")
if several:
    dist.init_process_group("nccl" if gpu else "gloo")

torch.manual_seed(1)
blocks = (Block(width, given.heads) for _ in range(given.depth))
embedding, head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
model: nn.Module = nn.Sequential(embedding, *blocks, nn.LayerNorm(width), head).to(device)
# As in appendix B of "PaLM" (Chowdhery et al. 2022): 6 for each parameter that multiplies, and attention's 12 for each position.
multiplying = sum(parameter.numel() for parameter in model.parameters()) - embedding.weight.numel()
flops = tokens * (6 * multiplying + 12 * given.depth * width * given.length)
model = nn.parallel.DistributedDataParallel(model) if several else model
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
batches = [torch.randint(vocabulary, (given.batch, given.length + 1), device=device) for _ in range(8)]

with measure(model, optimizer, samples_per_step=given.batch, tokens_per_step=tokens, flops_per_step=flops) as steps:
    while not steps.done:  # epochs, as many as measuring needs
        for batch in steps(batches):
            with torch.autocast(device.type, torch.bfloat16, enabled=gpu):
                loss = steps.loss(cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
