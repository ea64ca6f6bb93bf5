package worker

import (
	"slices"
	"sync"
)

// stageTable holds what one end knows of its stages (ranges of a model's blocks), by ID. Entries of stages that are not
// loaded are nil.
type stageTable[T any] struct {
	mu   sync.Mutex
	byID []*T
}

// stage returns a loaded stage by its ID, or nil if there is none.
func (t *stageTable[T]) stage(id uint32) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	if int64(id) >= int64(len(t.byID)) {
		return nil
	}
	return t.byID[id]
}

// setStage enters a stage that was loaded, under its ID, or nil for one that leaves. Runs find it there from now on.
func (t *stageTable[T]) setStage(id uint32, st *T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.byID) <= int(id) {
		t.byID = append(t.byID, nil)
	}
	t.byID[id] = st
}

// loaded returns the stages that are loaded.
func (t *stageTable[T]) loaded() []*T {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(t.byID), func(st *T) bool { return st == nil })
}
