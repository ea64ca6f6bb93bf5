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

	mu     sync.Mutex
	used   int64
	models map[string]*cachedModel
}

type cachedModel struct {
	fd   int
	size int64
	sub  engine.Submodel
}

// DefaultCache is the number of bytes of models that a machine keeps if nothing else is configured.
const DefaultCache = 8 << 30

// NewCache makes a cache of at most limit bytes. A model that does not fit is read from its file whenever it is
// swapped in.
func NewCache(limit int64) *Cache {
	return &Cache{limit: limit, models: map[string]*cachedModel{}}
}

// Usage returns the number of models in the cache, and their bytes.
func (c *Cache) Used() (models int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.models), c.used
}

// Close frees the memory. Workers that have mapped a model keep it until they end.
func (c *Cache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.models {
		unix.Close(m.fd)
	}
	c.models, c.used = map[string]*cachedModel{}, 0
}

// keepStage has a worker keep a stage. The worker cuts the stage itself, or maps the model that another worker cut
// before.
func (c *Cache) keep(ctx context.Context, p *Process, spec *StageSpec, half bool) (*Loaded, error) {
	key, err := json.Marshal(struct {
		Stage StageSpec
		Half  bool
	}{contentOf(spec), half})
	if err != nil {
		return nil, fmt.Errorf("name the model of stage %d: %w", spec.ID, err)
	}
	c.mu.Lock()
	m := c.models[string(key)]
	if m == nil && c.limit > c.used {
		defer c.mu.Unlock() // other workers wait until the model is cut
		return c.fill(ctx, p, spec, string(key))
	}
	c.mu.Unlock()
	q, with := Keep{Stage: *spec}, []*Segment(nil)
	if m != nil {
		q.Size, q.Submodel, with = m.size, m.sub, []*Segment{{fd: m.fd}}
	}
	var r Kept
	if err := call(ctx, p, TypeKeep, q, TypeKept, &r, with...); err != nil {
		return nil, err
	}
	return &r.Loaded, nil
}

// cutIntoCache has a worker cut a stage into the cache. The caller holds c.mu.
func (c *Cache) fill(ctx context.Context, p *Process, spec *StageSpec, key string) (*Loaded, error) {
	fd, err := unix.MemfdCreate("inferplan-model", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memory for the model %s: %w", spec.Model, err)
	}
	var r Kept
	err = call(ctx, p, TypeKeep, Keep{Stage: *spec, Room: c.limit - c.used}, TypeKept, &r, &Segment{fd: fd})
	if err == nil && r.Size > 0 {
		err = sealModel(fd, r.Size, c.limit-c.used)
	}
	if err != nil || r.Size == 0 {
		unix.Close(fd)
		return &r.Loaded, err
	}
	c.models[key] = &cachedModel{fd, r.Size, r.Submodel}
	c.used += r.Size
	return &r.Loaded, nil
}

// sealModel seals the memory of a model, so that no process can change it any more. It returns an error if the
// memory has not the announced size, or more bytes than were free.
func sealModel(fd int, size, room int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("memory of a model: %w", err)
	}
	if st.Size != size || size > room {
		return fmt.Errorf("%w: a model of %d bytes, announced %d, with room for %d", ErrProtocol, st.Size, size, room)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("seal the memory of a model: %w", err)
	}
	return nil
}
