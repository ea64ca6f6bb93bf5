//go:build cgo && !noort

#define _GNU_SOURCE
#include "ort.h"
#include "cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if !__has_include("onnxruntime_c_api.h")
#error "third_party/ort/include/onnxruntime_c_api.h is missing: type `make setup` (or build with -tags noort)"
#endif
#include "onnxruntime_c_api.h"

// The oldest library that has everything used here.
#define WANT_API 20

static const OrtApi *api;
static const OrtApi *api24; // NULL where the library is older
static int replays_return;  // from 1.29 on a replayed graph is launched only, as runs are, where that is asked for
static OrtEnv *env;
static OrtAllocator *host_allocator; // the default one, never freed
static OrtMemoryInfo *host_memory;

struct ip_session {
  OrtSession *session;
  int count[2];
  char **names[2];
  int provider, device;
  int waits;               // runs are launched, and waited for through the driver
  OrtMemoryInfo *memory;   // of the device
  OrtAllocator *allocator; // of the device
};

struct ip_binding {
  ip_session *s;
  int graph;
  OrtIoBinding *io;
  OrtRunOptions *sync, *async; // async: launch only, the caller waits for the device
};

static char *message(OrtStatus *st) {
  if (!st) return NULL;
  char *m = strdup(api->GetErrorMessage(st));
  api->ReleaseStatus(st);
  return m;
}

static char *text(const char *a, const char *b) {
  char *m = malloc(strlen(a) + strlen(b) + 1);
  strcpy(m, a);
  strcat(m, b);
  return m;
}

#define TRY(call)                      \
  do {                                 \
    char *err_ = message(call);        \
    if (err_) { err = err_; goto fail; } \
  } while (0)

char *ip_open(const char *path, char **version) {
  void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!h) return strdup(dlerror());
  const OrtApiBase *(*base)(void) = (const OrtApiBase *(*)(void))dlsym(h, "OrtGetApiBase");
  if (!base) return text(path, " has no OrtGetApiBase: it is not ONNX Runtime");
  *version = strdup(base()->GetVersionString());
  int major = 0, minor = 0;
  sscanf(*version, "%d.%d", &major, &minor);
  replays_return = major > 1 || minor >= 29;
  api = base()->GetApi(WANT_API);
  if (!api) return text("this ONNX Runtime is too old, 1.20 is the oldest that works: ", *version);
  api24 = base()->GetApi(24);
  char *err;
  TRY(api->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "inferplan", &env));
  TRY(api->DisableTelemetryEvents(env));
  TRY(api->GetAllocatorWithDefaultOptions(&host_allocator));
  TRY(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &host_memory));
  return NULL;
fail:
  return err;
}

static char *append_cuda(OrtSessionOptions *so, const ip_options *o) {
  char *err = NULL;
  OrtCUDAProviderOptionsV2 *po = NULL;
  TRY(api->CreateCUDAProviderOptions(&po));
  TRY(api->UpdateCUDAProviderOptions(po, (const char *const *)o->provider_keys, (const char *const *)o->provider_values, o->n_provider));
  TRY(api->SessionOptionsAppendExecutionProvider_CUDA_V2(so, po));
fail:
  if (po) api->ReleaseCUDAProviderOptions(po);
  return err;
}

static char *append_tensorrt(OrtSessionOptions *so, const ip_options *o) {
  char *err = NULL;
  OrtTensorRTProviderOptionsV2 *po = NULL;
  TRY(api->CreateTensorRTProviderOptions(&po));
  TRY(api->UpdateTensorRTProviderOptions(po, (const char *const *)o->provider_keys, (const char *const *)o->provider_values, o->n_provider));
  TRY(api->SessionOptionsAppendExecutionProvider_TensorRT_V2(so, po));
fail:
  if (po) api->ReleaseTensorRTProviderOptions(po);
  return err;
}

