//go:build cgo && !noort

#define _GNU_SOURCE
#include "cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The driver's types: handles are pointers, a device is a number, an address on
// the device has 64 bits, a result is 0 or an error's number.
typedef struct { char reserved[64]; } ipc_handle;
typedef struct ctx *ctx_t;
typedef struct stream *stream_t;
typedef struct event *event_t;

static struct {
  void *lib;
  int (*Init)(unsigned);
  int (*DriverGetVersion)(int *);
  int (*DeviceGetCount)(int *);
  int (*DeviceGet)(int *, int);
  int (*DeviceGetName)(char *, int, int);
  int (*DeviceTotalMem)(size_t *, int);
  int (*DeviceGetAttribute)(int *, int, int);
  int (*DevicePrimaryCtxRetain)(ctx_t *, int);
  int (*CtxSetCurrent)(ctx_t);
  int (*CtxSynchronize)(void);
  int (*MemGetInfo)(size_t *, size_t *);
  int (*MemAlloc)(uint64_t *, size_t);
  int (*MemFree)(uint64_t);
  int (*MemHostRegister)(void *, size_t, unsigned);
  int (*MemHostUnregister)(void *);
  int (*MemcpyHtoDAsync)(uint64_t, const void *, size_t, stream_t);
  int (*MemcpyDtoHAsync)(void *, uint64_t, size_t, stream_t);
  int (*MemcpyDtoDAsync)(uint64_t, uint64_t, size_t, stream_t);
  int (*StreamCreate)(stream_t *, unsigned);
  int (*StreamDestroy)(stream_t);
  int (*StreamSynchronize)(stream_t);
  int (*EventCreate)(event_t *, unsigned);
  int (*EventDestroy)(event_t);
  int (*EventRecord)(event_t, stream_t);
  int (*EventSynchronize)(event_t);
  int (*EventElapsedTime)(float *, event_t, event_t);
  int (*IpcGetMemHandle)(ipc_handle *, uint64_t);
  int (*IpcOpenMemHandle)(uint64_t *, ipc_handle, unsigned);
  int (*IpcCloseMemHandle)(uint64_t);
  int (*GetErrorString)(int, const char **);
} cu;

// The names under which the driver exports them: a function whose types became
// wider once has a number behind its name.
static const struct { const char *name; void **at; } symbols[] = {
    {"cuInit", (void **)&cu.Init},
    {"cuDriverGetVersion", (void **)&cu.DriverGetVersion},
    {"cuDeviceGetCount", (void **)&cu.DeviceGetCount},
    {"cuDeviceGet", (void **)&cu.DeviceGet},
    {"cuDeviceGetName", (void **)&cu.DeviceGetName},
    {"cuDeviceTotalMem_v2", (void **)&cu.DeviceTotalMem},
    {"cuDeviceGetAttribute", (void **)&cu.DeviceGetAttribute},
    {"cuDevicePrimaryCtxRetain", (void **)&cu.DevicePrimaryCtxRetain},
    {"cuCtxSetCurrent", (void **)&cu.CtxSetCurrent},
    {"cuCtxSynchronize", (void **)&cu.CtxSynchronize},
    {"cuMemGetInfo_v2", (void **)&cu.MemGetInfo},
    {"cuMemAlloc_v2", (void **)&cu.MemAlloc},
    {"cuMemFree_v2", (void **)&cu.MemFree},
    {"cuMemHostRegister_v2", (void **)&cu.MemHostRegister},
    {"cuMemHostUnregister", (void **)&cu.MemHostUnregister},
    {"cuMemcpyHtoDAsync_v2", (void **)&cu.MemcpyHtoDAsync},
    {"cuMemcpyDtoHAsync_v2", (void **)&cu.MemcpyDtoHAsync},
    {"cuMemcpyDtoDAsync_v2", (void **)&cu.MemcpyDtoDAsync},
    {"cuStreamCreate", (void **)&cu.StreamCreate},
    {"cuStreamDestroy_v2", (void **)&cu.StreamDestroy},
    {"cuStreamSynchronize", (void **)&cu.StreamSynchronize},
    {"cuEventCreate", (void **)&cu.EventCreate},
    {"cuEventDestroy_v2", (void **)&cu.EventDestroy},
    {"cuEventRecord", (void **)&cu.EventRecord},
    {"cuEventSynchronize", (void **)&cu.EventSynchronize},
    {"cuEventElapsedTime", (void **)&cu.EventElapsedTime},
    {"cuIpcGetMemHandle", (void **)&cu.IpcGetMemHandle},
    {"cuIpcOpenMemHandle_v2", (void **)&cu.IpcOpenMemHandle},
    {"cuIpcCloseMemHandle", (void **)&cu.IpcCloseMemHandle},
    {"cuGetErrorString", (void **)&cu.GetErrorString},
};

