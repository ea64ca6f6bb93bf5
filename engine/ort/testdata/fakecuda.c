// A stand-in for NVIDIA's driver and NVML, for tests on machines without a GPU.
// Device memory is memory of the host behind addresses of its own, so that a
// host address handed over as a device address (or the other way round) is
// refused, and a processor that reads a device address dies of it. Types and
// order of arguments are those of the CUDA driver API's and NVML's reference
// manuals. Every call is written to $FAKECUDA_LOG; the function that
// $FAKECUDA_FAIL names fails. $FAKECUDA_MIB is the device's memory (80 GiB).
#define _GNU_SOURCE
#include "fakecuda.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int CUresult;
typedef int CUdevice;
typedef void *CUcontext;
typedef fake_stream *CUstream;
typedef fake_event *CUevent;
typedef unsigned long long CUdeviceptr;
typedef struct { char reserved[64]; } CUipcMemHandle;

#define CURRENT if (!current) return INVALID_CONTEXT

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
#define LOCKED __attribute__((cleanup(unlocked))) int locked_ = pthread_mutex_lock(&lock)
static void unlocked(int *x) { (void)x; pthread_mutex_unlock(&lock); }

void noted(const char *format, ...) {
  const char *log = getenv("FAKECUDA_LOG");
  if (!log || !*log) return;
  LOCKED;
  FILE *f = fopen(log, "a");
  if (!f) return;
  va_list list;
  va_start(list, format);
  vfprintf(f, format, list);
  va_end(list);
  fclose(f);
}

int said(const char *name) {
  const char *fail = getenv("FAKECUDA_FAIL");
  noted("%s\n", name);
  return fail && !strcmp(fail, name);
}

static __thread CUcontext current;
static int started;

// Device addresses: far above what a host has.
#define BASE 0x7f00000000000000ull
#define PIECES 4096
static struct { size_t len; char *data; int file, mapped; } piece[PIECES]; // file: what lies in one that processes can share
static struct { char *data; size_t len; } pinned[PIECES];
static size_t in_use;

static size_t total(void) {
  const char *mib = getenv("FAKECUDA_MIB");
  return mib && *mib ? (size_t)atoll(mib) << 20 : 80ull << 30;
}

void fake_memory(size_t *free, size_t *all) {
  LOCKED;
  *all = total();
  *free = *all - in_use;
}

// place puts bytes behind an address of the device.
static uint64_t place(char *data, size_t len, int file, int mapped) {
  for (int i = 0; data && i < PIECES; i++)
    if (!piece[i].data) {
      piece[i].data = data, piece[i].len = len, piece[i].file = file, piece[i].mapped = mapped;
      if (!mapped) in_use += len;
      return BASE + ((uint64_t)i << 40);
    }
  return 0;
}

uint64_t fake_take(size_t len) {
  LOCKED;
  if (!len || len > total() - in_use) return 0;
  char *data = malloc(len);
  if (data) memset(data, 0xcd, len < 1 << 20 ? len : 1 << 20);
  return place(data, len, -1, 0);
}

// Memory of the driver's own interface can be shared with other processes.
static uint64_t take_shared(size_t len) {
  LOCKED;
  if (!len || len > total() - in_use) return 0;
  int file = memfd_create("fakecuda", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, len)) return 0;
  char *data = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return place(data == MAP_FAILED ? NULL : data, len, file, 0);
}

int on_device(const void *p) { return (uint64_t)p >= BASE && (uint64_t)p < BASE + ((uint64_t)PIECES << 40); }

char *device(uint64_t p, size_t len) {
  LOCKED;
  if (!on_device((void *)p)) return NULL;
  uint64_t i = (p - BASE) >> 40, off = (p - BASE) & ((1ull << 40) - 1);
  if (!piece[i].data || off + len > piece[i].len) return NULL;
  return piece[i].data + off;
}

