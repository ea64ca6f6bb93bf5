// The part of ONNX Runtime's C API that this package uses, behind functions
// that return an error message (to be freed by the caller) or NULL.
#ifndef INFERPLAN_ORT_H
#define INFERPLAN_ORT_H

#include <stddef.h>
#include <stdint.h>

typedef struct ip_session ip_session;
typedef struct ip_binding ip_binding;

enum { IP_CPU = 0, IP_CUDA = 1, IP_TENSORRT = 2 };

// ip_open opens the library and makes the process's environment. Once only.
char *ip_open(const char *path, char **version);

typedef struct {
  int provider, device;
  int waits; // as on a GPU, also for the CPU's provider (tests)
  int threads, level; // level: 0 none, 1 basic, 2 extended, 99 all
  const char *batch_name; // the symbolic dimension that is fixed at batch, or NULL
  int batch;
  int n_config;
  char **config_keys, **config_values;
  int n_provider;
  char **provider_keys, **provider_values;
  int n_operators;
  char **operators; // paths of libraries of custom operators
} ip_options;

// ip_operators says why a file is no library of custom operators.
char *ip_operators(const char *path);

char *ip_session_new(const void *model, size_t len, const ip_options *o, ip_session **out);
void ip_session_free(ip_session *s);
int ip_session_count(ip_session *s, int outputs);
const char *ip_session_name(ip_session *s, int output, int i);
// ip_session_info tells type and dimensions (-1 where symbolic); the rank is
// cut at cap.
char *ip_session_info(ip_session *s, int output, int i, int *type, int64_t *dims, int cap, int *rank);

// ip_session_nodes tells which provider executes what, a line "provider, tab,
// operator, tab, name" for each node. The session was made with
// session.record_ep_graph_assignment_info.
char *ip_session_nodes(ip_session *s, char **out);

// A value over memory of the host that the caller owns, or memory that the
// session's device allocator gives.
char *ip_value_host(void *data, size_t len, const int64_t *shape, int rank, int type, void **out);
char *ip_value_device(ip_session *s, const int64_t *shape, int rank, int type, void **out);
// A value over memory of a GPU that the caller owns.
char *ip_value_on(int device, uint64_t data, size_t len, const int64_t *shape, int rank, int type, void **out);
char *ip_value_data(void *value, void **data);
char *ip_value_info(void *value, int *type, int64_t *dims, int cap, int *rank, size_t *bytes);
void ip_value_free(void *value);

// graph is the CUDA graph's id for these addresses, or 0.
char *ip_binding_new(ip_session *s, void **inputs, void **outputs, int graph, ip_binding **out);
void ip_binding_free(ip_binding *b);
// ip_run executes n times and, where the clocks are given, adds the CPU time
// of this thread and the wall time in nanoseconds, and on a GPU the wall time
// until the runs were launched (each of them is waited for).
char *ip_run(ip_binding *b, int n, int64_t *cpu_ns, int64_t *wall_ns, int64_t *host_ns);
char *ip_run_once(ip_binding *b);
// ip_eval runs with outputs of unknown shape; the values are the caller's.
char *ip_eval(ip_session *s, void **inputs, int n_outputs, char **names, void **outputs);

// ip_library tries to open a library and says why it cannot.
char *ip_library(const char *name);

#endif
