package worker

import (
	"fmt"

	"inferplan/engine"
)

// Keep has a worker cut a stage, and keep the model in memory of the host that
// comes along with the frame. With Size the model is there already, as Submodel
// describes it.
type Keep struct {
	Stage    StageSpec       `json:"stage"`
	Room     int64           `json:"room,omitempty"` // bytes that the model may have; 0: it is not kept
	Size     int64           `json:"size,omitempty"`
	Submodel engine.Submodel `json:"submodel,omitzero"`
}

// Kept answers it. A Size of 0: the model has no room, and is read from its file
// whenever the stage is swapped in.
type Kept struct {
	Loaded   Loaded          `json:"loaded"`
	Size     int64           `json:"size,omitempty"`
	Submodel engine.Submodel `json:"submodel,omitzero"`
}

// Swap brings stages, which were kept before, to the device, or takes them away,
// beside the runs of others. No run of a stage may be under way when it is taken
// away. One swap at a time.
type Swap struct {
	ID uint64 `json:"id"` // echoed
	In bool   `json:"in"`
	// Bytes is what the stages take on the device together.
	Bytes  int64    `json:"bytes"`
	Stages []Layout `json:"stages"`
}

// Swapped answers it.
type Swapped struct {
	ID    uint64 `json:"id"`
	Code  Code   `json:"code,omitempty"`
	Text  string `json:"text,omitempty"` // what went wrong, with a Code other than OK
	Start int64  `json:"start"`          // CLOCK_MONOTONIC, nanoseconds
	End   int64  `json:"end"`
	Cold  int    `json:"cold,omitempty"` // stages that came from their files
}

// Err is what went wrong.
func (s *Swapped) Err() error {
	if s.Code == OK {
		return nil
	}
	return &RemoteError{s.Code, s.Text}
}

func (q *Swap) check() error {
	if len(q.Stages) == 0 || q.Bytes < 0 {
		return fmt.Errorf("%w: swap of %d stages with %d bytes", ErrProtocol, len(q.Stages), q.Bytes)
	}
	return nil
}