int fake_give(uint64_t p) {
  LOCKED;
  if (!device(p, 1) || (p & ((1ull << 40) - 1))) return INVALID_VALUE;
  fake_wait_all(); // freeing waits for the device
  int i = (p - BASE) >> 40;
  if (piece[i].file < 0) {
    free(piece[i].data);
  } else {
    munmap(piece[i].data, piece[i].len);
    close(piece[i].file);
  }
  if (!piece[i].mapped) in_use -= piece[i].len;
  piece[i].data = NULL;
  return OK;
}

static int host(const void *p) { return p && (uintptr_t)p < BASE; }

void fake_pin(void *p, size_t len) {
  LOCKED;
  for (int i = 0; i < PIECES; i++)
    if (!pinned[i].data) {
      pinned[i].data = p;
      pinned[i].len = len;
      return;
    }
}

int fake_unpin(void *p) {
  LOCKED;
  for (int i = 0; i < PIECES; i++)
    if (pinned[i].data == p) {
      pinned[i].data = NULL;
      return OK;
    }
  return 713;
}

static int is_pinned(const char *p) {
  for (int i = 0; i < PIECES; i++)
    if (pinned[i].data && p >= pinned[i].data && p < pinned[i].data + pinned[i].len) return 1;
  return 0;
}

// Streams. Work has numbers in the order in which it was given; waiting for a
// number does what comes before it in its stream, and what that waits for.
typedef struct op {
  struct op *next;
  uint64_t seq;
  const char *name;
  void (*run)(void *);
  fake_stream *waits; // for this stream
  uint64_t until;
  fake_event *event; // to mark
  char args[] __attribute__((aligned(16)));
} op;

struct fake_graph { op *first, **last; int mode, n; pthread_t thread; };

struct fake_stream {
  fake_stream *next;
  op *first, **last;
  uint64_t given; // the last number
  int non_blocking;
  fake_graph *capture;
};

struct fake_event { fake_stream *stream; uint64_t seq; int recorded; };

static fake_stream legacy = {.last = &legacy.first};
static fake_stream *streams = &legacy;
static uint64_t numbers;

static fake_stream *of(fake_stream *s) { // 1 and 2 are the runtime's names of default streams
  return (uintptr_t)s <= 2 ? &legacy : s;
}

static void drain(fake_stream *s, uint64_t until) {
  while (s->first && s->first->seq <= until) {
    op *o = s->first;
    // The default stream and the blocking ones wait for each other.
    if (s == &legacy) {
      for (fake_stream *x = streams; x; x = x->next)
        if (x != s && !x->non_blocking) drain(x, o->seq - 1);
    } else if (!s->non_blocking) {
      drain(&legacy, o->seq - 1);
    }
    if (s->first != o) continue; // done meanwhile
    if (!(s->first = o->next)) s->last = &s->first;
    if (o->waits) drain(o->waits, o->until);
    if (o->run) o->run(o->args);
    free(o);
  }
}

static op *append(fake_stream *s, const char *name, void (*run)(void *), const void *args, size_t len) {
  op *o = calloc(1, sizeof *o + len);
  o->name = name;
  o->run = run;
  if (len) memcpy(o->args, args, len);
  if (s->capture) {
    *s->capture->last = o;
    s->capture->last = &o->next;
    s->capture->n++;
    return o;
  }
  o->seq = s->given = ++numbers;
  *s->last = o;
  s->last = &o->next;
  return o;
}

int fake_do(fake_stream *s, const char *name, void (*run)(void *), const void *args, size_t len) {
  LOCKED;
  append(of(s), name, run, args, len);
  return OK;
}

int fake_wait(fake_stream *s) {
  LOCKED;
  s = of(s);
  if (s->capture) {
    noted("forbidden in a capture: wait for its stream\n");
    return CAPTURE_FORBIDS;
  }
  drain(s, numbers);
  if (s == &legacy)
    for (fake_stream *x = streams; x; x = x->next)
      if (!x->non_blocking) drain(x, numbers);
  return OK;
}

int fake_wait_all(void) {
  LOCKED;
  for (fake_stream *s = streams; s; s = s->next) drain(s, numbers);
  return OK;
}