// Attributes of a device by the driver's numbers.
enum { CLOCK_RATE = 13, MULTIPROCESSORS = 16, MEMORY_CLOCK_RATE = 36, BUS_WIDTH = 37, MAJOR = 75, MINOR = 76 };
enum { NON_BLOCKING = 1, REGISTER_PORTABLE = 1, LAZY_PEER = 1 };

#define MAX_DEVICES 64
static ctx_t contexts[MAX_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static char *say(const char *what, const char *why) {
  char *m = malloc(strlen(what) + strlen(why) + 3);
  sprintf(m, "%s: %s", what, why);
  return m;
}

static char *failed(const char *what, int rc) {
  const char *why = NULL;
  char number[32];
  if (cu.GetErrorString(rc, &why) || !why) {
    snprintf(number, sizeof number, "CUDA error %d", rc);
    why = number;
  }
  return say(what, why);
}

#define TRY(call, what)                                  \
  do {                                                   \
    int rc_ = (call);                                    \
    if (rc_) { err = failed(what, rc_); goto done; }     \
  } while (0)

char *ip_cuda_open(const char *library) {
  char *err = NULL;
  pthread_mutex_lock(&lock);
  void *h = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!h) {
    err = strdup(dlerror());
    goto done;
  }
  if (h == cu.lib) { // open already
    dlclose(h);
    goto done;
  }
  void *found[sizeof symbols / sizeof *symbols];
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    if (!(found[i] = dlsym(h, symbols[i].name))) {
      err = say(library, symbols[i].name);
      char *m = say("the GPU driver is too old, it lacks a function", err);
      free(err);
      err = m;
      dlclose(h);
      goto done;
    }
  }
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) *symbols[i].at = found[i];
  int rc = cu.Init(0);
  if (rc) {
    err = failed("start the GPU driver", rc);
    memset(&cu, 0, sizeof cu);
    dlclose(h);
    goto done;
  }
  cu.lib = h;
  memset(contexts, 0, sizeof contexts);
done:
  pthread_mutex_unlock(&lock);
  return err;
}

// use makes the device's primary context (the one that the CUDA runtime uses,
// too) the calling thread's.
static char *use(int device) {
  char *err = NULL;
  pthread_mutex_lock(&lock);
  if (!cu.lib) {
    err = strdup("the GPU driver's library is not open");
    goto done;
  }
  if (device < 0 || device >= MAX_DEVICES) {
    err = strdup("no such GPU");
    goto done;
  }
  if (!contexts[device]) {
    int d = 0;
    TRY(cu.DeviceGet(&d, device), "find the GPU");
    TRY(cu.DevicePrimaryCtxRetain(&contexts[device], d), "take the GPU");
  }
  TRY(cu.CtxSetCurrent(contexts[device]), "use the GPU");
done:
  pthread_mutex_unlock(&lock);
  return err;
}

