// A stand-in for cuDNN 9, as far as ONNX Runtime's CUDA provider and the
// frontend inside it call it: descriptors are kept, heuristics name two engines,
// the first with tensor cores, plans ask for some workspace, and what would run is counted and does nothing.
// Every pointer to data must be the device's. Signatures and numbers are those
// of the cuDNN manual.
#include "fakecuda.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int status;
enum { SUCCESS = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, FAILED = 5000 };
#undef SAY
#define SAY if (said(__func__)) return FAILED

typedef struct handle { fake_stream *stream; } *cudnnHandle_t;

size_t cudnnGetVersion(void) { return 91300; }
const char *cudnnGetErrorString(status s) { return s ? "an error of the stand-in" : "success"; }
void cudnnGetLastErrorString(char *text, size_t n) { snprintf(text, n, "see $FAKECUDA_LOG"); }
status cudnnCreate(cudnnHandle_t *h) { SAY; *h = calloc(1, sizeof **h); return 0; }
status cudnnDestroy(cudnnHandle_t h) { SAY; free(h); return 0; }
status cudnnSetStream(cudnnHandle_t h, fake_stream *s) { h->stream = s; return 0; }
status cudnnGetStream(cudnnHandle_t h, fake_stream **s) { *s = h->stream; return 0; }

static void nothing(void *args) { (void)args; }
static status launch(cudnnHandle_t h, const char *name) {
  noted("cudnn %s%s\n", name, fake_capturing(h->stream) ? " captured" : "");
  return fake_do(h->stream, name, nothing, NULL, 0) ? FAILED : 0;
}
#define DEVICE(p) do { if ((p) && !on_device(p)) { noted("%s: " #p " is not on the device\n", __func__); return BAD_PARAM; } } while (0)

// The older interface. A descriptor is what was last said about it.

typedef struct { int type, n, dims[8], strides[8]; } *tensor;
#define DESCRIPTOR(kind) \
  status cudnnCreate##kind(void **d) { *d = calloc(1, 128); return 0; } \
  status cudnnDestroy##kind(void *d) { free(d); return 0; }
DESCRIPTOR(TensorDescriptor) DESCRIPTOR(FilterDescriptor) DESCRIPTOR(PoolingDescriptor) DESCRIPTOR(ActivationDescriptor)
DESCRIPTOR(ConvolutionDescriptor) DESCRIPTOR(LRNDescriptor) DESCRIPTOR(ReduceTensorDescriptor) DESCRIPTOR(DropoutDescriptor)
DESCRIPTOR(RNNDescriptor) DESCRIPTOR(RNNDataDescriptor)

status cudnnSetTensorNdDescriptor(tensor d, int type, int n, const int *dims, const int *strides) {
  if (n < 3 || n > 8) return NOT_SUPPORTED;
  d->type = type, d->n = n;
  memcpy(d->dims, dims, n * sizeof *dims);
  memcpy(d->strides, strides, n * sizeof *dims);
  return 0;
}
status cudnnGetTensorNdDescriptor(tensor d, int want, int *type, int *n, int *dims, int *strides) {
  *type = d->type, *n = d->n;
  for (int i = 0; i < want && i < d->n; i++) dims[i] = d->dims[i], strides[i] = d->strides[i];
  return 0;
}
status cudnnDeriveBNTensorDescriptor(tensor out, tensor x, int mode) {
  (void)mode;
  *out = *x;
  for (int i = 0; i < x->n; i++) out->dims[i] = i == 1 ? x->dims[1] : 1, out->strides[i] = 1;
  return 0;
}
#define ACCEPT(name) status name(void) { return 0; }
ACCEPT(cudnnSetFilterNdDescriptor) ACCEPT(cudnnSetPoolingNdDescriptor) ACCEPT(cudnnSetActivationDescriptor) ACCEPT(cudnnSetConvolutionNdDescriptor)
ACCEPT(cudnnSetConvolutionGroupCount) ACCEPT(cudnnSetConvolutionMathType) ACCEPT(cudnnSetLRNDescriptor) ACCEPT(cudnnSetReduceTensorDescriptor)

