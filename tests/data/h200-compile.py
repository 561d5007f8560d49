"""torch.compile(mode="reduce-overhead"), 40 steps."""
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(*[l for _ in range(6) for l in (nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024))]).cuda()
fast = torch.compile(net, mode="reduce-overhead")
opt = torch.optim.AdamW(net.parameters(), 1e-4)
out = []
for i in range(40):
    x = torch.randn(256, 1024, device="cuda")
    l = (fast(x) - x).square().mean(); l.backward(); opt.step(); opt.zero_grad(set_to_none=True); out.append(l.detach())
print("RESULT", torch.stack(out).tolist()[-3:], float(sum(p.double().sum() for p in net.parameters())))