fake_stream *fake_stream_new(int non_blocking) {
  LOCKED;
  fake_stream *s = calloc(1, sizeof *s);
  s->last = &s->first;
  s->non_blocking = non_blocking;
  s->next = streams->next;
  streams->next = s;
  return s;
}

int fake_stream_free(fake_stream *s) {
  LOCKED;
  for (fake_stream *x = streams; x; x = x->next)
    if (x->next == s && s) {
      drain(s, numbers);
      x->next = s->next;
      free(s);
      return OK;
    }
  return INVALID_HANDLE;
}

typedef struct { char *to; const char *from; size_t len; void *staged; int stays; } copying;

static void copy_run(void *args) {
  copying *c = args;
  memmove(c->to, c->staged ? c->staged : c->from, c->len);
  if (!c->stays) free(c->staged);
}

int fake_copy(fake_stream *s, void *dst, const void *src, size_t len) {
  LOCKED;
  s = of(s);
  if (!len) return OK;
  copying c = {.len = len};
  c.to = on_device(dst) ? device((uint64_t)dst, len) : host(dst) ? dst : NULL;
  c.from = on_device(src) ? device((uint64_t)src, len) : host(src) ? src : NULL;
  if (!c.to || !c.from) {
    noted("copy of %zu bytes to %p from %p: not an allocation's\n", len, dst, src);
    return INVALID_VALUE;
  }
  int kind = on_device(dst) ? on_device(src) ? 3 : 1 : on_device(src) ? 2 : 0;
  // From pageable memory the bytes are taken at once; to pageable memory the
  // call returns when they have arrived.
  if (kind == 1 && !is_pinned(src)) {
    c.staged = malloc(len);
    memcpy(c.staged, src, len);
    c.stays = s->capture != NULL;
  }
  noted("copy %d of %zu%s\n", kind, len, s->capture ? " captured" : "");
  append(s, "copy", copy_run, &c, sizeof c);
  if (!s->capture && (kind == 0 || kind == 2) && !is_pinned(dst)) drain(s, numbers);
  return OK;
}

fake_event *fake_event_new(void) { return calloc(1, sizeof(fake_event)); }

int fake_event_record(fake_event *e, fake_stream *s) {
  LOCKED;
  if (!e) return INVALID_HANDLE;
  s = of(s);
  append(s, "event", NULL, NULL, 0);
  e->stream = s;
  e->seq = s->given;
  e->recorded = 1;
  return OK;
}

int fake_event_recorded(fake_event *e) { return e && e->recorded; }

int fake_event_wait(fake_event *e) {
  LOCKED;
  if (!e) return INVALID_HANDLE;
  if (e->stream) drain(e->stream, e->seq);
  return OK;
}

int fake_stream_waits(fake_stream *s, fake_event *e) {
  LOCKED;
  if (!e) return INVALID_HANDLE;
  if (!e->recorded) return OK;
  op *o = append(of(s), "wait", NULL, NULL, 0);
  o->waits = e->stream;
  o->until = e->seq;
  return OK;
}

int fake_capture(fake_stream *s, int mode) {
  LOCKED;
  s = of(s);
  if (s == &legacy || s->capture) return CAPTURE_FORBIDS;
  fake_graph *g = calloc(1, sizeof *g);
  g->last = &g->first;
  g->mode = mode;
  g->thread = pthread_self();
  s->capture = g;
  return OK;
}

int fake_capturing(fake_stream *s) {
  LOCKED;
  return of(s)->capture != NULL;
}

int fake_captured(fake_stream *s, fake_graph **g) {
  LOCKED;
  s = of(s);
  if (!s->capture) return 901;
  *g = s->capture;
  s->capture = NULL;
  noted("captured %d\n", (*g)->n);
  return OK;
}

static void replay(void *args) {
  fake_graph *g = *(fake_graph **)args;
  for (op *o = g->first; o; o = o->next)
    if (o->run) o->run(o->args);
}

int fake_graph_launch(fake_graph *g, fake_stream *s) {
  noted("replay %d\n", g->n);
  return fake_do(s, "graph", replay, &g, sizeof g);
}