status cudnnPoolingForward(cudnnHandle_t h, void *d, void *alpha, tensor xd, void *x, void *beta, tensor yd, void *y) {
  SAY; (void)d; (void)alpha; (void)beta; (void)xd; (void)yd;
  DEVICE(x); DEVICE(y);
  return launch(h, "pooling");
}
status cudnnActivationForward(cudnnHandle_t h, void *d, void *alpha, tensor xd, void *x, void *beta, tensor yd, void *y) {
  SAY; (void)d; (void)alpha; (void)beta; (void)xd; (void)yd;
  DEVICE(x); DEVICE(y);
  return launch(h, "activation");
}
status cudnnSoftmaxForward(cudnnHandle_t h, int algo, int mode, void *alpha, tensor xd, void *x, void *beta, tensor yd, void *y) {
  SAY; (void)algo; (void)mode; (void)alpha; (void)beta; (void)xd; (void)yd;
  DEVICE(x); DEVICE(y);
  return launch(h, "softmax");
}
status cudnnAddTensor(cudnnHandle_t h, void *alpha, tensor ad, void *a, void *beta, tensor cd, void *c) {
  SAY; (void)alpha; (void)beta; (void)ad; (void)cd;
  DEVICE(a); DEVICE(c);
  return launch(h, "add");
}
status cudnnLRNCrossChannelForward(cudnnHandle_t h, void *d, int mode, void *alpha, tensor xd, void *x, void *beta, tensor yd, void *y) {
  SAY; (void)d; (void)mode; (void)alpha; (void)beta; (void)xd; (void)yd;
  DEVICE(x); DEVICE(y);
  return launch(h, "lrn");
}
status cudnnBatchNormalizationForwardInference(cudnnHandle_t h, int mode, void *alpha, void *beta, tensor xd, void *x, tensor yd, void *y, tensor bd, void *scale, void *bias, void *mean, void *var, double eps) {
  SAY; (void)mode; (void)alpha; (void)beta; (void)xd; (void)yd; (void)bd; (void)eps;
  DEVICE(x); DEVICE(y); DEVICE(scale); DEVICE(bias); DEVICE(mean); DEVICE(var);
  return launch(h, "batch normalization");
}
status cudnnGetReductionIndicesSize(cudnnHandle_t h, void *d, tensor a, tensor c, size_t *n) { (void)h; (void)d; (void)a; (void)c; *n = 64; return 0; }
status cudnnGetReductionWorkspaceSize(cudnnHandle_t h, void *d, tensor a, tensor c, size_t *n) { (void)h; (void)d; (void)a; (void)c; *n = 256; return 0; }
status cudnnReduceTensor(cudnnHandle_t h, void *d, void *indices, size_t ni, void *work, size_t nw, void *alpha, tensor ad, void *a, void *beta, tensor cd, void *c) {
  SAY; (void)d; (void)ni; (void)nw; (void)alpha; (void)beta; (void)ad; (void)cd;
  DEVICE(indices); DEVICE(work); DEVICE(a); DEVICE(c);
  return launch(h, "reduce");
}

// What no model here needs.
#define NONE(name) status name(void) { SAY; return NOT_SUPPORTED; }
NONE(cudnnBatchNormalizationForwardTraining) NONE(cudnnConvolutionBiasActivationForward) NONE(cudnnConvolutionForward)
NONE(cudnnFindConvolutionForwardAlgorithmEx) NONE(cudnnGetConvolutionForwardAlgorithm_v7) NONE(cudnnGetConvolutionForwardWorkspaceSize)
NONE(cudnnDropoutGetStatesSize) NONE(cudnnSetDropoutDescriptor) NONE(cudnnRNNForward) NONE(cudnnGetRNNTempSpaceSizes)
NONE(cudnnGetRNNWeightParams) NONE(cudnnSetRNNDataDescriptor) NONE(cudnnSetRNNDescriptor_v8)

// The newer interface: descriptors with attributes of any type.

enum { ENGINE = 2, ENGINECFG = 3, ENGINEHEUR = 4, PLAN = 5, GRAPH = 15, PACK = 16 };
enum {
  HEUR_GRAPH = 201, HEUR_RESULTS = 202, CFG_ENGINE = 300, CFG_WORKSPACE = 303, CFG_SHARED = 304, PLAN_CFG = 401, PLAN_WORKSPACE = 402,
  GRAPH_OPS = 801, GRAPH_ENGINES = 802, PACK_IDS = 1000, PACK_POINTERS = 1001, PACK_WORKSPACE = 1003, ENGINE_GRAPH = 1300, ENGINE_INDEX = 1301,
  HEUR_MODE = 200, ENGINE_NOTES = 1303,
};
enum { BOOLEAN = 2, INT64 = 3, POINTER = 6, BACKEND = 15, NOTE = 11, TYPE_CHAR = 24, FRACTION = 26 };
enum { TENSOR_CORE = 0 };
enum { ENGINES = 2, WORKSPACE = 4096 };

typedef struct attribute { struct attribute *next; int name, type; int64_t count; char *data; } attribute;
typedef struct descriptor { int type, final; attribute *first; } descriptor;