char *ip_cuda_about(int device, ip_cuda_device *out) {
  char *err = use(device);
  if (err) return err;
  int d = 0;
  TRY(cu.DriverGetVersion(&out->driver_version), "ask for the driver's version");
  TRY(cu.DeviceGet(&d, device), "find the GPU");
  TRY(cu.DeviceGetAttribute(&out->multiprocessors, MULTIPROCESSORS, d), "count multiprocessors");
  TRY(cu.DeviceGetAttribute(&out->major, MAJOR, d), "ask for the architecture");
  TRY(cu.DeviceGetAttribute(&out->minor, MINOR, d), "ask for the architecture");
  // Newer drivers need not tell these.
  if (cu.DeviceGetAttribute(&out->clock_khz, CLOCK_RATE, d)) out->clock_khz = 0;
  if (cu.DeviceGetAttribute(&out->memory_clock_khz, MEMORY_CLOCK_RATE, d)) out->memory_clock_khz = 0;
  if (cu.DeviceGetAttribute(&out->bus_bits, BUS_WIDTH, d)) out->bus_bits = 0;
  TRY(cu.MemGetInfo(&out->free_bytes, &out->total_bytes), "ask for the memory");
done:
  return err;
}

char *ip_cuda_list(ip_gpu *out, int cap, int *found) {
  char *err = NULL;
  int all = 0;
  *found = 0;
  pthread_mutex_lock(&lock);
  if (!cu.lib) {
    err = strdup("the GPU driver's library is not open");
    goto done;
  }
  TRY(cu.DeviceGetCount(&all), "count GPUs");
  for (int i = 0; i < all && i < cap; i++) {
    int d = 0;
    size_t bytes = 0;
    TRY(cu.DeviceGet(&d, i), "find the GPU");
    TRY(cu.DeviceGetName(out[i].name, sizeof out[i].name, d), "ask for the GPU's name");
    TRY(cu.DeviceTotalMem(&bytes, d), "ask for the GPU's memory");
    TRY(cu.DeviceGetAttribute(&out[i].multiprocessors, MULTIPROCESSORS, d), "count multiprocessors");
    TRY(cu.DeviceGetAttribute(&out[i].major, MAJOR, d), "ask for the architecture");
    TRY(cu.DeviceGetAttribute(&out[i].minor, MINOR, d), "ask for the architecture");
    out[i].memory = bytes;
    *found = i + 1;
  }
done:
  pthread_mutex_unlock(&lock);
  return err;
}

char *ip_cuda_wait(int device) {
  char *err = use(device);
  if (err) return err;
  TRY(cu.CtxSynchronize(), "wait for the GPU");
done:
  return err;
}

char *ip_cuda_alloc(int device, size_t len, uint64_t *out) {
  char *err = use(device);
  if (err) return err;
  TRY(cu.MemAlloc(out, len), "allocate on the GPU");
done:
  return err;
}

char *ip_cuda_free(int device, uint64_t at) {
  char *err = use(device);
  if (err) return err;
  TRY(cu.MemFree(at), "free on the GPU");
done:
  return err;
}

char *ip_cuda_pin(int device, void *data, size_t len) {
  char *err = use(device);
  if (err) return err;
  TRY(cu.MemHostRegister(data, len, REGISTER_PORTABLE), "pin memory for the GPU");
done:
  return err;
}

char *ip_cuda_unpin(int device, void *data) {
  char *err = use(device);
  if (err) return err;
  TRY(cu.MemHostUnregister(data), "unpin memory");
done:
  return err;
}

static int copy(uint64_t dst, uint64_t src, size_t len, int kind, stream_t s) {
  switch (kind) {
    case 1: return cu.MemcpyHtoDAsync(dst, (const void *)(uintptr_t)src, len, s);
    case 2: return cu.MemcpyDtoHAsync((void *)(uintptr_t)dst, src, len, s);
    default: return cu.MemcpyDtoDAsync(dst, src, len, s);
  }
}

char *ip_cuda_copy(int device, uint64_t dst, uint64_t src, size_t len, int kind) {
  char *err = use(device);
  if (err) return err;
  TRY(copy(dst, src, len, kind, NULL), "copy");
  // A copy from pageable memory may return before it has arrived, and the
  // runtime's own stream does not wait for the default one.
  TRY(cu.StreamSynchronize(NULL), "finish a copy");
done:
  return err;
}

