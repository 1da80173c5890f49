"""A small training with PyTorch, on a GPU if there is one: `training.py STEPS` prints the time of each step (ns)."""

import sys
import time

import torch

WARM = 50
"""Steps before the first one that counts."""


def main(steps: int) -> None:
    """Train a network of three layers on random data."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    width, rows = (4096, 2048) if device == "cuda" else (256, 64)
    layers = [torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    data, wanted = torch.randn(rows, width, device=device), torch.randn(rows, 1, device=device)
    for number in range(WARM + steps):
        begun = time.perf_counter_ns()
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(data), wanted).backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        if number >= WARM:
            sys.stdout.write(f"{time.perf_counter_ns() - begun}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