static size_t width(int type) {
  switch (type) {
    case BOOLEAN: case TYPE_CHAR: return 1;
    case 0: case INT64: case 5: case POINTER: case BACKEND: return 8;
    case FRACTION: return 16;
    default: return 4;
  }
}
static attribute *get(descriptor *d, int name) {
  for (attribute *a = d->first; a; a = a->next) if (a->name == name) return a;
  return NULL;
}
static void put(descriptor *d, int name, int type, int64_t count, const void *data) {
  attribute *a = get(d, name);
  if (!a) {
    a = calloc(1, sizeof *a);
    a->next = d->first;
    d->first = a;
  }
  a->name = name, a->type = type, a->count = count;
  a->data = malloc(count * width(type) + 8); // what copies of the descriptor still point at is kept
  memcpy(a->data, data, count * width(type));
}
static descriptor *named(descriptor *d, int name) {
  attribute *a = get(d, name);
  return a && a->type == BACKEND && a->count == 1 ? *(descriptor **)a->data : NULL;
}

status cudnnBackendCreateDescriptor(int type, descriptor **d) {
  *d = calloc(1, sizeof **d);
  (*d)->type = type;
  return 0;
}
status cudnnBackendDestroyDescriptor(descriptor *d) { (void)d; return 0; } // others may refer to it
status cudnnBackendSetAttribute(descriptor *d, int name, int type, int64_t count, const void *data) {
  if (!d || d->final || count < 0) return BAD_PARAM;
  put(d, name, type, count, data);
  return 0;
}
status cudnnBackendFinalize(descriptor *d) {
  if (!d) return BAD_PARAM;
  attribute *mode = get(d, HEUR_MODE), *index;
  descriptor *cfg = named(d, PLAN_CFG), *engine = cfg ? named(cfg, CFG_ENGINE) : NULL;
  if (d->type == ENGINEHEUR && mode) noted("cudnn heuristics %d\n", *(int *)mode->data);
  if (d->type == PLAN && engine && (index = get(engine, ENGINE_INDEX))) noted("cudnn made a plan with engine %d\n", (int)*(int64_t *)index->data);
  d->final = 1;
  return 0;
}
status cudnnBackendGetAttribute(descriptor *d, int name, int type, int64_t want, int64_t *count, void *out) {
  int64_t number = -1;
  if (d->type == ENGINEHEUR && name == HEUR_RESULTS) {
    if (count) *count = ENGINES;
    descriptor *graph = named(d, HEUR_GRAPH);
    for (int64_t i = 0; i < want && i < ENGINES; i++) {
      descriptor *e = calloc(1, sizeof *e), *cfg = ((descriptor **)out)[i];
      e->type = ENGINE;
      e->final = 1;
      put(e, ENGINE_INDEX, INT64, 1, &i);
      put(e, ENGINE_GRAPH, BACKEND, 1, &graph);
      if (i == 0) put(e, ENGINE_NOTES, NOTE, 1, &(int){TENSOR_CORE});
      put(cfg, CFG_ENGINE, BACKEND, 1, &e);
      cfg->final = 1;
    }
    return 0;
  }
  if (d->type == GRAPH && name == GRAPH_ENGINES) number = ENGINES;
  if (name == PLAN_WORKSPACE || name == CFG_WORKSPACE) number = WORKSPACE;
  if (name == CFG_SHARED) number = 1024;
  if (number >= 0) {
    if (count) *count = 1;
    if (want > 0) memcpy(out, &number, width(type)); // little endian
    return 0;
  }
  attribute *a = get(d, name);
  if (count) *count = a ? a->count : 0;
  for (int64_t i = 0; a && out && i < want && i < a->count; i++) {
    if (type == BACKEND && ((descriptor **)out)[i]) { // into the caller's descriptor
      *((descriptor **)out)[i] = *((descriptor **)a->data)[i];
      continue;
    }
    memcpy((char *)out + i * width(type), a->data + i * width(type), width(type));
  }
  return 0;
}
status cudnnBackendExecute(cudnnHandle_t h, descriptor *plan, descriptor *pack) {
  SAY;
  if (!plan->final || !pack->final) return BAD_PARAM;
  attribute *p = get(pack, PACK_POINTERS), *w = get(pack, PACK_WORKSPACE);
  if (!p) return BAD_PARAM;
  for (int64_t i = 0; i < p->count; i++) DEVICE(((void **)p->data)[i]);
  if (w) DEVICE(*(void **)w->data);
  if (!w || !*(void **)w->data || !device(*(uint64_t *)w->data, WORKSPACE)) {
    noted("cudnnBackendExecute: the workspace is not as large as was asked for\n");
    return BAD_PARAM;
  }
  return launch(h, "executes a plan");
}
