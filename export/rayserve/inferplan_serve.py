"""Runs the ONNX models of a plan on Ray Serve. Needs ray[serve], numpy, onnx and onnxruntime (or onnxruntime-gpu).

The configuration names build as the application. Requests are those of the Open Inference Protocol in JSON, with one
sample each. The folder INFERPLAN_MODELS (default models) holds NAME.onnx for every model.
"""

import asyncio
import os
import random

import numpy
import onnx
import onnxruntime
from ray import serve

DTYPES = {
    "FP16": numpy.float16, "FP32": numpy.float32, "FP64": numpy.float64, "BOOL": numpy.bool_,
    "INT8": numpy.int8, "INT16": numpy.int16, "INT32": numpy.int32, "INT64": numpy.int64,
    "UINT8": numpy.uint8, "UINT16": numpy.uint16, "UINT32": numpy.uint32, "UINT64": numpy.uint64,
}


@serve.deployment
class Stage:
    """A model or a part of one. A request and its answer are dicts from the name of a tensor to one sample of it."""

    def __init__(self, spec):
        model = onnx.load(os.path.join(os.environ.get("INFERPLAN_MODELS", "models"), spec["model"] + ".onnx"))
        inputs = spec.get("inputs") or [i.name for i in model.graph.input]
        outputs = spec.get("outputs") or [o.name for o in model.graph.output]
        if spec.get("inputs") or spec.get("outputs"):
            model = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(model)).extract_model(inputs, outputs)
        options = onnxruntime.SessionOptions()
        if spec.get("threads"):
            options.intra_op_num_threads = spec["threads"]
        providers = ["CPUExecutionProvider"] if spec.get("threads") else ["CUDAExecutionProvider", "CPUExecutionProvider"]
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
        self.inputs = [i.name for i in self.session.get_inputs()]
        self.outputs = [o.name for o in self.session.get_outputs()]

    def reconfigure(self, config):
        self.run.set_max_batch_size(config["max_batch_size"])
        self.run.set_batch_wait_timeout_s(config["batch_wait_timeout_s"])

    @serve.batch
    async def run(self, requests):
        feeds = {name: numpy.concatenate([r[name] for r in requests]) for name in self.inputs}
        answers = await asyncio.to_thread(self.session.run, self.outputs, feeds)
        # Tensors that a later part needs, too, pass through.
        return [{**r, **{name: a[i : i + 1] for name, a in zip(self.outputs, answers)}} for i, r in enumerate(requests)]


def top_two(probabilities):
    """The largest probability less the second largest."""
    first, second = numpy.sort(numpy.asarray(probabilities, numpy.float64).ravel())[[-1, -2]]
    return float(first - second)


@serve.deployment
class Ingress:
    """Sends a request to the models of a cascade in turn, until one is certain. A pool has one model."""

    def __init__(self, models, *handles):
        handles = iter(handles)
        self.models = [{**m, "chains": [[next(handles) for _ in p["stages"]] for p in m["pipelines"]]} for m in models]

    async def __call__(self, request):
        body = await request.json()
        tensors = {t["name"]: numpy.asarray(t["data"], DTYPES[t["datatype"]]).reshape(t["shape"]) for t in body["inputs"]}
        for model in self.models:
            answer = dict(tensors)
            for stage in random.choices(model["chains"], [p["weight"] for p in model["pipelines"]])[0]:
                answer = await stage.run.remote(answer)
            outputs = {name: answer[name] for name in model["outputs"] or [n for n in answer if n not in tensors]}
            threshold = model.get("threshold")
            if threshold is None or top_two(next(iter(outputs.values()))) >= threshold:
                break
        names = {dtype: name for name, dtype in DTYPES.items()}
        return {
            "model_name": model["model"],
            "outputs": [{"name": n, "datatype": names[a.dtype.type], "shape": list(a.shape), "data": a.ravel().tolist()} for n, a in outputs.items()],
        }


def build(args):
    """The application of args in the configuration, whose deployments have the names there."""
    stages = [s for m in args["models"] for p in m["pipelines"] for s in p["stages"]]
    return Ingress.options(name="ingress").bind(args["models"], *[Stage.options(name=s["name"]).bind(s) for s in stages])
