package worker

import (
	"fmt"

	"inferplan/engine"
)

// KeepRequest has a worker cut a stage, and keep the model in memory of the host, whose descriptor comes with the
// frame. If Size is above zero, the model is in that memory already, and Submodel describes it.
type KeepRequest struct {
	Stage     StageSpec       `json:"stage"`
	FreeBytes int64           `json:"room,omitempty"` // bytes that the model may take; 0 means that it is not kept
	Size      int64           `json:"size,omitempty"`
	Submodel  engine.Submodel `json:"submodel,omitzero"`
}

// KeptStage answers a KeepRequest. If Size is 0, the model did not fit and is read from its file whenever the
// stage is swapped in.
type KeptStage struct {
	Stage    LoadedStage     `json:"loaded"`
	Size     int64           `json:"size,omitempty"`
	Submodel engine.Submodel `json:"submodel,omitzero"`
}

// Swap loads stages, which were kept before, onto the device or removes them from it, beside the runs of other
// stages. No run of a stage may be under way when the stage is removed. A parent sends one swap at a time.
type Swap struct {
	ID       uint64 `json:"id"` // repeated in the SwapResult
	ToDevice bool   `json:"in"`
	// Bytes is the memory of the device that all the stages take together.
	Bytes  int64    `json:"bytes"`
	Stages []Layout `json:"stages"`
}

// SwapResult answers a Swap.
type SwapResult struct {
	ID       uint64 `json:"id"`
	Code     Code   `json:"code,omitempty"`
	Text     string `json:"text,omitempty"` // the error, if Code is not OK
	Start    int64  `json:"start"`          // CLOCK_MONOTONIC, nanoseconds
	End      int64  `json:"end"`
	FromFile int    `json:"cold,omitempty"` // number of stages that were loaded from their files
}

// Err returns the failure of the swap as an error, or nil if it succeeded.
func (s *SwapResult) Err() error {
	if s.Code == OK {
		return nil
	}
	return &RemoteError{s.Code, s.Text}
}

// check returns an error if a swap names no stages, or a negative size.
func (q *Swap) check() error {
	if len(q.Stages) == 0 || q.Bytes < 0 {
		return fmt.Errorf("%w: swap of %d stages with %d bytes", ErrProtocol, len(q.Stages), q.Bytes)
	}
	return nil
}