char *ip_session_new(const void *model, size_t len, const ip_options *o, ip_session **out) {
  char *err = NULL;
  OrtSessionOptions *so = NULL;
  ip_session *s = calloc(1, sizeof *s);
  s->provider = o->provider;
  s->device = o->device;
  s->waits = o->provider != IP_CPU || o->waits;
  TRY(api->CreateSessionOptions(&so));
  TRY(api->SetIntraOpNumThreads(so, o->threads));
  TRY(api->SetInterOpNumThreads(so, 1));
  TRY(api->SetSessionExecutionMode(so, ORT_SEQUENTIAL));
  TRY(api->SetSessionGraphOptimizationLevel(so, (GraphOptimizationLevel)o->level));
  if (o->batch_name) TRY(api->AddFreeDimensionOverrideByName(so, o->batch_name, o->batch));
  for (int i = 0; i < o->n_config; i++) TRY(api->AddSessionConfigEntry(so, o->config_keys[i], o->config_values[i]));
  for (int i = 0; i < o->n_operators; i++) TRY(api->RegisterCustomOpsLibrary_V2(so, o->operators[i]));
  if (o->provider == IP_CUDA && (err = append_cuda(so, o))) goto fail;
  if (o->provider == IP_TENSORRT && (err = append_tensorrt(so, o))) goto fail;
  TRY(api->CreateSessionFromArray(env, model, len, so, &s->session));
  for (int k = 0; k < 2; k++) {
    size_t n = 0;
    TRY(k ? api->SessionGetOutputCount(s->session, &n) : api->SessionGetInputCount(s->session, &n));
    s->names[k] = calloc(n + 1, sizeof(char *));
    for (size_t i = 0; i < n; i++) {
      char *name = NULL;
      TRY(k ? api->SessionGetOutputName(s->session, i, host_allocator, &name) : api->SessionGetInputName(s->session, i, host_allocator, &name));
      s->names[k][i] = strdup(name);
      s->count[k]++;
      TRY(api->AllocatorFree(host_allocator, name));
    }
  }
  if (o->provider != IP_CPU) {
    TRY(api->CreateMemoryInfo("Cuda", OrtDeviceAllocator, o->device, OrtMemTypeDefault, &s->memory));
    TRY(api->CreateAllocator(s->session, s->memory, &s->allocator));
  }
  api->ReleaseSessionOptions(so);
  *out = s;
  return NULL;
fail:
  if (so) api->ReleaseSessionOptions(so);
  ip_session_free(s);
  return err;
}

void ip_session_free(ip_session *s) {
  if (!s) return;
  if (s->allocator) api->ReleaseAllocator(s->allocator);
  if (s->memory) api->ReleaseMemoryInfo(s->memory);
  if (s->session) api->ReleaseSession(s->session);
  for (int k = 0; k < 2; k++) {
    for (int i = 0; i < s->count[k]; i++) free(s->names[k][i]);
    free(s->names[k]);
  }
  free(s);
}

int ip_session_count(ip_session *s, int outputs) { return s->count[outputs]; }
const char *ip_session_name(ip_session *s, int output, int i) { return s->names[output][i]; }

char *ip_session_nodes(ip_session *s, char **out) {
  if (!api24) return strdup("this ONNX Runtime does not tell which provider executes what: 1.24 is the oldest that does");
  char *err = NULL;
  size_t len = 0, n = 0;
  FILE *f = open_memstream(out, &len);
  const OrtEpAssignedSubgraph *const *subs = NULL;
  TRY(api24->Session_GetEpGraphAssignmentInfo(s->session, &subs, &n));
  for (size_t i = 0; i < n; i++) {
    const char *provider = NULL;
    const OrtEpAssignedNode *const *nodes = NULL;
    size_t m = 0;
    TRY(api24->EpAssignedSubgraph_GetEpName(subs[i], &provider));
    TRY(api24->EpAssignedSubgraph_GetNodes(subs[i], &nodes, &m));
    for (size_t j = 0; j < m; j++) {
      const char *op = NULL, *name = NULL;
      TRY(api24->EpAssignedNode_GetOperatorType(nodes[j], &op));
      TRY(api24->EpAssignedNode_GetName(nodes[j], &name));
      fprintf(f, "%s\t%s\t%s\n", provider, op, name);
    }
  }
fail:
  fclose(f);
  if (err) {
    free(*out);
    *out = NULL;
  }
  return err;
}

