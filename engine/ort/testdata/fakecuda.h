// What the stand-ins for the CUDA libraries share: memory, streams, events and
// graphs. They live in fakecuda.c, the stand-in for the driver.
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include <stddef.h>
#include <stdint.h>

enum {
  OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 101, INVALID_CONTEXT = 201,
  INVALID_HANDLE = 400, CAPTURE_FORBIDS = 900, UNKNOWN = 999,
};

// said writes a call to $FAKECUDA_LOG and tells whether $FAKECUDA_FAIL names it.
int said(const char *name);
// noted writes a line only.
void noted(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define SAY if (said(__func__)) return UNKNOWN

// Memory of the device: take gives an address (0: none left), give takes it
// back, device is where the bytes behind an address lie (NULL: not all of them
// in one allocation).
uint64_t fake_take(size_t len);
int fake_give(uint64_t p);
char *device(uint64_t p, size_t len);
int on_device(const void *p);
void fake_memory(size_t *free, size_t *total);
void fake_pin(void *p, size_t len);
int fake_unpin(void *p);

// Work of a stream is done as late as the rules allow: when somebody waits for
// it. So whoever forgets to wait sees old bytes.
typedef struct fake_stream fake_stream;
typedef struct fake_event fake_event;
typedef struct fake_graph fake_graph;
// fake_do appends work, with a copy of its arguments; NULL is the default stream.
int fake_do(fake_stream *s, const char *name, void (*run)(void *args), const void *args, size_t len);
// fake_copy is an asynchronous copy; the kind follows from the addresses.
int fake_copy(fake_stream *s, void *dst, const void *src, size_t len);
int fake_wait(fake_stream *s); // NULL: the default stream
int fake_wait_all(void);
fake_stream *fake_stream_new(int non_blocking);
int fake_stream_free(fake_stream *s);
fake_event *fake_event_new(void);
int fake_event_record(fake_event *e, fake_stream *s);
int fake_event_wait(fake_event *e);
int fake_event_recorded(fake_event *e);
int fake_stream_waits(fake_stream *s, fake_event *e);

int fake_capture(fake_stream *s, int mode);
int fake_capturing(fake_stream *s);
int fake_captured(fake_stream *s, fake_graph **g);
int fake_graph_launch(fake_graph *g, fake_stream *s);
void fake_graph_free(fake_graph *g);
// fake_unsafe tells whether a capture forbids what the calling thread is about
// to do (allocate, wait): CUDA's default mode forbids it to all threads.
int fake_unsafe(const char *what);

#endif