char *ip_cuda_time(int device, uint64_t dst, uint64_t src, size_t len, int kind, int n, double *ms) {
  char *err = use(device);
  if (err) return err;
  stream_t s = NULL;
  event_t begin = NULL, end = NULL;
  float took = 0;
  TRY(cu.StreamCreate(&s, NON_BLOCKING), "make a stream");
  TRY(cu.EventCreate(&begin, 0), "make an event");
  TRY(cu.EventCreate(&end, 0), "make an event");
  TRY(copy(dst, src, len, kind, s), "copy"); // warm up
  TRY(cu.EventRecord(begin, s), "record an event");
  for (int i = 0; i < n; i++) TRY(copy(dst, src, len, kind, s), "copy");
  TRY(cu.EventRecord(end, s), "record an event");
  TRY(cu.EventSynchronize(end), "wait for an event");
  TRY(cu.EventElapsedTime(&took, begin, end), "read the device's clock");
  *ms = took;
done:
  if (begin) cu.EventDestroy(begin);
  if (end) cu.EventDestroy(end);
  if (s) cu.StreamDestroy(s);
  return err;
}

char *ip_cuda_export(int device, uint64_t at, unsigned char handle[64]) {
  char *err = use(device);
  if (err) return err;
  ipc_handle h;
  TRY(cu.IpcGetMemHandle(&h, at), "share GPU memory");
  memcpy(handle, &h, sizeof h);
done:
  return err;
}

char *ip_cuda_import(int device, const unsigned char handle[64], uint64_t *out) {
  char *err = use(device);
  if (err) return err;
  ipc_handle h;
  memcpy(&h, handle, sizeof h);
  TRY(cu.IpcOpenMemHandle(out, h, LAZY_PEER), "map another process's GPU memory");
done:
  return err;
}

char *ip_cuda_unmap(int device, uint64_t at) {
  char *err = use(device);
  if (err) return err;
  TRY(cu.IpcCloseMemHandle(at), "unmap another process's GPU memory");
done:
  return err;
}

// NVML.

typedef struct { unsigned long long total, free, used; } memory_t;

typedef struct {
  void *lib;
  int (*init)(void), (*shutdown)(void), (*count)(unsigned *), (*handle)(unsigned, void **);
  int (*name)(void *, char *, unsigned), (*uuid)(void *, char *, unsigned), (*memory)(void *, memory_t *), (*version)(char *, unsigned);
  const char *(*describe)(int);
  // Older drivers may lack these.
  int (*capability)(void *, int *, int *), (*cores)(void *, unsigned *), (*limit)(void *, unsigned *);
  int (*power)(void *, unsigned *), (*clock)(void *, int, unsigned *), (*celsius)(void *, int, unsigned *);
  int (*throttled)(void *, unsigned long long *);
} nvml_t;

// nvml_open opens and initialises NVML. With no library, or no driver behind
// it, n->lib stays NULL and there is no error.
static char *nvml_open(const char *library, nvml_t *n) {
  memset(n, 0, sizeof *n);
  void *h = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (!h) return NULL;
  n->init = dlsym(h, "nvmlInit_v2");
  n->shutdown = dlsym(h, "nvmlShutdown");
  n->count = dlsym(h, "nvmlDeviceGetCount_v2");
  n->handle = dlsym(h, "nvmlDeviceGetHandleByIndex_v2");
  n->name = dlsym(h, "nvmlDeviceGetName");
  n->uuid = dlsym(h, "nvmlDeviceGetUUID");
  n->memory = dlsym(h, "nvmlDeviceGetMemoryInfo");
  n->version = dlsym(h, "nvmlSystemGetDriverVersion");
  n->describe = dlsym(h, "nvmlErrorString");
  n->capability = dlsym(h, "nvmlDeviceGetCudaComputeCapability");
  n->cores = dlsym(h, "nvmlDeviceGetNumGpuCores");
  n->limit = dlsym(h, "nvmlDeviceGetEnforcedPowerLimit");
  n->power = dlsym(h, "nvmlDeviceGetPowerUsage");
  n->clock = dlsym(h, "nvmlDeviceGetClockInfo");
  n->celsius = dlsym(h, "nvmlDeviceGetTemperature");
  // The newer name first.
  if (!(n->throttled = dlsym(h, "nvmlDeviceGetCurrentClocksEventReasons"))) n->throttled = dlsym(h, "nvmlDeviceGetCurrentClocksThrottleReasons");
  char *err = NULL;
  if (!n->init || !n->shutdown || !n->count || !n->handle || !n->name || !n->uuid || !n->memory || !n->version || !n->describe) {
    err = say(library, "lacks a function of NVML");
    dlclose(h);
    return err;
  }
  int rc = n->init();
  // 9 and 12: no driver, or no library of it. A machine without GPU is no error.
  if (rc) {
    if (rc != 9 && rc != 12) err = say("nvmlInit", n->describe(rc));
    dlclose(h);
    return err;
  }
  n->lib = h;
  return NULL;
}

