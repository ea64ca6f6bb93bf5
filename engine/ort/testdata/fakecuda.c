// A stand-in for NVIDIA's driver and NVML, for tests on machines without a GPU.
// Device memory is memory of the host behind addresses of its own, so that a
// host address handed over as a device address (or the other way round) is
// refused. Types and order of arguments are those of the CUDA driver API's and
// NVML's reference manuals. Every call is written to $FAKECUDA_LOG; the function
// that $FAKECUDA_FAIL names fails.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef void *CUcontext, *CUstream, *CUevent;
typedef unsigned long long CUdeviceptr;
typedef struct { char reserved[64]; } CUipcMemHandle;

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };

static int said(const char *name) {
  const char *log = getenv("FAKECUDA_LOG"), *fail = getenv("FAKECUDA_FAIL");
  if (log && *log) {
    FILE *f = fopen(log, "a");
    if (f) {
      fprintf(f, "%s\n", name);
      fclose(f);
    }
  }
  return fail && !strcmp(fail, name);
}
#define SAY if (said(__func__)) return 999
#define CURRENT if (!current) return INVALID_CONTEXT

static __thread CUcontext current;
static int started;

// Device addresses: far above what a host has.
#define BASE 0x7f00000000000000ull
#define PIECES 64
static struct { size_t len; char *data; } piece[PIECES];
static struct { void *data; size_t len; } pinned[PIECES];
static size_t in_use;

static char *device(CUdeviceptr p, size_t len) {
  if (p < BASE) return NULL;
  uint64_t i = (p - BASE) >> 40, off = (p - BASE) & ((1ull << 40) - 1);
  if (i >= PIECES || !piece[i].data || off + len > piece[i].len) return NULL;
  return piece[i].data + off;
}
static int host(const void *p) { return p && (uintptr_t)p < BASE; }

