"""The state of a run at any of its steps: the run is made again, every change is recorded, and a query reads the record.

kernel.run(…) ──▶ run.state(1200)
                    │ first call: the launch runs again, on a copy of its initial memory
                    ▼
step      1    2    3    …   1200   …
ran       pc, lanes                           ──▶ where each warp is
written   register, lanes, values             ──▶ registers of a thread
stored    bytes of shared and global memory   ──▶ contents, and who wrote a byte last
issued    copies, wgmma; mbarriers            ──▶ what is pending
"""