static void nvml_close(nvml_t *n) {
  if (!n->lib) return;
  n->shutdown();
  dlclose(n->lib);
  n->lib = NULL;
}

char *ip_gpus(const char *library, ip_gpu *out, int cap, int *found, char *driver, int driver_cap) {
  *found = 0;
  nvml_t n;
  char *err = nvml_open(library, &n);
  if (err || !n.lib) return err;
  unsigned all = 0;
  int rc = n.version(driver, driver_cap);
  if (!rc) rc = n.count(&all);
  for (unsigned i = 0; !rc && i < all && (int)i < cap; i++) {
    void *d = NULL;
    memory_t m = {0, 0, 0};
    if ((rc = n.handle(i, &d)) || (rc = n.name(d, out[i].name, sizeof out[i].name)) || (rc = n.uuid(d, out[i].uuid, sizeof out[i].uuid))) break;
    if (!n.memory(d, &m)) out[i].memory = m.total; // some shares do not tell
    if (!n.capability || n.capability(d, &out[i].major, &out[i].minor)) out[i].major = out[i].minor = 0;
    if (!n.cores || n.cores(d, &out[i].cores)) out[i].cores = 0;
    if (!n.limit || n.limit(d, &out[i].power_limit_mw)) out[i].power_limit_mw = 0;
    *found = (int)i + 1;
  }
  if (rc) err = say("NVML", n.describe(rc));
  nvml_close(&n);
  return err;
}

struct ip_watch {
  nvml_t n;
  void *device;
};

char *ip_watch_open(const char *library, int device, ip_watch **out) {
  ip_watch *w = calloc(1, sizeof *w);
  char *err = nvml_open(library, &w->n);
  if (!err && !w->n.lib) err = say(library, "NVML is not here, or finds no driver");
  if (!err) {
    int rc = w->n.handle((unsigned)device, &w->device);
    if (rc) {
      err = say("NVML", w->n.describe(rc));
      nvml_close(&w->n);
    }
  }
  if (err) {
    free(w);
    return err;
  }
  *out = w;
  return NULL;
}

char *ip_watch_read(ip_watch *w, ip_gpu_state *s) {
  memset(s, 0, sizeof *s);
  nvml_t *n = &w->n;
  if (!n->power || n->power(w->device, &s->power_mw)) s->power_mw = 0;
  if (!n->clock || n->clock(w->device, 1, &s->sm_mhz)) s->sm_mhz = 0;
  if (!n->clock || n->clock(w->device, 2, &s->memory_mhz)) s->memory_mhz = 0;
  if (!n->celsius || n->celsius(w->device, 0, &s->celsius)) s->celsius = 0;
  if (!n->throttled || n->throttled(w->device, &s->throttled)) s->throttled = 0;
  if (!s->power_mw && !s->sm_mhz && !s->memory_mhz) return strdup("the GPU tells neither power nor clocks");
  return NULL;
}

void ip_watch_close(ip_watch *w) {
  if (!w) return;
  nvml_close(&w->n);
  free(w);
}
