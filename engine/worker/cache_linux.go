package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"inferplan/engine"
)

// Cache keeps models in the memory of this machine, cut for the stages that its devices run. Workers that swap
// stages load them from there. All workers share one copy of a model, which outlives the worker that cut it.
type Cache struct {
	limit int64

	mu        sync.Mutex
	usedBytes int64
	models    map[string]*cachedModel // by the JSON of what determines them
}

// cachedModel is a model in memory.
type cachedModel struct {
	fd   int             // the memory
	size int64           // its bytes
	sub  engine.Submodel // the model's description
}

// DefaultCache is the number of bytes of models that a machine keeps if nothing else is configured.
const DefaultCache = 8 << 30

// NewCache makes a cache of at most limit bytes. A model that does not fit is read from its file whenever it is
// swapped in.
func NewCache(limit int64) *Cache {
	return &Cache{limit: limit, models: map[string]*cachedModel{}}
}

// Usage returns the number of models in the cache, and their bytes.
func (c *Cache) Usage() (models int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.models), c.usedBytes
}

// Close frees the memory. Workers that have mapped a model keep it until they end.
func (c *Cache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.models {
		unix.Close(m.fd)
	}
	c.models, c.usedBytes = map[string]*cachedModel{}, 0
}

// keepStage has a worker keep a stage (a range of a model's blocks) in this machine's memory, so that it can be
// swapped in (loaded onto the device) fast. The worker cuts the stage out of its model's file, or maps what another
// worker cut before. Without room in the cache the worker reads the file at every swap. p is the worker, and fp16
// whether it computes in float16. The result has the stage's tensors.
func (c *Cache) keepStage(ctx context.Context, p *Process, spec *StageSpec, fp16 bool) (*LoadedStage, error) {
	key, err := json.Marshal(struct {
		Stage StageSpec
		Half  bool
	}{contentOf(spec), fp16})
	if err != nil {
		return nil, fmt.Errorf("name the model of stage %d: %w", spec.ID, err)
	}
	c.mu.Lock()
	m := c.models[string(key)]
	if m == nil && c.limit > c.usedBytes {
		defer c.mu.Unlock() // other workers wait until the model is cut
		return c.cutIntoCache(ctx, p, spec, string(key))
	}
	c.mu.Unlock()

	// Hand the worker the model that is there, or nothing.
	request, segments := KeepRequest{Stage: *spec}, []*Segment(nil)
	if m != nil {
		request.Size, request.Submodel, segments = m.size, m.sub, []*Segment{{fd: m.fd}}
	}
	var reply KeptStage
	if err := call(ctx, p, TypeKeep, request, TypeKept, &reply, segments...); err != nil {
		return nil, err
	}
	return &reply.Stage, nil
}

// cutIntoCache has a worker cut a stage and write the result into new memory, which the cache keeps under key if it
// fits. The caller holds c.mu.
func (c *Cache) cutIntoCache(ctx context.Context, p *Process, spec *StageSpec, key string) (*LoadedStage, error) {
	fd, err := unix.MemfdCreate("inferplan-model", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memory for the model %s: %w", spec.Model, err)
	}
	var reply KeptStage
	err = call(ctx, p, TypeKeep, KeepRequest{Stage: *spec, FreeBytes: c.limit - c.usedBytes}, TypeKept, &reply, &Segment{fd: fd})
	if err == nil && reply.Size > 0 {
		err = sealModel(fd, reply.Size, c.limit-c.usedBytes)
	}
	if err != nil || reply.Size == 0 {
		unix.Close(fd)
		return &reply.Stage, err
	}
	c.models[key] = &cachedModel{fd, reply.Size, reply.Submodel}
	c.usedBytes += reply.Size
	return &reply.Stage, nil
}

// sealModel is called when a worker has written a model into memory (fd). It seals the memory, so that no process
// can change it any more. It returns an error if the memory has not the announced size, or more bytes than were
// free.
func sealModel(fd int, size, freeBytes int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("memory of a model: %w", err)
	}
	if st.Size != size || size > freeBytes {
		return fmt.Errorf("%w: a model of %d bytes, announced %d, with room for %d", ErrProtocol, st.Size, size, freeBytes)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("seal the memory of a model: %w", err)
	}
	return nil
}
