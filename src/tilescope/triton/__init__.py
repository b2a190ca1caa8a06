"""Triton programs run as they are, without a GPU: Triton's driver on the machine.

    import tilescope.triton

    with tilescope.triton.device(arch="sm_90") as device:
        kernel[grid](x, y, n, BLOCK=1024)          compiled as for a card, run on the machine
    for run in device.runs:
        print(run.entry, run.call_site, run.findings)

`activate()` does the same for the rest of the process, `tensor(array)` makes an argument of a numpy array. Triton is imported
when a device is activated; torch is not imported, but served if the program imports it.
"""

from tilescope.triton.host_device import activate, device
from tilescope.triton.host_tensor import tensor

__all__ = ["activate", "device", "tensor"]
