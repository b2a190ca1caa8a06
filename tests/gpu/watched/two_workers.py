"""Forks two workers before CUDA is initialised; the second asks for a box that is too wide."""

import multiprocessing


def work(rank):
    from refused_bindings import encode, memory

    print(f"rank {rank}:", encode(int(memory), (64, 64) if rank == 0 else (512, 64)).name, flush=True)


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(rank,)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
