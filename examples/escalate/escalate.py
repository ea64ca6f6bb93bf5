"""Asks a larger classifier where a smaller one is not sure, as a program.

    python3 escalate.py http://127.0.0.1:8000
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "workflows"))
from inferplan_calls import Client


def digit(session, image, margin):
    small = session.enqueue("digits-16", inputs={"image": image})
    scores = session.result(small)["scores"]
    second, first = sorted(scores)[-2:]
    if first - second < margin:
        scores = session.result(session.enqueue("digits-256", inputs={"image": image}))["scores"]
        return scores.index(max(scores)), "large"
    return scores.index(first), "small"


if __name__ == "__main__":
    client = Client(sys.argv[1])
    for margin in 0, 1000:
        with client.open("digit") as s:
            print(digit(s, [0.0] * 784, margin))
