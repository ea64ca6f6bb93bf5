"""Client of the HTTP form of workflows, on the standard library alone.

    from inferplan_calls import Client

    with Client("http://127.0.0.1:8000").open("debate") as s:
        first = s.enqueue("llm", inputs={"prompt": "tea?"})
        print(s.result(first))

Handles can be read by further tasks before the tasks behind them have ended.
"""

import json
import urllib.error
import urllib.parse
import urllib.request

PATH = "/v1/workflows"


class Failure(Exception):
    """An answer that says what is wrong. `status` is that of HTTP, `reason` a
    policy's."""

    def __init__(self, status, message, reason=None, retry_after=None):
        super().__init__(message)
        self.status, self.reason, self.retry_after = status, reason, retry_after


class TaskFailed(Exception):
    """A task that did not give an output."""


class Client:
    """A server that runs workflows. `timeout` is of one exchange, in seconds."""

    def __init__(self, url, token=None, timeout=60.0):
        self.url, self.token, self.timeout = url.rstrip("/"), token, timeout

    def open(self, application, timeout_ms=None, inputs=None):
        """Begins a request and gives its session. `inputs` are what clients of the
        application send: steps before models read them."""
        message = {"application": application}
        if inputs:
            message["inputs"] = inputs
        if timeout_ms:
            message["timeout_ms"] = timeout_ms
        with self.send("POST", PATH, message) as answer:
            return Session(self, json.load(answer)["request"])

    def send(self, method, path, message=None):
        """Sends a message; the answer is a file."""
        headers = {}
        data = None
        if message is not None:
            data = json.dumps(message).encode()
            headers["Content-Type"] = "application/json"
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        try:
            return urllib.request.urlopen(request, timeout=self.timeout)
        except urllib.error.HTTPError as e:
            with e:
                try:
                    said = json.loads(e.read() or b"{}")
                except ValueError:
                    said = {}
                raise Failure(e.code, said.get("error", e.reason), said.get("reason"), e.headers.get("Retry-After")) from None


class Session:
    """A request under way. Its end frees all that the server keeps of it."""

    def __init__(self, client, request):
        self.client, self.request = client, request
        self.path = PATH + "/" + urllib.parse.quote(request, safe="")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            self.end()
        except Exception:
            if kind is None:
                raise

    def enqueue(self, model, reads=(), inputs=None, work=None):
        """Asks for a task and gives its handle at once."""
        return self.enqueue_all([call(model, reads, inputs, work)])[0]

    def enqueue_all(self, calls):
        """Asks for tasks that are known together; see call. "#0" is the first."""
        with self.client.send("POST", self.path + "/tasks", {"tasks": calls}) as answer:
            return json.load(answer)["tasks"]

    def wait(self, *tasks):
        """Waits until tasks have ended."""
        for task in tasks:
            self.result(task)

    def result(self, task):
        """Waits for a task and gives its outputs."""
        while True:
            with self.client.send("GET", self.task(task) + "?wait=20s") as answer:
                said = json.load(answer)
            if said["state"] != "running":
                return outputs(said)

    def end(self):
        """Ends the request."""
        self.client.send("DELETE", self.path).close()

    def task(self, task):
        return self.path + "/tasks/" + urllib.parse.quote(task, safe="")


def call(model, reads=(), inputs=None, work=None):
    """A task as enqueue_all takes it."""
    out = {"model": model}
    if reads:
        out["reads"] = list(reads)
    if inputs:
        out["inputs"] = inputs
    if work:
        out["work"] = work
    return out


def outputs(said):
    if said["state"] == "failed":
        raise TaskFailed(said["task"] + ": " + said.get("error", ""))
    return said.get("outputs", {})
