// A stand-in for cuBLAS and cuBLASLt, as far as ONNX Runtime's CUDA provider
// calls them: products of matrices are computed on the CPU, cuBLASLt supports
// nothing. Signatures and numbers are those of the cuBLAS manual.
#include "fakecuda.h"

#include <stdlib.h>
#include <string.h>

typedef int status;
typedef struct handle { fake_stream *stream; int mode; } *cublasHandle_t;
enum { SUCCESS = 0, BAD_VALUE = 7, FAILED = 13, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_64F = 1, R_16F = 2 };
#undef SAY
#define SAY if (said(__func__)) return FAILED

status cublasCreate_v2(cublasHandle_t *h) { SAY; *h = calloc(1, sizeof **h); return 0; }
status cublasDestroy_v2(cublasHandle_t h) { SAY; free(h); return 0; }
status cublasSetStream_v2(cublasHandle_t h, fake_stream *s) { h->stream = s; return 0; }
status cublasGetMathMode(cublasHandle_t h, int *m) { *m = h->mode; return 0; }
status cublasSetMathMode(cublasHandle_t h, int m) { noted("cublasSetMathMode %d\n", m); h->mode = m; return 0; }
const char *cublasGetStatusName(status s) { return s ? "CUBLAS_STATUS_STAND_IN" : "CUBLAS_STATUS_SUCCESS"; }
const char *cublasGetStatusString(status s) { return s ? "an error of the stand-in" : "success"; }

// Numbers of the types above.
static float load(const char *p, int type, size_t i) {
  switch (type) {
    case R_32F: return ((const float *)p)[i];
    case R_64F: return ((const double *)p)[i];
    default: return ((const _Float16 *)p)[i];
  }
}
static void store(char *p, int type, size_t i, float v) {
  switch (type) {
    case R_32F: ((float *)p)[i] = v; break;
    case R_64F: ((double *)p)[i] = v; break;
    default: ((_Float16 *)p)[i] = v;
  }
}
static size_t width(int type) { return type == R_64F ? 8 : type == R_32F ? 4 : 2; }

// C = alpha op(A) op(B) + beta C, column by column.
typedef struct {
  int ta, tb, m, n, k, type, lda, ldb, ldc;
  const char *a, *b;
  char *c;
  float alpha, beta;
} product;

static void multiply(void *args) {
  product *p = args;
  for (int j = 0; j < p->n; j++)
    for (int i = 0; i < p->m; i++) {
      float sum = 0;
      for (int l = 0; l < p->k; l++)
        sum += load(p->a, p->type, p->ta ? l + (size_t)i * p->lda : i + (size_t)l * p->lda) *
               load(p->b, p->type, p->tb ? j + (size_t)l * p->ldb : l + (size_t)j * p->ldb);
      size_t at = i + (size_t)j * p->ldc;
      store(p->c, p->type, at, p->alpha * sum + (p->beta != 0 ? p->beta * load(p->c, p->type, at) : 0));
    }
}

static status gemm(cublasHandle_t h, int ta, int tb, int m, int n, int k, float alpha, const void *a, int lda, const void *b, int ldb, float beta, void *c, int ldc, int type) {
  if (m <= 0 || n <= 0) return 0;
  size_t w = width(type);
  product p = {ta, tb, m, n, k, type, lda, ldb, ldc, NULL, NULL, NULL, alpha, beta};
  p.a = device((uint64_t)a, w * ((size_t)((ta ? m : k) - 1) * lda + (ta ? k : m)));
  p.b = device((uint64_t)b, w * ((size_t)((tb ? k : n) - 1) * ldb + (tb ? n : k)));
  p.c = device((uint64_t)c, w * ((size_t)(n - 1) * ldc + m));
  if (!p.a || !p.b || !p.c) {
    noted("a product of %d x %d x %d outside its memory\n", m, n, k);
    return BAD_VALUE;
  }
  noted("gemm %d %d %d type %d%s\n", m, n, k, type, fake_capturing(h->stream) ? " captured" : "");
  if ((double)m * n * k > 2e7) return 0; // this is not for speed
  return fake_do(h->stream, "gemm", multiply, &p, sizeof p) ? FAILED : 0;
}