void fake_graph_free(fake_graph *g) {
  LOCKED;
  fake_wait_all();
  for (op *o = g->first, *next; o; o = next) {
    next = o->next;
    free(o);
  }
  free(g);
}

int fake_unsafe(const char *what) {
  LOCKED;
  for (fake_stream *s = streams; s; s = s->next) {
    fake_graph *g = s->capture;
    if (g && (g->mode == 0 || (g->mode == 1 && pthread_equal(g->thread, pthread_self())))) {
      noted("forbidden in a capture: %s\n", what);
      return 1;
    }
  }
  return 0;
}
#define SAFE if (fake_unsafe(__func__)) return CAPTURE_FORBIDS

CUresult cuInit(unsigned flags) { SAY; started = flags == 0; return flags ? INVALID_VALUE : OK; }
CUresult cuDriverGetVersion(int *v) { SAY; *v = 13010; return OK; }
CUresult cuDeviceGetCount(int *n) { SAY; *n = 1; return OK; }
CUresult cuDeviceGetName(char *s, int n, CUdevice d) { SAY; if (d != 7) return 101; strncpy(s, "NVIDIA H100 80GB HBM3", n); return OK; }
CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice d) { SAY; if (d != 7) return 101; *n = total(); return OK; }
CUresult cuDeviceGet(CUdevice *d, int ordinal) { SAY; if (!started) return NOT_INITIALIZED; if (ordinal != 0) return 101; *d = 7; return OK; }
CUresult cuDeviceGetAttribute(int *v, int attribute, CUdevice d) {
  SAY;
  if (d != 7) return 101;
  switch (attribute) {
    case 16: *v = 132; return OK;
    case 75: *v = 9; return OK;
    case 76: *v = 0; return OK;
    case 13: *v = 1980000; return OK;
    case 37: *v = 5120; return OK;
  }
  return INVALID_VALUE; // the memory's clock is one that newer drivers do not tell
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { SAY; if (d != 7) return 101; *c = &started; return OK; }
CUresult cuCtxSetCurrent(CUcontext c) { SAY; if (c != &started) return INVALID_CONTEXT; current = c; return OK; }
CUresult cuCtxSynchronize(void) { SAY; CURRENT; SAFE; return fake_wait_all(); }
CUresult cuMemGetInfo_v2(size_t *free, size_t *all) { SAY; CURRENT; fake_memory(free, all); return OK; }
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t len) { SAY; CURRENT; SAFE; return (*p = take_shared(len)) ? OK : OUT_OF_MEMORY; }
CUresult cuMemFree_v2(CUdeviceptr p) { SAY; CURRENT; SAFE; return device(p, 1) && piece[(p - BASE) >> 40].mapped ? INVALID_VALUE : fake_give(p); }
CUresult cuMemHostRegister_v2(void *p, size_t len, unsigned flags) {
  SAY; CURRENT; SAFE;
  if (!host(p) || !len || flags != 1) return INVALID_VALUE;
  for (int i = 0; i < PIECES; i++) if (pinned[i].data == p) return 712;
  fake_pin(p, len);
  return OK;
}
CUresult cuMemHostUnregister(void *p) { SAY; CURRENT; SAFE; return fake_unpin(p); }
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t len, CUstream s) {
  SAY; CURRENT;
  return on_device((void *)dst) && host(src) ? fake_copy(s, (void *)dst, src, len) : INVALID_VALUE;
}
CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t len, CUstream s) {
  SAY; CURRENT;
  return host(dst) && on_device((void *)src) ? fake_copy(s, dst, (void *)src, len) : INVALID_VALUE;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t len, CUstream s) {
  SAY; CURRENT;
  return on_device((void *)dst) && on_device((void *)src) ? fake_copy(s, (void *)dst, (void *)src, len) : INVALID_VALUE;
}
CUresult cuStreamCreate(CUstream *s, unsigned flags) { SAY; CURRENT; if (flags != 1) return INVALID_VALUE; *s = fake_stream_new(1); return OK; }
CUresult cuStreamDestroy_v2(CUstream s) { SAY; return fake_stream_free(s); }
CUresult cuStreamSynchronize(CUstream s) { SAY; CURRENT; return fake_wait(s); }
CUresult cuEventCreate(CUevent *e, unsigned flags) { SAY; CURRENT; if (flags) return INVALID_VALUE; *e = fake_event_new(); return OK; }
CUresult cuEventDestroy_v2(CUevent e) { SAY; if (!e) return INVALID_HANDLE; free(e); return OK; }
CUresult cuEventRecord(CUevent e, CUstream s) { SAY; CURRENT; if (!s) return INVALID_HANDLE; return fake_event_record(e, s); }
CUresult cuEventSynchronize(CUevent e) { SAY; return fake_event_recorded(e) ? fake_event_wait(e) : INVALID_HANDLE; }
CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) { SAY; if (a == b || !fake_event_recorded(a) || !fake_event_recorded(b)) return INVALID_HANDLE; *ms = 2; return OK; }
// A handle names the process, its file and the length.
struct handle { int64_t process, file, len; };
CUresult cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr p) {
  SAY; CURRENT;
  if (!device(p, 1) || piece[(p - BASE) >> 40].file < 0) return INVALID_VALUE;
  struct handle x = {getpid(), piece[(p - BASE) >> 40].file, piece[(p - BASE) >> 40].len};
  memset(h, 0, sizeof *h);
  memcpy(h->reserved, &x, sizeof x);
  return OK;
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *p, CUipcMemHandle h, unsigned flags) {
  SAY; CURRENT; LOCKED;
  struct handle x;
  char path[64];
  memcpy(&x, h.reserved, sizeof x);
  snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)x.process, (long long)x.file);
  if (flags != 1) return INVALID_VALUE;
  int file = x.process ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return INVALID_HANDLE;
  char *data = mmap(NULL, x.len, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  *p = place(data == MAP_FAILED ? NULL : data, x.len, file, 1);
  return *p ? OK : INVALID_HANDLE;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr p) { SAY; CURRENT; return device(p, 1) && piece[(p - BASE) >> 40].mapped ? fake_give(p) : INVALID_VALUE; }
