"""Three agents answer, round by round, until they agree (DyOrc's DEBATE).

    python3 debate.py http://127.0.0.1:8000 "Is tea better than coffee?"
"""

import sys

from inferplan_calls import Client, call


def debate(session, question, rounds=3):
    agents = []
    for _ in range(rounds):
        agents = session.enqueue_all([call("llm", reads=agents, inputs={"question": question, "agent": i}) for i in range(3)])
        said = [session.result(a)["text"] for a in agents]
        if len(set(said)) == 1:
            break
    return said[0]


if __name__ == "__main__":
    with Client(sys.argv[1]).open("debate") as s:
        print(debate(s, sys.argv[2]))
