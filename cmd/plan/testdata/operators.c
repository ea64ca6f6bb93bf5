// A library of custom operators for ONNX Runtime: Affine of the domain test.operators, TIMES * x + 1 for
// float32 of any shape.
#include "onnxruntime_c_api.h"

#ifndef TIMES
#define TIMES 2
#endif

static const OrtApi *api;

static void *create(const OrtCustomOp *op, const OrtApi *a, const OrtKernelInfo *info) {
  (void)a, (void)info;
  return (void *)op;
}
static void destroy(void *kernel) { (void)kernel; }
static const char *name(const OrtCustomOp *op) { return (void)op, "Affine"; }
static const char *provider(const OrtCustomOp *op) { return (void)op, "CPUExecutionProvider"; }
static ONNXTensorElementDataType type(const OrtCustomOp *op, size_t i) { return (void)op, (void)i, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; }
static size_t one(const OrtCustomOp *op) { return (void)op, 1; }
static OrtCustomOpInputOutputCharacteristic required(const OrtCustomOp *op, size_t i) { return (void)op, (void)i, INPUT_OUTPUT_REQUIRED; }

static void compute(void *kernel, OrtKernelContext *context) {
  (void)kernel;
  const OrtValue *in = NULL;
  OrtValue *out = NULL;
  OrtTensorTypeAndShapeInfo *info = NULL;
  int64_t dims[16];
  size_t rank = 0, n = 0;
  float *x = NULL, *y = NULL;
  if (api->KernelContext_GetInput(context, 0, &in) || api->GetTensorTypeAndShape(in, &info) || api->GetDimensionsCount(info, &rank) || rank > 16 ||
      api->GetDimensions(info, dims, rank) || api->GetTensorShapeElementCount(info, &n) || api->KernelContext_GetOutput(context, 0, dims, rank, &out) ||
      api->GetTensorMutableData((OrtValue *)in, (void **)&x) || api->GetTensorMutableData(out, (void **)&y))
    return;
  for (size_t i = 0; i < n; i++) y[i] = TIMES * x[i] + 1;
  api->ReleaseTensorTypeAndShapeInfo(info);
}

static OrtCustomOp affine = {
    .version = 10, .CreateKernel = create, .GetName = name, .GetExecutionProviderType = provider, .GetInputType = type, .GetInputTypeCount = one,
    .GetOutputType = type, .GetOutputTypeCount = one, .KernelCompute = compute, .KernelDestroy = destroy,
    .GetInputCharacteristic = required, .GetOutputCharacteristic = required,
};

OrtStatus *ORT_API_CALL RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
  static OrtCustomOpDomain *domain;
  api = base->GetApi(20);
  if (!domain) {
    OrtStatus *bad = api->CreateCustomOpDomain("test.operators", &domain);
    if (!bad) bad = api->CustomOpDomain_Add(domain, &affine);
    if (bad) return bad;
  }
  return api->AddCustomOpDomain(options, domain);
}
