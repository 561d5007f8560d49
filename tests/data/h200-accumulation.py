"""A plain loop with gradient accumulation: 20 optimizer steps of 4 forwards each."""
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(*[l for _ in range(8) for l in (nn.Linear(2048, 2048), nn.ReLU())]).cuda()
loss_fn = nn.MSELoss(); opt = torch.optim.AdamW(net.parameters(), 1e-4); sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
ds = torch.utils.data.TensorDataset(torch.randn(80 * 512, 2048))
out = []
for i, (x,) in enumerate(torch.utils.data.DataLoader(ds, batch_size=512, num_workers=2, pin_memory=True)):
    x = x.cuda(non_blocking=True)
    loss = loss_fn(net(x), x) / 4
    loss.backward()
    if i % 4 == 3:
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step(); sched.step(); opt.zero_grad()
        out.append(loss.item())
print("RESULT", out[-3:], float(sum(p.double().sum() for p in net.parameters())))