static char *tensor_info(const OrtTensorTypeAndShapeInfo *ti, int *type, int64_t *dims, int cap, int *rank) {
  char *err = NULL;
  ONNXTensorElementDataType t;
  size_t n = 0;
  int64_t all[64];
  TRY(api->GetTensorElementType(ti, &t));
  TRY(api->GetDimensionsCount(ti, &n));
  if (n > 64) return strdup("a tensor of more than 64 dimensions");
  TRY(api->GetDimensions(ti, all, n));
  *type = t;
  *rank = (int)n < cap ? (int)n : cap;
  for (int i = 0; i < *rank; i++) dims[i] = all[i];
fail:
  return err;
}

char *ip_session_info(ip_session *s, int output, int i, int *type, int64_t *dims, int cap, int *rank) {
  char *err = NULL;
  OrtTypeInfo *info = NULL;
  const OrtTensorTypeAndShapeInfo *ti = NULL;
  TRY(output ? api->SessionGetOutputTypeInfo(s->session, i, &info) : api->SessionGetInputTypeInfo(s->session, i, &info));
  TRY(api->CastTypeInfoToTensorInfo(info, &ti));
  if (!ti) {
    err = strdup("not a tensor");
    goto fail;
  }
  err = tensor_info(ti, type, dims, cap, rank);
fail:
  if (info) api->ReleaseTypeInfo(info);
  return err;
}

char *ip_value_host(void *data, size_t len, const int64_t *shape, int rank, int type, void **out) {
  return message(api->CreateTensorWithDataAsOrtValue(host_memory, data, len, shape, rank, (ONNXTensorElementDataType)type, (OrtValue **)out));
}

char *ip_value_device(ip_session *s, const int64_t *shape, int rank, int type, void **out) {
  return message(api->CreateTensorAsOrtValue(s->allocator, shape, rank, (ONNXTensorElementDataType)type, (OrtValue **)out));
}

char *ip_value_on(int device, uint64_t data, size_t len, const int64_t *shape, int rank, int type, void **out) {
  char *err = NULL;
  OrtMemoryInfo *memory = NULL;
  TRY(api->CreateMemoryInfo("Cuda", OrtDeviceAllocator, device, OrtMemTypeDefault, &memory));
  TRY(api->CreateTensorWithDataAsOrtValue(memory, (void *)(uintptr_t)data, len, shape, rank, (ONNXTensorElementDataType)type, (OrtValue **)out));
fail:
  if (memory) api->ReleaseMemoryInfo(memory);
  return err;
}

char *ip_value_data(void *value, void **data) { return message(api->GetTensorMutableData(value, data)); }

char *ip_value_info(void *value, int *type, int64_t *dims, int cap, int *rank, size_t *bytes) {
  char *err = NULL;
  OrtTensorTypeAndShapeInfo *ti = NULL;
  int is_tensor = 0;
  TRY(api->IsTensor(value, &is_tensor));
  if (!is_tensor) return strdup("not a tensor");
  TRY(api->GetTensorTypeAndShape(value, &ti));
  if ((err = tensor_info(ti, type, dims, cap, rank))) goto fail;
  if (*type == ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING) {
    *bytes = 0;
    goto fail;
  }
  // Counted here: older libraries cannot be asked for the size in bytes.
  size_t n = 0;
  TRY(api->GetTensorShapeElementCount(ti, &n));
  size_t each = 0;
  switch (*type) {
    case 2: case 3: case 9: each = 1; break;
    case 4: case 5: case 10: case 16: each = 2; break;
    case 1: case 6: case 12: each = 4; break;
    case 7: case 11: case 13: each = 8; break;
  }
  *bytes = n * each;
fail:
  if (ti) api->ReleaseTensorTypeAndShapeInfo(ti);
  return err;
}