CUresult cuGetErrorString(CUresult rc, const char **text) {
  switch (rc) {
    case INVALID_VALUE: *text = "invalid argument"; return OK;
    case OUT_OF_MEMORY: *text = "out of memory"; return OK;
    case INVALID_CONTEXT: *text = "invalid device context"; return OK;
    case 999: *text = "unknown error"; return OK;
  }
  *text = NULL;
  return INVALID_VALUE;
}

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
int nvmlInit_v2(void) { SAY; return 0; }
int nvmlShutdown(void) { SAY; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { SAY; *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { SAY; if (i) return 2; *d = &started; return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) { SAY; (void)d; strncpy(s, "NVIDIA H100 80GB HBM3", n); return 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) { SAY; (void)d; strncpy(s, "GPU-0", n); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, nvmlMemory_t *m) { SAY; (void)d; m->total = total(); return 0; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { SAY; strncpy(s, "580.1", n); return 0; }
const char *nvmlErrorString(int e) { return e == 2 ? "invalid argument" : "other"; }
int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor) { SAY; (void)d; *major = 9; *minor = 0; return 0; }
int nvmlDeviceGetNumGpuCores(void *d, unsigned *n) { SAY; (void)d; *n = 16896; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *mw) { SAY; (void)d; *mw = 700000; return 0; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *mw) { SAY; (void)d; *mw = 321500; return 0; }
int nvmlDeviceGetClockInfo(void *d, int type, unsigned *mhz) { SAY; (void)d; *mhz = type == 1 ? 1980 : type == 2 ? 2619 : 0; return type > 2 ? 2 : 0; }
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *c) { SAY; (void)d; *c = 55; return sensor ? 2 : 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *r) { SAY; (void)d; *r = 4; return 0; }
