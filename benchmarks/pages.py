"""Time the explorer's largest pages, compared with its swizzle page.

python benchmarks/pages.py
"""

from ratio import Work, needed, print_ratios, run, sized

GOAL_SECONDS = 1.0
GOALS = {"one plan": 0.15}  # seconds, of pages that users open first
PAGES = {
    "one swizzle": "/swizzle?mode=128B",
    "one plan": "/plan?tile=192x128",
    "a layout of 128 x 128": "/layout?text=(128,128):(129,1)&element_bits=64",
    "two layouts of 128 x 128": "/layout?text=(128,128):(128,1)&element_bits=8&other=(128,128):(1,128)",
    "a copy of 160 rows": "/load?dims=256,160&box=64,160&coords=0,0",
    "a copy of 1,792 rows": "/load?dims=256,256,256&box=64,256,7&coords=0,0,0",
    "a column of 1,024 pixels": "/load?kind=im2col_map&dims=64,160,160,2&pixels_per_column=1024",
    "a pipeline of 16 blocks": "/pipeline?other=256x64&cluster=4x4&consumers=2&steps=22",
    "a GEMM of 4 blocks": "/pipeline?given=gemm&cluster=2x2",
    "a GEMM on sm_100": "/pipeline?given=gemm&arch=sm_100&data_type=e4m3&cluster=2x1",
}


def work(client, name):
    return Work(name, lambda: client.get(PAGES[name]).raise_for_status(), goal_seconds=GOALS.get(name, GOAL_SECONDS))


def main():
    application = needed("tilescope.web.application", "pip install 'tilescope[web]'").application()
    testing = needed("starlette.testclient", "pip install httpx2")
    names = sized(list(PAGES), tiny=list(PAGES)[:2])
    with testing.TestClient(application, base_url="http://127.0.0.1:8765") as client:
        print_ratios("one page", *(work(client, name) for name in names))


if __name__ == "__main__":
    run(main)
