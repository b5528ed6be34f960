"""
    python -m benchmarks.explanations --json [--quick] [--only WORLD ...]
"""
import argparse, json, time
from pathlib import Path
from benchmarks.explanations.audit import audit, shares
from benchmarks.explanations.predictions import forecasts
from benchmarks.explanations.reading import readable
from benchmarks.explanations.worlds import WORLDS
p = argparse.ArgumentParser()
p.add_argument("--only", nargs="+")
p.add_argument("--data", type=Path, default=Path("../shared/data"))
p.add_argument("--waits", type=int, default=40)
p.add_argument("--texts", type=int, default=0)
a = p.parse_args()
everything=[]
for w in WORLDS:
    if a.only and w.name not in a.only: continue
    b=time.process_time()
    f=audit(w, a.data, 3, a.waits)
    everything.append(f)
    print(w.name, json.dumps(shares([f])), json.dumps(readable(f.texts)), "cpu", round(time.process_time()-b,1), "why", round(sum(f.cpu_s)/max(1,len(f.cpu_s)),4), flush=True)
    print("   ", json.dumps(forecasts(f.foretold)))
    for j,n,v in f.waits:
        if v.wrong: print("   ", j, n, v.wrong)
    for u in f.untrue: print("   untrue", u)
    for t in f.texts[:a.texts]: print(t); print()
