"""Ten phases, each with one bottleneck by construction, repeated 6 times each after a warm-up."""
import time, sys, torch, nvtx
dev="cuda"
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32=False
a=torch.randn(4096,4096,device=dev,dtype=torch.bfloat16); b=torch.randn_like(a)
f=torch.randn(2048,2048,device=dev); g=torch.randn_like(f)
u=torch.randn(4097,4097,device=dev,dtype=torch.bfloat16); v=torch.randn_like(u)
small=[torch.randn(1000,device=dev) for _ in range(200)]
host=torch.randn(64,1024,1024); 
big=torch.randn(64,1024,1024,device=dev)
pinned=host.pin_memory()
q=torch.randn(8,16,1024,64,device=dev,dtype=torch.bfloat16)
side=torch.cuda.Stream()
def busy(ms):
    end=time.perf_counter()+ms/1e3
    while time.perf_counter()<end: pass
def compute():
    for _ in range(30): torch.mm(a,b)
def launch():
    for x in small:
        for _ in range(5): x.add_(1.0)
def python():
    for _ in range(4):
        busy(3); torch.mm(a,b)
def sync():
    for _ in range(6):
        for _ in range(4): y=torch.mm(a,b)
        s=y[0,0].item(); busy(0.3)
def pageable():
    for _ in range(2): big.copy_(host); big.mul_(0.5)
def pinned_blocking():
    for _ in range(2): big.copy_(pinned); big.mul_(0.5)
def alloc():
    for _ in range(4):
        t=torch.empty(256<<20,device=dev,dtype=torch.uint8); t.zero_(); del t; torch.cuda.empty_cache(); torch.mm(a,b)
def two_streams():
    for _ in range(4):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side): big.copy_(pinned,non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        torch.mm(a,b)
def fp32():
    for _ in range(30): torch.mm(f,g)
def unaligned():
    for _ in range(20): torch.mm(u,v)
def attention():
    for _ in range(6):
        s=q@q.transpose(-1,-2); s=s*0.125; s=s.softmax(-1); s@q
def elementwise():
    x=big
    for _ in range(6):
        y=x*2; y=y+1; y=torch.relu(y); y=y*0.5; y=torch.sigmoid(y)
fns=[compute,launch,python,sync,pageable,pinned_blocking,alloc,two_streams,fp32,unaligned,attention,elementwise]
for fn in fns: fn()
torch.cuda.synchronize()
torch.cuda.profiler.start()
for i in range(8):
    with nvtx.annotate("step"):
        for fn in fns:
            with nvtx.annotate(fn.__name__): fn()
            torch.cuda.current_stream().synchronize()
torch.cuda.profiler.stop()