void ip_value_free(void *value) {
  if (value) api->ReleaseValue(value);
}

char *ip_binding_new(ip_session *s, void **inputs, void **outputs, int graph, ip_binding **out) {
  char *err = NULL;
  ip_binding *b = calloc(1, sizeof *b);
  b->s = s;
  b->graph = graph;
  TRY(api->CreateIoBinding(s->session, &b->io));
  for (int i = 0; i < s->count[0]; i++) TRY(api->BindInput(b->io, s->names[0][i], inputs[i]));
  for (int i = 0; i < s->count[1]; i++) TRY(api->BindOutput(b->io, s->names[1][i], outputs[i]));
  TRY(api->CreateRunOptions(&b->sync));
  TRY(api->CreateRunOptions(&b->async));
  if (s->provider != IP_CPU) {
    TRY(api->AddRunConfigEntry(b->async, "disable_synchronize_execution_providers", "1"));
    if (graph > 0) {
      char id[16];
      snprintf(id, sizeof id, "%d", graph);
      TRY(api->AddRunConfigEntry(b->sync, "gpu_graph_id", id));
      TRY(api->AddRunConfigEntry(b->async, "gpu_graph_id", id));
    }
  }
  *out = b;
  return NULL;
fail:
  ip_binding_free(b);
  return err;
}

void ip_binding_free(ip_binding *b) {
  if (!b) return;
  if (b->io) api->ReleaseIoBinding(b->io);
  if (b->sync) api->ReleaseRunOptions(b->sync);
  if (b->async) api->ReleaseRunOptions(b->async);
  free(b);
}

static int64_t clock_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

char *ip_run_once(ip_binding *b) { return message(api->RunWithBinding(b->s->session, b->sync, b->io)); }

// Every run waits for the device, as serving does. SynchronizeBoundOutputs alone
// is not enough: which of its streams the provider waits for there differs
// between versions. Older versions wait for a captured graph inside the run: there is
// no host time then.
char *ip_run(ip_binding *b, int n, int64_t *cpu_ns, int64_t *wall_ns, int64_t *host_ns) {
  char *err = NULL;
  int64_t wall = clock_ns(CLOCK_MONOTONIC), cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), launch = wall;
  for (int i = 0; i < n; i++) {
    if (!b->s->waits) {
      TRY(api->RunWithBinding(b->s->session, b->sync, b->io));
      continue;
    }
    TRY(api->RunWithBinding(b->s->session, b->async, b->io));
    if (!b->graph || replays_return) *host_ns += clock_ns(CLOCK_MONOTONIC) - launch;
    TRY(api->SynchronizeBoundOutputs(b->io));
    if ((err = ip_cuda_wait(b->s->device))) goto fail;
    launch = clock_ns(CLOCK_MONOTONIC);
  }
  *cpu_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
  *wall_ns += clock_ns(CLOCK_MONOTONIC) - wall;
fail:
  return err;
}

char *ip_eval(ip_session *s, void **inputs, int n_outputs, char **names, void **outputs) {
  return message(api->Run(s->session, NULL, (const char *const *)s->names[0], (const OrtValue *const *)inputs, s->count[0],
                          (const char *const *)names, n_outputs, (OrtValue **)outputs));
}

char *ip_operators(const char *path) {
  void *h = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (!h) return strdup(dlerror());
  void *entry = dlsym(h, "RegisterCustomOps");
  dlclose(h);
  return entry ? NULL : strdup("it has no function RegisterCustomOps");
}

char *ip_library(const char *name) {
  void *h = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (!h) return strdup(dlerror());
  dlclose(h);
  return NULL;
}