CUresult cuInit(unsigned flags) { SAY; started = flags == 0; return flags ? INVALID_VALUE : OK; }
CUresult cuDriverGetVersion(int *v) { SAY; *v = 13010; return OK; }
CUresult cuDeviceGetCount(int *n) { SAY; *n = 1; return OK; }
CUresult cuDeviceGetName(char *s, int n, CUdevice d) { SAY; if (d != 7) return 101; strncpy(s, "NVIDIA H100 80GB HBM3", n); return OK; }
CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice d) { SAY; if (d != 7) return 101; *n = 80ull << 30; return OK; }
CUresult cuDeviceGet(CUdevice *d, int ordinal) { SAY; if (!started) return 3; if (ordinal != 0) return 101; *d = 7; return OK; }
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
CUresult cuCtxSynchronize(void) { SAY; CURRENT; return OK; }
CUresult cuMemGetInfo_v2(size_t *free, size_t *total) { SAY; CURRENT; *total = 80ull << 30; *free = *total - in_use; return OK; }
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t len) {
  SAY; CURRENT;
  if (!len || len > 80ull << 30) return OUT_OF_MEMORY;
  for (int i = 0; i < PIECES; i++)
    if (!piece[i].data) {
      piece[i].data = malloc(len);
      memset(piece[i].data, 0xcd, len);
      piece[i].len = len;
      in_use += len;
      *p = BASE + ((uint64_t)i << 40);
      return OK;
    }
  return OUT_OF_MEMORY;
}
CUresult cuMemFree_v2(CUdeviceptr p) {
  SAY; CURRENT;
  if (!device(p, 1)) return INVALID_VALUE;
  int i = (p - BASE) >> 40;
  in_use -= piece[i].len;
  free(piece[i].data);
  piece[i].data = NULL;
  return OK;
}
CUresult cuMemHostRegister_v2(void *p, size_t len, unsigned flags) {
  SAY; CURRENT;
  if (!host(p) || !len || flags != 1) return INVALID_VALUE;
  for (int i = 0; i < PIECES; i++) if (pinned[i].data == p) return 712;
  for (int i = 0; i < PIECES; i++)
    if (!pinned[i].data) { pinned[i].data = p; pinned[i].len = len; return OK; }
  return OUT_OF_MEMORY;
}
CUresult cuMemHostUnregister(void *p) {
  SAY; CURRENT;
  for (int i = 0; i < PIECES; i++) if (pinned[i].data == p) { pinned[i].data = NULL; return OK; }
  return 713;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t len, CUstream s) {
  SAY; CURRENT; (void)s;
  char *d = device(dst, len);
  if (!d || !host(src)) return INVALID_VALUE;
  memcpy(d, src, len);
  return OK;
}
CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t len, CUstream s) {
  SAY; CURRENT; (void)s;
  char *d = device(src, len);
  if (!d || !host(dst)) return INVALID_VALUE;
  memcpy(dst, d, len);
  return OK;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t len, CUstream s) {
  SAY; CURRENT; (void)s;
  char *d = device(dst, len), *f = device(src, len);
  if (!d || !f) return INVALID_VALUE;
  memmove(d, f, len);
  return OK;
}
CUresult cuStreamCreate(CUstream *s, unsigned flags) { SAY; CURRENT; if (flags != 1) return INVALID_VALUE; *s = malloc(1); return OK; }
CUresult cuStreamDestroy_v2(CUstream s) { SAY; if (!s) return INVALID_HANDLE; free(s); return OK; }
CUresult cuStreamSynchronize(CUstream s) { SAY; CURRENT; (void)s; return OK; }
CUresult cuEventCreate(CUevent *e, unsigned flags) { SAY; CURRENT; if (flags) return INVALID_VALUE; *e = calloc(1, 1); return OK; }
CUresult cuEventDestroy_v2(CUevent e) { SAY; if (!e) return INVALID_HANDLE; free(e); return OK; }
CUresult cuEventRecord(CUevent e, CUstream s) { SAY; CURRENT; if (!e || !s) return INVALID_HANDLE; *(char *)e = 1; return OK; }
CUresult cuEventSynchronize(CUevent e) { SAY; return e && *(char *)e ? OK : INVALID_HANDLE; }
CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) { SAY; if (!a || !b || a == b || !*(char *)a || !*(char *)b) return INVALID_HANDLE; *ms = 2; return OK; }
CUresult cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr p) {
  SAY; CURRENT;
  if (!device(p, 1)) return INVALID_VALUE;
  memset(h, 0, sizeof *h);
  memcpy(h->reserved + 8, &p, sizeof p);
  return OK;
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *p, CUipcMemHandle h, unsigned flags) {
  SAY; CURRENT;
  if (flags != 1) return INVALID_VALUE;
  memcpy(p, h.reserved + 8, sizeof *p);
  return device(*p, 1) ? OK : INVALID_HANDLE;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr p) { SAY; CURRENT; return device(p, 1) ? OK : INVALID_VALUE; }
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
int nvmlDeviceGetMemoryInfo(void *d, nvmlMemory_t *m) { SAY; (void)d; m->total = 80ull << 30; return 0; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { SAY; strncpy(s, "580.1", n); return 0; }
const char *nvmlErrorString(int e) { return e == 2 ? "invalid argument" : "other"; }
int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor) { SAY; (void)d; *major = 9; *minor = 0; return 0; }
int nvmlDeviceGetNumGpuCores(void *d, unsigned *n) { SAY; (void)d; *n = 16896; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *mw) { SAY; (void)d; *mw = 700000; return 0; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *mw) { SAY; (void)d; *mw = 321500; return 0; }
int nvmlDeviceGetClockInfo(void *d, int type, unsigned *mhz) { SAY; (void)d; *mhz = type == 1 ? 1980 : type == 2 ? 2619 : 0; return type > 2 ? 2 : 0; }
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *c) { SAY; (void)d; *c = 55; return sensor ? 2 : 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *r) { SAY; (void)d; *r = 4; return 0; }