status cublasSgemm_v2(cublasHandle_t h, int ta, int tb, int m, int n, int k, const float *alpha, const void *a, int lda, const void *b, int ldb, const float *beta, void *c, int ldc) {
  SAY;
  return gemm(h, ta, tb, m, n, k, *alpha, a, lda, b, ldb, *beta, c, ldc, R_32F);
}
status cublasDgemm_v2(cublasHandle_t h, int ta, int tb, int m, int n, int k, const double *alpha, const void *a, int lda, const void *b, int ldb, const double *beta, void *c, int ldc) {
  SAY;
  return gemm(h, ta, tb, m, n, k, *alpha, a, lda, b, ldb, *beta, c, ldc, R_64F);
}
// The factors have the type in which is computed: 64 and 65 are half floats (with
// and without tensor cores), the others that occur are floats.
static float factor(const void *p, int compute) { return compute == 64 || compute == 65 ? (float)*(const _Float16 *)p : *(const float *)p; }
status cublasGemmEx(cublasHandle_t h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda, const void *b, int bt, int ldb, const void *beta, void *c, int ct, int ldc, int compute, int algo) {
  SAY; (void)algo;
  if (at != bt || at != ct) return NOT_SUPPORTED;
  return gemm(h, ta, tb, m, n, k, factor(alpha, compute), a, lda, b, ldb, factor(beta, compute), c, ldc, at);
}
static status strided(cublasHandle_t h, int ta, int tb, int m, int n, int k, float alpha, const char *a, int lda, long long sa, const char *b, int ldb, long long sb, float beta, char *c, int ldc, long long sc, int count, int type) {
  for (int i = 0; i < count; i++) {
    size_t w = width(type);
    status s = gemm(h, ta, tb, m, n, k, alpha, a + i * sa * (long long)w, lda, b + i * sb * (long long)w, ldb, beta, c + i * sc * (long long)w, ldc, type);
    if (s) return s;
  }
  return 0;
}
status cublasGemmStridedBatchedEx(cublasHandle_t h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda, long long sa, const void *b, int bt, int ldb, long long sb, const void *beta, void *c, int ct, int ldc, long long sc, int count, int compute, int algo) {
  SAY; (void)algo;
  if (at != bt || at != ct) return NOT_SUPPORTED;
  return strided(h, ta, tb, m, n, k, factor(alpha, compute), a, lda, sa, b, ldb, sb, factor(beta, compute), c, ldc, sc, count, at);
}
status cublasSgemmStridedBatched(cublasHandle_t h, int ta, int tb, int m, int n, int k, const float *alpha, const void *a, int lda, long long sa, const void *b, int ldb, long long sb, const float *beta, void *c, int ldc, long long sc, int count) {
  SAY;
  return strided(h, ta, tb, m, n, k, *alpha, a, lda, sa, b, ldb, sb, *beta, c, ldc, sc, count, R_32F);
}
status cublasDgemmStridedBatched(cublasHandle_t h, int ta, int tb, int m, int n, int k, const double *alpha, const void *a, int lda, long long sa, const void *b, int ldb, long long sb, const double *beta, void *c, int ldc, long long sc, int count) {
  SAY;
  return strided(h, ta, tb, m, n, k, *alpha, a, lda, sa, b, ldb, sb, *beta, c, ldc, sc, count, R_64F);
}

typedef struct { char *to; const char *from; int n, incx, incy, type; } vector;
static void vector_run(void *args) {
  vector *v = args;
  for (int i = 0; i < v->n; i++) store(v->to, v->type, (size_t)i * v->incy, load(v->from, v->type, (size_t)i * v->incx));
}
static status copy(cublasHandle_t h, int n, const void *x, int incx, void *y, int incy, int type) {
  if (n <= 0) return 0;
  vector v = {device((uint64_t)y, width(type) * ((size_t)(n - 1) * incy + 1)), device((uint64_t)x, width(type) * ((size_t)(n - 1) * incx + 1)), n, incx, incy, type};
  return v.to && v.from ? fake_do(h->stream, "copy", vector_run, &v, sizeof v) : BAD_VALUE;
}
status cublasScopy_v2(cublasHandle_t h, int n, const void *x, int incx, void *y, int incy) { SAY; return copy(h, n, x, incx, y, incy, R_32F); }
status cublasDcopy_v2(cublasHandle_t h, int n, const void *x, int incx, void *y, int incy) { SAY; return copy(h, n, x, incx, y, incy, R_64F); }

// C = alpha op(A) + beta op(B).
typedef struct { int ta, tb, m, n, lda, ldb, ldc; const float *a, *b; float *c, alpha, beta; } sum;
static void sum_run(void *args) {
  sum *p = args;
  for (int j = 0; j < p->n; j++)
    for (int i = 0; i < p->m; i++) {
      float v = p->alpha * p->a[p->ta ? j + (size_t)i * p->lda : i + (size_t)j * p->lda];
      if (p->beta != 0) v += p->beta * p->b[p->tb ? j + (size_t)i * p->ldb : i + (size_t)j * p->ldb];
      p->c[i + (size_t)j * p->ldc] = v;
    }
}
status cublasSgeam(cublasHandle_t h, int ta, int tb, int m, int n, const float *alpha, const void *a, int lda, const float *beta, const void *b, int ldb, void *c, int ldc) {
  SAY;
  sum p = {ta, tb, m, n, lda, ldb, ldc, (void *)device((uint64_t)a, 4), (void *)device((uint64_t)b, 4), (void *)device((uint64_t)c, 4), *alpha, *beta};
  if (!p.a || !p.c || (*beta != 0 && !p.b)) return BAD_VALUE;
  return fake_do(h->stream, "geam", sum_run, &p, sizeof p) ? FAILED : 0;
}

// What no model here needs.
#define NONE(name) status name(void) { SAY; return NOT_SUPPORTED; }
NONE(cublasDgeam) NONE(cublasSscal_v2)
NONE(cublasDgemmBatched) NONE(cublasSgemmBatched) NONE(cublasGemmBatchedEx)
NONE(cublasSgetrfBatched) NONE(cublasDgetrfBatched) NONE(cublasSgetriBatched) NONE(cublasDgetriBatched)
